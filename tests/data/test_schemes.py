"""Label schemes: lenient reading, strict writing, and allowed transitions."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trelliswork.data.schemes import (
    Span,
    allowed_transitions,
    convert,
    detect_scheme,
    is_iob1,
    labels_from_spans,
    spans,
    standard_labels,
)
from trelliswork.errors import ValueRangeError

TYPES = ("NP", "VP", "NP-SBJ")
PREFIXES = {"bio": "BI", "bioes": "BIES"}
LABELS = {scheme: ["O", *(f"{p}-{x}" for x in TYPES for p in prefixes)] for scheme, prefixes in PREFIXES.items()}
SCHEMES = st.sampled_from(["bio", "bioes"])


@st.composite
def segmentations(draw):
    """Spans from left to right with gaps between some of them, and the length of the sentence."""
    result, n = [], 0
    for length, type_ in draw(st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["", *TYPES])), max_size=8)):
        if type_:
            result.append(Span(type_, n, n + length))
        n += length
    return result, n


@st.composite
def any_labels(draw):
    """A scheme and labels of it, well-formed or not."""
    scheme = draw(SCHEMES)
    return scheme, draw(st.lists(st.sampled_from(LABELS[scheme]), max_size=9))


@st.composite
def allowed_paths(draw):
    """A scheme and a random walk that ``allowed_transitions`` permits from start to end."""
    scheme, n = draw(SCHEMES), draw(st.integers(1, 9))
    allowed, start, end = allowed_transitions(LABELS[scheme], scheme)
    can_end = [end]  # can_end[k][i]: k more steps from i can lead to an end
    for _ in range(n - 1):
        can_end.append((allowed & can_end[-1]).any(axis=1))
    path = [draw(st.sampled_from(np.flatnonzero(start & can_end[n - 1]).tolist()))]
    for k in range(n - 2, -1, -1):
        path.append(draw(st.sampled_from(np.flatnonzero(allowed[path[-1]] & can_end[k]).tolist())))
    return scheme, [LABELS[scheme][i] for i in path]


def is_allowed(path, scheme):
    allowed, start, end = allowed_transitions(LABELS[scheme], scheme)
    ids = [LABELS[scheme].index(label) for label in path]
    return not ids or bool(start[ids[0]] and end[ids[-1]] and allowed[ids[:-1], ids[1:]].all())


def spans_by_pairs(labels):
    """Read spans by the rules of conlleval: whether a span starts or ends between two adjacent labels."""
    padded = [("O", ""), *((label[0], label[2:]) for label in labels), ("O", "")]
    result, start = [], None
    for t, ((before, type_before), (here, type_here)) in enumerate(pairwise(padded)):
        finished = before != "O" and (
            here in "BSO" or before in "ES" or type_before != type_here  # B-B, B-O, I-B, I-O, E-*, S-*
        )
        starts = here != "O" and (here in "BS" or before in "OES" or type_before != type_here)  # *-B, O-I, E-I, O-E
        if finished:
            result.append(Span(type_before, start, t))
        if starts:
            start = t
    return result


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([], []),
        (["O", "O"], []),
        (["B-NP", "I-NP", "O", "B-NP"], [("NP", 0, 2), ("NP", 3, 4)]),
        (["B-NP", "B-NP"], [("NP", 0, 1), ("NP", 1, 2)]),
        (["I-NP", "I-NP"], [("NP", 0, 2)]),  # I at the start
        (["O", "I-NP", "O"], [("NP", 1, 2)]),  # I after O
        (["B-NP", "I-VP", "I-VP"], [("NP", 0, 1), ("VP", 1, 3)]),  # I after another type
        (["I-NP", "I-VP", "I-NP"], [("NP", 0, 1), ("VP", 1, 2), ("NP", 2, 3)]),
        (["I-NP", "B-NP", "I-NP"], [("NP", 0, 1), ("NP", 1, 3)]),
        (["B-NP-SBJ", "I-NP-SBJ", "I-NP"], [("NP-SBJ", 0, 2), ("NP", 2, 3)]),
    ],
)
def test_bio_is_read_as_conlleval_reads_it(labels, expected):
    assert spans(labels) == expected
    assert spans(labels, "bioes") == expected  # without E and S the two schemes read alike


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["B-NP", "I-NP", "E-NP", "S-NP", "O"], [("NP", 0, 3), ("NP", 3, 4)]),
        (["E-NP", "E-NP"], [("NP", 0, 1), ("NP", 1, 2)]),
        (["S-NP", "I-NP", "I-NP"], [("NP", 0, 1), ("NP", 1, 3)]),
        (["E-NP", "I-NP", "E-NP"], [("NP", 0, 1), ("NP", 1, 3)]),
        (["B-NP", "S-NP", "E-NP"], [("NP", 0, 1), ("NP", 1, 2), ("NP", 2, 3)]),
        (["B-NP", "E-VP", "O"], [("NP", 0, 1), ("VP", 1, 2)]),
        (["B-NP", "O", "I-NP"], [("NP", 0, 1), ("NP", 2, 3)]),
    ],
)
def test_ill_formed_bioes_is_read_by_the_analogous_rules(labels, expected):
    assert spans(labels, "bioes") == expected


@given(any_labels())
def test_reading_agrees_with_the_rules_for_adjacent_labels(case):
    scheme, labels = case
    assert spans(labels, scheme) == spans_by_pairs(labels)


@given(segmentations(), SCHEMES, st.randoms(use_true_random=False))
def test_spans_are_the_inverse_of_labels(case, scheme, random):
    result, n = case
    labels = labels_from_spans(random.sample(result, len(result)), n, scheme)
    assert len(labels) == n
    assert spans(labels, scheme) == result
    assert is_allowed(labels, scheme)


@given(allowed_paths())
def test_allowed_paths_are_recovered_from_their_spans(case):
    scheme, path = case
    assert labels_from_spans(spans(path, scheme), len(path), scheme) == path


@given(any_labels())
def test_path_is_allowed_iff_recovered_from_its_spans(case):
    scheme, path = case
    assert is_allowed(path, scheme) == (labels_from_spans(spans(path, scheme), len(path), scheme) == path)


@given(allowed_paths(), SCHEMES)
def test_conversions_are_invertible(case, target):
    scheme, path = case
    there = convert(path, scheme, target)
    assert is_allowed(there, target)
    assert spans(there, target) == spans(path, scheme)
    assert convert(there, target, scheme) == path


@given(any_labels(), SCHEMES)
def test_conversion_keeps_the_spans_of_ill_formed_labels(case, target):
    scheme, path = case
    assert spans(convert(path, scheme, target), target) == spans(path, scheme)


def test_strict_bio_transitions():
    labels = ["O", "B-X", "I-X", "B-Y", "I-Y"]
    allowed, start, end = allowed_transitions(labels, "bio")
    expected = [[1, 1, 0, 1, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 0], [1, 1, 0, 1, 1], [1, 1, 0, 1, 1]]
    np.testing.assert_array_equal(allowed, np.array(expected, bool))
    np.testing.assert_array_equal(start, np.array([1, 1, 0, 1, 0], bool))
    np.testing.assert_array_equal(end, np.ones(5, bool))


def test_strict_bioes_transitions():
    labels = ["S-X", "B-X", "I-X", "E-X", "O", "E-Y"]
    allowed, start, end = allowed_transitions(labels, "bioes")
    outside, inside = [1, 1, 0, 0, 1, 0], [0, 0, 1, 1, 0, 0]
    np.testing.assert_array_equal(allowed, np.array([outside, inside, inside, outside, outside, outside], bool))
    np.testing.assert_array_equal(start, np.array(outside, bool))
    np.testing.assert_array_equal(end, np.array([1, 0, 0, 1, 1, 1], bool))


@pytest.mark.parametrize("scheme", ["bio", "bioes", None])
def test_transitions_of_no_labels_and_their_types(scheme):
    for labels in ([], ["O"]):
        allowed, start, end = allowed_transitions(labels, scheme)
        assert (allowed.shape, start.shape, end.shape) == ((len(labels),) * 2, (len(labels),), (len(labels),))
        assert allowed.dtype == start.dtype == end.dtype == bool
        assert allowed.all()
        assert start.all()
        assert end.all()


def test_without_a_scheme_everything_is_allowed():
    allowed, start, end = allowed_transitions(["DT", "I-NP"], None)
    assert allowed.all()
    assert start.all()
    assert end.all()


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["O", "B-NP", "I-NP"], "bio"),
        (["B-NP", "B-NP"], "bio"),
        (["I-NP", "O"], "bio"),
        (["O", "S-NP"], "bioes"),
        (["B-NP", "E-NP"], "bioes"),
        (["DT", "NN", "-LRB-"], None),
        (["O", "B-NP", "NN"], None),
        (["B-NP", "L-NP"], None),
        (["B-", "I-"], None),
        (["B", "I", "O"], None),
        (["O", "O"], None),
        (["", "B-NP"], None),
        ([], None),
    ],
)
def test_schemes_are_detected(labels, expected):
    assert detect_scheme(labels) == expected
    assert detect_scheme(iter(labels)) == expected


@pytest.mark.parametrize("label", ["NN", "B", "B-", "BNP", "X-NP", "o", ""])
@pytest.mark.parametrize("scheme", ["bio", "bioes"])
def test_invalid_labels_raise_with_a_remedy(label, scheme):
    forms = "B-TYPE, I-TYPE" if scheme == "bio" else "B-TYPE, I-TYPE, E-TYPE, S-TYPE"
    message = f"labels of the scheme '{scheme}' must be O or {forms}, got {label!r}. Use scheme=None"
    for call in (allowed_transitions, spans):
        with pytest.raises(ValueRangeError, match=message):
            call(["O", label], scheme)


def test_labels_of_a_related_scheme_raise_with_a_hint():
    with pytest.raises(ValueRangeError, match=r"got 'E-NP'\. Use scheme='bioes', or scheme=None"):
        spans(["B-NP", "E-NP"], "bio")
    with pytest.raises(ValueRangeError, match=r"got 'U-NP'\. Use E for the L and S for the U of BILOU, or"):
        spans(["U-NP"], "bioes")


def test_invalid_spans_and_schemes_raise():
    for bad in [("NP", 0, 0), ("NP", 2, 1), ("NP", -1, 1), ("NP", 2, 4)]:
        with pytest.raises(ValueRangeError, match=r"must hold 0 <= start < stop <= n=3"):
            labels_from_spans([bad], 3)
    with pytest.raises(ValueRangeError, match=r"\('VP', 1, 3\) overlaps another one"):
        labels_from_spans([("NP", 0, 2), ("VP", 1, 3)], 3)
    with pytest.raises(ValueRangeError, match="must have a type"):
        labels_from_spans([("", 0, 1)], 3)
    with pytest.raises(ValueRangeError, match="must not be negative, got -1"):
        labels_from_spans([], -1)
    for call in (
        lambda: spans(["O"], "iob"),
        lambda: labels_from_spans([], 1, "iob"),
        lambda: convert([], "bio", "iob"),
    ):
        with pytest.raises(ValueRangeError, match=r"scheme must be 'bio' .* or 'bioes' .*, got 'iob'"):
            call()


@pytest.mark.parametrize(("name", "n_sentences", "n_chunks"), [("train", 8_936, 106_978), ("test", 2_012, 23_852)])
def test_conll_2000_is_strict_bio(data_dir, name, n_sentences, n_chunks):
    blocks = (data_dir / "conll2000" / f"{name}.txt").read_text(encoding="utf-8").strip().split("\n\n")
    sentences = [[line.split(" ")[2] for line in block.split("\n")] for block in blocks]
    assert len(sentences) == n_sentences
    assert detect_scheme(label for labels in sentences for label in labels) == "bio"
    assert sum(len(spans(labels)) for labels in sentences) == n_chunks
    for labels in sentences:
        assert convert(labels, "bio", "bio") == labels  # nothing to repair
        assert convert(convert(labels, "bio", "bioes"), "bioes", "bio") == labels


@given(segmentations())
def test_iob1_is_recognized(segmentation):
    bio = labels_from_spans(*segmentation)
    after = ["", *(label[2:] for label in bio)]
    iob1 = [
        "I" + label[1:] if label[0] == "B" and label[2:] != x else label for x, label in zip(after, bio, strict=False)
    ]
    assert convert(iob1, "bio", "bio") == bio
    assert is_iob1([iob1]) == is_iob1([["O"], iob1]) == bool(segmentation[0])
    assert not is_iob1([bio])
    assert not is_iob1([iob1, ["B-NP"]])


def test_standard_labels():
    iob1 = [["I-NP", "I-NP", "B-NP", "O"], ["O", "I-VP"]]
    bio = [["B-NP", "I-NP", "B-NP", "O"], ["O", "B-VP"]]
    assert standard_labels(iob1) == (bio, "the labels are in IOB1 and were converted to BIO (IOB2)")
    assert standard_labels(bio) == (bio, "")
    bilou = [["B-NP", "I-NP", "L-NP", "O", "U-VP"]]
    converted, text = standard_labels(bilou)
    assert converted == [["B-NP", "I-NP", "E-NP", "O", "S-VP"]]
    assert "BILOU" in text
    for same in ([["DT", "NN"]], [["B-NP", "E-NP"]], [["O"]], [], [["L-NP", "X"]], [["I-NP", "B-VP"]]):
        assert standard_labels(same) == (same, "")
