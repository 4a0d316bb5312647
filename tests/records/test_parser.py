"""Texts to fields: readers, tokens, probabilities, rules, calibration, broken input."""

import itertools

import numpy as np
import pytest

from trelliswork import CRF
from trelliswork.data.schemes import Span
from trelliswork.errors import DataError, DataWarning, NotFittedError, ValueRangeError
from trelliswork.integrations.frames import parse_frame
from trelliswork.records import Example, RecordParser, read_records
from trelliswork.records.tokens import TOKENS, token_spans, tokenizer
from trelliswork.rules import AtMostOnce

STREETS, CITIES = ("Oak St", "Elm Street", "N. Park Ave", "Main Rd"), ("Salem", "Oak Park", "St. Paul", "Troy")


def address(number, street, city):
    text = f"{number} {street}, {city} {10000 + number}"
    at, end = len(str(number)) + 1, len(f"{number} {street}, {city}")
    spans = [Span("number", 0, at - 1), Span("street", at, at + len(street)), Span("city", end - len(city), end)]
    return Example(text, [*spans, Span("zip", end + 1, len(text))])


EXAMPLES = [address(7 * k + 1, s, c) for k, (s, c) in enumerate(itertools.product(STREETS, CITIES))]


@pytest.fixture(scope="module")
def parser():
    return RecordParser(rules="once", l2=0.1).fit(EXAMPLES)


def test_fields_have_their_place_and_probability(parser):
    record = parser.parse("(12 Elm Street, Troy 10012)")
    assert record.values == {"number": "(12", "street": "Elm Street", "city": "Troy", "zip": "10012)"}
    for field in record.fields:
        assert record.text[field.start : field.stop] == field.text
        assert record.probability <= field.probability <= 1
    assert parser.rules_ == AtMostOnce("number", "street", "city", "zip")


