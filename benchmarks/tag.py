"""The command ``tag`` from a column file to an output file, against a script that does the same with python-crfsuite.

Both tag with the attributes of the preset ``pos``, trained on UD English EWT (17 labels). ``ewt`` is the development
and test part 24 times, ``wikitext-2`` text of another kind without repetition; about 1.2 million tokens each. Seconds
include the start of the program and loading the model. The figures of the warm-up call are shown: tokens per second
of CPU time, peak memory, and the CPU time of a program that tags two words. ``load`` is ``CRF.load`` alone, of 30 MB.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import Benchmark, Case, Contender, main

MODULE = "benchmarks.contenders.tag"


def _case(name: str, task: str, alone: bool = False) -> Case:
    return Case(name=name, params={"task": task}, show=True, alone=alone, stop="30 iterations each")


BENCHMARK = Benchmark(
    name="tag",
    ours=Contender(
        "trelliswork", f"{MODULE}:trelliswork", environment="", packages=("trelliswork", "numba"), precision="float32"
    ),
    peers=(
        Contender(
            "crfsuite", f"{MODULE}:crfsuite", packages=("python-crfsuite",), precision="float64", one_thread=True
        ),
    ),
    cases=(_case("ewt", "ewt"), _case("wikitext-2", "wikitext-2"), _case("load", "load", alone=True)),
    rtol=1e-2,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
