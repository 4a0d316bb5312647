"""``--beam`` and ``--order`` of the commands, ``reproduce`` and ``infer``: output and errors."""

import json

import pytest
from typer.testing import CliRunner

from trelliswork.cli import app
from trelliswork.models import CRF, HMM

runner = CliRunner()
GRAPH = "MARKOV\n3\n2 2 3\n3\n1 0\n2 0 1\n2 1 2\n2 1 2\n4 3 1 1 3\n6 1 2 3 4 5 6\n"


@pytest.fixture(scope="module")
def columns(tmp_path_factory):
    path = tmp_path_factory.mktemp("columns") / "train.txt"
    path.write_text("the D\ndog N\nruns V\n\na D\ncat N\nsees V\nthe D\ndog N\n\n" * 5, encoding="utf-8")
    return path


def run(*words, given=None):
    return runner.invoke(app, [str(word) for word in words], input=given)


def test_second_order_crf_with_a_beam(columns, tmp_path):
    model = tmp_path / "model"
    done = run(
        "train",
        "crf",
        columns,
        "--features",
        "pos",
        "--order",
        2,
        "--beam",
        "kl=0.01,min=2",
        "-o",
        model,
        "--json",
        "-q",
    )
    assert done.exit_code == 0, done.output
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert outcome["beam"]["mean_size"] >= 2
    assert 0.9 < outcome["beam"]["kept"] <= 1
    assert CRF.load(model).order == 2
    for beam in ("none", "size=2", "auto"):
        shown = run("evaluate", model, columns, "--beam", beam, "--json")
        assert json.loads(shown.stdout)["accuracy"] == 1
    tagged = run("tag", model, columns, "--beam", "size=1")
    assert tagged.exit_code == 0
    assert tagged.stdout.split()[:3] == ["the", "D", "D"]


def test_hmm_with_a_beam_gives_a_lower_bound(columns, tmp_path):
    model = tmp_path / "model"
    done = run("train", "hmm", columns, "--order", 3, "--beam", "size=2", "-o", model, "-q")
    assert done.exit_code == 0, done.output
    assert HMM.load(model).beam == "size=2"
    lower, exact = (
        json.loads(run("score", model, columns, *beam, "--json").stdout) for beam in ((), ("--beam", "none"))
    )
    assert (lower["kind"], exact["kind"]) == ("lower", "exact")
    assert lower["log_prob"] <= exact["log_prob"]
    induced = run(
        "train", "hmm", columns, "--unlabeled", "--n-states", 3, "--beam", "kl=0.01,min=1", "--max-iter", 3,
        "--force", "-o", model,
    )  # fmt: skip
    assert "states per token" in induced.stdout


@pytest.mark.parametrize("beam", ["kl", "size=0", "kl=0.1,size=3", "6.9"])
def test_invalid_beam_fails_before_the_file_is_read(beam):
    done = run("train", "crf", "nowhere.txt", "--beam", beam)
    assert done.exit_code == 2
    assert "beam" in done.output
