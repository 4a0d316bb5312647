"""AdaGrad on sparse features against a plain NumPy implementation."""

import numpy as np
import pytest

from trelliswork.compute.threads import num_threads
from trelliswork.errors import ShapeError
from trelliswork.learning.kernels.sgd import BLOCK
from trelliswork.learning.sgd import FORGET, SparseAdaGrad


def batches(rng):
    for _ in range(6):
        ids = rng.integers(0, 50, size=(7, 5)).astype(np.uint32)
        yield ids, rng.integers(0, 6, size=7).astype(np.int32), rng.normal(size=7).astype(np.float32)


def test_steps_and_averages_match_the_definition():
    rng = np.random.default_rng(0)
    start = rng.normal(size=50).astype(np.float32)
    learner = SparseAdaGrad(start, 0.1)
    w, s, mean = start.astype(np.float64), np.zeros(50), None
    for epoch in range(1, 4):
        visited = []
        for ids, counts, values in batches(rng):
            g = np.zeros(50)
            for row, n, value in zip(ids, counts, values, strict=True):
                np.add.at(g, row[:n], value)
            s += g**2
            w += np.where(g != 0, 0.1 * g / (1e-6 + np.sqrt(s)), 0)
            visited.append(w.copy())
            learner.step(ids, counts, values)
        learner.end_epoch()
        here, share = np.mean(visited, axis=0), (FORGET + 1) / (epoch + FORGET)
        mean = here if mean is None else (1 - share) * mean + share * here
        np.testing.assert_allclose(learner.weights, w, atol=1e-5)
        np.testing.assert_allclose(learner.average(), mean, atol=1e-5)


def test_results_do_not_depend_on_the_number_of_threads():
    averages = []
    for n in (1, 2, 3):
        with num_threads(n):
            learner = SparseAdaGrad(np.zeros(50, np.float32), 0.1)
            for batch in batches(np.random.default_rng(1)):
                learner.step(*batch)
            learner.end_epoch()
            averages.append(learner.average())
    assert (averages[0] == averages[1]).all()
    assert (averages[0] == averages[2]).all()


def test_many_blocks_of_weights_equal_one():
    few, many = SparseAdaGrad(np.zeros(50, np.float32), 0.1), SparseAdaGrad(np.zeros(50 * BLOCK, np.float32), 0.1)
    at = np.arange(50, dtype=np.uint32) * (BLOCK - 1)  # the first block has two of them, others have one
    for ids, counts, values in batches(np.random.default_rng(2)):
        few.step(ids, counts, values)
        with num_threads(3):
            many.step(at[ids], counts, values)
    few.end_epoch()
    many.end_epoch()
    assert (many.weights[at] == few.weights).all()
    assert (many.average()[at] == few.average()).all()
    assert np.count_nonzero(many.weights) == np.count_nonzero(few.weights) > 0


def test_average_before_the_first_epoch_and_invalid_shapes():
    learner = SparseAdaGrad(np.ones(4, np.float32), 0.1)
    learner.end_epoch()
    assert (learner.average() == 1).all()
    with pytest.raises(ShapeError, match="one axis"):
        SparseAdaGrad(np.ones((2, 2), np.float32), 0.1)
