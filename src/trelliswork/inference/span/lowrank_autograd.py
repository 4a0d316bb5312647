"""log Z of low-rank grammars as a torch function: its gradients are the expected uses of the factors' entries."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from trelliswork.inference.span import lowrank
from trelliswork.inference.span.autograd import doubles
from trelliswork.inference.span.lowrank import LowRankGrammar


def lowrank_log_partition(
    log_root: Tensor, log_up: Tensor, log_left: Tensor, log_right: Tensor, log_terminals: Tensor, lengths: Tensor
) -> Tensor:
    """log Z (B,) in float64, differentiable once in all scores: (N,), (N, R), (R, S), (R, S), (B, n, P)."""
    return _LowRank.apply(log_root, log_up, log_left, log_right, log_terminals, lengths)


class _LowRank(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        *scores, lengths = inputs
        root, up, left, right, terminals = (doubles(x) for x in scores)
        ctx.grammar = LowRankGrammar(root, up, left, right, terminals, lengths.numpy())
        ctx.found = lowrank.expectations(ctx.grammar)
        ctx.dtypes = [x.dtype for x in scores]
        return torch.from_numpy(ctx.found.log_z)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weights: Tensor) -> Any:
        by, found = weights.double().numpy(), ctx.found
        if (by != by[0]).any():  # the sums over sentences were made with weights of 1: make them again
            found, by_sum = lowrank.expectations(ctx.grammar, by), 1.0
        else:
            by_sum = float(by[0])
        sums = [by_sum * x for x in (found.roots, found.ups, found.lefts, found.rights)]
        gradients = [*sums, by[:, None, None] * found.terminals]
        return *(torch.from_numpy(x).to(dtype) for x, dtype in zip(gradients, ctx.dtypes, strict=True)), None
