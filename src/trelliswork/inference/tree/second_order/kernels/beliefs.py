r"""Second-order belief propagation in probability space, one sentence at a time; see ``second_order``.

A message is the odds on : off. An arc a has its own weight :math:`w_a`, shifted so that the largest into a word is 1
(shifting all arcs into a word only moves the tree factor's messages); messages :math:`t_a, s_a` from the tree and from
the automaton of its side; :math:`g_{ak}` from pair k, with product :math:`G_a`; and :math:`T_a = w_a t_a s_a G_a`. A
pair of arcs u, l with :math:`E = e^{score}` sends

.. math:: g_{lk} = \frac{g_{uk} + T_u E}{g_{uk} + T_u}, \quad g_{uk} = \frac{g_{lk} + T_l E}{g_{lk} + T_l},

with the old odds on the right. The pairs of a word h form a block: arcs into h times arcs out of h, which are
contiguous; rows are padded with pairs that have E = 1 and hence no effect.

An arc that every tree needs has infinite odds from the tree. They are represented by ``FORCED``, which is so far above
all other odds that rounding loses nothing. Sentences where this fails, or whose odds leave the range of numbers, are
marked for ``plain``.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.simd import exponential, get, lanes, largest, load, maximum, put, store
from trelliswork.inference.tree.kernels.matrix_tree import Elimination, arc_derivatives, elimination
from trelliswork.inference.tree.kernels.records import LIMIT
from trelliswork.inference.tree.second_order.kernels.eisner import inside, outside
from trelliswork.inference.tree.second_order.kernels.messages import (
    FORCED,
    Automata,
    Pairs,
    collect,
    pair_values,
    pairs,
    side,
    side_beliefs,
    tree_odds,
)
from trelliswork.inference.tree.second_order.kernels.records import (
    Arcs,
    Charts,
    Options,
    Parts,
    Scores,
    SecondOrderResult,
)

WEAKEST = 1e-20  # odds against which FORCED still rounds to infinity
RANGE = 1e100
LARGEST_SCORE = 34.0  # of a part


class Odds(NamedTuple):
    """Odds of the arcs (A,) around the tree factor."""

    w: Any  # own weights
    s: Any  # messages of automata
    G: Any  # products of the messages of pairs
    x: Any  # product of the three, scaled
    D: Any  # derivatives of log Z by x


@helper(error_model="numpy")
def _exponentials(values, n):
    """Replace values[:n] (and up to a full vector) by their exponentials; return False if one is too large."""
    top = load(values, 0)
    for k in range(0, n, lanes(values)):
        value = load(values, k)
        top = maximum(top, value)
        store(values, k, exponential(value))
    return largest(top) <= LARGEST_SCORE


@helper(error_model="numpy")
def _tree(n, arcs: Arcs, charts: Charts, odds: Odds, tops, options: Options, work: Elimination):
    """Fill the weights x = w s G, scaled to a maximum of 1 per word, and the derivatives D of log Z by them.

    Return log Z of the unscaled weights; nan if numbers may have been lost.
    """
    heads, modifiers, out, _, into, _, in_arcs = arcs
    w, s, G, x, D = odds
    A = out[n + 1]
    log_z = 0.0
    for d in range(1, n + 1):
        top = 0.0
        for p in range(into[d], into[d + 1]):
            a = in_arcs[p]
            x[a] = w[a] * s[a] * G[a]
            top = max(top, x[a])
        if not (top > 1 / RANGE and top < RANGE):
            return np.nan
        tops[d] = top
        log_z += math.log(top)
    for a in range(A):
        x[a] /= tops[modifiers[a]]
    if not options.projective:
        return log_z + arc_derivatives(n, options.single_root, x, heads, modifiers, A, work, D)
    stride = (n + 1 + lanes(x) - 1) // lanes(x) * lanes(x) + lanes(x)
    z = inside(n, stride, options.single_root, x, arcs, charts)
    if not (z > 1e-290 and z < 1e290):
        return np.nan
    derivative = outside(n, stride, options.single_root, x, z, arcs, charts, D)
    return log_z + math.log(z) if derivative < LIMIT else np.nan


@helper(error_model="numpy")
def _number_arcs(parts: Parts, b, arcs: Arcs):
    """Number the arcs of a sentence from 0."""
    heads, modifiers, out, middle, into, after, in_arcs = arcs
    node, n, first = parts.node_ptr[b], parts.n_words[b], parts.arc_ptr[b]
    for a in range(parts.arc_ptr[b + 1] - first):
        heads[a], modifiers[a] = parts.heads[first + a], parts.modifiers[first + a]
        in_arcs[a] = parts.in_arcs[first + a] - first
    for i in range(n + 1):
        out[i], into[i] = parts.out_start[node + i] - first, parts.in_start[node + i] - first
        out[i + 1], into[i + 1] = parts.out_start[node + i + 1] - first, parts.in_start[node + i + 1] - first
        a = out[i]
        while a < out[i + 1] and modifiers[a] < i:
            a += 1
        middle[i] = a
        p = into[i]
        while p < into[i + 1] and heads[in_arcs[p]] < i:
            p += 1
        after[i] = p


@helper(error_model="numpy")
def _weigh(n, scores, first, arcs: Arcs, w, A):
    """Fill w (A,), the largest into each word 1; return the sum of the shifts, -inf if a word has no arc."""
    into, in_arcs = arcs.into, arcs.in_arcs
    shift = 0.0
    for d in range(1, n + 1):
        top = -np.inf
        for p in range(into[d], into[d + 1]):
            top = max(top, scores[first + in_arcs[p]])
        if top == -np.inf:
            return top
        shift += top
        for p in range(into[d], into[d + 1]):
            w[in_arcs[p]] = scores[first + in_arcs[p]] - top
    for k in range(0, A, lanes(w)):
        store(w, k, exponential(load(w, k)))
    return shift


@helper(error_model="numpy")
def _copy_pairs(n, arcs: Arcs, values, at, blocks, to_blocks):
    """Copy the flat values of pairs from ``at`` on to the padded blocks, or back; entries without a pair are 0."""
    heads, modifiers, out, _, into, _, in_arcs = arcs
    W = lanes(blocks)
    to = 0
    for h in range(1, n + 1):
        c = out[h + 1] - out[h]
        size = (c + W - 1) // W * W
        skip = 0  # position of the grandparent among the children: both are sorted
        for p in range(into[h], into[h + 1]):
            g = heads[in_arcs[p]]
            while skip < c and modifiers[out[h] + skip] < g:
                skip += 1
            gap = skip < c and modifiers[out[h] + skip] == g
            rest = at - 1 if gap else at
            if to_blocks:
                for k in range(skip):
                    put(blocks, to + k, get(values, at + k))
                for k in range(skip + gap, c):
                    put(blocks, to + k, get(values, rest + k))
                for k in range(c, size):
                    put(blocks, to + k, 0.0)
                if gap:
                    put(blocks, to + skip, 0.0)
            else:
                for k in range(skip):
                    put(values, at + k, get(blocks, to + k))
                for k in range(skip + gap, c):
                    put(values, rest + k, get(blocks, to + k))
            at = rest + c
            to += size
    return to


@kernel(error_model="numpy", allocates=True)
def infer(start, stop, parts: Parts, scores: Scores, options: Options, results: SecondOrderResult, safe):
    """Fill the results of sentences start..stop; ``safe`` (B,) becomes False where log space is needed."""
    arc_scores, sibling_scores, grandparent_scores = scores
    W = lanes(arc_scores)
    A, N, S, wide, size = 0, 0, 0, 0, 0
    for b in range(start, stop):
        A = max(A, parts.arc_ptr[b + 1] - parts.arc_ptr[b])
        N = max(N, parts.n_words[b] + 1)
        S = max(S, parts.sibling_ptr[b + 1] - parts.sibling_ptr[b])
        block = 0
        for node in range(parts.node_ptr[b], parts.node_ptr[b + 1]):
            c = (parts.out_start[node + 1] - parts.out_start[node] + W - 1) // W * W
            wide = max(wide, c)
            block += (parts.in_start[node + 1] - parts.in_start[node]) * c
        size = max(size, block if parts.grandparent_ptr[b + 1] > parts.grandparent_ptr[b] else 0)
    work = elimination(0 if options.projective else N - 1, arc_scores)
    A, S, size, C = A + W, S + W, size + W, N * ((N + W - 1) // W * W + W)
    w, t, s, G, T, x, D, odds, off = (
        np.ones(A), np.ones(A), np.ones(A), np.ones(A), np.ones(A), np.ones(A), np.ones(A), np.ones(A), np.ones(A),
    )  # fmt: skip
    heads, modifiers, in_arcs = np.empty(A, np.int64), np.empty(A, np.int64), np.empty(A, np.int64)
    out, middle, into = np.empty(N + 1, np.int64), np.empty(N, np.int64), np.empty(N + 1, np.int64)
    after, low, tops, before = np.empty(N, np.int64), np.empty(N, np.int64), np.empty(N), np.empty(A)
    charts = Charts(np.empty(C), np.empty(C), np.empty(A), np.empty(A), low, np.empty(C), np.empty(C), np.empty(A))
    ES, beta, gamma = np.empty(S), np.empty((wide + 2) * (wide + 1)), np.empty(2 * wide + 2)
    E, gu, gl, products, bethe = np.empty(size), np.empty(size), np.empty(size), np.empty(wide + W), np.empty(2)
    arcs, tree = Arcs(heads, modifiers, out, middle, into, after, in_arcs), Odds(w, s, G, x, D)
    automata, pair_arrays = Automata(ES, odds, off, beta, gamma, s), Pairs(E, gu, gl, T, G, products)
    for b in range(start, stop):
        n, first = parts.n_words[b], parts.arc_ptr[b]
        A = parts.arc_ptr[b + 1] - first
        s0, s1 = parts.sibling_ptr[b], parts.sibling_ptr[b + 1]
        k0, k1 = parts.grandparent_ptr[b], parts.grandparent_ptr[b + 1]
        safe[b] = False
        _number_arcs(parts, b, arcs)
        shift = _weigh(n, arc_scores, first, arcs, w, A)
        for k in range(s1, s1 + W):
            ES[k - s0] = 0.0
        for k in range(s0, s1):
            ES[k - s0] = sibling_scores[k]
        if shift == -np.inf or not _exponentials(ES, s1 - s0):
            continue
        size = 0
        if k1 > k0:
            size = _copy_pairs(n, arcs, grandparent_scores, k0, E, True)
            if not _exponentials(E, size):
                continue
        for k in range(size):
            gu[k] = 1.0
            gl[k] = 1.0
        for a in range(A):
            t[a], s[a], G[a], before[a] = 1.0, 1.0, 1.0, -1.0
        for k in range(W):
            T[A + k] = 1.0  # read by the padding of the last block
        exact = s1 == s0 and k1 == k0
        results.converged[b], results.n_iter[b], results.residual[b] = exact, 0, 0.0
        good = True
        for n_done in range(0 if exact else options.max_iter):
            if n_done % options.tree_every == 0:
                value = _tree(n, arcs, charts, tree, tops, options, work)
                if not value > -np.inf:
                    good = False
                    break
                tree_odds(n, x, D, into, in_arcs, tops, t)
            for a in range(A):
                odds[a] = w[a] * t[a] * G[a]
                off[a] = 1 / (1 + odds[a])
            for which in range(parts.side_ptr[b], parts.side_ptr[b + 1]):
                arc, step, c, part = parts.sides[which]
                side(arc - first, step, c, part - s0, automata)
            if k1 > k0:
                for a in range(A):
                    T[a] = odds[a] * s[a]
                    G[a] = 1.0
                at = 0
                for h in range(1, n + 1):
                    c = out[h + 1] - out[h]
                    width = (c + W - 1) // W * W
                    at = pairs(in_arcs, into[h], into[h + 1], out[h], width, at, pair_arrays)
                    if into[h] < into[h + 1]:
                        for k in range(c):
                            G[out[h] + k] *= products[k]
            change = 0.0
            for a in range(A):
                o = w[a] * t[a] * s[a] * G[a]
                belief = o / (1 + o)
                change = max(change, abs(belief - before[a]))
                before[a] = belief
            results.n_iter[b], results.residual[b] = n_done + 1, change
            if change <= options.tolerance and n_done % options.tree_every == 0:  # all factors took part
                results.converged[b] = True
                break
        if good:
            value = _tree(n, arcs, charts, tree, tops, options, work)
        if not good or not value > -np.inf:
            continue
        tree_odds(n, x, D, into, in_arcs, tops, t)
        for a in range(A):
            results.arcs[first + a] = min(x[a] * D[a], 1.0)
            odds[a] = w[a] * t[a] * G[a]
            off[a] = 1 / (1 + odds[a])
            T[a] = odds[a] * s[a]
            good = good and T[a] < RANGE and s[a] > 1 / RANGE and s[a] < RANGE and G[a] > 1 / RANGE and G[a] < RANGE
            good = good and (t[a] < FORCED or w[a] * s[a] * G[a] > WEAKEST)
            results.tree_scores[first + a] = s[a] * G[a]  # the caller takes the logarithms of all at once
        if not good:
            continue
        bethe[0], bethe[1] = 0.0, 1.0
        for which in range(parts.side_ptr[b], parts.side_ptr[b + 1]):
            arc, step, c, part = parts.sides[which]
            for j in range(c):
                a = arc - first + step * j
                collect(bethe, (1 + odds[a]) / (1 + T[a]))
            z = side(arc - first, step, c, part - s0, automata)
            side_beliefs(arc - first, step, c, part - s0, automata, z, results.siblings, part)
            collect(bethe, z)
        if k1 > k0:
            at = 0
            for h in range(1, n + 1):
                c = (out[h + 1] - out[h] + W - 1) // W * W
                at = pair_values(in_arcs, into[h], into[h + 1], out[h], c, at, pair_arrays, bethe)
            _copy_pairs(n, arcs, results.grandparents, k0, E, False)
        log_z = shift + value + bethe[0] + math.log(bethe[1])
        results.log_partition[b] = log_z
        safe[b] = log_z > -np.inf and log_z < np.inf
