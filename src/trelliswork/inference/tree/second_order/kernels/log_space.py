"""Second-order belief propagation in log space, one sentence at a time: right for every input.

A message is a pair of logarithms (off, on). The factors are those of ``second_order``. Used where odds in linear space
would run over, and where scores of parts forbid them.
"""

import math

import numpy as np

from trelliswork.compute.jit import kernel
from trelliswork.inference.tree.second_order.kernels.tree_factor import join, tree_messages


@kernel
def _commit(old, off, on, damping):
    """Put a message in place, its larger entry 0; its log odds are mixed with the old ones where both are finite."""
    if damping > 0 and min(off, on) > -np.inf and min(old[0], old[1]) > -np.inf:
        off, on = 0.0, (1 - damping) * (on - off) + damping * (old[1] - old[0])
    top = max(off, on)
    if top > -np.inf:
        off, on = off - top, on - top
    old[0], old[1] = off, on


@kernel
def _add_up(unary, tree, side, to_upper, to_lower, upper, lower, total, zeros):
    """Sum what comes to each arc: finite terms in ``total`` (A, 2), the number of -inf in ``zeros``."""
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


@kernel
def _without(total, zeros, own):
    """What comes to a variable's state but for one message."""
    if own == -np.inf:
        return total if zeros == 1 else -np.inf
    return total - own if zeros == 0 else -np.inf


@kernel
def _but(total, zeros, own):
    """Both states of `_without`."""
    return _without(total[0], zeros[0], own[0]), _without(total[1], zeros[1], own[1])


@kernel
def _with_all(total, zeros):
    return total if zeros == 0 else -np.inf


