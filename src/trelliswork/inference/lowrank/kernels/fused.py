"""Compiled forward and backward passes of low-rank HMMs that do all work on a tile while it is in the cache.

States are stored in *groups* of ``GROUP_PANELS`` panels: messages are (groups, rows, group width), where rows are the
words of a chunk of positions, packed. At a position, a thread takes a *block* of groups (``tickets.py``), computes
their states from the compressed ones (R numbers per row) and the emissions, and compresses them; the last thread to
finish adds up the compressed states of all blocks, in the order of blocks. So results do not depend on the number of
threads.

States of the forward pass are kept before they are normalized; ``inverse`` holds the factor that makes them sum to one.
Emissions are probabilities, or with ``logs`` their logarithms, from which the ``shift`` of each word is subtracted:
then no table of probabilities is built.
"""

import math
from typing import Any, NamedTuple

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.products import Factor
from trelliswork.compute.simd import add, exponential, lanes, load, multiply_add, prefetch, spread, store, subtract
from trelliswork.compute.simd import multiply as times
from trelliswork.inference.lowrank.kernels.products import ROWS, lay_columns, multiply
from trelliswork.inference.lowrank.kernels.tickets import DONE, DRAWN, READY, fetch_add, wait_until

GROUP_PANELS = 4


class Sentences(NamedTuple):
    """Packed sentences, as in ``Packed``."""

    sizes: Any  # (T,)
    offsets: Any  # (T + 1,)
    words: Any  # (N,)


class Model(NamedTuple):
    """Parameters of the HMM, with the factors of the transition in the order of one direction."""

    start: Any  # (S,)
    emission: Any  # (W, S)
    shift: Any  # (W,)
    logs: Any  # bool: emissions are logarithms
    across: Any  # (panels, R, width) panels of the factor that maps compressed rows to states
    along: Any  # (S, R) the factor that compresses states


class Blocks(NamedTuple):
    """Blocks of groups of states, and sums over the states of each."""

    edges: Any  # (blocks + 1,) first group of each block
    tiles: Any  # (tiles, R, 4) compressed rows of the current position
    partial: Any  # (blocks, tiles, panels, 4, width) compressed rows of each block
    sums: Any  # (blocks, B, lanes) sums of the states of each block


class Filtered(NamedTuple):
    """Results of the forward pass."""

    states: Any  # (groups, rows, group width) of a chunk; one group if they are not kept
    compressed: Any  # (panels, N, width), of the current position alone if they are not kept
    norms: Any  # (N,)
    inverse: Any  # (N,) 1 / norms
    least: Any  # float: a sentence with a smaller norm is lost
    keep: Any  # bool: keep states and compressed rows of all positions


class Messages(NamedTuple):
    """Messages of the backward pass."""

    values: Any  # like ``Filtered.states``
    after: Any  # (panels, N, width) compressed message to each word, divided by its norm
    weights: Any  # (B,) weights of sentences
    ones: Any  # (B,)


class Sums(NamedTuple):
    """Expected counts, added to."""

    start: Any  # (S,)
    emission: Any  # (W, S)
    left: Any  # (S, R)
    right: Any  # (S, R)


class Thread(NamedTuple):
    """Scratch memory of one thread, and the counters shared by all."""

    room: Any  # (panels * group width * width,)
    counters: Any  # (COUNTERS,)


@helper
def _size(sizes, t):
    """Return the number of sentences with a word at position t."""
    return sizes[t] if t < len(sizes) else 0


@kernel
def forward(first, last, sentences, model, blocks, filtered, thread):
    """Filter positions ``first`` to ``last`` (exclusive), as one of several threads.

    ``tiles`` holds the compressed rows of the first position, and at the end those of the position after the last.
    """
    sizes, offsets, _ = sentences
    edges, tiles, partial, sums = blocks
    states, compressed, norms, inverse, least, keep = filtered
    room, counters = thread
    n_blocks, rows = len(edges) - 1, states.shape[1]
    while True:
        ticket = fetch_add(counters, DRAWN)
        t, j = first + ticket // n_blocks, ticket % n_blocks
        if t >= last:
            return
        wait_until(counters, READY, t - first)
        n, a, n_next = sizes[t], offsets[t], _size(sizes, t + 1)
        for i in range(n):
            for k in range(sums.shape[2]):
                sums[j, i, k] = 0
        for g in range(edges[j], edges[j + 1]):
            at = g * rows + a - offsets[first] if keep else 0
            _observe(t, g, at, sentences, model, tiles, sums[j], states, room)
            _compress(g, n_next, at, states, model.along, partial[j], g == edges[j], room)
        if fetch_add(counters, DONE) + 1 == (t - first + 1) * n_blocks:
            scales = inverse[a : a + n]
            _normalize(sums, n, norms[a : a + n], scales, least)
            _add_compressed(partial, n_next, scales, tiles, scales, compressed, a + n if keep else 0)
            fetch_add(counters, READY)


@helper(fast=True)
def _emitted(emission, e, shift, logs):
    """Return the emissions from flat index e on, as a vector."""
    values = load(emission, e)
    if logs:
        return exponential(subtract(values, shift))
    return values


