"""Trees of spans in torch operations: the code path for CUDA tensors, and for second derivatives on any device.

log Z in float64 and log space, batched over sentences, differentiable any number of times; -inf is allowed.
``lengths`` (B,) is on the tensors' device.
"""

import torch
from torch import Tensor

from trelliswork.inference.tensors import log_sum, plus, shifted


def bracket_log_partition(log_span: Tensor, lengths: Tensor) -> Tensor:
    """Return log Z (B,) of binary bracketings from ``log_span`` (B, n, n). Memory O(B n^3) with gradients."""
    n = log_span.shape[1]
    at = torch.arange(n, device=log_span.device)
    inside_sentence = (at[:, None] <= at) & (at < lengths[:, None])[:, None, :]
    span, top = shifted(log_span.double(), (1, 2), inside_sentence)  # every tree has 2 n - 1 spans
    inside = [span.diagonal(0, 1, 2)]  # entry w: spans i..i+w, (B, n-w)
    for w in range(1, n):
        m = n - w
        parts = torch.stack([inside[r][:, :m] + inside[w - 1 - r][:, r + 1 : r + 1 + m] for r in range(w)])
        inside.append(log_sum(parts, (0,)) + span.diagonal(w, 1, 2))
    whole = torch.stack([chart[:, 0] for chart in inside], dim=1)
    return plus(whole.gather(1, lengths[:, None] - 1)[:, 0], (2 * lengths - 1) * top[:, 0, 0])


def grammar_log_partition(
    log_root: Tensor,
    log_rules: Tensor,
    log_terminals: Tensor,
    log_symbols: Tensor | None,
    lengths: Tensor,
) -> Tensor:
    """Return log Z (B,) of a dense grammar: (N,) or (B, N), (N, S, S) or (B, N, S, S), (B, n, P), (B, n, n, S).

    Time and memory O(B n^2 S^2 (n + N)).
    """
    B, n, P = log_terminals.shape
    N = log_root.shape[-1]
    terminals, leaf_top = shifted(log_terminals.double(), (2,))
    rules, rule_top = shifted(log_rules.double().expand(B, *log_rules.shape[-3:]), (1, 2, 3))
    root, root_top = shifted(log_root.double().expand(B, N), (1,))
    words = torch.arange(n, device=terminals.device) < lengths[:, None]
    shift = root_top[:, 0] + (lengths - 1) * rule_top[:, 0, 0, 0] + torch.where(words, leaf_top[..., 0], 0).sum(dim=1)
    symbols = None if log_symbols is None else log_symbols.double()
    leaves = terminals if symbols is None else terminals + symbols.diagonal(0, 1, 2).transpose(1, 2)[..., N:]
    never = terminals.new_full((), -torch.inf)
    inside = [torch.cat([never.expand(B, n, N), leaves], dim=2)]  # entry w: spans i..i+w, (B, n-w, S)
    # A single word has no tree: a constant, but one that has a gradient, which is zero.
    inputs = [(0 * x.nan_to_num(neginf=0.0)).flatten(1).sum(dim=1) for x in (root, rules, leaves)]
    whole = [never + sum(inputs)]
    for w in range(1, n):
        m = n - w
        parts = [
            inside[r][:, :m, :, None] + inside[w - 1 - r][:, r + 1 : r + 1 + m, None, :] for r in range(w)
        ]  # (B, m, x, y)
        pairs = log_sum(torch.stack(parts), (0,))
        sums = log_sum((pairs[:, :, None] + rules[:, None]).flatten(3), (3,))  # (B, m, N)
        if symbols is not None:
            sums = sums + symbols.diagonal(w, 1, 2).transpose(1, 2)[..., :N]
        inside.append(torch.cat([sums, never.expand(B, m, P)], dim=2))
        whole.append(log_sum(root + sums[:, 0], (1,)))
    return torch.stack(whole, dim=1).gather(1, lengths[:, None] - 1)[:, 0] + shift
