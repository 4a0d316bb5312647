"""Commands of the Markov random field language model."""

import json
import signal

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
    run(
        "train",
        "mrf-lm",
        folder / "train.txt",
        "--rank",
        2,
        "--max-iter",
        5,
        "--quiet",
        "--unknown",
        "error",
        "-o",
        folder / "model",
    )
    return folder / "model"


def test_vectors_in_closed_form(tmp_path):
    (tmp_path / "train.txt").write_text(TEXT)
    options = ["--rank", 2, "--window", 3, "--unknown", "error", "--quiet", "--json", "-o", tmp_path / "model"]
    outcome = json.loads(run("train", "mrf-lm", tmp_path / "train.txt", "--algorithm", "spectral", *options))
    assert (outcome["window"], outcome["per"]) == (3, "position")
    ((word, near),) = json.loads(run("inspect", tmp_path / "model", "--label", "a", "-n", 2, "--json"))["neighbors"]
    assert (word, len(near)) == ("a", 2)
    result = CliRunner().invoke(
        app, ["train", "mrf-lm", str(tmp_path / "train.txt"), "--algorithm", "spectral", "--l2", "1", "-o", "x"]
    )
    assert result.exit_code != 0
    assert "l2 has no effect" in result.stderr


def test_counts_and_text_give_the_same_model(tmp_path, model):
    (tmp_path / "train.txt").write_text(TEXT)
    run(
        "data",
        "count",
        tmp_path / "train.txt",
        "--window",
        2,
        "-o",
        tmp_path / "counts",
        "--quiet",
        "--unknown",
        "error",
    )
    options = ["--rank", 2, "--max-iter", 5, "--quiet", "--json", "--force", "-o", tmp_path / "model"]
    outcome = json.loads(run("train", "mrf-lm", "--counts", tmp_path / "counts", *options))
    assert (outcome["words"], outcome["window"], outcome["bound"]) == (3, 2, "chain")
    scores = [json.loads(run("score", m, tmp_path / "train.txt", "--json")) for m in (model, tmp_path / "model")]
    assert scores[0] == scores[1]
    assert (scores[0]["kind"], scores[0]["per"]) == ("exact", "token")
    again = json.loads(run("train", "mrf-lm", "--counts", tmp_path / "counts", "--window", 2, *options))
    assert again["objective"] == outcome["objective"]
    by_text, by_counts = (
        json.loads(
            run("train", "mrf-lm", tmp_path / "train.txt", "--unknown", "error", "--dev", tmp_path / dev, *options)
        )["dev"]
        for dev in ("train.txt", "counts")
    )
    assert by_text == by_counts


@pytest.mark.parametrize(
    ("options", "bound", "per"),
    [
        (["--window", 1], "exact", "position"),
        (["--window", 1, "--bound", "star"], "star", "position"),
        (["--window", 1, "--cover-weights", "0.5"], "chain", "position"),
        (["--window", 2], "chain", "position"),
        (["--algorithm", "pseudo-likelihood", "--learning-rate", 0.01, "--batch-size", 16], "chain", "word"),
    ],
)
def test_results_name_their_bound(options, bound, per, tmp_path, monkeypatch):
    (tmp_path / "train.txt").write_text(TEXT)
    common = [tmp_path / "train.txt", "--rank", 2, "--max-iter", 3, "--quiet", "--force", "-o", tmp_path / "model"]
    outcome = json.loads(run("train", "mrf-lm", *common, *options, "--json"))
    assert (outcome["bound"], outcome["per"]) == (bound, per)
    shown = json.loads(run("inspect", tmp_path / "model", "--json"))
    assert (shown["bound"], shown["per"]) == (bound, per)
    assert f"bound: {bound}\n" in run("inspect", tmp_path / "model")
    assert f"per: {per}\n" in run("inspect", tmp_path / "model")
    assert f"objective {outcome['objective']:.4f} after 3 iterations" in run("train", "mrf-lm", *common, *options)
    monkeypatch.setattr("trelliswork.inference.lifted.exact.fits", lambda C, K: False)  # as for a large vocabulary
    scored = json.loads(run("score", tmp_path / "model", tmp_path / "train.txt", "--json"))
    assert scored["kind"] == ("exact" if "1" in map(str, options) else "lower")
    if scored["kind"] == "lower":
        assert "a lower bound, " in run("score", tmp_path / "model", tmp_path / "train.txt")


