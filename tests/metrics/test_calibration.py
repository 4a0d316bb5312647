"""Calibration bins and their error, computed by hand."""

import math

import numpy as np
import pytest

from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.metrics.calibration import Bin, calibration_error, evaluate_confidence, reliability


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


def test_confidence_by_hand():
    report = evaluate_confidence([[(0.9, True, 0.9), (0.6, False, 0.3)], [], [(0.8, True, 0.8)]], what="arcs")
    assert report.n_answers == 3
    assert report.calibration_error.value == pytest.approx((0.1 + 0.6 + 0.2) / 3)
    assert report.brier.value == pytest.approx((0.01 + 0.36 + 0.04) / 3)
    assert report.log_score.value == pytest.approx(math.log(0.9 * 0.3 * 0.8) / 3)
    assert [(a.coverage, a.accuracy) for a in report.accepted if a.threshold in (0.7, 0.99)] == [
        (2 / 3, 1.0),
        (0, None),
    ]
    assert "confidence of 3 arcs" in report.summary()


def test_intervals_cover_the_truth_of_a_calibrated_model():
    """Answers are correct as often as stated: intervals cover the expected Brier score, 19 of 20."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(40):
        p = rng.random((100, 5))
        hits = rng.random((100, 5)) < p
        rows = [list(zip(*row, strict=True)) for row in zip(p, hits, p, strict=True)]
        brier = evaluate_confidence(rows).brier
        covered += brier.low <= 1 / 6 <= brier.high  # E p (1 - p)
    assert covered >= 33


def test_a_gold_answer_of_probability_zero_has_a_finite_log_score():
    assert evaluate_confidence([[(1.0, False, 0.0)]]).log_score.value == pytest.approx(math.log(1e-6))
    with pytest.raises(ShapeError):
        evaluate_confidence([[]])
    with pytest.raises(ValueRangeError):
        evaluate_confidence([[(1.5, True, 1.0)]])
