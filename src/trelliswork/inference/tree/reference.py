r"""Dependency trees to be read: one sentence, NumPy, the recursion generic in the semiring.

Projective trees. With :math:`s_{hd}` = ``log_arc[h, d]`` and nodes i < j, :math:`C_{he}` combines the trees with head h
that reach from h to e, :math:`I_{hd}` those whose outermost arc is h -> d and that are open at d (Eisner, 1996):

.. math::
    S_{ij} &= \textstyle\bigoplus_{i \le r < j} C_{ir} + C_{j,r+1} & (1)\\
    I_{ij} &= s_{ij} + S_{ij}, \quad I_{ji} = s_{ji} + S_{ij} & (2)\\
    C_{ij} &= \textstyle\bigoplus_{i < r \le j} I_{ir} + C_{rj} & (3)\\
    C_{ji} &= \textstyle\bigoplus_{i \le r < j} I_{jr} + C_{ri} & (4)\\
    \log Z &= C_{0n} & (5)

With a single root, :math:`C_{0j}` is impossible for 0 < j < n (6).

All spanning trees. With weights :math:`w_{hd} = e^{s_{hd}}`, Z is a determinant (Tutte, 1984; Koo et al., 2007):

.. math::
    L_{dd} &= \textstyle\sum_{h \ne d} w_{hd}, \quad L_{hd} = -w_{hd}, \quad Z = \det L, \quad 1 \le h, d \le n & (7)

With a single root, the sum starts at h = 1 and :math:`w_{0d}` replaces the first row (8). Marginals of both kinds are
ratios of sums, where :math:`Z_{hd}` allows no other head of d:

.. math:: p(h \to d) = Z_{hd} / Z \qquad (9)

The kernels are tested against this. Determinants cancel where scores differ much; the kernels do not.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Array = NDArray[np.float64]


def projective(log_arc: Array, single_root: bool, add: Callable[..., float] = logsumexp) -> float:
    """Return log Z over the projective trees of one sentence, (n+1, n+1). ``add=np.max`` gives the best score."""
    N = len(log_arc)
    C, I = np.full((N, N), -np.inf), np.full((N, N), -np.inf)  # noqa: E741
    np.fill_diagonal(C, 0)
    for width in range(1, N):
        for i in range(N - width):
            j = i + width
            S = add(C[i, i:j] + C[j, i + 1 : j + 1])  # (1)
            I[i, j] = log_arc[i, j] + S  # (2)
            if i > 0:
                I[j, i] = log_arc[j, i] + S  # (2)
            if i > 0 or j == N - 1 or not single_root:  # (6)
                C[i, j] = add(I[i, i + 1 : j + 1] + C[i + 1 : j + 1, j])  # (3)
            C[j, i] = add(I[j, i:j] + C[i:j, i])  # (4)
    return float(C[0, N - 1])  # (5)


def spanning(log_arc: Array, single_root: bool) -> float:
    """Return log Z over the spanning trees of one sentence, (n+1, n+1)."""
    weights = np.exp(log_arc)
    weights[:, 0] = 0
    np.fill_diagonal(weights, 0)
    laplacian = np.diag(weights[1 if single_root else 0 :, 1:].sum(axis=0)) - weights[1:, 1:]  # (7)
    if single_root:
        laplacian[0] = weights[0, 1:]  # (8)
    sign, log_z = np.linalg.slogdet(laplacian)
    return float(log_z) if sign > 0 else -np.inf


def marginals(log_arc: Array, single_root: bool, log_partition: Callable[[Array, bool], float]) -> Array:
    """Return p(h -> d), (n+1, n+1), by `projective` or `spanning`; zeros if no tree is possible."""
    N = len(log_arc)
    probabilities = np.zeros((N, N))
    log_z = log_partition(log_arc, single_root)
    for d in range(1, N):
        for h in range(N):
            if h != d and log_z > -np.inf:
                given = log_arc.copy()
                given[np.arange(N) != h, d] = -np.inf
                probabilities[h, d] = np.exp(log_partition(given, single_root) - log_z)  # (9)
    return probabilities
