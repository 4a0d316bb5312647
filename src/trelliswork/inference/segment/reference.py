r"""Reference implementation of semi-Markov chains: one sequence, NumPy, generic in the semiring.

A segment of l positions from position t on (0..T-1) with label j scores :math:`s(t, l, j)` = ``log_segment[t, l - 1,
j]``, and a label i before the next segment's label j :math:`w(i, j)` = ``log_pairwise[i, j]``. With :math:`\alpha_t(j)`
the sum over segmentations of the first t positions whose last segment has label j:

.. math::
    \eta_0(j) &= 0, \qquad \eta_t(j) = \textstyle\bigoplus_i \alpha_t(i) + w(i, j) & (1)\\
    \alpha_t(j) &= \textstyle\bigoplus_{l \le \min(L, t)} \eta_{t-l}(j) + s(t - l, l, j) & (2)\\
    \log Z &= \textstyle\bigoplus_j \alpha_T(j) & (3)

Sarawagi and Cohen (2004). The compiled recursions are tested against this.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Array = NDArray[np.float64]


def forward(log_segment: Array, log_pairwise: Array, add: Callable[..., Any] = logsumexp) -> float:
    """Return log Z of one sequence from scores (T, L, S) and (S, S). ``add=np.max`` gives the best score."""
    T, L, S = log_segment.shape
    eta, alpha = np.zeros((T + 1, S)), np.empty((T + 1, S))
    for t in range(1, T + 1):
        lengths = np.arange(1, min(L, t) + 1)
        alpha[t] = add(eta[t - lengths] + log_segment[t - lengths, lengths - 1], axis=0)  # (2)
        eta[t] = add(alpha[t][:, None] + log_pairwise, axis=0)  # (1)
    return float(add(alpha[T], axis=0))  # (3)
