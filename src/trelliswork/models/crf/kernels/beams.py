"""Compiled objective of linear-chain CRFs within beams: as ``crf_kernels`` and ``edge_kernels``, on few states a token.

    loss = log Z_I - score(gold)       gradient of a row += p_I(y_t = . | x) - [y_t = .]

with the beams I of ``beam_kernels`` (or ``beam_sparse_kernels``) and the gold states always inside.
"""

import numpy as np

from trelliswork.compute.jit import kernel
from trelliswork.compute.simd import get, put
from trelliswork.inference.chain.beam.kernels import forward_backward as beam_kernels
from trelliswork.inference.chain.beam.kernels import sparse as beam_sparse_kernels
from trelliswork.inference.chain.beam.kernels.space import Edges, make_space
from trelliswork.models.crf.kernels.objective import scores
from trelliswork.models.crf.kernels.residuals import add_pairs, add_row

_one = beam_kernels.one
_sparse_one, _sparse_space = beam_sparse_kernels.one, beam_sparse_kernels.make_space


@kernel
def dense(
    start, stop, offsets, gold, weight, wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values,
    wide, narrow, narrow_labels, start_scores, end_scores, n_labels,
    edge_token_ptr, edge_ids, edge_ptr, edge_pairs, edge, use_edges, matrix, log_shift, log_transition,
    least, keep, ratio, refined, given_ptr, given_states, limit, check,
    wide_gradient, narrow_gradient, edge_gradient, counts, loss, safe, sizes, kept, out_ptr, out_states, out_masses,
):  # fmt: skip
    """Add loss and gradient of the sentences ``start`` to ``stop``, longest first; mark those that are not safe.

    ``counts`` (S, S) float64 receives expected minus observed transitions. ``sizes`` and ``kept`` (n_tokens,) tell the
    size of each beam and the share of the mass in it. Unless ``out_ptr`` is empty, ``out_states`` takes the beams and
    ``out_masses`` their weighted marginals, those of token i from ``out_ptr[i]`` on.
    """
    S, Sw = n_labels, wide.shape[1]
    longest = offsets[start + 1] - offsets[start]
    dtype = wide.dtype
    log_unary = np.empty((longest, Sw), dtype)
    s = make_space(longest, S, Sw, refined, use_edges, wide)
    n_steps = longest - 1 if use_edges else 0
    log_pairwise = np.empty((n_steps * S, S), dtype)
    edges = Edges(use_edges, edge_token_ptr, edge_ids, edge_ptr, edge_pairs, edge, log_transition)
    source = log_pairwise if use_edges else matrix
    stride, step = source.shape[1], S * S if use_edges else 0
    pairs = np.empty(n_steps * S * S, dtype)
    residual, square = np.zeros(Sw, dtype), np.zeros(S * S if use_edges else 0, dtype)
    no_counts = np.empty((0, S))
    spare = np.empty(longest * S if refined else 0, np.int32)
    ptr, states, alpha, share = s.ptr, s.states, s.alpha, s.kept
    for n in range(start, stop):
        first, T = offsets[n], offsets[n + 1] - offsets[n]
        scores(
            first, first + T, wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values,
            wide, narrow, narrow_labels, S, log_unary, 0,
        )  # fmt: skip
        log_unary[0] += start_scores
        log_unary[T - 1] += end_scores
        log_z = _one(
            T, S, log_unary, 0, Sw, source, 0, stride, step, use_edges, log_shift, gold, first,
            least, keep, ratio, refined, given_ptr, given_states, first, limit, check or use_edges, weight[n],
            no_counts if use_edges else counts, pairs, spare, edges, s,
        )  # fmt: skip
        safe[n] = log_z > -np.inf
        if not safe[n]:
            continue
        score, at_pair = 0.0, 0
        for t in range(T):
            i, y = first + t, gold[first + t]
            here, size = ptr[t], ptr[t + 1] - ptr[t]
            sizes[i], kept[i] = size, share[t]
            for k in range(here, here + size):
                put(residual, get(states, k), get(alpha, k))
            residual[y] -= weight[n]
            score += log_unary[t, y]
            add_row(
                i, residual, states, here, size, wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values,
                narrow_labels, wide_gradient, narrow_gradient,
            )  # fmt: skip
            for k in range(here, here + size):
                put(residual, get(states, k), dtype.type(0))
            if out_ptr.size:
                for k in range(size):
                    out_states[out_ptr[i] + k] = states[here + k]
                    out_masses[out_ptr[i] + k] = alpha[here + k]
            if t == 0:
                continue
            before = gold[i - 1]
            if not use_edges:
                score += log_transition[before, y]
                counts[before, y] -= weight[n]
                continue
            score += log_pairwise[(t - 1) * S + before, y]
            add_pairs(
                i, S, states, ptr[t - 1], here, ptr[t + 1], pairs, at_pair, size, before * S + y, weight[n], square,
                edges, edge_gradient, counts,
            )  # fmt: skip
            at_pair += (here - ptr[t - 1]) * size
        loss[n] = weight[n] * (log_z - score)


