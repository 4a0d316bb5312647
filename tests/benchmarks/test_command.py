"""``python -m benchmarks`` with fake scripts: options, order and exit codes."""

import json

import pytest
from typer.testing import CliRunner

import benchmarks.__main__ as bench
from benchmarks.__main__ import app

SCRIPT = """import json, os, signal, sys
BENCHMARK = None
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler  # Ctrl-C is not ignored
with open({log!r}, "a") as log:
    log.write(json.dumps([{name!r}, *sys.argv[1:]]) + "\\n")
print({name!r})
sys.exit({status})
"""
runner = CliRunner()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "FOLDER", tmp_path)
    (tmp_path / "helper.py").write_text("no = 'benchmark'\n")
    return tmp_path


def make(folder, **statuses):
    for name, status in statuses.items():
        text = SCRIPT.format(log=str(folder / "log"), name=name, status=status)
        (folder / f"{name}.py").write_text("import os\n" + text)


def calls(folder):
    log = folder / "log"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def test_all_continues_after_a_failure(folder):
    make(folder, chain=0, crf=1, tree=3)
    done = runner.invoke(app, ["all", "--json", "--quick", "--peers", "", "--cases", "S=16"])
    assert done.exit_code == 1
    options = ["--threads", "2", "--json", "--quick", "--cases", "S=16", "--peers", "", "--any"]
    assert calls(folder) == [[name, *options] for name in ("chain", "crf", "tree")]
    assert "[2 of 3] crf" in done.stderr
    assert "failed, or results differ from a peer: crf" in done.stderr


def test_exit_code_of_one_benchmark(folder):
    make(folder, chain=1, crf=0, beam=3)
    assert runner.invoke(app, ["chain", "--repeats", "2"]).exit_code == 1
    assert runner.invoke(app, ["crf", "--threads", "1"]).exit_code == 0
    assert calls(folder) == [["chain", "--threads", "2", "--repeats", "2"], ["crf", "--threads", "1"]]
    assert runner.invoke(app, ["beam", "--quick"]).exit_code == 2
    assert runner.invoke(app, ["none"]).exit_code == 2


def test_cases_that_no_benchmark_has_are_an_error(folder):
    make(folder, chain=3, crf=3)
    assert runner.invoke(app, ["all", "--cases", "none"]).exit_code == 2
    make(folder, chain=0)
    assert runner.invoke(app, ["all", "--cases", "S=16"]).exit_code == 0


def test_ctrl_c_in_one_benchmark_ends_all(folder):
    make(folder, chain=130, crf=0)
    assert runner.invoke(app, ["all"]).exit_code == 130
    assert [call[0] for call in calls(folder)] == ["chain"]


def test_a_record_is_for_full_measurements(folder):
    make(folder, chain=0)
    assert runner.invoke(app, ["chain", "--record", "records.jsonl"]).exit_code == 0
    assert calls(folder) == [["chain", "--threads", "2", "--record", "records.jsonl"]]
    assert runner.invoke(app, ["chain", "--quick", "--record", "records.jsonl"]).exit_code == 2
