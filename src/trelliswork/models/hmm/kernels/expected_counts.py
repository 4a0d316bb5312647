"""Compiled E-step of categorical hidden Markov models, in probability space.

A group of sequences advances together, so that one step is a small matrix product. Emissions are a table with one row
per symbol, e_t = table[x_t], each row divided by its largest entry; P is the transition matrix, divided likewise.

    prior_0 = start      prior_t = alpha_{t-1} P      c_t = sum prior_t e_t      alpha_t = prior_t e_t / c_t      (1)
    beta_{T-1} = end / sum alpha_{T-1} end      w_t = e_t beta_t / c_t      beta_{t-1} = P w_t                   (2)
    marginal_t = alpha_t beta_t      transition counts = P * sum_t alpha_{t-1} w_t^T                             (3)

A known state y makes all other entries of e_t zero. As in ``inference.chain.kernels.forward_backward``, a sequence
whose beta / c stays below a limit is *safe*: what it lost to underflow has no visible posterior mass. The others are
marked and add nothing.

The passes run over positions ``t0`` to ``t1`` and can be resumed, so that a long sequence needs alpha at the block
borders only. Rows of alpha are stored position by position: row (t - t0 + 1) * n + r is sequence r at position t, and
rows 0 to n-1 are alpha_{t0-1} (zero before the first position).
"""

import math
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.products import Factor, add_product
from trelliswork.compute.simd import (
    add,
    get,
    lanes,
    largest,
    load,
    load_as,
    maximum,
    multiply,
    prefetch,
    put,
    spread,
    store,
    total,
)
from trelliswork.compute.simd import multiply_add as fma
from trelliswork.compute.tiles import load_tile, store_tile, tile
from trelliswork.inference.chain.kernels.forward_backward import largest_safe

ROWS = 6  # rows of one register block: with two vectors each, twelve sums that never leave the registers
KEPT = 96  # rows of w kept for one pass over the transition counts: a strip of them fits the first-level cache


class Observed(NamedTuple):
    """Observed sequences, longest first."""

    offsets: Any  # (n_sequences + 1,)
    symbols: Any  # (n_tokens,) rows of the emission table
    labels: Any  # (n_tokens,) known states, -1: unknown; or empty
    weights: Any  # (n_sequences,)


class Tables(NamedTuple):
    """Scaled parameters. Rows of the vectors and of the emission table are ``step`` numbers apart."""

    start: Any  # (step,)
    end: Any  # (step,)
    emission: Any  # (n_symbols, step)
    log_emission: Any  # (n_symbols,) logarithms of the scales of the rows
    transition: Any  # (S, S) P
    panels: Any  # (Sp/2W, S, 2W) P cut into strips two vectors wide
    panels_t: Any  # the same of its transpose
    log_shift: Any  # float: logarithm of the scale of P


class Space(NamedTuple):
    """Working memory of a group of n sequences."""

    rows: Any  # (n rounded up to ROWS, step): alpha or w at a block border
    alpha: Any  # ((T + 1) n, step)
    scale: Any  # (T, n) c_t
    ending: Any  # (n,) sum of alpha_{T-1} end


class Expected(NamedTuple):
    """Outputs of the backward pass: weighted marginals (row: token minus ``origin``) and sums of alpha_{t-1} w_t^T."""

    marginals: Any  # (n_tokens, Sp)
    origin: Any  # int
    outer: Any  # (S rounded up to ROWS, Sp)


@helper
def _tile(factor, other, at, step, n, out, k, width, fresh):
    """Add the product of ROWS rows of a factor and two vectors of each row of ``other`` to ``out`` from k on.

    Rows of ``out`` are ``width`` apart; ``fresh`` overwrites them. See `add_product`.
    """
    sums = add_product(tile(out, 0.0, ROWS, 2), factor, other, at, step, n)
    if not fresh:
        sums = add(sums, load_tile(sums, out, k, width))
    store_tile(out, k, width, sums)


@helper
def _product(rows, n_rows, panels, out):
    """Compute out = rows @ P for ``n_rows`` rounded up to ROWS; ``panels`` (Sp/2W, S, 2W) is P cut into strips."""
    n_panels, S, wide = panels.shape
    step = rows.shape[1]
    for p in range(n_panels):
        for r in range(0, n_rows, ROWS):
            factor = Factor(rows, r * step, step, 1)
            _tile(factor, panels, p * S * wide, wide, S, out, r * step + p * wide, step, True)


@helper
def _add_outer(alpha, kept, n_rows, out):
    """Add alpha[:n_rows].T @ kept[:n_rows] to out (S rounded up to ROWS, Sp)."""
    step, width = kept.shape[1], out.shape[1]
    for j in range(0, width, 2 * lanes(kept)):
        for i in range(0, out.shape[0], ROWS):
            _tile(Factor(alpha, i, 1, step), kept, j, step, n_rows, out, i * width + j, width, False)


