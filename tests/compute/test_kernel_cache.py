"""Compiled kernels are never stale, are kept where the user can write, and are announced when they are compiled."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import trelliswork
from trelliswork.compute.compilation import Kernel, Notice

pytestmark = pytest.mark.programs


PACKAGE = Path(trelliswork.__file__).parent
# A kernel that calls a shared helper; prints its value and how many kernels were compiled for it.
PROBE = """
from trelliswork.compute.jit import kernel
from trelliswork.compute.kernels.logspace import log_add


@kernel
def add(a, b):
    return log_add(a, b)
"""
RUN = """
from trelliswork.compute.compilation import watching
seen = []
with watching(seen.append):
    from trelliswork.compute.kernels.probe import add
    print(round(add(0.0, 0.0), 4), sum(k.seconds is not None for k in seen))
"""


@pytest.fixture
def copy(tmp_path):
    """A copy of what compiles kernels, with one kernel more."""
    target = tmp_path / "site" / "trelliswork"
    shutil.copytree(PACKAGE / "compute", target / "compute", ignore=shutil.ignore_patterns("__pycache__"))
    for file in PACKAGE.glob("*.py"):
        shutil.copy(file, target)
    (target / "compute" / "kernels" / "probe.py").write_text(PROBE)
    return target


def run(copy, **environment):
    """Run the probe with the copy of the package; as root, without the privilege to write everywhere."""
    variables = {k: v for k, v in os.environ.items() if k not in ("TRELLISWORK_CACHE_DIR", "XDG_CACHE_HOME")}
    variables |= {"PYTHONPATH": str(copy.parent), "PYTHONDONTWRITEBYTECODE": "1"} | environment
    done = subprocess.run(
        [sys.executable, "-c", RUN], env=variables, capture_output=True, text=True, preexec_fn=_drop_privilege
    )
    assert done.returncode == 0, done.stderr
    value, n_compiled = done.stdout.split()
    return float(value), int(n_compiled), done.stderr


def _drop_privilege():
    if os.getuid() == 0:
        ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE: permissions hold for root too


def forbid_writing(directory):
    for path in [directory, *directory.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)


def test_an_edited_shared_helper_is_compiled_again(copy, tmp_path):
    cache = {"TRELLISWORK_CACHE_DIR": str(tmp_path / "cache")}
    assert run(copy, **cache)[:2] == (0.6931, 1)
    assert run(copy, **cache)[:2] == (0.6931, 0)
    helper = copy / "compute" / "kernels" / "logspace.py"
    original = helper.read_text()
    edited = original.replace("top + math.log1p", "10 + top + math.log1p")
    assert edited != original
    helper.write_text(edited)
    assert run(copy, **cache)[:2] == (10.6931, 1)
    helper.write_text(original)
    assert run(copy, **cache)[:2] == (0.6931, 0)  # still there


@pytest.mark.skipif(sys.platform != "linux", reason="permissions are tested with Linux's capabilities")
def test_a_user_who_cannot_write_to_the_installation(copy, tmp_path):
    forbid_writing(copy)
    home = tmp_path / "home"
    home.mkdir()
    files = sorted(copy.rglob("*"))
    assert run(copy, HOME=str(home)) == (0.6931, 1, "")
    assert run(copy, HOME=str(home)) == (0.6931, 0, "")
    assert sorted(copy.rglob("*")) == files
    assert list((home / ".cache" / "trelliswork" / "kernels").iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="permissions are tested with Linux's capabilities")
def test_a_user_who_can_write_nowhere_but_in_the_temporary_directory(copy, tmp_path):
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    home.mkdir()
    temporary.mkdir()
    forbid_writing(copy)
    forbid_writing(home)
    for n_compiled in (1, 0):
        value, compiled, message = run(copy, HOME=str(home), TMPDIR=str(temporary))
        assert (value, compiled) == (0.6931, n_compiled)
        assert message.count("\n") == 1
        assert "cannot be written, so compiled kernels are kept in" in message


def test_processes_that_compile_at_once(copy, tmp_path):
    variables = os.environ | {"PYTHONPATH": str(copy.parent), "TRELLISWORK_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", RUN]
    running = [subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [float(process.communicate()[0].split()[0]) for process in running] == [0.6931] * 3
    assert run(copy, TRELLISWORK_CACHE_DIR=str(tmp_path / "cache"))[1] == 0


def test_a_notice_speaks_once_and_then_of_progress(capsys, monkeypatch):
    clock = iter([100.0, 100.5, 107.0, 107.1, 107.2])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    notice = Notice("'train crf'")
    for seconds in (None, 0.5, 6.5, None, 0.1):
        notice(Kernel("name", "signature", seconds))
    assert capsys.readouterr().err.splitlines() == [
        "Compiling kernels for 'train crf', first run only ...",
        "  2 kernels, 7 s",
    ]
