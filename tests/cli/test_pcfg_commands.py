"""Commands for grammars: train, parse, evaluate, inspect, score, sample, reproduce."""

import json

import pytest
from typer.testing import CliRunner

from trelliswork.cli import app
from trelliswork.data import Tree, bundled

runner = CliRunner()
SMALL = ["--n-nonterminals", "3", "--rank", "4", "--max-iter", "3", "--tol", "0", "--quiet"]


def run(*args, code=0, **options):
    result = runner.invoke(app, list(args), **options)
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write files of trees and text, and train a grammar of words and one of tags."""
    path = tmp_path_factory.mktemp("grammar")
    sentences = [s for s in bundled.load("train")[:150] if len(s.words) <= 10]
    (path / "some.mrg").write_text("".join(f"{s.tree}\n" for s in sentences))
    (path / "some.txt").write_text("".join(f"{s}\n" for s in sentences))
    out = run("train", "pcfg", str(path / "some.txt"), "--out", str(path / "words"), "--lower", "--json", *SMALL)
    assert json.loads(out.stdout)["iterations"] == 3
    options = ["--tags", "--n-preterminals", "0", "--right-bias", "4"]
    run("train", "pcfg", str(path / "some.mrg"), "--out", str(path / "tags"), *options, *SMALL)
    return path


def test_parse_writes_one_bracketing_per_line(folder):
    run("parse", str(folder / "words"), str(folder / "some.txt"), "--out", str(folder / "out.trees"))
    lines = (folder / "out.trees").read_text().splitlines()
    words = (folder / "some.txt").read_text().lower().splitlines()
    assert [" ".join(Tree.parse(line).leaves()) for line in lines] == words
    printed = run("parse", str(folder / "tags"), str(folder / "some.mrg"), "--decoding", "viterbi").stdout.splitlines()
    assert len(printed) == len(lines)
    assert Tree.parse(printed[0]).leaves()[-1].isupper()


def test_evaluate(folder):
    out = run("evaluate", str(folder / "tags"), str(folder / "some.mrg"), "--json")
    figures = json.loads(out.stdout)
    assert set(figures) == {"up to 10 words", "up to 40 words", "all", "perplexity"}
    assert 0 <= figures["all"]["sentence_f1"] <= figures["all"]["best_f1"] <= 1
    shown = run("evaluate", str(folder / "words"), "--bundled").stdout
    assert "right-branching" in shown
    assert "calibration error" in shown
    failed = run("evaluate", str(folder / "tags"), "--bundled", "--label", "1", code=2)
    assert "leave --label" in failed.output


def test_inspect_score_and_sample(folder):
    shown = json.loads(run("inspect", str(folder / "tags"), "--n", "2", "--json").stdout)
    assert len(shown["rules"]) == 3
    assert len(dict(shown["rules"])["N0"]) == 2
    assert "N1  " in run("inspect", str(folder / "words"), "--label", "N1").stdout
    assert "no label 'X'" in run("inspect", str(folder / "words"), "--label", "X", code=2).output
    assert "perplexity" in run("score", str(folder / "words"), str(folder / "some.txt"), "--format", "text").stdout
    assert len(run("sample", str(folder / "words"), "-n", "2", "--states").stdout.splitlines()) == 2


def test_every_command_reads_as_training_did(folder, tmp_path):
    words, tags = str(folder / "words"), str(folder / "tags")  # trained with --lower, and with --tags
    text = (folder / "some.txt").read_text()
    (tmp_path / "upper.txt").write_text(text.upper())
    scores = [
        json.loads(run("score", words, str(p), "--json").stdout) for p in (folder / "some.txt", tmp_path / "upper.txt")
    ]
    assert scores[0] == scores[1]
    first = text.split()
    blank = " ".join([first[0], "___", *first[2:5]])
    assert run("fill", words, blank).stdout == run("fill", words, blank.upper()).stdout
    (tmp_path / "tags.txt").write_text("DT NN VBZ\nPRP VBZ DT NN\n")
    (tmp_path / "tags.conllu").write_text(
        "".join(f"{k}\tw\t_\tX\t{tag}\t_\t_\t_\t_\t_\n" for k, tag in enumerate(("DT", "NN", "VBZ"), start=1))
    )
    lines = run("parse", tags, str(tmp_path / "tags.txt")).stdout.splitlines()
    assert [list(Tree.parse(line).leaves()) for line in lines] == [["DT", "NN", "VBZ"], ["PRP", "VBZ", "DT", "NN"]]
    assert run("parse", tags, str(tmp_path / "tags.conllu")).stdout.splitlines() == lines[:1]
    assert json.loads(run("score", tags, str(tmp_path / "tags.txt"), "--json").stdout)["tokens"] == 7
    for command in (
        ("parse", tags, str(folder / "some.txt")),
        ("score", tags, str(folder / "some.txt")),
    ):
        assert "this grammar was trained on tags" in run(*command, code=1).output


def test_score_skips_sentences_too_short_for_a_tree(folder, tmp_path):
    words = (folder / "some.txt").read_text().splitlines()[0]
    (tmp_path / "with.txt").write_text(f"{words}\n{words.split()[0]}\n")
    (tmp_path / "without.txt").write_text(f"{words}\n")
    (tmp_path / "short.txt").write_text(f"{words.split()[0]}\n")
    score = "score", str(folder / "words"), "--format", "text"
    both, one = (json.loads(run(*score, str(tmp_path / f), "--json").stdout) for f in ("with.txt", "without.txt"))
    assert both.pop("too_short") == 1
    assert both == one
    assert "left out, too short for a tree: 1" in run(*score, str(tmp_path / "with.txt")).stdout
    assert "short.txt: no sentence has at least 2 words" in run(*score, str(tmp_path / "short.txt"), code=1).output


def test_invalid_file_and_options(folder, tmp_path):
    (tmp_path / "broken.mrg").write_text("(S (A a)\n")
    failed = run("train", "pcfg", str(tmp_path / "broken.mrg"), code=1)
    assert "broken.mrg:1: " in failed.output
    assert "--columns" in run("train", "pcfg", str(folder / "some.txt"), "--tags", code=2).output
