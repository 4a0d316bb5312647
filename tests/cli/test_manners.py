"""How every command behaves: help with an example, ``-h``, ``--json``, completion, colours, progress."""

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import trelliswork.cli
from trelliswork import __version__
from trelliswork.cli import app

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7][0-9;]*m")  # a colour of text; bold alone is none
# What these print is no figure: data as they are, a page in the browser.
WITHOUT_JSON = {"data bundled", "explore"}


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from walk(child, (*path, name))


COMMANDS = dict(walk(typer.main.get_command(app)))
LEAVES = {path: c for path, c in COMMANDS.items() if not hasattr(c, "commands")}


def names(paths: Any) -> list:
    return [pytest.param(path, id=" ".join(path) or "trelliswork") for path in paths]


def options(command: Any) -> set[str]:
    return {name for p in command.params for name in (*p.opts, *p.secondary_opts) if name.startswith("-")}


def example(command: Any) -> str:
    found = re.search(r"Example[^:]*: (.+)", f"{command.help or ''}\n{command.epilog or ''}")
    return found.group(1) if found else ""


@pytest.mark.parametrize("path", names(COMMANDS))
def test_help_has_an_example_that_could_be_typed(path):
    """The example calls this command (a group: one of its own), with options that it has."""
    shown = example(COMMANDS[path])
    assert shown, "no example"
    words = shlex.split(shown)
    words = words[words.index("trelliswork") + 1 :]
    words = words[: next((n for n, word in enumerate(words) if word in ("|", ">")), len(words))]
    called: tuple[str, ...] = ()
    for word in words:
        if (*called, word) in COMMANDS:
            called = (*called, word)
        else:
            break
    assert called[: len(path)] == path
    assert called in LEAVES
    given = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    assert given <= options(LEAVES[called]), shown


@pytest.mark.parametrize("path", names(COMMANDS))
def test_help_comes_by_h_and_explains_everything(path):
    runner = CliRunner()
    short, long = runner.invoke(app, [*path, "-h"]), runner.invoke(app, [*path, "--help"])
    assert short.exit_code == long.exit_code == 0
    assert short.output == long.output
    assert "Usage" in short.output
    assert COMMANDS[path].help
    for parameter in COMMANDS[path].params:
        assert getattr(parameter, "help", None), f"{parameter.name} is not explained"


@pytest.mark.parametrize("path", names(LEAVES))
def test_figures_come_as_json(path):
    assert ("--json" in options(LEAVES[path])) == (" ".join(path) not in WITHOUT_JSON)


def run(*words: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "trelliswork", *words], capture_output=True, text=True, env=os.environ | environment
    )


def test_version_and_module():
    assert run("--version").stdout == f"trelliswork {__version__}\n"


def test_shells_complete_commands_options_and_values():
    script = run("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert script.returncode == 0
    assert "complete -o default -F _trelliswork_completion trelliswork" in script.stdout

    def completed(line: str) -> set[str]:
        words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
        return set(run(_TRELLISWORK_COMPLETE="complete_bash", **words).stdout.split())

    assert {"train", "tag"} <= completed("trelliswork t")
    assert {"hmm", "hmm-lm"} == completed("trelliswork train h")
    assert "--marginals" in completed("trelliswork tag --m")
    assert {"columns", "conllu"} <= completed("trelliswork data bundled --format co")


def on_a_terminal(*words: str, **environment: str) -> str:
    """What the command shows where both outputs are a terminal."""
    ours, theirs = pty.openpty()
    plain = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "CI", "GITHUB_ACTIONS")}
    child = subprocess.Popen(
        [sys.executable, "-m", "trelliswork", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=plain | {"TERM": "xterm-256color", "COLUMNS": "100"} | environment,
    )
    os.close(theirs)
    shown = b""
    try:
        while block := os.read(ours, 65536):
            shown += block
    except OSError:  # the other side is closed
        pass
    os.close(ours)
    assert child.wait(timeout=60) == 0, shown
    return shown.decode()


TRAIN = ("train", "hmm", "--unlabeled", "--n-states", "3", "--max-iter", "3", "--tol", "0")


def test_no_colours_where_none_are_wanted():
    assert COLOUR.search(on_a_terminal("--help"))
    assert not COLOUR.search(on_a_terminal("--help", NO_COLOR="1"))


def test_progress_is_for_terminals(tmp_path):
    shown = on_a_terminal(*TRAIN, "--out", str(tmp_path / "terminal"), NO_COLOR="1")
    assert not COLOUR.search(shown)
    assert "objective" in shown
    assert "━" in shown
    piped = run(*TRAIN, "--out", str(tmp_path / "pipe"), "--json")
    assert "━" not in piped.stderr + piped.stdout
    assert set(json.loads(piped.stdout)) >= {"model", "iterations", "seconds"}


def test_tags_as_json(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("They saw her duck .\nThe dog runs .\n")
    assert run("train", "hmm", "--out", str(tmp_path / "hmm")).returncode == 0

    def tag(*more: str) -> subprocess.CompletedProcess:
        return run("tag", str(tmp_path / "hmm"), str(text), "--format", "text", "--json", *more)

    rows = [json.loads(line) for line in tag().stdout.splitlines()]
    assert [row["words"] for row in rows] == [["They", "saw", "her", "duck", "."], ["The", "dog", "runs", "."]]
    for row in rows:
        assert len(row["labels"]) == len(row["probabilities"]) == len(row["words"])
        assert all(0 < p <= 1 for p in row["probabilities"])
    best = json.loads(tag("--topk", "3").stdout.splitlines()[0])
    found = [one["probability"] for one in best["labelings"]]
    assert len(found) == 3
    assert found == sorted(found, reverse=True)
    assert best["labelings"][0]["labels"] == rows[0]["labels"]
    assert tag("--marginals").returncode == 2


def test_layers_as_json(tmp_path):
    from trelliswork import FactorialCRF, bundled

    train = bundled.load("train")[:20]
    labels = {"pos": [s.tags for s in train], "chunk": [s.chunks for s in train]}
    model = FactorialCRF(("pos", "chunk"), tol=0.1).fit([s.words for s in train], labels)
    model.input_ = {"format": "text", "columns": [0], "label": [1, 2], "separator": None}
    model.save(tmp_path / "joint")
    text = tmp_path / "text.txt"
    text.write_text("They saw her duck .\n")
    row = json.loads(run("tag", str(tmp_path / "joint"), str(text), "--format", "text", "--json").stdout)
    assert set(row) == {"words", "labels", "probabilities"}
    assert {name: len(found) for name, found in row["labels"].items()} == {"pos": 5, "chunk": 5}
    assert all(0 < p <= 1 for found in row["probabilities"].values() for p in found)


def test_warmup_as_json(monkeypatch):
    for room in ("inference", "models"):
        monkeypatch.setattr(f"trelliswork.{room}.warmup.tasks", lambda: [("nothing", lambda: None)])
    figures = json.loads(CliRunner().invoke(app, ["warmup", "--json"]).stdout)
    assert figures["checks"] == 2
    assert figures["seconds"] >= 0


def test_every_bar_asks_for_a_terminal():
    """No module of the command line draws progress without looking where standard error goes."""
    folder = Path(trelliswork.cli.__file__).parent
    drawing = [path for path in folder.rglob("*.py") if "Progress(" in path.read_text(encoding="utf-8")]
    assert drawing
    for path in drawing:
        assert "sys.stderr.isatty()" in path.read_text(encoding="utf-8"), path.name
