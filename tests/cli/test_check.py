"""``trelliswork check``: what labeled files hold, what is odd, and what development data has that training has not."""

import json

import pytest

from tests.commands import run

TRAIN = "Ada B-PER\nwrote O\n. O\n\nBob I-PER\nslept O\n. O\n\nNew B-LOC\nYork I-LOC\n\nBob B-PER\nslept O\n. O\n"
DEV = "Ada B-PER\nwrote O\n. O\n\nRome\ufffd B-LOC\nslept B-Loc\n\n" + "the O\n" * 251


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.txt").write_text(TRAIN, encoding="utf-8")
    (tmp_path / "dev.txt").write_text(DEV, encoding="utf-8")
    return tmp_path


def files(folder, *words):
    result = run("check", *words, "--json", cwd=folder)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)["files"]


def test_json_has_every_place(folder):
    train, dev = files(folder, "train.txt", "dev.txt")
    assert (train["sentences"], train["tokens"], train["words"], train["scheme"]) == (4, 11, 7, "bio")
    assert train["labels"] == {"O": 6, "B-PER": 2, "I-PER": 1, "B-LOC": 1, "I-LOC": 1}
    assert train["scheme_errors"] == [{"place": "train.txt:5", "label": "I-PER", "expected": "B-PER"}]
    assert train["suspicious"] == [{"place": "train.txt:12", "what": "the sentence of train.txt:5 with other labels"}]
    assert dev["duplicates"] == [{"place": "dev.txt:1", "of": "train.txt:1"}]
    assert dev["unseen_words"] == {"the": 251, "Rome\ufffd": 1}
    assert dev["unseen_tokens"] == 252
    assert dev["unseen_labels"] == {"B-Loc": 1}
    assert [one["place"] for one in dev["suspicious"]] == ["dev.txt:5", "dev.txt:5", "dev.txt:6", "dev.txt:8"]


def test_text_has_the_first_places(folder):
    text = run("check", "train.txt", "dev.txt", cwd=folder).stdout
    assert "train.txt: 4 sentences, 11 tokens, 7 different words\n  5 labels: O 6, B-PER 2" in text
    assert "  labels that break the scheme: 1: train.txt:5 I-PER, expected B-PER" in text
    assert "  not in train.txt: 98.4% of the tokens, such as the, Rome" in text
    assert "  1 sentence also in train.txt: dev.txt:1 = train.txt:1" in text


def test_other_formats(folder):
    record = {"text": "Ada wrote.", "label": [[0, 3, "PER"]]}
    (folder / "a.jsonl").write_text(json.dumps(record) + "\n", encoding="utf-8")
    assert files(folder, "a.jsonl")[0]["labels"] == {"O": 2, "B-PER": 1}
    (folder / "a.conllu").write_text("1\ta\ta\tNN\tNN\t_\t0\troot\t_\t_\n\n", encoding="utf-8")
    (file,) = files(folder, "a.conllu")
    assert (file["labels"], file["scheme"]) == ({"NN": 1}, None)
    assert files(folder, "bundled:dev")[0]["scheme"] == "bio"
    (folder / "a.crfsuite").write_text("X\tw\n", encoding="utf-8")
    assert "has no words" in run("check", "a.crfsuite", "--format", "crfsuite", cwd=folder).stderr
    assert "none.txt: no such file" in run("check", "none.txt", cwd=folder).stderr
