"""All spanning trees over few candidate arcs, in probability space: elimination of words, one sentence at a time.

The recursions are those of ``tree.kernels.matrix_tree``, vectorized along the rows of the matrix instead of sentences.
"""

import math

import numpy as np

from trelliswork.compute.jit import helper
from trelliswork.inference.tree.kernels.records import LIMIT
from trelliswork.inference.tree.second_order.kernels.records import Elimination


@helper(fast=True, error_model="numpy")
def derivatives(n, single_root, x, heads, modifiers, n_arcs, work: Elimination, D, scales):
    """Fill D (n_arcs,), the derivatives of log Z by the weights x; return log Z, nan if numbers may have been lost.

    The word that most prefers the root is at position 0 and is eliminated last. ``scales`` (n+1,) bounds for each word,
    up to rounding, the errors of its derivatives, which are differences, in units of their last digit.
    """
    A, G, place, scratch = work
    first, top = 1, -1.0
    t, q, g_root = scratch[: n + 1], scratch[n + 1 : 2 * n + 2], scratch[2 * n + 2 :]
    if single_root:
        for d in range(n + 1):
            t[d], q[d] = 0.0, 0.0
        for a in range(n_arcs):
            if heads[a] == 0:
                t[modifiers[a]] += x[a]
            else:
                q[modifiers[a]] += x[a]
        for d in range(1, n + 1):
            share = t[d] / (t[d] + q[d]) if t[d] > 0 else 0.0
            if share > top:
                first, top = d, share
    at = 1
    for d in range(1, n + 1):
        if d != first:
            place[d] = at
            at += 1
    place[first] = 0
    for k in range(n * n):
        A[k] = 0.0
    for a in range(n_arcs):
        k = int(place[modifiers[a]])
        A[k * n + (k if heads[a] == 0 else int(place[heads[a]]))] = x[a]
    log_z, product = 0.0, 1.0
    for k in range(n - 1, -1, -1):
        row = k * n
        mass = 0.0 if single_root and k > 0 else A[row + k]
        for h in range(k):
            mass += A[row + h]
        if not (mass > 1e-290 and mass < 1e290):
            return np.nan
        product *= mass
        if not (product > 1e-9 and product < 1e9):
            log_z += math.log(product)
            product = 1.0
        for d in range(k):
            to = d * n
            share = A[to + k] / mass
            if share > 0:
                own = A[to + d] + share * A[row + k]  # an arc from the root
                for h in range(k):
                    A[to + h] += share * A[row + h]
                A[to + d] = own
    log_z += math.log(product)
    largest = 0.0
    for k in range(n):
        row = k * n
        mass = 0.0 if single_root and k > 0 else A[row + k]
        for h in range(k):
            mass += A[row + h]
        q_root, t_root = A[row + k] / mass, 0.0
        for h in range(k):
            q[h] = A[row + h] / mass
            t[h] = 0.0
        noise = 0.0
        for d in range(k):
            to = d * n
            share = A[to + k]
            noise += scales[d] * share
            if single_root:
                scales[d] *= 1 + q_root
            t_root += g_root[d] * share
            by_d = q_root * g_root[d]
            for h in range(k):
                by_d += q[h] * G[to + h]
                t[h] += G[to + h] * share
            G[to + k] = by_d
        lost = q_root * t_root
        for h in range(k):
            lost += q[h] * t[h]
        rest = 1 - lost
        scales[k] = (max(1.0, lost) + (2 + q_root) * noise) / mass
        for h in range(k):
            G[row + h] = (t[h] + rest) / mass
        G[row + k] = 0.0  # no word is its own head
        g_root[k] = t_root / mass if single_root and k > 0 else (t_root + rest) / mass
        largest = max(largest, 1 / mass)
    for d in range(1, n + 1):
        t[d] = scales[int(place[d])]
    for d in range(1, n + 1):
        scales[d] = t[d]
    for a in range(n_arcs):
        k = int(place[modifiers[a]])
        value = g_root[k] if heads[a] == 0 else G[k * n + int(place[heads[a]])]
        D[a] = max(value, 0.0)
        largest = max(largest, D[a])
    return log_z if largest < LIMIT else np.nan
