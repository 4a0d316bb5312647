"""The lifted language model: passes to a tight bound against the paper's sub-gradient; one pass against torch alone."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import Benchmark, Case, Contender, main

MODULE = "benchmarks.contenders.lifted"


def _step(times: int) -> Case:
    """A training step on a text, and on the same text so many times."""
    return Case(f"step text x{times}", {"task": "step", "times": times, "C": 4000, "D": 30, "seed": 0}, alone=True)


BENCHMARK = Benchmark(
    name="lifted",
    ours=Contender("trelliswork", f"{MODULE}:trelliswork", environment="", packages=("trelliswork", "torch")),
    peers=(
        Contender("sub-gradient", f"{MODULE}:sub_gradient", environment="", packages=("trelliswork", "torch")),
        Contender("torch", f"{MODULE}:plain_torch", environment="", packages=("torch",)),
    ),
    cases=(
        Case(
            "tighten",
            {"task": "tighten", "C": 800, "K": 2, "D": 30, "gap": 1e-4, "seed": 0},
            check={"task": "tighten", "C": 60, "K": 2, "D": 3, "gap": 1e-2, "seed": 1},
            show=True,
        ),
        Case(
            "pass C=10000",
            {"task": "pass", "C": 10000, "K": 2, "D": 30, "seed": 0},
            check={"task": "pass", "C": 300, "K": 2, "D": 5, "seed": 1},
        ),
        _step(1),
        _step(20),
    ),
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
