"""Evaluation of taggers: values computed by hand, and laws of precision and recall."""

import json
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tests.data.written import convert
from trelliswork.errors import DataWarning, ShapeError, ValueRangeError
from trelliswork.metrics.tagging import N_MISTAKES, Mistake, Score, TaggingReport, evaluate_tagging, gold_in_scheme_of

BIO = ["O", "B-NP", "I-NP", "B-VP", "I-VP"]
BIOES = [*BIO, "E-NP", "S-NP", "E-VP", "S-VP"]


@st.composite
def taggings(draw, labels=BIOES):
    """Gold and predicted labels of some sentences, at least one of them not empty."""
    lengths = [*draw(st.lists(st.integers(0, 6), max_size=4)), draw(st.integers(1, 6))]
    return tuple([draw(st.lists(st.sampled_from(labels), min_size=n, max_size=n)) for n in lengths] for _ in range(2))


def test_scores_computed_by_hand():
    gold = [
        ["B-NP", "I-NP", "B-VP", "O"],  # NP 0-2, VP 2-3
        ["B-NP", "B-VP", "I-VP", "B-NP"],  # NP 0-1, VP 1-3, NP 3-4
        ["O"],
    ]
    predicted = [
        ["B-NP", "I-NP", "B-NP", "O"],  # NP 0-2 right, NP 2-3 wrong
        ["I-NP", "B-VP", "O", "B-NP"],  # NP 0-1 right though ill-formed, VP 1-2 too short, NP 3-4 right
        ["O"],
    ]
    words = [["the", "cat", "sat", "."], ["cats", "may", "sit", "there"], ["."]]
    report = evaluate_tagging(gold, predicted, words=words, known_words=["the", "cat", "may", "there", "."])
    assert (report.n_sentences, report.n_tokens) == (3, 9)
    assert_allclose(report.accuracy, 6 / 9)
    assert_allclose(report.sentence_accuracy, 1 / 3)
    assert (report.n_known, report.n_unknown) == (6, 3)  # unknown: sat, cats, sit, all wrong
    assert (report.known_accuracy, report.unknown_accuracy) == (1.0, 0.0)
    assert report.scheme == "bio"
    assert report.chunks == Score(correct=3, predicted=5, support=5)
    assert report.chunks_by_type == {"NP": Score(3, 4, 3), "VP": Score(0, 1, 2)}
    assert_allclose([report.chunks.precision, report.chunks.recall, report.chunks.f1], 0.6)
    noun = report.chunks_by_type["NP"]
    assert_allclose([noun.precision, noun.recall, noun.f1], [3 / 4, 1, 6 / 7])
    assert report.labels == {
        "B-NP": Score(2, 3, 3),
        "B-VP": Score(1, 1, 2),
        "I-NP": Score(1, 2, 1),
        "I-VP": Score(0, 0, 1),
        "O": Score(2, 3, 2),
    }
    assert report.confusion == (Mistake("B-NP", "I-NP", 1), Mistake("B-VP", "B-NP", 1), Mistake("I-VP", "O", 1))


def test_span_predicted_in_two_pieces():
    """One gold span predicted as two: neither is correct, both count as predicted."""
    report = evaluate_tagging([["B-X", "I-X", "I-X"]], [["B-X", "I-X", "B-X"]])
    assert report.chunks == Score(correct=0, predicted=2, support=1)
    assert report.chunks.f1 == 0
    assert_allclose(report.accuracy, 2 / 3)


def test_plain_tags_have_no_chunks():
    report = evaluate_tagging([["DT", "NN"], ["NN"]], [["DT", "VB"], ["NN"]])
    assert report.scheme is report.chunks is report.chunks_by_type is None
    assert report.n_known is report.n_unknown is report.known_accuracy is report.unknown_accuracy is None
    assert report.labels == {"DT": Score(1, 1, 1), "NN": Score(1, 1, 2), "VB": Score(0, 1, 0)}
    assert report.labels["NN"].f1 == 2 / 3
    assert report.labels["VB"].recall == 0


def test_the_scheme_can_be_chosen():
    gold, predicted = [["B-X", "I-X"]], [["B-X", "I-X"]]
    assert evaluate_tagging(gold, predicted, scheme=None).chunks is None
    assert evaluate_tagging([["O"]], [["O"]]).chunks is None
    assert evaluate_tagging([["O"]], [["O"]], scheme="bio").chunks == Score(0, 0, 0)
    assert evaluate_tagging([["B-X", "E-X"]], [["B-X", "I-X"]]).scheme == "bioes"
    with pytest.raises(ValueRangeError, match="got 'NN'"):
        evaluate_tagging([["B-X", "I-X"]], [["B-X", "NN"]], scheme="bio")


