r"""Second-order chains over ragged sentences: the best labeling, evidence and marginals.

.. math:: p(x, y) = \prod_{t=1}^{T} p(y_t \mid y_{t-2}, y_{t-1})\, e_t(y_t) \cdot p(\text{end} \mid y_{T-1}, y_T)

Labels before the first one are the start symbol. States are pairs of neighboring labels; only labels whose emission is
possible are visited, so a word that was seen with two labels costs two, whatever S is.

All functions take concatenated sentences:

log_emission : ndarray (n_tokens, S)
    ``log_emission[i, c]`` scores label c at token i; -inf forbids it.
offsets : ndarray (N + 1,)
    Sentence n has the tokens ``offsets[n]`` to ``offsets[n + 1]``.
log_trigram : ndarray (S + 1, S + 1, S + 1)
    ``log_trigram[a, b, c]`` scores label c after the labels a, b. Index S is the start in the first two axes and the
    end in the last: ``[S, S, c]`` starts a sentence, ``[S, b, c]`` continues it, ``[a, b, S]`` ends it.
"""

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_possible, check_scores, check_shape
from trelliswork.errors import ShapeError
from trelliswork.inference.chain.kernels import pairs as kernels
from trelliswork.inference.chain.kernels.pairs import Active, Trigrams

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Scores = NDArray[np.floating]


def viterbi(log_emission: Scores, offsets: NDArray[np.integer], log_trigram: Scores) -> tuple[Integers, Floats]:
    """Return the best labels (n_tokens,) and the score (N,) of each sentence; raise if one has no possible labeling.

    Per sentence, time O(sum of A[t-2] A[t-1] A[t]) and memory O(sum of A[t-1] A[t]), where A[t] is the number of
    possible labels of token t: O(T S^3) and O(T S^2) in the worst case.

    Examples
    --------
    >>> log_trigram = np.log(np.full((3, 3, 3), 1 / 3))
    >>> labels, scores = viterbi(np.log([[0.5, 0.25], [0.125, 0.5]]), np.array([0, 2]), log_trigram)
    >>> labels, np.exp(scores) * 27
    (array([0, 1]), array([0.25]))
    """
    active, ends, trigram = _check(log_emission, offsets, log_trigram)
    labels, best = np.zeros(len(active.ptr) - 1, np.int64), np.empty(len(ends) - 1)
    threads.run(kernels.viterbi, _ranges(ends, active.ptr, cost=1), ends, active, trigram, labels, best)
    check_possible(best, "no labeling to decode")
    return labels, best


def log_evidence(log_emission: Scores, offsets: NDArray[np.integer], log_trigram: Scores) -> Floats:
    """Return the log evidence (N,) alone, in half the time of ``forward_backward``."""
    return forward_backward(log_emission, offsets, log_trigram, marginals=False)[0]


def forward_backward(
    log_emission: Scores, offsets: NDArray[np.integer], log_trigram: Scores, *, marginals: bool = True
) -> tuple[Floats, Floats]:
    r"""Return the log evidence of each sentence and the marginals of each token.

    The evidence (N,) is :math:`\log \sum_y p(x, y)`, -inf for an impossible sentence; rows of the marginals
    (n_tokens, S) sum to 1 (0 in an impossible sentence). Time and memory as for ``viterbi``, twice.
    """
    active, ends, log_scores = _check(log_emission, offsets, log_trigram)
    top = float(log_scores.max())
    shift = top if top > -np.inf else 0.0  # so that exp does not overflow: scores need not be probabilities
    trigrams = Trigrams(log_scores, np.exp(log_scores - shift), shift)
    evidence = np.empty(len(ends) - 1)
    posterior = np.zeros((len(active.ptr) - 1, len(log_scores) - 1) if marginals else (0, 0))
    ranges = _ranges(ends, active.ptr, cost=2)
    threads.run(kernels.forward_backward, ranges, ends, active, trigrams, evidence, posterior)
    return evidence, posterior


def _check(log_emission: Scores, offsets: NDArray[np.integer], log_trigram: Scores) -> tuple[Active, Integers, Floats]:
    """Check shapes and values; return the possible labels of every token, offsets and scores of triples."""
    scores, trigram = np.ascontiguousarray(log_emission, np.float64), np.ascontiguousarray(log_trigram, np.float64)
    ends = np.ascontiguousarray(offsets, np.int64)
    n, S = check_shape("log_emission", scores.shape, "n_tokens S").values()
    if trigram.shape != (S + 1, S + 1, S + 1):
        raise ShapeError(
            f"log_trigram must have shape (S+1, S+1, S+1), got {trigram.shape}: log_emission has S={S} labels."
        )
    check_scores("log_emission", scores)
    check_scores("log_trigram", trigram)
    if ends.ndim != 1 or not ends.size or ends[0] or ends[-1] != n or (np.diff(ends) < 0).any():
        raise ShapeError(f"offsets must be a 1-d array of integers that rise from 0 to n_tokens={n}, got {offsets}.")
    possible = scores > -np.inf
    ptr = np.concatenate([[0], np.cumsum(possible.sum(axis=1))])
    return Active(ptr, np.nonzero(possible)[1], scores[possible]), ends, trigram


def _ranges(offsets: Integers, ptr: Integers, *, cost: int) -> list[tuple[int, int]]:
    """Return ranges of sentences of about equal cost, measured in triples of labels."""
    n_active = np.diff(ptr)
    triples = n_active.copy()
    triples[1:] *= n_active[:-1]
    triples[2:] *= n_active[:-2]  # crosses the ends of sentences: accurate enough
    totals = np.concatenate([[0], np.cumsum(triples)])
    return threads.cut(cost * np.diff(totals[offsets]), least=threads.LEAST_WORK)
