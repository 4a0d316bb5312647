"""Annotated text of doccano, Prodigy, Label Studio, brat and CSV: read as labeled sentences, and written back."""

import io
import json

import pytest

from trelliswork.data import Corpus
from trelliswork.data.annotations import looks_like_json, read_spans, write_spans
from trelliswork.data.schemes import lenient_spans
from trelliswork.errors import DataError, DataWarning

TEXT = "Alice met Bob. They went to New York!"
SPANS = [[0, 5, "PER"], [10, 13, "PER"], [28, 36, "LOC"]]
LABELS = [["B-PER", "O", "B-PER", "O"], ["O", "O", "O", "B-LOC", "I-LOC", "O"]]
DICTS = [{"start": a, "end": b, "label": kind} for a, b, kind in SPANS]
RESULT = [
    {"value": {"start": a, "end": b, "text": TEXT[a:b], "labels": [kind]}, "type": "labels"} for a, b, kind in SPANS
]
RECORDS = {
    "doccano": {"id": 7, "text": TEXT, "label": SPANS},
    "entities": {"text": TEXT, "entities": [{"start_offset": a, "end_offset": b, "label": k} for a, b, k in SPANS]},
    "prodigy": {"text": TEXT, "meta": {"a": 1}, "spans": DICTS, "answer": "accept"},
    "studio": {"id": 1, "data": {"body": TEXT}, "annotations": [{"result": RESULT}]},
    "minimal": {"text": TEXT, "label": [one["value"] for one in RESULT]},
}