def test_the_same_span_in_two_sentences_is_two_spans():
    report = evaluate_tagging([["B-X"], ["B-X"], ["O"]], [["B-X"], ["O"], ["B-X"]])
    assert report.chunks == Score(correct=1, predicted=2, support=2)


def test_spans_do_not_cross_sentences():
    assert evaluate_tagging([["B-X"], ["I-X"]], [["B-X"], ["I-X"]]).chunks == Score(2, 2, 2)


@given(taggings())
def test_perfect_prediction_scores_one_everywhere(case):
    gold, _ = case
    words = [["w"] * len(labels) for labels in gold]
    report = evaluate_tagging(gold, [tuple(labels) for labels in gold], words=words, known_words={"w"})
    assert (report.accuracy, report.sentence_accuracy, report.known_accuracy) == (1, 1, 1)
    assert report.n_unknown == 0
    assert report.unknown_accuracy is None
    assert report.confusion == ()
    scores = [
        *report.labels.values(),
        *(report.chunks_by_type or {}).values(),
        *([report.chunks] if report.chunks else []),
    ]
    assert all((s.precision, s.recall, s.f1) == (1, 1, 1) for s in scores)


@given(taggings())
def test_swapping_gold_and_prediction_swaps_precision_and_recall(case):
    gold, predicted = case
    one, other = evaluate_tagging(gold, predicted), evaluate_tagging(predicted, gold)
    assert one.accuracy == other.accuracy
    assert one.scheme == other.scheme
    pairs = [(one.labels, other.labels), (one.chunks_by_type or {}, other.chunks_by_type or {})]
    if one.chunks is not None:
        pairs.append(({"all": one.chunks}, {"all": other.chunks}))
    for ours, theirs in pairs:
        assert list(ours) == list(theirs)
        for name, score in ours.items():
            assert score.f1 == theirs[name].f1
            assert (score.precision, score.recall) == (theirs[name].recall, theirs[name].precision)
    mirrored = {(m.predicted, m.gold, m.count) for m in other.confusion}
    if max(len(one.confusion), len(other.confusion)) < N_MISTAKES:
        assert {(m.gold, m.predicted, m.count) for m in one.confusion} == mirrored


@given(taggings())
def test_counts_add_up(case):
    gold, predicted = case
    report = evaluate_tagging(gold, predicted)
    assert sum(s.support for s in report.labels.values()) == report.n_tokens
    assert sum(s.predicted for s in report.labels.values()) == report.n_tokens
    assert_allclose(sum(s.correct for s in report.labels.values()) / report.n_tokens, report.accuracy)
    if report.chunks is not None:
        assert tuple(report.chunks) == tuple(np.sum([*report.chunks_by_type.values()], axis=0))
        for score in report.chunks_by_type.values():
            assert score.correct <= min(score.predicted, score.support)
            if score.correct:
                harmonic = 2 / (1 / score.precision + 1 / score.recall)
                assert_allclose(score.f1, harmonic)


@given(taggings(labels=BIO))
def test_chunks_do_not_depend_on_the_scheme(case):
    in_bioes = ([convert(labels, "bio", "bioes") for labels in side] for side in case)
    assert evaluate_tagging(*case, scheme="bio").chunks == evaluate_tagging(*in_bioes, scheme="bioes").chunks


