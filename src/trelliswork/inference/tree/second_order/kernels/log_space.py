"""Second-order belief propagation in log space, one sentence at a time: accurate for every input.

A message is a pair of logarithms (off, on). The factors are those of ``second_order``. Used where odds in linear space
would overflow, and where scores of parts forbid them.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.logspace import log_add
from trelliswork.inference.tree.second_order.kernels.records import Options, Parts, Scores, SecondOrderResult
from trelliswork.inference.tree.second_order.kernels.tree_factor import TreeArcs, tree_messages


class Messages(NamedTuple):
    """Messages to the arcs of one sentence as pairs of logarithms, and their sums."""

    unary: Any  # (A,) scores of arcs
    tree: Any  # (A, 2)
    side: Any  # (A, 2)
    to_upper: Any  # (G, 2)
    to_lower: Any  # (G, 2)
    upper: Any  # (G,) arcs of each pair
    lower: Any  # (G,)
    total: Any  # (A, 2) sum of the finite messages
    zeros: Any  # (A, 2) number of messages of -inf


@helper
def _commit(old, off, on, damping):
    """Store a message, its larger entry 0; its log odds are mixed with the old ones where both are finite."""
    if damping > 0 and min(off, on) > -np.inf and min(old[0], old[1]) > -np.inf:
        off, on = 0.0, (1 - damping) * (on - off) + damping * (old[1] - old[0])
    top = max(off, on)
    if top > -np.inf:
        off, on = off - top, on - top
    old[0], old[1] = off, on


@helper
def _sum_messages(messages: Messages):
    """Sum the messages to each arc: fill ``total`` and ``zeros``."""
    unary, tree, side, to_upper, to_lower, upper, lower, total, zeros = messages
    for a in range(len(unary)):
        for x in range(2):
            total[a, x], zeros[a, x] = 0.0, 0
            for value in (unary[a] if x == 1 else 0.0, tree[a, x], side[a, x]):
                if value == -np.inf:
                    zeros[a, x] += 1
                else:
                    total[a, x] += value
    for k in range(len(upper)):
        for x in range(2):
            for a, value in ((upper[k], to_upper[k, x]), (lower[k], to_lower[k, x])):
                if value == -np.inf:
                    zeros[a, x] += 1
                else:
                    total[a, x] += value


@helper
def _without(total, zeros, own):
    """Return the sum of all messages to a state of an arc except one."""
    if own == -np.inf:
        return total if zeros == 1 else -np.inf
    return total - own if zeros == 0 else -np.inf


@helper
def _but(total, zeros, own):
    """Return `_without` for both states."""
    return _without(total[0], zeros[0], own[0]), _without(total[1], zeros[1], own[1])


@helper
def _all_but(messages: Messages, own, q):
    """Fill q (A, 2), the sums of all messages to each arc except its ``own`` (A, 2)."""
    for a in range(len(q)):
        q[a, 0], q[a, 1] = _but(messages.total[a], messages.zeros[a], own[a])


@helper
def _with_all(total, zeros):
    return total if zeros == 0 else -np.inf


@helper
def _side(first, step, size, scores, q, beta, gamma, out, beliefs):
    """Run the automaton over the children of one side, whose state is the last child; return its log value.

    ``q`` and ``out`` (A, 2): messages from and to the arcs ``first``, ``first + step``, ...; ``beliefs`` (parts,) get
    log-probabilities. ``beta[j, i]``: prefixes before candidate j whose last child is i. ``gamma[i]``: continuations.
    """
    beta[1, 0] = 0.0
    for j in range(1, size + 1):
        a, on = first + step * (j - 1), -np.inf
        for i in range(j):
            on = log_add(on, beta[j, i] + scores[j * (j - 1) // 2 + i])
            beta[j + 1, i] = beta[j, i] + q[a, 0]
        beta[j + 1, j] = on + q[a, 1]
        out[a, 1] = on
    value, end = -np.inf, (size + 1) * size // 2
    for i in range(size + 1):
        gamma[i] = scores[end + i]
        beliefs[end + i] = beta[size + 1, i] + gamma[i]
        value = log_add(value, beliefs[end + i])
    for j in range(size, 0, -1):
        a, off = first + step * (j - 1), -np.inf
        out[a, 1] += gamma[j]
        for i in range(j):
            off = log_add(off, beta[j, i] + gamma[i])
            k = j * (j - 1) // 2 + i
            following = scores[k] + q[a, 1] + gamma[j]
            beliefs[k] = beta[j, i] + following
            gamma[i] = log_add(q[a, 0] + gamma[i], following)
        out[a, 0] = off
    return value


@helper(allocates=True)
def _tree(arcs: TreeArcs, messages: Messages, q, out, beliefs, damping):
    """Send the messages of the tree factor; return its log value."""
    _all_but(messages, messages.tree, q)
    value = tree_messages(arcs, q, False, out, beliefs)
    for a in range(len(q)):
        _commit(messages.tree[a], out[a, 0], out[a, 1], damping)
    return value


@helper
def _tree_scores(modifiers, q, scores):
    """Convert messages (A, 2) to the tree factor into scores (A,) of arcs; a forced arc excludes all others."""
    for a in range(len(scores)):
        scores[a] = q[a, 1] - (q[a, 0] if q[a, 0] > -np.inf else 0.0)
        for b in range(len(scores)):
            if a != b and modifiers[a] == modifiers[b] and q[b, 0] == -np.inf:
                scores[a] = -np.inf


@kernel(allocates=True)
def infer(start, stop, which, parts: Parts, scores: Scores, options: Options, results: SecondOrderResult):
    """Fill the results of sentences ``which[start:stop]``; see ``second_order.infer``."""
    arc_scores, sibling_scores, grandparent_scores = scores
    for at in range(start, stop):
        b = which[at]
        first, last = parts.arc_ptr[b], parts.arc_ptr[b + 1]
        A, k0, G = last - first, parts.grandparent_ptr[b], parts.grandparent_ptr[b + 1] - parts.grandparent_ptr[b]
        s0, n = parts.sibling_ptr[b], parts.n_words[b]
        unary = arc_scores[first:last]
        head, modifier = parts.heads[first:last].astype(np.int64), parts.modifiers[first:last].astype(np.int64)
        arcs = TreeArcs(n, head, modifier, options.single_root, options.projective)
        upper = parts.grandparent_upper[k0 : k0 + G] - first
        lower = parts.grandparent_lower[k0 : k0 + G] - first
        tree, side, q = np.zeros((A, 2)), np.zeros((A, 2)), np.zeros((A, 2))
        to_upper, to_lower = np.zeros((G, 2)), np.zeros((G, 2))
        total, zeros = np.empty((A, 2)), np.empty((A, 2), np.int64)
        messages = Messages(unary, tree, side, to_upper, to_lower, upper, lower, total, zeros)
        out, beliefs, before = np.empty((A, 2)), np.empty((A, 2)), np.full(A, -1.0)
        widest = 0
        for s in range(parts.side_ptr[b], parts.side_ptr[b + 1]):
            widest = max(widest, parts.sides[s, 2])
        beta, gamma = np.empty((widest + 2, widest + 1)), np.empty(widest + 1)
        exact = G == 0 and parts.side_ptr[b] == parts.side_ptr[b + 1]
        results.converged[b], results.n_iter[b], results.residual[b] = exact, 0, 0.0
        for n_done in range(options.max_iter):
            if exact:
                break
            mix = options.damping if n_done > 0 else 0.0
            if n_done % options.tree_every == 0:
                _sum_messages(messages)
                _tree(arcs, messages, q, out, beliefs, mix)
            _sum_messages(messages)
            _all_but(messages, side, q)
            for s in range(parts.side_ptr[b], parts.side_ptr[b + 1]):
                arc, step, size, part = parts.sides[s]
                _side(arc - first, step, size, sibling_scores[part:], q, beta, gamma, out, results.siblings[part:])
                for j in range(size):
                    a = arc - first + step * j
                    _commit(side[a], out[a, 0], out[a, 1], mix)
            _sum_messages(messages)
            for k in range(G):
                u, d, score = upper[k], lower[k], grandparent_scores[k0 + k]
                u0, u1 = _but(total[u], zeros[u], to_upper[k])
                d0, d1 = _but(total[d], zeros[d], to_lower[k])
                _commit(to_upper[k], log_add(d0, d1), log_add(d0, d1 + score), mix)
                _commit(to_lower[k], log_add(u0, u1), log_add(u0, u1 + score), mix)
            _sum_messages(messages)
            change = 0.0
            for a in range(A):
                off, on = _with_all(total[a, 0], zeros[a, 0]), _with_all(total[a, 1], zeros[a, 1])
                belief = math.exp(on - log_add(off, on)) if on > -np.inf else 0.0
                change = max(change, abs(belief - before[a]))
                before[a] = belief
            results.n_iter[b], results.residual[b] = n_done + 1, change
            if change <= options.tolerance and n_done % options.tree_every == 0:  # all factors took part
                results.converged[b] = True
                break
        _sum_messages(messages)
        value = _tree(arcs, messages, q, out, beliefs, 0.0)
        for a in range(A):
            results.arcs[first + a] = math.exp(beliefs[a, 1])
        _tree_scores(modifier, q, results.tree_scores[first:last])
        # Bethe's value: the sum over factors, minus each variable's value times its number of factors less one.
        _sum_messages(messages)
        _all_but(messages, side, q)
        degree = np.zeros(A)  # number of factors except the tree
        for s in range(parts.side_ptr[b], parts.side_ptr[b + 1]):
            arc, step, size, part = parts.sides[s]
            mass = _side(arc - first, step, size, sibling_scores[part:], q, beta, gamma, out, results.siblings[part:])
            value += mass
            for k in range((size + 1) * (size + 2) // 2):
                results.siblings[part + k] = math.exp(results.siblings[part + k] - mass) if mass > -np.inf else 0.0
            for j in range(size):
                degree[arc - first + step * j] += 1
        for k in range(G):
            u, d, score = upper[k], lower[k], grandparent_scores[k0 + k]
            degree[u] += 1
            degree[d] += 1
            u0, u1 = _but(total[u], zeros[u], to_upper[k])
            d0, d1 = _but(total[d], zeros[d], to_lower[k])
            both = u1 + d1 + score
            mass = log_add(log_add(u0, u1) + d0, log_add(u0 + d1, both))
            value += mass
            results.grandparents[k0 + k] = math.exp(both - mass) if mass > -np.inf else 0.0
        for a in range(A):
            off, on = _with_all(total[a, 0], zeros[a, 0]), _with_all(total[a, 1], zeros[a, 1])
            mass = log_add(off, on)
            if mass == -np.inf:
                value = -np.inf
            elif degree[a] > 0:
                value -= degree[a] * mass
        results.log_partition[b] = value
        if not value > -np.inf:
            results.log_partition[b] = -np.inf
            results.arcs[first:last] = 0.0
            results.tree_scores[first:last] = -np.inf
            results.siblings[s0 : parts.sibling_ptr[b + 1]] = 0.0
            results.grandparents[k0 : k0 + G] = 0.0
