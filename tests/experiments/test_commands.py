"""``python -m experiments NAME`` on tiny files."""

import json
import os

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments.__main__ import app
from trelliswork import HMMLanguageModel, bundled
from trelliswork.data.writers import write_columns

SENTENCES = ["the dog runs", "the cat sleeps", "a dog sleeps", "cats run"] * 8


def run(*arguments, **options):
    return CliRunner().invoke(app, [str(a) for a in arguments], **options)


def call(*arguments, ok=True):
    result = run(*arguments)
    assert (result.exit_code == 0) == ok, result.output + str(result.exception)
    return result.output


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lm")
    for part in ("train", "valid", "test"):
        (folder / f"ptb.{part}.txt").write_text("\n".join(SENTENCES) + "\n")
    return folder


def test_low_rank_grammars(tmp_path):
    (tmp_path / "some.mrg").write_text("".join(f"{s.tree}\n" for s in bundled.load("train")[:150] if len(s) <= 10))
    assert "induction" in call("low-rank-pcfg", "--data", tmp_path, "--part", "nothing", ok=False)
    out = run(
        "low-rank-pcfg",
        "--data",
        tmp_path,
        "--part",
        "perplexity",
        "--rank",
        "2",
        "--max-iter",
        "1",
        "--json",
        "-q",
    )
    figures = [json.loads(line) for line in out.stdout.splitlines()]
    assert [f["row"] for f in figures] == ["perplexity, rank 2", "perplexity, dense"]
    assert all(f["ours"] > 1 for f in figures)


def test_kernel_hmm(files):
    lines = call(
        "kernel-hmm", "--data", files, "--size", 4, "--size", "8/3", "--max-iter", 2,
        "--no-kneser-ney", "--json", "--quiet", "--batch-tokens", 40, "--plot", files / "curves.html",
    ).splitlines()  # fmt: skip
    ours = {figure["row"]: figure["ours"] for figure in map(json.loads, lines)}
    assert 1 < ours["softmax, 4 states: validation"] < 12
    assert ours["kernel, 8 states, R = 3: singular values above 1e-5"] <= 3
    assert ours["kernel, 8 states, R = 3: log evidence against the dense matrix it stands for"] < 1e-8
    assert (files / "curves.html").exists()
    assert "Kneser-Ney" in call("kernel-hmm", "--data", files, "--size", 4, "--max-iter", 1, "--quiet")
    call("kernel-hmm", "--data", files, "--size", "many", ok=False)