def test_mistakes_are_sorted_by_frequency():
    labels = [f"T{i:02}" for i in range(30)]
    gold = [label for i, label in enumerate(labels) for _ in range(i // 2 + 1)]
    report = evaluate_tagging([gold], [["X"] * len(gold)])
    assert len(report.confusion) == N_MISTAKES
    assert report.confusion[:3] == (Mistake("T28", "X", 15), Mistake("T29", "X", 15), Mistake("T26", "X", 14))


def test_dict_converts_to_json_and_has_fixed_keys():
    plain = evaluate_tagging([["DT"]], [["NN"]]).to_dict()
    full = evaluate_tagging([["B-X", "O"]], [["B-X", "B-X"]], words=[["a", "b"]], known_words={"a"}).to_dict()
    assert list(plain) == list(full) == list(TaggingReport.__dataclass_fields__)
    assert json.loads(json.dumps(full, allow_nan=False)) == full
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    expected = {"precision": 0.5, "recall": 1.0, "f1": 2 / 3, "correct": 1, "predicted": 2, "support": 1}
    assert full["chunks"] == full["chunks_by_type"]["X"] == full["labels"]["B-X"] == expected
    assert full["confusion"] == [{"gold": "O", "predicted": "B-X", "count": 1}]
    assert plain["chunks"] is plain["chunks_by_type"] is plain["n_known"] is None


def test_the_summary_is_aligned():
    report = evaluate_tagging([["B-X", "O"]], [["B-X", "B-X"]], words=[["a", "a"]], known_words={"a"})
    assert report.summary().split("\n") == [
        "               count  accuracy",
        "tokens             2    0.5000",
        "sentences          1    0.0000",
        "known words        2    0.5000",
        "unknown words      0         -",
        "",
        "spans  count  precision  recall      F1",
        "all        1     0.5000  1.0000  0.6667",
        "X          1     0.5000  1.0000  0.6667",
        "",
        "mistakes  count",
        "O as B-X      1",
    ]
    assert evaluate_tagging([["DT"]], [["DT"]]).summary().split("\n") == [
        "           count  accuracy",
        "tokens         1    1.0000",
        "sentences      1    1.0000",
    ]


def test_invalid_input_raises():
    with pytest.raises(ShapeError, match=r"predicted must have as many sentences as gold, got 1 and 2"):
        evaluate_tagging([["O"], ["O"]], [["O"]])
    with pytest.raises(ShapeError, match=r"predicted\[1\] must be as long as gold\[1\], got 1 and 2 tokens"):
        evaluate_tagging([["O"], ["O", "O"]], [["O"], ["O"]])
    with pytest.raises(ShapeError, match=r"words\[0\] must be as long as gold\[0\], got 2 and 1 tokens"):
        evaluate_tagging([["O"]], [["O"]], words=[["a", "b"]])
    for flat in (["B-X", "O"], "O"):
        with pytest.raises(ShapeError, match="gold must be a list of sentences, each a list of strings"):
            evaluate_tagging(flat, flat)
    for empty in ([], [[], []]):
        with pytest.raises(ValueRangeError, match=f"got {len(empty)} sentences without any"):
            evaluate_tagging(empty, empty)
    with pytest.raises(ValueRangeError, match="known_words needs words"):
        evaluate_tagging([["O"]], [["O"]], known_words={"a"})


def test_conll2000_baseline(data_dir):
    """Predict the most frequent chunk label of each part-of-speech tag, the published baseline of CoNLL-2000."""

    def read(name):
        blocks = (data_dir / "conll2000" / f"{name}.txt").read_text(encoding="utf-8").strip().split("\n\n")
        rows = [[line.split(" ") for line in block.split("\n")] for block in blocks]
        return [[[row[column] for row in sentence] for sentence in rows] for column in range(3)]

    train_words, train_tags, train_chunks = read("train")
    words, tags, gold = read("test")
    counts: dict[str, dict[str, int]] = {}
    for sentence_tags, sentence_chunks in zip(train_tags, train_chunks, strict=True):
        for tag, chunk in zip(sentence_tags, sentence_chunks, strict=True):
            of_tag = counts.setdefault(tag, {})
            of_tag[chunk] = of_tag.get(chunk, 0) + 1
    best = {tag: max(of_tag, key=of_tag.__getitem__) for tag, of_tag in counts.items()}
    predicted = [[best[tag] for tag in sentence] for sentence in tags]
    known = {word for sentence in train_words for word in sentence}
    begin = time.process_time()
    report = evaluate_tagging(gold, predicted, words=words, known_words=known)
    assert time.process_time() - begin < 1  # about 0.1 s
    assert report.n_tokens == report.n_known + report.n_unknown == 47_377
    assert report.chunks.support == 23_852
    rates = [100 * x for x in (report.chunks.precision, report.chunks.recall, report.chunks.f1)]
    assert_allclose(rates, [72.58, 82.14, 77.07], atol=0.005)  # Tjong Kim Sang and Buchholz (2000), the baseline


def test_gold_in_another_scheme_is_converted():
    bio = [["B-NP", "I-NP", "B-NP", "O"], ["O", "B-VP"]]
    iob1 = [["I-NP", "I-NP", "B-NP", "O"], ["O", "I-VP"]]
    bioes = [convert(labels, "bio", "bioes") for labels in bio]
    for gold, predicted, words in (
        (iob1, bio, "BIO labels, and gold has IOB1, which was converted to BIO"),
        (iob1, bioes, "BIOES labels, and gold has IOB1"),
        (bio, bioes, "BIOES labels, and gold has BIO"),
        (bioes, bio, "BIO labels, and gold has BIOES"),
    ):
        labels = BIOES if predicted is bioes else BIO
        with pytest.warns(DataWarning, match=words):
            assert gold_in_scheme_of(labels, predicted, gold) == predicted
    with pytest.warns(DataWarning, match="the predictions have IOB1 labels, and gold has BIO: labels of tokens differ"):
        assert gold_in_scheme_of(BIO, iob1, bio) is bio
    for same, labels in ((bio, BIO), (iob1, BIO), (bioes, BIOES), ([["DT", "NN"]], ["DT", "NN"])):
        assert gold_in_scheme_of(labels, same, same) is same
    assert gold_in_scheme_of(BIOES, [["O"]], bioes) is bioes  # the labels of the tagger decide
