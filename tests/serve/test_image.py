"""The Dockerfile: an unprivileged user, nothing from elsewhere, every file that it copies is in the context."""

import os
import re
import shutil
import subprocess
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from tests.commands import run

ROOT = Path(__file__).resolve().parents[2]
LINES = re.sub(r"\\\n", "", (ROOT / "Dockerfile").read_text(encoding="utf-8")).splitlines()


def values(instruction: str) -> list[str]:
    return [line.split(maxsplit=1)[1] for line in LINES if line.startswith(instruction + " ")]


def test_the_image_runs_without_privileges_and_has_its_kernels():
    (user,) = values("USER")
    assert int(user.split(":")[0]) > 0
    commands = values("RUN")
    assert any("trelliswork warmup" in command for command in commands)
    order = [line.split()[0] for line in LINES if line and line[0] not in "# "]
    assert order.index("USER") > max(n for n, name in enumerate(order) if name == "RUN")
    (entry,) = values("ENTRYPOINT")
    assert '"trelliswork", "serve"' in entry


def test_everything_comes_from_the_source_tree_and_the_official_image():
    assert {line.split()[0] for line in values("FROM")} == {"python:3.11-slim"}
    text = "\n".join(LINES)
    assert not [a for a in re.findall(r"https?://[^\s'\"]+", text) if not a.startswith("http://127.0.0.1:8080/")]
    assert "ADD " not in text
    assert all("--constraint constraints.txt" in line for line in values("RUN") if "pip install" in line)
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for line in values("COPY"):
        names = [word for word in line.split()[:-1] if not word.startswith("-")]
        assert line.startswith("--from=") or all((ROOT / name).exists() and name in kept for name in names), line


@pytest.mark.slow  # builds the image
def test_the_commands_of_the_page_build_and_start_the_image(tmp_path):
    if shutil.which("docker") is None or subprocess.run(["docker", "info"], capture_output=True).returncode:
        pytest.skip("no Docker engine is running")
    page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    (block,) = [b for b in re.findall(r"^```sh\n(.*?)^```$", page, re.DOTALL | re.MULTILINE) if "docker build" in b]
    build, start = re.sub(r"\s*\\\n\s*", " ", block).splitlines()
    subprocess.run(["bash", "-ec", build], cwd=ROOT, check=True)
    assert run("train", "crf", "--bundled", "--max-iter", 3, "--out", tmp_path / "tagger").returncode == 0
    start = start.replace("docker run", "docker run --detach --rm --name trelliswork-test")
    environment = os.environ | {"TRELLISWORK_API_KEY": "k" * 32}
    subprocess.run(["bash", "-ec", start], cwd=tmp_path, env=environment, check=True)
    try:
        for _ in range(120):
            with suppress(OSError), urllib.request.urlopen("http://127.0.0.1:8080/healthz", timeout=2) as answer:
                assert answer.status == 200
                break
            time.sleep(1)
        else:
            pytest.fail("the service did not answer within two minutes")
    finally:
        subprocess.run(["docker", "stop", "trelliswork-test"], check=True)
