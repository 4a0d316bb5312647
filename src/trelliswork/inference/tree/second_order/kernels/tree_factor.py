r"""Messages of a tree factor in log space, one sentence at a time: accurate for every input.

A tree factor is 1 where the arcs that are on form a tree. Its K variables are arcs, each with messages
:math:`q_a(0), q_a(1)` (off, on). Every tree has one arc into each word, so with :math:`w_a = q_a(1) / q_a(0)` the sum
over trees is linear in the weights of the arcs into a word d, with coefficients :math:`D_a = \partial Z / \partial w_a`
that do not depend on these weights. The messages to arc a are, up to a constant,

.. math:: r_a(1) = D_a, \quad r_a(0) = \sum_{b \ne a, \text{ into the same word}} w_b D_b .

No message is divided by another: zeros in messages are harmless, and an arc that is forced on (:math:`q_a(0) = 0`) only
excludes the other arcs into its word. With maxima instead of sums the same equations give max-product.
"""

from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.inference.tree.kernels.eisner_plain import either, fold, inside, outside
from trelliswork.inference.tree.kernels.matrix_tree_log import spanning_sums
from trelliswork.inference.tree.kernels.mst import best_tree, workspace


class TreeArcs(NamedTuple):
    """The arcs that are variables of a tree factor, and its kind."""

    n_words: Any
    heads: Any  # (K,)
    modifiers: Any  # (K,)
    single_root: Any
    projective: Any


@helper(allocates=True)
def projective(w, n, single_root, maximize, D):
    """Fill D (n+1, n+1), head before word, from log weights w; return log Z. Eisner's charts, O(n^3)."""
    N = n + 1
    C, S, I = np.empty((N, N)), np.empty((N, N)), np.empty((N, N))  # noqa: E741
    OC, OI, OS = np.empty((N, N)), np.empty((N, N)), np.empty((N, N))
    log_z = inside(w, n, single_root, maximize, C, S, I)
    outside(w, n, single_root, maximize, C, I, OC, OI, OS)
    for i in range(N):
        for j in range(i + 1, N):
            D[i, j], D[j, i] = OI[i, j] + S[i, j], OI[j, i] + S[i, j]
    return log_z


@helper(allocates=True)
def spanning_maxima(w, n, single_root, D):
    """Fill D (n+1, n+1), head before word, from log weights w; return the maximum. A best tree for each arc, O(n^4)."""
    N = n + 1
    work, column = workspace(N), np.empty(N)
    weights = w.copy()
    for d in range(1, N):
        column[:] = weights[:, d]
        for h in range(N):
            D[h, d] = -np.inf
            weights[:, d] = -np.inf
            weights[h, d] = 0.0
            if h != d and best_tree(weights, n, single_root, work):
                D[h, d] = 0.0
                for k in range(1, N):
                    D[h, d] += weights[work.heads[k - 1], k]
        weights[:, d] = column
    return fold(w[:, 1], D[:, 1], N, True)


@helper(allocates=True)
def tree_messages(arcs: TreeArcs, q, maximize, out, beliefs):
    """Fill the messages ``out`` and log beliefs (K, 2) from messages q (K, 2) of one sentence; return the log value.

    With ``maximize`` beliefs are max-marginals minus the value. Arcs that are not variables are off.
    """
    n, heads, modifiers, single_root, is_projective = arcs
    K = len(heads)
    ratios, forced_ratios = np.full((n + 1, n + 1), -np.inf), np.full((n + 1, n + 1), -np.inf)
    D = np.full((n + 1, n + 1), -np.inf)
    forced = np.zeros(n + 1, np.int64)  # number of arcs into each word that must be on
    base = 0.0
    for a in range(K):
        h, d = heads[a], modifiers[a]
        if q[a, 0] == -np.inf:
            forced[d] += 1
            forced_ratios[h, d] = q[a, 1]
        else:
            base += q[a, 0]
            ratios[h, d] = q[a, 1] - q[a, 0]
    w = ratios.copy()
    for d in range(1, n + 1):
        if forced[d] == 1:
            w[:, d] = forced_ratios[:, d]
        elif forced[d] > 1:
            w[:, d] = -np.inf
    if is_projective:
        log_z = projective(w, n, single_root, maximize, D)
    elif maximize:
        log_z = spanning_maxima(w, n, single_root, D)
    else:
        log_z, _ = spanning_sums(w, n, single_root, heads, modifiers, D)
    for a in range(K):
        h, d = heads[a], modifiers[a]
        others = forced[d] - (q[a, 0] == -np.inf)  # number of other arcs into d that must be on
        out[a, 1] = D[h, d] if others == 0 else -np.inf
        off = -np.inf
        for k in range(n + 1):
            if k != h and others <= 1:
                off = either(off, (ratios[k, d] if others == 0 else forced_ratios[k, d]) + D[k, d], maximize)
        out[a, 0] = off
        beliefs[a] = -np.inf
        if log_z > -np.inf:
            beliefs[a, 1] = w[h, d] + D[h, d] - log_z
            if q[a, 0] > -np.inf:
                beliefs[a, 0] = off - log_z
    return base + log_z


@kernel(allocates=True)
def batch_messages(start, stop, arcs: TreeArcs, q, maximize, out, beliefs, values):
    """Run `tree_messages` for graphs start..stop that share their arcs: q, out, beliefs (B, K, 2), values (B,)."""
    for b in range(start, stop):
        values[b] = tree_messages(arcs, q[b], maximize, out[b], beliefs[b])
