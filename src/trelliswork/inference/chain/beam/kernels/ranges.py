"""Compiled forward-backward with beams over a range of sequences, each in the working memory of the one before.

How many states the beams will hold is not known beforehand: a kernel fills ``states`` and ``marginals`` sequence after
sequence, stops when the next one might not fit, and returns which that is and how many numbers it filled. A sequence
that is not safe in probability space adds nothing and gets log Z = nan.
"""

import numpy as np

from trelliswork.compute.jit import kernel
from trelliswork.inference.chain.beam.kernels import forward_backward as beam_kernels
from trelliswork.inference.chain.beam.kernels import sparse as beam_sparse_kernels
from trelliswork.inference.chain.beam.kernels.space import Edges, make_space

_one = beam_kernels.one
_sparse_one, _sparse_space = beam_sparse_kernels.one, beam_sparse_kernels.make_space


@kernel
def _copy(T, at, used, ptr, alpha, from_states, kept, out_sizes, out_kept, out_states, out_marginals):
    """Hand the beams of a sequence over, whose first position is ``at``; return how many states there were."""
    n = ptr[T]
    for t in range(T):
        out_sizes[at + t] = ptr[t + 1] - ptr[t]
        out_kept[at + t] = kept[t]
    out_states[used : used + n] = from_states[:n]
    out_marginals[used : used + n] = alpha[:n]
    return n


@kernel
def dense(
    start, stop, lengths, offsets, log_unary, matrix, batch_step, time_step, is_log, log_shift, width,
    gold, least, keep, ratio, refined, given_ptr, given_states, limit, check,
    counts, log_z, sizes, kept, states, marginals,
):  # fmt: skip
    """Transitions shared (probabilities with whole vectors a row) or by position (logarithms)."""
    T, S = log_unary.shape[1:]
    s = make_space(T, S, width, refined, is_log, log_unary)
    spare = np.empty(T * S if refined else 0, np.int32)
    pairs = np.empty(0, log_unary.dtype)
    none, stride = np.empty(0, np.int64), matrix.shape[1]
    edges = Edges(False, none, np.empty(0, np.int32), none, np.empty(0, np.int32), pairs, np.empty((0, 0), pairs.dtype))
    one = log_unary.dtype.type(1)
    used = 0
    for b in range(start, stop):
        n, at = lengths[b], offsets[b]
        if used + n * S > len(states):
            return b, used
        log_z[b] = _one(
            n, S, log_unary, b * T * S, S, matrix, b * batch_step * S * S, stride, time_step * S * S, is_log, log_shift,
            gold, at, least, keep, ratio, refined, given_ptr, given_states, at, limit, check, one,
            counts, pairs, spare, edges, s,
        )  # fmt: skip
        if log_z[b] > -np.inf:
            used += _copy(n, at, used, s.ptr, s.alpha, s.states, s.kept, sizes, kept, states, marginals)
    return stop, used


@kernel
def sparse(
    start, stop, lengths, offsets, log_unary, emits, start_mass, end_mass, log_ends, indptr, targets, weights,
    log_shift, width, gold, least, keep, ratio, refined, given_ptr, given_states, limit,
    counts, log_z, sizes, kept, states, marginals,
):  # fmt: skip
    """Transitions stored by source state."""
    T, L = log_unary.shape[1:]
    S = emits.size
    s = _sparse_space(T, S, width, refined, log_unary)
    spare = np.empty(T * S if refined else 0, np.int32)
    one = log_unary.dtype.type(1)
    used = 0
    for b in range(start, stop):
        n, at = lengths[b], offsets[b]
        if used + n * S > len(states):
            return b, used
        log_z[b] = _sparse_one(
            n, L, log_unary, b * T * L, L, emits, start_mass, end_mass, log_ends, indptr, targets, weights, log_shift,
            gold, at, least, keep, ratio, refined, given_ptr, given_states, at, limit, one, counts, spare, s,
        )  # fmt: skip
        if log_z[b] > -np.inf:
            used += _copy(n, at, used, s.ptr, s.alpha, s.states, s.kept, sizes, kept, states, marginals)
    return stop, used
