"""The scripts in ``examples/`` run as they say."""

import re
import runpy
import sys
from pathlib import Path

import pytest

from trelliswork import bundled

pytestmark = pytest.mark.programs

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name, *arguments, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out.splitlines()


def test_names_lists_the_least_certain_first(tmp_path, monkeypatch, capsys):
    for name, part in (("train.txt", "train"), ("new.txt", "test")):
        sentences = bundled.load(part)[: 200 if part == "train" else 5]
        text = "\n".join("".join(f"{w} {c}\n" for w, c in zip(s.words, s.chunks, strict=True)) for s in sentences)
        (tmp_path / name).write_text(text, encoding="utf-8")
    lines = run("names.py", tmp_path / "train.txt", tmp_path / "new.txt", monkeypatch=monkeypatch, capsys=capsys)
    probabilities = [float(line.split()[0]) for line in lines]
    assert len(lines) > 10
    assert probabilities == sorted(probabilities)


def test_active_learning_beats_chance(monkeypatch, capsys):
    lines = run("active_learning.py", monkeypatch=monkeypatch, capsys=capsys)
    random, chosen = ([float(x) for x in re.findall(r"0\.\d+", line)] for line in lines)
    assert random[0] == chosen[0]
    assert chosen[-1] > random[-1]


def test_demo_conditions_on_what_is_known(monkeypatch, capsys):
    best, given, *alternatives = run("demo.py", monkeypatch=monkeypatch, capsys=capsys)
    assert "duck/NN" in best
    assert given.split()[-5:] == ["PRP", "VBD", "PRP", "VBP", "."]
    probabilities = [float(line.split()[2].rstrip(":")) for line in alternatives]
    assert len(probabilities) == 3
    assert probabilities == sorted(probabilities, reverse=True)


def test_own_factor_agrees_with_enumeration(monkeypatch, capsys):
    bp, exact, *steps = run("own_factor.py", monkeypatch=monkeypatch, capsys=capsys)
    assert bp.removeprefix("bp") == exact.removeprefix("exact")
    log_probs = [float(line.split()[1]) for line in steps]
    assert log_probs == sorted(log_probs)
    assert log_probs[-1] > log_probs[0] + 1


def test_every_example_is_run():
    assert sorted(p.name for p in EXAMPLES.glob("*.py")) == [
        "active_learning.py",
        "demo.py",
        "names.py",
        "own_factor.py",
    ]
