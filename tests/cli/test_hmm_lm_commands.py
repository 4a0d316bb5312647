"""``train hmm-lm``, ``score``, ``sample``, ``inspect``, ``evaluate``, ``dev reproduce kernel-*`` on tiny files."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose
from typer.testing import CliRunner

from trelliswork.cli import app
from trelliswork.models import HMMLanguageModel

RUN = CliRunner()
SENTENCES = ["the dog runs", "the cat sleeps", "a dog sleeps", "cats run"] * 8
SMALL = ["--hidden", "8", "--max-iter", "6", "--batch-tokens", "40", "--learning-rate", "0.02", "--quiet"]


def call(*arguments, ok=True, given=None):
    result = RUN.invoke(app, [str(a) for a in arguments], input=given)
    assert (result.exit_code == 0) == ok, result.output + str(result.exception)
    return result.output


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lm")
    for part in ("train", "valid", "test"):
        (folder / f"ptb.{part}.txt").write_text("\n".join(SENTENCES) + "\n")
    train = folder / "ptb.train.txt"
    call("train", "hmm-lm", train, "--dev", train, "--n-states", 6, *SMALL, "--out", folder / "lm")
    return folder


def test_training_prints_the_outcome(files):
    outcome = json.loads(
        call("train", "hmm-lm", files / "ptb.train.txt", "--dev", files / "ptb.valid.txt", "--parameterization",
             "kernel", "--n-features", 3, "--n-states", 8, "--band", 1, "--json", *SMALL, "--out", files / "kernel")
    )  # fmt: skip
    assert outcome["tokens"] == 88
    assert (outcome["states"], outcome["rank"], outcome["iterations"]) == (8, 3, 18)  # three validations per epoch
    model = HMMLanguageModel.load(files / "kernel")
    assert_allclose(outcome["dev"], model.score(files / "ptb.valid.txt"), rtol=1e-4)
    assert outcome["dev_metric"] == "log evidence per token"
    assert model.input_["format"] == "text"
    assert "objective" in call(
        "train", "hmm-lm", files / "ptb.train.txt", "--n-states", 4, *SMALL, "--out", files / "m"
    )


def test_score_and_evaluate(files):
    figures = json.loads(call("score", files / "lm", files / "ptb.test.txt", "--json"))
    model = HMMLanguageModel.load(files / "lm")
    assert figures["kind"] == "exact"
    assert_allclose(figures["perplexity"], model.perplexity(files / "ptb.test.txt"))
    assert json.loads(call("evaluate", files / "lm", files / "ptb.test.txt", "--json")) == figures
    call("evaluate", files / "lm", files / "ptb.test.txt", "--label", 1, ok=False)
    assert "does not tag" in call("tag", files / "lm", files / "ptb.test.txt", ok=False)


def test_sample(files):
    lines = call("sample", files / "lm", "-n", 4, "--seed", 1, "--states").splitlines()
    assert len(lines) == 4
    assert "/#" in "".join(lines)


def test_inspect(files):
    shown = json.loads(call("inspect", files / "lm", "-n", 3, "--json"))
    assert len(shown["top_words"]) == 3
    assert all(len(words) == 3 for _, _, words in shown["top_words"])
    assert shown["rank"] <= 6
    shares = [share for _, share, _ in shown["top_words"]]
    assert shares == sorted(shares, reverse=True)
    text = call("inspect", files / "lm", "--label", "#2")
    assert "#2" in text
    call("inspect", files / "lm", "--label", "#6", ok=False)
    call("inspect", files / "lm", "--label", "DT", ok=False)


def test_training_resumes_from_a_checkpoint(files):
    train, run = files / "ptb.train.txt", files / "run"
    common = ["train", "hmm-lm", train, "--dev", train, "--n-states", 4, *SMALL, "--checkpoint", run]
    call(*common, "--max-minutes", 1e-9, "--out", files / "first")
    assert run.exists()
    call(*common, "--out", files / "second")
    assert not run.exists()
    call("train", "hmm-lm", train, "--dev", train, "--n-states", 4, *SMALL, "--out", files / "whole")
    one, other = (HMMLanguageModel.load(files / name).log_evidence(train) for name in ("second", "whole"))
    assert (one == other).all()


def test_reproduce_kernel_hmm(files):
    lines = call(
        "dev", "reproduce", "kernel-hmm", "--data", files, "--size", 4, "--size", "8/3", "--max-iter", 2,
        "--no-kneser-ney", "--json", "--quiet", "--batch-tokens", 40, "--plot", files / "curves.html",
    ).splitlines()  # fmt: skip
    ours = {figure["row"]: figure["ours"] for figure in map(json.loads, lines)}
    assert 1 < ours["softmax, 4 states: validation"] < 12
    assert ours["kernel, 8 states, R = 3: singular values above 1e-5"] <= 3
    assert ours["kernel, 8 states, R = 3: log evidence against the dense matrix it stands for"] < 1e-8
    assert (files / "curves.html").exists()
    assert "Kneser-Ney" in call(
        "dev", "reproduce", "kernel-hmm", "--data", files, "--size", 4, "--max-iter", 1, "--quiet"
    )
    call("dev", "reproduce", "kernel-hmm", "--data", files, "--size", "many", ok=False)


def test_reproduce_kernel_hmm_resumes_from_kept_models(files, tmp_path):
    def run(*more, ok=True):
        return call(
            "dev", "reproduce", "kernel-hmm", "--data", files, "--size", "6/3", "--max-iter", 3, "--no-kneser-ney",
            "--json",
            "--batch-tokens", 40, "--keep", tmp_path / "kept", *more, ok=ok,
        )  # fmt: skip

    def validation(text):
        return [json.loads(line)["ours"] for line in text.splitlines() if ": validation" in line and line[0] == "{"]

    whole = validation(run("--quiet"))
    run("--max-minutes", 1e-9, "--keep", tmp_path / "two", "--quiet")
    assert (tmp_path / "two" / "6-3.checkpoint").exists()
    assert validation(run("--keep", tmp_path / "two", "--quiet")) == whole
    again = run()
    assert "from" in again  # it was not retrained
    assert validation(again) == whole
    assert "other data or settings" in run("--learning-rate", 0.5, ok=False)


def test_reproduce_kernel_hmm_with_invalid_options(files):
    output = call("dev", "reproduce", "kernel-hmm", "--data", files, "--size", "8/3", "--em-iterations", 2, ok=False)
    assert "em_iterations applies to softmax models" in output


def test_low_rank_and_dense_transitions_give_the_same_results(files):
    from trelliswork.experiments.kernel_hmm import same_as_dense

    text = [s.split() for s in SENTENCES[:4]]
    lm = HMMLanguageModel(12, parameterization="kernel", n_features=4, hidden=8, max_iter=2).fit(text)
    assert same_as_dense(lm, text) < 1e-8


def test_reproduce_kernel_features():
    text = call(
        "dev", "reproduce", "kernel-features", "--features", 8, "--features", 64, "--states", 30, "--dims", 3, "--quiet"
    )
    assert "nystroem" in text
    from trelliswork.experiments.kernel_hmm import kernel_features

    table = kernel_features(features=(4, 64), n_states=40, n_dims=4)
    by_method = {curve.name: curve.y for curve in table.curves}
    assert all(y[1] < y[0] for y in by_method.values())
    assert np.isfinite([f.ours for f in table.figures]).all()
