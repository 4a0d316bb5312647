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
    assert (scores[0]["kind"], scores[0]["bound"], scores[0]["per"]) == ("exact", "exact", "token")
    again = json.loads(run("train", "mrf", "--counts", tmp_path / "counts", "-K", 2, *options))
    assert again["objective"] == outcome["objective"]


@pytest.mark.parametrize(
    ("options", "bound", "per"),
    [
        (["-K", 1], "exact", "position"),
        (["-K", 1, "--bound", "star"], "star", "position"),
        (["-K", 1, "--weights", "0.5"], "chain", "position"),
        (["-K", 2, "--memory", 3], "chain", "position"),
        (["--algorithm", "pseudo-likelihood", "--rate", 0.01, "--batch-size", 16, "--epochs", 2], "chain", "word"),
    ],
)
def test_figures_say_which_bound_they_are(options, bound, per, tmp_path, monkeypatch):
    (tmp_path / "train.txt").write_text(TEXT)
    common = [tmp_path / "train.txt", "--rank", 2, "--quiet", "-o", tmp_path / "model"]
    if per == "position":
        common += ["--max-iter", 3]
    outcome = json.loads(run("train", "mrf", *common, *options, "--json"))
    assert (outcome["bound"], outcome["per"]) == (bound, per)
    shown = json.loads(run("inspect", tmp_path / "model", "--json"))
    assert (shown["bound"], shown["per"]) == (bound, per)
    assert f"bound {bound}, " in run("inspect", tmp_path / "model")
    assert f" a {per} (" in run("inspect", tmp_path / "model")
    printed = run("train", "mrf", *common, *options)
    assert ("less the penalty" in printed) == (per == "position")
    assert ({"exact": "log-likelihood a", "chain": "chain bound", "star": "star bound"}[bound] in printed) == (
        per == "position"
    )
    monkeypatch.setattr("trelliswork.inference.lifted.exact.fits", lambda C, K: False)  # as if there were many words
    scored = json.loads(run("score", tmp_path / "model", tmp_path / "train.txt", "--json"))
    assert (scored["kind"], scored["bound"]) == (("exact", "exact") if "1" in map(str, options) else ("lower", "chain"))
    if scored["kind"] == "lower":
        assert "a lower bound (chain), " in run("score", tmp_path / "model", tmp_path / "train.txt")


def test_ctrl_c_ends_counting_at_once_and_training_after_an_iteration(capsys):
    from trelliswork.cli.train.mrf import bound_progress
    from trelliswork.data.ids import CountStep
    from trelliswork.learning.lbfgs import Step

    step = Step(1, 2.0, 1.0, 3, 4, 5.0)
    with bound_progress(10, quiet=True) as (callback, counting):
        counting(CountStep(5, 10, 100, 1.0))
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert not callback(step, None)
        signal.raise_signal(signal.SIGINT)
        assert callback(step, None)
    assert "what was learned will be saved" in capsys.readouterr().err
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


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
    (tmp_path / "train.txt").write_text(TEXT)
    run("data", "count", tmp_path / "train.txt", "--distances", 2, "-o", tmp_path / "counts", "--quiet")
    for arguments, code in (
        (["fill", model, "no blank"], 1),
        (["neighbors", model, "zebra"], 1),
        (["sample", model, "--states"], 2),
        (["train", "mrf", tmp_path / "x", "--counts", tmp_path], 2),
        (["train", "mrf", tmp_path / "missing.txt"], 1),
        (["train", "mrf", "--weights", "a,b"], 2),
        (["train", "mrf", "--counts", tmp_path / "counts", "--distances", 1], 2),
        (["train", "mrf", tmp_path / "train.txt", "--epochs", 3], 1),
        (["train", "mrf", tmp_path / "train.txt", "--form", "full", "--rank", 3], 1),
        (["train", "mrf", tmp_path / "train.txt", "--algorithm", "pseudo-likelihood", "--bound", "star"], 1),
        (["inspect", model, "--label", "a"], 2),
        (["embeddings", model, tmp_path / "none" / "v.txt"], 1),
        (["reproduce", "mrf-ptb", "--data", tmp_path, "--part", "nothing"], 1),
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
    for name in ("exact likelihood", "star bound", "chain bound"):
        exact, star, chain = (
            ours[f"trained by {name}: {what}"] for what in ("exact log-likelihood", "star bound", "chain bound")
        )
        assert abs(chain - exact) < 1e-8  # of a circle of this length
        assert star <= exact
    assert ours["trained by star bound: star bound"] < by_star
    assert ours["trained by star bound: star bound"] >= ours["trained by exact likelihood: star bound"] - 1e-6


def test_embeddings_that_cannot_be_written(tmp_path, model):
    result = CliRunner().invoke(app, ["embeddings", str(model), str(tmp_path / "none" / "v.txt")])
    assert result.exit_code == 1
    assert "v.txt: cannot be written (No such file or directory)" in result.stderr


@pytest.mark.parametrize(
    ("options", "unary", "bias"),
    [
        (["--no-unary", "--no-bias", "-K", 1], False, False),
        (["--no-unary", "--bound", "star"], False, False),
        (["--no-unary", "--bias"], False, True),
        (["--bias", "--form", "URW"], True, True),
    ],
)
def test_with_and_without_unary_and_bias(options, unary, bias, tmp_path):
    (tmp_path / "train.txt").write_text(TEXT)
    common = [tmp_path / "train.txt", "--rank", 2, "--max-iter", 3, "--quiet", "-o", tmp_path / "model"]
    outcome = json.loads(run("train", "mrf", *common, *options, "--json"))
    assert (outcome["unary"], outcome["bias"]) == (unary, bias)
    shown = json.loads(run("inspect", tmp_path / "model", "--json"))
    assert (shown["unary"], shown["bias"]) == (unary, bias)
    from trelliswork.models import load

    field = load(tmp_path / "model").field_
    assert (bool(field.log_unary.any()), field.bias is not None) == (unary, bias)
    assert json.loads(run("score", tmp_path / "model", tmp_path / "train.txt", "--json"))["kind"] == "exact"
