"""Compiled objective of linear-chain CRFs with sparse features: scores, forward-backward and gradient in one sweep.

Weights of attributes seen with several labels stand in dense rows ``wide`` (n, Sw), those of attributes seen with few
labels one by one in ``narrow`` with their label beside them. Token i has the rows
``wide_ids[wide_ptr[i]:wide_ptr[i+1]]`` and the single weights ``narrow_ids[narrow_ptr[i]:narrow_ptr[i+1]]``; values
(empty: all 1) multiply them.

    score_t(j) = sum of rows + single weights       loss = log Z - score(gold)
    gradient of a row += p(y_t = . | x) - [y_t = .]                                  (paper 1, eq. 20 and before)

Rows are padded to whole vectors, Sw labels; the padding scores -inf.
"""

import numpy as np

from trelliswork.compute.jit import kernel
from trelliswork.compute.simd import add, get, lanes, load, put, spread, store
from trelliswork.compute.simd import multiply_add as fma
from trelliswork.inference.chain.kernels.forward_backward import ROWS, backward, forward


@kernel
def scores(
    start, stop, wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values, wide, narrow, narrow_labels,
    n_labels, out, to,
):  # fmt: skip
    """Scores of the labels at tokens ``start`` to ``stop``, Sw numbers each, into ``out`` from flat index ``to``."""
    Sw, W = wide.shape[1], lanes(wide)
    flat = out.reshape(-1)
    for i in range(start, stop):
        for j in range(n_labels):
            flat[to + j] = 0
        for j in range(n_labels, Sw):
            flat[to + j] = -np.inf
        first, last = wide_ptr[i], wide_ptr[i + 1]
        for k in range(0, Sw - W, 2 * W):  # two vectors at a time stay in registers
            left, right = load(flat, to + k), load(flat, to + k + W)
            for at in range(first, last):
                row = np.int64(get(wide_ids, at)) * Sw + k
                if wide_values.size:
                    by = spread(wide, wide_values[at])
                    left, right = fma(load(wide, row), by, left), fma(load(wide, row + W), by, right)
                else:
                    left, right = add(load(wide, row), left), add(load(wide, row + W), right)
            store(flat, to + k, left)
            store(flat, to + k + W, right)
        if (Sw // W) % 2:
            left = load(flat, to + Sw - W)
            for at in range(first, last):
                row = load(wide, np.int64(get(wide_ids, at)) * Sw + Sw - W)
                left = fma(row, spread(wide, wide_values[at]), left) if wide_values.size else add(row, left)
            store(flat, to + Sw - W, left)
        for at in range(narrow_ptr[i], narrow_ptr[i + 1]):
            f = get(narrow_ids, at)
            value = narrow_values[at] if narrow_values.size else narrow.dtype.type(1)
            k = to + get(narrow_labels, f)
            put(flat, k, get(flat, k) + get(narrow, f) * value)
        to += Sw


@kernel
def scatter(
    start, stop, residual, to, wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values, narrow_labels,
    wide_gradient, narrow_gradient,
):  # fmt: skip
    """Add the residuals of tokens ``start`` to ``stop``, Sw numbers each from flat index ``to``, to the gradients."""
    Sw, W = wide_gradient.shape[1], lanes(wide_gradient)
    flat = residual.reshape(-1)
    for i in range(start, stop):
        for at in range(wide_ptr[i], wide_ptr[i + 1]):
            row = np.int64(get(wide_ids, at)) * Sw
            if wide_values.size:
                by = spread(wide_gradient, wide_values[at])
                for k in range(0, Sw, W):
                    value = fma(load(flat, to + k), by, load(wide_gradient, row + k))
                    store(wide_gradient, row + k, value)
            else:
                for k in range(0, Sw, W):
                    store(wide_gradient, row + k, add(load(flat, to + k), load(wide_gradient, row + k)))
        for at in range(narrow_ptr[i], narrow_ptr[i + 1]):
            f = get(narrow_ids, at)
            value = narrow_values[at] if narrow_values.size else narrow_gradient.dtype.type(1)
            put(narrow_gradient, f, get(narrow_gradient, f) + get(flat, to + get(narrow_labels, f)) * value)
        to += Sw


@kernel
def loss_gradient(
    start, stop, offsets, gold, weight, wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values,
    wide, narrow, narrow_labels, start_scores, end_scores, extra, extra_ids, n_labels, transition, panels, panels_t,
    log_shift, limit, check, log_transition,
    wide_gradient, narrow_gradient, counts, loss, safe,
):  # fmt: skip
    """Add loss and gradient of the sentences ``start`` to ``stop``, longest first; mark those that underflow.

    ``counts`` (1, S, S) float64 receives expected minus observed transitions, ``loss`` (n_sentences,) the values; an
    unsafe sentence adds nothing. ``start_scores`` and ``end_scores`` (Sw,) are added at the ends: -inf for labels that
    may not stand there. ``extra[extra_ids[i]]`` (Sw,) is added at token i: the labels it may have, label weights;
    ``extra_ids`` may be empty. A sentence whose ``gold`` is -1 has no labelling to be compared with: its loss is
    log Z alone. ``check`` is False if nothing can underflow (``Potentials.mixing``).
    """
    Sp, Sw = transition.shape[0], wide.shape[1]
    longest = offsets[start + 1] - offsets[start]
    dtype = wide.dtype
    log_unary = np.empty((ROWS, longest, Sw), dtype)
    emission = np.empty((ROWS, longest, Sp), dtype)
    alpha = np.empty((ROWS, longest, Sp), dtype)
    scale = np.empty((ROWS, longest), dtype)
    marginals = np.empty((ROWS, longest, Sw), dtype)
    lengths = np.empty(ROWS, np.int64)
    rows = np.arange(ROWS)
    slot = np.zeros(ROWS, np.int64)
    weights = np.empty(ROWS, dtype)
    log_z = np.empty(ROWS)
    good = np.empty(ROWS, np.bool_)
    no_marginals = np.empty((0, longest, Sw), dtype)
    no_counts = np.empty((0, n_labels, n_labels))
    for group in range(start, stop, ROWS):
        n = min(ROWS, stop - group)
        for r in range(n):
            s = group + r
            first = offsets[s]
            lengths[r] = offsets[s + 1] - first
            weights[r] = weight[s]
            good[r] = True
            scores(
                first, first + lengths[r], wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values,
                wide, narrow, narrow_labels, n_labels, log_unary, r * longest * Sw,
            )  # fmt: skip
            log_unary[r, 0] += start_scores
            log_unary[r, lengths[r] - 1] += end_scores
            if extra_ids.size:
                for t in range(lengths[r]):
                    log_unary[r, t] += extra[extra_ids[first + t]]
        forward(0, n, rows, lengths, log_unary, panels, log_shift, rows, emission, alpha, scale, log_z)
        for r in range(n):
            good[r] = log_z[r] > -np.inf
        if check:  # a first look without outputs: what is unsafe must not reach the sums that sentences share
            backward(
                0, n, rows, lengths, panels_t, transition, limit, weights, slot, rows, emission, alpha, scale, good,
                no_marginals, no_counts,
            )  # fmt: skip
        backward(
            0, n, rows, lengths, panels_t, transition, limit, weights, slot, rows, emission, alpha, scale, good,
            marginals, counts,
        )  # fmt: skip
        for r in range(n):
            s = group + r
            safe[s] = good[r]
            if not good[r]:
                continue
            first = offsets[s]
            score = 0.0
            for t in range(lengths[r] if gold[first] >= 0 else 0):
                y = gold[first + t]
                score += log_unary[r, t, y]
                marginals[r, t, y] -= weights[r]
                if t > 0:
                    score += log_transition[gold[first + t - 1], y]
                    counts[0, gold[first + t - 1], y] -= weights[r]
            scatter(
                first, first + lengths[r], marginals, r * longest * Sw, wide_ptr, wide_ids, wide_values,
                narrow_ptr, narrow_ids, narrow_values, narrow_labels, wide_gradient, narrow_gradient,
            )  # fmt: skip
            loss[s] = weight[s] * (log_z[r] - score)
