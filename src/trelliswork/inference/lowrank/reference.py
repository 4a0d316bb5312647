r"""Reference implementation of HMMs with a low-rank transition matrix: one sentence, NumPy.

The transition matrix is :math:`A = L R^\top` with L, R of shape (S, R) and no negative entries; its rows sum to one.
With :math:`o_t(z) = p(x_t \mid z)` (paper 4, eqs. 8-10; its eq. 10 is printed transposed)

.. math::
    \alpha_1 &= \pi \odot o_1 / c_1                                                         & (1) \\
    \alpha_t &= \big(R (L^\top \alpha_{t-1})\big) \odot o_t / c_t                           & (2) \\
    \log p(x) &= \textstyle\sum_t \log c_t                                                  & (3) \\
    \beta_{t-1} &= L\, (R^\top (o_t \odot \beta_t / c_t)), \quad \beta_T = 1                & (4) \\
    p(z_t \mid x) &= \alpha_t \odot \beta_t                                                 & (5)

where :math:`c_t` normalizes :math:`\alpha_t` to a sum of one. A step costs O(S R) instead of O(S^2).
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]


def forward(start: Floats, left: Floats, right: Floats, emission: Floats) -> tuple[float, Floats, Floats]:
    """Return ``(log_z, alpha, norms)`` of one sentence; ``emission`` (T, S) is p(x_t | z)."""
    alpha, norms = np.empty_like(emission), np.empty(len(emission))
    for t, o in enumerate(emission):
        joint = (start if t == 0 else right @ (left.T @ alpha[t - 1])) * o  # (1), (2)
        norms[t] = joint.sum()
        alpha[t] = joint / norms[t]
    return float(np.log(norms).sum()), alpha, norms  # (3)


def marginals(start: Floats, left: Floats, right: Floats, emission: Floats) -> tuple[float, Floats]:
    """Return ``(log_z, gamma)``; ``gamma`` (T, S) is p(z_t | x)."""
    log_z, alpha, norms = forward(start, left, right, emission)
    beta = np.ones_like(emission)
    for t in range(len(emission) - 1, 0, -1):
        beta[t - 1] = left @ (right.T @ (emission[t] * beta[t] / norms[t]))  # (4)
    return log_z, alpha * beta  # (5)
