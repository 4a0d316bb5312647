r"""Messages of a tree factor in log space, one sentence at a time: right for every input.

A tree factor is 1 where the arcs that are on form a tree. Its K variables are arcs, each with messages
:math:`q_a(0), q_a(1)` (off, on). Every tree has one arc into each word, so with :math:`w_a = q_a(1) / q_a(0)` the sum
over trees is linear in the weights of the arcs into a word d, with coefficients :math:`D_a = \partial Z / \partial w_a`
that do not depend on these weights. The messages to arc a are, up to a constant,

.. math:: r_a(1) = D_a, \quad r_a(0) = \sum_{b \ne a, \text{ into the same word}} w_b D_b .

No message is divided by another: zeros in messages do no harm, and an arc that is forced on (:math:`q_a(0) = 0`) only
takes the other arcs into its word away. With maxima in place of sums the same gives max-product.
"""

import math

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.inference.tree.kernels.mst import best_tree
from trelliswork.inference.tree.second_order.kernels.spanning import derivatives

SURE = 1e-6  # a derivative of at least so much of the terms it is the difference of has nine digits left


@kernel
def _fold(a, b, n, maximise):
    """log sum (or max) over k < n of exp(a[k] + b[k])."""
    top = -np.inf
    for k in range(n):
        top = max(top, a[k] + b[k])
    if maximise or top == -np.inf:
        return top
    mass = 0.0
    for k in range(n):
        mass += math.exp(a[k] + b[k] - top)
    return top + math.log(mass)


@helper
def join(a, b):
    """log(exp a + exp b)."""
    top = max(a, b)
    return top if top == -np.inf else top + math.log1p(math.exp(min(a, b) - top))


@kernel
def _either(a, b, maximise):
    return max(a, b) if maximise else join(a, b)


@helper
def projective(w, n, single_root, maximise, D):
    """Fill D (n+1, n+1), head before word, from log weights w; return log Z. Eisner's charts, O(n^3)."""
    N = n + 1
    C, S, I = np.full((N, N), -np.inf), np.full((N, N), -np.inf), np.full((N, N), -np.inf)  # noqa: E741
    OC, OI, OS = np.full((N, N), -np.inf), np.full((N, N), -np.inf), np.full((N, N), -np.inf)
    for i in range(N):
        C[i, i] = 0.0
    for width in range(1, N):
        for i in range(N - width):
            j = i + width
            S[i, j] = _fold(C[i, i:], C[j, i + 1 :], width, maximise)
            I[i, j] = S[i, j] + w[i, j]
            I[j, i] = S[i, j] + w[j, i] if i > 0 else -np.inf
            C[i, j] = _fold(I[i, i + 1 :], C[i + 1 :, j], width, maximise)
            C[j, i] = _fold(I[j, i:], C[i:, i], width, maximise)
            if i == 0 and single_root and j < n:
                C[i, j] = -np.inf
    for width in range(n, 0, -1):
        for i in range(N - width):
            j = i + width
            if i > 0 or not single_root:
                OC[i, j] = _fold(OC[:i, j], I[:i, i], i, maximise)
                if j < n:
                    OC[i, j] = _either(OC[i, j], _fold(OS[i, j + 1 :], C[j + 1 :, j + 1], n - j, maximise), maximise)
            if width == n:
                OC[i, j] = 0.0
            OC[j, i] = _fold(OC[j + 1 :, i], I[j + 1 :, j], n - j, maximise)
            if i > 0:
                OC[j, i] = _either(OC[j, i], _fold(OS[j], C[:, i - 1], i, maximise), maximise)
        for i in range(N - width):
            j = i + width
            OI[i, j] = _fold(OC[i, j:], C[j, j:], N - j, maximise)
            OI[j, i] = _fold(OC[j], C[i], i + 1, maximise)
            OS[i, j] = OI[i, j] + w[i, j]
            if i > 0:
                OS[i, j] = _either(OS[i, j], OI[j, i] + w[j, i], maximise)
            OS[j, i] = OS[i, j]
            D[i, j], D[j, i] = OI[i, j] + S[i, j], OI[j, i] + S[i, j]
    return C[0, n]