@helper(fast=True)
def _observe(t, g, at, sentences, model, tiles, sums, states, room):
    """Compute the states of group g at the words of position t: predictions from the compressed rows times emissions.

    ``at`` is the first row of ``states``, counted over all groups.
    """
    start, emission, shift, logs, across, _ = model
    n, words = sentences.sizes[t], sentences.words[sentences.offsets[t] :]
    S = emission.shape[1]
    R, w = across.shape[1], across.shape[2]
    v = lanes(states)
    wide = states.shape[2]
    flat = states.reshape(-1)
    for part in range(GROUP_PANELS):
        z = g * wide + part * w
        if z >= S:
            break
        if t == 0:
            for i in range(ROWS):
                for k in range(w):
                    room[i * w + k] = start[z + k] if z + k < S else 0
        for i in range(0, n, ROWS):
            if t > 0:
                a = Factor(tiles, i * R, 1, ROWS)
                multiply(a, across, z * R, R, room, 0, w, True)
            for b in range(i, min(i + ROWS, n)):
                word, o = words[b], (b - i) * w
                to = (at + b) * wide + part * w
                if z + w <= S:
                    e = word * S + z
                    prefetch(emission, e + w)  # rows of words are scattered: request the next panel's now
                    prefetch(emission, e + w + 2 * v)
                    less = spread(states, shift[word])
                    x0 = times(load(room, o), _emitted(emission, e, less, logs))
                    x1 = times(load(room, o + v), _emitted(emission, e + v, less, logs))
                    x2 = times(load(room, o + 2 * v), _emitted(emission, e + 2 * v, less, logs))
                    store(states, to, x0)
                    store(states, to + v, x1)
                    store(states, to + 2 * v, x2)
                    store(sums, b * v, add(add(load(sums, b * v), x0), add(x1, x2)))
                else:
                    for k in range(S - z):
                        p = math.exp(emission[word, z + k] - shift[word]) if logs else emission[word, z + k]
                        value = room[o + k] * p
                        flat[to + k] = value
                        sums[b, 0] += value


