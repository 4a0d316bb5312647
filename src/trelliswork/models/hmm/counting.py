r"""Smoothed n-grams of labels, by modified Kneser-Ney (Chen and Goodman, 1999).

A discount for counts of 1, 2, and 3 or more goes to the next lower order, which counts the different contexts of a
label rather than its occurrences:

.. math:: p(c \mid a, b) = \frac{f(a, b, c) - D(f(a, b, c)) + \sum_{c'} D(f(a, b, c'))\, p(c \mid b)}{f(a, b)}

The end of a sequence is an event like a label, so that the model is a distribution over sequences of any length.
Nothing is impossible: unseen labels get a little from a uniform distribution.
"""

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ValueRangeError
from trelliswork.learning import whole

Floats = NDArray[np.float64]
Integers = NDArray[np.integer]
MOST_NUMBERS = 1 << 25  # maximum size of a table: 256 MB


def count_ngrams(labels: Integers, offsets: Integers, n_labels: int, order: int) -> Floats:
    """Estimate log p(label | the ``order`` labels before it) from labels (n_tokens,) from 0 to S-1.

    The tokens of sequence n are ``offsets[n]`` to ``offsets[n + 1]``; empty ones count as well, and in a group of
    processes those of all ranks. Entry [a, b, c] of the table (S + 1,) * (k + 1) is log p(c | a, b) for k = 2: index S
    is the start of a sequence in all axes but the last, and its end in the last. Contexts with a label before the start
    do not exist: -inf. Time O(n_tokens + S^(k+1)), memory O(S^(k+1)); with order k > 1, more than 2^25 numbers are an
    error.

    Examples
    --------
    >>> table = count_ngrams(np.array([0, 1, 1] * 20), np.array([0, 60]), 2, 1)
    >>> np.exp(table[0]).round(2)  # label 0 is always followed by label 1
    array([0.01, 0.97, 0.02])
    """
    if order > 1 and (n_labels + 1) ** (order + 1) > MOST_NUMBERS:
        raise ValueRangeError(
            f"order={order} with {n_labels} labels needs a table of {(n_labels + 1) ** (order + 1):,} numbers, more "
            f"than {MOST_NUMBERS:,}: use a lower order."
        )
    probabilities = _kneser_ney(_count(labels, offsets, n_labels, order + 1))
    for k in range(order - 1):  # only the start symbol precedes the start symbol
        probabilities[(slice(None),) * k + (slice(n_labels), n_labels)] = 0
    with np.errstate(divide="ignore"):
        log_table: Floats = np.log(probabilities)
    return log_table


def _count(labels: Integers, offsets: Integers, n_labels: int, n: int) -> Floats:
    """Return the counts of n-grams on all ranks, (S+1,) * n: n - 1 starts precede a sequence, one end follows it."""
    N, S = len(offsets) - 1, n_labels
    padded = np.full(len(labels) + n * N, S, np.int64)  # starts, labels, end; again
    padded[np.arange(len(labels)) + np.repeat(n * np.arange(N) + n - 1, np.diff(offsets))] = labels
    is_event = np.ones(len(padded), bool)
    starts = offsets[:-1] + n * np.arange(N)
    for k in range(n - 1):
        is_event[starts + k] = False
    last = np.flatnonzero(is_event)
    keys = np.zeros(len(last), np.int64)
    for k in range(n - 1, -1, -1):
        keys = keys * (S + 1) + padded[last - k]
    (counts,) = whole.summed(np.bincount(keys, minlength=(S + 1) ** n))
    return counts.reshape((S + 1,) * n).astype(np.float64)


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
