"""Options in files: ``train --config`` and ``--save-config``; the options that ``--help`` shows; ``info``."""

import json
import tomllib

import pytest
import typer

from tests.commands import run
from trelliswork import __version__
from trelliswork.cli import COMMANDS, PANELS, app
from trelliswork.cli.train.config import ALWAYS, FIRST, MOST

TEXT = "Ada B-PER\nwrote O\n. O\n\nBob B-PER\nslept O\n. O\n\n"
ROOT = typer.main.get_command(app)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.txt").write_text(TEXT, encoding="utf-8")
    return tmp_path


def train(folder, *words):
    return run("train", "crf", *words, "--quiet", "--json", cwd=folder)


def test_a_run_is_a_file(folder):
    options = ("--features", "ner", "--l2", "0.25", "--label-weight", "B-PER=2", "--max-iter", "7")
    first = train(folder, "train.txt", *options, "--save-config", "run.toml", "--out", "a")
    assert first.returncode == 0, first.stderr
    text = (folder / "run.toml").read_text(encoding="utf-8")
    assert tomllib.loads(text) == {
        "command": "train crf", "files": ["train.txt"], "features": "ner", "l2": 0.25, "label_weight": "B-PER=2",
        "max_iter": 7, "out": "a",
    }  # fmt: skip
    assert text.startswith(f"# trelliswork {__version__}")
    again = train(folder, "--config", "run.toml", "--out", "b", "--save-config", "again.toml")
    results = [json.loads(one.stdout) for one in (first, again)]
    assert results[1]["model"] == "b"  # the command line has priority
    assert results[0]["objective"] == results[1]["objective"]
    assert (folder / "again.toml").read_text(encoding="utf-8") == text.replace('out = "a"', 'out = "b"')


def test_flags_dashes_and_numbers_as_text(folder):
    lines = ['files = ["train.txt"]', "strict = true", "bundled = false", "max-iter = 2", "l2 = 1", "label = 1"]
    (folder / "run.toml").write_text("\n".join(lines), encoding="utf-8")
    result = train(folder, "--config", "run.toml")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["iterations"] == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_itr = 1", "run.toml: train crf has no option max_itr. Did you mean max_iter?"),
        ("zzzzzz = 1", "has no option zzzzzz. trelliswork train crf --help-all lists all."),
        ('l2 = "x"', "run.toml: l2 must be a number, got 'x'"),
        ("l2 = nan", "run.toml: l2 must be a number, got NaN"),
        ("l2 = -1", "run.toml: l2 must be a number, got -1"),
        ("max_iter = 1.5", "run.toml: max_iter must be a whole number, got 1.5"),
        ('algorithm = "lbgfs"', "run.toml: algorithm must be one of lbfgs, sgd, perceptron, got 'lbgfs'"),
        ("strict = 1", "run.toml: strict must be true or false, got 1"),
        ("features = true", "run.toml: features must be a text, got true"),
        ('files = "train.txt"', "run.toml: files must be a list of names, got 'train.txt'"),
        ("l2 = ", "run.toml: expected options in TOML, such as l2 = 0.1"),
        ('command = "train hmm"', "run.toml: the options are not those of train crf"),
        ("config = 1", "has no option config"),
    ],
)
def test_errors_name_file_and_key(folder, text, message):
    (folder / "run.toml").write_text(f"{text}\n", encoding="utf-8")
    result = train(folder, "train.txt", "--config", "run.toml")
    assert result.returncode == 1
    assert message in " ".join(result.stderr.split())


def test_a_file_of_options_must_be_there(folder):
    assert "none.toml: cannot be read" in train(folder, "--config", "none.toml").stderr


def options_of(command):
    """Return the names of the options in the --help of a command."""
    names = [p.name for p in command.params if p.param_type_name == "option" and p.name != "help"]
    return [name for name in names if not command.shown or name in command.shown]


def test_help_shows_at_most_15_options():
    for name in COMMANDS:
        group = ROOT.get_command(None, name)
        below = group.list_commands(None) if hasattr(group, "list_commands") else []
        for command in [group.get_command(None, one) for one in below] or [group]:
            assert len(options_of(getattr(command, "inner", command))) <= MOST, command.name


def test_help_of_train_shows_what_matters():
    train = ROOT.get_command(None, "train")
    commands = [train.get_command(None, name).inner for name in train.list_commands(None)]
    assert all(set(ALWAYS.split()) - {"dev"} <= set(options_of(command)) for command in commands)
    assert set(FIRST.split()) <= {p.name for command in commands for p in command.params}
    crf = {"format", "columns", "label", "features", "order", "l2", "max_iter", "algorithm"}
    assert set(options_of(train.get_command(None, "crf").inner)) == {*ALWAYS.split(), *crf}


def test_every_command_is_in_a_panel():
    assert [name for names in PANELS.values() for name in names] == list(COMMANDS)
    text = run("--help").stdout
    places = [text.index(f"─ {panel} ─") for panel in PANELS]
    assert places == sorted(places)


def test_help_all_lists_what_help_leaves_out():
    few, every = run("train", "crf", "--help").stdout, run("train", "crf", "--help-all").stdout
    assert "more options: --help-all" in few
    assert "--checkpoint" not in few
    assert "--checkpoint" in every
    assert "more options" not in every


def test_help_of_the_shell_has_no_python():
    assert "set_params" not in run("train", "crf", "--help-all").stdout


def test_info():
    facts = json.loads(run("info", "--json").stdout)
    assert facts["trelliswork"] == __version__
    assert {"python", "cores", "threads", "memory_gb", "packages", "cache"} <= facts.keys()
    assert run("info").stdout.startswith("trelliswork ")
