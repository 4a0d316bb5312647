"""Trees of spans in torch operations: the code path for CUDA tensors, and for second derivatives on any device.

log Z in float64 and log space, batched over sentences, differentiable any number of times; -inf is allowed.
``lengths`` (B,) is on the tensors' device.
"""

import torch
from torch import Tensor

from trelliswork.inference.tensors import UNLIKELY, answer, possible


def bracket_log_partition(log_span: Tensor, lengths: Tensor) -> Tensor:
    """Return log Z (B,) of binary bracketings from ``log_span`` (B, n, n). Memory O(B n^3) with gradients."""
    span = possible(log_span)
    n = span.shape[1]
    inside = [span.diagonal(0, 1, 2)]  # entry w: spans i..i+w, (B, n-w)
    for w in range(1, n):
        m = n - w
        parts = torch.stack([inside[r][:, :m] + inside[w - 1 - r][:, r + 1 : r + 1 + m] for r in range(w)])
        inside.append(torch.logsumexp(parts, dim=0) + span.diagonal(w, 1, 2))
    whole = torch.stack([chart[:, 0] for chart in inside], dim=1)
    return answer(whole.gather(1, lengths[:, None] - 1)[:, 0])


def grammar_log_partition(
    log_root: Tensor, log_rules: Tensor, log_terminals: Tensor, log_symbols: Tensor | None, lengths: Tensor
) -> Tensor:
    """Return log Z (B,) of a dense grammar: (N,) or (B, N), (N, S, S) or (B, N, S, S), (B, n, P), (B, n, n, S).

    Time and memory O(B n^2 S^2 (n + N)).
    """
    terminals, rules, root = possible(log_terminals), possible(log_rules), possible(log_root)
    B, n, P = terminals.shape
    N = root.shape[-1]
    root, rules = root.expand(B, N), rules.expand(B, *rules.shape[-3:])
    symbols = None if log_symbols is None else possible(log_symbols)
    leaves = terminals if symbols is None else terminals + symbols.diagonal(0, 1, 2).transpose(1, 2)[..., N:]
    never = terminals.new_full((), UNLIKELY)
    inside = [torch.cat([never.expand(B, n, N), leaves], dim=2)]  # entry w: spans i..i+w, (B, n-w, S)
    whole = [never.expand(B)]
    for w in range(1, n):
        m = n - w
        parts = [
            inside[r][:, :m, :, None] + inside[w - 1 - r][:, r + 1 : r + 1 + m, None, :] for r in range(w)
        ]  # (B, m, x, y)
        pairs = torch.logsumexp(torch.stack(parts), dim=0)
        sums = torch.logsumexp((pairs[:, :, None] + rules[:, None]).flatten(3), dim=3)  # (B, m, N)
        if symbols is not None:
            sums = sums + symbols.diagonal(w, 1, 2).transpose(1, 2)[..., :N]
        inside.append(torch.cat([sums, never.expand(B, m, P)], dim=2))
        whole.append(torch.logsumexp(root + sums[:, 0], dim=1))
    return answer(torch.stack(whole, dim=1).gather(1, lengths[:, None] - 1)[:, 0])
