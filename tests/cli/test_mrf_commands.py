"""Commands of the Markov random field language model."""

import json

import pytest
from typer.testing import CliRunner

from trelliswork.cli import app

TEXT = "a b c a\nb c a\nc c\na b\nb c c a b\na\nc a b\n" * 3


def run(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mrf")
    (folder / "train.txt").write_text(TEXT)
    run("train", "mrf", folder / "train.txt", "--rank", 2, "--max-iter", 5, "--quiet", "-o", folder / "model")
    return folder / "model"


def test_train_from_counts_and_text(tmp_path, model):
    (tmp_path / "train.txt").write_text(TEXT)
    run("data", "count", tmp_path / "train.txt", "--distances", 2, "-o", tmp_path / "counts", "--quiet")
    options = ["--rank", 2, "--max-iter", 5, "--quiet", "--json", "-o", tmp_path / "model"]
    outcome = json.loads(run("train", "mrf", "--counts", tmp_path / "counts", *options))
    assert (outcome["words"], outcome["distances"], outcome["bound"]) == (3, 2, "chain")
    scores = [json.loads(run("score", m, tmp_path / "train.txt", "--json")) for m in (model, tmp_path / "model")]
    assert scores[0] == scores[1]
    assert scores[0]["kind"] == "exact"


def test_questions(tmp_path, model):
    found = json.loads(run("fill", model, "a ___ c", "--json"))
    assert {f["word"] for f in found} == set("abc")
    assert abs(sum(f["p"] for f in found) - 1) < 1e-6
    assert len(json.loads(run("neighbors", model, "a", "-n", 1, "--json"))["a"]) == 1
    assert json.loads(run("embeddings", model, tmp_path / "v.txt", "--json"))["words"] == 3
    assert len(run("sample", model, "-n", 3).splitlines()) == 3
    assert "words" in json.loads(run("sample", model, "-n", 1, "--json"))
    shown = json.loads(run("inspect", model, "--json"))
    assert (shown["kind"], shown["distances"]) == ("mrf-lm", 2)
    assert "Markov random field, 3 words, 2 distances, rank 2" in run("inspect", model)


def test_wrong_use(tmp_path, model):
    for arguments, code in (
        (["fill", model, "no blank"], 1),
        (["neighbors", model, "zebra"], 1),
        (["sample", model, "--states"], 2),
        (["train", "mrf", tmp_path / "x", "--counts", tmp_path], 2),
        (["train", "mrf", tmp_path / "missing.txt"], 1),
        (["train", "mrf", "--weights", "a,b"], 2),
        (["inspect", model, "--label", "a"], 2),
        (["reproduce", "mrf-ptb", tmp_path, "--part", "nothing"], 1),
    ):
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        assert result.exit_code == code, (arguments, result.output)


def test_reproduce_the_exact_figure():
    lines = [json.loads(line) for line in run("reproduce", "mrf-exact", "--quiet", "--json").splitlines()]
    ours = {line["row"]: line["ours"] for line in lines}
    by_exact, by_star = (
        ours[f"trained by {name}: exact log-likelihood"] for name in ("exact likelihood", "star bound")
    )
    assert by_star <= by_exact + 1e-6
    assert ours["trained by star bound: star bound"] < by_star
    assert ours["trained by star bound: star bound"] >= ours["trained by exact likelihood: star bound"] - 1e-6