@helper
def _compress(g, n, at, states, along, partial, fresh, room):
    """Compress the states of group g, n rows from row ``at``, and add them to ``partial``; ``fresh`` overwrites it."""
    if n == 0:
        return
    S, R = along.shape
    n_panels, w = partial.shape[1], partial.shape[3]
    wide = states.shape[2]
    z = g * wide
    depth = min(wide, S - z)
    lay_columns(along, z, depth, room)
    ahead = (z + depth) * R  # the next group's rows: requested now, to be in the cache when they are laid out
    share = wide * R // (n_panels * ((n + ROWS - 1) // ROWS)) + 1
    for p in range(n_panels):
        for i in range(0, n, ROWS):
            to = (i // ROWS * n_panels + p) * ROWS * w
            multiply(Factor(states, (at + i) * wide, wide, 1), room, p * depth * w, depth, partial, to, w, fresh)
            for line in range(ahead, ahead + share, 64 // along.itemsize):
                prefetch(along, line)
            ahead += share


@helper
def _normalize(sums, n, norms, inverse, least):
    """Compute the sum of each row's states and its inverse, which is zero for sums that are too small."""
    for b in range(n):
        total = 0.0
        for j in range(sums.shape[0]):
            for k in range(sums.shape[2]):
                total += sums[j, b, k]
        norms[b] = total
        inverse[b] = 1 / total if total > least else 0.0


@helper
def _add_compressed(partial, n, scales, tiles, other_scales, laid, first):
    """Add up the compressed rows of all blocks: times a scale for the next products, times another to be kept.

    tiles[i, r, k] are those of row 4 i + k (zeros in rows that fill up a tile), laid[p, first + b, c] those of row b.
    """
    n_blocks, _, n_panels, _, w = partial.shape
    R = tiles.shape[1]
    for b in range(n):
        i, k = b // ROWS, b % ROWS
        for p in range(n_panels):
            total = partial[0, i, p, k]
            for j in range(1, n_blocks):
                more = partial[j, i, p, k]
                for c in range(w):
                    total[c] += more[c]
            for c in range(w):
                laid[p, first + b, c] = total[c] * other_scales[b]
            for c in range(min(w, R - p * w)):
                tiles[i, p * w + c, k] = total[c] * scales[b]
    for b in range(n, (n + ROWS - 1) // ROWS * ROWS):
        for r in range(R):
            tiles[b // ROWS, r, b % ROWS] = 0


@kernel
def backward(first, last, sentences, model, blocks, filtered, messages, counts, thread):
    """Pass messages from position ``last - 1`` down to ``first`` and add counts, as one of several threads."""
    sizes, offsets, _ = sentences
    edges, tiles, partial, _ = blocks
    states, inverse = filtered.states, filtered.inverse
    room, counters = thread
    n_blocks, n_groups, rows = len(edges) - 1, states.shape[0], states.shape[1]
    n_tickets = (last - first) * n_blocks
    while True:
        ticket = fetch_add(counters, DRAWN)
        t, j = last - 1 - ticket // n_blocks, ticket % n_blocks
        if t < first:
            break
        wait_until(counters, READY, last - 1 - t)
        n, row = sizes[t], offsets[t] - offsets[first]
        for g in range(edges[j], edges[j + 1]):
            at = g * rows + row
            _absorb(t, g, at, sentences, model, tiles, filtered, messages, counts, room)
            if t > 0:
                _compress(g, n, at, messages.values, model.along, partial[j], g == edges[j], room)
        if fetch_add(counters, DONE) + 1 == (last - t) * n_blocks:
            if t > 0:
                before = offsets[t - 1]
                _add_compressed(partial, n, messages.ones, tiles, inverse[before : before + n], messages.after, before)
            fetch_add(counters, READY)
    wait_until(counters, READY, last - first)
    while ticket - n_tickets < n_groups:
        g, n = ticket - n_tickets, offsets[last] - offsets[first]
        _transition_counts(g, n, offsets[first], states, messages.after, counts.left, room)
        _transition_counts(g, n, offsets[first], messages.values, filtered.compressed, counts.right, room)
        ticket = fetch_add(counters, DRAWN)


@helper(fast=True)
def _absorb(t, g, at, sentences, model, tiles, filtered, messages, counts, room):
    """Add the expected states of group g at the words of position t, and compute the messages to the position before.

    ``at`` is the first row of ``states``, counted over all groups.
    """
    _, emission, shift, logs, across, _ = model
    states, values, weights = filtered.states, messages.values, messages.weights
    start_counts, word_counts = counts.start, counts.emission
    n, n_next, first = sentences.sizes[t], _size(sentences.sizes, t + 1), sentences.offsets[t]
    words, inverse = sentences.words[first:], filtered.inverse[first:]
    S = emission.shape[1]
    R, w = across.shape[1], across.shape[2]
    v = lanes(states)
    wide = states.shape[2]
    flat_states, flat_values = states.reshape(-1), values.reshape(-1)
    for part in range(GROUP_PANELS):
        z = g * wide + part * w
        if z >= S:
            break
        inside = min(w, S - z)
        for i in range(0, n, ROWS):
            if i < n_next:
                a = Factor(tiles, i * R, 1, ROWS)
                multiply(a, across, z * R, R, room, 0, w, True)
            for b in range(i, min(i + ROWS, n)):
                word, o = words[b], (b - i) * w
                to = (at + b) * wide + part * w
                if b >= n_next:  # the sentence ends here
                    for k in range(w):
                        room[o + k] = weights[b]
                if inside == w:
                    e = word * S + z
                    for line in range(w, 2 * w, 2 * v):
                        prefetch(emission, e + line)
                        prefetch(word_counts, e + line)
                    scale, less = spread(states, inverse[b]), spread(states, shift[word])
                    x0, x1, x2 = load(room, o), load(room, o + v), load(room, o + 2 * v)
                    x0, x1, x2 = times(x0, scale), times(x1, scale), times(x2, scale)
                    y0, y1, y2 = load(states, to), load(states, to + v), load(states, to + 2 * v)
                    store(word_counts, e, multiply_add(y0, x0, load(word_counts, e)))
                    store(word_counts, e + v, multiply_add(y1, x1, load(word_counts, e + v)))
                    store(word_counts, e + 2 * v, multiply_add(y2, x2, load(word_counts, e + 2 * v)))
                    store(values, to, times(_emitted(emission, e, less, logs), x0))
                    store(values, to + v, times(_emitted(emission, e + v, less, logs), x1))
                    store(values, to + 2 * v, times(_emitted(emission, e + 2 * v, less, logs), x2))
                else:
                    for k in range(inside):
                        p = math.exp(emission[word, z + k] - shift[word]) if logs else emission[word, z + k]
                        beta = room[o + k] * inverse[b]
                        word_counts[word, z + k] += flat_states[to + k] * beta
                        flat_values[to + k] = p * beta
                if t == 0:
                    for k in range(inside):
                        start_counts[z + k] += flat_states[to + k] * room[o + k] * inverse[b]


@helper
def _transition_counts(g, n, first, states, compressed, counts, room):
    """Add the sum over n rows of states[z] * compressed[r] to counts[z, r], for the states of group g."""
    n_panels, n_words, w = compressed.shape
    rows, wide = states.shape[1], states.shape[2]
    S, R = counts.shape
    for p in range(n_panels):
        x, inside = (p * n_words + first) * w, min(w, R - p * w)
        for z in range(0, min(wide, S - g * wide), ROWS):
            a, at = Factor(states, g * rows * wide + z, 1, wide), g * wide + z
            if inside == w and at + ROWS <= S:
                multiply(a, compressed, x, n, counts, at * R + p * w, R, False)
            else:
                multiply(a, compressed, x, n, room, 0, w, True)
                for i in range(min(ROWS, S - at)):
                    for c in range(inside):
                        counts[at + i, p * w + c] += room[i * w + c]
