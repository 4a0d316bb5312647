"""Products in tiles against NumPy, for every shape of tile in use and both semirings."""

import numpy as np
import pytest
from numba import njit
from numpy.testing import assert_allclose

from trelliswork.compute import simd
from trelliswork.compute.kernels.products import Factor, add_product, max_product
from trelliswork.compute.tiles import add_rows, load_tile, square_tile, store_tile, tile, transpose


def products(rows, vectors):
    """Return compiled functions that compute one tile of a product and of a max-plus product."""

    @njit
    def multiply(a, b, n, out):
        W = simd.lanes(out)
        sums = load_tile(tile(out, 0.0, rows, vectors), out, 0, vectors * W)
        sums = add_product(sums, Factor(a, 0, n, 1), b, 0, vectors * W, n)
        store_tile(out, 0, vectors * W, simd.multiply(sums, tile(out, 2.0, rows, vectors)))

    @njit
    def maximize(a, b, n, out):
        W = simd.lanes(out)
        best = max_product(tile(out, -np.inf, rows, vectors), Factor(a, 0, 1, rows), b, 0, vectors * W, n)
        store_tile(out, 0, vectors * W, best)

    return multiply, maximize


@pytest.mark.parametrize(("rows", "vectors"), [(4, 2), (6, 2), (4, 3), (4, 1), (1, 4)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products(rows, vectors, dtype):
    n, width = 5, vectors * simd.VECTOR_BYTES // np.dtype(dtype).itemsize
    rng = np.random.default_rng(rows)
    a, b, out = (rng.normal(size=shape).astype(dtype) for shape in ((rows, n), (n, width), (rows, width)))
    multiply, maximize = products(rows, vectors)
    expected = 2 * (out + a @ b)
    multiply(a, b, n, out)
    assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
    a[0] = -np.inf
    maximize(np.ascontiguousarray(a.T), b, n, out)
    assert_allclose(out, (a[:, :, None] + b[None]).max(axis=1), rtol=1e-6)


@njit
def scatter_transposed(a, places, out):
    store_tile(out, 1, (places, 0), transpose(load_tile(square_tile(a), a, 2, (places, 0))))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_transpose_of_listed_rows(dtype):
    W = simd.VECTOR_BYTES // np.dtype(dtype).itemsize
    rng = np.random.default_rng(0)
    a, order = rng.normal(size=(W, W + 3)).astype(dtype), rng.permutation(W)
    out = np.zeros_like(a)
    scatter_transposed(a, order * (W + 3), out)
    expected = np.zeros_like(a)
    expected[order, 1 : W + 1] = a[order, 2 : W + 2].T
    np.testing.assert_array_equal(out, expected)


@njit
def by_rows(sums, factors, out):
    W = simd.lanes(sums)
    total = load_tile(tile(sums, 0.0, 3, 2), sums, 0, 2 * W)
    store_tile(sums, 0, 2 * W, simd.multiply(total, load_tile(total, factors, 0, 0)))  # one row, three times
    store_tile(out, 0, 0, add_rows(total))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_tiles(dtype):
    W = simd.VECTOR_BYTES // np.dtype(dtype).itemsize
    rng = np.random.default_rng(0)
    sums, factors, out = (rng.normal(size=shape).astype(dtype) for shape in ((3, 2, W), (2, W), (2, W)))
    expected = sums.copy()
    by_rows(sums, factors, out)
    assert_allclose(sums, expected * factors, rtol=1e-5, atol=1e-6)
    assert_allclose(out, expected.sum(axis=0), rtol=1e-5, atol=1e-6)
