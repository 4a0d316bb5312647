"""Brown clusters against the package brown-clustering, on the Penn Treebank, and ours on 12.7 million tokens.

Needs TRELLISWORK_DATA. The large text takes minutes per call: ``--cases raw --repeats 1 --threads 2 --timeout 900``.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import Benchmark, Case, Contender, main

MODULE = "benchmarks.contenders.cluster"
PTB = "ptb-lm/ptb.train.txt"
TINY = {"file": PTB, "lines": 500, "words": 200, "clusters": 20}


def _ptb(lines: int | None, words: int, clusters: int, alone: bool = False) -> Case:
    params = {"file": PTB, "lines": lines, "words": words, "clusters": clusters}
    name = f"ptb lines={lines or 'all'} words={words} clusters={clusters}"
    return Case(name=name, params=params, check=TINY, show=True, alone=alone)


def _raw(clusters: int) -> Case:
    params = {"file": None, "words": 50_000, "clusters": clusters}
    name = f"raw text words=50000 clusters={clusters}"
    return Case(name=name, params=params, check=TINY, show=True, alone=True)


BENCHMARK = Benchmark(
    name="cluster",
    ours=Contender("trelliswork", f"{MODULE}:trelliswork", environment="", packages=("trelliswork", "numba")),
    peers=(Contender("brown-clustering", f"{MODULE}:brown_clustering", packages=("brown-clustering", "numba")),),
    cases=(
        _ptb(5000, 2000, 50),
        _ptb(1000, 1000, 250),  # the peer takes 77 CPU seconds, and more than half an hour for 3,000 lines
        _ptb(None, 10_000, 250, alone=True),
        _ptb(None, 10_000, 1000, alone=True),
        _raw(250),
        _raw(1000),
    ),
    rtol=0.02,  # both are local optima; ours has the higher likelihood
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
