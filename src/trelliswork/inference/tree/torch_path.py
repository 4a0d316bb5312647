"""Trees in torch operations: the code path for CUDA tensors, and for second derivatives on any device.

log Z in float64 and log space, batched over sentences, differentiable any number of times. ``log_arc`` (B, n+1, n+1)
may contain -inf; ``lengths`` (B,) is on the same device. Memory O(B n^3) with gradients.
"""

import torch
from torch import Tensor

from trelliswork.inference.tensors import finite, log_sum, plus, shifted


def projective_log_partition(log_arc: Tensor, lengths: Tensor, single_root: bool) -> Tensor:
    """Return log Z (B,) of projective trees: the recursions of ``kernels.eisner``, all spans of one width at a time."""
    arc, shift = _arcs(log_arc, lengths)
    B, N = arc.shape[:2]
    # Entry w of a list: spans i..i+w, (B, N-w); head on the left or on the right, closed or open.
    closed_left, closed_right = [arc.new_zeros(B, N)], [arc.new_zeros(B, N)]
    open_left: list[Tensor] = [arc.new_full((B, N), -torch.inf)]
    open_right: list[Tensor] = [arc.new_full((B, N), -torch.inf)]
    whole = [arc.new_full((B,), -torch.inf)]
    into_root = torch.arange(N, device=arc.device) == 0
    for w in range(1, N):
        m = N - w
        inner = _sum([closed_left[r][:, :m] + closed_right[w - 1 - r][:, r + 1 :] for r in range(w)])
        open_left.append(inner + arc.diagonal(w, 1, 2))
        back = arc.diagonal(-w, 1, 2).masked_fill(into_root[:m], -torch.inf)
        open_right.append(inner + back)
        left = _sum([open_left[r][:, :m] + closed_left[w - r][:, r:] for r in range(1, w + 1)])
        right = _sum([open_right[w - r][:, r:] + closed_right[r][:, :m] for r in range(w)])
        whole.append(left[:, 0])
        if single_root:
            left = left.masked_fill(into_root[:m], -torch.inf)
        closed_left.append(left)
        closed_right.append(right)
    return torch.stack(whole, dim=1).gather(1, lengths[:, None])[:, 0] + shift


def spanning_log_partition(log_arc: Tensor, lengths: Tensor, single_root: bool) -> Tensor:
    """Return log Z (B,) of spanning trees: the elimination of ``kernels.matrix_tree``, all sentences at once."""
    arc, shift = _arcs(log_arc, lengths)
    weight = arc.transpose(1, 2)  # (B, word, head)
    B, N = weight.shape[:2]
    node = torch.arange(N, device=weight.device)
    left = (node > 0) & (node <= lengths[:, None])  # words not eliminated yet
    log_z = weight.new_zeros(B)
    for _ in range(N - 1):
        last = left.sum(dim=1) == 1
        heads = left[:, None, :] & (node[:, None] != node)
        if single_root:
            heads = heads | (last[:, None, None] & (node == 0))
        else:
            heads = heads | (node == 0)
        degree = log_sum(weight.masked_fill(~heads, -torch.inf), (2,))
        # The word with most weight from others: with a single root, one without any must be eliminated last.
        k = degree.detach().clamp(min=torch.finfo(degree.dtype).min).masked_fill(~left, -torch.inf).argmax(dim=1)
        some = left.any(dim=1)
        taken = degree.gather(1, k[:, None])[:, 0]
        log_z = log_z + torch.where(some, taken, 0)
        row = weight.gather(1, k[:, None, None].expand(B, 1, N))  # heads of k
        column = weight.gather(2, k[:, None, None].expand(B, N, 1))  # words under k
        through = plus(column + row, -finite(taken)[:, None, None])
        weight = log_sum(torch.stack([weight, through]).masked_fill(~some[:, None, None], -torch.inf), (0,))
        left = left & (node != k[:, None])
    return plus(log_z, shift)


def _arcs(log_arc: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return arc scores in float64, less the best one into each word, and the sum (B,) of those."""
    node = torch.arange(log_arc.shape[1], device=log_arc.device)
    nodes = node <= lengths[:, None]
    words = nodes & (node > 0)
    arc, top = shifted(log_arc.double(), (1,), nodes[:, :, None] & (node[:, None] != node))
    return arc, torch.where(words, top[:, 0], 0).sum(dim=1)


def _sum(terms: list[Tensor]) -> Tensor:
    """Return the logsumexp of tensors, cut to the length of the first."""
    m = terms[0].shape[1]
    return log_sum(torch.stack([term[:, :m] for term in terms]), (0,))
