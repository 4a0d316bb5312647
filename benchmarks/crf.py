"""CRF taggers against python-crfsuite: CoNLL-2000 chunking, and XPOS tags of UD English EWT."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import Benchmark, Case, Contender, main

MODULE = "benchmarks.contenders.crf"
FINAL = 13139.36  # CRFsuite's objective on CoNLL-2000 with the attributes of its chunking example and c2 = 1


def _case(name: str, task: str, show: bool = False, stop: str = "") -> Case:
    return Case(name=name, params={"task": task, "target": FINAL}, show=show, stop=stop)


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
        _case("train conll2000", "train", show=True, stop="ours within 1e-4 of CRFsuite's final objective"),
        _case("train ewt-xpos", "train ewt", show=True, stop="100 iterations each"),
    ),
    rtol=5e-3,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
