"""Evaluation of dependency parsers: attachment scores, roots, lengths, labels and calibration, counted by hand."""

import json

import pytest

from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.metrics.dependencies import evaluate_parsing

GOLD = [[2, 0, 2], [0] + [1] * 10]
FOUND = [[2, 0, 1], [0] + [1] * 9 + [2]]
LABELS = [["a", "root", "b"], ["root", *["a"] * 10]]
NAMES = [["a", "root", "b"], ["root", "b", *["a"] * 9]]


def test_scores_computed_by_hand():
    probabilities = [[0.95, 0.95, 0.35], [1.0] * 10 + [0.3]]
    report = evaluate_parsing(GOLD, FOUND, LABELS, NAMES, probabilities)
    assert report.n_sentences == 2
    assert report.n_words == 14
    assert report.uas == pytest.approx(12 / 14)
    assert report.las == pytest.approx(11 / 14)
    assert report.label_accuracy == pytest.approx(13 / 14)
    assert report.root_accuracy == 1
    assert report.exact == report.labeled_exact == 0
    assert [(row.words, row.n_sentences, row.n_words) for row in report.by_length] == [("1-10", 1, 3), ("11-20", 1, 11)]
    assert report.by_length[0].uas == pytest.approx(2 / 3)
    row = report.by_label["a"]
    assert (row.support, row.score.correct, row.score.predicted) == (11, 9, 10)
    assert row.attached == pytest.approx(10 / 11)
    low, high = report.confidence.bins
    assert (low.low, low.count, low.accuracy) == (0.3, 2, 0)
    assert (high.count, high.accuracy) == (12, 1)
    assert high.probability == pytest.approx((2 * 0.95 + 10) / 12)
    assert report.confidence.calibration_error.value == pytest.approx((2 * 0.325 + 0.1) / 14)
    text = report.summary()
    assert "UAS   0.8571" in text
    assert "calibration error" in text
    plain = json.loads(json.dumps(report.to_dict()))
    assert plain["by_label"]["a"]["support"] == 11
    assert plain["confidence"]["bins"][0]["count"] == 2


def test_without_labels_and_probabilities():
    report = evaluate_parsing(GOLD, GOLD)
    assert report.uas == report.exact == 1
    assert report.las is None
    assert report.confidence is None
    assert "LAS" not in report.summary()


def test_invalid_input_raises():
    with pytest.raises(ValueRangeError, match="given together"):
        evaluate_parsing(GOLD, FOUND, LABELS)
    with pytest.raises(ShapeError, match="heads must have an entry"):
        evaluate_parsing(GOLD, [[1]])
    with pytest.raises(ValueRangeError, match="at least one word"):
        evaluate_parsing([[]], [[]])


def test_unknown_gold_annotation_raises():
    with pytest.raises(ValueRangeError, match=r"gold_labels\[1\] must be known"):
        evaluate_parsing([[0], [0]], [[0], [0]], [["a"], [None]], [["a"], ["a"]])
    with pytest.raises(ValueRangeError, match=r"gold_heads\[0\] must be known"):
        evaluate_parsing([[None]], [[0]])
