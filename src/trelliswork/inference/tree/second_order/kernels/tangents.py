r"""Directional derivatives of the marginals of trees and automata, one sentence at a time.

Along a direction v of the log weights, marginals change by :math:`\dot p_b = \sum_a \mathrm{Cov}(a, b) v_a`. These
covariances are symmetric, so this is also the gradient of :math:`\sum_a v_a p_a` by the log weights: a product with the
transposed Jacobian costs one pass of tangents along the recursions, about twice the time of the recursions themselves.
"""

import numpy as np

from trelliswork.compute.jit import helper
from trelliswork.compute.simd import get, lanes, put, spread
from trelliswork.inference.tree.second_order.kernels.eisner import _add_row, _dot
from trelliswork.inference.tree.second_order.kernels.messages import Automata
from trelliswork.inference.tree.second_order.kernels.records import Arcs, Charts


@helper(error_model="numpy")
def inside(n, stride, single_root, x, dx, arcs: Arcs, charts: Charts, tangents: Charts):
    """Fill the tangents of R, L, S and I after ``eisner.inside``, from those of the weights (A,); return that of Z."""
    heads, modifiers, out, middle, into, after, in_arcs = arcs
    R, L, S, I, low, _, _, _ = charts  # noqa: E741
    dR, dL, dS, dI, _, _, _, _ = tangents
    zero = spread(R, 0.0)
    for k in range((n + 1) * stride):
        dR[k] = 0.0
        dL[k] = 0.0
    for j in range(n + 1):
        low[j] = middle[j]
    for i in range(n, 0 if single_root else -1, -1):
        row = i * stride
        for a in range(middle[i], out[i + 1]):
            j = get(modifiers, a)
            at = j * stride + i + 1
            ds = _dot(dR, row + i, L, at, j - i, zero) + _dot(R, row + i, dL, at, j - i, zero)
            value = get(dx, a) * get(S, a) + get(x, a) * ds
            put(dS, a, ds)
            put(dI, a, value)
            _add_row(dR, row + j, R, j * stride + j, n + 1 - j, value)
            _add_row(dR, row + j, dR, j * stride + j, n + 1 - j, get(I, a))
        for p in range(after[i], into[i + 1]):
            a = get(in_arcs, p)
            j = get(heads, a)
            at = j * stride + i + 1
            ds = _dot(dR, row + i, L, at, j - i, zero) + _dot(R, row + i, dL, at, j - i, zero)
            put(dS, a, ds)
            put(dI, a, get(dx, a) * get(S, a) + get(x, a) * ds)
            put(low, j, a)
        if i > 0:
            for j in range(i + 1, n + 1):
                reached = 0.0
                for a in range(get(low, j), get(middle, j)):
                    at = get(modifiers, a) * stride + i
                    reached += get(dI, a) * get(L, at) + get(I, a) * get(dL, at)
                put(dL, j * stride + i, reached)
    if not single_root:
        return dR[n]
    dz = 0.0
    for a in range(out[0], out[1]):
        left, right = modifiers[a] * stride + 1, modifiers[a] * stride + n
        dS[a] = dL[left] * R[right] + L[left] * dR[right]
        dz += dx[a] * S[a] + x[a] * dS[a]
    return dz


