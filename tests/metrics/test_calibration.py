"""Calibration bins and their error, computed by hand."""

import math

import pytest

from trelliswork.metrics.calibration import Bin, calibration_error, reliability


def test_answers_are_sorted_into_bins_of_equal_width():
    bins = reliability([0.1, 0.3, 0.25, 0.8, 1.0], [True, False, True, True, True], bins=4)
    assert [(b.low, b.high, b.count, b.accuracy) for b in bins] == [
        (0.0, 0.25, 1, 1.0),
        (0.25, 0.5, 2, 0.5),
        (0.75, 1.0, 2, 1.0),
    ]
    assert [b.probability for b in bins] == pytest.approx([0.1, 0.275, 0.9])


def test_error_is_weighted_by_the_number_of_answers():
    assert calibration_error([]) == 0
    assert math.isclose(calibration_error([Bin(0.9, 0.8, 30), Bin(0.5, 0.7, 10)]), 0.125)
    assert calibration_error(reliability([1.0, 0.0], [True, False])) == 0
