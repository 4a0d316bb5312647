"""``trelliswork warmup`` compiles what it is asked for, once, in several processes."""

import json
import os
import subprocess
import sys

import pytest

from tests.commands import run as in_process
from trelliswork.cli import warmup
from trelliswork.cli.train import COMMANDS
from trelliswork.cli.warmup import NAMES

pytestmark = pytest.mark.programs


def run(cache, *arguments):
    command = [sys.executable, "-m", "trelliswork", "warmup", *arguments]
    variables = os.environ | {"TRELLISWORK_CACHE_DIR": str(cache)}
    return subprocess.run(command, env=variables, capture_output=True, text=True)


def test_processes_compile_what_is_missing(tmp_path):
    done = run(tmp_path, "log-bilinear", "kneser-ney", "--jobs", "2", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    figures = json.loads(done.stdout)
    assert figures["compiled"] > 0
    again = run(tmp_path, "log-bilinear", "--jobs", "1")
    assert "kernels ready (0 compiled, " in again.stderr  # behind its progress, on a busy machine
    assert again.stdout == ""


def test_an_unknown_name_is_an_error_that_lists_the_names(tmp_path):
    done = run(tmp_path, "nothing")
    assert done.returncode == 2
    assert all(name in done.stderr for name in NAMES)


def test_without_torch_the_rest_is_compiled(monkeypatch):
    compiled = []
    monkeypatch.setattr(warmup, "find_spec", lambda name: None)
    monkeypatch.setattr(warmup, "_compiled", lambda name: compiled.append(name) or 0)
    assert in_process("warmup", "--jobs", 1).returncode == 0
    assert set(NAMES) - set(compiled) == {"hmm-lm", "distributions"}


def test_every_model_of_train_has_a_name():
    assert set(NAMES) - {"distributions"} == {name for name, *_ in COMMANDS}


@pytest.mark.slow  # compiles kernels twice
@pytest.mark.parametrize("name", ["crf", "kneser-ney"])
def test_training_compiles_nothing_after_warmup(tmp_path, name):
    assert run(tmp_path, name).returncode == 0
    options = ["--columns", "0", "--label", "1"] if name == "crf" else []
    command = [sys.executable, "-m", "trelliswork", "train", name, "--bundled", *options, "--out", str(tmp_path / "m")]
    done = subprocess.run(
        command, env=os.environ | {"TRELLISWORK_CACHE_DIR": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "Compiling" not in done.stderr
