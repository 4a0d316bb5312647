"""Counting: relative frequencies, smoothing, and the distribution over whole sequences."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from trelliswork.distributions import LinearChain
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.models.hmm.counting import count_chain


def test_counts_become_relative_frequencies():
    tiny = count_chain([[0, 0, 1], [1]], [[2, 1, 0], [0]], 2, 3, smoothing=1e-12, emission_smoothing=1e-12)
    assert_allclose(np.exp(tiny.log_start), [0.5, 0.5], atol=1e-9)
    assert_allclose(np.exp(tiny.log_transition), [[0.5, 0.5], [0, 0]], atol=1e-9)
    assert_allclose(np.exp(tiny.log_end), [0, 1], atol=1e-9)
    assert_allclose(np.exp(tiny.log_emission), [[0, 0.5, 0.5], [1, 0, 0]], atol=1e-9)


def test_smoothing_adds_to_every_count():
    one = count_chain([[0, 1]], [[0, 1]], 2, 4, smoothing=1.0, emission_smoothing=0.5)
    assert_allclose(np.exp(one.log_start), [2 / 3, 1 / 3])
    assert_allclose(np.exp(one.log_emission[0]), [1.5 / 3, 0.5 / 3, 0.5 / 3, 0.5 / 3])
    assert_allclose(np.exp(one.log_transition).sum(axis=1) + np.exp(one.log_end), 1)


def test_the_estimate_is_a_distribution_over_sequences_of_any_length():
    rng = np.random.default_rng(0)
    y = [rng.integers(0, 3, n).tolist() for n in rng.integers(1, 6, 40)]
    x = [rng.integers(0, 2, len(labels)).tolist() for labels in y]
    estimate = count_chain(y, x, 3, 2)
    total = 0.0
    for n in range(1, 60):  # p(length) falls geometrically; summing over symbols leaves labels alone
        free = np.zeros((1, n, 3))
        chain = LinearChain(free, estimate.log_transition, log_start=estimate.log_start, log_end=estimate.log_end)
        total += chain.log_partition().exp().item()
    assert_allclose(total, 1, rtol=1e-5)


def test_empty_sequences_count_for_nothing():
    a, b = count_chain([[0], []], [[1], []], 2, 2), count_chain([[0]], [[1]], 2, 2)
    for left, right in zip(a, b, strict=True):
        assert_allclose(left, right)


def test_bad_input_is_refused():
    with pytest.raises(ShapeError, match="sequence 1 has 2 labels and 1 symbols"):
        count_chain([[0], [0, 1]], [[0], [0]], 2, 1)
    with pytest.raises(ShapeError, match="must pair up, got 1 and 0"):
        count_chain([[0]], [], 1, 1)
    with pytest.raises(ValueRangeError, match="smoothing must be positive, got 0"):
        count_chain([[0]], [[0]], 1, 1, smoothing=0)
