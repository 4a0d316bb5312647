"""Seconds until the first answer of a new process, against python-crfsuite and spaCy.

Each sample starts an interpreter. Cold means that no kernel was compiled before; peers have nothing to compile.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import Benchmark, Case, Contender, main

MODULE = "benchmarks.contenders.startup"


def _case(name: str, task: str, cold: bool = False) -> Case:
    return Case(name=name, params={"task": task, "cold": cold}, check={"task": "nothing", "cold": False})


BENCHMARK = Benchmark(
    name="startup",
    ours=Contender("trelliswork", f"{MODULE}:trelliswork", environment="", packages=("trelliswork", "numba")),
    peers=(
        Contender("crfsuite", f"{MODULE}:crfsuite", packages=("python-crfsuite",)),
        Contender("spacy", f"{MODULE}:spacy", packages=("spacy",)),
    ),
    cases=(
        _case("import", "import"),
        _case("help", "help"),
        _case("first tag", "tag"),
        _case("first tag, cold", "tag", cold=True),
        _case("first fit", "fit"),
        _case("first fit, cold", "fit", cold=True),
    ),
)

if __name__ == "__main__":
    main(BENCHMARK)
