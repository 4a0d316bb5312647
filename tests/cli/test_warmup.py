"""``trelliswork warmup`` compiles what it is asked for, once, in several processes."""

import json
import os
import subprocess
import sys

import pytest

from tests.commands import run as in_process
from trelliswork.cli import warmup
from trelliswork.models.warmup import ALL, NAMES

pytestmark = pytest.mark.programs


def run(cache, *arguments):
    command = [sys.executable, "-m", "trelliswork", "warmup", *arguments]
    variables = os.environ | {"TRELLISWORK_CACHE_DIR": str(cache)}
    return subprocess.run(command, env=variables, capture_output=True, text=True)


def test_processes_compile_what_is_missing(tmp_path):
    done = run(tmp_path, "lbl", "kneser-ney", "--jobs", "2", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    figures = json.loads(done.stdout)
    assert figures["compiled"] == len(figures["kernels"]) > 0
    assert {row["for"] for row in figures["kernels"]} <= {"lbl", "kneser-ney"}
    assert all(row["seconds"] > 0 and row["kernel"].startswith("trelliswork.") for row in figures["kernels"])
    again = run(tmp_path, "lbl", "--jobs", "1")
    assert "kernels ready (0 compiled, " in again.stderr  # behind its progress, on a busy machine
    assert again.stdout == ""


def test_an_unknown_name_is_an_error_that_lists_the_names(tmp_path):
    done = run(tmp_path, "nothing")
    assert done.returncode == 2
    assert all(name in done.stderr for name in NAMES)


def test_all_names_are_known():
    assert set(ALL) <= set(NAMES)


def test_without_torch_the_rest_is_compiled(monkeypatch):
    compiled = []
    monkeypatch.setattr(warmup, "find_spec", lambda name: None)
    monkeypatch.setattr(warmup, "_compiled", lambda name: (compiled.append(name) or name, []))
    assert in_process("warmup", "--jobs", 1).returncode == 0
    assert set(ALL) - set(compiled) == {"lowrank", "hmm-lm"}


@pytest.mark.slow  # compiles everything in one process
def test_nothing_is_compiled_after_warmup():
    """Warm-up compiles every kernel of the package, in every precision that the queries use."""
    code = """
from trelliswork.models.warmup import ALL, tasks
for name in ALL:
    for _, work in tasks(name): work()
import gc
from numba.core.dispatcher import Dispatcher
ours = [d for d in gc.get_objects() if isinstance(d, Dispatcher) and d.py_func.__module__.startswith('trelliswork')]
# helpers are compiled into the kernels that call them, which alone are called from Python and cached
cached = lambda d: type(d._cache).__name__ != 'NullCache'
ours = [d for d in ours if cached(d)]
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
