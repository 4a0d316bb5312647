"""Ragged rows as padded arrays."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from trelliswork.compute.padding import batches, mask, pad, unpad


@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_unpad_inverts_pad(shape):
    lengths = np.array([2, 0, 4, 1])
    rows = np.random.default_rng(0).normal(size=(7, *shape))
    padded = pad(rows, lengths, -np.inf)
    assert padded.shape == (4, 4, *shape)
    assert_array_equal(padded[0, :2], rows[:2])
    assert_array_equal(padded[2], rows[2:6])
    assert np.isneginf(padded[~mask(lengths)]).all()
    assert_array_equal(unpad(padded, lengths), rows)


def test_the_type_and_the_number_of_positions():
    assert pad(np.ones(3), np.array([1, 2]), dtype=np.float32).dtype == np.float32
    assert mask(np.array([1, 2]), 3).tolist() == [[True, False, False], [True, True, False]]
    assert pad(np.ones((0, 2)), np.array([], int)).shape == (0, 0, 2)


def test_batches_are_consecutive_and_within_the_limit():
    lengths = np.random.default_rng(0).integers(1, 30, 50)
    ranges = list(batches(lengths, 40))
    assert [first for first, _ in ranges] == [0, *(last for _, last in ranges[:-1])]
    assert ranges[-1][1] == len(lengths)
    for first, last in ranges:
        assert last - first == 1 or (last - first) * lengths[first:last].max() <= 40
        more = lengths[first : last + 1]
        assert last == len(lengths) or len(more) * more.max() > 40
