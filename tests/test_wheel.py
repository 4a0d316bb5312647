"""The wheel works in an empty environment, installed without the constraints of development."""

import subprocess
import sys

import pytest

from tests.wheel import ROOT, try_wheel


@pytest.mark.slow  # builds the wheel and installs half a gigabyte
def test_the_wheel_runs_the_first_example_of_the_readme(tmp_path):
    command = [sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert try_wheel(wheel, sys.executable, tmp_path).endswith("MB installed")
