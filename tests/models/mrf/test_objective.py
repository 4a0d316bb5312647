"""The moment objective against the field of its parameters; gradients against finite differences."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_matrix

from tests.oracle import fields
from trelliswork.data.moments import count_moments
from trelliswork.inference.lifted import ChainCover, SparseTable, Star, reference
from trelliswork.learning.lbfgs import lbfgs
from trelliswork.learning.watch import Watch
from trelliswork.models.mrf import pseudo_likelihood
from trelliswork.models.mrf.objective import MomentObjective, NoUnaryObjective
from trelliswork.models.mrf.shapes import Frequencies, LowRankShape, PairShape
from trelliswork.models.mrf.start import first_parameters

TEXT = [list("abcab"), list("bca"), list("cc"), list("abcc"), list("a")]


def shapes(moments):
    C = len(moments.vocabulary)
    every = csr_matrix(np.ones((C, C)))
    return {
        "UW": LowRankShape(C, moments.K, 3),
        "URW": LowRankShape(C, moments.K, 3, "URW"),
        "full": PairShape((every,) * moments.K),
        "pairs": PairShape(moments.pairs),
    }


def train(objective, parameters, **options):
    """Return the report of L-BFGS from some parameters."""
    return lbfgs(objective, parameters * objective.scale, period=5, history_size=10, **options)[1]


def tables_of(shape, parameters):
    """Return dense vartheta."""
    if isinstance(shape, LowRankShape):
        return np.array([left @ right.T for left, right in shape.factors(parameters)])
    values, _ = shape.parts(parameters)
    return np.array(
        [type(p)((v, p.indices, p.indptr), p.shape).toarray() for p, v in zip(shape.patterns, values, strict=True)]
    )


@pytest.mark.parametrize("K", [1, 2])
@pytest.mark.parametrize("name", ["UW", "URW", "full", "pairs"])
@pytest.mark.parametrize("star", [False, True])
def test_the_objective_is_the_bound_of_the_text(K, name, star):
    moments = count_moments(TEXT, K)
    frequencies, shape = Frequencies.of(moments), shapes(moments)[name]
    rho = np.full(K, 1 / (K + star))
    objective = MomentObjective(shape, frequencies, rho)
    rng = np.random.default_rng(0)
    parameters = first_parameters(shape, frequencies) + 0.3 * rng.normal(size=shape.n_parameters)
    value, _ = objective(parameters * objective.scale)
    assert_allclose(objective.bound(parameters, objective.unaries, frequencies), -value, rtol=1e-5)
    # Score the field of these parameters word by word in the circle of the text.
    unaries = objective.unaries
    log_unary = np.concatenate([[1 - rho.sum()], rho]) @ unaries
    tables = rho[:, None, None] * tables_of(shape, parameters)
    circle = tuple(w for s in TEXT for w in [0] * K + moments.vocabulary.ids(s))
    score = fields.circle_score(log_unary, tables, circle) / len(circle)
    assert_allclose(-value, score, rtol=1e-5)  # the cover's bound of A / N is 0
    given_tables = [SparseTable(t) for t in tables]
    best = ChainCover(log_unary, given_tables).tighten(weights=rho, max_iter=30)
    assert best.value <= 1e-5
    if K == 1 and not star:
        assert_allclose(best.value, 0, atol=1e-5)
    if star:
        assert Star(log_unary, given_tables).tighten().value <= 1e-5


@pytest.mark.parametrize("name", ["UW", "URW", "full", "pairs"])
def test_gradients(name):
    """Tables are computed in float32, so finite differences are wide."""
    moments = count_moments(TEXT, 2)
    frequencies, shape = Frequencies.of(moments), shapes(moments)[name]
    objective = MomentObjective(shape, frequencies, np.array([0.6, 0.3]), l2=0.25)
    rng = np.random.default_rng(1)
    at = objective.scale * (first_parameters(shape, frequencies) + 0.5 * rng.normal(size=shape.n_parameters))
    _, gradient = objective(at)
    for _ in range(5):
        direction = rng.normal(size=len(at))
        h = 3e-3
        slope = (objective(at + h * direction).value - objective(at - h * direction).value) / (2 * h)
        assert_allclose(gradient @ direction, slope, rtol=3e-3, atol=3e-3)


def test_training_on_moments_of_k_1_finds_the_frequencies_of_pairs():
    """With full rank and no penalty, p(y | x) is that of the text."""
    moments = count_moments(TEXT, 1)
    frequencies, shape = Frequencies.of(moments), shapes(moments)["full"]
    objective = MomentObjective(shape, frequencies, np.ones(1))
    report = train(objective, first_parameters(shape, frequencies), max_iter=200, tol=1e-9)
    pairs = moments.pairs[0].toarray()
    seen = pairs > 0
    best = (pairs[seen] * np.log((pairs / pairs.sum(1, keepdims=True))[seen])).sum() / moments.n_positions
    assert_allclose(-report.value, best, atol=1e-3)


def test_a_repeated_text_is_the_same_problem():
    K = 2
    once, often = (Frequencies.of(count_moments(TEXT * n, K)) for n in (1, 20))
    shape = shapes(count_moments(TEXT, K))["UW"]
    at = first_parameters(shape, once)
    for a, b in zip(
        shape.evaluate(at, once, np.array([0.5, 0.5])), shape.evaluate(at, often, np.array([0.5, 0.5])), strict=True
    ):
        assert_allclose(a, b, rtol=1e-6, atol=1e-9)


def test_frequencies_of_pairs_are_cached():
    moments = count_moments(TEXT, 2)
    frequencies, other = Frequencies.of(moments), Frequencies.of(count_moments(TEXT * 2, 2))
    shape = shapes(moments)["pairs"]
    assert shape.observed(frequencies) is shape.observed(frequencies)
    assert shape.observed(other) is not shape.observed(frequencies)
    for pattern, observed in zip(moments.pairs, shape.observed(frequencies), strict=True):
        assert_allclose(observed, pattern.data / moments.n_positions)


def test_pseudo_likelihood_has_the_penalty_l2_times_the_squared_norm():
    """At the optimum the gradient of the likelihood equals that of the penalty, 2 * l2 * w."""
    import torch

    rng = np.random.default_rng(0)
    text = pseudo_likelihood.padded_stream(np.tile(np.array([1, 2, 3, 2, -1, 3, 1, -1]), 10), 1)
    shapes = (4,), (4, 2), (1, 4, 2)
    field = pseudo_likelihood.Field(*(torch.from_numpy(rng.normal(size=s).astype(np.float32)) for s in shapes))
    pseudo_likelihood.train(field, text, Watch(), learning_rate=0.1, batch_size=1000, max_iter=200, l2=1.0)
    places = torch.from_numpy(np.flatnonzero(text))
    assert field.left.abs().max() > 1
    tables = [tensor.requires_grad_() for tensor in field[1:]]
    gradient = torch.autograd.grad(
        pseudo_likelihood.log_likelihoods(field, torch.from_numpy(text), places).sum(), tables
    )
    for slope, tensor in zip(gradient, tables, strict=True):
        assert_allclose(slope.numpy(), 2 * tensor.detach().numpy(), atol=0.1)


def test_pseudo_likelihood():
    import torch

    rng = np.random.default_rng(0)
    K, C, D = 2, 5, 3
    tensors = [torch.from_numpy(a) for a in (rng.normal(size=C), rng.normal(size=(C, D)), rng.normal(size=(K, C, D)))]
    field = pseudo_likelihood.Field(*tensors)
    text = torch.from_numpy(pseudo_likelihood.padded_stream(np.array([1, 2, 3, -1, 4, 4, 1, 2, -1]), K))
    assert text.tolist() == [0, 0, 1, 2, 3, 0, 0, 4, 4, 1, 2, 0, 0]
    places = torch.nonzero(text)[:, 0]
    value = pseudo_likelihood.log_likelihoods(field, text, places).sum()
    unary, tables = tensors[0].numpy(), np.array([tensors[1].numpy() @ w.numpy().T for w in tensors[2]])
    want = 0.0
    for i in places.tolist():
        scores = [
            unary[w] + sum(tables[d - 1][text[i - d], w] + tables[d - 1][w, text[i + d]] for d in (1, 2))
            for w in range(1, C)
        ]
        want += scores[text[i] - 1] - fields.log_sum(scores)
    assert_allclose(value, want, rtol=1e-10)
    assert_allclose(pseudo_likelihood.mean_log_p(field, text.numpy(), batch_size=3), want / len(places), rtol=1e-10)


def circle_of(moments):
    """Return the text of the moments, with K pads before each sentence."""
    return tuple(w for s in TEXT for w in [0] * moments.K + moments.vocabulary.ids(s))


def bare(K, name, star=False, seed=0, l2=0.0):
    """Return moments, an objective without a unary, and some parameters."""
    moments = count_moments(TEXT, K)
    frequencies, shape = Frequencies.of(moments), shapes(moments)[name]
    objective = NoUnaryObjective(shape, frequencies, np.full(K, 1 / (K + star)), l2=l2)
    noise = np.random.default_rng(seed).normal(size=shape.n_parameters)
    return moments, objective, first_parameters(shape, frequencies, unary=False) + 0.4 * noise


@pytest.mark.parametrize("K", [1, 2, 3])
@pytest.mark.parametrize("name", ["UW", "URW", "full", "pairs"])
@pytest.mark.parametrize("star", [False, True])
def test_without_a_unary_the_objective_is_a_bound(K, name, star):
    moments, objective, parameters = bare(K, name, star)
    value, _ = objective(parameters * objective.scale)
    assert_allclose(objective.bound(parameters, objective.unaries, objective.frequencies), -value, rtol=1e-6)
    tables = objective.weights[:, None, None] * tables_of(objective.shape, parameters)
    zeros, circle = np.zeros(tables.shape[1]), circle_of(moments)
    data = fields.circle_score(zeros, tables, circle) / len(circle)
    log_z = data + value  # bound per position
    assert_allclose(objective.rho @ objective.unaries, -log_z, atol=1e-5)  # a constant
    unaries = objective.unaries + log_z
    assert_allclose(reference.chain_cover(unaries, tables, objective.rho)[0], log_z, atol=2e-6)
    given_tables = [SparseTable(t) for t in tables]
    endless = fields.long_circle_log_z(zeros, tables, 2**18) / 2**18
    assert log_z >= endless - 2e-5
    if K == 1 and not star:
        assert_allclose(log_z, endless, atol=1e-6 + np.log(len(zeros)) / 2**18)
        assert_allclose(log_z, reference.perron(tables[0])[0], atol=1e-6)
    if star:
        delta = objective.shape.biases(parameters)
        assert_allclose(Star(zeros, given_tables).belief_propagation(delta)[0] / (K + 1), log_z, rtol=1e-6)
        for N in (2 * K + 1, 2 * K + 2):
            assert log_z >= fields.long_circle_log_z(zeros, tables, N) / N - 1e-6


@pytest.mark.parametrize("K", [1, 2, 3])
@pytest.mark.parametrize("name", ["UW", "URW", "full", "pairs"])
@pytest.mark.parametrize("star", [False, True])
def test_gradients_without_a_unary(K, name, star):
    _, objective, parameters = bare(K, name, star, seed=1, l2=0.25)
    at, rng = objective.scale * parameters, np.random.default_rng(2)
    _, gradient = objective(at)
    for _ in range(4):
        direction = rng.normal(size=len(at))
        h = 3e-3  # tables are float32
        slope = (objective(at + h * direction).value - objective(at - h * direction).value) / (2 * h)
        assert_allclose(gradient @ direction, slope, rtol=3e-3, atol=1e-3)


@pytest.mark.parametrize("star", [False, True])
def test_training_without_a_unary_reaches_the_optimum_of_a_generic_optimizer(star):
    """The generic one works on tables and unaries themselves, by finite differences of the reference."""
    from scipy.optimize import minimize

    text, K = [list("aab"), list("ba"), list("a")], 2
    moments = count_moments(text, K)
    C, frequencies = len(moments.vocabulary), Frequencies.of(moments)
    shape = PairShape((csr_matrix(np.ones((C, C))),) * K)
    objective = NoUnaryObjective(shape, frequencies, np.full(K, 1 / (K + star)), l2=0.15)
    report = train(objective, first_parameters(shape, frequencies, unary=False), max_iter=300, tol=1e-10)
    data = np.array([m.toarray() for m in frequencies.pairs])
    rho = objective.rho

    def generic(at):
        tables, free = at[: K * C * C].reshape(K, C, C), at[K * C * C :].reshape(-1, C)
        unaries = np.vstack([np.zeros((1, C)), np.zeros((1, C)), free]) if not star else np.vstack([np.zeros(C), free])
        last = 0 if star else 1
        unaries[last] = -(rho @ unaries) / rho[last]
        scaled = rho[1:, None, None] * tables
        bound, _ = reference.chain_cover(unaries, scaled, rho)
        return bound - (data * scaled).sum() + 0.15 / moments.n_positions * (tables**2).sum()

    best = minimize(generic, np.zeros(K * C * C + (K - 1 + star) * C), method="BFGS", options={"gtol": 1e-7})
    assert_allclose(report.value, best.fun, atol=2e-6)


@pytest.mark.parametrize("K", [1, 2])
@pytest.mark.parametrize("star", [False, True])
def test_full_tables_need_no_unary(K, star):
    """They can represent a unary, so the optimum is the same."""
    moments = count_moments(TEXT, K)
    frequencies, shape = Frequencies.of(moments), shapes(moments)["full"]
    weights = np.full(K, 1 / (K + star))
    values = []
    for kind, unary in ((MomentObjective, True), (NoUnaryObjective, False)):
        objective = kind(shape, frequencies, weights)
        values.append(
            train(objective, first_parameters(shape, frequencies, unary=unary), max_iter=2000, tol=1e-10).value
        )
    assert_allclose(values[1], values[0], atol=1e-3)  # the optimum is at infinity for pairs that never occur


@pytest.mark.parametrize("name", ["UW", "URW", "full"])
@pytest.mark.parametrize("rest", [0.0, 0.3])
def test_without_a_unary_training_starts_with_word_frequencies(name, rest):
    """With tables that ignore pairs, all parts of the cover have the margin of the text; the bound is its entropy."""
    moments = count_moments(TEXT, 2)
    frequencies, shape = Frequencies.of(moments), shapes(moments)[name]
    if name != "full":
        shape = LowRankShape(shape.n_words, 2, 1, name)  # frequencies need one dimension
    objective = NoUnaryObjective(shape, frequencies, np.full(2, (1 - rest) / 2))
    parameters, p = first_parameters(shape, frequencies, unary=False, rest=rest), frequencies.unary
    assert_allclose(objective(parameters * objective.scale).value, -p @ np.log(p), rtol=1e-5)
    for a, table in zip(objective.unaries[1:], tables_of(shape, parameters), strict=True):
        assert_allclose(reference.perron(a + table)[1].sum(0), p, rtol=1e-5)


def test_a_step_without_a_unary_does_not_depend_on_the_length_of_the_text():
    for star in (False, True):
        _, objective, parameters = bare(2, "UW", star)
        often = Frequencies.of(count_moments(TEXT * 20, 2))
        again = NoUnaryObjective(objective.shape, often, objective.weights)
        again.scale = objective.scale
        for a, b in zip(objective(parameters), again(parameters), strict=True):
            assert_allclose(a, b, rtol=1e-6, atol=1e-8)
