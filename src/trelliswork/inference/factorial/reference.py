r"""Reference implementation of factorial chains: one sequence, NumPy.

With :math:`u^d_t` = ``log_unary[d][t]``, :math:`w^d` = ``log_pairwise[d]`` and :math:`v^{de}` = ``log_between[d, e]``,
the product chain has one state :math:`k = (k_1, \dots, k_D)` per combination of labels:

.. math::
    U_t(k) &= \textstyle\sum_d u^d_t(k_d) + \sum_{d<e} v^{de}(k_d, k_e)             & (1) \\
    W(k, l) &= \textstyle\sum_d w^d(k_d, l_d)                                       & (2)

so that exp W is the Kronecker product of the matrices exp w^d. ``chain.reference`` gives log Z, p_t(k) and p_t(k, l),
and sums over the other layers give the expectations of each layer and pair of layers:

.. math::
    p(y^d_t = i) &= \textstyle\sum_{k: k_d = i} p_t(k)                              & (3) \\
    \mathrm E\, n^d(i, j) &= \textstyle\sum_t \sum_{k_d = i,\, l_d = j} p_t(k, l)   & (4) \\
    \mathrm E\, n^{de}(i, j) &= \textstyle\sum_t \sum_{k_d = i,\, k_e = j} p_t(k)   & (5)

Belief propagation, with the marginals b of each layer's chain and messages m (``bp`` explains them):

.. math::
    m_{e \to d,t}(i) &\propto \textstyle\sum_j e^{v(i, j)} b_{e,t}(j) / m_{d \to e,t}(j)                & (6) \\
    b_d,\ \tilde Z_d &: \text{the chain with unary scores } u^d + \textstyle\sum_e \log m_{e \to d}     & (7) \\
    \text{value} &= \textstyle\sum_d \log \tilde Z_d + \sum_{d<e} \sum_t \log \sum_{ij} e^{v(i, j)}
        \frac{b_{d,t}(i)}{m_{e \to d,t}(i)} \frac{b_{e,t}(j)}{m_{d \to e,t}(j)}                         & (8)
"""

from functools import reduce

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from trelliswork.inference.chain import reference as chain

Array = NDArray[np.float64]
Ties = dict[tuple[int, int], Array]


def product_chain(log_unary: list[Array], log_pairwise: list[Array], log_between: Ties) -> tuple[Array, Array]:
    """Return the unary scores (T, N) and the transitions (N, N) of the product chain; the last layer varies fastest."""
    T, S = len(log_unary[0]), [len(matrix) for matrix in log_pairwise]
    unary = reduce(lambda a, b: (a[:, :, None] + b[:, None]).reshape(T, -1), log_unary)
    labels = np.unravel_index(np.arange(unary.shape[1]), S)
    for (d, e), table in log_between.items():
        unary = unary + table[labels[d], labels[e]]  # (1)
    pairwise = reduce(
        lambda a, b: (a[:, None, :, None] + b[None, :, None]).reshape(len(a) * len(b), -1), log_pairwise
    )  # (2)
    return unary, pairwise


def expectations(
    log_unary: list[Array], log_pairwise: list[Array], log_between: Ties
) -> tuple[float, list[Array], list[Array], Ties]:
    """Return log Z, marginals (T, S_d) and transition counts (S_d, S_d) of each layer, and counts of label pairs."""
    T, S, D = len(log_unary[0]), [len(matrix) for matrix in log_pairwise], len(log_unary)
    unary, pairwise = product_chain(log_unary, log_pairwise, log_between)
    log_z, nodes, edges = chain.expectations(unary, np.broadcast_to(pairwise, (T - 1, *pairwise.shape)))
    states, steps = nodes.reshape(T, *S), edges.sum(axis=0).reshape(*S, *S)
    marginals = [_keep(states, 0, d + 1) for d in range(D)]  # (3)
    counts = [_keep(steps, d, D + d) for d in range(D)]  # (4)
    return float(log_z), marginals, counts, {(d, e): _keep(states, d + 1, e + 1) for d, e in log_between}  # (5)


def _keep(array: Array, *axes: int) -> Array:
    """Sum over all axes but two."""
    total: Array = array.sum(axis=tuple(k for k in range(array.ndim) if k not in axes))
    return total


def belief_propagation(
    log_unary: list[Array], log_pairwise: list[Array], log_between: Ties, n_sweeps: int
) -> tuple[float, list[Array]]:
    """Return the value and the marginals (T, S_d) of each layer after some sweeps, with all messages in log space."""
    T = len(log_unary[0])
    tables = {**log_between, **{(e, d): table.T for (d, e), table in log_between.items()}}
    message = {(e, d): np.zeros_like(log_unary[d]) for e, d in tables}
    log_z: dict[int, Array] = {}
    belief: dict[int, Array] = {}
    for _ in range(n_sweeps):
        for d, (own, matrix) in enumerate(zip(log_unary, log_pairwise, strict=True)):
            unary, pairwise = own, np.broadcast_to(matrix, (T - 1, *matrix.shape))
            for e in range(len(log_unary)):
                if (e, d) in tables and e in belief:
                    raw = logsumexp((belief[e] - message[d, e])[:, :, None] + tables[e, d], axis=1)
                    message[e, d] = raw - raw.max(axis=1, keepdims=True)  # (6)
                    unary = unary + message[e, d]
            log_z[d], log_alpha = chain.forward(unary, pairwise)
            belief[d] = log_alpha + chain.backward(unary, pairwise) - log_z[d]  # (7)
    value = float(sum(log_z.values()))
    for (d, e), table in log_between.items():
        pairs = (belief[d] - message[e, d])[:, :, None] + (belief[e] - message[d, e])[:, None] + table
        value += float(logsumexp(pairs, axis=(1, 2)).sum())  # (8)
    return value, [np.exp(belief[d]) for d in range(len(log_unary))]