def write(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", RECORDS)
def test_each_tool_is_read(tmp_path, name):
    X, y = read_spans(write(tmp_path / "a.jsonl", RECORDS[name], RECORDS[name]))
    assert y == LABELS * 2
    assert X.sentences(0)[0] == ["Alice", "met", "Bob", "."]
    assert X.located(3) == {
        "text": "They went to New York!", "offset": 15,
        "places": [[15, 19], [20, 24], [25, 27], [28, 31], [32, 36], [36, 37]],
    }  # fmt: skip


@pytest.mark.parametrize("name", RECORDS)
def test_what_is_written_is_read_again(tmp_path, name):
    X, y = read_spans(write(tmp_path / "a.jsonl", RECORDS[name]))
    out = io.StringIO()
    write_spans(X, [lenient_spans(row) for row in y], out)
    record = json.loads(out.getvalue())
    if name == "studio":
        (prediction,) = record.pop("predictions")
        assert [one["value"] for one in prediction["result"]] == [one["value"] for one in RESULT]
        assert record == RECORDS[name]
        return
    kept = {key: value for key, value in RECORDS[name].items() if key not in ("label", "entities", "spans")}
    assert record.items() >= kept.items()
    again, labels = read_spans(write(tmp_path / "b.jsonl", record))
    assert labels == y
    assert again.sentences(0) == X.sentences(0)


def test_json_arrays_and_csv(tmp_path):
    (tmp_path / "tasks.json").write_text(json.dumps([RECORDS["studio"]] * 2, indent=1), encoding="utf-8")
    X, y = read_spans(tmp_path / "tasks.json")
    assert y == LABELS * 2
    assert X.place(2) == f"{tmp_path}/tasks.json: record 2"
    out = io.StringIO()
    write_spans(X, [lenient_spans(row) for row in y], out)
    assert [task["id"] for task in json.loads(out.getvalue())] == [1, 1]
    quoted = json.dumps(SPANS).replace('"', '""')
    (tmp_path / "a.csv").write_text(f'id,text,label\n1,"{TEXT}","{quoted}"\n2,"One\nline.",[]\n', encoding="utf-8")
    X, y = read_spans(tmp_path / "a.csv")
    assert y == [*LABELS, ["O", "O", "O"]]
    out = io.StringIO()
    write_spans(X, [lenient_spans(row) for row in y], out)
    (tmp_path / "b.csv").write_text(out.getvalue(), encoding="utf-8")
    assert read_spans(tmp_path / "b.csv")[1] == y
    assert out.getvalue().startswith("id,text,label\n1,")


def test_brat(tmp_path):
    (tmp_path / "d.txt").write_text(TEXT + "\n", encoding="utf-8")
    lines = [f"T{k}\t{kind} {a} {b}\t{TEXT[a:b]}\n" for k, (a, b, kind) in enumerate(SPANS, start=1)]
    (tmp_path / "d.ann").write_text("".join(lines) + "R1\tX Arg1:T1 Arg2:T2\n#1\tNote T1\tx\n", encoding="utf-8")
    X, y = read_spans(tmp_path / "d.ann")
    assert y == LABELS == read_spans(tmp_path)[1]
    out = io.StringIO()
    write_spans(X, [lenient_spans(row) for row in y], out)
    assert out.getvalue() == "".join(lines)
    (tmp_path / "e.txt").write_text("Bob slept.\n", encoding="utf-8")  # without annotation
    assert read_spans(tmp_path)[1] == LABELS
    X, y = read_spans(tmp_path, labeled=False)
    assert (len(X), X.place(2), Corpus.joined([X, X]).place(5)) == (3, *[f"{tmp_path}/e.txt:1"] * 2)
    (tmp_path / "d.ann").write_text("T1\tPER 0 5;10 13\tAlice Bob\n", encoding="utf-8")
    with pytest.warns(DataWarning, match=r"spans in pieces.*: 1 \(.*d.ann:1\)"):
        assert read_spans(tmp_path / "d.ann")[1][0] == ["B-PER", "I-PER", "I-PER", "O"]


def test_spans_off_the_borders_of_tokens_are_reported_and_kept(tmp_path):
    path = write(tmp_path / "a.jsonl", {"text": TEXT, "label": [[1, 5, "PER"], [28, 34, "LOC"]]})
    with pytest.warns(
        DataWarning, match=r"off the borders of tokens, .*: 2 \(.*a.jsonl:1 'lice', .*a.jsonl:1 'New Yo'\)"
    ):
        assert read_spans(path)[1] == [["B-PER", "O", "O", "O"], LABELS[1]]
    with pytest.raises(DataError, match="strict"):
        read_spans(path, strict=True)
    read_spans(path, labeled=False)  # without a warning
    nested = {"text": TEXT, "label": [[28, 31, "X"], [28, 36, "LOC"], [13, 14, "P"], [14, 15, "Y"]]}
    with pytest.warns(DataWarning) as told:
        assert read_spans(write(path, nested))[1] == [["O", "O", "O", "B-P"], LABELS[1]]
    assert [str(one.message).split(": ", 1)[1].split(" (")[0] for one in told] == [
        "spans without a token, left out: 1",
        "spans that overlap others, which labels cannot represent, left out: 1",
    ]
    assert read_spans(write(path, {"text": TEXT, "label": [[9, 14, "X"]]}))[1][0] == ["O", "O", "B-X", "I-X"]  # blank


def test_a_span_joins_the_sentences_that_it_crosses(tmp_path):
    X, y = read_spans(write(tmp_path / "a.jsonl", {"text": TEXT, "label": [[10, 19, "X"]]}))
    assert len(X) == 1
    assert y[0] == ["O", "O", "B-X", "I-X", "I-X", *"OOOOO"]


def test_tokens_of_a_record_have_priority(tmp_path):
    tokens = [{"text": "New York", "start": 0, "end": 8, "id": 0}, {"text": "!", "start": 8, "end": 9, "id": 1}]
    record = {"text": "New York!", "tokens": tokens, "spans": [{"start": 0, "end": 8, "label": "LOC"}]}
    X, y = read_spans(write(tmp_path / "a.jsonl", record))
    assert (X.sentences(0), y) == ([["New York", "!"]], [["B-LOC", "O"]])


def test_places_in_utf_16(tmp_path):
    text = "😀 Bob"
    value = {"start": 3, "end": 6, "text": "Bob", "labels": ["PER"]}
    X, y = read_spans(write(tmp_path / "a.jsonl", {"text": text, "label": [value]}))
    assert y == [["O", "B-PER"]]
    assert X.located(0)["places"][1] == [2, 5]


def test_rejected_records_and_further_annotators_are_reported(tmp_path):
    other = RECORDS["prodigy"] | {"answer": "reject"}
    twice = RECORDS["studio"] | {"annotations": [{"result": RESULT}, {"result": []}, {"was_cancelled": True}]}
    with pytest.warns(DataWarning) as told:
        assert read_spans(write(tmp_path / "a.jsonl", other, twice))[1] == LABELS
    assert "a.jsonl:1" in str(told[0].message)
    assert "a.jsonl:2" in str(told[1].message)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": 1}', ":1: expected an entry 'text'"),
        ('{"id": 1}', ":1: expected an entry 'text', got the entries id"),
        ('{"text": "a"', ":1: expected a record in JSON"),
        ("3", r":1: expected a record \{...\}, got 3"),
        ('{"text": "ab", "label": [[0, 3, "X"]]}', ":1: the span 0:3 lies outside of its text of 2 characters"),
        ('{"text": "ab", "label": [["0", 3, "X"]]}', ":1: expected a span such as"),
        ('{"text": "ab", "label": [[0, 1]]}', ":1: expected a span such as"),
        ('{"text": "ab"}', "no record has spans"),
        ('{"text": "ab", "spans": [{"start": 0, "end": 1, "label": "X", "text": "b"}]}', "should be 'b', but"),
        ('{"text": "ab", "spans": [], "tokens": [{"start": 0, "end": 9}]}', ":1: a token lies outside"),
        ("", "expected at least one sentence|no sentence|got none"),
    ],
)
def test_errors_name_the_line(tmp_path, line, message):
    (tmp_path / "a.jsonl").write_text(f"{line}\n", encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_spans(tmp_path / "a.jsonl")


def test_csv_needs_a_column_of_text(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"a.csv:1: expected a column named text, got a, b"):
        read_spans(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text('text,label\nab,"[0"\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"a.csv:2: expected a list of spans .* in the column label"):
        read_spans(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("text", "is_json"),
    [
        ('{"text": 1}\n', True), ('[\n {"a": 1}', True), ("[ ( O\n", False), ("the DT\n", False), ("[\n]\n", False),
        ("", False), ("[[0, 1]]\n", True), ("{ -LRB-\n", False),
    ],
)  # fmt: skip
def test_json_is_recognized(tmp_path, text, is_json):
    (tmp_path / "a").write_text(text, encoding="utf-8")
    assert looks_like_json(tmp_path / "a") == is_json
    assert not looks_like_json(tmp_path / "nothing")
