"""log Z of trees of spans as torch functions whose gradients are expectations.

Values and first derivatives come from the kernels; second derivatives of bracketings and dense grammars use
``torch_path``.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from trelliswork.inference.span import brackets, grammar, lowrank, torch_path
from trelliswork.inference.span.potentials import Grammar, LowRankGrammar
from trelliswork.inference.tensors import doubles


def bracket_log_partition(log_span: Tensor, lengths: Tensor) -> Tensor:
    """Return log Z (B,) in float64, differentiable in ``log_span`` (B, n, n)."""
    return _Brackets.apply(log_span, lengths)


def grammar_log_partition(
    log_root: Tensor, log_rules: Tensor, log_terminals: Tensor, log_symbols: Tensor | None, lengths: Tensor
) -> Tensor:
    """Return log Z (B,) in float64, differentiable in all scores: (N,), (N, S, S), (B, n, P), (B, n, n, S)."""
    return _Grammar.apply(log_root, log_rules, log_terminals, log_symbols, lengths)


def lowrank_log_partition(
    log_root: Tensor, log_up: Tensor, log_left: Tensor, log_right: Tensor, log_terminals: Tensor, lengths: Tensor
) -> Tensor:
    """Return log Z (B,) in float64, differentiable once in all scores: (N,), (N, R), (R, S), (R, S), (B, n, P)."""
    return _LowRank.apply(log_root, log_up, log_left, log_right, log_terminals, lengths)


def _differentiable(
    value: Callable[[], Tensor], weights: Tensor, inputs: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Return the gradients of weights * log Z by ``torch_path``, which can be differentiated once more."""
    differentiable = [x for x in inputs if x is not None and x.requires_grad]
    with torch.enable_grad():
        log_z = value()
        total = (weights * torch.where(torch.isneginf(log_z), 0, log_z)).sum()
        gradients = iter(torch.autograd.grad(total, differentiable, create_graph=True, materialize_grads=True))
    return [next(gradients) if x is not None and x.requires_grad else None for x in inputs]


class _Brackets(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, log_span: Tensor, lengths: Tensor) -> Tensor:
        log_z, marginals = brackets.expectations(doubles(log_span), lengths.numpy())
        ctx.marginals = torch.from_numpy(marginals)
        ctx.save_for_backward(log_span, lengths)
        return torch.from_numpy(log_z)

    @staticmethod
    def backward(ctx: Any, weights: Tensor) -> Any:
        log_span, lengths = ctx.saved_tensors
        if torch.is_grad_enabled():
            again = _differentiable(lambda: torch_path.bracket_log_partition(log_span, lengths), weights, [log_span])
            return *again, None
        return (weights[:, None, None] * ctx.marginals).to(log_span.dtype), None


class _Grammar(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, log_root: Tensor, log_rules: Tensor, log_terminals: Tensor, log_symbols: Any, lengths: Tensor
    ) -> Tensor:
        symbols = None if log_symbols is None else doubles(log_symbols)
        arrays = doubles(log_root), doubles(log_rules), doubles(log_terminals)
        ctx.expected = grammar.expectations(Grammar(*arrays, symbols, lengths.numpy()))
        ctx.save_for_backward(log_root, log_rules, log_terminals, log_symbols, lengths)
        return torch.from_numpy(ctx.expected.log_z)

    @staticmethod
    def backward(ctx: Any, weights: Tensor) -> Any:
        root, rules, terminals, symbols, lengths = ctx.saved_tensors
        inputs = root, rules, terminals, symbols
        if torch.is_grad_enabled():
            again = _differentiable(lambda: torch_path.grammar_log_partition(*inputs, lengths), weights, inputs)
            return *again, None
        by, dtype = weights.numpy(), inputs[0].dtype
        gradients = (
            by @ ctx.expected.roots,
            np.tensordot(by, ctx.expected.rules, 1),
            by[:, None, None] * ctx.expected.terminals,
            None if inputs[3] is None else by[:, None, None, None] * ctx.expected.symbols,
        )
        return *(None if x is None else torch.from_numpy(np.asarray(x)).to(dtype) for x in gradients), None


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
