r"""Reference implementation of the lifted bounds: dense tables, float64.

The model: words :math:`x_1 \dots x_N` in a circle, log-potentials :math:`\theta^0` (C,) of words and :math:`\theta^l`
(C, C) of pairs at distance l = 1..K,

.. math:: A(\theta) = \log \sum_x \exp \sum_i \Big(\theta^0(x_i) + \sum_l \theta^l(x_i, x_{i+l})\Big).     (1)

**Star cover** (Jernite, Rush and Sontag, 2015, eqs. 14-17). One star, center 0 and leaves 1..K, for any delta (K, C):

.. math:: \frac{A}{N} \le \frac{1}{K+1} \log \sum_x e^{\theta^0(x) - \sum_l \delta^l(x)} \prod_l m_l(x),
    \qquad m_l(x) = \sum_y e^{(K+1) \theta^l(x, y) + \theta^0(y) + \delta^l(y)}.                          (2)

Its gradients are the star's marginals: :math:`\mu_l - \mu_0` for :math:`\delta^l`, (K + 1) times the edge's table for
:math:`\theta^l`, and :math:`\sum_{l=0}^K \mu_l` for :math:`\theta^0` (not (K + 1) times the center's, unless delta is
optimal). The tightest delta makes all margins equal; this update converges much faster than a sub-gradient:

.. math:: \delta^l \leftarrow \delta^l + (\log \mu_0 - \log \mu_l) / (K + 2).                             (3)

**Chain cover.** By convexity of A, for weights :math:`\rho_0 + \dots + \rho_K = 1` and unaries
:math:`\sum_l \rho_l a_l = \theta^0`,

.. math:: \frac{A}{N} \le \rho_0 \log \sum_x e^{a_0(x)} + \sum_{l \ge 1} \rho_l \log \lambda(T_l), \qquad
    T_l(x, y) = e^{a_l(y) + \theta^l(x, y) / \rho_l},                                                     (4)

:math:`\lambda` the Perron root: each distance alone is a set of chains, distance 0 are single words. This is the bound
of an endless circle, :math:`N \to \infty`; at a small N the truth may be above it.

**How they compare.** At the best delta and the best a both are :math:`\max_\mu \langle\mu, \theta\rangle + H(\mu_0) -
\sum_l \rho_l I(\mu_l)` over locally consistent margins, with :math:`\rho_l = 1/(K+1)` for the star (Wainwright et al.,
2005). I is not negative, so more weight on every distance is tighter: chains with :math:`\rho_l = 1/K`, and with the
best weights, are never above the star. For K = 1 the chain is exact.

**Learning.** The tightest bound of the best table is :math:`-H(\hat\mu_0) + \sum_l \rho_l I(\hat\mu_l)`: linear in the
weights. So a trained bound is best when all of the weight is on the distance with the largest mutual information:
no cover by forests learns more from K = 2 than the exact K = 1 model does.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Array = NDArray[np.float64]


def star(log_unary: Array, tables: Array, delta: Array) -> tuple[float, Array, Array]:
    """Return log Z of the star (2), its margins (K + 1, C), center first, and its edges (K, C, C)."""
    K = len(tables)
    scores = (K + 1) * tables + (log_unary + delta)[:, None, :]
    log_messages = logsumexp(scores, axis=-1)
    log_center = log_unary - delta.sum(0) + log_messages.sum(0)
    log_z = logsumexp(log_center)
    center = np.exp(log_center - log_z)
    edges = center[None, :, None] * np.exp(scores - log_messages[:, :, None])
    return float(log_z), np.vstack([center[None], edges.sum(1)]), edges


def conditionals(left: Array, right: Array, bias: Array, weights: Array) -> tuple[Array, Array, Array, Array]:
    """Return log Z(x) of the softmax over y of left[x] . right[y] + bias[y], and the gradients of weights . log Z."""
    scores = left @ right.T + bias
    log_norm = logsumexp(scores, axis=-1)
    share = weights[:, None] * np.exp(scores - log_norm[:, None])
    return log_norm, share @ right, share.T @ left, share.sum(0)


def perron(scores: Array) -> tuple[float, Array]:
    """Return log of the Perron root of exp(scores) and the edges' table (C, C), its gradient."""
    top = scores.max()
    matrix = np.exp(scores - top)
    roots, right = np.linalg.eig(matrix)
    left_roots, left = np.linalg.eig(matrix.T)
    root, r = roots.real.max(), np.abs(right[:, roots.real.argmax()].real)
    u = np.abs(left[:, left_roots.real.argmax()].real)
    edges = u[:, None] * matrix * r
    return float(np.log(root) + top), edges / edges.sum()


def chain_cover(unaries: Array, tables: Array, weights: Array) -> tuple[float, Array]:
    """Return the bound (4) on A / N and the margins (K + 1, C); unaries (K + 1, C), weights (K + 1,)."""
    log_sum = logsumexp(unaries[0])
    value, margins = weights[0] * log_sum, [np.exp(unaries[0] - log_sum)]
    for a, table, rho in zip(unaries[1:], tables, weights[1:], strict=True):
        log_root, edges = perron(a + table / rho)
        value += rho * log_root
        margins.append(edges.sum(0))
    return float(value), np.array(margins)
