"""Chain inference in torch operations, for CUDA tensors; the equations are those of ``reference``.

Everything is in log space and batched over sequences, and each step is relative to its largest score, so that small
differences are not lost beside large scores. ``log_pairwise`` is (S, S) or (B or 1, T-1 or 1, S, S);
``lengths`` (B,) is on the tensors' device. Only ``log_partition`` may be differentiated through (its memory is then
O(B T S^2)); the others keep no graph and need O(B T S), or the size of their results.
"""

import torch
from torch import Tensor

from trelliswork.inference.tensors import log_sum, shifted


def _step(log_pairwise: Tensor, t: int) -> Tensor:
    """Return the matrices (S, S), (1, S, S) or (B, S, S) from t to t+1."""
    if log_pairwise.ndim == 2:
        return log_pairwise
    return log_pairwise[:, t if log_pairwise.shape[1] > 1 else 0]


def _alphas(log_unary: Tensor, log_pairwise: Tensor, lengths: Tensor, beta: float = 1) -> tuple[list[Tensor], Tensor]:
    """Return log alpha_t (B, S) for every t, less its maximum, and the sum (B,) of what was subtracted, in float64.

    It is constant after the end of a sequence.
    """
    unary, tops = shifted(log_unary, (2,))
    total = tops[:, 0, 0].double()
    log_alpha = [unary[:, 0]]
    for t in range(1, log_unary.shape[1]):
        active = t < lengths
        step, step_top = shifted(_step(log_pairwise, t - 1), (-2, -1))
        ahead = unary[:, t] + log_sum(log_alpha[-1][:, :, None] + step, (1,), beta)
        ahead, top = shifted(ahead, (1,))
        moved = tops[:, t, 0].double() + step_top.reshape(-1) + top[:, 0]
        total = torch.where(active, total + moved, total)
        log_alpha.append(torch.where(active[:, None], ahead, log_alpha[-1]))
    return log_alpha, total


def log_partition(log_unary: Tensor, log_pairwise: Tensor, lengths: Tensor, beta: float = 1) -> Tensor:
    """Return log Z (B,) in float64, differentiable any number of times; ``beta`` is that of `log_sum`."""
    log_alpha, total = _alphas(log_unary, log_pairwise, lengths, beta)
    return log_sum(log_alpha[-1], (1,), beta) + total


@torch.no_grad()
def forward(log_unary: Tensor, log_pairwise: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return log_z (B,) in float64 and log_alpha (B, T, S), up to a constant for each position."""
    log_alpha, total = _alphas(log_unary, log_pairwise, lengths)
    return log_sum(log_alpha[-1], (1,)) + total, torch.stack(log_alpha, dim=1)


@torch.no_grad()
def backward(
    log_unary: Tensor, log_pairwise: Tensor, lengths: Tensor, log_z: Tensor, log_alpha: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor]:
    """Return weighted marginals (B, T, S) and edge marginals summed to the shape of ``log_pairwise``."""
    B, T = log_unary.shape[:2]
    possible = ~torch.isneginf(log_z)
    marginals = torch.zeros_like(log_unary)
    edges = torch.zeros_like(log_pairwise)
    log_beta = torch.zeros_like(log_unary[:, 0])
    for t in range(T - 1, -1, -1):
        active = ((t < lengths) & possible)[:, None]
        node = torch.softmax(log_alpha[:, t] + log_beta, dim=1)
        marginals[:, t] = torch.where(active, node * weights[:, None], 0)
        if t == 0:
            break
        step, _ = shifted(_step(log_pairwise, t - 1), (-2, -1))
        following, _ = shifted(shifted(log_unary[:, t], (1,))[0] + log_beta, (1,))
        ahead = step + following[:, None, :]  # (B, S, S)
        edge = torch.softmax((log_alpha[:, t - 1, :, None] + ahead).flatten(1), dim=1).reshape(ahead.shape)
        edge = torch.where(active[:, :, None], edge * weights[:, None, None], 0)  # arbitrary in the padding
        if edges.ndim == 2:
            edges += edge.sum(dim=0)
        else:
            at = t - 1 if edges.shape[1] > 1 else 0
            edges[:, at] += edge if edges.shape[0] == B else edge.sum(dim=0)
        log_beta = torch.where(active, torch.logsumexp(ahead, dim=2), log_beta)
    return marginals, edges


@torch.no_grad()
def viterbi(log_unary: Tensor, log_pairwise: Tensor, lengths: Tensor) -> Tensor:
    """Return the best labels (B, T), -1 in the padding."""
    labels, _ = topk(log_unary, log_pairwise, lengths, 1)
    return labels[:, 0]


@torch.no_grad()
def topk(log_unary: Tensor, log_pairwise: Tensor, lengths: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k best labelings (B, k, T) and scores (B, k); -1 and -inf where there are fewer."""
    B, T, S = log_unary.shape
    low = -torch.inf
    best = torch.full((B, S, k), low, dtype=log_unary.dtype, device=log_unary.device)
    best[:, :, 0] = log_unary[:, 0]
    still = torch.arange(S * k, device=log_unary.device).reshape(1, S, k)
    pointers = []  # into the S * k prefixes of the position before
    for t in range(1, T):
        ahead = best[:, :, None, :] + _step(log_pairwise, t - 1).reshape(-1, S, S, 1)  # (B, from, to, k)
        ahead = ahead.permute(0, 2, 1, 3).reshape(B, S, S * k) + log_unary[:, t, :, None]
        value, pointer = ahead.topk(k, dim=2)
        active = (t < lengths)[:, None, None]
        best = torch.where(active, value, best)
        pointers.append(torch.where(active, pointer, still))
    scores, state = best.reshape(B, S * k).topk(k, dim=1)
    labels = torch.full((B, k, T), -1, dtype=torch.int64, device=log_unary.device)
    for t in range(T - 1, -1, -1):
        labels[:, :, t] = torch.where((t < lengths)[:, None] & (scores > low), state // k, -1)
        if t > 0:
            state = pointers[t - 1].reshape(B, S * k).gather(1, state)
    return labels, scores


@torch.no_grad()
def sample(log_pairwise: Tensor, lengths: Tensor, log_alpha: Tensor, uniforms: Tensor) -> Tensor:
    """Return exact samples (n, B, T) from ``uniforms`` (n, B, T), -1 in the padding."""
    n, B, T = uniforms.shape
    S = log_alpha.shape[2]
    labels = torch.full((n, B, T), -1, dtype=torch.int64, device=log_alpha.device)
    following = torch.zeros((n, B), dtype=torch.int64, device=log_alpha.device)
    batch = torch.arange(B, device=log_alpha.device)
    for t in range(T - 1, -1, -1):
        scores = log_alpha[None, :, t].expand(n, B, S)
        if t + 1 < T:
            into = _step(log_pairwise, t).expand(B, S, S)[batch, :, following]  # (n, B, S)
            scores = scores + torch.where((t + 1 < lengths)[None, :, None], into, 0)
        sums = torch.softmax(scores, dim=2).cumsum(dim=2)
        # The first label whose cumulative mass exceeds the uniform number, hence never one of probability zero.
        drawn = (sums <= (uniforms[:, :, t] * sums[:, :, -1])[:, :, None]).sum(dim=2).clamp(max=S - 1)
        following = torch.where(t < lengths, drawn, following)
        labels[:, :, t] = torch.where(t < lengths, drawn, -1)
    return labels
