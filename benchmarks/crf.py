"""CRF taggers against python-crfsuite: CoNLL-2000 chunking, tags of UD English EWT and of UD French Sequoia."""

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import Benchmark, Case, Contender, main

MODULE = "benchmarks.contenders.crf"
# CRFsuite's final objectives with c2 = 1: all chunks and noun phrases of CoNLL-2000, UPOS of EWT.
FINAL, FINAL_NP, FINAL_UPOS = 13139.36, 6759.71, 20858.57
EQUAL = "ours within 1e-4 of CRFsuite's final objective"
OWN = "own stopping rule each"


def _case(name: str, task: str, *, show: bool = False, stop: str = "", target: float | None = FINAL) -> Case:
    return Case(name=name, params={"task": task, "target": target}, show=show, stop=stop)


def _both(name: str, task: str, target: float) -> Case:
    """Ours with its own stopping rule, and in a variant to the objective at which CRFsuite stops."""
    equal = _case(f"{name}, equal objective", task, stop=EQUAL, target=target)
    return replace(_case(name, task, show=True, stop=OWN, target=None), variants=(equal,))


BENCHMARK = Benchmark(
    name="crf",
    ours=Contender(
        "trelliswork", f"{MODULE}:trelliswork", environment="", packages=("trelliswork", "numba"), precision="float32"
    ),
    peers=(
        Contender(
            "crfsuite", f"{MODULE}:crfsuite", packages=("python-crfsuite",), precision="float64", one_thread=True
        ),
    ),
    cases=(
        _case("ingest conll2000", "ingest"),
        _case("tag conll2000 strings", "tag strings"),
        _case("tag conll2000 columns", "tag columns"),
        _case("train conll2000", "train", show=True, stop=EQUAL),
        _case("train ewt-xpos", "train ewt", show=True, stop="100 iterations each"),
        _both("train conll2000-np", "train np", FINAL_NP),
        _both("train ewt-upos", "train upos", FINAL_UPOS),
        _case("command ewt-upos", "command upos", show=True, stop=OWN, target=None),
        _case("command sequoia-upos", "command sequoia", show=True, stop=OWN, target=None),
    ),
    rtol=5e-3,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
