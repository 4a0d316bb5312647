r"""Reference implementation of linear-chain inference: one sequence, NumPy, generic in the semiring.

With :math:`u_t(j)` = ``log_unary[t, j]`` and :math:`w_t(i, j)` = ``log_pairwise[t, i, j]`` from t to t+1:

.. math::
    \alpha_1(j) &= u_1(j) & (1)\\
    \alpha_{t+1}(j) &= u_{t+1}(j) + \textstyle\bigoplus_i \alpha_t(i) + w_t(i, j) & (2)\\
    \log Z &= \textstyle\bigoplus_j \alpha_T(j) & (3)\\
    \beta_T(i) &= 0 & (4)\\
    \beta_t(i) &= \textstyle\bigoplus_j w_t(i, j) + u_{t+1}(j) + \beta_{t+1}(j) & (5)\\
    p(y_t = j) &= \exp(\alpha_t(j) + \beta_t(j) - \log Z) & (6)\\
    p(y_t = i, y_{t+1} = j) &= \exp(\alpha_t(i) + w_t(i, j) + u_{t+1}(j) + \beta_{t+1}(j) - \log Z) & (7)

Paper 1 (Eisenstein's lecture), eqs. 8-9 (1, 2), 17-18 (4, 5), 21 (6), 19 (7). The kernels are tested against this.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Array = NDArray[np.float64]
Sum = Callable[..., Array]


def forward(log_unary: Array, log_pairwise: Array, add: Sum = logsumexp) -> tuple[Array, Array]:
    """Return ``(log_z, log_alpha)`` of one sequence; shapes ``()``, ``(T, S)``. ``add=np.max`` gives the best score."""
    log_alpha = np.empty_like(log_unary)
    log_alpha[0] = log_unary[0]  # (1)
    for t in range(1, len(log_unary)):
        log_alpha[t] = log_unary[t] + add(log_alpha[t - 1][:, None] + log_pairwise[t - 1], axis=0)  # (2)
    return add(log_alpha[-1], axis=0), log_alpha  # (3)


def backward(log_unary: Array, log_pairwise: Array, add: Sum = logsumexp) -> Array:
    """Return ``log_beta`` (T, S) of one sequence."""
    log_beta = np.zeros_like(log_unary)  # (4)
    for t in range(len(log_unary) - 2, -1, -1):
        log_beta[t] = add(log_pairwise[t] + (log_unary[t + 1] + log_beta[t + 1])[None, :], axis=1)  # (5)
    return log_beta


def expectations(log_unary: Array, log_pairwise: Array) -> tuple[Array, Array, Array]:
    """Return ``(log_z, marginals, edges)`` of one sequence; shapes ``()``, ``(T, S)``, ``(T-1, S, S)``."""
    log_z, log_alpha = forward(log_unary, log_pairwise)
    log_beta = backward(log_unary, log_pairwise)
    if np.isneginf(log_z):
        return log_z, np.zeros_like(log_unary), np.zeros_like(log_pairwise)
    marginals = np.exp(log_alpha + log_beta - log_z)  # (6)
    ahead = (log_unary + log_beta)[1:]
    edges = np.exp(log_alpha[:-1, :, None] + log_pairwise + ahead[:, None, :] - log_z)  # (7)
    return log_z, marginals, edges
