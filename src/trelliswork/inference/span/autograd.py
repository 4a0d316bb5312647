"""log Z of trees of spans as torch functions: gradients are expectations.

Forward and first derivative come from the kernels; when a derivative of the derivative is asked for, it goes through
``torch_path``.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trelliswork.inference.span import brackets, grammar, torch_path
from trelliswork.inference.span.grammar import Grammar


def bracket_log_partition(log_span: Tensor, lengths: Tensor) -> Tensor:
    """log Z (B,) in float64, differentiable in ``log_span`` (B, n, n)."""
    return _Brackets.apply(log_span, lengths)


def grammar_log_partition(
    log_root: Tensor, log_rules: Tensor, log_terminals: Tensor, log_symbols: Tensor | None, lengths: Tensor
) -> Tensor:
    """log Z (B,) in float64, differentiable in all scores: (N,), (N, S, S), (B, n, P), (B, n, n, S)."""
    return _Grammar.apply(log_root, log_rules, log_terminals, log_symbols, lengths)


def doubles(scores: Tensor) -> np.ndarray:
    """Scores as a C-contiguous float64 array on the host."""
    values = scores.detach()
    return np.ascontiguousarray((values if values.device.type == "cpu" else values.cpu()).numpy(), np.float64)


def _again(value: Callable[[], Tensor], weights: Tensor, inputs: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The gradients of weights * log Z by ``torch_path``, which can be differentiated once more."""
    wanted = [x for x in inputs if x is not None and x.requires_grad]
    with torch.enable_grad():
        log_z = value()
        total = (weights * torch.where(torch.isneginf(log_z), 0, log_z)).sum()
        found = iter(torch.autograd.grad(total, wanted, create_graph=True, materialize_grads=True))
    return [next(found) if x is not None and x.requires_grad else None for x in inputs]


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
            return *_again(lambda: torch_path.bracket_log_partition(log_span, lengths), weights, [log_span]), None
        return (weights[:, None, None] * ctx.marginals).to(log_span.dtype), None


class _Grammar(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, log_root: Tensor, log_rules: Tensor, log_terminals: Tensor, log_symbols: Any, lengths: Tensor
    ) -> Tensor:
        symbols = None if log_symbols is None else doubles(log_symbols)
        arrays = doubles(log_root), doubles(log_rules), doubles(log_terminals)
        ctx.found = grammar.expectations(Grammar(*arrays, symbols, lengths.numpy()))
        ctx.save_for_backward(log_root, log_rules, log_terminals, log_symbols, lengths)
        return torch.from_numpy(ctx.found.log_z)

    @staticmethod
    def backward(ctx: Any, weights: Tensor) -> Any:
        root, rules, terminals, symbols, lengths = ctx.saved_tensors
        inputs = root, rules, terminals, symbols
        if torch.is_grad_enabled():
            return *_again(lambda: torch_path.grammar_log_partition(*inputs, lengths), weights, inputs), None
        by, dtype = weights.numpy(), inputs[0].dtype
        found = (
            by @ ctx.found.roots,
            np.tensordot(by, ctx.found.rules, 1),
            by[:, None, None] * ctx.found.terminals,
            None if inputs[3] is None else by[:, None, None, None] * ctx.found.symbols,
        )
        return *(None if x is None else torch.from_numpy(np.asarray(x)).to(dtype) for x in found), None
