"""log Z of trees as a torch function whose gradient is the arc marginals.

CPU tensors use the compiled kernels, which compute log Z and marginals together; second derivatives use ``torch_path``.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from trelliswork.inference import tensors
from trelliswork.inference.tree import eisner, matrix_tree, torch_path
from trelliswork.inference.tree.passes import Passes
from trelliswork.inference.tree.potentials import Potentials


@dataclass(frozen=True)
class Engine(Passes):
    """Compiled passes over one kind of tree, and the same log partition function in torch operations."""

    torch_log_partition: Callable[..., Tensor] = field(kw_only=True)


PROJECTIVE = Engine(**vars(eisner), torch_log_partition=torch_path.projective_log_partition)
SPANNING = Engine(**vars(matrix_tree), torch_log_partition=torch_path.spanning_log_partition)


def log_partition(engine: Engine, log_arc: Tensor, lengths: Tensor, potentials: Potentials) -> Tensor:
    """Return log Z (B,) in float64 by the kernels, differentiable twice in ``log_arc`` (B, n+1, n+1)."""

    def compute(wanted: bool) -> tuple[Any, Any]:
        if not wanted:
            return engine.log_partition(potentials), None
        log_z, marginals = engine.expectations(potentials)
        return log_z, lambda weights: [weights[:, None, None] * torch.from_numpy(marginals)]

    def again(scores: Tensor) -> Tensor:
        return engine.torch_log_partition(scores, lengths, potentials.single_root)

    return tensors.log_partition(compute, again, log_arc)
