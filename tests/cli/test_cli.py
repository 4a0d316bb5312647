"""The command line: output, errors, exit codes."""

import re
import subprocess
import sys

import pytest

from tests.commands import run, run_process
from trelliswork import __version__


def test_version_and_help():
    assert run_process("--version").stdout == f"trelliswork {__version__}\n"
    page = run("--help")
    assert page.returncode == 0
    for command in ("demo", "train", "tag", "evaluate", "inspect", "data", "warmup"):
        assert command in page.stdout


def test_help_is_shown_without_a_command():
    shown = run()
    assert "Usage" in shown.stdout + shown.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["data", "bundled", "--split", "nope"],
        ["--threads", "0", "demo"],
    ],
)
def test_usage_errors_exit_with_2_and_name_the_cause(words):
    failed = run(*words)
    assert failed.returncode == 2
    assert "Traceback" not in failed.stderr
    assert any(word in failed.stderr for word in words)


def test_bundled_data_in_every_format():
    conllu = run("data", "bundled", "--split", "dev", "--limit", "3").stdout
    rows = [line.split("\t") for line in conllu.splitlines() if line and not line.startswith("#")]
    assert {len(row) for row in rows} == {10}
    assert conllu.count("\n\n") == 3
    columns = run("data", "bundled", "--split", "dev", "--limit", "3", "--format", "columns").stdout
    assert [line.split()[0] for line in columns.splitlines() if line] == [row[1] for row in rows]
    text = run("data", "bundled", "--split", "dev", "--limit", "3", "--format", "text").stdout
    assert text.split() == [row[1] for row in rows]
    trees = run("data", "bundled", "--split", "dev", "--limit", "3", "--format", "trees").stdout
    assert re.findall(r" ([^ ()]+)\)", trees) == text.split()


def test_empty_selection_prints_nothing():
    nothing = run("data", "bundled", "--limit", "0")
    assert nothing.returncode == 0
    assert nothing.stdout == ""


def test_closed_pipe_is_not_an_error():
    script = f"{sys.executable} -m trelliswork data bundled | head -n 1"
    piped = subprocess.run(["bash", "-c", f"set -o pipefail; {script}"], capture_output=True, text=True)
    assert piped.stdout == "# sent_id = 1\n"
    assert piped.stderr == ""
