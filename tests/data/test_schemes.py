"""Label schemes: lenient reading, strict writing, and allowed transitions."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.written import convert
from trelliswork.data.schemes import (
    Span,
    _written,
    allowed_transitions,
    detect_scheme,
    file_scheme,
    labels_from_spans,
    lenient_spans,
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
    assert (file_scheme([iob1]) == "iob1") == (file_scheme([["O"], iob1]) == "iob1") == bool(segmentation[0])
    assert file_scheme([bio]) != "iob1"


def written(scheme, rng, n=400):
    """Return random labels in a scheme of files."""
    sentences = []
    for _ in range(n):
        found, t, T = [], 0, int(rng.integers(3, 15))
        while t < T:
            length = int(rng.integers(1, 4))
            if rng.random() < 0.5:
                found.append(Span(str(rng.choice(["PER", "LOC"])), t, min(T, t + length)))
            t += length
        sentences.append(_written(found, T, scheme))
    return sentences


FILE_SCHEMES = {"bio": "bio", "iob1": "bio", "bioes": "bioes", "bilou": "bioes"}  # of files, and of models


@pytest.mark.parametrize("scheme", FILE_SCHEMES)
def test_standard_labels(scheme):
    labels = written(scheme, np.random.default_rng(0))
    found = standard_labels(labels)
    assert (found.scheme, found.target, found.breaks) == (scheme, FILE_SCHEMES[scheme], [])
    assert found.repaired == labels
    assert [spans(row, FILE_SCHEMES[scheme]) for row in found.labels] == [lenient_spans(row) for row in labels]
    assert (found.text == "") == (scheme == FILE_SCHEMES[scheme])
    assert (file_scheme(labels) == "iob1") == (scheme == "iob1")


@pytest.mark.parametrize("scheme", FILE_SCHEMES)
def test_a_few_labels_that_break_the_scheme_do_not_hide_it(scheme):
    """Recognize the scheme by most labels, and read the others as conlleval does."""
    rng = np.random.default_rng(1)
    labels = written(scheme, rng)
    odd = ["I-PER", "B-LOC", "E-PER", "S-LOC", "L-PER", "U-LOC", "PER", "b-LOC"]
    for n in range(0, 80, 2):
        t = int(rng.integers(len(labels[n])))
        labels[n][t] = odd[n // 2 % len(odd)]
    found = standard_labels(labels)
    assert found.scheme == scheme
    assert 10 < len(found.breaks) < 80
    assert all(n % 2 == 0 and n < 80 for n, _ in found.breaks)
    for row, fine in zip(labels, found.labels, strict=True):
        assert spans(fine, FILE_SCHEMES[scheme]) == lenient_spans(row)
    again = standard_labels(found.repaired)
    assert (again.scheme, again.breaks, again.labels) == (scheme, [], found.labels)
    assert found.broken(["a:1", "a:2", "a:3"]).endswith("(a:1, a:2, a:3, ...)")


@pytest.mark.parametrize("forced", FILE_SCHEMES)
@pytest.mark.parametrize("scheme", FILE_SCHEMES)
def test_a_scheme_can_be_forced(scheme, forced):
    labels = written(scheme, np.random.default_rng(2), 50)
    found = standard_labels(labels, forced)
    assert found.scheme == forced
    assert (found.breaks == []) == (scheme == forced)
    assert [lenient_spans(row) for row in found.labels] == [lenient_spans(row) for row in labels]
    assert standard_labels(labels, None).labels is labels


def test_iob1_with_labels_that_do_not_separate_spans():
    rows = [["I-NP", "I-NP", "B-NP", "O"], ["O", "I-VP"], ["B-NP", "I-NP", "I-VP"], ["I-NP", "B-VP"]]
    found = standard_labels(rows)
    assert found.scheme == "iob1"
    assert found.breaks == [(2, 0), (3, 1)]
    assert found.labels == [["B-NP", "I-NP", "B-NP", "O"], ["O", "B-VP"], ["B-NP", "I-NP", "B-VP"], ["B-NP", "B-VP"]]


def test_plain_tags_are_left_alone():
    for same in ([["DT", "NN"]], [["O"]], [], [["L-NP", "X"]], [["O", "O"], ["A-B", "X"]]):
        found = standard_labels(same)
        assert (found.labels, found.scheme, found.text, found.breaks) == (same, None, "", [])


@pytest.mark.parametrize(
    ("labels", "read"),
    [
        (["O", "I-A", "I-B"], [("A", 1, 2), ("B", 2, 3)]),  # I after O or another type starts a span
        (["I-A", "E-A", "I-A"], [("A", 0, 2), ("A", 2, 3)]),  # and after an end
        (["B-A", "S-A", "E-A"], [("A", 0, 1), ("A", 1, 2), ("A", 2, 3)]),
        (["B-A", "L-A", "U-B"], [("A", 0, 2), ("B", 2, 3)]),
        (["A", "A", "O", "B"], [("A", 0, 2), ("B", 3, 4)]),
    ],
)
def test_labels_of_any_scheme_are_read_as_conlleval_does(labels, read):
    assert lenient_spans(labels) == read


@pytest.mark.parametrize("name", ["conll2002/esp.testa", "conll2002/ned.testa", "conll2000/test.txt"])
def test_real_labels_converted_to_iob1_are_recognized(data_dir, name):
    text = (data_dir / name).read_text(encoding="utf-8").strip()
    rows = [[line.split()[-1] for line in block.split("\n") if line.strip()] for block in text.split("\n\n")]
    assert standard_labels(rows).scheme == "bio"
    assert len(standard_labels(rows).breaks) <= 1  # as the files are
    rows = [list(row) for row in standard_labels(rows).repaired]
    for scheme in ("iob1", "bilou"):
        other = [_written(lenient_spans(row), len(row), scheme) for row in rows]
        other[5] = ["B-" + label[2:] if label != "O" else label for label in other[5]]
        found = standard_labels(other)
        assert found.scheme == scheme
        assert {n for n, _ in found.breaks} <= {5}
        assert [row for n, row in enumerate(map(lenient_spans, found.labels)) if n != 5] == [
            lenient_spans(row) for n, row in enumerate(rows) if n != 5
        ]
