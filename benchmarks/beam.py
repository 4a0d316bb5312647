"""CRF training within minimum-divergence beams against our own exact kernels: time to the same accuracy."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import Benchmark, Case, Contender, main

MODULE = "benchmarks.contenders.beam"
TINY = {
    "n_train": 5,
    "n_test": 5,
    "S": 6,
    "n_symbols": 8,
    "length": 9,
    "own": False,
    "l2": 0.1,
    "n_iter": 200,
    "seed": 1,
}


def _synthetic(name: str, S: int, n_train: int, beam: str, *, own: bool = False) -> Case:
    params = {
        "task": "synthetic",
        "S": S,
        "n_train": n_train,
        "n_test": 50,
        "n_symbols": 1000,
        "seed": 0,
        "n_iter": 200,
    }
    return Case(
        name=name,
        params=params | {"beam": beam, "own": own, "l2": 0.003},
        check={"task": "synthetic", **TINY, "beam": "kl=0", "own": own},  # all states: what exact training finds
        show=True,
    )


BENCHMARK = Benchmark(
    name="beam",
    ours=Contender("trelliswork", f"{MODULE}:trelliswork", environment="", packages=("trelliswork", "numba")),
    peers=(Contender("exact", f"{MODULE}:exact", environment="", packages=("trelliswork", "numba")),),
    cases=(
        _synthetic("train S=100", 100, 50, "kl=0.05,min=2"),
        _synthetic("train S=100 position-dependent", 100, 50, "kl=0.05,min=2", own=True),
        _synthetic("train S=1000", 1000, 50, "kl=0.05,min=2"),
        Case(
            "train S=2704 nettalk",
            {"task": "nettalk", "beam": "kl=0.005,min=4", "n_iter": 40},
            show=True,
        ),
    ),
    rtol=0.05,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
