"""Bounds of Markov random fields against enumeration; products of large tables against small ones."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.sparse import csr_matrix
from scipy.special import logsumexp

from tests.oracle import fields
from trelliswork.compute import threads
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.lifted import (
    ChainCover,
    LowRankTable,
    SparseTable,
    Star,
    exact,
    exponentials,
    reference,
    sentences,
)
from trelliswork.inference.lifted.ais import annealed_log_z
from trelliswork.inference.lifted.chain_cover import perron
from trelliswork.inference.lifted.conditionals import conditionals, log_norms
from trelliswork.inference.lifted.exponentials import ExpTable
from trelliswork.inference.lifted.potentials import dense


def field(K, C, seed=0, size=1.0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=C), size * rng.normal(size=(K, C, C))


def as_tables(tables):
    return [SparseTable(t) for t in tables]


@pytest.mark.parametrize(
    ("K", "C", "seed", "size"),
    [
        *((K, C, seed, (0.1, 1.0, 3.0)[seed]) for K, C in ((1, 2), (1, 4), (2, 2), (2, 3)) for seed in range(3)),
        (3, 2, 1, 1.0),
    ],
)
def test_bounds_hold_and_chains_are_tighter_than_stars(K, C, seed, size):
    log_unary, tables = field(K, C, seed, size)
    given_tables = as_tables(tables)
    N = 2 * K + 3
    truth = fields.circle_log_z(log_unary, tables, N) / N
    assert_allclose(fields.long_circle_log_z(log_unary, tables, N) / N, truth, rtol=1e-10)
    star = Star(log_unary, given_tables).tighten(tol=1e-7, max_passes=60)
    assert star.value >= truth - 1e-9  # for any length of at least 2K + 1
    # The bound of the chains is that of an endless circle, whose C^K states have roots that add up.
    endless = fields.long_circle_log_z(log_unary, tables, 2**20) / 2**20
    chain = ChainCover(log_unary, given_tables).tighten(tol=1e-7, max_iter=40)
    assert chain.value >= endless - 1e-5
    assert chain.value <= star.value + 1e-5  # true at the tightest bounds; these are close enough
    if K == 1:
        assert chain.kind == "exact"
        assert_allclose(chain.value, endless, atol=1e-6 + K * np.log(C) / 2**20)
    else:
        best = ChainCover(log_unary, given_tables).tighten(tol=1e-7, optimize_weights=True, max_iter=25)
        assert endless - 1e-5 <= best.value <= chain.value + 1e-6
        assert_allclose(best.weights.sum(), 1)
        assert_allclose(
            (np.concatenate([[0], best.weights])[:, None] * best.unaries).sum(0), log_unary, atol=1e-9, rtol=1e-9
        )


def test_a_bound_is_not_exact_before_power_iteration_converges():
    """Two words that rarely follow each other: power iteration needs many steps."""
    table = np.array([[0.0, -6.0], [-5.0, 1e-3]])
    cover = ChainCover(np.zeros(2), [SparseTable(table)])
    found = cover.tighten(max_iter=1)
    assert (found.kind, found.converged) == ("upper", False)
    assert found.residual > 1e-9
    truth = reference.perron(table)[0]
    assert found.value > truth
    found = cover.tighten(max_iter=2000)
    assert (found.kind, found.converged) == ("exact", True)
    assert_allclose(found.value, truth, atol=1e-9)


@pytest.mark.parametrize("K", [1, 2, 3])
def test_any_delta_and_any_split_bound_the_circle(K):
    log_unary, tables = field(K, 2, seed=K)
    rng = np.random.default_rng(0)
    truth = fields.circle_log_z(log_unary, tables, 2 * K + 1) / (2 * K + 1)
    endless = fields.long_circle_log_z(log_unary, tables, 4096) / 4096
    for _ in range(5):
        delta = rng.normal(size=(K, 2))
        log_z, _ = Star(log_unary, as_tables(tables)).belief_propagation(delta)
        assert log_z / (K + 1) >= truth
        rho = rng.dirichlet(np.full(K + 1, 10.0))
        unaries = log_unary + rng.normal(size=(K + 1, 2))
        unaries[0] += (log_unary - rho @ unaries) / rho[0]
        bound = ChainCover(log_unary, as_tables(tables)).tighten(rho[1:], unaries, max_iter=0)
        assert bound.value >= endless - 1e-3
        assert_allclose(bound.value, reference.chain_cover(unaries, tables, rho)[0], rtol=1e-7)


@pytest.mark.parametrize(("K", "C"), [(2, 3), (3, 2)])
def test_stars_match_chains_of_the_same_weights(K, C):
    log_unary, tables = field(K, C, size=0.7)
    star = Star(log_unary, as_tables(tables)).tighten(tol=1e-10, max_passes=500)
    cover = ChainCover(log_unary, as_tables(tables)).tighten(weights=np.full(K, 1 / (K + 1)), tol=1e-6, max_iter=200)
    assert_allclose(star.value, cover.value, atol=1e-6)


def test_star_matches_the_reference_and_its_gradients():
    K, C = 2, 4
    log_unary, tables = field(K, C)
    delta = np.random.default_rng(1).normal(size=(K, C))
    log_z, margins, edges = reference.star(log_unary, tables, delta)
    ours, log_margins = Star(log_unary, as_tables(tables)).belief_propagation(delta)
    assert_allclose(ours, log_z, rtol=1e-12)
    assert_allclose(np.exp(log_margins), margins, rtol=1e-10)
    assert_allclose(edges.sum((1, 2)), 1)
    h = 1e-6

    def slope(du, dt, dd):
        up, down = (reference.star(log_unary + s * du, tables + s * dt, delta + s * dd)[0] for s in (h, -h))
        return (up - down) / (2 * h)

    unit = np.zeros(C)
    unit[1] = 1
    assert_allclose(slope(unit, 0, 0), margins[:, 1].sum(), atol=1e-7)  # all copies, not K + 1 times the center
    assert abs((K + 1) * margins[0, 1] - margins[:, 1].sum()) > 1e-2
    table = np.zeros((K, C, C))
    table[1, 2, 3] = 1
    assert_allclose(slope(0, table, 0), (K + 1) * edges[1, 2, 3], atol=1e-7)
    shift = np.zeros((K, C))
    shift[0, 2] = 1
    assert_allclose(slope(0, 0, shift), margins[1, 2] - margins[0, 2], atol=1e-7)


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 4), st.integers(0, 1000), st.sampled_from([0.3, 1.0]))
def test_fast_updates_never_raise_the_bound(K, seed, size):
    log_unary, tables = field(K, 6, seed, size)
    history = Star(log_unary, as_tables(tables)).tighten(max_passes=30, tol=0).history
    assert (np.diff(history) <= 1e-12).all()


def test_perron_root_and_its_gradient():
    log_unary, tables = field(1, 5)
    found = perron(ExpTable(SparseTable(tables[0])), log_unary)
    log_root, edges = reference.perron(tables[0] + log_unary)
    assert_allclose(found.log_root, log_root, rtol=1e-9)
    assert found.log_above >= log_root - 1e-9
    assert_allclose(np.exp(found.log_margin), edges.sum(0), rtol=1e-6)
    h = 1e-6
    bumped = tables[0].copy()
    bumped[1, 2] += h
    slope = (reference.perron(bumped + log_unary)[0] - log_root) / h
    assert_allclose(edges[1, 2], slope, rtol=1e-4)


@pytest.mark.parametrize(("K", "C"), [(1, 4), (2, 3), (3, 3)])
def test_sentences_between_pads(K, C):
    log_unary, tables = field(K, C, seed=3)
    given_tables = as_tables(tables)
    for length in (1, 2, 5):
        every = fields.sentences(C, length)
        parts = sentences.score_parts(log_unary, given_tables, [np.array(s) for s in every])
        assert_allclose(parts.sum(1), [fields.sentence_score(log_unary, tables, s) for s in every], rtol=1e-10)
    truth = [0.0, *(fields.sentence_log_z(log_unary, tables, n) for n in range(1, 7))]
    assert_allclose(exact.sentence_log_z(log_unary, given_tables, 6), truth, rtol=1e-10)
    cover = ChainCover(log_unary, given_tables).tighten(max_iter=20)
    bound = sentences.cover_log_z(cover.weights, cover.unaries, given_tables, 6)
    if K == 1:
        assert_allclose(bound, truth, rtol=1e-10)
    else:
        assert (bound >= np.array(truth) - 1e-9).all()
        assert bound[6] > truth[6] + 1e-3


def test_the_cyclic_lemma():
    """The product of the probabilities of sentences is that of the circle, given the positions of the pads."""
    K, C = 2, 3
    log_unary, tables = field(K, C, seed=5)
    corpus = [(1, 2, 2), (2,)]
    circle = tuple(w for s in corpus for w in (0,) * K + s)
    lengths = [len(s) for s in corpus]
    same = [
        fields.circle_score(log_unary, tables, tuple(w for s in text for w in (0,) * K + s))
        for text in np.array(np.meshgrid(*[np.arange(len(fields.sentences(C, n))) for n in lengths])).T.reshape(-1, 2)
        for text in [[fields.sentences(C, n)[i] for n, i in zip(lengths, text, strict=True)]]
    ]
    want = fields.circle_score(log_unary, tables, circle) - fields.log_sum(same)
    given_tables = as_tables(tables)
    log_z = exact.sentence_log_z(log_unary, given_tables, max(lengths))
    scores = sentences.score_parts(log_unary, given_tables, [np.array(s) for s in corpus]).sum(1)
    assert_allclose((scores - log_z[lengths]).sum(), want, rtol=1e-10)


def test_annealed_estimates_are_close():
    K, C = 2, 4
    log_unary, tables = field(K, C, seed=2)
    given_tables = as_tables(tables)
    cover = ChainCover(log_unary, given_tables).tighten(max_iter=10)
    truth = exact.sentence_log_z(log_unary, given_tables, 5)[5]
    options = {"base_unary": cover.unaries[1], "base_scale": 1 / cover.weights[0]}
    found = annealed_log_z(log_unary, given_tables, 5, n_samples=600, n_steps=20, **options)
    assert found.kind == "estimate"
    assert 0 < found.standard_error < 0.1
    assert abs(found.value - truth) < 5 * found.standard_error
    with threads.num_threads(1):
        again = annealed_log_z(log_unary, given_tables, 5, n_samples=600, n_steps=20, **options)
    assert again == found
    alone = annealed_log_z(log_unary, given_tables[:1], 5, base_unary=log_unary, n_samples=8, n_steps=2)
    assert_allclose(alone.value, exact.sentence_log_z(log_unary, given_tables[:1], 5)[5])  # K = 1: no sampling error


@pytest.mark.parametrize("K", [1, 2])
def test_samples_follow_the_field(K):
    C, M, n = 3, 3, 4000
    log_unary, tables = field(K, C, seed=7)
    rng = np.random.default_rng(0)
    words = sentences.ChainSampler(log_unary, SparseTable(tables[0]), M).draw(rng.random((n, M)))
    if K > 1:
        for _ in range(15):
            sentences.gibbs_sweep(log_unary, as_tables(tables), words, rng.random(words.shape))
    every = fields.sentences(C, M)
    scores = np.array([fields.sentence_score(log_unary, tables, s) for s in every])
    want = n * np.exp(scores - fields.log_sum(list(scores)))
    got = np.array([(words == np.array(s)).all(1).sum() for s in every])
    assert ((got - want) ** 2 / want).sum() < 26  # chi-square, 7 degrees of freedom: p = 0.0005


@pytest.mark.parametrize("memory", [1 << 30, 0])
@pytest.mark.parametrize("small", [2048, 10])
def test_exponentials_in_tiles(memory, small, monkeypatch):
    """Products are the same with kept or recomputed tiles, in float64 or float32."""
    monkeypatch.setattr(exponentials, "SMALL", small)
    rng = np.random.default_rng(0)
    C = 150
    table = LowRankTable(rng.normal(size=(C, 3)), rng.normal(size=(C, 3)))
    theta, v = dense(table), rng.normal(size=C)
    exp = ExpTable(table, 2.0, memory=memory)
    assert (exp.kept is None) == (memory == 0)
    tolerance = 1e-10 if small > C else 2e-5
    assert_allclose(exp.times(v), logsumexp(2 * theta + v, axis=-1), rtol=tolerance)
    assert_allclose(exp.transposed(v), logsumexp(2 * theta + v[:, None], axis=0), rtol=tolerance)
    scores = v[:, None] + 2 * theta + v
    scores -= fields.log_sum(scores.ravel().tolist())
    log_z = fields.log_sum((v[:, None] + 2 * theta + v).ravel().tolist())
    assert_allclose(exp.mean_score(v - log_z, v), (np.exp(scores) * 2 * theta).sum(), rtol=10 * tolerance)


def test_tables_of_all_kinds_agree():
    rng = np.random.default_rng(0)
    sparse = np.where(rng.random((6, 6)) < 0.4, rng.normal(size=(6, 6)), 0)
    factors = rng.normal(size=(2, 6, 3))
    ids, others = np.array([1, 4, 4]), np.array([0, 2, 5])
    for table, want in (
        (SparseTable(csr_matrix(sparse)), sparse),
        (LowRankTable(*factors), factors[0] @ factors[1].T),
    ):
        assert_allclose(dense(table), want)
        assert_allclose(table.rows(ids).numpy(), want[ids])
        assert_allclose(table.columns(ids).numpy(), want[:, ids].T)
        assert_allclose(table.pairs(ids, others), want[ids, others])
        assert_allclose(dense(table.scaled(0.5)), want / 2)


def test_conditionals_are_a_softmax_with_its_gradients():
    rng = np.random.default_rng(0)
    C, D = 700, 5
    left, right, bias, weights = rng.normal(size=(C, D)), rng.normal(size=(C, D)), rng.normal(size=C), rng.random(C)
    found = conditionals(left, right, bias, weights)
    scores = left @ right.T + bias
    log_norm = logsumexp(scores, axis=-1)
    p = np.exp(scores - log_norm[:, None]) * weights[:, None]
    want = reference.conditionals(left, right, bias, weights)
    for ours, expected in zip(want, (log_norm, p @ right, p.T @ left, p.sum(0)), strict=True):
        assert_allclose(ours, expected, rtol=1e-12)
    assert_allclose(found.log_norm, want[0], atol=1e-5)
    assert_allclose(log_norms(left, right, bias), want[0], atol=1e-5)
    assert_allclose(found.left, want[1], atol=1e-4)
    assert_allclose(found.right, want[2], atol=2e-4)
    assert_allclose(found.bias, want[3], atol=1e-4)
    before = torch.get_num_threads()
    with threads.num_threads(1):
        again = conditionals(left, right, bias, weights)
    assert torch.get_num_threads() == before
    for name in ("log_norm", "left", "right", "bias"):
        assert (getattr(found, name) == getattr(again, name)).all()


def test_invalid_input_is_rejected():
    log_unary, tables = field(2, 3)
    with pytest.raises(ShapeError, match="distance 2 has 4 words"):
        Star(log_unary, [SparseTable(tables[0]), SparseTable(np.zeros((4, 4)))]).tighten()
    with pytest.raises(ShapeError, match=r"delta must have shape \(K, C\)"):
        Star(log_unary, as_tables(tables)).tighten(delta=np.zeros((1, 3)))
    with pytest.raises(ValueRangeError, match="weights must be 2 positive"):
        ChainCover(log_unary, as_tables(tables)).tighten(weights=np.array([0.9, 0.2]))
    assert [exact.fits(C, K) for C, K in ((4096, 1), (4097, 1), (64, 2), (65, 2))] == [True, False, True, False]
    with pytest.raises(ValueRangeError, match=r"100\^2 states are too many for transfer matrices, at most 4,096"):
        exact.sentence_log_z(np.zeros(100), [SparseTable(np.zeros((100, 100)))] * 2, 3)