@kernel
def sparse(
    start, stop, offsets, gold, gold_entry, weight,
    wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values, wide, narrow, narrow_labels, n_labels,
    emits, start_mass, end_mass, log_ends, log_start, log_end, indptr, targets, transition, log_shift, log_weights,
    least, keep, ratio, refined, given_ptr, given_states, limit,
    wide_gradient, narrow_gradient, counts, loss, safe, sizes, kept, out_ptr, out_states, out_masses,
):  # fmt: skip
    """The same for sparse transitions: ``gold`` are states, ``gold_entry`` the entries into them (-1 at the beginning),
    ``counts`` (n_entries,) receives expected minus observed transitions.
    """
    S, L, Sw = emits.size, n_labels, wide.shape[1]
    longest = offsets[start + 1] - offsets[start]
    dtype = wide.dtype
    log_unary = np.empty((longest, Sw), dtype)
    s = _sparse_space(longest, S, Sw, refined, wide)
    residual, labels = np.zeros(Sw, dtype), np.arange(L, dtype=np.int32)
    spare = np.empty(longest * S if refined else 0, np.int32)
    ptr, states, alpha, share = s.ptr, s.states, s.alpha, s.kept
    for n in range(start, stop):
        first, T = offsets[n], offsets[n + 1] - offsets[n]
        scores(
            first, first + T, wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values,
            wide, narrow, narrow_labels, L, log_unary, 0,
        )  # fmt: skip
        log_z = _sparse_one(
            T, L, log_unary, 0, Sw, emits, start_mass, end_mass, log_ends, indptr, targets, transition, log_shift,
            gold, first, least, keep, ratio, refined, given_ptr, given_states, first, limit, weight[n],
            counts, spare, s,
        )  # fmt: skip
        safe[n] = log_z > -np.inf
        if not safe[n]:
            continue
        score = np.float64(log_start[gold[first]]) + np.float64(log_end[gold[first + T - 1]])
        for t in range(T):
            i, y = first + t, gold[first + t]
            here, size = ptr[t], ptr[t + 1] - ptr[t]
            sizes[i], kept[i] = size, share[t]
            for k in range(Sw):
                put(residual, k, dtype.type(0))
            for k in range(here, ptr[t + 1]):
                j = get(emits, get(states, k))
                put(residual, j, get(residual, j) + get(alpha, k))
            residual[emits[y]] -= weight[n]
            score += log_unary[t, emits[y]]
            add_row(
                i, residual, labels, 0, L, wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values,
                narrow_labels, wide_gradient, narrow_gradient,
            )  # fmt: skip
            if t > 0:
                score += log_weights[gold_entry[i]]
                counts[gold_entry[i]] -= weight[n]
            if out_ptr.size:
                for k in range(size):
                    out_states[out_ptr[i] + k] = states[here + k]
                    out_masses[out_ptr[i] + k] = alpha[here + k]
        loss[n] = weight[n] * (log_z - score)
