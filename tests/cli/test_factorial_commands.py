"""train factorial-crf, tag, evaluate, inspect: several layers in columns and CoNLL-U."""

import json
from pathlib import Path

import pytest

from tests.commands import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("factorial")
    for name, extension in (("columns", "txt"), ("conllu", "conllu")):
        text = run("data", "bundled", "--limit", "200", "--format", name).stdout
        (folder / f"train.{extension}").write_text(text)
    return folder


@pytest.fixture(scope="module")
def joint(folder) -> Path:
    done = run(
        "train", "factorial-crf", str(folder / "train.txt"), "--tol", "1e-3", "-o", str(folder / "joint"), "--json"
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["sentences"] == 200
    assert list(outcome["labels"]) == ["pos", "chunk"]
    assert outcome["converged"]
    return folder / "joint"


def test_evaluate_and_tag_agree(folder, joint):
    report = json.loads(run("evaluate", str(joint), "--bundled", "--json").stdout)
    assert 0.8 < report["joint_accuracy"] < 1
    assert report["joint_accuracy"] <= report["layers"]["pos"]["accuracy"]
    assert report["layers"]["chunk"]["chunks"]["f1"] > 0.7
    text = run("data", "bundled", "--split", "test", "--format", "columns").stdout
    (folder / "test.txt").write_text(text)
    tagged = run("tag", str(joint), str(folder / "test.txt"), "--with", "marginals").stdout
    rows = [line.split() for line in tagged.splitlines() if line]
    accuracy = sum(row[1] == row[3] and row[2] == row[4] for row in rows) / len(rows)
    assert accuracy == pytest.approx(report["joint_accuracy"])
    assert all(0 < float(p) <= 1 for row in rows for p in row[5:7])
    assert "joint accuracy of" in run("evaluate", str(joint), str(folder / "test.txt")).stdout


def test_plain_text_and_known_labels(joint):
    tagged = run("tag", str(joint), "--format", "text", input="They saw her duck .\n").stdout
    assert tagged.splitlines()[0].split("\t")[0::2] == ["They", "B-NP"]
    given = run("tag", str(joint), "--known", "pos=1", input="her PRP\nduck VB\n").stdout
    assert [line.split()[2] for line in given.splitlines() if line] == ["PRP", "VB"]
    for known, message in (("1", "--known must be LAYER=COLUMN"), ("ner=1", "of pos, chunk")):
        done = run("tag", str(joint), "--known", known, input="her PRP\n")
        assert done.returncode == 2
        assert message in done.stderr.replace("\n", " ").replace("│", "").replace("  ", " ")
    failed = run("tag", str(joint), "--known", "pos=1", input="her XYZ\n")
    assert "'XYZ' is given, but the model has no such label: NN, DT" in failed.stderr


def test_inspect(joint):
    shown = json.loads(run("inspect", str(joint), "--json", "--n", "3").stdout)
    assert set(shown["labels"]) == {"pos", "chunk"}
    assert len(shown["top_ties"]) == 3
    text = run("inspect", str(joint), "--label", "B-NP", "--n", "2").stdout
    assert "Layer chunk" in text
    assert "Layer pos" not in text
    assert run("inspect", str(joint), "--label", "nothing").returncode == 2


def test_tagging_conllu_replaces_columns(folder):
    file, model = str(folder / "train.conllu"), str(folder / "two")
    done = run("train", "factorial-crf", file, "--layers", "upos,xpos", "--tol", "1e-2", "-o", model)
    assert done.returncode == 0, done.stderr
    assert "14 upos labels" in done.stdout
    tagged = run("tag", model, file).stdout.splitlines()
    lines = (folder / "train.conllu").read_text().splitlines()
    same = [a == b for a, b in zip(lines, tagged, strict=True) if not a.startswith("#") and a]
    assert sum(same) / len(same) > 0.9
    assert [line for line in tagged if line.startswith("#")] == [line for line in lines if line.startswith("#")]
    assert "joint accuracy" in run("evaluate", model, file).stdout


def test_bundled_corpus_dev_and_other_columns(folder):
    done = run(
        "train", "factorial-crf", str(folder / "train.txt"), "--layers", "chunk,pos", "--label", "2,1",
        "--columns", "0", "--dev", "bundled:dev", "--patience", "2", "--engine", "bp", "-o", str(folder / "dev"),
        "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["dev"] > 0.8
    assert outcome["labels"]["pos"] > outcome["labels"]["chunk"]
    swapped = run("evaluate", str(folder / "dev"), "--bundled", "--label", "1,2", "--json")
    assert json.loads(swapped.stdout)["joint_accuracy"] == 0


def test_error_messages(folder, joint, tmp_path):
    (tmp_path / "two.txt").write_text("a B\nc D\n")
    cases = (
        (("train", "factorial-crf", str(tmp_path / "two.txt")), 1, "only 2 columns: expected words and 2 layers"),
        (("train", "factorial-crf", str(folder / "train.txt"), "--label", "1"), 1, "a column for each of the layers"),
        (("train", "factorial-crf", str(tmp_path / "x.raw")), 1, "layers of labels need a column or CoNLL-U file"),
        (("train", "factorial-crf", str(folder / "train.txt"), "--label", "1,7"), 1, "no column 7"),
        (("tag", str(joint), "--with", "topk=3", str(folder / "train.txt")), 2, "needs a model with one layer"),
        (("tag", str(joint), "--beam", "size=3", str(folder / "train.txt")), 2, "has no beam"),
    )
    for command, code, message in cases:
        done = run(*command)
        assert done.returncode == code, (command, done.stderr)
        assert message in " ".join(done.stderr.replace("│", " ").split()), done.stderr


def test_layers_in_iob1_are_converted(tmp_path):
    rows = ["The DT I-NP", "dog NN I-NP", "barks VB I-VP", "", "He PR I-NP", "cats NN B-NP", "yes UH O", ""] * 3
    (tmp_path / "iob1.txt").write_text("\n".join(rows))
    done = run("train", "factorial-crf", tmp_path / "iob1.txt", "--max-iter", 3, "--out", tmp_path / "m", "--quiet")
    assert done.returncode == 0, done.stderr
    assert "the labels are in IOB1 and were converted to BIO (IOB2)" in " ".join(done.stderr.split())
    tagged = run("tag", tmp_path / "m", tmp_path / "iob1.txt").stdout
    assert {line.split()[4] for line in tagged.splitlines() if line} <= {"B-NP", "I-NP", "B-VP", "O"}
