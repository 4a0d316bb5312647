"""Spans in running text on the command line: train, evaluate and tag files of annotation tools, and write them back."""

import csv
import io
import json

import pytest

from tests.commands import run
from trelliswork.data.annotations import read_spans

NAMES, PLACES = ("Ada", "Bob", "Carol"), ("Paris", "New York", "Rome")


def record(n):
    """Return a text of two sentences with four spans."""
    text, spans = "", []
    for k in range(2):
        for name, kind, after in ((NAMES[(n + k) % 3], "PER", " went to "), (PLACES[(n * k) % 3], "LOC", ". ")):
            spans.append([len(text), len(text) + len(name), kind])
            text += name + after
    return {"id": n, "text": text.strip(), "label": spans}


def lines(records):
    return "".join(json.dumps(one) + "\n" for one in records)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spans")
    (folder / "train.jsonl").write_text(lines(map(record, range(12))), encoding="utf-8")
    done = run("train", "crf", "train.jsonl", "--features", "ner", "--l2", "0.1", "-q", "-o", "ner", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_tagger_finds_the_spans_again(folder):
    result = run("evaluate", "ner", "train.jsonl", "--json", cwd=folder)
    assert json.loads(result.stdout)["accuracy"] == 1.0, result.stderr
    assert [json.loads(line) for line in run("tag", "ner", "train.jsonl", cwd=folder).stdout.splitlines()] == [
        *map(record, range(12))
    ]


def test_a_pipe_and_a_file_of_json_lines_by_another_name(folder):
    text = json.dumps({"text": "Ada slept. Bob went to New York."}) + "\n"
    expected = {"text": "Ada slept. Bob went to New York.", "spans": [
        {"start": 0, "end": 3, "label": "PER"}, {"start": 11, "end": 14, "label": "PER"},
        {"start": 23, "end": 31, "label": "LOC"}]}  # fmt: skip
    assert json.loads(run("tag", "ner", cwd=folder, input=text).stdout) == expected
    (folder / "other.txt").write_text((folder / "train.jsonl").read_text("utf-8"), encoding="utf-8")
    assert run("train", "hmm", "other.txt", "-q", "-o", "hmm", cwd=folder).returncode == 0


def test_other_formats_for_the_same_model(folder):
    records = [*map(record, range(3))]
    tasks = [
        {"data": {"text": one["text"]}, "annotations": [{"result": [
            {"type": "labels", "value": {"start": a, "end": b, "labels": [kind]}} for a, b, kind in one["label"]]}]}
        for one in records
    ]  # fmt: skip
    (folder / "tasks.json").write_text(json.dumps(tasks, indent=1), encoding="utf-8")
    written = json.loads(run("tag", "ner", "tasks.json", cwd=folder).stdout)  # an array, as it was
    assert [len(task["predictions"]) for task in written] == [1, 1, 1]
    (folder / "a.csv").write_text("text\n" + "".join(f"{one['text']}\n" for one in records), encoding="utf-8")
    assert run("tag", "ner", "a.csv", "-o", "b.csv", cwd=folder).returncode == 0
    (folder / "d.txt").write_text(records[0]["text"] + "\n", encoding="utf-8")
    (folder / "d.ann").write_text("", encoding="utf-8")
    assert run("tag", "ner", "d.ann", "-o", "out/", cwd=folder).returncode == 0
    (folder / "out" / "d.txt").write_text(records[0]["text"] + "\n", encoding="utf-8")
    assert read_spans(folder / "out" / "d.ann")[1] == read_spans(folder / "tasks.json")[1][:2]
    result = run("evaluate", "ner", "tasks.json", "train.jsonl", "--format", "jsonl", "--json", cwd=folder)
    assert json.loads(result.stdout)["accuracy"] == 1.0, result.stderr
    assert run("tag", "ner", "--bundled", cwd=folder).stdout.startswith("It PRP B-NP ")


def test_a_folder_of_brat(folder):
    (folder / "brat").mkdir()
    for n in range(2):
        (folder / "brat" / f"{n}.txt").write_text(record(n)["text"] + "\n", encoding="utf-8")
    (folder / "brat" / "0.ann").write_text("", encoding="utf-8")
    for name in ("brat", "brat/0.txt"):
        done = run("tag", "ner", name, "--format", "brat", "-o", "found/", cwd=folder)
        assert done.returncode == 0, done.stderr
    found = [(folder / "found" / f"{n}.ann").read_text("utf-8").splitlines() for n in range(2)]
    expected = [record(n)["label"] for n in range(2)]
    assert [[row.split("\t")[1] for row in rows] for rows in found] == [
        [f"{kind} {a} {b}" for a, b, kind in rows] for rows in expected
    ]


def test_spans_off_the_borders_are_told(folder):
    (folder / "bad.jsonl").write_text(lines([{"text": "Ada slept.", "label": [[1, 3, "PER"]]}]), encoding="utf-8")
    options = ("train", "crf", "bad.jsonl", "--max-iter", "1", "-q", "-o", "bad", "--force")
    result = run(*options, cwd=folder)
    assert result.returncode == 0
    assert "spans off the borders of tokens, widened to whole tokens: 1 (bad.jsonl:1 'da')" in result.stderr
    result = run(*options, "--strict", cwd=folder)
    assert result.returncode == 1
    assert "leave strict out" in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("train", "crf", "train.jsonl", "--label", "1"),
            "jsonl has no columns: leave --columns, --label",
        ),
        (
            ("train", "factorial-crf", "train.jsonl", "--layers", "a,b"),
            "a column or CoNLL-U file, not a jsonl file",
        ),
        (("tag", "ner", "train.jsonl", "--known", "1"), "--known names a column, which a file of this format (jsonl)"),
        (("evaluate", "ner", "train.jsonl", "--label", "1"), "jsonl has no columns: leave --columns, --label"),
        (("evaluate", "ner", "none.jsonl"), "none.jsonl: no such file"),
        (("train", "crf", "train.jsonl", "other.conllu"), "have different formats by their names"),
    ],
)
def test_errors(folder, words, message):
    result = run(*words, cwd=folder)
    assert result.returncode == 1
    assert message in " ".join(result.stderr.split())


