"""Evaluation of brackets: cases counted by hand."""

import numpy as np
import pytest

from trelliswork.errors import DataError, ShapeError
from trelliswork.metrics.brackets import evaluate_brackets, left_branching, right_branching


def test_two_sentences_by_hand():
    # Five words: gold (0 2) (2 5), predicted (0 2) (0 3) (3 5): 1 correct of 2 gold and 3 predicted, F1 = 2/5.
    # Three words: gold none (flat), predicted (1 3): 0 of 0 and 1. Two words: nothing proper on either side, F1 = 1.
    gold = [{(0, 5), (0, 2), (2, 5), (1, 2)}, {(0, 3)}, {(0, 2)}]
    predicted = [{(0, 5), (0, 2), (0, 3), (3, 5)}, {(0, 3), (1, 3)}, {(0, 2)}]
    report = evaluate_brackets([5, 3, 2], gold, predicted)
    assert report.n_sentences == 3
    assert report.sentence_f1 == pytest.approx((0.4 + 0 + 1) / 3)
    assert (report.precision, report.recall, report.f1) == pytest.approx((1 / 4, 1 / 2, 1 / 3))
    # Right-branching of five words: (1 5) (2 5) (3 5): 1 of 2 and 3; left: (0 2) (0 3) (0 4): 1 of 2 and 3.
    assert report.right_f1 == pytest.approx((0.4 + 0 + 1) / 3)
    assert report.left_f1 == pytest.approx((0.4 + 0 + 1) / 3)
    assert report.right_corpus_f1 == pytest.approx(2 * 1 / (2 + 4))
    # The best binary tree of five words has both gold spans and one more: 2 * 2 / (2 + 3).
    assert report.best_f1 == pytest.approx((0.8 + 0 + 1) / 3)
    assert "sentences" in report.summary()
    assert report.to_dict()["n_sentences"] == 3


def test_sentence_lengths():
    gold = [{(1, 3)}, set()]
    report = evaluate_brackets([3, 1], gold, gold)
    assert (report.n_sentences, report.sentence_f1) == (1, 1.0)
    with pytest.raises(DataError, match="expected at least one sentence"):
        evaluate_brackets([1], [set()], [set()])
    with pytest.raises(ShapeError, match="same sentences"):
        evaluate_brackets([2], [], [set()])
    with pytest.raises(DataError, match="within the 2 words"):
        evaluate_brackets([2], [{(0, 3)}], [set()])


def test_branching_trees():
    assert left_branching(4) == {(0, 2), (0, 3), (0, 4)}
    assert right_branching(4) == {(0, 4), (1, 4), (2, 4)}
    perfect = evaluate_brackets([4], [right_branching(4)], [left_branching(4)])
    assert (perfect.right_f1, perfect.left_f1, perfect.sentence_f1, perfect.best_f1) == (1.0, 0.0, 0.0, 1.0)


def test_confidence_of_predicted_brackets():
    gold, predicted = [{(0, 2), (0, 5)}, set()], [{(0, 2), (2, 5), (0, 5)}, {(0, 2)}]
    report = evaluate_brackets([5, 2], gold, predicted, probabilities=[{(0, 2): 0.8, (0, 5): 1.0}, {}])
    assert report.confidence.n_answers == 2  # the whole sentence is no answer
    assert report.confidence.brier.value == pytest.approx(0.5 * (0.2**2 + 0.0))  # a span without probability has 0
    assert report.confidence.log_score.value == pytest.approx(0.5 * np.log(0.8))
    assert "2 brackets" in report.summary()
    assert report.to_dict()["confidence"]["n_answers"] == 2
    assert evaluate_brackets([5, 2], gold, predicted).confidence is None
    with pytest.raises(ShapeError, match="probabilities"):
        evaluate_brackets([5, 2], gold, predicted, probabilities=[{}])