@kernel
def _log_degree(A, k, turn, m, d):
    """Log weight of the heads of word k among the words turn[:m] and d."""
    total = A[k, d]
    for j in range(m):
        if turn[j] != k:
            total = join(total, A[k, turn[j]])
    return total


@kernel
def _into_word(w, n, d, single_root, A, degree, turn, D):
    """Fill column d of D: take all other words away, then go back with c[h], the mass of ways from h to the root.

    The elimination is that of ``matrix_tree_log_kernels``; d is a second root, and nothing reads the arcs into it. With
    a single root the arcs from node 0 count to first order only: a word that has no other head left is kept to the
    end, and then its arc is the one.
    """
    m = 0
    for k in range(1, n + 1):
        D[k, d] = -np.inf
        if k != d:
            turn[m] = k
            m += 1
            for h in range(n + 1):
                A[k, h] = w[h, k] if h != k else -np.inf
    D[0, d] = -np.inf
    count, total, first = m, 0.0, False  # first: the root's one arc has been taken
    for m in range(count - 1, -1, -1):
        if single_root:
            at, top = m, -np.inf
            for j in range(m + 1):
                value = _log_degree(A, turn[j], turn, m + 1, d)
                if value > top:
                    at, top = j, value
            turn[at], turn[m] = turn[m], turn[at]
        k = turn[m]
        degree[k] = _log_degree(A, k, turn, m, d)
        if not single_root:
            degree[k] = join(degree[k], A[k, 0])
        elif m == 0 and degree[k] == -np.inf:
            degree[k], first = A[k, 0], True
        total += degree[k]
        if degree[k] == -np.inf:
            return
        for i in range(m):
            x = turn[i]
            share = A[x, k] - degree[k]
            if share > -np.inf:
                A[x, 0] = join(A[x, 0], share + A[k, 0])
                A[x, d] = join(A[x, d], share + A[k, d])
                for j in range(m):
                    if i != j:
                        A[x, turn[j]] = join(A[x, turn[j]], share + A[k, turn[j]])
    D[0, d] = -np.inf if first else total
    for m in range(count):
        k = turn[m]
        if first and m == 0:
            D[k, d] = total
            continue
        value = -np.inf if first else A[k, 0] - degree[k] + total
        for j in range(m):
            value = join(value, A[k, turn[j]] - degree[k] + D[turn[j], d])
        D[k, d] = value


@helper
def spanning_sums(w, n, single_root, heads, modifiers, D):
    """Fill D (n+1, n+1) for the arcs (K,) from log weights w; return log Z, and for how many words once was not enough.

    One elimination for all words, O(n^3), in probability space. Its derivatives are differences: where one is so small
    that digits are lost, its word gets an elimination of its own without subtraction, O(n^3) each; so do all words
    where numbers leave their range.
    """
    N, K = n + 1, len(heads)
    tops = np.full(N, -np.inf)
    for a in range(K):
        tops[modifiers[a]] = max(tops[modifiers[a]], w[heads[a], modifiers[a]])
    log_z, x = np.nan, np.empty(K)
    by_arc, scales, smallest = np.empty(K), np.empty(N), np.full(N, np.inf)
    if tops[1:].min() > -np.inf:
        for a in range(K):
            x[a] = math.exp(w[heads[a], modifiers[a]] - tops[modifiers[a]])
        log_z = tops[1:].sum() + derivatives(
            n, single_root, x, heads, modifiers, K, np.empty(N * N), np.empty(N * N), np.empty(N), np.empty(3 * N),
            by_arc, scales,
        )  # fmt: skip
    good = log_z > -np.inf and log_z < np.inf
    if good:
        for a in range(K):
            d = modifiers[a]
            smallest[d] = min(smallest[d], by_arc[a] / scales[d])
            D[heads[a], d] = math.log(by_arc[a]) + log_z - tops[d] if by_arc[a] > 0 else -np.inf
    A, degree, turn = np.empty((N, N)), np.empty(N), np.empty(N, np.int64)
    n_again = 0
    for d in range(1, N):
        if not good or smallest[d] < SURE:
            _into_word(w, n, d, single_root, A, degree, turn, D)
            n_again += 1
    return log_z if good else _fold(w[:, 1], D[:, 1], N, False), n_again


