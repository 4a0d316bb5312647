"""data count, train kneser-ney, log-bilinear and mrf-tagger, and queries of these models."""

import gzip
import json
import math
from pathlib import Path

import pytest

from tests.commands import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("language-models")
    for part, name in (("train", "train.txt"), ("dev", "dev.txt")):
        text = run("data", "bundled", "--split", part, "--limit", "200", "--format", "text").stdout
        (folder / name).write_text(text)
    (folder / "tagged.txt").write_text(run("data", "bundled", "--limit", "120", "--format", "columns").stdout)
    return folder


def test_counting_and_merging(folder):
    done = run("data", "count", str(folder / "train.txt"), "--min-count", "2", "-o", str(folder / "c"), "--json")
    assert done.returncode == 0, done.stderr
    train = json.loads(done.stdout)
    words = [line.split() for line in (folder / "train.txt").read_text().splitlines()]
    assert train["sentences"] == 200
    assert train["tokens"] == sum(map(len, words))
    assert train["positions"] == train["tokens"] + 2 * 200
    (folder / "shards").mkdir()
    (folder / "shards" / "1.gz").write_bytes(gzip.compress((folder / "dev.txt").read_bytes()))
    done = run(
        "data", "count", str(folder / "shards"), "--vocabulary", str(folder / "c"), "-o", str(folder / "d"), "--json"
    )
    dev = json.loads(done.stdout)
    assert dev["words"] == train["words"]
    done = run(
        "data", "count", "--merge", str(folder / "c"), "--merge", str(folder / "d"), "-o", str(folder / "e"), "--json"
    )
    both = json.loads(done.stdout)
    assert both["tokens"] == train["tokens"] + dev["tokens"]
    done = run("data", "count", str(folder / "dev.txt"), "--merge", str(folder / "c"), "-o", str(folder / "f"))
    assert f"{both['pairs']:,} distinct pairs" in done.stdout


def test_errors_of_counting(folder):
    assert run("data", "count").returncode == 2
    text = str(folder / "train.txt")
    for option in (["--window", "5"], ["--max-words", "3"], ["--min-count", "3"], ["--vocabulary", "x"]):
        done = run("data", "count", text, "--merge", "y", *option)
        assert done.returncode == 2
        assert "--merge defines" in done.stderr
        assert option[0] in done.stderr
    assert run("data", "count", "--merge", "y", "--memory", "5").returncode == 2
    assert run("data", "count", text, "--vocabulary", "x", "--min-count", "2").returncode == 2
    done = run("data", "count", "nowhere.txt")
    assert done.returncode == 1
    assert done.stderr == "error: nowhere.txt: no such file or directory. Check the path.\n"


def test_left_to_right_models(folder):
    for command in (["kneser-ney", "--order", "3"], ["log-bilinear", "--rank", "4", "--max-iter", "2"]):
        model = str(folder / command[0])
        texts = [str(folder / "train.txt"), "--dev", str(folder / "dev.txt")]
        done = run("train", *command, *texts, "--min-count", "2", "-o", model, "--json")
        assert done.returncode == 0, done.stderr
        perplexity = dev_perplexity(json.loads(done.stdout))
        scored = json.loads(run("score", model, str(folder / "dev.txt"), "--format", "text", "--json").stdout)
        assert scored["perplexity"] == pytest.approx(perplexity, rel=1e-5)
        assert scored["kind"] == "exact"
        assert json.loads(run("inspect", model, "--json").stdout)["words"] > 100
        assert len(run("sample", model, "-n", "2").stdout.splitlines()) == 2
        (words,) = json.loads(run("fill", model, "They saw ___ .", "-n", "3", "--json").stdout)
        assert len(words) == 3
        assert run("inspect", model, "--label", "a").returncode == 2
        assert run("tag", model, str(folder / "dev.txt")).returncode == 1


def test_unknown_words_are_no_error_by_default(folder, tmp_path):
    """The development text has words that the training text lacks; both are read with default settings."""
    train, dev = str(folder / "train.txt"), str(folder / "dev.txt")
    texts, counts = (train, "--dev", dev, "--quiet"), str(tmp_path / "counts")
    for kind, *options in (
        ("kneser-ney",),
        ("log-bilinear", "--rank", "2", "--max-iter", "1"),
        ("mrf-lm", "--rank", "2"),
    ):
        options += ["--max-iter", "2"] if kind == "mrf-lm" else []
        model = str(tmp_path / kind)
        done = run("train", kind, *texts, *options, "-o", model, "--json")
        assert done.returncode == 0, done.stderr
        words = json.loads(done.stdout)["words"]
        assert json.loads(run("score", model, dev, "--json").stdout)["perplexity"] < 3000
        strict = run("train", kind, *texts, *options, "--unknown", "error", "-o", str(tmp_path / "strict"))
        assert strict.returncode == 1
        assert "dev.txt:" in strict.stderr
        assert "is not in the vocabulary" in strict.stderr
    done = run("data", "count", train, "-o", counts, "--json")
    assert json.loads(done.stdout)["words"] == words  # as train mrf-lm counts them: with <unk>, without <s>
    assert run("data", "count", train, "-o", counts).returncode == 2
    again = ("-o", counts, "--force")
    assert f"{words:,} different words" in run("data", "count", train, *again).stdout
    assert run("data", "count", dev, "--vocabulary", counts, "-o", str(tmp_path / "dev")).returncode == 0
    assert run("data", "count", train, "--unknown", "error", *again).returncode == 0
    assert run("data", "count", dev, "--vocabulary", counts, "-o", str(tmp_path / "dev"), "--force").returncode == 1
    assert (
        run("data", "count", dev, "--vocabulary", counts, "--unknown", "error", "-o", str(tmp_path / "dev")).returncode
        == 2
    )


