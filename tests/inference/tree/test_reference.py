"""The readable reference of trees against enumeration, and the kernels against the reference."""

import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose

from tests.inference.tree.cases import batches
from trelliswork.inference.tree import eisner, matrix_tree, reference, tree_potentials

KINDS = [(eisner, reference.projective), (matrix_tree, reference.spanning)]
both_kinds = pytest.mark.parametrize(("engine", "log_partition"), KINDS, ids=["projective", "spanning"])


@given(batch=batches())
def test_projective_reference_matches_enumeration(batch):
    for b, trees in enumerate(batch.enumerate(projective=True)):
        log_arc = batch.log_arc[b, : batch.lengths[b] + 1, : batch.lengths[b] + 1]
        assert_allclose(reference.projective(log_arc, batch.single_root), trees.log_z, rtol=1e-12, atol=1e-12)
        best = reference.projective(log_arc, batch.single_root, add=np.max)
        assert_allclose(best, trees.scores.max(), rtol=1e-12, atol=1e-12)
        marginals = reference.marginals(log_arc, batch.single_root, reference.projective)
        assert_allclose(marginals, trees.arc_marginals(), atol=1e-9)


@given(batch=batches(max_scale=1.0))
def test_spanning_reference_matches_enumeration(batch):
    for b, trees in enumerate(batch.enumerate(projective=False)):
        log_arc = batch.log_arc[b, : batch.lengths[b] + 1, : batch.lengths[b] + 1]
        if trees.log_z > -np.inf:  # impossible trees may leave rounding errors in a determinant
            assert_allclose(reference.spanning(log_arc, batch.single_root), trees.log_z, rtol=1e-9, atol=1e-9)
            marginals = reference.marginals(log_arc, batch.single_root, reference.spanning)
            assert_allclose(marginals, trees.arc_marginals(), atol=1e-9)


@both_kinds
@pytest.mark.parametrize("single_root", [True, False])
def test_kernels_match_the_reference(engine, log_partition, single_root):
    rng = np.random.default_rng(2)
    lengths = np.array([8, 6, 7])
    scores = rng.normal(size=(3, 9, 9))
    p = tree_potentials(scores, lengths, single_root=single_root)
    log_z, marginals = engine.expectations(p)
    assert_allclose(engine.log_partition(p), log_z, rtol=1e-12)
    for b, n in enumerate(lengths):
        log_arc = scores[b, : n + 1, : n + 1]
        assert_allclose(log_z[b], log_partition(log_arc, single_root), rtol=1e-12)
        expected = reference.marginals(log_arc, single_root, log_partition)
        assert_allclose(marginals[b, : n + 1, : n + 1], expected, atol=1e-11)
    if engine is eisner:
        best = [reference.projective(scores[b, : n + 1, : n + 1], single_root, np.max) for b, n in enumerate(lengths)]
        assert_allclose(engine.best(p)[1], best, rtol=1e-12)
