"""Command-line conventions: help with an example, ``-h``, ``--json``, completion, colors, progress."""

import json
import os
import pty
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import typer
from typer.testing import CliRunner

import trelliswork.cli
from tests.commands import COMMAND, run, run_process
from trelliswork.cli import app

COLOR = re.compile(r"\x1b\[[0-9;]*3[0-7][0-9;]*m")  # text color; bold does not count
# These print no results: they print data, in a form that --output names, or show a page in the browser.
WITHOUT_JSON = {"data bundled", "explore", "label", "serve", "tag", "parse", "records parse"}


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    command = getattr(command, "inner", command)  # a train command is completed when it is needed
    yield path, command
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield from walk(command.get_command(None, name), (*path, name))


COMMANDS = dict(walk(typer.main.get_command(app)))
LEAVES = {path: c for path, c in COMMANDS.items() if not hasattr(c, "list_commands")}


def names(paths: Any) -> list:
    return [pytest.param(path, id=" ".join(path) or "trelliswork") for path in paths]


def options(command: Any) -> set[str]:
    return {name for p in command.params for name in (*p.opts, *p.secondary_opts) if name.startswith("-")}


def example(command: Any) -> str:
    match = re.search(r"Example[^:]*: (.+)", f"{command.help or ''}\n{command.epilog or ''}")
    return match.group(1) if match else ""


@pytest.mark.parametrize("path", names(COMMANDS))
def test_help_has_a_valid_example(path):
    """The example calls this command (or a command of this group) with existing options."""
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
def test_h_shows_help_for_all_parameters(path):
    runner = CliRunner()
    short, long = runner.invoke(app, [*path, "-h"]), runner.invoke(app, [*path, "--help"])
    assert short.exit_code == long.exit_code == 0
    assert short.output == long.output
    assert "Usage" in short.output
    assert COMMANDS[path].help
    for parameter in COMMANDS[path].params:
        assert getattr(parameter, "help", None), f"{parameter.name} has no help"


@pytest.mark.parametrize("path", names(LEAVES))
def test_help_fits_a_narrow_screen(path):
    """Each group of options is shown once, and sentences have half of the screen."""
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).output
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    titles = re.findall(r"^╭─ (.+?) ─+╮$", shown, re.MULTILINE)
    assert len(titles) == len(set(titles)), titles
    cells = [line[30:-1] for line in lines if line.startswith("│")]
    long = [cell.strip() for cell in cells if len(cell.split()) > 3]
    assert long
    assert max(map(len, long)) > 40


@pytest.mark.parametrize("path", names(LEAVES))
def test_commands_have_a_json_option(path):
    assert ("--json" in options(LEAVES[path])) == (" ".join(path) not in WITHOUT_JSON)


def test_shell_completion():
    variables = os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    script = run_process("--show-completion", "bash", env=variables)
    assert script.returncode == 0
    assert "complete -o default -F _trelliswork_completion trelliswork" in script.stdout

    def completed(line: str) -> set[str]:
        words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
        return set(run(env=os.environ | words | {"_TRELLISWORK_COMPLETE": "complete_bash"}).stdout.split())

    assert {"train", "tag"} <= completed("trelliswork t")
    assert {"hmm", "hmm-lm"} == completed("trelliswork train h")
    assert "--min-probability" in completed("trelliswork tag --m")
    assert {"columns", "conllu"} <= completed("trelliswork data bundled --format co")


def on_a_terminal(*words: str, **environment: str) -> str:
    """Run a command on a terminal, and return its output."""
    main, side = pty.openpty()
    plain = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "CI", "GITHUB_ACTIONS")}
    child = subprocess.Popen(
        [*COMMAND, *words],
        stdin=side,
        stdout=side,
        stderr=side,
        env=plain | {"TERM": "xterm-256color", "COLUMNS": "100"} | environment,
    )
    os.close(side)
    shown = b""
    try:
        while block := os.read(main, 65536):
            shown += block
    except OSError:  # the other side is closed
        pass
    os.close(main)
    assert child.wait(timeout=60) == 0, shown
    return shown.decode()


TRAIN = ("train", "hmm", "--bundled", "--unlabeled", "--n-states", "3", "--max-iter", "3", "--tol", "0")


def test_no_color_turns_colors_off():
    assert COLOR.search(on_a_terminal("--help"))
    assert not COLOR.search(on_a_terminal("--help", NO_COLOR="1"))


