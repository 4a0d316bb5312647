"""Exact log partition functions of sentences by transfer matrices on C^K states, for tiny vocabularies."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from trelliswork.errors import ValueRangeError
from trelliswork.inference.lifted.potentials import Table, check_tables, dense
from trelliswork.inference.lifted.sentences import PAD

MOST_STATES = 4096  # maximum of C^K
Array = NDArray[np.float64]


def fits(n_words: int, K: int) -> bool:
    """Return whether there are few enough states."""
    return n_words**K <= MOST_STATES


def sentence_log_z(log_unary: Array, tables: "list[Table]", max_length: int) -> Array:
    """Return log Z of sentences of 0, 1, ..., ``max_length`` words between K pads, shape (max_length + 1,).

    Words are not pads; scores of pads and of pairs of pads are excluded, as in ``sentences``. Time O(M C^(K+1)).
    """
    K, C = check_tables(log_unary, tables)
    if not fits(C, K):
        raise ValueRangeError(
            f"C^K = {C}^{K} states are too many for transfer matrices, at most {MOST_STATES:,} are supported: "
            "use a bound or an estimate."
        )
    steps = _steps(log_unary, tables)
    at_end = np.zeros((C,) * K)
    for k in range(K):  # axis k is the word K - 1 - k positions before the last one
        axis = [1] * K
        axis[k] = C
        reach = sum((dense(t)[:, PAD] for t in tables[K - 1 - k :]), np.zeros(C))
        reach[PAD] = 0.0  # pairs of pads have no score
        at_end = at_end + reach.reshape(axis)
    log_alpha = np.full((C,) * K, -np.inf)
    log_alpha[(PAD,) * K] = 0.0
    log_z = [0.0]
    for _ in range(max_length):
        moved = log_alpha[..., None] + steps
        moved[..., PAD] = -np.inf
        log_alpha = logsumexp(moved, axis=0)
        log_z.append(float(logsumexp(log_alpha + at_end)))
    return np.array(log_z)


def _steps(log_unary: Array, tables: "list[Table]") -> Array:
    """Return the scores (C, ..., C, C) of K words, the oldest first, and the next word."""
    K, C = len(tables), len(log_unary)
    scores = np.zeros((C,) * (K + 1)) + log_unary
    for distance, table in enumerate(tables, start=1):
        axes = [1] * (K + 1)
        axes[K - distance] = axes[K] = C
        scores = scores + dense(table).reshape(axes)
    return scores