def test_errors_of_training_name_the_line(folder):
    (folder / "long.jsonl").write_text(lines([record(1), {"text": "x", "label": [[0, 4, "X"]]}]), encoding="utf-8")
    assert "long.jsonl:2: the span 0:4 lies outside" in run("train", "crf", "long.jsonl", "-o", "x", cwd=folder).stderr


def test_spans_with_probabilities_and_other_forms(folder):
    text = json.dumps({"text": "Ada slept. Bob went to New York."}) + "\n"
    (row,) = map(json.loads, run("tag", "ner", "--with", "spans", cwd=folder, input=text).stdout.splitlines())
    assert [one["label"] for one in row["spans"]] == ["PER", "PER", "LOC"]
    assert all(0.5 < one["probability"] <= 1 for one in row["spans"])
    done = run("tag", "ner", "--with", "spans", "--output", "jsonl", cwd=folder, input=text)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["text"] for one in rows] == ["Ada slept.", "Bob went to New York."]
    found = [(one["start"], one["end"], one["probability"]) for sentence in rows for one in sentence["spans"]]
    assert found == [(one["start"], one["end"], one["probability"]) for one in row["spans"]]
    table = run("tag", "ner", "--with", "marginals", "--output", "columns", cwd=folder, input=text).stdout
    assert table.splitlines()[0].split("\t")[:2] == ["Ada", "B-PER"]
    refused = run("tag", "ner", "--with", "marginals", cwd=folder, input=text)
    assert refused.returncode == 2
    assert "--output jsonl" in refused.stderr


def test_tables_are_read_in_parts(folder, monkeypatch):
    """Rows have line ends in quotes, where parts of the file end, too; messages count the lines of the file."""
    from trelliswork import data

    sizes = []

    def reading(part, **options):
        sizes.append(len(part.text))
        return read_spans(part, **options)

    monkeypatch.setattr(data, "read_spans", reading, raising=False)
    texts = [record(n)["text"].replace(". ", f'.\n\n"{n}" ', 1) for n in range(1500)]
    (folder / "many.jsonl").write_text(lines({"text": text} for text in texts), encoding="utf-8")
    rows = io.StringIO()
    table = csv.writer(rows, lineterminator="\n")
    table.writerows([("n", "text"), *enumerate(texts)])
    (folder / "many.csv").write_text(rows.getvalue(), encoding="utf-8")
    done = run("tag", "ner", "many.csv", cwd=folder)
    assert len(sizes) > 3, done.stderr
    assert max(sizes) < len(rows.getvalue()) / 2
    found = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["text"] for row in found] == texts
    expected = [json.loads(row)["spans"] for row in run("tag", "ner", "many.jsonl", cwd=folder).stdout.splitlines()]
    assert [json.loads(row["spans"]) for row in found] == expected
    table.writerow(("x", "Ada", "[0,"))
    n_lines = rows.getvalue().count("\n")
    bad = rows.getvalue().replace("n,text\n", "n,text,label\n")
    (folder / "bad.csv").write_text(bad, encoding="utf-8")
    assert f"bad.csv:{n_lines}: expected a list of spans" in run("tag", "ner", "bad.csv", cwd=folder).stderr
