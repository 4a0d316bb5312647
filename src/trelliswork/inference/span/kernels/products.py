"""Matrix products of the inside and outside passes, in explicit SIMD: one thread, operands in row-major order."""

from trelliswork.compute.jit import helper
from trelliswork.compute.kernels.products import Factor, add_product
from trelliswork.compute.simd import get, lanes, put
from trelliswork.compute.tiles import load_tile, store_tile, tile


@helper
def add_matrix_product(A, at, row, column, B, C, to, m, K, L):
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
            left = Factor(A, a0, row, column)
            if rows == 4:
                sums = load_tile(tile(C, 0.0, 4, 2), C, c0 + j, L)
                store_tile(C, c0 + j, L, add_product(sums, left, B, j, L, K))
            else:
                single = load_tile(tile(C, 0.0, 1, 2), C, c0 + j, L)
                store_tile(C, c0 + j, L, add_product(single, left, B, j, L, K))
            j += 2 * W
        for r in range(rows):
            for rest in range(j, L):
                value = get(C, c0 + r * L + rest)
                for k in range(K):
                    value += get(A, a0 + r * row + k * column) * get(B, k * L + rest)
                put(C, c0 + r * L + rest, value)
        i += rows
