"""The lifted language model: a tight bound, a pass and a step against sub-gradients, torch and 20 times the text."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import Benchmark, Case, Contender, main

MODULE = "benchmarks.contenders.lifted"


BENCHMARK = Benchmark(
    name="lifted",
    ours=Contender("trelliswork", f"{MODULE}:trelliswork", environment="", packages=("trelliswork", "torch")),
    peers=(
        Contender("sub-gradient", f"{MODULE}:sub_gradient", environment="", packages=("trelliswork", "torch")),
        Contender("torch", f"{MODULE}:plain_torch", environment="", packages=("torch",)),
        Contender("x20", f"{MODULE}:twenty_times", environment="", packages=("trelliswork", "torch")),
    ),
    cases=(
        Case(
            "tighten",
            {"task": "tighten", "C": 800, "K": 2, "D": 30, "gap": 1e-4, "seed": 0},
            check={"task": "tighten", "C": 60, "K": 2, "D": 3, "gap": 1e-2, "seed": 1},
            stop="1e-4 above the optimum, or 500 passes",
            show=True,
        ),
        Case(
            "pass C=10000",
            {"task": "pass", "C": 10000, "K": 2, "D": 30, "seed": 0},
            check={"task": "pass", "C": 300, "K": 2, "D": 5, "seed": 1},
            stop="one pass",
        ),
        Case(
            "step PTB",
            {"task": "step", "text": "ptb", "D": 30, "seed": 0},
            check={"task": "step", "text": "random", "C": 50, "D": 3, "seed": 1},
            show=True,
            stop="one training step",
        ),
    ),
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