@pytest.mark.parametrize("touching", [False, True])
def test_probabilities_are_sums_over_all_labelings(touching):
    """Of a field: of the labelings with it; of the record: of the best labeling."""
    examples = [Example("a b", [Span("x", 0, 1), Span("x" if touching else "y", 2, 3)]), Example("b a", [])]
    parser = RecordParser(tokens="blanks", l2=1.0).fit([*examples, Example("a a b", [Span("x", 0, 3)])])
    model, words = parser.model_, ["a", "b", "a"]
    every = {y: np.exp(model.log_prob([words], [list(y)])[0]) for y in itertools.product(model.labels_, repeat=3)}
    assert sum(every.values()) == pytest.approx(1, abs=1e-5)
    record = parser.parse("a b a")
    assert record.probability == pytest.approx(max(every.values()), rel=1e-4)
    for field in record.fields:
        p = 0.0
        for y, of_y in every.items():
            spans, joins, kinds = [], parser._kinds.joins, parser._kinds.kinds
            ids = [model.labels_.index(label) for label in y]
            edges = [t for t in range(4) if t in (0, 3) or not joins[ids[t - 1], ids[t]]]
            spans = [(parser.fields_[kinds[ids[a]]], a, b) for a, b in itertools.pairwise(edges) if kinds[ids[a]] >= 0]
            p += of_y * ((field.name, field.start // 2, field.stop // 2 + 1) in spans)
        assert field.probability == pytest.approx(p, rel=1e-3, abs=1e-6)


def test_rules_remove_repeated_fields(parser):
    text = "5 Oak St, Salem 10005 Elm Street, Troy"
    free = RecordParser(l2=0.1).fit(EXAMPLES).parse(text)
    assert len({field.name for field in free.fields}) < len(free.fields)
    assert " | " in "".join(free.values.values())
    ruled = parser.parse(text, rules_probability=True)
    assert len({field.name for field in ruled.fields}) == len(ruled.fields)
    expected = parser.model_.rules_probability([text.replace(",", ",").split()], parser.rules_)[0]
    assert ruled.rules_probability == pytest.approx(expected, rel=1e-4)
    assert ruled.probability <= ruled.rules_probability < 1
    assert parser.parse(text).rules_probability == 1


def test_frames_get_columns(parser):
    pd = pytest.importorskip("pandas")
    texts = ["12 Oak St, Troy 10012", None, "1 Elm Street, Salem 10001"]
    frame = parse_frame(parser, pd.DataFrame({"id": [1, 2, 3], "a": texts}, index=[5, 6, 7]), "a", prefix="x_")
    assert frame.index.tolist() == [5, 6, 7]
    assert frame["x_street"].fillna("").tolist() == ["Oak St", "", "Elm Street"]
    assert frame["x_problem"].tolist() == ["", "no text", ""]
    assert frame["x_probability"].dtype == float
    assert list(parse_frame(parser, pd.DataFrame({"a": []}), "a").columns)[-2:] == ["probability", "problem"]
    with pytest.raises(DataError, match="no column 'b'"):
        parse_frame(parser, frame, "b")
    with pytest.raises(ValueRangeError, match="prefix"):
        parse_frame(parser, frame, "a", prefix="x_")


def test_arrow_tables_get_columns(parser):
    pa = pytest.importorskip("pyarrow")
    texts = ["12 Oak St, Troy 10012", None]
    for kind in (pa.table, pa.RecordBatch.from_pydict):
        found = parse_frame(parser, kind({"a": texts}), "a", rules_probability=True)
        assert found.column("street").to_pylist() == ["Oak St", None]
        assert 0 < found.column("rules_probability").to_pylist()[0] <= 1


def test_what_is_no_record_has_a_problem_and_its_place(parser):
    texts = ["12 Oak St, Troy 10012", "", None, " \n\t", 7, "x " * 60_000, float("nan"), "1 Elm Street, Salem 10001"]
    records = parser.parse(texts)
    assert [record.text for record in records][:5] == texts[:5]
    assert [r.problem for r in records] == [
        "", "empty", "no text", "empty", "no text", "longer than 100,000 characters", "no text", "",
    ]  # fmt: skip
    assert [bool(r.fields) for r in records] == [not r.problem for r in records]
    assert np.isnan(records[1].probability)
    assert records[0] == parser.parse(texts[0])
    assert parser.parse([]) == []
    assert parser.parse([None])[0].problem


def test_a_saved_parser_gives_the_same_records(parser, tmp_path):
    texts = [example.text for example in EXAMPLES]
    parser.calibrate(EXAMPLES[:8]).save(tmp_path / "model")
    again = RecordParser.load(tmp_path / "model")
    assert again.parse(texts) == parser.parse(texts)
    assert (again.tokens, again.rules_, again.fields_) == (parser.tokens, parser.rules_, parser.fields_)
    CRF("pos", max_iter=2).fit([["a"]], [["b"]]).save(tmp_path / "other")
    with pytest.raises(DataError, match="records train"):
        RecordParser.load(tmp_path / "other")
    with pytest.raises(NotFittedError):
        RecordParser().parse("a")


def test_evaluation(parser):
    report = parser.evaluate(EXAMPLES)
    assert report.accuracy == 1
    assert report.fields.f1 == report.by_name["street"].f1 == 1
    assert (report.repeated, report.confidence.n_answers, report.record_confidence.n_answers) == (0, 64, 16)
    assert "street" in report.summary()
    assert report.to_dict()["by_name"]["city"]["support"] == 16
    wrong = parser.evaluate([Example(e.text, e.spans[:2]) for e in EXAMPLES])
    assert (wrong.accuracy, wrong.fields.precision, wrong.fields.recall) == (0, 0.5, 1)


@pytest.mark.parametrize("name", sorted(TOKENS))
def test_tokens_cover_all_but_white_space(name):
    split = tokenizer(name)
    for text in ("12 Oak St., Apt #4 (rear),Troy", ",;) ((a", "#&#", "((" * 5, "é_ü\u00a0x", ""):
        covered = {k for a, b in split(text) for k in range(a, b)}
        assert covered == {k for k, c in enumerate(text) if not c.isspace()}
    assert len(split("(" * 100_000)) > 0  # in linear time
    with pytest.raises(ValueRangeError, match="regular expression"):
        tokenizer("[")
    with pytest.raises(ValueRangeError, match="empty text"):
        tokenizer("a*")


def test_fields_that_end_within_a_token_are_moved():
    split = tokenizer("words")
    with pytest.warns(DataWarning, match="2 fields"):
        found = token_spans([Example("ab cd", [Span("x", 0, 1), Span("y", 4, 5)])], [split("ab cd")])
    assert found == [[Span("x", 0, 1), Span("y", 1, 2)]]
    assert token_spans([Example("ab, cd", [Span("x", 0, 2)])], [split("ab, cd")]) == [[Span("x", 0, 1)]]


def test_xml_of_words_and_of_fields(tmp_path):
    words = "<A><S><N>12</N> <T>Oak</T> <T>St,</T>\n <C>Troy</C></S><S><C>Troy&amp;\n</C>\n</S></A>"
    (tmp_path / "words.xml").write_text(words)
    assert read_records(tmp_path / "words.xml") == [
        Example("12 Oak St, Troy", [Span("N", 0, 2), Span("T", 3, 10), Span("C", 11, 15)]),
        Example("Troy&", [Span("C", 0, 5)]),
    ]
    fields = "<d>\n <sequence>\n  <a>A. B,</a>\n  <a>C. D.</a>\n  <t>The  end</t></sequence></d>"
    (tmp_path / "fields.xml").write_text(fields)
    (record,) = read_records(tmp_path / "fields.xml")
    assert record == Example("A. B, C. D. The end", [Span("a", 0, 5), Span("a", 6, 11), Span("t", 12, 19)])
    parser = RecordParser(l2=0.1).fit([record])
    assert parser.model_._learned.scheme == "bio"
    assert [field.text for field in parser.parse("A. B, C. D. The end").fields] == ["A. B", "C. D.", "The end"]


def test_spans_in_json_lines(tmp_path):
    (tmp_path / "some.jsonl").write_text('{"text": "12 Oak", "label": [[3, 6, "street"], [0, 2, "number"]]}\n')
    assert read_records(tmp_path / "some.jsonl") == [Example("12 Oak", [Span("number", 0, 2), Span("street", 3, 6)])]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<A><S><N>1</N></A>", "broken.xml:1: broken XML at character 17: mismatched tag"),
        ("<A>\n<S><N>1", "broken.xml:2: broken XML"),
        ("<A><S/></A>", "expected records"),
        ("<A><S><N>1 <B>2</B></N></S></A>", "record 1: expected fields without elements inside, got <B>"),
    ],
)
def test_broken_xml_is_an_error_with_its_place(tmp_path, text, message):
    (tmp_path / "broken.xml").write_text(text)
    with pytest.raises(DataError, match=message):
        read_records(tmp_path / "broken.xml")


