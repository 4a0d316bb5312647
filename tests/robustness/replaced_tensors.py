"""Tensors that are replaced, resized or overwritten under a distribution.

``python -m tests.robustness.replaced_tensors N SEED`` makes N attempts. Every query must then answer with old or new
values, or with an error of this package. Runs in a process of its own, since what it looks for is a crash.
"""

import sys
import warnings

import numpy as np
import torch

from trelliswork import FactorGraph, GrammarTree, LinearChain, ProjectiveTree, SpanningTree, SpanTree, TrellisworkError
from trelliswork.distributions import NearlyProjectiveTree

HOW = ("data", "smaller", "transposed", "float32", "nan", "inf", "attribute", "resize", "set")


def make(rng: np.random.Generator) -> tuple[object, list[torch.Tensor]]:
    """Return a small random distribution and the tensors it was made of."""
    B, n, S = int(rng.integers(1, 4)), int(rng.integers(2, 6)), int(rng.integers(2, 5))
    dtype = torch.float32 if rng.random() < 0.5 else torch.float64

    def scores(*shape: int) -> torch.Tensor:
        return torch.from_numpy(rng.normal(size=shape)).to(dtype)

    kind = int(rng.integers(7))
    if kind == 0:
        given = [scores(B, n, S), scores(S, S)]
        return LinearChain(*given), given
    if kind in (1, 2, 3):
        given = [scores(B, n + 1, n + 1)]
        return (ProjectiveTree, SpanningTree, NearlyProjectiveTree)[kind - 1](*given), given
    if kind == 4:
        given = [scores(B, n, n)]
        return SpanTree(*given), given
    if kind == 5:
        given = [scores(S), scores(S, S + 2, S + 2), scores(B, n, 2)]
        return GrammarTree(*given), given
    given = [scores(n * S)]
    tables = [((i, i + 1), scores(S, S)) for i in range(n - 1)]
    return FactorGraph([S] * n, tables, log_unary=given[0], engine="exact"), given


def replace(distribution: object, tensor: torch.Tensor, how: str, rng: np.random.Generator) -> None:
    """Change a tensor, or an attribute of the distribution."""
    if how == "data":
        tensor.data = torch.zeros(0, dtype=tensor.dtype)
    elif how == "smaller":
        tensor.data = tensor.data[..., :1].clone()
    elif how == "transposed":
        tensor.data = tensor.data.transpose(-1, -2 if tensor.ndim > 1 else -1)
    elif how == "float32":
        tensor.data = tensor.data.to(torch.float32 if tensor.dtype == torch.float64 else torch.float64)
    elif how in ("nan", "inf"):
        names = ("log_unary", "log_pairwise", "log_arc", "log_span", "log_rules", "log_terminals")
        own = [getattr(distribution, name) for name in names if hasattr(distribution, name)]
        chosen = [tensor, *own][int(rng.integers(1 + len(own)))]
        if isinstance(chosen, torch.Tensor):
            chosen.view(-1)[int(rng.integers(chosen.numel()))] = float(how)
    elif how == "resize":
        tensor.resize_(0)
    elif how == "set":
        tensor.set_(torch.zeros(1, dtype=tensor.dtype))
    else:
        names = [name for name in ("log_unary", "log_pairwise", "log_arc", "log_span") if hasattr(distribution, name)]
        for name in names:
            try:
                setattr(distribution, name, torch.zeros(0))
            except AttributeError:
                continue
            raise AssertionError(f"{name} of {type(distribution).__name__} can be assigned")


def attempt(rng: np.random.Generator) -> None:
    """Replace a tensor before or between queries, then ask everything."""
    distribution, given = make(rng)
    queries = [
        lambda: distribution.log_partition(),
        lambda: distribution.marginals(),
        lambda: distribution.argmax(),
        lambda: distribution.topk(2),
        lambda: distribution.sample(2),
        lambda: distribution.entropy(),
    ]
    if isinstance(distribution, FactorGraph):
        queries = queries[:3]
    if rng.random() < 0.5:
        queries[int(rng.integers(len(queries)))]()
    replace(distribution, given[int(rng.integers(len(given)))], str(rng.choice(HOW)), rng)
    for query in rng.permutation(np.array(queries, dtype=object)):
        try:
            query()
        except TrellisworkError:
            continue


def main(n: int, seed: int) -> None:
    """Make n attempts."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(seed)
    for _ in range(n):
        attempt(rng)
    print(n, "attempts")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