def test_progress_is_shown_on_terminals_only(tmp_path):
    shown = on_a_terminal(*TRAIN, "--out", str(tmp_path / "terminal"), NO_COLOR="1")
    assert not COLOR.search(shown)
    assert "objective" in shown
    assert "━" in shown
    piped = run(*TRAIN, "--out", str(tmp_path / "pipe"), "--json")
    assert "━" not in piped.stderr + piped.stdout
    assert set(json.loads(piped.stdout)) >= {"model", "iterations", "seconds"}


def test_tags_as_json(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("They saw her duck .\nThe dog runs .\n")
    assert run("train", "hmm", "--bundled", "--out", str(tmp_path / "hmm")).returncode == 0

    def tag(parts: str, form: str = "jsonl") -> str:
        done = run("tag", str(tmp_path / "hmm"), str(text), "--format", "text", "--with", parts, "--output", form)
        assert done.returncode == 0, done.stderr
        return done.stdout

    rows = [json.loads(line) for line in tag("marginals").splitlines()]
    assert [row["words"] for row in rows] == [["They", "saw", "her", "duck", "."], ["The", "dog", "runs", "."]]
    for row in rows:
        assert len(row["labels"]) == len(row["probabilities"]) == len(row["words"])
        assert all(0 < p <= 1 for p in row["probabilities"])
    best = json.loads(tag("topk=3").splitlines()[0])
    probabilities = [one["probability"] for one in best["labelings"]]
    assert len(probabilities) == 3
    assert probabilities == sorted(probabilities, reverse=True)
    assert best["labelings"][0]["labels"] == rows[0]["labels"]
    assert best["labels"] == rows[0]["labels"]
    assert "probabilities" not in best
    assert json.loads(tag("marginals", "json")) == rows
    both = json.loads(tag("topk=2,marginals").splitlines()[1])
    assert {**rows[1], "labelings": both["labelings"]} == both


def test_layers_as_json(tmp_path):
    from trelliswork import FactorialCRF, bundled

    train = bundled.load("train")[:20]
    labels = {"pos": [s.tags for s in train], "chunk": [s.chunks for s in train]}
    model = FactorialCRF(("pos", "chunk"), tol=0.1).fit([s.words for s in train], labels)
    model.input_ = {"format": "text", "columns": [0], "label": [1, 2], "separator": None}
    model.save(tmp_path / "joint")
    text = tmp_path / "text.txt"
    text.write_text("They saw her duck .\n")
    row = json.loads(
        run(
            "tag", str(tmp_path / "joint"), str(text), "--format", "text", "--with", "marginals", "--output", "jsonl"
        ).stdout
    )
    assert set(row) == {"words", "labels", "probabilities", "probability"}
    assert {name: len(labels) for name, labels in row["labels"].items()} == {"pos": 5, "chunk": 5}
    assert all(0 < p <= 1 for layer in row["probabilities"].values() for p in layer)


def test_progress_bars_check_for_a_terminal():
    """Every module that draws a progress bar checks that standard error is a terminal."""
    folder = Path(trelliswork.cli.__file__).parent
    drawing = [path for path in folder.rglob("*.py") if "Progress(" in path.read_text(encoding="utf-8")]
    assert drawing
    for path in drawing:
        assert "sys.stderr.isatty()" in path.read_text(encoding="utf-8"), path.name


def test_threads_before_and_after_the_command(tmp_path):
    """The option after the command counts."""
    seen = []
    with mock.patch("trelliswork.compute.threads.set_num_threads", seen.append):
        for words in (("--threads", 3, "train", "hmm", "--threads", 2), ("tag", tmp_path, "--threads", 2)):
            assert run(*words).returncode in (1, 2)  # no input, no model
    assert [n for n in seen if n in (2, 3)] == [3, 2, 2]
    assert run("tag", tmp_path, "--threads", 0).returncode == 2


@pytest.mark.parametrize("path", names(LEAVES))
def test_every_command_that_computes_has_threads(path):
    given = [p.name for p in LEAVES[path].params].count("threads")
    assert given == (path not in {("warmup",), ("data", "bundled")})


@pytest.mark.parametrize("option", ["tag M --min-probability", "evaluate M --target-precision", "serve M --timeout"])
def test_nan_is_outside_of_every_range(option):
    result = CliRunner().invoke(app, [*option.split(), "nan"], env={"COLUMNS": "100"})
    assert result.exit_code == 2
    assert "nan is not a number" in result.output
