"""The objective of factorial CRFs against enumeration, finite differences and the objective of plain CRFs."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tests.oracle.factorial import enumerate_factorial
from trelliswork.compute.threads import num_threads
from trelliswork.errors import ImpossibleError, ValueRangeError
from trelliswork.inference.factorial import ENGINES
from trelliswork.inference.factorial.sweeps import Options
from trelliswork.models.crf import problem as chains
from trelliswork.models.crf.layout import Allowed, FeatureLayout
from trelliswork.models.crf.objective import ChainObjective
from trelliswork.models.crf.problem import Labeling, Tokens
from trelliswork.models.factorial.objective import FactorialLayout, FactorialObjective

TIGHT = Options(tolerance=1e-6, max_iter=1000)


class Problem:
    """Random tokens and labels of some layers; the layers share their tokens."""

    def __init__(self, seed, n_labels=(3, 2), lengths=(3, 1, 2), n_attributes=6, real=False, kind="observed"):
        rng = np.random.default_rng(seed)
        n_tokens = sum(lengths)
        token_ptr = np.concatenate([[0], np.cumsum(rng.integers(0, 4, n_tokens))])
        ids = rng.integers(0, n_attributes, token_ptr[-1]).astype(np.int32)
        values = rng.normal(size=len(ids)).astype(np.float32) if real else None
        self.tokens = Tokens(np.concatenate([[0], np.cumsum(lengths)]), token_ptr, ids, values)
        self.gold = [rng.integers(0, S, n_tokens).astype(np.int32) for S in n_labels]
        if kind == "observed":
            layers = [
                FeatureLayout.observed(self.tokens, Labeling(g), n_attributes, S)
                for g, S in zip(self.gold, n_labels, strict=True)
            ]
        else:
            layers = [FeatureLayout.all_pairs(n_attributes, S) for S in n_labels]
        D = len(n_labels)
        self.layout = FactorialLayout(tuple(layers), tuple((d, e) for d in range(D) for e in range(d + 1, D)))
        self.weights = rng.normal(size=self.layout.n_features)

    def given(self, weights=None, allowed=(None,) * 3):
        """The problems of the layers."""
        parts = zip(self.gold, self.layout.layers, allowed, strict=False)
        return [chains.Problem(self.tokens, Labeling(g), own, weights, None, a) for g, own, a in parts]

    def objective(self, engine="bp", l2=0.0, options=TIGHT, **given):
        return FactorialObjective(self.given(**given), self.layout, engine=engine, l2=l2, options=options)

    def scores(self, w):
        """Dense potentials: unary (n_tokens, S_d) and transitions of each layer, tables of the ties."""
        unary, transitions = [], []
        for d, layer in enumerate(self.layout.layers):
            part = self.layout.layer(w, d)
            matrix = np.zeros(layer.n_labels**2)
            matrix[layer.transitions] = part[: len(layer.transitions)]
            transitions.append(matrix.reshape(layer.n_labels, -1))
            dense = np.zeros((layer.n_attributes, layer.n_labels))
            dense[layer.attributes, layer.labels] = part[len(layer.transitions) :]
            rows = np.zeros((len(self.tokens.token_ptr) - 1, layer.n_labels))
            for i, (a, b) in enumerate(pairwise(self.tokens.token_ptr.tolist())):
                by = 1 if self.tokens.values is None else self.tokens.values[a:b, None]
                rows[i] = (dense[self.tokens.ids[a:b]] * by).sum(axis=0)
            unary.append(rows)
        return unary, transitions, {pair: self.layout.tie(w, pair) for pair in self.layout.ties}

    def enumerated(self, w):
        """The loss from its definition."""
        unary, transitions, ties = self.scores(w)
        loss = 0.0
        for a, b in pairwise(self.tokens.offsets.tolist()):
            loss += enumerate_factorial([u[a:b] for u in unary], transitions, ties).log_z
            for u, matrix, y in zip(unary, transitions, self.gold, strict=True):
                loss -= u[np.arange(a, b), y[a:b]].sum() + matrix[y[a : b - 1], y[a + 1 : b]].sum()
            for (d, e), table in ties.items():
                loss -= table[self.gold[d][a:b], self.gold[e][a:b]].sum()
        return loss


def slope_of(function, w, direction, step=0.02):
    """Central differences of fourth order; the step is large because scores are float32."""
    at = [function(w + k * step * direction) for k in (-2, -1, 1, 2)]
    return (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * step)


@given(st.integers(0, 1000), st.booleans(), st.sampled_from(["observed", "all"]), st.sampled_from([(3, 2), (2, 2, 2)]))
def test_exact_value_and_gradient_match_enumeration(seed, real, kind, n_labels):
    problem = Problem(seed, n_labels, real=real, kind=kind)
    value, gradient = problem.objective("exact")(problem.weights)
    assert_allclose(value, problem.enumerated(problem.weights), rtol=1e-5, atol=1e-4)
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=len(gradient)) / np.sqrt(len(gradient))
    slope = slope_of(problem.enumerated, problem.weights, direction, 1e-3)
    assert_allclose(gradient @ direction, slope, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("engine", list(ENGINES))
@pytest.mark.parametrize("seed", range(6))
def test_gradient_matches_finite_differences_at_convergence(engine, seed):
    problem = Problem(seed, [(3, 2), (4, 3, 2)][seed % 2], lengths=(5, 1, 3, 4), n_attributes=8)
    objective = problem.objective(engine, l2=0.3, weights=np.array([1.0, 2.0, 0.5, 1.0]))
    _, gradient = objective(problem.weights)
    assert objective.n_unconverged == 0
    direction = np.random.default_rng(seed).normal(size=len(gradient)) / np.sqrt(len(gradient))
    slope = slope_of(lambda w: objective(w)[0], problem.weights, direction)
    assert_allclose(gradient @ direction, slope, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("engine", list(ENGINES))
@pytest.mark.parametrize("real", [False, True])
def test_one_layer_is_a_crf(engine, real):
    problem = Problem(3, (4,), lengths=(5, 2, 7, 1), real=real)
    want = ChainObjective(problem.given()[0], l2=0.5)
    value, gradient = problem.objective(engine, l2=0.5)(problem.weights)
    assert_allclose(value, want(problem.weights)[0], rtol=1e-6)
    assert_allclose(gradient, want(problem.weights)[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("engine", list(ENGINES))
def test_layers_without_ties_are_two_crfs(engine):
    problem = Problem(4, (4, 3), lengths=(5, 2, 7, 1))
    layout = FactorialLayout(problem.layout.layers, ())
    w = problem.weights[: layout.n_features]
    value, gradient = FactorialObjective(problem.given(), layout, engine=engine)(w)
    parts = [ChainObjective(problem.given()[d])(layout.layer(w, d)) for d in range(2)]
    assert_allclose(value, sum(v for v, _ in parts), rtol=1e-6)
    assert_allclose(gradient, np.concatenate([g for _, g in parts]), rtol=1e-5, atol=1e-5)


@given(st.integers(0, 1000))
def test_mean_field_lies_below_exact(seed):
    problem = Problem(seed)
    below, exact = (problem.objective(name)(problem.weights)[0] for name in ("structured_mean_field", "exact"))
    assert below <= exact + 1e-4


def test_a_sentence_of_weight_two_counts_twice():
    problem = Problem(5, lengths=(3, 2))
    once, _ = problem.objective(weights=np.array([1.0, 0.0]))(problem.weights)
    twice, _ = problem.objective(weights=np.array([2.0, 0.0]))(problem.weights)
    both, _ = problem.objective()(problem.weights)
    assert_allclose(twice, 2 * once, rtol=1e-6)
    assert both > once


def test_many_sentences_are_the_sum_of_each_alone_whatever_the_threads():
    lengths = tuple(np.random.default_rng(0).integers(1, 9, 300).tolist())
    problem = Problem(6, (5, 4), lengths=lengths, n_attributes=30)
    objective = problem.objective("bp", options=Options(1e-4))
    with num_threads(1):
        value, gradient = objective(problem.weights)
    with num_threads(2):
        again, same = objective(problem.weights)
    assert value == again
    assert (gradient == same).all()
    parts = [
        problem.objective("bp", weights=(np.arange(300) % 3 == k).astype(float), options=Options(1e-4))
        for k in range(3)
    ]
    found = [part(problem.weights) for part in parts]
    assert_allclose(value, sum(v for v, _ in found), rtol=1e-6)
    assert_allclose(gradient, sum(g for _, g in found), rtol=1e-3, atol=1e-3)
    assert objective.residual <= 1e-4


def test_what_the_schemes_forbid_has_no_part():
    """Layer 0 may not stay in label 0; gold agrees. The same as weights of -inf there."""
    problem = Problem(7, (2, 2), lengths=(3, 2), kind="all")
    problem.gold[0][:] = [0, 1, 1, 0, 1]
    allowed = Allowed(np.array([[False, True], [True, True]]), np.ones(2, bool), np.array([False, True]))
    value, _ = problem.objective("exact", allowed=[allowed, None])(problem.weights)
    unary, transitions, ties = problem.scores(problem.weights)
    transitions[0][0, 0] = -np.inf
    unary[0][[2, 4], 0] = -np.inf
    want = 0.0
    for a, b in pairwise(problem.tokens.offsets.tolist()):
        want += enumerate_factorial([u[a:b] for u in unary], transitions, ties).log_z
        for u, matrix, y in zip(unary, transitions, problem.gold, strict=True):
            want -= u[np.arange(a, b), y[a:b]].sum() + matrix[y[a : b - 1], y[a + 1 : b]].sum()
        want -= ties[0, 1][problem.gold[0][a:b], problem.gold[1][a:b]].sum()
    assert_allclose(value, want, rtol=1e-5, atol=1e-5)


def test_impossible_sentences_and_wrong_input_are_refused():
    problem = Problem(8, (2, 2), lengths=(3, 2))
    nothing = Allowed(np.zeros((2, 2), bool), np.ones(2, bool), np.ones(2, bool))
    with pytest.raises(ImpossibleError, match=r"sentence \d: no labeling satisfies"):
        problem.objective("bp", allowed=[nothing, None])(problem.weights)
    with pytest.raises(ValueRangeError, match="engine must be one of"):
        problem.objective("magic")(problem.weights)
