"""Feature maps of the exponential kernel: normalized whatever their scale."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from trelliswork.errors import ValueRangeError
from trelliswork.inference.lowrank import Blocks
from trelliswork.inference.lowrank.potentials import ONE
from trelliswork.models.hmm_lm.kernel_features import log_features, random_projection


def points(n=20, D=4, length=0.8, seed=0):
    x = np.random.default_rng(seed).standard_normal((n, D))
    return length * x / np.linalg.norm(x, axis=1, keepdims=True)


U, V = points(), points(seed=1)


def normalized(log_left, log_right):
    return Blocks(log_left[None], log_right[None], features=True).between(ONE).dense()[0]


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
        matrix = normalized(*logs)
        assert torch.isfinite(matrix).all()
        assert (matrix >= 0).all()
        assert_allclose(matrix.sum(dim=1), 1, rtol=1e-10)
    odds = (
        torch.exp(log_features(torch.from_numpy(U), w, kind)) @ torch.exp(log_features(torch.from_numpy(V), w, kind)).T
    )
    logs = [log_features(torch.from_numpy(x), w, kind) for x in (U, V)]
    assert_allclose(normalized(*logs), odds / odds.sum(dim=1, keepdim=True), rtol=1e-10)


def test_the_norm_term_of_the_left_side_cancels():
    w = random_projection(4, 6, torch.Generator().manual_seed(0)).double()
    u, v = torch.from_numpy(2 * U), torch.from_numpy(V)
    right = log_features(v, w, "exp-norm")
    one, other = (normalized(log_features(u, w, kind), right) for kind in ("exp", "exp-norm"))
    assert_allclose(one, other)


def test_unknown_names():
    with pytest.raises(ValueRangeError, match="exp-norm"):
        log_features(torch.ones(1, 2), torch.ones(2, 2), "cosine")
