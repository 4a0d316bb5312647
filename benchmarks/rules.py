"""Answers under rules against those of the same tagger without rules."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import Benchmark, Case, Contender, main

MODULE = "benchmarks.contenders.rules"
TASKS = {"tag": "best labeling", "best": "5 best labelings", "marginals": "marginals", "probability": "P(rules)"}

BENCHMARK = Benchmark(
    name="rules",
    ours=Contender(
        "trelliswork", f"{MODULE}:trelliswork", environment="", packages=("trelliswork", "numba"), precision="float32"
    ),
    peers=(
        Contender(
            "without rules", f"{MODULE}:plain", environment="", packages=("trelliswork", "numba"), precision="float32"
        ),
    ),
    cases=(
        *(
            Case(f"{n} {data}, {text}", {"task": task, "data": data, "n_iter": 30, "n": n})
            for data, few in (("addresses", 100), ("sentences", 1500))
            for task, text in TASKS.items()
            for n in [1500 if task == "tag" else few]
        ),
        Case(
            "addresses, train", {"task": "train", "data": "addresses", "n_iter": 5, "n_rules": 3}, stop="5 iterations"
        ),
    ),
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