@kernel(allocates=True)
def forward(first, n, t0, t1, observed, tables, space, log_evidence, safe):
    """Compute equations (1) for sequences ``first`` to ``first + n`` at positions ``t0`` to ``t1``.

    ``space.rows`` is alpha_{t0-1} before and alpha_{t1-1} after. Fills the rest of ``space``, adds to
    ``log_evidence``, and clears ``safe`` on underflow.
    """
    offsets, symbols, labels, _ = observed
    rows, alpha, scale, ending = space
    end, table, panels = tables.end, tables.emission, tables.panels
    limit = largest_safe(rows)
    Sp, step, W = panels.shape[0] * panels.shape[2], alpha.shape[1], lanes(alpha)
    prior = np.empty(rows.shape, rows.dtype)
    mass = np.ones(n)  # product of the scales since the last logarithm
    alpha[:n] = rows[:n]
    if t0 == 0:
        alpha[:n] = 0
        for r in range(n):
            log_evidence[first + r] = (offsets[first + r + 1] - offsets[first + r] - 1) * tables.log_shift
    active = n
    for t in range(t0, t1):
        while active and offsets[first + active] - offsets[first + active - 1] <= t:
            active -= 1
        if t == 0:
            prior[:] = tables.start
        else:
            _product(rows, active, panels, prior)
        for r in range(active):
            s = first + r
            token = offsets[s] + t
            x, y = np.int64(symbols[token]), labels[token] if labels.size else -1
            row, here = r * step, ((t - t0 + 1) * n + r) * step
            sums = spread(rows, 0.0)
            if y >= 0:
                c = prior[r, y] * table[x, y]
            else:
                for k in range(0, Sp, W):
                    product = multiply(load(prior, row + k), load(table, x * step + k))
                    store(rows, row + k, product)
                    sums = add(sums, product)
                c = total(sums)
            if not c * limit >= 1:
                safe[s] = False
                c = rows.dtype.type(0)
            if y >= 0 or c == 0:
                rows[r] = 0
                alpha[(t - t0 + 1) * n + r] = 0
                if c > 0:
                    rows[r, y] = 1
                    alpha[(t - t0 + 1) * n + r, y] = 1
            else:
                inverse = spread(rows, 1 / c)
                for k in range(0, Sp, W):
                    value = multiply(load(rows, row + k), inverse)
                    store(rows, row + k, value)
                    store(alpha, here + k, value)
            scale[t, r] = c
            log_evidence[s] += tables.log_emission[x]
            mass[r] *= c
            if not 1e-20 < mass[r] < 1e20:  # a logarithm now and then, not at every position
                log_evidence[s] += math.log(mass[r]) if mass[r] > 0 else -np.inf
                mass[r] = 1
            if token + 1 == offsets[s + 1]:
                sums = spread(rows, 0.0)
                for k in range(0, Sp, W):
                    sums = fma(load(rows, row + k), load(end, k), sums)
                ending[r] = total(sums)
                safe[s] = safe[s] and ending[r] * limit >= 1
                log_evidence[s] += math.log(ending[r]) if ending[r] > 0 else -np.inf
        alpha[(t - t0 + 1) * n + active : (t - t0 + 2) * n] = 0
    for r in range(n):
        log_evidence[first + r] += math.log(mass[r])


