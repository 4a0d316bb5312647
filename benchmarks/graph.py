"""Factor graphs against PGMax: loopy belief propagation, an exact chain, and time by size."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import Benchmark, Case, Contender, main

MODULE = "benchmarks.contenders.graph"
ITERATIONS = 100  # per call of the loopy cases

GRID = {"task": "grid", "side": 20, "S": 8, "n_iter": ITERATIONS, "seed": 0}
FACTORIAL = {"task": "factorial", "T": 50, "S": [45, 23], "n_iter": ITERATIONS, "seed": 0}
CHAIN = {"task": "chain", "T": 1000, "S": 50, "seed": 0}


def _linear(n_factors: int) -> Case:
    return Case(
        name=f"linear n={n_factors}",
        params={"task": "linear", "n": n_factors, "n_iter": ITERATIONS, "seed": 0},
        check={"task": "linear", "n": 12, "n_iter": 20, "seed": 1},
        alone=True,
    )


BENCHMARK = Benchmark(
    name="graph",
    ours=Contender(
        "trelliswork", f"{MODULE}:trelliswork", environment="", packages=("trelliswork", "numba"), precision="float64"
    ),
    peers=(Contender("pgmax", f"{MODULE}:pgmax", packages=("pgmax", "jax"), precision="float32"),),
    cases=(
        Case("bp grid", GRID, check={**GRID, "side": 3, "S": 3, "seed": 1}, stop="100 iterations each"),
        Case(
            "bp factorial", FACTORIAL, check={**FACTORIAL, "T": 4, "S": [3, 2], "seed": 1}, stop="100 iterations each"
        ),
        Case("chain-1000", CHAIN, check={**CHAIN, "T": 6, "S": 3, "seed": 1}, stop="exact"),
        _linear(1_000),
        _linear(10_000),
        _linear(100_000),
    ),
    rtol=1e-5,
    atol=1e-6,  # the peer uses float32
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
