"""Categorical HMMs against hmmlearn, pomegranate and dynamax: one EM iteration, also on text, and memory."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.contenders.gemm import gemm_reference
from benchmarks.harness import Benchmark, Case, Contender, main

MODULE = "benchmarks.contenders.hmm"
N, T, V = 200, 200, 1000
TINY = {"N": 6, "T": 10, "S": 5, "V": 4, "seed": 1}


def _em(n_states: int, reference: bool = False) -> Case:
    n_flops = 3 * 2 * N * (T - 1) * n_states**2  # forward, backward and counts; a multiply-add is two
    return Case(
        name=f"em states={n_states}",
        params={"task": "em", "N": N, "T": T, "S": n_states, "V": V, "seed": 0},
        check={"task": "em", **TINY},
        reference=gemm_reference(n_flops) if reference else None,
        stop="one EM iteration",
    )


def _text(n_states: int, precision: str) -> Case:
    return Case(
        name=f"text states={n_states} {precision}",
        params={"task": "text", "N": 87_133, "T": 44, "S": n_states, "V": 10_000, "seed": 0, "dtype": precision},
        check={"task": "text", **TINY, "N": 400, "dtype": precision},
        stop="one EM iteration",
        precision=precision,
    )


def _long(n_states: int, length: int = 100_000) -> Case:
    # The check loads the kernels, so that the peak memory is that of the data. With more than two states the sequence
    # is processed in blocks; with two states that happens from a million positions on.
    check_length = 20 if n_states == 2 else 1_100_000
    return Case(
        name=f"long states={n_states}" + ("" if length == 100_000 else f" T={length}"),
        params={"task": "long", "N": 1, "T": length, "S": n_states, "V": V, "seed": 0},
        check={"task": "long", "N": 1, "T": check_length, "S": 2, "V": 4, "seed": 1},
        alone=True,
    )


BENCHMARK = Benchmark(
    name="hmm",
    ours=Contender(
        "trelliswork", f"{MODULE}:trelliswork", environment="", packages=("trelliswork", "numba"), precision="float32"
    ),
    peers=(
        Contender("hmmlearn", f"{MODULE}:hmmlearn", packages=("hmmlearn",), precision="float64", one_thread=True),
        Contender("pomegranate", f"{MODULE}:pomegranate", packages=("pomegranate", "torch"), precision="float32"),
        Contender("dynamax", f"{MODULE}:dynamax", packages=("dynamax", "jax"), precision="float32"),
    ),
    cases=(
        _em(64),
        _em(512, reference=True),
        *(_text(n_states, precision) for n_states in (8, 20, 64) for precision in ("float32", "float64")),
        _long(2),
        _long(200),
        _long(2000, 10_000),
    ),
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
