"""Attributes of any size end in a model or in an error."""

import subprocess
import sys

from tests.conftest import ROOT


def test_values_of_any_size():
    command = [sys.executable, "-m", "tests.robustness.attribute_values", "1000", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-2000:]}"
    assert done.stdout.startswith("no crash")
    assert " 0 fitted" not in done.stdout
    assert " 0 refused" not in done.stdout
