"""Our dependency parser on UD English EWT with gold tags: parsing and training, without peers.

Rows have processor time beside the wall time of the harness: compare ``--threads 1`` and ``--threads 2``.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import Benchmark, Case, Contender, main


def _case(task: str, sentences: int) -> Case:
    return Case(
        name=f"{task} ewt",
        params={"task": task, "sentences": sentences},
        check={"task": task, "sentences": 100},
        show=True,
        stop="default settings",
    )


BENCHMARK = Benchmark(
    name="parser",
    ours=Contender(
        "trelliswork",
        "benchmarks.contenders.parser:trelliswork",
        environment="",
        packages=("trelliswork", "numba"),
        precision="float32",
    ),
    peers=(),
    cases=(_case("parse", 3000), _case("train", 0)),
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