@helper(error_model="numpy")
def outside(n, single_root, x, dx, z, dz, arcs: Arcs, charts: Charts, tangents: Charts, dD):
    """Fill dD (A,), the tangents of the derivatives of log Z, after ``eisner.outside`` and `inside`."""
    heads, modifiers, out, middle, into, after, in_arcs = arcs
    R, L, S, I, low, OR, OL, OI = charts  # noqa: E741
    dR, dL, dS, dI, _, dOR, dOL, dOI = tangents
    stride = (n + 1 + lanes(x) - 1) // lanes(x) * lanes(x) + lanes(x)
    zero = spread(R, 0.0)
    for k in range((n + 1) * stride):
        dOR[k] = 0.0
        dOL[k] = 0.0
    for a in range(out[n + 1]):
        dOI[a] = 0.0
    inverse, change = 1 / z, -dz / (z * z)
    if single_root:
        for a in range(out[0], out[1]):
            left, right = modifiers[a] * stride + 1, modifiers[a] * stride + n
            dD[a] = dS[a] * inverse + S[a] * change
            dOR[right] += (dx[a] * L[left] + x[a] * dL[left]) * inverse + x[a] * L[left] * change
            dOL[left] += (dx[a] * R[right] + x[a] * dR[right]) * inverse + x[a] * R[right] * change
    else:
        dOR[n] = change
    for j in range(n + 1):
        low[j] = out[j]
    for i in range(1 if single_root else 0, n + 1):
        row = i * stride
        if i > 0:
            for p in range(after[i - 1], into[i]):
                a = get(in_arcs, p)
                put(low, get(heads, a), a + 1)
            for j in range(n, i, -1):
                o, do = get(OL, j * stride + i), get(dOL, j * stride + i)
                for a in range(get(low, j), get(middle, j)):
                    at = get(modifiers, a) * stride + i
                    put(dOI, a, get(dOI, a) + do * get(L, at) + o * get(dL, at))
                    put(dOL, at, get(dOL, at) + do * get(I, a) + o * get(dI, a))
        for p in range(after[i], into[i + 1]):
            a = get(in_arcs, p)
            j = get(heads, a)
            at = j * stride + i + 1
            by_i, d_by_i = get(OI, a), get(dOI, a)
            put(dD, a, d_by_i * get(S, a) + by_i * get(dS, a))
            by_s, d_by_s = by_i * get(x, a), d_by_i * get(x, a) + by_i * get(dx, a)
            _add_row(dOR, row + i, L, at, j - i, d_by_s)
            _add_row(dOR, row + i, dL, at, j - i, by_s)
            _add_row(dOL, at, R, row + i, j - i, d_by_s)
            _add_row(dOL, at, dR, row + i, j - i, by_s)
        for a in range(out[i + 1] - 1, middle[i] - 1, -1):
            j = get(modifiers, a)
            at, to = j * stride + i + 1, j * stride + j
            by_i = _dot(OR, row + j, R, to, n + 1 - j, zero)
            d_by_i = _dot(dOR, row + j, R, to, n + 1 - j, zero) + _dot(OR, row + j, dR, to, n + 1 - j, zero)
            put(dD, a, d_by_i * get(S, a) + by_i * get(dS, a))
            by_s, d_by_s = by_i * get(x, a), d_by_i * get(x, a) + by_i * get(dx, a)
            _add_row(dOR, to, dOR, row + j, n + 1 - j, get(I, a))
            _add_row(dOR, to, OR, row + j, n + 1 - j, get(dI, a))
            _add_row(dOR, row + i, L, at, j - i, d_by_s)
            _add_row(dOR, row + i, dL, at, j - i, by_s)
            _add_row(dOL, at, R, row + i, j - i, d_by_s)
            _add_row(dOL, at, dR, row + i, j - i, by_s)


@helper(error_model="numpy", allocates=True)
def _product(A, B):
    """Return the product of two square matrices, by rows; zeros in A are skipped."""
    C = np.zeros(A.shape)
    for i in range(len(A)):
        for k in range(len(A)):
            if A[i, k] != 0:
                C[i] += A[i, k] * B[k]
    return C


