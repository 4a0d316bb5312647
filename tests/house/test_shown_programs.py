"""Commands on pages that need more than one process: servers with their clients, and ``torchrun``."""

import gzip
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.commands import COMMAND, run
from tests.processes import free_port

pytestmark = pytest.mark.programs

DOCS = Path(__file__).resolve().parents[2] / "docs"
FREE = "--port 0"  # the port of a page may be in use


def shown(page: str, language: str, word: str) -> list[str]:
    """Return the blocks of a page in a language that contain a word, with continued lines joined."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [re.sub(r"\s*\\\n\s*", " ", block) for block in found if word in block]


@pytest.mark.parametrize(("page", "server"), [("serving.md", "serve"), ("explore.md", "explore")])
def test_servers_start_and_answer_as_shown(page, server, tmp_path):
    (block,) = [block for block in shown(page, "sh", f"trelliswork {server} ") if "trelliswork train" in block]
    train, start = block.splitlines()
    assert run(*shlex.split(train)[1:], "--max-iter", 3, cwd=tmp_path).returncode == 0
    # A command that ends at once takes the place of the browser that --open starts.
    command = [*COMMAND, *shlex.split(start)[1:], *FREE.split()]
    environment = os.environ | {"BROWSER": "true", "TRELLISWORK_THREADS": "1"}
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), process.stderr.read()
        with (
            urllib.request.urlopen(address, timeout=20)
            if server == "explore"
            else urllib.request.urlopen(address + "v1/models", timeout=20) as answer
        ):
            assert answer.status == 200
        if shutil.which("curl") is not None and server == "explore":  # clients of the service: tests/serve
            (client,) = shown(page, "sh", "curl")
            code = re.sub(r"http://127\.0\.0\.1:\d+/", address, client)
            done = subprocess.run(["bash", "-ec", code], capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
            assert "error" not in json.loads(done.stdout)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def files(tmp_path):
    """Files with the names on the page, two of each."""
    columns = run("data", "bundled", "--limit", 60, "--format", "columns").stdout.split("\n\n")[:60]
    words = [" ".join(line.split()[0] for line in sentence.splitlines()) for sentence in columns]
    contents = {"part-{}.conll.gz": "\n\n".join(columns), "archive-{}.txt.gz": "\n\n".join(columns)}
    contents["text-{}.txt.gz"] = "\n".join(words) + "\n"
    for name, content in contents.items():
        for n in range(2):
            (tmp_path / name.format(n)).write_bytes(gzip.compress(content.encode()))
    (tmp_path / "shared").mkdir()
    return tmp_path


@pytest.mark.slow
def test_commands_of_several_processes_run_as_shown(files):
    blocks = shown("scaling.md", "text", "torchrun --n")
    lines = [line for block in blocks if "srun" not in block for line in block.splitlines()]
    assert len(lines) == 4
    for line in lines:
        # On one machine: two processes of it take the place of four machines.
        code = line.replace("torchrun", f"{sys.executable} -m torch.distributed.run").replace(
            "--nnodes 4", "--nnodes 1"
        )
        code = code.replace("--nproc-per-node 8", "--nproc-per-node 2").replace("512", "8")
        code = code.replace("HOST:29400", f"127.0.0.1:{free_port()}")
        if "train" in line:
            code += " --max-iter 3"
        done = subprocess.run(["bash", "-ec", code], cwd=files, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{line}: {done.stderr}"
    assert sorted(path.name for path in (files / "tagged").iterdir()) == ["archive-0.txt", "archive-1.txt"]
    for model in ("tagger", "moments", "shared/hmm"):
        assert (files / model).exists(), model