@pytest.mark.slow  # trains on real data
@pytest.mark.parametrize("name", ["usaddress", "probablepeople", "anystyle"])
def test_rules_lose_no_accuracy_on_real_records(data_dir, name):
    files = {"usaddress": "train.xml", "probablepeople": "person.xml", "anystyle": "core.xml"}
    examples = [e for e in read_records(data_dir / "records" / name / files[name]) if e.text]
    train, test = [e for k, e in enumerate(examples) if k % 5], examples[::5]
    free, ruled = (RecordParser(rules=rules).fit(train) for rules in (None, "once"))
    names = set(ruled.rules_.names if ruled.rules_ is not None else ())
    for record in ruled.parse([e.text for e in test]):
        found = [field.name for field in record.fields if field.name in names]
        assert len(found) == len(set(found))
    true = []  # of the records that satisfy the rules: a field that training never repeats may be repeated later
    for example in test:
        found = [span.type for span in example.spans if span.type in names]
        true += [example] * (len(found) == len(set(found)))
    before, after = (p.evaluate(true).accuracy for p in (free, ruled))
    print(f"{name}: {len(true)} of {len(test)} satisfy the rules; accuracy of records {before:.4f}, ruled {after:.4f}")
    assert len(true) >= 0.99 * len(test)
    assert after >= before
