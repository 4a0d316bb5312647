"""``train hmm-lm``, ``score``, ``sample``, ``inspect``, ``evaluate`` on tiny files."""

import json

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
        call("train", "hmm-lm", files / "ptb.train.txt", "--dev", files / "ptb.valid.txt", "--rank", 3,
             "--n-states", 8, "--n-blocks", 2, "--json", *SMALL, "--out", files / "kernel")
    )  # fmt: skip
    assert outcome["tokens"] == 88
    assert (outcome["states"], outcome["rank"], outcome["iterations"]) == (8, 3, 6)
    model = HMMLanguageModel.load(files / "kernel")
    assert_allclose(outcome["dev"], model.score(files / "ptb.valid.txt"), rtol=1e-4)
    assert outcome["dev_metric"] == "log-probability per token"
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
    assert shown["states"] == 6
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
    one, other = (HMMLanguageModel.load(files / name).log_prob(train) for name in ("second", "whole"))
    assert (one == other).all()
