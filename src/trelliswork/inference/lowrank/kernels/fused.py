"""Forward and backward of low-rank HMMs with what happens between two products done while a tile is in the cache.

States come in *groups* of ``GROUP_PANELS`` panels: messages are (groups, rows, group width), rows being the words of a
chunk of positions, packed. At a position, a thread takes a *block* of groups (``tickets.py``): features to states, the
emissions, states to features; the last thread to finish adds up the features of all blocks, in the order of blocks.
So results do not depend on the threads.

States of the forward pass are kept before they are normalised; ``inverse`` has what makes them sum to one. Emissions
are probabilities, or with ``logs`` their logarithms, less the ``shift`` of each word: then no table of them is made.
"""

import math

from trelliswork.compute.jit import kernel
from trelliswork.compute.simd import add, exponential, lanes, load, multiply_add, spread, store, subtract
from trelliswork.compute.simd import multiply as times
from trelliswork.inference.lowrank.kernels.products import ROWS, lay_columns, multiply, prefetch
from trelliswork.inference.lowrank.kernels.tickets import DONE, DRAWN, READY, fetch_add, wait_until

GROUP_PANELS = 4


@kernel
def forward(
    first, last, sizes, offsets, words, start, emission, shift, logs, across, along, edges, features, tiles, partial,
    sums, states, keep, norms, inverse, least, room, counters,
):  # fmt: skip
    """Filter positions ``first`` to ``last`` (exclusive); one of the threads that do so together.

    ``tiles`` holds the features at the first position, and at the end those of the position after the last.
    """
    n_blocks = len(edges) - 1
    while True:
        ticket = fetch_add(counters, DRAWN)
        t, j = first + ticket // n_blocks, ticket % n_blocks
        if t >= last:
            return
        wait_until(counters, READY, t - first)
        n, a = sizes[t], offsets[t]
        goes_on = sizes[t + 1] if t + 1 < len(sizes) else 0
        for i in range(n):
            for k in range(sums.shape[2]):
                sums[j, i, k] = 0
        for g in range(edges[j], edges[j + 1]):
            slot = g if keep else 0
            row = a - offsets[first] if keep else 0
            _observe(
                t, g, n, words[a : a + n], start, emission, shift, logs, across, tiles, sums[j], states, slot, row, room
            )
            _to_features(g, goes_on, states, slot, row, along, partial, j, g == edges[j], room)
        if fetch_add(counters, DONE) + 1 == (t - first + 1) * n_blocks:
            scales = inverse[a : a + n]
            _normalise(sums, n, norms[a : a + n], scales, least)
            _add_features(partial, goes_on, scales, tiles, scales, features, a + n if keep else 0)
            fetch_add(counters, READY)


@kernel(fast=True)
def _emitted(emission, e, shift, logs):
    """The emissions from flat index e on, as a vector."""
    found = load(emission, e)
    if logs:
        return exponential(subtract(found, shift))
    return found


@kernel(fast=True)
def _observe(t, g, n, words, start, emission, shift, logs, across, tiles, sums, states, slot, row, room):
    """States of one group at the words of a position: what the features foretell, times the emissions."""
    S = emission.shape[1]
    n_features, w = across.shape[1], across.shape[2]
    v = lanes(states)
    rows, wide = states.shape[1], states.shape[2]
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
                multiply(tiles, i * n_features, 1, ROWS, across, z * n_features, n_features, room, 0, w, True)
            for b in range(i, min(i + ROWS, n)):
                word, o = words[b], (b - i) * w
                if z + w <= S:
                    at, e = (slot * rows + row + b) * wide + part * w, word * S + z
                    prefetch(emission, e + w)  # rows of words lie anywhere: ask for the next panel's now
                    prefetch(emission, e + w + 2 * v)
                    less = spread(states, shift[word])
                    x0 = times(load(room, o), _emitted(emission, e, less, logs))
                    x1 = times(load(room, o + v), _emitted(emission, e + v, less, logs))
                    x2 = times(load(room, o + 2 * v), _emitted(emission, e + 2 * v, less, logs))
                    store(states, at, x0)
                    store(states, at + v, x1)
                    store(states, at + 2 * v, x2)
                    store(sums, b * v, add(add(load(sums, b * v), x0), add(x1, x2)))
                else:
                    for k in range(S - z):
                        p = math.exp(emission[word, z + k] - shift[word]) if logs else emission[word, z + k]
                        value = room[o + k] * p
                        states[slot, row + b, part * w + k] = value
                        sums[b, 0] += value


