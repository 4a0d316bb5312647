"""Markov chains over second-order trees, against enumeration."""

import numpy as np
import pytest

from experiments import tree_chains
from experiments.tree_chains import gibbs_marginals
from tests.inference.tree.second_order.test_second_order import enumerated, random_scores, some_arcs
from trelliswork.compute import threads
from trelliswork.errors import ImpossibleError, ShapeError, ValueRangeError
from trelliswork.inference.tree.second_order import infer, parts


@pytest.mark.parametrize("projective", [True, False])
@pytest.mark.parametrize("single_root", [True, False])
def test_chains_agree_with_enumeration(projective, single_root):
    rng = np.random.default_rng(2)
    p = parts(*some_arcs(rng, [5], 0.7))
    scores = random_scores(rng, p, 1.5, 1.5)
    want = enumerated(p, 0, scores, projective, single_root)
    exact, kind = want.probabilities @ want.arcs, {"projective": projective, "single_root": single_root}
    chains = gibbs_marginals(p, *scores, n_sweeps=4000, **kind)
    assert chains.errors.max() < 0.015
    assert (np.abs(chains.arcs - exact) <= 4 * chains.errors + 1e-3).all()
    assert np.abs(infer(p, *scores, **kind).arcs - exact).max() > 0.05  # belief propagation is farther away
    assert 0.1 < chains.accepted < 1
    assert 1 <= chains.mixing < 1.3


def test_proposals_alone_have_the_same_distribution(monkeypatch):
    rng = np.random.default_rng(2)
    p = parts(*some_arcs(rng, [4], 1.0))
    scores = random_scores(rng, p, 0.3, 0.5)
    want = enumerated(p, 0, scores, True, True)
    exact, model = want.probabilities @ want.arcs, tree_chains.Model
    monkeypatch.setattr(
        tree_chains, "Model", lambda *a: model(*a)._replace(free=np.zeros(0, np.int64), fixed=np.arange(1, 5))
    )
    chains = gibbs_marginals(p, *scores, n_sweeps=8000)
    assert np.abs(infer(p, *scores, max_iter=20, damping=0.3).arcs - exact).max() > 0.05  # that of the proposals
    assert (np.abs(chains.arcs - exact) <= 4 * chains.errors + 1e-3).all()


def test_chains_do_not_depend_on_threads_but_on_the_seed():
    rng = np.random.default_rng(0)
    p = parts(*some_arcs(rng, [6], 0.6))
    scores = random_scores(rng, p)
    found = []
    for n, seed in ((1, 0), (4, 0), (1, 1)):
        with threads.num_threads(n):
            found.append(gibbs_marginals(p, *scores, n_sweeps=50, seed=seed).arcs)
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_checks():
    rng = np.random.default_rng(0)
    two = parts(*some_arcs(rng, [2, 2]))
    with pytest.raises(ShapeError, match="one sentence"):
        gibbs_marginals(two, *random_scores(rng, two))
    one = parts([1], [0, 1], [0], [1])
    scores = random_scores(rng, one)
    with pytest.raises(ValueRangeError, match="at least 20"):
        gibbs_marginals(one, *scores, n_sweeps=19)
    with pytest.raises(ImpossibleError, match="no tree is possible"):
        gibbs_marginals(one, np.array([-np.inf]), *scores[1:])
    assert gibbs_marginals(one, *scores, n_sweeps=20).arcs == 1
