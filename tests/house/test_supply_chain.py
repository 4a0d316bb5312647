"""What is installed is pinned, and nothing is fetched or sent: no network at import or run time."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import trelliswork

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(trelliswork.__file__).parent
SERVER = SOURCE / "serve" / "sockets.py"  # of the service, which listens
GROUP = SOURCE / "learning" / "distributed.py"  # processes that torchrun has started; names of network devices only
NETWORK = ("socket", "ssl", "urllib", "http", "ftplib", "smtplib", "poplib", "imaplib", "xmlrpc", "requests", "httpx")


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split("==") for line in lines if line and not line.startswith("#")]
    assert all(len(row) == 2 for row in rows), "every line is name==version"
    return {plain(name): version for name, version in rows}


def installed(name: str, extras: frozenset[str], seen: dict[str, frozenset[str]]) -> None:
    """Add to ``seen`` a package and what it needs here, as far as it is installed."""
    if extras <= seen.get(name, frozenset()) and name in seen:
        return
    seen[name] = seen.get(name, frozenset()) | extras
    try:
        needed = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return
    for text in needed:
        need = Requirement(text)
        if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            installed(plain(need.name), frozenset(need.extras), seen)


def test_everything_that_setup_installs_is_pinned():
    seen: dict[str, frozenset[str]] = {}
    installed("trelliswork", frozenset({"dev", "docs", "experiments", "browser"}), seen)
    assert len(seen) > 50
    assert set(seen) - {"trelliswork"} - set(pins()) == set()


def test_build_requirements_are_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for requirement in map(Requirement, project["build-system"]["requires"]):
        assert requirement.specifier.contains(pins()[plain(requirement.name)]), requirement


def test_ci_installs_pinned_versions():
    """Of pip's commands only the weekly job with the newest versions has no constraints, and says so."""
    for path in [ROOT / "Makefile", *(ROOT / ".github" / "workflows").glob("*.yml")]:
        for line in path.read_text(encoding="utf-8").splitlines():
            if re.search(r"-m (pip (install|wheel)|build)\b", line):
                assert re.search(r"constraints\.txt|no constraints|PINNED", line), f"{path.name}: {line.strip()}"


def test_only_servers_and_groups_of_processes_use_the_network():
    imported = re.compile(rf"^\s*(?:import|from) (?:{'|'.join(NETWORK)})\b", re.MULTILINE)
    users = {path for path in SOURCE.rglob("*.py") if imported.search(path.read_text(encoding="utf-8"))}
    assert users == {SERVER, GROUP}


FORBID = """
import sys

def forbid(event, arguments):
    if event.split(".")[0] in ("socket", "urllib", "http", "ftplib", "smtplib", "poplib", "imaplib"):
        raise RuntimeError(f"network: {event} {arguments}")

sys.addaudithook(forbid)
"""
WORK = """
import contextlib, io, pathlib
import trelliswork
from trelliswork.cli import main

sentences = trelliswork.bundled.load("train")[:50]
tagger = trelliswork.HMM().fit([s.words for s in sentences], [s.tags for s in sentences])
tagger.save("tagger")
assert trelliswork.load("tagger").predict([["The", "dog", "runs"]])

def command(*words):
    sys.argv, out = ["trelliswork", *words], io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main()
    return out.getvalue()

pathlib.Path("text").write_text("The dog runs .\\n")
assert "dog" in command("tag", "tagger", "text", "--format", "text")
assert "HMM" in command("inspect", "tagger")
print("done")
"""
CONNECT = "import socket\nsocket.socket()\n"


def in_child(code: str, folder: Path) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", FORBID + code], capture_output=True, text=True, cwd=folder)


def test_no_network_at_import_and_run_time(tmp_path):
    done = in_child(WORK, tmp_path)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_sockets_are_forbidden_in_that_child(tmp_path):
    assert "network: socket.__new__" in in_child(CONNECT, tmp_path).stderr


@pytest.mark.slow  # imports everything, torch and matplotlib too
def test_no_network_when_any_module_is_imported(tmp_path):
    code = """
import importlib, pkgutil, trelliswork
for module in pkgutil.walk_packages(trelliswork.__path__, "trelliswork."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            assert error.name in ("spacy", "srsly"), error  # which not everybody has
print("done")
"""
    done = in_child(code, tmp_path)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