def test_ctrl_c_ends_counting_at_once_and_training_after_an_iteration(capsys):
    from trelliswork.cli.progress import training_progress
    from trelliswork.data.ids import CountStep
    from trelliswork.learning.report import Step, counting_callback

    step = Step(1, 2.0, 1.0, 3, 4, 5.0)
    with training_progress(0, 10, quiet=True) as callback:
        counting_callback(callback)(CountStep(5, 10, 100, 1.0))
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert not callback(step)
        signal.raise_signal(signal.SIGINT)
        assert callback(step)
    assert "the model will be saved" in capsys.readouterr().err
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_queries(tmp_path, model):
    (words,) = json.loads(run("fill", model, "a ___ c", "--json"))
    assert {w["word"] for w in words} == set("abc")
    assert abs(sum(w["p"] for w in words) - 1) < 1e-6
    assert len(json.loads(run("fill", model, "a ___ ___", "-n", 1, "--json"))) == 2
    (everything,) = json.loads(run("fill", model, "a ___ c", "--unknown", "--json"))
    assert words == [w for w in everything if w["word"] != "<unk>"]
    assert len(json.loads(run("inspect", model, "--label", "a", "-n", 1, "--json"))["neighbors"][0][1]) == 1
    assert json.loads(run("embeddings", model, "--out", tmp_path / "v.txt", "--json"))["words"] == 3
    run("embeddings", model, "--out", tmp_path / "scaled.txt", "--scaling", "0.5")
    assert (tmp_path / "scaled.txt").read_text() != (tmp_path / "v.txt").read_text()
    assert len(run("sample", model, "-n", 3).splitlines()) == 3
    assert "words" in json.loads(run("sample", model, "-n", 1, "--json"))
    shown = json.loads(run("inspect", model, "--json"))
    assert (shown["kind"], shown["window"], shown["words"], shown["rank"]) == ("mrf-lm", 2, 3, 2)
    assert {word for word, _ in shown["neighbors"]} == set("abc")
    assert run("inspect", model).startswith("Markov random field with window 2\n")


def test_wrong_use(tmp_path, model):
    (tmp_path / "train.txt").write_text(TEXT)
    run(
        "data",
        "count",
        tmp_path / "train.txt",
        "--window",
        2,
        "-o",
        tmp_path / "counts",
        "--quiet",
        "--unknown",
        "error",
    )
    for arguments, code in (
        (["fill", model, "no blank"], 1),
        (["inspect", model, "--label", "zebra"], 2),
        (["sample", model, "--states"], 2),
        (["train", "mrf-lm", tmp_path / "x", "--counts", tmp_path], 2),
        (["train", "mrf-lm", tmp_path / "missing.txt"], 1),
        (["train", "mrf-lm", "--cover-weights", "a,b"], 2),
        (["train", "mrf-lm", "--counts", tmp_path / "counts", "--window", 1], 2),
        (["train", "mrf-lm", "--counts", tmp_path / "counts", "--min-count", 2], 2),
        (["train", "mrf-lm", "--counts", tmp_path / "counts", "--unknown", "error"], 2),
        (["train", "mrf-lm", tmp_path / "train.txt", "--learning-rate", 3], 1),
        (["train", "mrf-lm", tmp_path / "train.txt", "--form", "full", "--rank", 3], 1),
        (["train", "mrf-lm", tmp_path / "train.txt", "--algorithm", "pseudo-likelihood", "--bound", "star"], 1),
        (["embeddings", model, "--out", tmp_path / "none" / "v.txt"], 1),
    ):
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        assert result.exit_code == code, (arguments, result.output)


def test_embeddings_that_cannot_be_written(tmp_path, model):
    result = CliRunner().invoke(app, ["embeddings", str(model), "--out", str(tmp_path / "none" / "v.txt")])
    assert result.exit_code == 1
    assert "v.txt: cannot be written: No such file or directory" in result.stderr


def test_a_stopped_run_resumes(tmp_path):
    (tmp_path / "train.txt").write_text(TEXT)
    common = ["train", "mrf-lm", tmp_path / "train.txt", "--rank", 2, "--tol", 0, "--max-iter", 4, "--quiet", "--json"]
    whole = json.loads(run(*common, "-o", tmp_path / "whole"))
    checkpoint = ["--checkpoint", tmp_path / "run", "-o", tmp_path / "again"]
    assert json.loads(run(*common, "--max-minutes", 1e-9, *checkpoint))["iterations"] == 1
    assert (tmp_path / "run").exists()
    again = json.loads(run(*common, *checkpoint))
    assert (again["objective"], again["iterations"]) == (whole["objective"], 4)


@pytest.mark.parametrize(
    ("options", "unary"),
    [
        (["--no-unary", "--window", 1], False),
        (["--no-unary", "--bound", "star"], False),
        (["--form", "URW"], True),
    ],
)
def test_with_and_without_unary(options, unary, tmp_path):
    (tmp_path / "train.txt").write_text(TEXT)
    common = [tmp_path / "train.txt", "--rank", 2, "--max-iter", 3, "--quiet", "--force", "-o", tmp_path / "model"]
    outcome = json.loads(run("train", "mrf-lm", *common, *options, "--json"))
    assert outcome["unary"] == unary
    shown = json.loads(run("inspect", tmp_path / "model", "--json"))
    assert shown["unary"] == unary
    from trelliswork.models import load

    field = load(tmp_path / "model")._field
    assert field.log_unary.any() == unary
    assert json.loads(run("score", tmp_path / "model", tmp_path / "train.txt", "--json"))["kind"] == "exact"