@kernel
def _to_features(g, n, states, slot, row, along, partial, j, fresh, room):
    """partial[j] (+)= states of one group times the matrix, for the first n rows."""
    if n == 0:
        return
    S, R = along.shape
    n_tiles, n_panels, w = partial.shape[1], partial.shape[2], partial.shape[4]
    rows, wide = states.shape[1], states.shape[2]
    z = g * wide
    depth = min(wide, S - z)
    lay_columns(along, z, depth, room)
    ahead = (z + depth) * R  # the next group's rows: asked for now, at hand when they are laid out
    share = wide * R // (n_panels * ((n + ROWS - 1) // ROWS)) + 1
    for p in range(n_panels):
        for i in range(0, n, ROWS):
            to = ((j * n_tiles + i // ROWS) * n_panels + p) * ROWS * w
            q = (slot * rows + row + i) * wide
            multiply(states, q, wide, 1, room, p * depth * w, depth, partial, to, w, fresh)
            for at in range(ahead, ahead + share, 64 // along.itemsize):
                prefetch(along, at)
            ahead += share


@kernel
def _normalise(sums, n, norms, inverse, least):
    """The sum of each row's states, and one over it: zero for rows whose sum is too small to go on with."""
    for b in range(n):
        total = 0.0
        for j in range(sums.shape[0]):
            for k in range(sums.shape[2]):
                total += sums[j, b, k]
        norms[b] = total
        inverse[b] = 1 / total if total > least else 0.0


@kernel
def _add_features(partial, n, scales, tiles, other_scales, laid, first):
    """Features of n rows, those of all blocks added up: times a scale for the next products, times another to be kept.

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
def backward(
    first, last, sizes, offsets, words, weights, emission, shift, logs, across, along, edges, tiles, partial, states,
    messages, inverse, ones, after, features, start_counts, counts, left_counts, right_counts, room, counters,
):  # fmt: skip
    """Messages from position ``last - 1`` down to ``first`` and the counts of these positions; one of the threads.

    ``after`` (panels, words, width) gets the features of the message that comes to each word, over its norm.
    """
    n_blocks, n_groups = len(edges) - 1, states.shape[0]
    n_tickets = (last - first) * n_blocks
    while True:
        ticket = fetch_add(counters, DRAWN)
        t, j = last - 1 - ticket // n_blocks, ticket % n_blocks
        if t < first:
            break
        wait_until(counters, READY, last - 1 - t)
        n, a = sizes[t], offsets[t]
        goes_on = sizes[t + 1] if t + 1 < len(sizes) else 0
        row = a - offsets[first]
        for g in range(edges[j], edges[j + 1]):
            _absorb(
                t, g, n, goes_on, words[a : a + n], weights, emission, shift, logs, across, tiles, states, messages,
                row, inverse[a : a + n], start_counts, counts, room,
            )  # fmt: skip
            if t > 0:
                _to_features(g, n, messages, g, row, along, partial, j, g == edges[j], room)
        if fetch_add(counters, DONE) + 1 == (last - t) * n_blocks:
            if t > 0:
                before = offsets[t - 1]
                _add_features(partial, n, ones, tiles, inverse[before : before + n], after, before)
            fetch_add(counters, READY)
    wait_until(counters, READY, last - first)
    while ticket - n_tickets < n_groups:
        g, n = ticket - n_tickets, offsets[last] - offsets[first]
        _transition_counts(g, n, offsets[first], states, after, left_counts, room)
        _transition_counts(g, n, offsets[first], messages, features, right_counts, room)
        ticket = fetch_add(counters, DRAWN)


@kernel(fast=True)
def _absorb(
    t, g, n, goes_on, words, weights, emission, shift, logs, across, tiles, states, messages, row, inverse,
    start_counts, counts, room,
):  # fmt: skip
    """Expected states of one group at the words of a position, and the messages to the position before."""
    S = emission.shape[1]
    n_features, w = across.shape[1], across.shape[2]
    v = lanes(states)
    rows, wide = states.shape[1], states.shape[2]
    for part in range(GROUP_PANELS):
        z = g * wide + part * w
        if z >= S:
            break
        inside = min(w, S - z)
        for i in range(0, n, ROWS):
            if i < goes_on:
                multiply(tiles, i * n_features, 1, ROWS, across, z * n_features, n_features, room, 0, w, True)
            for b in range(i, min(i + ROWS, n)):
                word, o = words[b], (b - i) * w
                if b >= goes_on:  # the sentence ends here
                    for k in range(w):
                        room[o + k] = weights[b]
                if inside == w:
                    at, e = (g * rows + row + b) * wide + part * w, word * S + z
                    for line in range(w, 2 * w, 2 * v):
                        prefetch(emission, e + line)
                        prefetch(counts, e + line)
                    scale, less = spread(states, inverse[b]), spread(states, shift[word])
                    x0, x1, x2 = load(room, o), load(room, o + v), load(room, o + 2 * v)
                    x0, x1, x2 = times(x0, scale), times(x1, scale), times(x2, scale)
                    y0, y1, y2 = load(states, at), load(states, at + v), load(states, at + 2 * v)
                    store(counts, e, multiply_add(y0, x0, load(counts, e)))
                    store(counts, e + v, multiply_add(y1, x1, load(counts, e + v)))
                    store(counts, e + 2 * v, multiply_add(y2, x2, load(counts, e + 2 * v)))
                    store(messages, at, times(_emitted(emission, e, less, logs), x0))
                    store(messages, at + v, times(_emitted(emission, e + v, less, logs), x1))
                    store(messages, at + 2 * v, times(_emitted(emission, e + 2 * v, less, logs), x2))
                else:
                    for k in range(inside):
                        p = math.exp(emission[word, z + k] - shift[word]) if logs else emission[word, z + k]
                        beta = room[o + k] * inverse[b]
                        counts[word, z + k] += states[g, row + b, part * w + k] * beta
                        messages[g, row + b, part * w + k] = p * beta
                if t == 0:
                    for k in range(inside):
                        start_counts[z + k] += states[g, row + b, part * w + k] * room[o + k] * inverse[b]


@kernel
def _transition_counts(g, n, first, states, features, counts, room):
    """counts[z, r] += sum over the n rows of a chunk of states[z] * features[r], for the states of one group."""
    n_panels, n_words, w = features.shape
    rows, wide = states.shape[1], states.shape[2]
    S, R = counts.shape
    for p in range(n_panels):
        x, inside = (p * n_words + first) * w, min(w, R - p * w)
        for z in range(0, min(wide, S - g * wide), ROWS):
            q, at = g * rows * wide + z, g * wide + z
            if inside == w and at + ROWS <= S:
                multiply(states, q, 1, wide, features, x, n, counts, at * R + p * w, R, False)
            else:
                multiply(states, q, 1, wide, features, x, n, room, 0, w, True)
                for i in range(min(ROWS, S - at)):
                    for c in range(inside):
                        counts[at + i, p * w + c] += room[i * w + c]
