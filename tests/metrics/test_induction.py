"""Measures of induced labels: values computed by hand, laws, and the values of scikit-learn."""

import json
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.metrics.induction import InductionReport, evaluate_induction


@st.composite
def labelings(draw, max_labels=5):
    n = draw(st.integers(1, 40))
    return tuple(
        draw(st.lists(st.integers(0, draw(st.integers(0, max_labels - 1))), min_size=n, max_size=n)) for _ in "gk"
    )


def measures(report: InductionReport) -> list[float]:
    names = ("many_to_one", "one_to_one", "homogeneity", "completeness", "v_measure", "variation_of_information")
    return [getattr(report, name) for name in names]


def test_measures_computed_by_hand():
    gold = list("aaaabbbb")
    induced = [0, 0, 0, 1, 1, 1, 2, 2]  # a: 3, 1, 0; b: 0, 2, 2
    report = evaluate_induction(gold, induced)
    assert (report.n_tokens, report.n_gold, report.n_induced) == (8, 2, 3)
    assert report.many_to_one == 7 / 8
    assert report.mapping == {0: "a", 1: "b", 2: "b"}
    assert report.one_to_one == 5 / 8
    assert report.matching[0] == "a"
    assert len(report.matching) == 2
    given_induced = 3 / 8 * -(1 / 3 * np.log(1 / 3) + 2 / 3 * np.log(2 / 3))
    given_gold = 1 / 2 * -(3 / 4 * np.log(3 / 4) + 1 / 4 * np.log(1 / 4)) + 1 / 2 * np.log(2)
    of_induced = -(6 / 8 * np.log(3 / 8) + 2 / 8 * np.log(2 / 8))
    h, c = 1 - given_induced / np.log(2), 1 - given_gold / of_induced
    assert_allclose(report.homogeneity, h, rtol=1e-12)
    assert_allclose(report.completeness, c, rtol=1e-12)
    assert_allclose(report.v_measure, 2 * h * c / (h + c), rtol=1e-12)
    assert_allclose(report.variation_of_information, given_induced + given_gold, rtol=1e-12)


def test_extreme_cases():
    one_label = evaluate_induction(list("abab"), [0, 0, 0, 0])
    assert measures(one_label)[:5] == [0.5, 0.5, 0.0, 1.0, 0.0]
    assert_allclose(one_label.variation_of_information, np.log(2))
    all_different = evaluate_induction(list("abab"), [0, 1, 2, 3])
    assert measures(all_different)[:2] == [1.0, 0.5]
    assert_allclose([all_different.homogeneity, all_different.completeness], [1, 0.5])
    assert measures(evaluate_induction(["a"], ["z"])) == [1, 1, 1, 1, 1, 0]
    independent = evaluate_induction(list("aabb"), [0, 1, 0, 1])
    assert_allclose(measures(independent), [0.5, 0.5, 0, 0, 0, 2 * np.log(2)], atol=1e-15)


@given(labelings())
def test_renamed_labels_are_perfect(case):
    gold = case[0]
    assert_allclose(measures(evaluate_induction(gold, [f"tag {g}" for g in gold])), [1, 1, 1, 1, 1, 0], atol=1e-12)


@given(labelings(), st.permutations(range(5)), st.randoms(use_true_random=False))
def test_measures_ignore_names_and_order(case, names, random):
    gold, induced = case
    report = evaluate_induction(gold, induced)
    tokens = list(zip(gold, [names[k] for k in induced], strict=True))
    random.shuffle(tokens)
    again = evaluate_induction(*map(list, zip(*tokens, strict=True)))
    assert_allclose(measures(again), measures(report), atol=1e-12)


@given(labelings())
def test_laws(case):
    gold, induced = case
    report, swapped = evaluate_induction(gold, induced), evaluate_induction(induced, gold)
    assert 0 < report.one_to_one <= report.many_to_one <= 1
    assert_allclose(report.one_to_one, swapped.one_to_one)
    assert_allclose(report.homogeneity, swapped.completeness, atol=1e-12)
    assert_allclose(report.variation_of_information, swapped.variation_of_information, atol=1e-12)
    assert 0 <= report.v_measure <= 1
    for mapping, rate in ((report.mapping, report.many_to_one), (report.matching, report.one_to_one)):
        assert_allclose(np.mean([mapping.get(k) == g for g, k in zip(gold, induced, strict=True)]), rate)
    assert len(set(report.matching.values())) == len(report.matching) == min(report.n_gold, report.n_induced)


@given(labelings())
def test_measures_equal_those_of_scikit_learn(case):
    cluster = pytest.importorskip("sklearn.metrics.cluster")
    report = evaluate_induction(*case)
    expected = cluster.homogeneity_completeness_v_measure(*case)
    assert_allclose([report.homogeneity, report.completeness, report.v_measure], expected, atol=1e-9)


@given(labelings())
def test_one_to_one_is_the_best_of_all_matchings(case):
    gold, induced = case
    counts = np.zeros((5, 5), int)
    np.add.at(counts, (gold, induced), 1)
    best = max(sum(counts[i, j] for i, j in enumerate(p)) for p in permutations(range(5)))
    assert evaluate_induction(gold, induced).one_to_one == best / len(gold)


def test_sentences_and_arrays():
    flat = evaluate_induction(list("abba"), [0, 1, 1, 1])
    assert evaluate_induction([["a", "b"], [], ["b", "a"]], [[0, 1], [], [1, 1]]) == flat
    assert evaluate_induction([["a", "b"], ["b", "a"]], [np.array([0, 1]), np.array([1, 1])]) == flat
    assert evaluate_induction(np.array(list("abba")), np.array([0, 1, 1, 1])) == flat
    assert evaluate_induction([("a", "b"), ("b", "a")], [[0, 1], [1, 1]]) == flat


def test_report_converts_to_json():
    report = evaluate_induction(np.array(["a", "b", "b"]), np.array([3, 4, 5]))
    plain = json.loads(json.dumps(report.to_dict()))
    assert plain["mapping"] == [[3, "a"], [4, "b"], [5, "b"]]
    assert plain["many_to_one"] == 1
    assert set(plain) == set(InductionReport.__slots__)
    assert json.dumps(evaluate_induction([frozenset("x")], [frozenset()]).to_dict())
    assert "many-to-one               1.0000" in report.summary()


def test_invalid_input_raises():
    with pytest.raises(ShapeError, match="same length, got 2 and 1"):
        evaluate_induction(["a", "b"], [1])
    with pytest.raises(ShapeError, match=r"gold\[1\] and induced\[1\] must have the same length, got 1 and 2"):
        evaluate_induction([["a"], ["b"]], [[1], [1, 2]])
    with pytest.raises(ShapeError, match="both be labels or both be sentences"):
        evaluate_induction([["a"], ["b"]], [1, 2])
    for empty in ([], [[], []]):
        with pytest.raises(ValueRangeError, match="at least one label"):
            evaluate_induction(empty, empty)
