r"""Label models of the first and second order, estimated by counting.

**Deleted interpolation** (Brants, 2000, section 2.2 and figure 1): relative frequencies of all orders with weights that
do not depend on the context,

.. math:: p(c \mid a, b) = \lambda_1 \hat p(c) + \lambda_2 \hat p(c \mid b) + \lambda_3 \hat p(c \mid a, b).

Each trigram that was seen votes, as often as it was seen, for the order that would have predicted it best had it been
seen once less, :math:`(f(c) - 1) / (N - 1)`, :math:`(f(b, c) - 1) / (f(b) - 1)` or
:math:`(f(a, b, c) - 1) / (f(a, b) - 1)` (0 where the denominator is 0; the lower order wins a tie). The weights are the
shares of the votes; each starts with one vote, and a context never seen hands its weight down.

**Modified Kneser-Ney** (Chen and Goodman, 1999): a discount for counts of 1, 2, and 3 or more, whose mass goes to the
next lower order, which counts in how many different contexts a label was seen rather than how often:

.. math:: p(c \mid a, b) = \frac{f(a, b, c) - D(f(a, b, c)) + \sum_{c'} D(f(a, b, c'))\, p(c \mid b)}{f(a, b)}

With both, the end of a sequence is an event like a label, so that the model is a distribution over sequences of any
length, and nothing is impossible: labels never seen get a little from a uniform distribution.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.corpus import check_offsets
from trelliswork.errors import ShapeError, ValueRangeError

Method = Literal["kneser-ney", "deleted"]
Floats = NDArray[np.float64]
Integers = NDArray[np.integer]
MOST_NUMBERS = 1 << 25  # of a table: 256 MB


@dataclass(frozen=True, eq=False)
class Trigrams:
    """A label model of the second order.

    Attributes
    ----------
    log_trigram : ndarray (S + 1, S + 1, S + 1)
        ``log_trigram[a, b, c]`` is log p(c | a, b), as ``inference.chain.pairs`` takes it: index S is the begin in the
        first two axes, the end in the last. Contexts with a label before the begin do not exist: -inf.
    lambdas : ndarray (3,) or None
        Weights of unigrams, bigrams and trigrams, which sum to 1, after deleted interpolation.
    """

    log_trigram: Floats
    lambdas: Floats | None


@dataclass(frozen=True, eq=False)
class Bigrams:
    """A label model of the first order.

    Attributes
    ----------
    log_bigram : ndarray (S + 1, S + 1)
        ``log_bigram[b, c]`` is log p(c | b): row S is the begin, column S the end.
    lambdas : ndarray (2,) or None
        Weights of unigrams and bigrams, which sum to 1, after deleted interpolation.
    """

    log_bigram: Floats
    lambdas: Floats | None

    @property
    def log_start(self) -> Floats:
        """Log-probability of each label at the begin (S,)."""
        return self.log_bigram[-1, :-1]

    @property
    def log_transition(self) -> Floats:
        """Log-probability of each label (column) after each (row), (S, S)."""
        return self.log_bigram[:-1, :-1]

    @property
    def log_end(self) -> Floats:
        """Log-probability of the end after each label (S,)."""
        return self.log_bigram[:-1, -1]


def fit(labels: Integers, offsets: Integers, n_labels: int, *, method: Method = "kneser-ney") -> Trigrams:
    """Estimate a label model of the second order.

    Parameters
    ----------
    labels : ndarray (n_tokens,)
        Label ids, 0 to S-1; all sequences stand one behind the other.
    offsets : ndarray (N + 1,)
        Sequence n is the tokens ``offsets[n]`` to ``offsets[n + 1]``; empty ones count too.
    n_labels : int
        S.
    method : {"kneser-ney", "deleted"}
        How orders are mixed; see the module. "deleted" is TnT's, "kneser-ney" tags a little better.

    Returns
    -------
    Trigrams

    Notes
    -----
    Time O(n_tokens + S^3), memory O(S^3).

    Examples
    --------
    >>> model = fit(np.array([0, 1, 1, 0, 1]), np.array([0, 3, 5]), n_labels=2, method="deleted")
    >>> np.exp(model.log_trigram[2, 2]).round(2)  # how sequences begin: both with label 0
    array([0.86, 0.08, 0.06])
    """
    return Trigrams(*fit_ngrams(labels, offsets, n_labels, 2, method=method))


def fit_ngrams(
    labels: Integers, offsets: Integers, n_labels: int, order: int, *, method: Method = "kneser-ney"
) -> tuple[Floats, Floats | None]:
    """Estimate a label model of any order k: log p(label | the k before it), (S+1,) * (k+1), and the lambdas.

    Parameters as for ``fit``. Time O(n_tokens + S^(k+1)), memory O(S^(k+1)); more than 2^25 numbers are refused.
    """
    if (n_labels + 1) ** (order + 1) > MOST_NUMBERS:
        raise ValueRangeError(
            f"order={order} with {n_labels} labels needs a table of {(n_labels + 1) ** (order + 1):,} numbers, more "
            f"than {MOST_NUMBERS:,}: use a lower order."
        )
    lambdas, probabilities = _mix(_count(labels, offsets, n_labels, order + 1), order + 1, method)
    for k in range(order - 1):  # nothing stands before the begin but the begin
        probabilities[(slice(None),) * k + (slice(n_labels), n_labels)] = 0
    with np.errstate(divide="ignore"):
        return np.log(probabilities), lambdas


def fit_bigrams(labels: Integers, offsets: Integers, n_labels: int, *, method: Method = "kneser-ney") -> Bigrams:
    """Estimate a label model of the first order; parameters as for ``fit``.

    Examples
    --------
    >>> model = fit_bigrams(np.array([0, 1, 1, 0, 1]), np.array([0, 3, 5]), n_labels=2, method="deleted")
    >>> np.exp(model.log_transition[0]).round(2)  # label 0 is followed by label 1, always
    array([0.06, 0.87])
    """
    lambdas, probabilities = _mix(_count(labels, offsets, n_labels, 2), 2, method)
    return Bigrams(np.log(probabilities), lambdas)


def _count(labels: Integers, offsets: Integers, n_labels: int, n: int) -> Floats:
    """How often each n-gram occurs, (S+1,) * n: n - 1 begins before every sequence, one end behind it."""
    labels, ends, S = np.asarray(labels), np.asarray(offsets, np.int64), n_labels
    check_offsets("offsets", ends)
    if labels.shape != (ends[-1],):
        raise ShapeError(f"labels must have shape ({ends[-1]},), where offsets end, got {labels.shape}.")
    if labels.size and (labels.min() < 0 or labels.max() >= S):
        raise ValueRangeError(f"labels must lie between 0 and {S - 1}, got {labels.min()} to {labels.max()}.")
    N = len(ends) - 1
    if N == 0:
        raise ValueRangeError("offsets must hold at least one sequence, got none: there is nothing to count.")
    padded = np.full(len(labels) + n * N, S, np.int64)  # begins, labels, end; again
    padded[np.arange(len(labels)) + np.repeat(n * np.arange(N) + n - 1, np.diff(ends))] = labels
    is_event = np.ones(len(padded), bool)
    starts = ends[:-1] + n * np.arange(N)
    for k in range(n - 1):
        is_event[starts + k] = False
    last = np.flatnonzero(is_event)
    keys = np.zeros(len(last), np.int64)
    for k in range(n - 1, -1, -1):
        keys = keys * (S + 1) + padded[last - k]
    return np.bincount(keys, minlength=(S + 1) ** n).reshape((S + 1,) * n).astype(np.float64)


def _mix(counts: Floats, order: int, method: Method) -> tuple[Floats | None, Floats]:
    """Weights, if there are any, and probabilities of the highest order from its counts."""
    if method == "deleted":
        return _delete([counts.sum(axis=tuple(range(k))) for k in range(order - 1, 0, -1)] + [counts])
    if method == "kneser-ney":
        return None, _kneser_ney(counts)
    raise ValueRangeError(f"method must be 'kneser-ney' or 'deleted', got {method!r}.")


def _delete(counts: list[Floats]) -> tuple[Floats, Floats]:
    """Deleted interpolation of the counts of every order, the lowest first."""
    highest = counts[-1]
    contexts = [c.sum(axis=-1, keepdims=True) for c in counts]
    once_less = np.stack(
        [
            np.broadcast_to(np.where(n > 1, (c - 1) / np.maximum(n - 1, 1), 0.0), highest.shape)
            for c, n in zip(counts, contexts, strict=True)
        ]
    )
    votes = 1 + np.bincount(once_less.argmax(axis=0).ravel(), weights=highest.ravel(), minlength=len(counts))
    lambdas = votes / votes.sum()
    counts = [counts[0] + 1 / counts[0].size, *counts[1:]]  # one event more, shared by all
    contexts[0] = contexts[0] + 1
    probabilities = np.zeros_like(highest)
    weight = np.zeros_like(highest[..., :1])
    for share, c, n in zip(lambdas, counts, contexts, strict=True):
        probabilities += np.where(n > 0, share * c / np.maximum(n, 1), 0.0)
        weight += np.where(n > 0, share, 0.0)
    return lambdas, probabilities / weight


def _kneser_ney(counts: Floats) -> Floats:
    """Modified Kneser-Ney probabilities of the highest order from its counts; lower orders by recursion."""
    if counts.ndim == 1:
        lower = np.full(len(counts), 1 / len(counts))
    else:
        different = (counts > 0).sum(axis=0).astype(np.float64)
        if counts.ndim > 2:
            different[-1] = counts.sum(axis=0)[-1]  # before the begin there is nothing else: count how often
        lower = _kneser_ney(different)
    discount = _discounts(counts)[np.minimum(counts, 3).astype(np.int64)]
    context = counts.sum(axis=-1, keepdims=True)
    mixed = (counts - discount + discount.sum(axis=-1, keepdims=True) * lower) / np.maximum(context, 1)
    return np.where(context > 0, mixed, lower)


def _discounts(counts: Floats) -> Floats:
    """Discounts of counts 0, 1, 2, and 3 or more; 0.75 where counts are too few to tell."""
    ones, twos, threes, fours = (int((counts == k).sum()) for k in (1, 2, 3, 4))
    discounts = np.array([0.0, 0.75, 0.75, 0.75])
    if ones and twos:
        y = ones / (ones + 2 * twos)
        discounts[1] = 1 - 2 * y * twos / ones
        discounts[2] = 2 - 3 * y * threes / twos
        if threes:
            discounts[3] = 3 - 4 * y * fours / threes
    discounts[1:] = np.clip(discounts[1:], 0.1, [1, 2, 3])  # each gives something, so that nothing is impossible
    return discounts
