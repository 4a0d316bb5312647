r"""Smoothed n-grams of labels.

**Deleted interpolation** (Brants, 2000, section 2.2 and figure 1): relative frequencies of all orders with weights that
do not depend on the context,

.. math:: p(c \mid a, b) = \lambda_1 \hat p(c) + \lambda_2 \hat p(c \mid b) + \lambda_3 \hat p(c \mid a, b).

Each trigram that was seen votes, as often as it was seen, for the order that would have predicted it best had it been
seen once less, :math:`(f(c) - 1) / (N - 1)`, :math:`(f(b, c) - 1) / (f(b) - 1)` or
:math:`(f(a, b, c) - 1) / (f(a, b) - 1)` (0 where the denominator is 0; the lower order wins a tie). The weights are the
shares of the votes; each starts with one vote, and an unseen context passes its weight to the lower orders.

**Modified Kneser-Ney** (Chen and Goodman, 1999): a discount for counts of 1, 2, and 3 or more, whose mass goes to the
next lower order, which counts the different contexts of a label rather than its occurrences:

.. math:: p(c \mid a, b) = \frac{f(a, b, c) - D(f(a, b, c)) + \sum_{c'} D(f(a, b, c'))\, p(c \mid b)}{f(a, b)}

In both the end of a sequence is an event like a label, so that the model is a distribution over sequences of any
length, and nothing is impossible: in n-grams, unseen labels get a little from a uniform distribution.
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.sharing import current
from trelliswork.data.corpus import check_offsets
from trelliswork.errors import ShapeError, ValueRangeError

Interpolation = Literal["kneser-ney", "deleted"]
Floats = NDArray[np.float64]
Integers = NDArray[np.integer]
MOST_NUMBERS = 1 << 25  # maximum size of a table: 256 MB


class Ngrams(NamedTuple):
    """A label model of order k.

    ``log_table[a, b, c]`` is log p(c | a, b) for k = 2: index S is the start of a sequence in all axes but the last,
    and its end in the last. Contexts with a label before the start do not exist: -inf. ``lambdas`` are the weights of
    the orders in deleted interpolation, unigrams first; they sum to 1.
    """

    log_table: Floats  # (S + 1,) * (k + 1)
    lambdas: Floats | None  # (k + 1,)


def count_ngrams(
    labels: Integers, offsets: Integers, n_labels: int, order: int, *, interpolation: Interpolation = "kneser-ney"
) -> Ngrams:
    """Estimate log p(label | the ``order`` labels before it), for labels (n_tokens,) from 0 to S-1.

    The tokens of sequence n are ``offsets[n]`` to ``offsets[n + 1]``; empty ones count as well, and in a group of
    processes those of all ranks. The ``interpolation`` mixes the orders; see the module. "deleted" is TnT's,
    "kneser-ney" tags slightly better. Time O(n_tokens + S^(k+1)), memory O(S^(k+1)); with order k > 1, more than 2^25
    numbers are an error.

    Examples
    --------
    >>> table, _ = count_ngrams(np.array([0, 1, 1, 0, 1]), np.array([0, 3, 5]), 2, 1, interpolation="deleted")
    >>> np.exp(table[0]).round(2)  # label 0 is always followed by label 1
    array([0.06, 0.87, 0.06])
    >>> table, _ = count_ngrams(np.array([0, 1, 1, 0, 1]), np.array([0, 3, 5]), 2, 2, interpolation="deleted")
    >>> np.exp(table[2, 2]).round(2)  # both sequences start with label 0
    array([0.86, 0.08, 0.06])
    """
    if order > 1 and (n_labels + 1) ** (order + 1) > MOST_NUMBERS:
        raise ValueRangeError(
            f"order={order} with {n_labels} labels needs a table of {(n_labels + 1) ** (order + 1):,} numbers, more "
            f"than {MOST_NUMBERS:,}: use a lower order."
        )
    counts, n = _count(labels, offsets, n_labels, order + 1), order + 1
    lambdas = None
    if interpolation == "deleted":
        lambdas, probabilities = _delete([counts.sum(axis=tuple(range(k))) for k in range(n - 1, 0, -1)] + [counts])
    elif interpolation == "kneser-ney":
        probabilities = _kneser_ney(counts)
    else:
        raise ValueRangeError(f"interpolation must be 'kneser-ney' or 'deleted', got {interpolation!r}.")
    for k in range(order - 1):  # only the start symbol precedes the start symbol
        probabilities[(slice(None),) * k + (slice(n_labels), n_labels)] = 0
    with np.errstate(divide="ignore"):
        return Ngrams(np.log(probabilities), lambdas)


def _count(labels: Integers, offsets: Integers, n_labels: int, n: int) -> Floats:
    """Return the counts of n-grams on all ranks, (S+1,) * n: n - 1 starts precede a sequence, one end follows it."""
    labels, ends, S = np.asarray(labels), np.asarray(offsets, np.int64), n_labels
    check_offsets("offsets", ends)
    if labels.shape != (ends[-1],):
        raise ShapeError(f"labels must have shape ({ends[-1]},), where offsets end, got {labels.shape}.")
    if labels.size and (labels.min() < 0 or labels.max() >= S):
        raise ValueRangeError(f"labels must lie between 0 and {S - 1}, got {labels.min()} to {labels.max()}.")
    N = len(ends) - 1
    if not current().any(N > 0):
        raise ValueRangeError("offsets must describe at least one sequence, got none: there is nothing to count.")
    padded = np.full(len(labels) + n * N, S, np.int64)  # starts, labels, end; again
    padded[np.arange(len(labels)) + np.repeat(n * np.arange(N) + n - 1, np.diff(ends))] = labels
    is_event = np.ones(len(padded), bool)
    starts = ends[:-1] + n * np.arange(N)
    for k in range(n - 1):
        is_event[starts + k] = False
    last = np.flatnonzero(is_event)
    keys = np.zeros(len(last), np.int64)
    for k in range(n - 1, -1, -1):
        keys = keys * (S + 1) + padded[last - k]
    counts = current().sum(np.bincount(keys, minlength=(S + 1) ** n))
    return counts.reshape((S + 1,) * n).astype(np.float64)


def _delete(counts: list[Floats]) -> tuple[Floats, Floats]:
    """Return weights and probabilities of deleted interpolation from the counts of every order, lowest first."""
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
    counts = [counts[0] + 1 / counts[0].size, *counts[1:]]  # one more event, shared by all
    contexts[0] = contexts[0] + 1
    probabilities = np.zeros_like(highest)
    weight = np.zeros_like(highest[..., :1])
    for share, c, n in zip(lambdas, counts, contexts, strict=True):
        probabilities += np.where(n > 0, share * c / np.maximum(n, 1), 0.0)
        weight += np.where(n > 0, share, 0.0)
    return lambdas, probabilities / weight


def _kneser_ney(counts: Floats) -> Floats:
    """Return modified Kneser-Ney probabilities of the highest order from its counts; lower orders by recursion."""
    if counts.ndim == 1:
        lower = np.full(len(counts), 1 / len(counts))
    else:
        different = (counts > 0).sum(axis=0).astype(np.float64)
        if counts.ndim > 2:
            different[-1] = counts.sum(axis=0)[-1]  # the start has only one context: count its occurrences
        lower = _kneser_ney(different)
    discount = _discounts(counts)[np.minimum(counts, 3).astype(np.int64)]
    context = counts.sum(axis=-1, keepdims=True)
    mixed = (counts - discount + discount.sum(axis=-1, keepdims=True) * lower) / np.maximum(context, 1)
    return np.where(context > 0, mixed, lower)


def _discounts(counts: Floats) -> Floats:
    """Return the discounts of counts 0, 1, 2, and 3 or more; 0.75 where there are too few counts."""
    ones, twos, threes, fours = (int((counts == k).sum()) for k in (1, 2, 3, 4))
    discounts = np.array([0.0, 0.75, 0.75, 0.75])
    if ones and twos:
        y = ones / (ones + 2 * twos)
        discounts[1] = 1 - 2 * y * twos / ones
        discounts[2] = 2 - 3 * y * threes / twos
        if threes:
            discounts[3] = 3 - 4 * y * fours / threes
    discounts[1:] = np.clip(discounts[1:], 0.1, [1, 2, 3])  # every discount is positive, so that nothing is impossible
    return discounts
