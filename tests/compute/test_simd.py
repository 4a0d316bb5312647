"""Vector operations against NumPy, over the whole range of each type."""

import numpy as np
import pytest
from numba import njit
from numpy.testing import assert_allclose, assert_array_equal

from tests.compiled import from_python
from trelliswork.compute import simd
from trelliswork.compute.kernels.rows import exp_row
from trelliswork.compute.tiles import load_tile, tile

call_exp_row = from_python(exp_row)


@njit
def _exponential(x, out):
    for k in range(0, x.size, simd.lanes(x)):
        simd.store(out, k, simd.exponential(simd.load(x, k)))


@njit
def _arithmetic(a, b, out):
    W = simd.lanes(a)
    u, v = simd.load(a, 0), simd.load(b, 0)
    simd.store(out, 0, simd.add(u, v))
    simd.store(out, W, simd.subtract(u, v))
    simd.store(out, 2 * W, simd.multiply(u, v))
    simd.store(out, 3 * W, simd.maximum(u, v))
    simd.store(out, 4 * W, simd.multiply_add(u, v, simd.spread(a, 2.0)))
    simd.store(out, 5 * W, simd.where_greater(u, v, v, u))
    return simd.total(u), simd.largest(u)


@njit
def _of_tile(a):
    W = simd.lanes(a)
    three = load_tile(tile(a, 0.0, 3, 1), a, 0, W)
    return simd.total(three), simd.largest(three)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_reductions_of_tiles(dtype):
    W = simd.VECTOR_BYTES // np.dtype(dtype).itemsize
    for place in (0, W, 3 * W - 1):
        a = np.ones(3 * W, dtype)
        a[place] = 5
        assert _of_tile(a) == (3 * W + 4, 5)


@pytest.mark.parametrize(("dtype", "low", "high"), [(np.float32, -87.2, 88.0), (np.float64, -708.0, 700.0)])
def test_exponential(dtype, low, high):
    x = np.linspace(low, high, 64 * 1000).astype(dtype)
    out = np.empty_like(x)
    _exponential(x, out)
    assert_allclose(out, np.exp(x.astype(np.longdouble)).astype(np.float64), rtol=2 * np.finfo(dtype).eps)
    special = np.tile(np.array([0, -np.inf, 2 * low, -0.0], dtype), 16)
    out = np.empty_like(special)
    _exponential(special, out)
    assert_allclose(out, np.tile([1, 0, 0, 1], 16), rtol=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arithmetic(dtype):
    rng = np.random.default_rng(0)
    W = simd.VECTOR_BYTES // np.dtype(dtype).itemsize
    a, b, out = (rng.normal(size=n).astype(dtype) for n in (W, W, 6 * W))
    total, largest = _arithmetic(a, b, out)
    expected = [a + b, a - b, a * b, np.maximum(a, b), a * b + 2, np.minimum(a, b)]
    assert_allclose(out.reshape(6, W), expected, rtol=1e-6)
    assert_allclose(total, a.sum(), rtol=1e-5, atol=1e-6)
    assert largest == a.max()


@njit
def _copy_part(a, n, fill, out):
    W = simd.lanes(a)
    simd.store(out, 0, simd.load_part(a, 1, n, fill))
    simd.store_part(out, W + 1, n, simd.load(a, 0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_parts_of_vectors(dtype):
    W = simd.VECTOR_BYTES // np.dtype(dtype).itemsize
    a = np.arange(1, W + 2).astype(dtype)
    for n in range(-3, W + 4):
        out, inside = np.zeros(2 * W + 2, dtype), np.arange(W) < n
        _copy_part(a, n, -np.inf, out)
        assert_array_equal(out[:W], np.where(inside, a[1:], -np.inf))
        assert_array_equal(out[W:], [0, *np.where(inside, a[:W], 0), 0])


@njit
def _first_equal(a, b):
    return simd.first_equal(simd.load(a, 0), simd.load(b, 0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_first_equal(dtype):
    W = simd.VECTOR_BYTES // np.dtype(dtype).itemsize
    a = np.arange(W, dtype=dtype)
    for lane in range(W):
        b = np.where(np.arange(W) >= lane, a, -1).astype(dtype)
        assert _first_equal(a, b) == lane
    assert _first_equal(a, a + 1) == W


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 7, 8, 15, 16, 20, 32])
def test_exp_row(dtype, n):
    rng = np.random.default_rng(n)
    source = rng.normal(size=(3, n)).astype(dtype)
    out = np.full((2, 32), np.nan, dtype)
    shift = call_exp_row(source, n, n, out, 32, 32)
    assert shift == source[1].max()
    assert np.isnan(out[0]).all()
    assert_allclose(out[1, :n], np.exp(source[1] - shift), rtol=1e-6)
    assert not out[1, n:].any()
    assert call_exp_row(np.full((1, n), -np.inf, dtype), 0, n, out, 0, 32) == -np.inf
    assert not out[0].any()


def test_hashes_equal_those_of_single_numbers():
    @njit
    def fill(keys, more, ids, multiplier, shift):
        for k in range(0, len(keys), simd.lanes(keys)):
            simd.prefetch(keys, k)  # changes nothing
            both = simd.add(simd.load(keys, k), simd.load(more, k))
            simd.store_hashes(ids, k, both, multiplier, shift)

    rng, n = np.random.default_rng(0), 32
    keys, more = (rng.integers(0, 1 << 64, n, np.uint64) for _ in range(2))
    multiplier, shift, ids = np.uint64(0x9E3779B97F4A7C15), np.uint64(42), np.zeros(n, np.uint32)
    fill(keys, more, ids, multiplier, shift)
    sums = [(int(a) + int(b)) % 2**64 for a, b in zip(keys, more, strict=True)]
    assert ids.tolist() == [((x ^ x >> 32) * int(multiplier) % 2**64) >> 42 for x in sums]
    assert (ids > 0).all()