def test_kernel_hmm_resumes_from_kept_models(files, tmp_path):
    def run(*more, ok=True):
        return call(
            "kernel-hmm", "--data", files, "--size", "6/3", "--max-iter", 3, "--no-kneser-ney",
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


def test_large_hmm(files, tmp_path):
    def run():
        lines = call(
            "large-hmm", "--data", files, "--states", 1024, "--max-iter", 1, "--json", "--quiet", "--keep", tmp_path
        )
        return {figure["row"]: figure["ours"] for figure in map(json.loads, lines.splitlines())}

    name = "HMM, 1024 states in blocks"
    ours = run()
    assert ours[f"{name}, with 5-grams: test"] <= ours[f"{name}: test"]
    assert run() == ours  # from the model that was kept


def test_low_rank_and_dense_transitions_give_the_same_results(files):
    from experiments.kernel_hmm import same_as_dense

    text = [s.split() for s in SENTENCES[:4]]
    lm = HMMLanguageModel(12, rank=4, hidden=8, max_iter=2).fit(text)
    assert same_as_dense(lm, text) < 1e-8


def test_kernel_features():
    text = call("kernel-features", "--features", 8, "--features", 64, "--states", 30, "--dims", 3, "--quiet")
    assert "nystroem" in text
    from experiments.kernel_features import kernel_features

    table = kernel_features(features=(4, 64), n_states=40, n_dims=4)
    by_method = {curve.name: curve.y for curve in table.curves}
    assert all(y[1] < y[0] for y in by_method.values())
    assert np.isfinite([f.ours for f in table.figures]).all()


def test_markov_random_field_taggers(tmp_path):
    data = tmp_path / "data" / "conll2000"
    data.mkdir(parents=True)
    for name in ("train.txt", "test.txt"):
        with (data / name).open("w", encoding="utf-8") as file:
            write_columns(bundled.load("train")[:120], file)
    picture = tmp_path / "curves.html"
    options = ["--corpus", "conll2000", "--words", "1", "--max-iter", "5", "--plot", str(picture)]
    done = run("mrf-tagging", "--data", str(data.parent), *options)
    assert "<svg" in picture.read_text(encoding="utf-8")
    assert done.exit_code == 0, done.stderr
    assert "MRF, L=1, dictionary" in done.stdout
    assert run("mrf-tagging", "--data", str(data.parent), "--corpus", "other").exit_code == 2
    environment = {k: v for k, v in os.environ.items() if k != "TRELLISWORK_DATA"} | {"COLUMNS": "200"}
    nowhere = run("mrf-tagging", env=environment)
    assert nowhere.exit_code == 2
    assert "conll2000/train.txt" in nowhere.stderr


def test_the_exact_experiment_is_reproduced():
    lines = [json.loads(line) for line in call("mrf-exact", "--quiet", "--json").splitlines()]
    ours = {line["row"]: line["ours"] for line in lines}
    by_exact, by_star = (
        ours[f"trained by {name}: exact log-likelihood"] for name in ("exact likelihood", "star bound")
    )
    assert by_star <= by_exact + 1e-6
    for name in ("exact likelihood", "star bound", "chain bound"):
        exact, star, chain = (
            ours[f"trained by {name}: {what}"] for what in ("exact log-likelihood", "star bound", "endless chain")
        )
        assert star <= exact
        assert abs(chain - exact) < 0.01
    assert ours["trained by star bound: star bound"] < by_star
    assert ours["trained by star bound: star bound"] >= ours["trained by exact likelihood: star bound"] - 1e-6


def test_beams(tmp_path):
    shown = run(
        "beams-decoding",
        "--models",
        1,
        "--sequences",
        3,
        "--states",
        8,
        "--symbols",
        20,
        "--json",
        "-q",
    )
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    assert list(rows[0]) == ["reproduce", "row", "paper", "ours", "unit", "seconds", "note"]
    assert {row["reproduce"] for row in rows} == {"beams-decoding"}
    assert all("100.0 % exact paths" in row["note"] for row in rows[2:])
    picture = tmp_path / "curves.html"
    shown = run("beams-training", "--states", 8, "--sequences", 3, "--max-iter", 8, "--plot", picture, "-q")
    assert shown.exit_code == 0, shown.output
    assert "minimum divergence, held" in shown.stdout
    assert "<svg" in picture.read_text(encoding="utf-8")
    assert run("beams-training", "--plot", "curves.pdf").exit_code == 2


def test_nettalk(tmp_path):
    words = ["cat", "cut", "tack", "act", "tact", "cacti", "attic", "tic"] * 10
    lines = [f"{w}\t{w.upper()}\t{'0' * len(w)}\t0" for w in dict.fromkeys(a + b for a in words for b in words)]
    path = tmp_path / "nettalk.data"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    shown = run("nettalk", "--data", tmp_path, "--words", 60, "--max-iter", 4, "--json", "-q")
    assert shown.exit_code == 0, shown.output
    letters = [row for row in map(json.loads, shown.stdout.splitlines()) if row["row"].endswith("letters")]
    assert [row["row"][:7] for row in letters] == ["order 1"] * 5 + ["order 2"]
    assert all(row["ours"] > 50 for row in letters)
    assert run("nettalk", "--data", tmp_path / "none").exit_code == 1


def test_wrong_part(tmp_path):
    assert run("mrf-ptb", "--data", tmp_path, "--part", "nothing").exit_code == 1
