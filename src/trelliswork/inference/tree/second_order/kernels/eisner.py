r"""Projective trees over few candidate arcs, in probability space: Eisner's recursions, one sentence at a time.

Charts as in ``tree.kernels.eisner``, but only entries that candidate arcs can reach are computed. ``R[i, e]``: trees
with head i that reach from i to e on its right; ``L[j, k]``: from k to j on its left. With :math:`x_a` the weight of an
arc:

.. math::
    S_{ij} = \sum_{i \le k < j} R_{ik} L_{j,k+1}, \quad I_a = x_a S_{ij}, \quad
    R_{ie} = \sum_{a: i \to r} I_a R_{re}, \quad L_{jk} = \sum_{a: j \to r} I_a L_{rk}

Node i runs from the last to the first, so that all of its right arcs can add whole rows; the backward pass computes
derivatives in the opposite order. Rows are padded: L[j, k] is zero for k > j and R[i, e] for e > n, so no loop has a
remainder.
"""

from trelliswork.compute.jit import helper
from trelliswork.compute.simd import add, get, lanes, load, multiply_add, put, spread, store, total
from trelliswork.inference.tree.second_order.kernels.records import Arcs, Charts


@helper(error_model="numpy", inline="always")
def _dot(a, at, b, bt, n, zero):
    """Return the sum over k < n of a[at + k] * b[bt + k]; one of them is zero after its end."""
    W = lanes(a)
    sums = zero
    for k in range(0, n, W):
        sums = multiply_add(load(a, at + k), load(b, bt + k), sums)
    return total(sums)


@helper(error_model="numpy", inline="always")
def _add_row(target, at, source, bt, n, weight):
    """target[at + k] += weight * source[bt + k] for k < n and up to the next full vector."""
    W = lanes(target)
    by = spread(target, weight)
    for k in range(0, n, W):
        store(target, at + k, multiply_add(by, load(source, bt + k), load(target, at + k)))


@helper(error_model="numpy")
def inside(n, stride, single_root, x, arcs: Arcs, charts: Charts):
    """Fill R, L, S and I from the weights x (A,); return Z."""
    heads, modifiers, out, middle, into, after, in_arcs = arcs
    R, L, S, I, low, _, _, _ = charts  # noqa: E741
    zero = spread(R, 0.0)
    for k in range((n + 1) * stride):
        R[k] = 0.0
        L[k] = 0.0
    for j in range(n + 1):
        low[j] = middle[j]
    for i in range(n, 0 if single_root else -1, -1):
        row = i * stride
        put(R, row + i, 1.0)
        put(L, row + i, 1.0)
        for a in range(middle[i], out[i + 1]):
            j = get(modifiers, a)
            s = _dot(R, row + i, L, j * stride + i + 1, j - i, zero)
            value = get(x, a) * s
            put(S, a, s)
            put(I, a, value)
            _add_row(R, row + j, R, j * stride + j, n + 1 - j, value)
        for p in range(after[i], into[i + 1]):
            a = get(in_arcs, p)
            j = get(heads, a)
            s = _dot(R, row + i, L, j * stride + i + 1, j - i, zero)
            put(S, a, s)
            put(I, a, get(x, a) * s)
            put(low, j, a)
        if i > 0:
            for j in range(i + 1, n + 1):
                reached = 0.0
                for a in range(get(low, j), get(middle, j)):
                    reached += get(I, a) * get(L, get(modifiers, a) * stride + i)
                put(L, j * stride + i, reached)
    if not single_root:
        return R[n]
    z = 0.0
    for a in range(out[0], out[1]):
        r = modifiers[a]
        S[a] = L[r * stride + 1] * R[r * stride + n]
        z += x[a] * S[a]
    return z


@helper(error_model="numpy")
def outside(n, stride, single_root, x, z, arcs: Arcs, charts: Charts, D):
    """Fill D (A,), the derivatives of log Z by the weights; return the sum of the derivatives by the charts."""
    heads, modifiers, out, middle, into, after, in_arcs = arcs
    R, L, S, I, low, OR, OL, OI = charts  # noqa: E741
    zero = spread(R, 0.0)
    for k in range((n + 1) * stride):
        OR[k] = 0.0
        OL[k] = 0.0
    for a in range(len(OI)):
        OI[a] = 0.0
    if single_root:
        for a in range(out[0], out[1]):
            at = modifiers[a] * stride
            D[a] = S[a] / z
            OR[at + n] += x[a] * L[at + 1] / z
            OL[at + 1] += x[a] * R[at + n] / z
    else:
        OR[n] = 1 / z
    for j in range(n + 1):
        low[j] = out[j]
    for i in range(1 if single_root else 0, n + 1):
        row = i * stride
        if i > 0:
            for p in range(after[i - 1], into[i]):  # no sum below ends at i - 1 any more
                a = get(in_arcs, p)
                put(low, get(heads, a), a + 1)
            for j in range(n, i, -1):
                o = get(OL, j * stride + i)
                for a in range(get(low, j), get(middle, j)):
                    at = get(modifiers, a) * stride + i
                    put(OI, a, get(OI, a) + o * get(L, at))
                    put(OL, at, get(OL, at) + o * get(I, a))
        for p in range(after[i], into[i + 1]):
            a = get(in_arcs, p)
            j = get(heads, a)
            put(D, a, get(OI, a) * get(S, a))
            by_s = get(OI, a) * get(x, a)
            _add_row(OR, row + i, L, j * stride + i + 1, j - i, by_s)
            _add_row(OL, j * stride + i + 1, R, row + i, j - i, by_s)
        for a in range(out[i + 1] - 1, middle[i] - 1, -1):
            j = get(modifiers, a)
            by_i = _dot(OR, row + j, R, j * stride + j, n + 1 - j, zero)
            put(D, a, by_i * get(S, a))
            by_s = by_i * get(x, a)
            _add_row(OR, j * stride + j, OR, row + j, n + 1 - j, get(I, a))
            _add_row(OR, row + i, L, j * stride + i + 1, j - i, by_s)
            _add_row(OL, j * stride + i + 1, R, row + i, j - i, by_s)
    sums = zero  # of all derivatives and of the padding; none is negative
    for k in range(0, (n + 1) * stride, lanes(OR)):
        sums = add(sums, add(load(OR, k), load(OL, k)))
    return total(sums)
