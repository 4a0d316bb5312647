"""A project of a user: its types agree with ours by mypy and pyright, and it runs; logging and warnings."""

import json
import logging
import os
import shutil
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.house.user_project import example
from tests.models.fitted import TAGS, WORDS
from trelliswork import CRF, errors, load

FILE = ROOT / "tests" / "house" / "user_project" / "example.py"


def test_the_project_runs():
    example.main()


@pytest.mark.slow  # reads all types of our dependencies
def test_mypy_accepts_the_project(tmp_path):
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull, "--cache-dir", str(tmp_path)]
    environment = os.environ | {"MYPYPATH": str(ROOT / "src")}
    options = ["--ignore-missing-imports", "--follow-imports", "silent", str(FILE)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_pyright_accepts_the_project(tmp_path):
    pytest.importorskip("pyright", reason="pyright is not installed")
    if shutil.which("node") is None:
        pytest.skip("pyright needs Node.js")
    settings = {"extraPaths": [str(ROOT / "src")], "typeCheckingMode": "standard"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    source = FILE.read_text(encoding="utf-8")
    (tmp_path / "example.py").write_text(source, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(
        source.replace("tagger.score(words, tags), float)", "tagger.score(words, tags), int)")
    )
    command = [sys.executable, "-m", "pyright", "--project", str(tmp_path), "--pythonpath", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    if "errors," not in done.stdout and "error," not in done.stdout:
        pytest.skip(f"pyright does not start: {done.stderr[-300:]}")
    found = [line for line in done.stdout.splitlines() if "error: " in line]
    assert len(found) == 1, done.stdout  # that of the other file, which shows that types are checked
    assert "wrong.py" in found[0]
    assert '"int" but received "float"' in found[0]


def test_messages_go_to_the_logger_of_the_package(caplog, tmp_path, capfd):
    with caplog.at_level(logging.DEBUG, logger="trelliswork"):
        CRF("pos", tol=0.1).fit(WORDS[:5], TAGS[:5]).save(tmp_path / "model")
        load(tmp_path / "model")
    levels = {record.levelname for record in caplog.records}
    text = "\n".join(record.getMessage() for record in caplog.records)
    assert levels == {"DEBUG", "INFO"}
    assert all(record.name.startswith("trelliswork.") for record in caplog.records)
    assert "iteration 1: value" in text
    assert "training ended after" in text
    assert f"saved a model of kind crf in {tmp_path / 'model'}" in text
    assert f"loaded a model of kind crf from {tmp_path / 'model'}" in text
    assert capfd.readouterr() == ("", "")


def test_warnings_are_classes_with_one_base():
    found = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Warning)]
    assert len(found) > 3
    assert all(issubclass(cls, errors.TrellisworkWarning) for cls in found)
