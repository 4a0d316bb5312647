"""Linear chains against dynamax, pytorch-crf, SuPar and torch-struct: expectations and best paths."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.contenders.gemm import gemm_reference
from benchmarks.harness import Benchmark, Case, Contender, main

B, T = 64, 64
TINY = {"B": 4, "T": 7, "S": 5, "seed": 1}
STATES = (16, 64, 256)
MODULE = "benchmarks.contenders.chain"


def _case(task: str, n_states: int) -> Case:
    expectations = task == "expectations"
    n_flops = 3 * 2 * B * (T - 1) * n_states**2  # forward, backward and counts; a multiply-add is two
    return Case(
        name=f"S={n_states}" if expectations else f"viterbi S={n_states}",
        params={"task": task, "B": B, "T": T, "S": n_states, "seed": 0},
        check={"task": task, **TINY},
        reference=gemm_reference(n_flops) if expectations and n_states == 256 else None,
    )


BENCHMARK = Benchmark(
    name="chain",
    ours=Contender(
        "trelliswork",
        f"{MODULE}:trelliswork",
        environment="",
        packages=("trelliswork", "torch", "numba"),
        precision="float32",
    ),
    peers=(
        Contender("dynamax", f"{MODULE}:dynamax", packages=("dynamax", "jax"), precision="float32"),
        Contender("pytorch-crf", f"{MODULE}:pytorch_crf", packages=("pytorch-crf", "torch"), precision="float32"),
        Contender("supar", f"{MODULE}:supar", packages=("supar", "torch"), precision="float32"),
        Contender("torch-struct", f"{MODULE}:torch_struct", packages=("torch-struct", "torch"), precision="float32"),
    ),
    cases=tuple(_case(task, n_states) for task in ("expectations", "viterbi") for n_states in STATES),
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
