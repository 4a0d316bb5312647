"""log Z of trees of spans as torch functions whose gradients are expectations.

Values and first derivatives come from the kernels; second derivatives of bracketings and dense grammars use
``torch_path``.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from trelliswork.inference.span import brackets, grammar, lowrank, torch_path
from trelliswork.inference.span.potentials import Grammar, LowRankGrammar
from trelliswork.inference.tensors import doubles, log_partition


def bracket_log_partition(log_span: Tensor, lengths: Tensor) -> Tensor:
    """Return log Z (B,) in float64, differentiable in ``log_span`` (B, n, n)."""

    def compute(wanted: bool) -> tuple[Any, Any]:
        log_z, marginals = brackets.expectations(doubles(log_span), lengths.numpy())
        return log_z, lambda weights: [weights[:, None, None] * torch.from_numpy(marginals)]

    return log_partition(compute, lambda scores: torch_path.bracket_log_partition(scores, lengths), log_span)


def grammar_log_partition(
    log_root: Tensor, log_rules: Tensor, log_terminals: Tensor, log_symbols: Tensor | None, lengths: Tensor
) -> Tensor:
    """Return log Z (B,) in float64, differentiable in all scores: (N,), (N, S, S), (B, n, P), (B, n, n, S)."""
    scores = log_root, log_rules, log_terminals, *(() if log_symbols is None else (log_symbols,))

    def compute(wanted: bool) -> tuple[Any, Any]:
        root, rules, terminals, *symbols = map(doubles, scores)
        found = grammar.expectations(Grammar(root, rules, terminals, symbols[0] if symbols else None, lengths.numpy()))

        def gradients(weights: Tensor) -> list[Tensor]:
            shared = [torch.from_numpy(np.tensordot(weights.numpy(), x, 1)) for x in (found.roots, found.rules)]
            own = [torch.from_numpy(x) for x in (found.terminals, *([found.symbols] if symbols else []))]
            return shared + [weights.view(-1, *[1] * (x.ndim - 1)) * x for x in own]

        return found.log_z, gradients

    def again(root: Tensor, rules: Tensor, terminals: Tensor, symbols: Tensor | None = None) -> Tensor:
        return torch_path.grammar_log_partition(root, rules, terminals, symbols, lengths)

    return log_partition(compute, again, *scores)


def lowrank_log_partition(
    log_root: Tensor, log_up: Tensor, log_left: Tensor, log_right: Tensor, log_terminals: Tensor, lengths: Tensor
) -> Tensor:
    """Return log Z (B,) in float64, differentiable once in all scores: (N,), (N, R), (R, S), (R, S), (B, n, P)."""
    return _LowRank.apply(log_root, log_up, log_left, log_right, log_terminals, lengths)


class _LowRank(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        *scores, lengths = inputs
        root, up, left, right, terminals = (doubles(x) for x in scores)
        ctx.grammar = LowRankGrammar(root, up, left, right, terminals, lengths.numpy())
        ctx.expected = lowrank.expectations(ctx.grammar)
        ctx.dtypes = [x.dtype for x in scores]
        return torch.from_numpy(ctx.expected.log_z)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weights: Tensor) -> Any:
        by, expected = weights.double().numpy(), ctx.expected
        if (by != by[0]).any():  # the sums over sentences have weights of 1: recompute them
            expected, by_sum = lowrank.expectations(ctx.grammar, by), 1.0
        else:
            by_sum = float(by[0])
        sums = [by_sum * x for x in (expected.roots, expected.ups, expected.lefts, expected.rights)]
        gradients = [*sums, by[:, None, None] * expected.terminals]
        return *(torch.from_numpy(x).to(dtype) for x, dtype in zip(gradients, ctx.dtypes, strict=True)), None
