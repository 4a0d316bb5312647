"""The Dockerfile: an unprivileged user, nothing from elsewhere, every file that it copies is in the context."""

import re
from pathlib import Path

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
