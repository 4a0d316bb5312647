"""Low-rank models against dense ones and plain torch autograd: log evidence of a batch and its gradient."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.contenders.lowrank import thin_reference
from benchmarks.harness import Benchmark, Case, Contender, main

MODULE = "benchmarks.contenders.lowrank"
B, T, R = 32, 32, 256


def _states(n_states: int) -> Case:
    return Case(
        name=f"states={n_states}",
        params={"B": B, "T": T, "S": n_states, "R": R, "W": 500, "seed": 0},
        check={"B": 20, "T": 6, "S": 60, "R": 8, "W": 30, "seed": 1},
        reference=thin_reference(B, T, n_states, R),
    )


FORWARD = Case(
    name="forward=16384",
    params={"task": "forward", "B": B, "T": T, "S": 16384, "R": R, "W": 500, "seed": 0},
    check={"task": "forward", "B": 20, "T": 6, "S": 60, "R": 8, "W": 30, "seed": 1},
)

INSIDE = Case(
    name="inside",
    params={"task": "inside", "B": 8, "n": 30, "N": 100, "P": 200, "R": 32, "seed": 0},
    check={"task": "inside", "B": 3, "n": 6, "N": 4, "P": 5, "R": 3, "seed": 1},
)

BENCHMARK = Benchmark(
    name="lowrank",
    ours=Contender(
        "trelliswork",
        f"{MODULE}:trelliswork",
        environment="",
        packages=("trelliswork", "torch", "numba"),
        precision="float32",
    ),
    peers=(
        Contender("dense", f"{MODULE}:dense", environment="", packages=("trelliswork", "torch"), precision="float32"),
        Contender(
            "torch-autograd", f"{MODULE}:torch_autograd", environment="", packages=("torch",), precision="float32"
        ),
    ),
    cases=(*(_states(n) for n in (4096, 8192, 16384)), FORWARD, INSIDE),
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
