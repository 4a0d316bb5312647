"""Chain covers are never looser than star covers at the same scores, each at the tightest unaries or delta.

Many random fields at once, by the equations of ``reference``; then some of them by the engines.
"""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.special import logsumexp

from tests.oracle import fields
from trelliswork.inference.lifted import ChainCover, SparseTable, Star, reference
from trelliswork.inference.lifted.exponentials import ExpTable

TIGHT = 1e-6  # sum of differences between margins: the error of the value is its square


def tightest_stars(log_unary, tables, n_iter=300):
    """Return values (B,) by update (3), and whether they are tight; log_unary (B, C), tables (B, K, C, C)."""
    K = tables.shape[1]
    delta = np.zeros(tables.shape[:3])
    for _ in range(n_iter):
        scores = (K + 1) * tables + (log_unary[:, None] + delta)[:, :, None]
        messages = logsumexp(scores, axis=-1)
        center = log_unary - delta.sum(1) + messages.sum(1)
        log_z = logsumexp(center, axis=-1)
        center = center - log_z[:, None]
        leaves = logsumexp((center[:, None] - messages)[..., None] + scores, axis=2)
        off = center[:, None] - leaves
        delta = delta + off / (K + 2)
    gap = np.abs(np.exp(center)[:, None] - np.exp(leaves)).sum((1, 2))
    return log_z / (K + 1), gap < TIGHT


def tightest_chains(log_unary, tables, weights, n_iter=150):
    """Return the same for the chain cover; all weights are on distances, (K,) or (B, K)."""
    B, K = tables.shape[:2]
    rho = np.broadcast_to(weights, (B, K))
    unaries = np.repeat(log_unary[:, None], K, 1)
    best, step = np.full(B, np.inf), np.full(B, 0.5)
    kept, margins = unaries, np.zeros_like(unaries)
    for _ in range(n_iter):
        log_root, log_margin = perrons(unaries[:, :, None] + tables / rho[..., None, None])
        value = (rho * log_root).sum(1)
        better = value <= best + 1e-13
        step = np.where(better, np.minimum(1.2 * step, 1.0), step / 2)
        margins = np.where(better[:, None, None], log_margin, margins)
        kept = np.where(better[:, None, None], unaries, kept)
        best = np.where(better, value, best)
        off = margins - (rho[..., None] * margins).sum(1, keepdims=True)
        unaries = kept - step[:, None, None] * off
    mean = (rho[..., None] * margins).sum(1, keepdims=True)
    return best, np.abs(np.exp(margins) - np.exp(mean)).sum((1, 2)) < TIGHT


def perrons(scores):
    """Return the logarithms of Perron roots (...) and of margins (..., C) of exp(scores)."""
    top = scores.max((-2, -1), keepdims=True)
    matrix = np.exp(scores - top)
    vectors = []
    for m in (matrix, np.swapaxes(matrix, -1, -2)):
        roots, right = np.linalg.eig(m)
        at = roots.real.argmax(-1)[..., None, None]
        vectors.append(np.abs(np.take_along_axis(right, at, -1)[..., 0].real))
    margin = vectors[0] * vectors[1]
    root = np.take_along_axis(roots.real, roots.real.argmax(-1)[..., None], -1)[..., 0]
    return np.log(root) + top[..., 0, 0], np.log(margin / margin.sum(-1, keepdims=True))


@pytest.mark.parametrize("unary", [True, False])
@pytest.mark.parametrize(("K", "C"), [(1, 3), (2, 2), (2, 4), (3, 3)])
def test_chains_are_never_looser_than_stars(K, C, unary):
    B = 40
    rng = np.random.default_rng(10 * K + C)
    sizes = rng.choice([0.1, 0.4, 0.8, 1.2], B)
    log_unary = unary * rng.normal(size=(B, C))
    tables = sizes[:, None, None, None] * rng.normal(size=(B, K, C, C))
    stars, tight = tightest_stars(log_unary, tables)
    chains, tight_too = tightest_chains(log_unary, tables, np.full(K, 1 / K))
    sure = tight & tight_too
    assert sure.mean() > 0.4
    assert (chains <= stars + 1e-7)[sure].all()
    assert (stars - chains)[sure].max() > 0.01  # and often much tighter
    # The star is the cover with weights 1 / (K + 1): chains whose weights are all larger are no looser.
    if K > 1:
        share = rng.dirichlet(np.ones(K), B)
        uneven, tight_again = tightest_chains(log_unary, tables, 1 / (K + 1) + share / (K + 1))
        assert (uneven <= stars + 1e-7)[sure & tight_again].all()
        assert (sure & tight_again).mean() > 0.3
    for b in range(0, B, 10):  # neither is below the exact value
        N = 2**16
        truth = fields.long_circle_log_z(log_unary[b], tables[b], N) / N
        assert chains[b] >= truth - K * np.log(C) / N - 1e-8
        if K == 1 and tight_too[b]:
            assert_allclose(chains[b], truth, atol=1e-6 + np.log(C) / N)


def test_engines_match_these_equations():
    rng = np.random.default_rng(0)
    log_unary, tables = rng.normal(size=(1, 3)), 0.5 * rng.normal(size=(1, 2, 3, 3))
    given_tables = [SparseTable(t) for t in tables[0]]
    assert_allclose(
        tightest_stars(log_unary, tables)[0], Star(log_unary[0], given_tables).tighten(tol=1e-8).value, atol=1e-8
    )
    found = ChainCover(log_unary[0], given_tables).tighten(tol=1e-7)
    assert_allclose(tightest_chains(log_unary, tables, np.full(2, 0.5))[0], found.value, atol=1e-4)
    assert_allclose(perrons(tables[0, 0])[0], reference.perron(tables[0, 0])[0], rtol=1e-12)


@settings(max_examples=6, deadline=None)
@given(st.integers(2, 3), st.integers(0, 10_000), st.sampled_from([0.2, 0.7]), st.booleans())
def test_engines_agree(K, seed, size, unary):
    """Also with optimized weights."""
    rng = np.random.default_rng(seed)
    log_unary, scores = unary * rng.normal(size=3), size * rng.normal(size=(K, 3, 3))
    tables = [SparseTable(t) for t in scores]
    star = Star(log_unary, tables).tighten(tol=1e-7, max_passes=300)
    cover = ChainCover(log_unary, tables)
    chain = cover.tighten(tol=1e-6, max_iter=40)
    best = cover.tighten(tol=1e-6, max_iter=40, optimize_weights=True)
    slack = 1e-4 if chain.converged else 1e-2
    assert best.value - slack <= chain.value <= star.value + slack
    assert best.value >= fields.long_circle_log_z(log_unary, scores, 2**16) / 2**16 - 1e-8


def test_the_chain_cover_with_strong_scores_does_not_warn():
    rng = np.random.default_rng(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in (30.0, 300.0, 3000.0):
            tables = [SparseTable(size * rng.normal(size=(4, 4))) for _ in range(2)]
            bound = ChainCover(size * rng.normal(size=4), tables).tighten(optimize_weights=True, max_iter=6)
            assert np.isfinite(bound.value)
        table = ExpTable(SparseTable(np.array([[-1600.0, -800.0], [-2000.0, -2000.0]])))
        assert np.isfinite(table.mean_score(np.array([800.0, 0.0]), np.array([800.0, 0.0])))