@kernel(allocates=True)
def backward(first, n, t0, t1, observed, tables, space, safe, out):
    """Compute equations (2) and (3) at positions ``t1`` - 1 down to ``t0``; return True if all sequences stay safe.

    ``space.rows`` is w_{t1} before (zero at the end) and w_{t0} after. If the result is False, the outputs are invalid:
    repeat from the end, and the sequences now marked add nothing.
    """
    offsets, symbols, labels, weights = observed
    rows, alpha, scale, ending = space
    marginals, origin, outer = out
    end, table, panels = tables.end, tables.emission, tables.panels_t
    limit = largest_safe(rows)
    Sp, step, W = panels.shape[0] * panels.shape[2], alpha.shape[1], lanes(alpha)
    width = marginals.shape[1]
    beta = np.zeros(rows.shape, rows.dtype)
    stretch = max(1, KEPT // n)
    kept = np.empty((stretch * n, step), rows.dtype)
    fine = True
    active, last = 0, t1
    for t in range(t1 - 1, t0 - 1, -1):
        while active < n and offsets[first + active + 1] - offsets[first + active] > t:
            active += 1
        _product(rows, active, panels, beta)
        at_kept = (t % stretch) * n
        kept[at_kept + active : at_kept + n] = 0
        for r in range(active):
            s = first + r
            token = offsets[s] + t
            row, here, to = r * step, ((t - t0 + 1) * n + r) * step, (at_kept + r) * step
            to_row = (token - origin) * width
            weight = weights[s]
            if token + 1 == offsets[s + 1]:
                # The weight enters here and everything after it is linear.
                for k in range(0, Sp, W):
                    store(beta, row + k, multiply(load(end, k), spread(beta, weight / ending[r] if safe[s] else 0)))
            sums = spread(beta, 0.0)
            for k in range(0, Sp, W):
                sums = fma(load(alpha, here + k), load(beta, row + k), sums)
            # The mass is the weight but for rounding; dividing by it keeps long sequences from drifting.
            m, c = total(sums), scale[t, r]
            top = rows.dtype.type(np.inf)
            if safe[s] and m > 0 and c > 0:
                correction = spread(beta, weight / m)
                by_scale = spread(beta, weight / m / c)
                highest = spread(beta, 0.0)
                x, y = np.int64(symbols[token]), labels[token] if labels.size else -1
                for k in range(0, Sp, W):
                    b = load(beta, row + k)
                    store(marginals, to_row + k, multiply(multiply(load(alpha, here + k), b), correction))
                    ahead = multiply(b, by_scale)
                    highest = maximum(ahead, highest)
                    value = multiply(load(table, x * step + k), ahead)
                    store(rows, row + k, value)
                    store(kept, to + k, value)
                top = largest(highest)
                if y >= 0:
                    only = rows[r, y]
                    top = beta[r, y] * (weight / m / c)
                    rows[r] = 0
                    rows[r, y] = only
                    kept[at_kept + r] = rows[r]
            if not top <= limit * weight:
                fine = fine and not safe[s]
                safe[s] = False
                rows[r] = 0
                kept[at_kept + r] = 0
                marginals[token - origin] = 0
        if t == t0 or t % stretch == 0:
            _add_outer(alpha[(t - t0) * n :], kept[at_kept:], (last - t) * n, outer)
            last = t
    return fine


@kernel(allocates=True)
def forward_backward(start, stop, group, observed, tables, marginals, origin, counts, log_evidence, safe):
    """Run both passes for sequences ``start`` to ``stop``, ``group`` at a time, while alpha is in the cache.

    Adds transition counts to ``counts`` (S, S) float64.
    """
    offsets, table, transition = observed.offsets, tables.emission, tables.transition
    S, step, Sp = transition.shape[0], table.shape[1], tables.panels.shape[0] * tables.panels.shape[2]
    T = offsets[start + 1] - offsets[start]
    padded = -(-group // ROWS) * ROWS
    rows = np.empty((padded, step), table.dtype)
    memory = np.empty((T + 1) * group * step + ROWS, table.dtype)  # the counts read up to ROWS numbers beyond
    alpha = memory[: (T + 1) * group * step].reshape((T + 1) * group, step)
    space = Space(rows, alpha, np.empty((T, group), table.dtype), np.empty(group, table.dtype))
    outer = np.empty((-(-S // ROWS) * ROWS, Sp), table.dtype)
    out = Expected(marginals, origin, outer)
    for first in range(start, stop, group):
        n = min(group, stop - first)
        T = offsets[first + 1] - offsets[first]
        rows[:] = 0
        forward(first, n, 0, T, observed, tables, space, log_evidence, safe)
        fine = False
        while not fine:  # rarely more than once
            rows[:] = 0
            outer[:] = 0
            fine = backward(first, n, 0, T, observed, tables, space, safe, out)
        for i in range(S):
            for j in range(S):
                counts[i, j] += transition[i, j] * outer[i, j]


@kernel
def add_emissions(symbols, marginals, by_symbol):
    """Add each token's marginals (n_tokens, at least S) to the counts (V, S) of its symbol, unless it is unknown."""
    (V, S), n, width, W = by_symbol.shape, symbols.size, marginals.shape[1], lanes(by_symbol)
    whole, last = S // W * W, S - W
    for k in range(n):
        soon = np.int64(get(symbols, min(k + 12, n - 1)))
        if 0 <= soon < V:
            for j in range(0, S, 8):
                prefetch(by_symbol, soon * S + j)
        x = np.int64(get(symbols, k))
        if 0 <= x < V:
            here, row = x * S, k * width
            if whole < W:
                for j in range(S):
                    put(by_symbol, here + j, get(by_symbol, here + j) + get(marginals, row + j))
                continue
            # The last vector may overlap the one before, so it is computed before that is stored.
            end = add(load(by_symbol, here + last), load_as(by_symbol, marginals, row + last))
            for j in range(0, whole, W):
                store(by_symbol, here + j, add(load(by_symbol, here + j), load_as(by_symbol, marginals, row + j)))
            store(by_symbol, here + last, end)


@kernel
def add_marginals(start, stop, observed, marginals, counts_start, counts_end, by_symbol):
    """Add the marginals of all tokens of sequences ``start`` to ``stop`` to the counts, float64."""
    offsets, symbols = observed.offsets, observed.symbols
    origin = offsets[start]
    for s in range(start, stop):
        counts_start += marginals[offsets[s] - origin, : counts_start.size]
        counts_end += marginals[offsets[s + 1] - 1 - origin, : counts_end.size]
    add_emissions(symbols[origin : offsets[stop]], marginals, by_symbol)
