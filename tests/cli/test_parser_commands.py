"""train parser, parse, evaluate, inspect: files and pipes, evidence, broken input, and interrupted."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_cli import run

FAST = ("--hash-bits", "16", "--batch-size", "8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("parser")
    for split, limit in (("train", "200"), ("test", "40")):
        text = run("data", "bundled", "--split", split, "--limit", limit).stdout
        (folder / f"{split}.conllu").write_text(text)
    return folder


@pytest.fixture(scope="module")
def parser(folder) -> Path:
    done = run("train", "parser", str(folder / "train.conllu"), "-o", str(folder / "parser"), *FAST, "--json")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["order"] == 2
    assert outcome["epochs"] == 6
    assert outcome["converged"]
    return folder / "parser"


@pytest.fixture(scope="module")
def with_tagger(folder) -> Path:
    train, out = str(folder / "train.conllu"), str(folder / "hmm")
    done = run("train", "parser", train, "-o", out, "--tagger", "hmm", "--order", "1", *FAST)
    assert done.returncode == 0, done.stderr
    assert "order 1" in done.stdout
    return folder / "hmm"


def words(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines() if line and line[0] != "#"]


def test_parse_and_evaluate_agree(folder, parser):
    file = str(folder / "test.conllu")
    report = json.loads(run("evaluate", str(parser), file, "--json").stdout)
    assert report["uas"] > 0.75
    assert report["las"] > 0.65
    assert report["calibration"]
    parsed = run("parse", str(parser), file, "--marginals").stdout
    gold = words((folder / "test.conllu").read_text())
    found = words(parsed)
    right = [a[6] == b[6] for a, b in zip(gold, found, strict=True)]
    assert sum(right) / len(right) == pytest.approx(report["uas"])
    both = [a[6:8] == b[6:8] for a, b in zip(gold, found, strict=True)]
    assert sum(both) / len(both) == pytest.approx(report["las"])
    assert all(0 < float(row[9].removeprefix("ArcProb=")) <= 1 for row in found)
    assert parsed.count("# text") == 40
    text = run("evaluate", str(parser), "test").stdout
    assert "500 sentences" in text
    assert "calibration error" in text


def test_k_best_trees_and_known_heads(folder, parser):
    file = folder / "one.conllu"
    file.write_text("# a comment\n1\tIt\t_\tPRON\tPRP\t_\t_\t_\t_\tX=y\n2\trains\t_\tVERB\tVBZ\t_\t_\t_\t_\t_\n")
    several = run("parse", str(parser), str(file), "--topk", "5")
    assert several.stdout.count("# a comment") == 2  # all trees of two words with one root
    probabilities = [float(line.split("=")[1]) for line in several.stdout.splitlines() if "tree_prob" in line]
    assert sum(probabilities) == pytest.approx(1, abs=1e-4)
    file.write_text(file.read_text().replace("\tVBZ\t_\t_", "\tVBZ\t_\t1"))
    given = words(run("parse", str(parser), str(file), "--known", "--marginals").stdout)
    assert [row[6] for row in given] == ["0", "1"]
    assert given[0][9] == "X=y|ArcProb=1.0000"
    assert run("parse", str(parser), str(file), "--topk", "2", "--marginals").returncode == 2


def test_plain_text_with_a_tagger(folder, parser, with_tagger):
    parsed = words(run("parse", str(with_tagger), "--format", "text", input="The dog runs .\nGo !\n").stdout)
    assert [row[0] for row in parsed] == ["1", "2", "3", "4", "1", "2"]
    assert parsed[0][3:5] == ["DET", "DT"]
    assert [row[6] for row in parsed].count("0") == 2
    again = words(run("parse", str(with_tagger), str(folder / "test.conllu")).stdout)
    assert sum(row[4] != "_" for row in again) == len(again)
    refused = run("parse", str(parser), "--format", "text", input="The dog runs .\n")
    assert refused.returncode == 1
    assert "this parser has no tagger" in refused.stderr


def test_inspect(parser, with_tagger):
    shown = json.loads(run("inspect", str(parser), "--json").stdout)
    assert shown["order"] == 2
    assert "root" in shown["labels"]
    text = run("inspect", str(with_tagger)).stdout
    assert "hashed and have no names" in text
    assert "tagger: hmm" in text
    assert run("inspect", str(parser), "--label", "x").returncode == 2


def test_development_data_and_the_bundled_corpus(folder):
    train, dev, out = str(folder / "train.conllu"), str(folder / "test.conllu"), str(folder / "dev")
    done = run("train", "parser", train, "--dev", dev, "--columns", "form,xpos", "--nonprojective", "-o", out, *FAST)
    assert done.returncode == 0, done.stderr
    assert "kept epoch" in done.stdout
    assert "UAS" in run("evaluate", out, dev).stdout


def test_clear_errors(folder, parser, tmp_path):
    broken = tmp_path / "broken.conllu"
    broken.write_text("1\ta\t_\tN\tNN\t_\t7\tx\t_\t_\n")
    unlabelled = tmp_path / "open.conllu"
    unlabelled.write_text("1\ta\t_\tN\tNN\t_\t_\t_\t_\t_\n")
    out = ("-o", str(tmp_path / "x"))
    cases = (
        (("train", "parser", str(broken), *out), 1, "broken.conllu:1: the head must be"),
        (("train", "parser", str(folder / "train.conllu"), "--columns", "form", *out), 2, "one or two kinds of tags"),
        (("evaluate", str(parser), str(unlabelled)), 1, "whole trees are wanted"),
        (("evaluate", str(parser), str(unlabelled), "--label", "upos"), 2, "a parser is compared"),
        (("tag", str(parser), str(unlabelled)), 2, "use trelliswork parse"),
        (("parse", str(parser), str(tmp_path / "none.conllu")), 1, "no such file"),
        (("parse", str(parser), str(folder / "x.txt")), 1, "CoNLL-U or text file"),
    )
    for command, code, message in cases:
        done = run(*command)
        assert done.returncode == code, (command, done.stderr)
        assert message in " ".join(done.stderr.replace("│", " ").split()), done.stderr


def test_interrupt_keeps_what_was_learned(folder):
    """On a terminal, so that the progress bar is there: interrupt when it shows an objective."""
    out = folder / "stopped"
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "trelliswork", "train", "parser", str(folder / "train.conllu"), "-o", str(out)]
    command += ["--epochs", "100000", *FAST]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=slave)
    os.close(slave)
    seen = b""
    while b"objective" not in seen:
        seen += os.read(master, 10_000)
    child.send_signal(signal.SIGINT)
    printed, _ = child.communicate(timeout=120)
    os.close(master)
    assert child.returncode == 0
    assert b"stopped by the caller" in printed
    report = json.loads(run("evaluate", str(out), str(folder / "test.conllu"), "--json").stdout)
    assert report["uas"] > 0.5
