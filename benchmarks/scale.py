"""Two processes with one thread each, against one process with one thread, one with two, and four processes.

The ratio beside ``1x1`` is the speedup of the second process. ``slow network`` are two processes whose messages take a
millisecond per step and travel at 1 Gbit/s. All read the same files and end with the same result. Needs
TRELLISWORK_DATA.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import Benchmark, Case, Contender, main

MODULE = "benchmarks.contenders.scale"
PACKAGES = ("trelliswork", "torch")


def _case(name: str, params: dict, **small: int) -> Case:
    return Case(
        name, {"task": name.split()[0], **params}, check={"task": name.split()[0], **params, **small}, show=True
    )


BENCHMARK = Benchmark(
    name="scale",
    ours=Contender("2x1", f"{MODULE}:two_processes", environment="", packages=PACKAGES),
    peers=(
        Contender("1x1", f"{MODULE}:one_process", environment=""),
        Contender("1x2", f"{MODULE}:two_threads", environment=""),
        Contender("4x1", f"{MODULE}:four_processes", environment=""),
        Contender("slow network", f"{MODULE}:slow_network", environment=""),
    ),
    cases=(
        _case("crf conll2000 x10", {"repeat": 10, "n": 9000, "max_iter": 20}, repeat=1, n=100),
        _case("hmm 512 states", {"n": 20_000, "states": 512, "max_iter": 3}, n=200, states=8),
        _case("moments", {"n": 6}, n=1),
        _case("mrf C=10000", {"C": 10_000, "rank": 30, "steps": 4}, C=200),
        _case("tag files", {"n": 8}, n=1),
        _case("pcfg 10+20", {"n": 4000, "max_iter": 4}, n=40, max_iter=2),
    ),
    rtol=1e-3,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
