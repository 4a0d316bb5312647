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


def viterbi(
    log_emission: NDArray[np.floating],
    offsets: NDArray[np.integer],
    log_trigram: NDArray[np.floating],
) -> tuple[Integers, Floats]:
    """Return the best labeling of each sentence; the module documents the parameters.

    Returns
    -------
    labels : ndarray (n_tokens,)
    scores : ndarray (N,)

    Raises
    ------
    ImpossibleError
        If a sentence has no possible labeling.

    Notes
    -----
    Per sentence, time O(sum of A[t-2] A[t-1] A[t]) and memory O(sum of A[t-1] A[t]), where A[t] is the number of
    possible labels of token t: O(T S^3) and O(T S^2) in the worst case.

    Examples
    --------
    >>> log_trigram = np.log(np.full((3, 3, 3), 1 / 3))
    >>> labels, scores = viterbi(np.log([[0.5, 0.25], [0.125, 0.5]]), np.array([0, 2]), log_trigram)
    >>> labels, np.exp(scores) * 27
    (array([0, 1]), array([0.25]))
    """
    emission, ends, trigram = _check(log_emission, offsets, log_trigram)
    active = _active(emission)
    labels, best = np.zeros(len(emission), np.int64), np.empty(len(ends) - 1)

    def work(start: int, stop: int) -> None:
        kernels.viterbi(start, stop, ends, active, trigram, labels, best)

    threads.run(work, _ranges(ends, active.ptr, cost=1))
    check_possible(best, "no labeling to decode")
    return labels, best


def forward_backward(
    log_emission: NDArray[np.floating],
    offsets: NDArray[np.integer],
    log_trigram: NDArray[np.floating],
) -> tuple[Floats, Floats]:
    r"""Return the log evidence of each sentence and the marginals of each token; the module documents the parameters.

    Returns
    -------
    log_evidence : ndarray (N,)
        :math:`\log \sum_y p(x, y)`; -inf for an impossible sentence.
    marginals : ndarray (n_tokens, S)
        Rows sum to 1 (0 in an impossible sentence).

    Notes
    -----
    Time and memory as for ``viterbi``, twice.
    """
    return _sum(log_emission, offsets, log_trigram, marginals=True)


def log_evidence(
    log_emission: NDArray[np.floating],
    offsets: NDArray[np.integer],
    log_trigram: NDArray[np.floating],
) -> Floats:
    """Return the log evidence (N,) alone, in half the time of ``forward_backward``."""
    return _sum(log_emission, offsets, log_trigram, marginals=False)[0]


def _sum(
    log_emission: NDArray[np.floating],
    offsets: NDArray[np.integer],
    log_trigram: NDArray[np.floating],
    *,
    marginals: bool,
) -> tuple[Floats, Floats]:
    emission, ends, log_scores = _check(log_emission, offsets, log_trigram)
    active = _active(emission)
    top = float(log_scores.max())
    shift = top if top > -np.inf else 0.0  # so that exp does not overflow: scores need not be probabilities
    trigrams = Trigrams(log_scores, np.exp(log_scores - shift), shift)
    evidence = np.empty(len(ends) - 1)
    posterior = np.zeros(emission.shape if marginals else (0, 0))

    def work(start: int, stop: int) -> None:
        kernels.forward_backward(start, stop, ends, active, trigrams, evidence, posterior)

    threads.run(work, _ranges(ends, active.ptr, cost=2))
    return evidence, posterior


def _check(
    log_emission: NDArray[np.floating],
    offsets: NDArray[np.integer],
    log_trigram: NDArray[np.floating],
) -> tuple[Floats, Integers, Floats]:
    """Check shapes and values; return contiguous float64 and int64 arrays."""
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
    return scores, ends, trigram


def _active(log_emission: Floats) -> Active:
    """Return the possible labels of every token and their scores."""
    possible = log_emission > -np.inf
    ptr = np.concatenate([[0], np.cumsum(possible.sum(axis=1))])
    return Active(ptr, np.nonzero(possible)[1], log_emission[possible])


def _ranges(offsets: Integers, ptr: Integers, *, cost: int) -> list[tuple[int, int]]:
    """Return ranges of sentences of about equal cost, measured in triples of labels."""
    n_active = np.diff(ptr)
    triples = n_active.copy()
    triples[1:] *= n_active[:-1]
    triples[2:] *= n_active[:-2]  # crosses the ends of sentences: accurate enough
    totals = np.concatenate([[0], np.cumsum(triples)])
    return threads.cut(cost * np.diff(totals[offsets]), least=threads.LEAST_WORK)
