r"""Derivatives of second-order beliefs: the iterations of belief propagation in reverse, one sentence at a time.

A bar is the derivative of a loss by the logarithm of odds; other names are those of ``beliefs``. The tree factor and an
automaton send to arc a the log odds of its marginal :math:`p_a` without their own input, :math:`x_a`, so that

.. math::
    \bar x = \dot p - \bar m, \qquad v_a = \frac{\bar m_a}{p_a (1 - p_a)},

where :math:`\dot p` is the change of the marginals along v (``tangents``). With a pair's cavity odds
:math:`c = T_u / g_{uk}`, its message to the lower arc has

.. math::
    \frac{\partial \log g_{lk}}{\partial \log c} = \frac{c E}{1 + c E} - \frac{c}{1 + c}, \qquad
    \frac{\partial \log g_{lk}}{\partial \log E} = \frac{c E}{1 + c E} .

Messages at the limits of their range are constant. The number of iterations of a sentence counts as given.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.simd import lanes
from trelliswork.inference.tree.second_order.kernels import tangents
from trelliswork.inference.tree.second_order.kernels.beliefs import (
    Odds,
    _copy_pairs,
    _exponentials,
    _number_arcs,
    _tree,
    _weigh,
)
from trelliswork.inference.tree.second_order.kernels.messages import FORCED, Automata, side, tree_odds
from trelliswork.inference.tree.second_order.kernels.records import Arcs, Charts, Options, Parts, Scores, Tape

CERTAIN = 1e12  # odds from which the marginal of an arc counts as constant
TINY = 1e-200


class Bars(NamedTuple):
    """Derivatives of the loss, of one sentence."""

    arcs: Any  # (A,) by scores
    t: Any  # (A,) by messages of the tree
    s: Any  # (A,) by messages of the automata
    G: Any  # (A,) by the products of those of the pairs
    T: Any  # (A,) by the products of all
    gu: Any  # (blocks,) by messages of pairs, beyond that by their products
    gl: Any  # (blocks,)
    E: Any  # (blocks,) by scores of pairs


class TwoCharts(NamedTuple):
    """Charts of the tree factor and their tangents."""

    charts: Any
    tangents: Any
    dx: Any  # (A,) of the weights


@helper(error_model="numpy")
def _old_share(old, new, damping):
    """Return the share of the old message that ``messages.mix`` takes."""
    if damping == 0 or new <= 0 or old <= 0 or new >= FORCED or old >= FORCED:
        return 0.0
    return damping


@helper(error_model="numpy")
def _divided(bar, odds):
    """Return bar / (p (1 - p)), 0 where p counts as constant."""
    return bar * (1 + odds) * (1 + odds) / odds if odds > TINY and odds < CERTAIN else 0.0


@helper(error_model="numpy", allocates=True)
def _tree_changes(n, arcs: Arcs, both: TwoCharts, tree: Odds, v, dD, log_z, tops, options: Options):
    """Fill dD (A,), the changes of the marginals of the tree factor along v, after `_tree` returned ``log_z``."""
    x, D, A = tree.x, tree.D, arcs.out[n + 1]
    charts, other, dx = both
    if not options.projective:
        return tangents.spanning(n, options.single_root, x, v, arcs.heads, arcs.modifiers, A, dD)
    stride = (n + 1 + lanes(x) - 1) // lanes(x) * lanes(x) + lanes(x)
    for d in range(1, n + 1):
        log_z -= math.log(tops[d])
    z = math.exp(log_z)
    for a in range(A):
        dx[a] = x[a] * v[a]
    dz = tangents.inside(n, stride, options.single_root, x, dx, arcs, charts, other)
    tangents.outside(n, options.single_root, x, dx, z, dz, arcs, charts, other, dD)
    for a in range(A):
        dD[a] = dx[a] * D[a] + x[a] * dD[a]
    return True


@helper(error_model="numpy")
def _pairs(n, arcs: Arcs, E, gu, gl, T, bars: Bars, damping):
    """Go back through the messages of all pairs, from old messages gu and gl and odds T: update the bars of both."""
    W, at = lanes(E), 0
    bar_G, bar_T, bar_gu, bar_gl, bar_E = bars.G, bars.T, bars.gu, bars.gl, bars.E
    for h in range(1, n + 1):
        first = arcs.out[h]
        width = (arcs.out[h + 1] - first + W - 1) // W * W
        for p in range(arcs.into[h], arcs.into[h + 1]):
            u = arcs.in_arcs[p]
            odds_u, by_u, total = T[u], bar_G[u], 0.0
            for k in range(width):
                e, up, low, odds_l = E[at + k], gu[at + k], gl[at + k], T[first + k]
                on_u, off_u, on_l, off_l = up + odds_u * e, up + odds_u, low + odds_l * e, low + odds_l
                to_u, to_l = bar_gu[at + k] + by_u, bar_gl[at + k] + bar_G[first + k]
                old_u, old_l = 0.0, 0.0
                if damping > 0:
                    share_u, share_l = _old_share(up, on_l / off_l, damping), _old_share(low, on_u / off_u, damping)
                    old_u, old_l = share_u * to_u, share_l * to_l
                    to_u, to_l = to_u - old_u, to_l - old_l
                from_u = to_l * odds_u * up * (e - 1) / (on_u * off_u)
                from_l = to_u * odds_l * low * (e - 1) / (on_l * off_l)
                bar_E[at + k] += e * (to_l * odds_u / on_u + to_u * odds_l / on_l)
                bar_gu[at + k], bar_gl[at + k] = old_u - from_u, old_l - from_l
                bar_T[first + k] += from_l
                total += from_u
            bar_T[u] += total
            at += width


@kernel(error_model="numpy", allocates=True)
def backward(
    start, stop, parts: Parts, scores: Scores, options: Options, n_iter, tape: Tape, by_beliefs, results: Scores, safe
):
    """Fill the derivatives of sentences start..stop by all scores, from those by the beliefs of arcs (A,).

    ``n_iter`` (B,) iterations are on the tape. ``safe`` (B,) becomes False where numbers leave their range.
    """
    arc_scores, sibling_scores, grandparent_scores = scores
    W = lanes(arc_scores)
    A, N, S, wide, size = 0, 0, 0, 0, 0
    for b in range(start, stop):
        A = max(A, parts.arc_ptr[b + 1] - parts.arc_ptr[b])
        N = max(N, parts.n_words[b] + 1)
        S = max(S, parts.sibling_ptr[b + 1] - parts.sibling_ptr[b])
        size = max(size, tape.block_ptr[b + 1] - tape.block_ptr[b])
        for node in range(parts.node_ptr[b], parts.node_ptr[b + 1]):
            wide = max(wide, parts.out_start[node + 1] - parts.out_start[node])
    A, S, size, C = A + W, S + W, size + W, N * ((N + W - 1) // W * W + W)
    w, s, G, T, x, D, t, odds, off, v, dx, change = (
        np.ones(A), np.ones(A), np.ones(A), np.ones(A), np.ones(A), np.ones(A), np.ones(A), np.ones(A), np.ones(A),
        np.ones(A), np.ones(A), np.ones(A),
    )  # fmt: skip
    heads, modifiers, in_arcs = np.empty(A, np.int64), np.empty(A, np.int64), np.empty(A, np.int64)
    out, middle, into = np.empty(N + 1, np.int64), np.empty(N, np.int64), np.empty(N + 1, np.int64)
    after, low, tops = np.empty(N, np.int64), np.empty(N, np.int64), np.empty(N)
    charts = Charts(np.empty(C), np.empty(C), np.empty(A), np.empty(A), low, np.empty(C), np.empty(C), np.empty(A))
    other = Charts(np.empty(C), np.empty(C), np.empty(A), np.empty(A), low, np.empty(C), np.empty(C), np.empty(A))
    both = TwoCharts(charts, other, dx)
    ES, gamma = np.empty(S), np.empty(2 * wide + 2)
    beta, d_beta = np.empty((wide + 2) * (wide + 1)), np.empty((wide + 2) * (wide + 1))
    E, gu, gl = np.empty(size), np.empty(size), np.empty(size)
    bars = Bars(np.empty(A), np.empty(A), np.empty(A), np.empty(A), np.empty(A), np.empty(size), np.empty(size),
                np.empty(size))  # fmt: skip
    arcs, tree = Arcs(heads, modifiers, out, middle, into, after, in_arcs), Odds(w, s, G, x, D)
    messages = np.ones(A)
    automata = Automata(ES, odds, off, beta, gamma, messages)
    for b in range(start, stop):
        if not safe[b]:
            continue
        n, first, at = parts.n_words[b], parts.arc_ptr[b], tape.block_ptr[b]
        A, s0, s1 = parts.arc_ptr[b + 1] - first, parts.sibling_ptr[b], parts.sibling_ptr[b + 1]
        k0, k1 = parts.grandparent_ptr[b], parts.grandparent_ptr[b + 1]
        last = n_iter[b]
        _number_arcs(parts, b, arcs)
        _weigh(n, arc_scores, first, arcs, w, A)
        for k in range(s1, s1 + W):
            ES[k - s0] = 0.0
        for k in range(s0, s1):
            ES[k - s0] = sibling_scores[k]
            results.siblings[k] = 0.0
        _exponentials(ES, s1 - s0)
        size = 0
        if k1 > k0:
            size = _copy_pairs(n, arcs, grandparent_scores, k0, E, True)
            _exponentials(E, size)
        for k in range(size):
            bars.gu[k], bars.gl[k], bars.E[k] = 0.0, 0.0, 0.0
        for k in range(W):
            T[A + k], bars.G[A + k] = 1.0, 0.0  # read by the padding of the last block
        for a in range(A):
            s[a], G[a] = 1.0, 1.0
            if last > 0:
                s[a], G[a] = tape.s[last - 1, first + a], tape.G[last - 1, first + a]
            v[a] = by_beliefs[first + a]
        log_z = _tree(n, arcs, charts, tree, tops, options)
        good = _tree_changes(n, arcs, both, tree, v, change, log_z, tops, options)
        for a in range(A):
            bars.arcs[a], bars.t[a], bars.s[a], bars.G[a] = change[a], 0.0, change[a], change[a]
        for r in range(last - 1, -1, -1):
            mix = options.damping if r > 0 else 0.0
            for a in range(A):
                G[a], bars.T[a] = 1.0, 0.0
                if r > 0:
                    G[a] = tape.G[r - 1, first + a]
                odds[a] = w[a] * tape.t[r, first + a] * G[a]
                off[a] = 1 / (1 + odds[a])
                T[a] = odds[a] * tape.s[r, first + a]
            if k1 > k0:
                for k in range(size):
                    gu[k], gl[k] = 1.0, 1.0
                    if r > 0:
                        gu[k], gl[k] = tape.gu[r - 1, at + k], tape.gl[r - 1, at + k]
                _pairs(n, arcs, E, gu, gl, T, bars, mix)
            for a in range(A):  # T = w t s G
                bars.arcs[a] += bars.T[a]
                bars.t[a] += bars.T[a]
                bars.s[a] += bars.T[a]
                bars.G[a] = bars.T[a]
            for which in range(parts.side_ptr[b], parts.side_ptr[b + 1]):
                arc, step, c, part = parts.sides[which]
                side(arc - first, step, c, part - s0, automata, 0.0)
                for j in range(c):
                    a = arc - first + step * j
                    old = tape.s[r - 1, first + a] if r > 0 else 1.0
                    kept = _old_share(old, messages[a], mix) * bars.s[a]
                    bars.T[a], bars.s[a] = bars.s[a] - kept, kept
                    v[a] = _divided(bars.T[a], odds[a] * messages[a])
                tangents.side(arc - first, step, c, part - s0, automata, v, d_beta, change, results.siblings, part)
                for j in range(c):  # odds = w t G
                    a = arc - first + step * j
                    bar = change[a] - (bars.T[a] if v[a] != 0 else 0.0)
                    bars.arcs[a] += bar
                    bars.t[a] += bar
                    bars.G[a] += bar
            if r % options.tree_every == 0:
                for a in range(A):
                    s[a] = tape.s[r - 1, first + a] if r > 0 else 1.0
                log_z = _tree(n, arcs, charts, tree, tops, options)
                tree_odds(n, x, D, into, in_arcs, tops, t, 0.0)
                for a in range(A):
                    old = tape.t[r - 1, first + a] if r > 0 else 1.0
                    kept = _old_share(old, t[a], mix) * bars.t[a]
                    bars.T[a], bars.t[a] = bars.t[a] - kept, kept
                    v[a] = _divided(bars.T[a], x[a] * tops[modifiers[a]] * t[a]) if t[a] < FORCED else 0.0
                good &= _tree_changes(n, arcs, both, tree, v, change, log_z, tops, options)
                for a in range(A):  # x = w s G
                    bar = change[a] - (bars.T[a] if v[a] != 0 else 0.0)
                    bars.arcs[a] += bar
                    bars.s[a] += bar
                    bars.G[a] += bar
        for a in range(A):
            results.arcs[first + a] = bars.arcs[a]
            good &= math.isfinite(bars.arcs[a])
        if k1 > k0:
            _copy_pairs(n, arcs, results.grandparents, k0, bars.E, False)
        safe[b] = good
