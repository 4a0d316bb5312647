"""Feature maps of the exponential kernel: unbiased, normalized, better with more features."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from trelliswork.errors import ValueRangeError
from trelliswork.models.hmm_lm.kernel_features import (
    approximate_kernel,
    log_features,
    normalized_factors,
    random_projection,
    softmax_error,
)


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


def test_orthogonal_directions():
    w = random_projection(8, 12, torch.Generator().manual_seed(0))
    gram = (w.T @ w).numpy()
    for block in (gram[:8, :8], gram[8:, 8:]):
        assert_allclose(block - np.diag(np.diag(block)), 0, atol=1e-4)
    assert not np.allclose(gram[:8, 8:], 0, atol=1e-2)
    many = random_projection(8, 800, torch.Generator().manual_seed(0))
    assert_allclose(float(many.square().mean()), 1, rtol=0.05)  # as long as normal vectors


@pytest.mark.parametrize("kind", ["exp", "exp-norm", "relu"])
def test_rows_sum_to_one_whatever_the_scale(kind):
    w = random_projection(4, 6, torch.Generator().manual_seed(0)).double()
    for scale in (0.1, 1.0, 300.0):
        logs = [log_features(scale * torch.from_numpy(x), w, kind) for x in (U, V)]
        left, right = normalized_factors(*logs)
        matrix = left @ right.T
        assert torch.isfinite(matrix).all()
        assert (matrix >= 0).all()
        assert_allclose(matrix.sum(dim=1), 1, rtol=1e-10)
    odds = (
        torch.exp(log_features(torch.from_numpy(U), w, kind)) @ torch.exp(log_features(torch.from_numpy(V), w, kind)).T
    )
    logs = [log_features(torch.from_numpy(x), w, kind) for x in (U, V)]
    left, right = normalized_factors(*logs)
    assert_allclose(left @ right.T, odds / odds.sum(dim=1, keepdim=True), rtol=1e-10)


def test_the_norm_term_of_the_left_side_cancels():
    w = random_projection(4, 6, torch.Generator().manual_seed(0)).double()
    u, v = torch.from_numpy(2 * U), torch.from_numpy(V)
    right = log_features(v, w, "exp-norm")
    one = normalized_factors(log_features(u, w, "exp"), right)
    other = normalized_factors(log_features(u, w, "exp-norm"), right)
    assert_allclose(one[0] @ one[1].T, other[0] @ other[1].T)


def test_unknown_names():
    with pytest.raises(ValueRangeError, match="exp-norm"):
        log_features(torch.ones(1, 2), torch.ones(2, 2), "cosine")
    with pytest.raises(ValueRangeError, match="nystroem"):
        approximate_kernel(U, V, "magic", 4)