@kernel
def _side(begin, step, size, scores, q, beta, gamma, out, beliefs):
    """The children of one side as an automaton whose state is the last child; return its log value.

    ``q`` and ``out`` (A, 2): messages from and to the arcs; ``beliefs`` (parts,) become log-probabilities.
    ``beta[j, i]``: i was the last child when j is looked at. ``gamma[i]``: what can follow then.
    """
    beta[1, 0] = 0.0
    for j in range(1, size + 1):
        a, on = begin + step * (j - 1), -np.inf
        for i in range(j):
            on = join(on, beta[j, i] + scores[j * (j - 1) // 2 + i])
            beta[j + 1, i] = beta[j, i] + q[a, 0]
        beta[j + 1, j] = on + q[a, 1]
        out[a, 1] = on
    value, end = -np.inf, (size + 1) * size // 2
    for i in range(size + 1):
        gamma[i] = scores[end + i]
        beliefs[end + i] = beta[size + 1, i] + gamma[i]
        value = join(value, beliefs[end + i])
    for j in range(size, 0, -1):
        a, off = begin + step * (j - 1), -np.inf
        out[a, 1] += gamma[j]
        for i in range(j):
            off = join(off, beta[j, i] + gamma[i])
            k = j * (j - 1) // 2 + i
            following = scores[k] + q[a, 1] + gamma[j]
            beliefs[k] = beta[j, i] + following
            gamma[i] = join(q[a, 0] + gamma[i], following)
        out[a, 0] = off
    return value


@kernel
def _tree(n, heads, modifiers, single_root, projective, total, zeros, messages, q, out, beliefs, damping):
    """Send the messages of the tree factor; return its log value."""
    for a in range(len(heads)):
        q[a, 0], q[a, 1] = _but(total[a], zeros[a], messages[a])
    value = tree_messages(n, heads, modifiers, q, single_root, projective, False, out, beliefs)
    for a in range(len(heads)):
        _commit(messages[a], out[a, 0], out[a, 1], damping)
    return value


@kernel
def _tree_scores(modifiers, q, scores):
    """Messages (A, 2) to the tree factor as scores (A,) of arcs; an arc that must be on leaves no other one."""
    for a in range(len(scores)):
        scores[a] = q[a, 1] - (q[a, 0] if q[a, 0] > -np.inf else 0.0)
        for b in range(len(scores)):
            if a != b and modifiers[a] == modifiers[b] and q[b, 0] == -np.inf:
                scores[a] = -np.inf


@kernel
def infer(start, stop, which, net, uppers, lowers, arc_scores, sibling_scores, grandparent_scores, options, found):
    """Fill the results of sentences ``which[start:stop]``; see ``second_order.infer``."""
    for at in range(start, stop):
        b = which[at]
        first, last = net.arc_ptr[b], net.arc_ptr[b + 1]
        A, k0, G = last - first, net.grandparent_ptr[b], net.grandparent_ptr[b + 1] - net.grandparent_ptr[b]
        s0, n = net.sibling_ptr[b], net.n_words[b]
        unary = arc_scores[first:last]
        head, modifier = net.heads[first:last].astype(np.int64), net.modifiers[first:last].astype(np.int64)
        upper = uppers[k0 : k0 + G] - first
        lower = lowers[k0 : k0 + G] - first
        tree, side, q = np.zeros((A, 2)), np.zeros((A, 2)), np.zeros((A, 2))
        to_upper, to_lower = np.zeros((G, 2)), np.zeros((G, 2))
        total, zeros = np.empty((A, 2)), np.empty((A, 2), np.int64)
        out, beliefs, before = np.empty((A, 2)), np.empty((A, 2)), np.full(A, -1.0)
        widest = 0
        for s in range(net.side_ptr[b], net.side_ptr[b + 1]):
            widest = max(widest, net.sides[s, 2])
        beta, gamma = np.empty((widest + 2, widest + 1)), np.empty(widest + 1)
        exact = G == 0 and net.side_ptr[b] == net.side_ptr[b + 1]
        found.converged[b], found.n_iter[b], found.residual[b] = exact, 0, 0.0
        for n_done in range(options.max_iter):
            if exact:
                break
            mix = options.damping if n_done > 0 else 0.0
            if n_done % options.tree_every == 0:
                _add_up(unary, tree, side, to_upper, to_lower, upper, lower, total, zeros)
                _tree(
                    n, head, modifier, options.single_root, options.projective, total, zeros, tree, q, out, beliefs, mix
                )
            _add_up(unary, tree, side, to_upper, to_lower, upper, lower, total, zeros)
            for a in range(A):
                q[a, 0], q[a, 1] = _but(total[a], zeros[a], side[a])
            for s in range(net.side_ptr[b], net.side_ptr[b + 1]):
                begin, step, size, part = net.sides[s]
                _side(begin - first, step, size, sibling_scores[part:], q, beta, gamma, out, found.siblings[part:])
                for j in range(size):
                    a = begin - first + step * j
                    _commit(side[a], out[a, 0], out[a, 1], mix)
            _add_up(unary, tree, side, to_upper, to_lower, upper, lower, total, zeros)
            for k in range(G):
                u, d, score = upper[k], lower[k], grandparent_scores[k0 + k]
                u0, u1 = _but(total[u], zeros[u], to_upper[k])
                d0, d1 = _but(total[d], zeros[d], to_lower[k])
                _commit(to_upper[k], join(d0, d1), join(d0, d1 + score), mix)
                _commit(to_lower[k], join(u0, u1), join(u0, u1 + score), mix)
            _add_up(unary, tree, side, to_upper, to_lower, upper, lower, total, zeros)
            change = 0.0
            for a in range(A):
                off, on = _with_all(total[a, 0], zeros[a, 0]), _with_all(total[a, 1], zeros[a, 1])
                belief = math.exp(on - join(off, on)) if on > -np.inf else 0.0
                change = max(change, abs(belief - before[a]))
                before[a] = belief
            found.n_iter[b], found.residual[b] = n_done + 1, change
            if change <= options.tolerance and n_done % options.tree_every == 0:  # all factors took part
                found.converged[b] = True
                break
        _add_up(unary, tree, side, to_upper, to_lower, upper, lower, total, zeros)
        value = _tree(
            n, head, modifier, options.single_root, options.projective, total, zeros, tree, q, out, beliefs, 0.0
        )
        for a in range(A):
            found.arcs[first + a] = math.exp(beliefs[a, 1])
        _tree_scores(modifier, q, found.tree_scores[first:last])
        # Bethe's value: that of each factor, less that of each variable as often as it has more than one factor.
        _add_up(unary, tree, side, to_upper, to_lower, upper, lower, total, zeros)
        for a in range(A):
            q[a, 0], q[a, 1] = _but(total[a], zeros[a], side[a])
        degree = np.zeros(A)  # factors but the tree
        for s in range(net.side_ptr[b], net.side_ptr[b + 1]):
            begin, step, size, part = net.sides[s]
            mass = _side(begin - first, step, size, sibling_scores[part:], q, beta, gamma, out, found.siblings[part:])
            value += mass
            for k in range((size + 1) * (size + 2) // 2):
                found.siblings[part + k] = math.exp(found.siblings[part + k] - mass) if mass > -np.inf else 0.0
            for j in range(size):
                degree[begin - first + step * j] += 1
        for k in range(G):
            u, d, score = upper[k], lower[k], grandparent_scores[k0 + k]
            degree[u] += 1
            degree[d] += 1
            u0, u1 = _but(total[u], zeros[u], to_upper[k])
            d0, d1 = _but(total[d], zeros[d], to_lower[k])
            both = u1 + d1 + score
            mass = join(join(u0, u1) + d0, join(u0 + d1, both))
            value += mass
            found.grandparents[k0 + k] = math.exp(both - mass) if mass > -np.inf else 0.0
        for a in range(A):
            off, on = _with_all(total[a, 0], zeros[a, 0]), _with_all(total[a, 1], zeros[a, 1])
            mass = join(off, on)
            if mass == -np.inf:
                value = -np.inf
            elif degree[a] > 0:
                value -= degree[a] * mass
        found.log_z[b] = value
        if not value > -np.inf:
            found.log_z[b] = -np.inf
            found.arcs[first:last] = 0.0
            found.tree_scores[first:last] = -np.inf
            found.siblings[s0 : net.sibling_ptr[b + 1]] = 0.0
            found.grandparents[k0 : k0 + G] = 0.0
