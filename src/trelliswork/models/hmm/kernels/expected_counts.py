"""Compiled E-step of categorical hidden Markov models: their tokens as sources of the chain kernels.

Emissions are a table with one row per symbol, each divided by its largest entry. e_t is the row of a symbol, times the
start at the first position and the end at the last; a known state makes all other entries zero. The recursions are
those of ``inference.chain.kernels``, with one sequence per row of a matrix product or per lane of a vector.
"""

from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.simd import add, get, lanes, load, load_as, multiply, prefetch, put, store
from trelliswork.compute.tiles import load_tile, square_tile, store_tile, transpose
from trelliswork.inference.chain.kernels.forward_backward import forward_backward
from trelliswork.inference.chain.kernels.lanes import STATES, LaneSteps
from trelliswork.inference.chain.kernels.lanes import forward_backward as forward_backward_by_lane
from trelliswork.inference.chain.kernels.records import Chains, Outputs


class Observed(NamedTuple):
    """Observed sequences, longest first."""

    offsets: Any  # (n_sequences + 1,)
    symbols: Any  # (n_tokens,) rows of the emission table
    labels: Any  # (n_tokens,) known states, -1: unknown; or empty
    weights: Any  # (n_sequences,)


class Tables(NamedTuple):
    """Scaled parameters; rows are padded with zeros to whole vectors."""

    start: Any  # (width,)
    end: Any  # (width,)
    emission: Any  # (n_symbols + 1, width), the last row zero
    log_emission: Any  # (n_symbols,) logarithms of the scales of the rows
    transitions: Any  # Transitions


@helper
def _row(source, b, t):
    """Return the row of the marginals of a token."""
    return source.observed.offsets[b] + t - source.origin


@helper
def _fill(source, b, t, length, out, to, width):
    """Write e_t to out[to : to + width], flat; return the logarithm of its scale."""
    tables, labels = source.tables, source.observed.labels
    token, W = source.observed.offsets[b] + t, lanes(out)
    x = np.int64(get(source.observed.symbols, token))
    for k in range(0, width, W):
        value = load(tables.emission, x * width + k)
        if t == 0:
            value = multiply(value, load(tables.start, k))
        if t == length - 1:
            value = multiply(value, load(tables.end, k))
        store(out, to + k, value)
    y = labels[token] if labels.size else -1
    if y >= 0:
        for k in range(width):
            if k != y:
                put(out, to + k, out.dtype.type(0))
    return tables.log_emission[x]


class Tokens(NamedTuple):
    """Tokens as a source of ``chain.kernels.forward_backward``; ``origin`` is the first token of the marginals."""

    observed: Any  # Observed
    tables: Any  # Tables
    origin: Any
    row = _row
    fill = _fill


@helper
def _begin(source, group, safe):
    """Find the rows of the emission table, and have the caches load them before the first one is read."""
    (offsets, symbols, _, _), table, places = source.observed, source.tables.emission, source.places
    step, L, line = table.shape[1], len(source.log_scale), 64 // table.itemsize
    places[: group.T * L] = (table.shape[0] - 1) * step  # no symbol
    source.log_scale[:] = 0
    for r in range(group.n):
        s, to = group.first + r, r
        if not safe[s]:
            continue
        for k in range(offsets[s], offsets[s + 1]):
            x = np.int64(get(symbols, k))
            source.log_scale[r] += get(source.tables.log_emission, x)
            put(places, to, x * step)
            for j in range(0, step, line):
                prefetch(table, x * step + j)
            to += L


@helper
def _fill_lanes(source, group, t, active, out):
    """Write e_t, state by state."""
    (offsets, _, labels, _), table, places = source.observed, source.tables.emission, source.places
    _, Sp, L = out.shape
    for v in range(0, L, lanes(out)):
        for k in range(0, Sp, lanes(out)):
            block = load_tile(square_tile(table), table, k, (places, t * L + v))
            store_tile(out, (t * Sp + k) * L + v, L, transpose(block))
    for r in range(active if labels.size else 0):
        y = labels[offsets[group.first + r] + t]
        if y >= 0:
            for j in range(Sp):
                if j != y:
                    out[t, j, r] = 0


@helper
def _absorb(source, group, t, active, marginals):
    """Write the marginals of each token to its row, and those of the other lanes to the last one."""
    offsets, rows, places = source.observed.offsets, source.rows, source.places
    (Sp, L), width, W = marginals.shape, rows.shape[1], lanes(marginals)
    for r in range(L):
        row = offsets[group.first + r] + t - source.origin if r < active else len(rows) - 1
        put(places, r, row * width)
    for v in range(0, L, W):
        for k in range(0, Sp, W):
            block = load_tile(square_tile(marginals), marginals, k * L + v, L)
            store_tile(rows, k, (places, v), transpose(block))


@helper
def _end(source, group, log_z, safe):
    """Do nothing: the marginals are written."""


class TokenLanes(NamedTuple):
    """Tokens as a source of ``chain.kernels.lanes``."""

    offsets: Any
    weights: Any
    log_scale: Any  # (L,)
    observed: Any  # Observed
    tables: Any  # Tables
    places: Any  # (T L,) flat indices of rows of the emission table, or of the marginals
    rows: Any  # (n_tokens + 1, width) marginals; the last is scratch
    origin: Any
    begin = _begin
    fill_lanes = _fill_lanes
    absorb = _absorb
    end = _end


@kernel(allocates=True)
def by_row(start, stop, observed, tables, rows, origin, counts, log_evidence, safe):
    """Run both passes for sequences ``start`` to ``stop``; write weighted marginals to ``rows`` (token - origin).

    Adds transition counts to ``counts`` (S, S) float64. The rows of sequences that are not safe are zero.
    """
    offsets, n = observed.offsets, len(observed.weights)
    chains = Chains(np.arange(n), offsets[1:] - offsets[:-1], Tokens(observed, tables, origin))
    out = Outputs(observed.weights, np.zeros(n, np.int64), rows, counts.reshape((1, *counts.shape)))
    forward_backward(start, stop, chains, tables.transitions, log_evidence, safe, out)
    for s in range(start, stop):
        if not safe[s]:
            rows[offsets[s] - origin : offsets[s + 1] - origin] = 0


@kernel(allocates=True)
def by_lane(start, stop, observed, tables, rows, origin, counts, log_evidence, safe):
    """Do what `by_row` does with one sequence per lane; the last of the ``rows`` is scratch."""
    offsets, table, transitions, S = observed.offsets, tables.emission, tables.transitions, len(counts)
    L, S4 = 2 * lanes(table), -(-S // STATES) * STATES
    places = np.empty((offsets[start + 1] - offsets[start]) * L, np.int64)
    source = TokenLanes(offsets, observed.weights, np.zeros(L), observed, tables, places, rows, origin)
    square, padded = transitions.matrix[:S, :S].copy(), transitions.matrix[:S4, :S4].copy()
    steps = LaneSteps(tables.start, tables.end, square, padded, transitions.log_shift)
    forward_backward_by_lane(start, stop, source, steps, counts, log_evidence, safe)


@kernel
def add_emissions(symbols, marginals, by_symbol):
    """Add each token's marginals (n_tokens, at least S) to the counts (V, S) of its symbol."""
    (_, S), n, width, W = by_symbol.shape, symbols.size, marginals.shape[1], lanes(by_symbol)
    whole, last = S // W * W, S - W
    for k in range(n):
        soon = np.int64(get(symbols, min(k + 12, n - 1)))
        for j in range(0, S, 8):
            prefetch(by_symbol, soon * S + j)
        here, row = np.int64(get(symbols, k)) * S, k * width
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
