"""Derivatives through the iterations of belief propagation: against finite differences and the reference."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tests.inference.tree.second_order.test_second_order import kinds, random_scores, seeds, some_arcs
from trelliswork.compute import threads
from trelliswork.errors import ShapeError
from trelliswork.inference.tree import second_order
from trelliswork.inference.tree.second_order import infer, infer_with_gradients, parts, reference
from trelliswork.inference.tree.second_order.kernels.records import Options


def slope(p, scores, direction, by_arcs, options, step=1e-5):
    """Return the derivative of the weighted sum of beliefs along a direction of all scores."""
    ahead, behind = (
        infer(p, *(s + sign * step * d for s, d in zip(scores, direction, strict=True)), **options).arcs @ by_arcs
        for sign in (1, -1)
    )
    return (ahead - behind) / (2 * step)


def settings_of(kind, tree_every=2, damping=0.0, max_iter=5):
    return {
        "projective": kind[0], "single_root": kind[1], "max_iter": max_iter, "tree_every": tree_every,
        "tolerance": 0.0, "damping": damping,
    }  # fmt: skip


@given(
    seed=seeds,
    kind=kinds,
    tree_every=st.integers(1, 3),
    damping=st.sampled_from([0.0, 0.3]),
    listed=st.sampled_from([(True, True), (True, False), (False, True), (False, False)]),
)
def test_gradients_are_finite_differences(seed, kind, tree_every, damping, listed):
    rng = np.random.default_rng(seed)
    arcs = some_arcs(rng, rng.integers(1, 8, 3), rng.choice([0.4, 1.0]))
    p = parts(*arcs, siblings=listed[0], grandparents=listed[1])
    scores = random_scores(rng, p, 1.5, 0.8)
    scores[0][(rng.random(len(scores[0])) < 0.1) & (p.heads != p.modifiers - 1)] = -np.inf
    options = settings_of(kind, tree_every, damping)
    by_arcs = rng.normal(size=len(p.heads))
    result, gradients = infer_with_gradients(p, *scores, **options)
    assert_allclose(result.arcs, infer(p, *scores, **options).arcs, rtol=0, atol=0)
    found = gradients(by_arcs)
    for k in range(3):  # one random direction for each kind of part
        direction = [rng.normal(size=len(s)) * (j == k) for j, s in enumerate(scores)]
        want = slope(p, scores, direction, by_arcs, options)
        assert_allclose(found[k] @ direction[k], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [(True, True), (False, False)])
@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_every_derivative_equals_that_of_the_reference(kind, damping):
    rng = np.random.default_rng(7)
    p = parts(*some_arcs(rng, [5], 0.8))
    scores, by_arcs = random_scores(rng, p), rng.normal(size=len(p.heads))
    options = settings_of(kind, damping=damping)
    found = infer_with_gradients(p, *scores, **options)[1](by_arcs)
    for got, want in zip(found, reference.gradients(p, scores, by_arcs, Options(**options)), strict=True):
        assert_allclose(got, want, atol=1e-12)


@pytest.mark.parametrize("projective", [True, False])
def test_sentences_out_of_range_are_differentiated_too(projective, monkeypatch):
    """A score above 34 needs log space; the other sentence does not."""
    rng = np.random.default_rng(1)
    p = parts(*some_arcs(rng, [4, 4], 0.9))
    scores, by_arcs = random_scores(rng, p), rng.normal(size=len(p.heads))
    scores[2][-1], scores[0][p.grandparent_lower[-1]] = 40.0, -38.0
    calls, inner = [], reference.gradients
    monkeypatch.setattr(second_order.reference, "gradients", lambda *a: calls.append(a) or inner(*a))
    options = settings_of((projective, True))
    found = infer_with_gradients(p, *scores, **options)[1](by_arcs)
    assert len(calls) == 1
    direction = [rng.normal(size=len(s)) for s in scores]
    want = slope(p, scores, direction, by_arcs, options)
    assert_allclose(sum(g @ d for g, d in zip(found, direction, strict=True)), want, rtol=1e-5, atol=1e-6)


def test_forced_arcs_have_no_derivative():
    p = parts([3], [0, 4], [0, 1, 1, 2], [1, 2, 3, 3])  # words 1 and 2 have one candidate head
    rng = np.random.default_rng(0)
    scores = random_scores(rng, p, 1.0, 1.0)
    found = infer_with_gradients(p, *scores, tolerance=0.0)[1](np.array([1.0, 2.0, 3.0, 4.0]))
    assert_allclose(found.arcs[:2], 0, atol=1e-12)
    belief = infer(p, *scores, tolerance=0.0).arcs[2]
    assert_allclose(found.arcs[2:], np.array([-1, 1]) * belief * (1 - belief), rtol=1e-9)  # exact: no loops


def test_gradients_do_not_depend_on_threads():
    rng = np.random.default_rng(5)
    p = parts(*some_arcs(rng, rng.integers(1, 25, 40), 0.3))
    scores, by_arcs = random_scores(rng, p), rng.normal(size=len(p.heads))
    found = []
    for n in (1, 4):
        with threads.num_threads(n):
            found.append(infer_with_gradients(p, *scores)[1](by_arcs))
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


def test_impossible_sentences_have_none():
    p = parts([2], [0, 2], [0, 1], [1, 2])
    scores = random_scores(np.random.default_rng(0), p)
    scores[0][1] = -np.inf
    result, gradients = infer_with_gradients(p, *scores)
    assert result.log_partition[0] == -np.inf
    assert not any(g.any() for g in gradients(np.ones(2)))
    with pytest.raises(ShapeError, match="by_arcs must have shape"):
        gradients(np.ones(3))
