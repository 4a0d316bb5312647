"""The command line: output, errors, exit codes."""

import re
import subprocess
import sys

import pytest

from trelliswork import __version__


def run(*words: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "trelliswork", *words], capture_output=True, text=True, **options)


def test_version_and_help():
    assert run("--version").stdout == f"trelliswork {__version__}\n"
    page = run("--help")
    assert page.returncode == 0
    for command in ("demo", "train", "tag", "evaluate", "inspect", "data", "bench", "warmup"):
        assert command in page.stdout


def test_help_is_shown_without_a_command():
    shown = run()
    assert "Usage" in shown.stdout + shown.stderr


@pytest.mark.parametrize(
    "words",
    [["nonsense"], ["data", "bundled", "--split", "nope"], ["--threads", "0", "demo"], ["bench", "no-such-benchmark"]],
)
def test_usage_errors_exit_with_2_and_name_the_cause(words):
    failed = run(*words)
    assert failed.returncode == 2
    assert "Traceback" not in failed.stderr
    assert any(word in failed.stderr for word in words)


def test_bundled_data_in_every_format():
    conllu = run("data", "bundled", "--split", "dev", "--limit", "3").stdout
    rows = [line.split("\t") for line in conllu.splitlines() if line and not line.startswith("#")]
    assert {len(row) for row in rows} == {10}
    assert conllu.count("\n\n") == 3
    columns = run("data", "bundled", "--split", "dev", "--limit", "3", "--format", "columns").stdout
    assert [line.split()[0] for line in columns.splitlines() if line] == [row[1] for row in rows]
    text = run("data", "bundled", "--split", "dev", "--limit", "3", "--format", "text").stdout
    assert text.split() == [row[1] for row in rows]
    trees = run("data", "bundled", "--split", "dev", "--limit", "3", "--format", "trees").stdout
    assert re.findall(r" ([^ ()]+)\)", trees) == text.split()


def test_empty_selection_prints_nothing():
    nothing = run("data", "bundled", "--limit", "0")
    assert nothing.returncode == 0
    assert nothing.stdout == ""


def test_closed_pipe_is_not_an_error():
    script = f"{sys.executable} -m trelliswork data bundled | head -n 1"
    piped = subprocess.run(["bash", "-c", f"set -o pipefail; {script}"], capture_output=True, text=True)
    assert piped.stdout == "# sent_id = 1\n"
    assert piped.stderr == ""


def test_warmup():
    done = run("warmup")
    assert done.returncode == 0
    assert "kernels ready" in done.stderr


def test_nothing_is_compiled_after_warmup():
    """Warm-up compiles every kernel of the package, in every precision that the queries use."""
    code = """
from trelliswork.inference import warmup as inference
from trelliswork.models import warmup as models
for _, work in [*inference.tasks(), *models.tasks()]: work()
import gc
from numba.core.dispatcher import Dispatcher
ours = [d for d in gc.get_objects() if isinstance(d, Dispatcher) and d.py_func.__module__.startswith('trelliswork')]
# helpers are compiled into the kernels that call them, which alone are called from Python and cached
cached = lambda d: type(d._cache).__name__ != 'NullCache'
ours = [d for d in ours if not d.py_func.__name__.startswith('_') and cached(d)]
before = {d: len(d.signatures) for d in ours}
assert len(ours) > 10 and all(before.values()), [d for d in ours if not before[d]]
import numpy as np, torch
from trelliswork import LinearChain
for dtype in (torch.float32, torch.float64):
    for shape in ((4, 4), (3, 4, 4, 4), (1, 4, 4, 4), (3, 1, 4, 4)):
        u = torch.randn(3, 5, 4, dtype=dtype, requires_grad=True)
        w = torch.randn(shape, dtype=dtype, requires_grad=True)
        c = LinearChain(u, w, lengths=[5, 3, 1]); c.log_partition().sum().backward()
        with torch.no_grad():
            c.expectations(); c.edge_marginals(); c.argmax(); c.topk(3); c.sample(2); c.entropy(); c.mbr()
        c.condition(allowed=torch.zeros(3, 5, 4, dtype=torch.bool)).marginals()
from trelliswork import CRF
X, Y = [["the", "dog"], ["a", "dog", "runs"]], [["D", "N"], ["D", "N", "V"]]
for options in ({"features": "pos"}, {"features": "pos", "l1": 0.1}, {"features": "pos", "feature_set": "all"}):
    crf = CRF(**options).fit(X, Y); crf.predict(X); crf.predict_topk(X, 2); crf.predict_marginals(X)
CRF(None).fit([[{"w": 0.5}, {"w": 1.0}]], [["A", "B"]])
assert {d: len(d.signatures) for d in ours} == before, [d for d in ours if len(d.signatures) != before[d]]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
