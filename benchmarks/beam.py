"""CRF training within minimum-divergence beams against our exact kernels: time to the same accuracy."""

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
    "l2": 0.1,
    "n_iter": 200,
    "seed": 1,
}


def _synthetic(name: str, beam: str, **others: object) -> Case:
    params = {"task": "synthetic", "S": 100, "n_train": 50, "n_test": 300, "n_symbols": 1000, "l2": 0.003}
    params |= {"n_iter": 200, "seed": 0, **others}
    tiny = {
        "task": "synthetic",
        **TINY,
        "beam": "kl=0",
    }  # keeps all states, so results equal exact training
    return Case(name=name, params=params | {"beam": beam}, check=tiny, show=True, stop="end of L-BFGS")


BENCHMARK = Benchmark(
    name="beam",
    ours=Contender(
        "trelliswork", f"{MODULE}:trelliswork", environment="", packages=("trelliswork", "numba"), precision="float32"
    ),
    peers=(
        Contender("exact", f"{MODULE}:exact", environment="", packages=("trelliswork", "numba"), precision="float32"),
    ),
    cases=(
        _synthetic("train S=100", "kl=0.3,min=6", n_train=500, n_test=100, l2=0.1),
        _synthetic("train S=1000", "kl=0.3,min=8", S=1000, n_train=500, n_test=100, l2=0.01),
        # Exact training on all 20,008 words would take hours.
        Case(
            "train S=2704 nettalk",
            {"task": "nettalk", "beam": "kl=0.005,min=4", "n_iter": 12, "n_words": 2000},
            show=True,
            stop="12 iterations each",
        ),
    ),
    rtol=0.05,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
