"""Approximations of the exponential kernel: unbiased, better with more features."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from experiments.kernel_features import approximate_kernel, softmax_error
from trelliswork.errors import ValueRangeError


def points(n=20, D=4, length=0.8, seed=0):
    x = np.random.default_rng(seed).standard_normal((n, D))
    return length * x / np.linalg.norm(x, axis=1, keepdims=True)


U, V = points(), points(seed=1)


@pytest.mark.parametrize("method", ["positive", "orthogonal", "fourier"])
def test_random_features_are_unbiased(method):
    found = np.mean([approximate_kernel(U, V, method, 128, seed=k)[0] for k in range(100)], axis=0)
    assert_allclose(found, np.exp(U @ V.T), rtol=0.08)


@pytest.mark.parametrize("method", ["positive", "orthogonal", "fourier", "nystroem", "taylor"])
def test_more_features_are_better(method):
    errors = [np.mean([softmax_error(U, V, method, n, k).distance for k in range(6)]) for n in (5, 40, 320)]
    assert errors[0] > errors[1] > errors[2] - 1e-12
    assert errors[2] < 0.1


def test_nystroem_with_all_points_and_taylor_of_high_degree_are_exact():
    assert softmax_error(U, V, "nystroem", 40).distance < 1e-6
    assert softmax_error(U, V, "taylor", 500).distance < 1e-4
    found, n = approximate_kernel(U, V, "taylor", 20)
    assert n == 15  # 1 + 4 + 10: all monomials of degree 2
    x = U @ V.T
    assert_allclose(found, 1 + x + x**2 / 2)


def test_only_positive_features_are_never_negative():
    far, other = points(length=3.0), points(length=3.0, seed=1)
    assert softmax_error(far, other, "positive", 16).negative == 0
    assert softmax_error(far, other, "fourier", 16).negative > 0
    assert 0 <= softmax_error(far, other, "fourier", 2).distance <= 1


def test_unknown_names():
    with pytest.raises(ValueRangeError, match="nystroem"):
        approximate_kernel(U, V, "magic", 4)
