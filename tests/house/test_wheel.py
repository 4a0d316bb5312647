"""The wheel works in an empty environment, installed without the constraints of development."""

import os
import re
import subprocess
import sys

import pytest

from tests.house.wheel import ROOT, try_wheel


@pytest.mark.slow  # builds the wheel and installs half a gigabyte
def test_the_wheel_runs_the_first_example_of_the_readme(tmp_path):
    command = [sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert try_wheel(wheel, sys.executable, tmp_path).endswith("MB installed")


@pytest.mark.slow  # installs the package twice, with PyTorch
def test_the_page_of_installation_installs_the_package(tmp_path):
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```sh\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    for n, line in enumerate(block.splitlines()):
        folder = tmp_path / str(n)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        path = f"{folder / 'bin'}:{os.environ['PATH']}"
        environment = os.environ | {"PATH": path, "PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
        subprocess.run(["bash", "-ec", line], cwd=ROOT, env=environment, check=True)
        command = [folder / "bin" / "trelliswork", "demo", "--sentences", "60", "--quiet"]
        subprocess.run(command, cwd=folder, env=environment, check=True)
        assert (folder / "demo" / "report.html").exists()