@helper
def spanning(w, n, single_root, maximise, D):
    """Fill D (n+1, n+1), head before word, from log weights w; return log Z.

    Sums: an elimination for each word, O(n^4), without subtraction. Maxima: a best tree for each arc, O(n^4).
    """
    N = n + 1
    if maximise:
        gain, roots, into = np.empty((2 * N, N)), np.empty((2 * N, N), np.int64), np.empty((2 * N, N), np.int64)
        parent, state, path = np.empty(2 * N, np.int64), np.empty(2 * N, np.int64), np.empty(2 * N, np.int64)
        enter, heads, column = np.empty((2 * N, 2), np.int64), np.empty(N, np.int64), np.empty(N)
        weights = w.copy()
        for d in range(1, N):
            column[:] = weights[:, d]
            for h in range(N):
                D[h, d] = -np.inf
                weights[:, d] = -np.inf
                weights[h, d] = 0.0
                if h != d and best_tree(weights, n, single_root, gain, roots, into, parent, state, enter, path, heads):
                    D[h, d] = 0.0
                    for k in range(1, N):
                        D[h, d] += weights[heads[k - 1], k]
            weights[:, d] = column
    else:
        A, degree, turn = np.empty((N, N)), np.empty(N), np.empty(N, np.int64)
        for d in range(1, N):
            _into_word(w, n, d, single_root, A, degree, turn, D)
    return _fold(w[:, 1], D[:, 1], N, maximise)


@helper
def tree_messages(n, heads, modifiers, q, single_root, is_projective, maximise, out, beliefs):
    """Answer messages q (K, 2) of one sentence by ``out`` and log beliefs (K, 2); return the log value.

    Beliefs are max-marginals less the value when ``maximise``. An arc that is no variable is off.
    """
    K = len(heads)
    ratios, forced_ratios = np.full((n + 1, n + 1), -np.inf), np.full((n + 1, n + 1), -np.inf)
    D = np.full((n + 1, n + 1), -np.inf)
    forced = np.zeros(n + 1, np.int64)  # arcs into a word that must be on
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
        log_z = projective(w, n, single_root, maximise, D)
    elif maximise or forced.any():
        log_z = spanning(w, n, single_root, maximise, D)
    else:
        log_z, _ = spanning_sums(w, n, single_root, heads, modifiers, D)
    for a in range(K):
        h, d = heads[a], modifiers[a]
        others = forced[d] - (q[a, 0] == -np.inf)  # that must be on
        out[a, 1] = D[h, d] if others == 0 else -np.inf
        off = -np.inf
        for k in range(n + 1):
            if k != h and others <= 1:
                off = _either(off, (ratios[k, d] if others == 0 else forced_ratios[k, d]) + D[k, d], maximise)
        out[a, 0] = off
        beliefs[a] = -np.inf
        if log_z > -np.inf:
            beliefs[a, 1] = w[h, d] + D[h, d] - log_z
            if q[a, 0] > -np.inf:
                beliefs[a, 0] = off - log_z
    return base + log_z


@kernel
def tree_batch(start, stop, n, heads, modifiers, q, single_root, is_projective, maximise, out, beliefs, values):
    """`tree_messages` for graphs start..stop that share their arcs: q, out, beliefs (B, K, 2), values (B,)."""
    for b in range(start, stop):
        values[b] = tree_messages(
            n, heads, modifiers, q[b], single_root, is_projective, maximise, out[b], beliefs[b]
        )  # fmt: skip
