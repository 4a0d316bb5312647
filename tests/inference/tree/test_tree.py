"""Tree kernels: against enumeration, probability space against log space, threads, invalid input."""

import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose, assert_array_equal

from tests.inference.tree.cases import batches
from tests.oracle.trees import enumerate_trees
from trelliswork.compute import threads
from trelliswork.errors import ImpossibleError, ShapeError, ValueRangeError
from trelliswork.inference.tree import eisner, matrix_tree, tree_potentials
from trelliswork.inference.tree.kernels import eisner_plain, matrix_tree_log

ENGINES = [(eisner, eisner_plain), (matrix_tree, matrix_tree_log)]
both_kinds = pytest.mark.parametrize(("engine", "log_kernels"), ENGINES, ids=["projective", "spanning"])


def log_expectations(log_kernels, p):
    log_z, marginals = np.empty(len(p.lengths)), np.empty(p.log_arc.shape)
    log_kernels.expectations(0, len(p.lengths), p.batch, log_z, marginals)
    return log_z, marginals


@both_kinds
@given(batch=batches(max_words=5))
def test_both_arithmetics_match_enumeration(engine, log_kernels, batch):
    p = tree_potentials(*batch[:2], single_root=batch.single_root)
    value = engine.log_partition(p)
    for log_z, marginals in (engine.expectations(p), log_expectations(log_kernels, p)):
        assert_allclose(log_z, value, rtol=1e-12, atol=1e-12)
        for b, want in enumerate(batch.enumerate(projective=engine is eisner)):
            n = batch.lengths[b]
            assert_allclose(log_z[b], want.log_z, rtol=1e-12, atol=1e-12)
            assert_allclose(marginals[b, : n + 1, : n + 1], want.arc_marginals(), atol=1e-9)
            assert (marginals[b, n + 1 :] == 0).all()
            assert (marginals[b, :, n + 1 :] == 0).all()


@both_kinds
@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("size", [30.0, 300.0, 1e3])
def test_many_extreme_sentences_match_enumeration(engine, log_kernels, single_root, size):
    scores = np.random.default_rng(0).normal(size=(150, 4, 4)) * size
    p = tree_potentials(scores, single_root=single_root)
    for log_z, marginals in (engine.expectations(p), log_expectations(log_kernels, p)):
        for b in range(len(scores)):
            want = enumerate_trees(scores[b], engine is eisner, single_root)
            assert_allclose(log_z[b], want.log_z, rtol=1e-12)
            assert_allclose(marginals[b], want.arc_marginals(), atol=1e-10)


@both_kinds
@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("size", [1.0, 10.0, 100.0, 1e3])
def test_long_sentences_agree_in_both_arithmetics(engine, log_kernels, single_root, size):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(3, 151, 151)) * size
    p = tree_potentials(scores, [150, 149, 60], single_root=single_root)
    log_z, marginals = engine.expectations(p)
    want_z, want = log_expectations(log_kernels, p)
    assert_allclose(log_z, want_z, rtol=1e-12)
    assert_allclose(marginals, want, atol=1e-10)
    assert marginals.min() >= 0
    assert marginals.max() <= 1
    for b, n in enumerate(p.lengths):
        assert_allclose(marginals[b, :, 1 : n + 1].sum(axis=0), 1, atol=1e-8)
        if single_root:
            assert_allclose(marginals[b, 0].sum(), 1, atol=1e-8)


@both_kinds
def test_results_do_not_depend_on_the_number_of_threads(engine, log_kernels):
    rng = np.random.default_rng(1)
    p = tree_potentials(rng.normal(size=(37, 31, 31)) * 5, rng.integers(1, 31, 37))
    seeds = rng.integers(0, 2**62, (3, 37))
    results = []
    for n_threads in (1, 3):
        with threads.num_threads(n_threads):
            results.append((*engine.expectations(p), *engine.best(p), engine.sample(p, seeds)))
    for one, three in zip(*results, strict=True):
        assert_array_equal(one, three)


def test_matrix_tree_does_not_cancel_where_determinants_lose_all_digits():
    # Two words that each prefer the other by e^30: the determinant of the Laplacian is 1 - 1 + 1e-13 there.
    scores = np.array([[[0, 0.0, 0.0], [0, 0, 30.0], [0, 30.0, 0]]])
    log_z, marginals = matrix_tree.expectations(tree_potentials(scores, single_root=False))
    want = np.array([[0, 0, 0], [0, 0, 0.5], [0, 0.5, 0]])
    want[0, 1:] = 0.5
    assert_allclose(log_z, np.log(2 * np.exp(30) + 1), rtol=1e-14)
    assert_allclose(marginals[0], want, atol=1e-12)


@both_kinds
def test_invalid_input(engine, log_kernels):
    with pytest.raises(ShapeError, match=r"B, N, N"):
        tree_potentials(np.zeros((2, 3, 4)))
    with pytest.raises(ShapeError, match="at least 1"):
        tree_potentials(np.zeros((2, 1, 1)))
    with pytest.raises(ValueRangeError, match="between 1 and T=2"):
        tree_potentials(np.zeros((1, 3, 3)), [3])
    scores = np.zeros((1, 3, 3))
    scores[0, 1, 2] = np.nan
    with pytest.raises(ValueRangeError, match="nan"):
        tree_potentials(scores)
    with pytest.raises(ValueRangeError, match="real numbers"):
        tree_potentials(np.full((1, 3, 3), "a"))
    nothing = tree_potentials(np.full((1, 3, 3), -np.inf))
    with pytest.raises(ImpossibleError, match="no tree to decode"):
        engine.best(nothing)
    with pytest.raises(ImpossibleError, match="no tree to decode"):
        engine.topk(nothing, nothing.log_arc[..., None], 2)
    with pytest.raises(ImpossibleError, match="no tree to draw"):
        engine.sample(nothing, np.zeros((1, 1), np.int64))
    with pytest.raises(ValueRangeError, match="positive"):
        engine.topk(nothing, nothing.log_arc[..., None], 0)