def test_text_without_tokenization_is_noticed(folder, tmp_path):
    raw, tokenized = "They saw the duck.\nThey saw her.\n", "They saw the duck .\nThey saw her .\n"
    message = "of the words end in punctuation and are unknown to the model, such as 'duck.'"
    model = str(tmp_path / "m")
    assert run("train", "kneser-ney", str(folder / "train.txt"), "-o", model, "--quiet").returncode == 0
    (tmp_path / "raw.txt").write_text(raw)
    (tmp_path / "tokenized.txt").write_text(tokenized)
    assert f"warning: {tmp_path / 'raw.txt'}: 29% {message}" in run("score", model, str(tmp_path / "raw.txt")).stderr
    assert "warning" not in run("score", model, str(tmp_path / "tokenized.txt")).stderr
    assert run("train", "kneser-ney", str(tmp_path / "raw.txt"), "-o", model, "-q", "--force").returncode == 0
    assert "warning" not in run("score", model, str(tmp_path / "raw.txt")).stderr  # as in the training text
    tagger = str(tmp_path / "tagger")
    assert run("train", "hmm", str(folder / "tagged.txt"), "--label", "1", "-o", tagger, "--quiet").returncode == 0
    for text, noticed in ((raw, True), (tokenized, False)):
        done = run("tag", tagger, "--format", "text", input=text)
        assert (message in done.stderr) == noticed, done.stderr


def dev_perplexity(outcome: dict) -> float:
    """Return the perplexity of the development text in the result of a training command."""
    return outcome["dev_perplexity"] if outcome["kind"] == "kneser-ney" else math.exp(-outcome["dev"])


def test_the_bundled_corpus(tmp_path):
    options = ["--bundled", "--min-count", "2", "--dev", "bundled:dev", "--quiet", "--json", "-o"]
    for command in (["kneser-ney", "--order", "2"], ["log-bilinear", "--rank", "2", "--max-iter", "1"]):
        outcome = json.loads(run("train", *command, *options, str(tmp_path / command[0])).stdout)
        assert outcome["words"] == 2626
        assert 50 < dev_perplexity(outcome) < 400


def test_a_directory_of_shards_is_scored(folder, tmp_path):
    text = (folder / "dev.txt").read_text().splitlines(keepends=True)
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "1.txt").write_text("".join(text[:50]))
    (tmp_path / "shards" / "2.gz").write_bytes(gzip.compress("".join(text[50:]).encode()))
    options = ["--min-count", "2", "--quiet", "--max-iter", "2", "--rank", "2", "--force", "-o", str(tmp_path / "m")]
    for kind in ("mrf-lm", "log-bilinear"):
        assert run("train", kind, str(folder / "train.txt"), *options).returncode == 0
        one, many = (
            json.loads(run("score", str(tmp_path / "m"), str(path), "--json").stdout)
            for path in (folder / "dev.txt", tmp_path / "shards")
        )
        assert one == many


def test_a_sentence_edge_in_a_text_is_an_error(folder, tmp_path):
    (tmp_path / "bad.txt").write_text("They saw .\n<s> saw\n")
    model = ["train", "kneser-ney", str(folder / "train.txt"), "--min-count", "2", "-o", str(tmp_path / "m")]
    done = run(*model, "--dev", str(tmp_path / "bad.txt"))
    assert done.returncode == 1
    assert "bad.txt:2: <s> marks" in done.stderr
    assert run(*model).returncode == 0
    done = run("score", str(tmp_path / "m"), str(tmp_path / "bad.txt"))
    assert done.returncode == 1
    assert "bad.txt:2: sentence 1, token 0: <s> marks" in done.stderr


@pytest.fixture(scope="module")
def tagger(folder) -> str:
    done = run(
        "train", "mrf-tagger", str(folder / "tagged.txt"), "--columns", "0", "--label", "1", "--max-iter", "15",
        "-o", str(folder / "tagger"), "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert (outcome["kind"], outcome["bound_kind"]) == ("mrf-tagger", "exact")
    assert outcome["sentences"] == 120
    assert outcome["iterations"] <= 15
    return str(folder / "tagger")


def test_the_mrf_tagger_tags(folder, tagger):
    report = json.loads(run("evaluate", tagger, "--bundled", "--json").stdout)
    assert report["accuracy"] > 0.85
    assert report["unknown_accuracy"] > 0.6
    tagged = run("tag", tagger, "--format", "text", "--with", "marginals", input="They saw her duck .\n").stdout
    rows = [line.split("\t") for line in tagged.splitlines() if line]
    assert [row[0] for row in rows] == ["They", "saw", "her", "duck", "."]
    assert all(0 < float(row[2]) <= 1 for row in rows)
    known = run("tag", tagger, "--known", "1", input="They _\nsaw _\nher PRP\nduck VB\n").stdout
    assert [line.split()[-1] for line in known.splitlines() if line][2:] == ["PRP", "VB"]
    assert run("tag", tagger, "--with", "topk=2", "--format", "text", input="They saw .\n").stdout.count("\t") == 9
    wrong = run("tag", tagger, "--known", "1", input="They XYZ\n")
    assert wrong.returncode == 1
    assert "no such label" in wrong.stderr


def test_the_mrf_tagger_is_inspected(tagger):
    shown = json.loads(run("inspect", tagger, "--json", "--n", "3", "--label", "NN").stdout)
    assert shown["kind"] == "mrf-tagger"
    assert len(shown["top_features"]) == 3
    assert {row[1] for row in shown["top_features"]} == {"NN"}
    assert "Label pairs" in run("inspect", tagger).stdout
    assert run("inspect", tagger, "--label", "nothing").returncode == 2
