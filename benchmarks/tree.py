"""Trees against torch-struct, SuPar and JAX: log Z and marginals of dependency trees; inside-outside of a grammar.

Cases ``second-order``: belief propagation with siblings and grandparents, with our first order as a peer.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import Benchmark, Case, Contender, main

MODULE = "benchmarks.contenders.tree"
B = 32


def _arcs(task: str, n: int) -> Case:
    return Case(
        name=f"{task} n={n}",
        params={"task": task, "B": B, "n": n, "seed": 0},
        check={"task": task, "B": 5, "n": 6, "seed": 1},
    )


def _second_order(n: int) -> Case:
    """Return a case with eight candidate heads per word; in the tiny problem both must agree: all arcs, no parts."""
    return Case(
        name=f"second-order n={n}",
        params={"task": "second-order", "B": B, "n": n, "n_heads": 8, "strength": 0.5, "seed": 0},
        check={"task": "second-order", "B": 5, "n": 6, "n_heads": 6, "strength": 0.0, "seed": 1},
        stop="5 iterations",
    )


INSIDE = Case(
    name="inside",
    params={"task": "inside", "B": 8, "n": 20, "N": 30, "P": 60, "seed": 0},
    check={"task": "inside", "B": 3, "n": 6, "N": 3, "P": 4, "seed": 1},
)

BENCHMARK = Benchmark(
    name="tree",
    ours=Contender(
        "trelliswork",
        f"{MODULE}:trelliswork",
        environment="",
        packages=("trelliswork", "torch", "numba"),
        precision="float32",
    ),
    peers=(
        Contender("torch-struct", f"{MODULE}:torch_struct", packages=("torch-struct", "torch"), precision="float32"),
        Contender("supar", f"{MODULE}:supar", packages=("supar", "torch"), precision="float32"),
        Contender("jax", f"{MODULE}:jax", packages=("jax",), precision="float32"),
        Contender(
            "first-order", f"{MODULE}:first_order", environment="", packages=("trelliswork",), precision="float32"
        ),
    ),
    cases=(
        *(_arcs(task, n) for task in ("projective", "nonprojective") for n in (20, 40)),
        INSIDE,
        *(_second_order(n) for n in (10, 20, 40, 80)),
    ),
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
