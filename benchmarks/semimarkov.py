"""Semi-Markov chains against torch-struct: log Z and marginals of segments.

The peer takes seconds per sequence, so there are four: its time grows in proportion to their number.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import Benchmark, Case, Contender, main

MODULE = "benchmarks.contenders.semimarkov"

BENCHMARK = Benchmark(
    name="semimarkov",
    ours=Contender(
        "trelliswork",
        f"{MODULE}:trelliswork",
        environment="",
        packages=("trelliswork", "torch", "numba"),
        precision="float64",
    ),
    peers=(
        Contender("torch-struct", f"{MODULE}:torch_struct", packages=("torch-struct", "torch"), precision="float32"),
    ),
    cases=(
        Case(
            name="L=8 S=16",
            params={"B": 4, "T": 64, "L": 8, "S": 16, "at_once": 1, "seed": 0},
            check={"B": 4, "T": 7, "L": 3, "S": 2, "at_once": 2, "seed": 1},
        ),
    ),
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
