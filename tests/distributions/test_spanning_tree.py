"""SpanningTree: counts, forests, the single root of Chu-Liu-Edmonds. See also test_projective_tree."""

from math import comb

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from tests.oracle.trees import trees
from trelliswork.distributions.spanning_tree import SpanningTree


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 12, 40, 150])
def test_number_of_trees(n):
    zeros = torch.zeros(1, n + 1, n + 1, dtype=torch.float64)
    several, single = SpanningTree(zeros, single_root=False), SpanningTree(zeros)
    assert_allclose(several.log_partition().item(), (n - 1) * np.log(n + 1), rtol=1e-11, atol=1e-11)
    assert_allclose(single.log_partition().item(), (n - 1) * np.log(n), rtol=1e-11, atol=1e-11)
    if n <= 5:
        assert len(trees(n, False, False)) == (n + 1) ** (n - 1)
        assert len(trees(n, False, True)) == n ** (n - 1)


@pytest.mark.parametrize(("n", "k"), [(4, 1), (4, 2), (6, 3)])
def test_number_of_rooted_forests(n, k):
    # C(n, k) k n^(n-k-1) forests of k rooted trees: the coefficient of t^k when root arcs weigh t.
    scale = np.linspace(0.5, 2, n + 1)  # the polynomial has degree n
    values = []
    for t in scale:
        scores = torch.zeros(1, n + 1, n + 1, dtype=torch.float64)
        scores[:, 0] = np.log(t)
        values.append(SpanningTree(scores, single_root=False).log_partition().exp().item())
    coefficients = np.linalg.solve(np.vander(scale, n + 1, increasing=True), values)
    assert_allclose(coefficients[k], comb(n, k) * k * float(n) ** (n - k - 1), rtol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_single_root_is_the_best_over_all_roots(seed):
    scores = torch.randn(1, 13, 13, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 10
    scores[:, 0] += 20  # several roots would be far better
    best = SpanningTree(scores).argmax()
    assert (best.labels == 0).sum() == 1
    values = []
    for root in range(1, 13):
        one = scores.clone()
        one[:, 0] = -torch.inf
        one[:, 0, root] = scores[:, 0, root]
        values.append(SpanningTree(one, single_root=False).argmax().scores.item())
    assert_allclose(best.scores.item(), max(values), rtol=1e-12)
    assert (SpanningTree(scores, single_root=False).argmax().labels == 0).sum() > 1


def test_single_root_with_scores_that_a_large_constant_would_drown():
    scores = torch.zeros(1, 4, 4, dtype=torch.float64)
    scores[0, 0] = torch.tensor([0, 1e11, 1e11, 1e11])
    scores[0, 2, 1] = scores[0, 2, 3] = 1e-3
    assert SpanningTree(scores).argmax().labels.tolist() == [[2, 0, 2]]


def test_a_word_that_only_the_root_can_head():
    scores = torch.zeros(1, 4, 4, dtype=torch.float64)
    scores[0, 1:, 2] = -torch.inf
    one = SpanningTree(scores)
    assert_allclose(one.log_partition().exp().item(), 3)
    assert_allclose(one.marginals()[0, 0], [0, 0, 1, 0], atol=1e-12)
    scores[0, 1:, 3] = -torch.inf  # two of them: no tree with a single root
    assert torch.isneginf(SpanningTree(scores).log_partition()).all()
    assert_allclose(SpanningTree(scores, single_root=False).log_partition().exp().item(), 3)
