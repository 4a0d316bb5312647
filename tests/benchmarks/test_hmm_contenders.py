"""Our side of the HMM benchmark against enumeration, and its declaration."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks.contenders import hmm as contenders
from benchmarks.hmm import BENCHMARK, TINY
from tests.oracle.hmm import enumerate_counts

SMALL = {"N": 4, "T": 5, "S": 3, "V": 4, "seed": 3}


def normalized(rows):
    return rows / rows.sum(axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def enumerated():
    symbols, *rows, _ = contenders.problem(SMALL)
    start, transition, emission = (np.log(row) for row in rows)
    return enumerate_counts(start, transition, None, emission, symbols.tolist())


def test_problem_is_seeded_and_its_rows_are_distributions():
    once, again = contenders.problem(SMALL), contenders.problem(SMALL)
    for a, b in zip(once, again, strict=True):
        assert_array_equal(a, b)
    assert [array.shape for array in once] == [(4, 5), (3,), (3, 3), (3, 4), (4,)]
    for rows in once[1:4]:
        assert_allclose(rows.sum(axis=-1), 1)


def test_ours_is_one_iteration_of_em_at_every_call(enumerated):
    start, transition, _, emission, log_evidence = enumerated
    task = contenders.trelliswork({"task": "em", **SMALL})
    task.call()
    digest = task.digest(task.call())
    assert_allclose(digest["log_evidence"], log_evidence.sum(), rtol=1e-6)
    assert_allclose(digest["trace"], np.trace(normalized(transition)), rtol=1e-5)
    for name, counts in (("start", start), ("transition", transition), ("emission", emission)):
        assert_allclose(digest[name], normalized(counts), rtol=1e-5, err_msg=name)


def test_counts_of_a_long_sequence(enumerated):
    task = contenders.trelliswork({"task": "long", **SMALL})
    digest = task.digest(task.call())
    assert_allclose(digest["log_evidence"], enumerated[-1].sum(), rtol=1e-6)
    assert_allclose(digest["transitions"], 4 * (5 - 1), rtol=1e-6)


def test_cases():
    assert [case.name for case in BENCHMARK.cases] == [
        "em states=64", "em states=512",
        "text states=8 float32", "text states=8 float64", "text states=20 float32", "text states=20 float64",
        "text states=64 float32", "text states=64 float64",
        "long states=2", "long states=200", "long states=2000 T=10000",
    ]  # fmt: skip
    for case in BENCHMARK.cases:
        assert json.loads(json.dumps(case.params)) == case.params
        assert case.check["task"] == case.params["task"]
    symbols = contenders.problem(TINY).symbols
    assert set(symbols.ravel()) == set(range(TINY["V"]))  # the M-step of dynamax fails for a missing symbol


def test_row_of_512_states_has_the_fraction_of_the_gemm_rate():
    reference = BENCHMARK.cases[1].reference
    gemm_flops = 2 * 2048**3
    n_flops = 6 * 200 * 199 * 512**2
    assert reference.relate(n_flops / 5e10, gemm_flops / 1e11)["gemm_fraction"] == pytest.approx(0.5)


def test_long_cases_are_ours_alone():
    assert [case.alone for case in BENCHMARK.cases] == [case.name.startswith("long") for case in BENCHMARK.cases]


def test_text_is_ragged_and_has_all_symbols():
    for case in BENCHMARK.cases:
        if case.params["task"] == "text":
            symbols, *_, lengths = contenders.problem(case.check)
            assert lengths.sum() == len(symbols) == case.check["N"]
            assert lengths[:-1].min() >= 3
            assert set(symbols) == set(range(case.check["V"]))
            assert case.precision == case.params["dtype"]
