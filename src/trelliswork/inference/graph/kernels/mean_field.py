"""Compiled mean field: components of variables, each a forest with exact inference inside, updated one after the other.

Beliefs and their logits lie in one flat vector: the states of all variables, then a table (parent, child) for each edge
of a component. A factor sees *parts* of components: one variable, or the two ends of an edge. ``parts`` is a
`mean_field.Parts`, ``flat`` a `flat.Flat`.
"""

import math

import numpy as np

from trelliswork.compute.jit import kernel


@kernel
def _weigh(b, f, target, flat, parts, n_states, beliefs, logits, digits, place):
    """Add E[log f] given each value of the part ``target`` to its logits; with target -1 return E[log f].

    A weight of zero makes any entry count nothing, -inf too.
    """
    tables, variables, places, part, moves = flat.tables, flat.variables, parts.place, parts.part, parts.move
    first, last = flat.ptr[f], flat.ptr[f + 1]
    k = last - first
    at = flat.base[f] + b * flat.step[f]
    total = 0.0
    if k == 2 and part[first + 1] == 1:  # most factors: two variables of different components
        one, two = places[first], places[first + 1]
        n, m = n_states[variables[first]], n_states[variables[first + 1]]
        for i in range(n):
            row, share = at + i * m, beliefs[one + i]
            if target == 1:
                if share > 0:
                    for j in range(m):
                        logits[two + j] += share * tables[row + j]
            elif target == 0 or share > 0:
                mean = 0.0
                for j in range(m):
                    if beliefs[two + j] > 0:
                        mean += beliefs[two + j] * tables[row + j]
                if target == 0:
                    logits[one + i] += mean
                else:
                    total += share * mean
        return total
    for a in range(k):
        digits[a] = 0
        place[a] = places[first + a]
    n, move, own = n_states[variables[last - 1]], moves[last - 1], part[last - 1]
    for _ in range(flat.n_entries[f] // n):
        weight = 1.0  # of all parts but the last axis's and the target
        for a in range(k):
            if part[first + a] == a and a != own and a != target:
                weight *= beliefs[place[a]]
        if weight > 0:
            if own == target:
                for j in range(n):
                    logits[place[own] + j * move] += weight * tables[at + j]
            else:
                mean = 0.0
                for j in range(n):
                    belief = beliefs[place[own] + j * move]
                    if weight * belief > 0:
                        mean += belief * tables[at + j]
                if target >= 0:
                    logits[place[target]] += weight * mean
                else:
                    total += weight * mean
        at += n
        a = k - 2
        while a >= 0:
            digits[a] += 1
            p, by = part[first + a], moves[first + a]
            place[p] += by
            size = n_states[variables[first + a]]
            if digits[a] < size:
                break
            place[p] -= by * size
            digits[a] = 0
            a -= 1
    return total


@kernel
def _infer(d, parts, n_states, offsets, logits, up, messages, beliefs):
    """Exact inference in component d; replace its beliefs. Return log Z, entropy, largest change of a belief."""
    members, parents, edge, message = parts.members, parts.parent, parts.edge, parts.message
    log_z, mean, change = 0.0, 0.0, 0.0
    first, last = parts.member_ptr[d], parts.member_ptr[d + 1]
    for i in range(first, last):
        v = members[i]
        for x in range(offsets[v], offsets[v + 1]):
            up[x] = logits[x]
    for i in range(last - 1, first - 1, -1):  # parents stand before their children
        v, p = members[i], parents[members[i]]
        S, own = n_states[v], offsets[v]
        rows = 1 if p < 0 else n_states[p]
        for r in range(rows):
            at = -1 if p < 0 else edge[v] + r * S
            top = -np.inf
            for j in range(S):
                top = max(top, up[own + j] + (0.0 if p < 0 else logits[at + j]))
            if top > -np.inf:
                mass = 0.0
                for j in range(S):
                    mass += math.exp(up[own + j] + (0.0 if p < 0 else logits[at + j]) - top)
                top += math.log(mass)
            if p < 0:
                messages[message[v]] = top
                log_z += top
            else:
                messages[message[v] + r] = top
                up[offsets[p] + r] += top
    if log_z == -np.inf:
        return log_z, 0.0, 0.0
    for i in range(first, last):
        v, p = members[i], parents[members[i]]
        S, own = n_states[v], offsets[v]
        if p < 0:
            for j in range(S):
                belief = math.exp(up[own + j] - messages[message[v]])
                change = max(change, abs(belief - beliefs[own + j]))
                beliefs[own + j] = belief
                if belief > 0:
                    mean += belief * logits[own + j]
            continue
        for r in range(n_states[p]):
            share, top = beliefs[offsets[p] + r], messages[message[v] + r]
            for j in range(S):
                at = edge[v] + r * S + j
                beliefs[at] = share * math.exp(up[own + j] + logits[at] - top) if share > 0 else 0.0
                if beliefs[at] > 0:
                    mean += beliefs[at] * logits[at]
        for j in range(S):
            belief = 0.0
            for r in range(n_states[p]):
                belief += beliefs[edge[v] + r * S + j]
            change = max(change, abs(belief - beliefs[own + j]))
            beliefs[own + j] = belief
            if belief > 0:
                mean += belief * logits[own + j]
    return log_z, log_z - mean, change


@kernel
def _update(b, d, inside, flat, parts, n_states, offsets, unary, logits, up, messages, digits, place, beliefs, entropy):
    """Give component d its best distribution, the others being fixed; return log Z of it and the largest change.

    ``unary`` is flat (N,). With ``inside`` only the factors inside the component count: where to begin.
    """
    for i in range(parts.member_ptr[d], parts.member_ptr[d + 1]):
        v = parts.members[i]
        for x in range(offsets[v], offsets[v + 1]):
            logits[x] = unary[x]
        if parts.parent[v] >= 0:
            for x in range(parts.edge[v], parts.edge[v] + n_states[v] * n_states[parts.parent[v]]):
                logits[x] = 0.0
    for e in range(parts.factor_ptr[d], parts.factor_ptr[d + 1]):
        f = parts.factors[e]
        if not inside or parts.n_parts[f] == 1:
            _weigh(b, f, parts.axes[e], flat, parts, n_states, beliefs, logits, digits, place)
    log_z, entropy[d], change = _infer(d, parts, n_states, offsets, logits, up, messages, beliefs)
    return log_z, change


@kernel
def _bound(b, flat, parts, n_states, unary, digits, place, beliefs, entropy):
    """E_q[log of all factors] + entropy of q: a lower bound of log Z."""
    total = entropy.sum()
    for x in range(unary.size):
        if beliefs[x] > 0:
            total += beliefs[x] * unary[x]
    for f in range(flat.base.size):
        total += _weigh(b, f, -1, flat, parts, n_states, beliefs, beliefs, digits, place)
    return total


@kernel
def begin(start, stop, flat, parts, n_states, offsets, log_unary, noise, room, place, beliefs, entropy, bounds):
    """Give every component the distribution it has without the factors between components; fill bounds (B,)."""
    logits, up, messages = room[0], room[1], room[2]
    for b in range(start, stop):
        possible, unary = True, log_unary[b] + noise
        for d in range(parts.member_ptr.size - 1):
            log_z, _ = _update(
                b, d, True, flat, parts, n_states, offsets, unary, logits, up, messages, place[0], place[1],
                beliefs[b], entropy[b],
            )  # fmt: skip
            possible = possible and log_z > -np.inf
        bounds[b] = -np.inf
        if possible:
            bounds[b] = _bound(b, flat, parts, n_states, log_unary[b], place[0], place[1], beliefs[b], entropy[b])


@kernel
def solve(
    start, stop, flat, parts, n_states, offsets, log_unary, tolerance, room, place, beliefs, entropy, trace, n_iter,
    residual,
):  # fmt: skip
    """Sweep over the components until no belief changes by more than ``tolerance``; trace (B, 1 + max_iter)."""
    logits, up, messages = room[0], room[1], room[2]
    for b in range(start, stop):
        if trace[b, 0] == -np.inf:
            continue
        for t in range(1, trace.shape[1]):
            residual[b] = 0.0
            for d in range(parts.member_ptr.size - 1):
                _, change = _update(
                    b, d, False, flat, parts, n_states, offsets, log_unary[b], logits, up, messages, place[0],
                    place[1], beliefs[b], entropy[b],
                )  # fmt: skip
                residual[b] = max(residual[b], change)
            trace[b, t] = _bound(b, flat, parts, n_states, log_unary[b], place[0], place[1], beliefs[b], entropy[b])
            n_iter[b] = t
            if residual[b] <= tolerance:
                break
        for t in range(n_iter[b] + 1, trace.shape[1]):
            trace[b, t] = trace[b, n_iter[b]]


@kernel
def factor_beliefs(start, stop, flat, parts, n_states, beliefs, digits, place, entries):
    """Fill entries (B, sum of n_entries): the product of the beliefs of a factor's parts."""
    for b in range(start, stop):
        at = 0
        for f in range(flat.base.size):
            first, last = flat.ptr[f], flat.ptr[f + 1]
            k = last - first
            for a in range(k):
                digits[a] = 0
                place[a] = parts.place[first + a]
            for _ in range(flat.n_entries[f]):
                weight = 1.0
                for a in range(k):
                    if parts.part[first + a] == a:
                        weight *= beliefs[b, place[a]]
                entries[b, at] = weight
                at += 1
                a = k - 1
                while a >= 0:
                    digits[a] += 1
                    p, by = parts.part[first + a], parts.move[first + a]
                    place[p] += by
                    size = n_states[flat.variables[first + a]]
                    if digits[a] < size:
                        break
                    place[p] -= by * size
                    digits[a] = 0
                    a -= 1
