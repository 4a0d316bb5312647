"""Factor graphs against PGMax: loopy belief propagation, an exact chain, and time by size; schedules against flooding.

For the schedules, the ratio to ``flooding`` (ours) is one over how many times more a message costs.
"""

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


def _schedule(engine: str, schedule: str) -> Case:
    """As many messages as flooding in the same number of iterations; the ratio is that of the times per message."""
    params = {"task": "linear", "n": 2 * 100 * 99, "n_iter": 50, "seed": 0, "engine": engine, "schedule": schedule}
    name = schedule if engine == "bp" else f"max-product {schedule}"
    return Case(f"{name} 100 x 100", params, check={**params, "n": 12, "n_iter": 100, "seed": 1})


LARGE = {"task": "linear", "n": 2 * 1000 * 999, "n_iter": 50, "seed": 0}


BENCHMARK = Benchmark(
    name="graph",
    ours=Contender(
        "trelliswork", f"{MODULE}:trelliswork", environment="", packages=("trelliswork", "numba"), precision="float64"
    ),
    peers=(
        Contender("pgmax", f"{MODULE}:pgmax", packages=("pgmax", "jax"), precision="float32"),
        Contender("flooding", f"{MODULE}:flooding", environment="", precision="float64"),
    ),
    cases=(
        Case("bp grid", GRID, check={**GRID, "side": 3, "S": 3, "seed": 1}, stop="100 iterations each"),
        Case(
            "bp factorial", FACTORIAL, check={**FACTORIAL, "T": 4, "S": [3, 2], "seed": 1}, stop="100 iterations each"
        ),
        Case("chain-1000", CHAIN, check={**CHAIN, "T": 6, "S": 3, "seed": 1}, stop="exact"),
        _linear(1_000),
        _linear(10_000),
        _linear(100_000),
        _schedule("bp", "sequential"),
        _schedule("bp", "residual"),
        _schedule("max_product", "flooding"),
        Case(
            "grid 1000 x 1000",
            LARGE,
            check={**LARGE, "n": 12, "n_iter": 20, "seed": 1},
            stop="50 iterations each",
        ),
    ),
    rtol=1e-5,
    atol=1e-6,  # the peer uses float32
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
