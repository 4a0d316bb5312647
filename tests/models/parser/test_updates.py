"""AdaGrad on sparse features against the same by hand."""

import numpy as np
import pytest

from trelliswork import num_threads
from trelliswork.errors import ShapeError
from trelliswork.models.parser.updates import FORGET, SparseAdaGrad


def batches(rng):
    for _ in range(6):
        ids = rng.integers(0, 50, size=(7, 5)).astype(np.uint32)
        yield ids, rng.integers(0, 6, size=7).astype(np.int32), rng.normal(size=7).astype(np.float32)


def test_steps_and_averages_are_those_of_the_definition():
    rng = np.random.default_rng(0)
    start = rng.normal(size=50).astype(np.float32)
    learner = SparseAdaGrad(start, 0.1)
    w, s, mean = start.astype(np.float64), np.zeros(50), None
    for epoch in range(1, 4):
        on_the_way = []
        for ids, counts, values in batches(rng):
            g = np.zeros(50)
            for row, n, value in zip(ids, counts, values, strict=True):
                np.add.at(g, row[:n], value)
            s += g**2
            w += np.where(g != 0, 0.1 * g / (1e-6 + np.sqrt(s)), 0)
            on_the_way.append(w.copy())
            learner.step(ids, counts, values)
        learner.end_epoch()
        here, share = np.mean(on_the_way, axis=0), (FORGET + 1) / (epoch + FORGET)
        mean = here if mean is None else (1 - share) * mean + share * here
        np.testing.assert_allclose(learner.weights, w, atol=1e-5)
        np.testing.assert_allclose(learner.average(), mean, atol=1e-5)


def test_threads_change_nothing():
    found = []
    for n in (1, 2, 3):
        with num_threads(n):
            learner = SparseAdaGrad(np.zeros(50, np.float32), 0.1)
            for batch in batches(np.random.default_rng(1)):
                learner.step(*batch)
            learner.end_epoch()
            found.append(learner.average())
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()


def test_before_the_first_epoch_and_wrong_shapes():
    learner = SparseAdaGrad(np.ones(4, np.float32), 0.1)
    learner.end_epoch()
    assert (learner.average() == 1).all()
    with pytest.raises(ShapeError, match="one axis"):
        SparseAdaGrad(np.ones((2, 2), np.float32), 0.1)
