"""Compiled forward-backward for transitions that change with the position, in probability space.

Each step has a matrix of its own, so there is no product to share between sequences: the recursion is that of
``blocks`` with all states at every position. Also computes edge marginals of shared transitions.
"""

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.rows import exp_row
from trelliswork.compute.simd import lanes, load_part, store
from trelliswork.inference.chain.kernels.blocks import BlockSpace, backward, forward
from trelliswork.inference.chain.kernels.forward_backward import largest_safe


@helper
def _exp_matrix(scores, at, S, block, to, Sp):
    """Fill the block (S, Sp) at flat index ``to`` with exp(scores - max), padded with zeros; return the maximum."""
    for i in range(S):
        for k in range(0, Sp, lanes(block)):
            store(block, to + i * Sp + k, load_part(scores, at + i * S + k, S - k, -np.inf))
    return exp_row(block, to, S * Sp, block, to, S * Sp)


@helper(allocates=True)
def _make_space(longest, S, Sp, like):
    """Allocate a ``BlockSpace`` with all states at every position."""
    dtype, rows = like.dtype, np.arange(longest + 1)
    return BlockSpace(
        rows * Sp, np.maximum(rows - 1, 0) * S * Sp, np.empty((longest - 1) * S * Sp, dtype),
        np.empty(longest * Sp, dtype), np.empty(longest * Sp, dtype), np.empty(longest, dtype),
        np.empty(longest * Sp, dtype), np.empty(longest * Sp, dtype),
    )  # fmt: skip


@kernel(allocates=True)
def forward_backward(start, stop, chains, pairwise, log_z, safe, out, edges):
    """Fill log_z (B,), the marginals and edges (B, T-1, S, S), add to the counts, and clear ``safe`` beyond the limit.

    An output whose axis 0 is empty is left out. Sequences already marked unsafe are skipped. Those processed are
    ``order[start:stop]``.
    """
    order, lengths, log_unary = chains
    log_pairwise, batch_step, time_step = pairwise
    weight, slot, marginals, counts = out
    T, S, W, longest = log_unary.shape[1], log_unary.shape[2], lanes(log_unary), 1
    Sp = -(-S // W) * W
    for at in range(start, stop):
        longest = max(longest, lengths[order[at]])
    space = _make_space(longest, S, Sp, log_unary)
    for at in range(start, stop):
        b = order[at]
        if not safe[b]:
            continue
        log_z[b] = 0
        for t in range(lengths[b]):
            log_z[b] += exp_row(log_unary, (b * T + t) * S, S, space.emission, t * Sp, Sp)
            if t > 0:
                matrix = (b * batch_step + (t - 1) * time_step) * S * S
                log_z[b] += _exp_matrix(log_pairwise, matrix, S, space.block, (t - 1) * S * Sp, Sp)
        log_z[b] += forward(lengths[b], space)
        safe[b] = log_z[b] > -np.inf and backward(lengths[b], space, largest_safe(log_unary), weight[b])
        for t in range(lengths[b] if safe[b] else 0):
            if marginals.shape[0]:
                marginals[b, t] = space.marginals[t * Sp : t * Sp + S]
            for i in range(S if t > 0 and (edges.shape[0] or counts.shape[0]) else 0):
                x, row, ahead = space.alpha[(t - 1) * Sp + i] * weight[b], ((t - 1) * S + i) * Sp, t * Sp
                for j in range(S):
                    p = x * (space.block[row + j] * space.ahead[ahead + j])
                    if edges.shape[0]:
                        edges[b, t - 1, i, j] = p
                    if counts.shape[0]:
                        counts[slot[b], i, j] += p
