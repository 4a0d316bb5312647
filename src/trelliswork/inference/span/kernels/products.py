"""Matrix products of the inside and outside passes, in explicit SIMD: one thread, operands in row-major order."""

from trelliswork.compute.jit import helper
from trelliswork.compute.simd import get, lanes, load, multiply_add, put, spread_at, store


@helper
def add_product(A, at, row, column, B, C, to, m, K, L):
    """Add a product: C[to + i L + j] += sum_k A[at + i row + k column] B[k L + j] for i < m, k < K, j < L; flat arrays.

    Four rows by two vectors of C stay in registers while k runs.
    """
    W = lanes(A)
    i = 0
    while i < m:
        rows = 4 if i + 4 <= m else 1
        a0, c0 = at + i * row, to + i * L
        j = 0
        while j + 2 * W <= L:
            if rows == 4:
                c00, c01 = load(C, c0 + j), load(C, c0 + j + W)
                c10, c11 = load(C, c0 + L + j), load(C, c0 + L + j + W)
                c20, c21 = load(C, c0 + 2 * L + j), load(C, c0 + 2 * L + j + W)
                c30, c31 = load(C, c0 + 3 * L + j), load(C, c0 + 3 * L + j + W)
                a, b = a0, j
                for _ in range(K):
                    b0, b1 = load(B, b), load(B, b + W)
                    x = spread_at(A, a)
                    c00, c01 = multiply_add(x, b0, c00), multiply_add(x, b1, c01)
                    x = spread_at(A, a + row)
                    c10, c11 = multiply_add(x, b0, c10), multiply_add(x, b1, c11)
                    x = spread_at(A, a + 2 * row)
                    c20, c21 = multiply_add(x, b0, c20), multiply_add(x, b1, c21)
                    x = spread_at(A, a + 3 * row)
                    c30, c31 = multiply_add(x, b0, c30), multiply_add(x, b1, c31)
                    a += column
                    b += L
                store(C, c0 + j, c00)
                store(C, c0 + j + W, c01)
                store(C, c0 + L + j, c10)
                store(C, c0 + L + j + W, c11)
                store(C, c0 + 2 * L + j, c20)
                store(C, c0 + 2 * L + j + W, c21)
                store(C, c0 + 3 * L + j, c30)
                store(C, c0 + 3 * L + j + W, c31)
            else:
                c00, c01 = load(C, c0 + j), load(C, c0 + j + W)
                for k in range(K):
                    x = spread_at(A, a0 + k * column)
                    c00 = multiply_add(x, load(B, k * L + j), c00)
                    c01 = multiply_add(x, load(B, k * L + j + W), c01)
                store(C, c0 + j, c00)
                store(C, c0 + j + W, c01)
            j += 2 * W
        for r in range(rows):
            for rest in range(j, L):
                value = get(C, c0 + r * L + rest)
                for k in range(K):
                    value += get(A, a0 + r * row + k * column) * get(B, k * L + rest)
                put(C, c0 + r * L + rest, value)
        i += rows
