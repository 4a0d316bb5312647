r"""Chains estimated by counting: relative frequencies with additive smoothing.

For labels :math:`y` and symbols :math:`x` of fully labelled sequences (paper 1, section 2, supervised case):

.. math:: p(j \mid i) = \frac{c(i, j) + s}{\sum_{j'} c(i, j') + s S}, \qquad
          p(x \mid j) = \frac{c(j, x) + s}{\sum_{x'} c(j, x') + s V}

The end of a sequence is an event of its own, so that the model is a distribution over sequences of any length.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ShapeError, ValueRangeError


class ChainEstimate(NamedTuple):
    """Log-probabilities of an HMM with an end event."""

    log_start: NDArray[np.float64]  # (S,)
    log_transition: NDArray[np.float64]  # (S, S), from row to column
    log_end: NDArray[np.float64]  # (S,); exp(log_transition).sum(1) + exp(log_end) = 1
    log_emission: NDArray[np.float64]  # (S, V)


def count_chain(
    labels: Sequence[Sequence[int]],
    symbols: Sequence[Sequence[int]],
    n_labels: int,
    n_symbols: int,
    *,
    smoothing: float = 0.1,
    emission_smoothing: float = 0.01,
) -> ChainEstimate:
    """Estimate an HMM from labelled sequences by smoothed counts.

    Parameters
    ----------
    labels, symbols : sequences of sequences of int
        Label and symbol ids, of equal lengths pair by pair.
    n_labels, n_symbols : int
        S and V.
    smoothing, emission_smoothing : float
        Added to each count of start and transitions, and of emissions; positive, so that nothing is impossible.
    """
    for name, value in (("smoothing", smoothing), ("emission_smoothing", emission_smoothing)):
        if not value > 0:
            raise ValueRangeError(f"{name} must be positive, got {value}: zero would forbid all unseen events.")
    if len(labels) != len(symbols):
        raise ShapeError(f"labels and symbols must pair up, got {len(labels)} and {len(symbols)} sequences.")
    start = np.zeros(n_labels)
    transition = np.zeros((n_labels, n_labels + 1))  # the last column counts ends
    emission = np.zeros((n_labels, n_symbols))
    for n, (y, x) in enumerate(zip(labels, symbols, strict=True)):
        if len(y) != len(x):
            raise ShapeError(f"sequence {n} has {len(y)} labels and {len(x)} symbols: they must be as many.")
        if len(y) == 0:
            continue
        start[y[0]] += 1
        np.add.at(transition, (y, [*y[1:], n_labels]), 1)
        np.add.at(emission, (y, x), 1)
    log_next = _log_frequencies(transition, smoothing)
    return ChainEstimate(
        _log_frequencies(start, smoothing),
        np.ascontiguousarray(log_next[:, :-1]),
        np.ascontiguousarray(log_next[:, -1]),
        _log_frequencies(emission, emission_smoothing),
    )


def _log_frequencies(counts: NDArray[np.float64], smoothing: float) -> NDArray[np.float64]:
    smoothed = counts + smoothing
    return np.log(smoothed / smoothed.sum(axis=-1, keepdims=True))