@helper(error_model="numpy", allocates=True)
def spanning(n, single_root, x, v, heads, modifiers, n_arcs, out):
    r"""Fill ``out`` (n_arcs,), the changes of the marginals of all spanning trees along v; return False if singular.

    With B the inverse of the Laplacian M, a derivative of log Z is a sum of entries of B, whose tangent is
    :math:`-B \dot M B`. With a single root the first row of M has the root's weights (Koo et al., 2007).
    """
    M, dM = np.zeros((n, n)), np.zeros((n, n))
    for a in range(n_arcs):
        h, m, change = heads[a] - 1, modifiers[a] - 1, x[a] * v[a]
        if h < 0:
            k = 0 if single_root else m
            M[k, m] += x[a]
            dM[k, m] += change
            continue
        if not (single_root and m == 0):
            M[m, m] += x[a]
            dM[m, m] += change
        if not (single_root and h == 0):
            M[h, m] -= x[a]
            dM[h, m] -= change
    B = np.eye(n)
    for k in range(n):  # Gauss-Jordan elimination, the largest entry of the column first
        top = k
        for i in range(k + 1, n):
            if abs(M[i, k]) > abs(M[top, k]):
                top = i
        if not abs(M[top, k]) > 1e-290:
            return False
        for j in range(n):
            M[k, j], M[top, j] = M[top, j], M[k, j]
            B[k, j], B[top, j] = B[top, j], B[k, j]
        scale = 1 / M[k, k]
        M[k] *= scale
        B[k] *= scale
        for i in range(n):
            share = M[i, k]
            if i != k and share != 0:
                M[i] -= share * M[k]
                B[i] -= share * B[k]
    dB = -_product(B, _product(dM, B))
    for a in range(n_arcs):
        h, m = heads[a] - 1, modifiers[a] - 1
        if h < 0:
            k = 0 if single_root else m
            value, change = B[m, k], dB[m, k]
        else:
            value, change = 0.0, 0.0
            if not (single_root and m == 0):
                value, change = B[m, m], dB[m, m]
            if not (single_root and h == 0):
                value, change = value - B[m, h], change - dB[m, h]
        out[a] = x[a] * (v[a] * value + change)
    return True


@helper(error_model="numpy")
def side(first, step, size, at, arrays: Automata, v, beta, by_arcs, by_parts, to):
    """Fill the changes of the marginals of one side's arcs, and add those of its parts from ``to`` on, along v.

    ``arrays`` are those of ``messages.side``, after it; ``beta`` is scratch space like its own. ``by_arcs`` (A,).
    """
    E, odds, off_shares, primal, gamma, _ = arrays
    width, z, dz, to = size + 1, 0.0, 0.0, to - at
    beta[width] = 0.0
    for j in range(1, size + 1):
        a, on, d_on, row = first + step * (j - 1), 0.0, 0.0, j * width
        off = off_shares[a]
        share = odds[a] * off
        change = share * off * v[a]
        part = at + j * (j - 1) // 2
        for i in range(j):
            on += primal[row + i] * E[part + i]
            d_on += beta[row + i] * E[part + i]
            beta[row + width + i] = beta[row + i] * off - primal[row + i] * change
        beta[row + width + j] = d_on * share + on * change
    part = at + width * size // 2
    for i in range(width):
        gamma[i], gamma[width + i] = E[part + i], 0.0  # of continuations, and their tangents
        z += primal[width * width + i] * E[part + i]
        dz += beta[width * width + i] * E[part + i]
    inverse = 1 / z
    drift = dz * inverse
    for i in range(width):
        by_parts[to + part + i] += (beta[width * width + i] - primal[width * width + i] * drift) * E[part + i] * inverse
    for j in range(size, 0, -1):
        a, row = first + step * (j - 1), j * width
        off = off_shares[a]
        share = odds[a] * off
        change = share * off * v[a]
        part = at + j * (j - 1) // 2
        follow, d_follow = share * gamma[j], change * gamma[j] + share * gamma[width + j]
        total = 0.0
        for i in range(j):
            e = E[part + i] * inverse
            value = e * (beta[row + i] * follow + primal[row + i] * (d_follow - follow * drift))
            by_parts[to + part + i] += value
            total += value
            gamma[width + i] = off * gamma[width + i] - change * gamma[i] + E[part + i] * d_follow
            gamma[i] = off * gamma[i] + E[part + i] * follow
        by_arcs[a] = total
