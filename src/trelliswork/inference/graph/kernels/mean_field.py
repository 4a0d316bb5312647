"""Mean field: components of variables, each a forest with exact inference inside, updated one after the other.

Beliefs and their logits are stored in one flat vector: the states of all variables, then a table (parent, child) for
each edge of a component. A factor touches *parts* of components: one variable, or the two ends of an edge.
"""

import math
from typing import NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.inference.graph.kernels.records import Doubles, Flat, Integers, Variables


class Components(NamedTuple):
    """Components, and the parts of them that each factor touches.

    Members of component d are ``members[member_ptr[d]:member_ptr[d + 1]]``, parents before children; ``parent`` is -1
    for roots. Beliefs of the edge (parent, v) start at ``edge[v]`` of the flat vector of beliefs, its upward message at
    ``message[v]``; ``size`` has the lengths of both vectors. For each axis of a factor, in the order of `Flat`,
    ``part`` is the first axis of the same component, ``place`` the start of that part's beliefs, and ``move`` the
    distance in them between two states of the axis. A factor has ``n_parts``. Those that touch component d are
    ``factors[factor_ptr[d]:factor_ptr[d + 1]]``, by the part that starts at axis ``axes``.
    """

    member_ptr: Integers
    members: Integers
    parent: Integers
    edge: Integers
    message: Integers
    part: Integers
    place: Integers
    move: Integers
    n_parts: Integers
    factor_ptr: Integers
    factors: Integers
    axes: Integers
    size: Integers


class Scratch(NamedTuple):
    """Working memory for one graph."""

    logits: Doubles
    up: Doubles
    messages: Doubles
    digits: Integers
    place: Integers


class State(NamedTuple):
    """Beliefs (B, size[0]) and entropies (B, D) of the components."""

    beliefs: Doubles
    entropy: Doubles


class Progress(NamedTuple):
    """Bounds (B, 1 + max_iter), iterations (B,) and last residuals (B,)."""

    trace: Doubles
    n_iter: Integers
    residual: Doubles


@helper
def _advance(last, first, part, moves, variables, n_states, digits, place):
    """Go to the next state of the axes up to ``last`` of the factor whose axes start at ``first``."""
    a = last
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


@helper
def _weigh(b, f, target, flat, parts, n_states, beliefs, logits, digits, place):
    """Add E[log f] given each value of the part ``target`` to its logits; with target -1 return E[log f].

    Entries of weight zero do not count, not even -inf.
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
        weight = 1.0  # of all parts but the target and that of the last axis
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
        _advance(k - 2, first, part, moves, variables, n_states, digits, place)
    return total


@helper
def _infer(d, parts, n_states, offsets, scratch, beliefs):
    """Exact inference in component d; replace its beliefs. Return log Z, entropy, largest change of a belief."""
    logits, up, messages = scratch.logits, scratch.up, scratch.messages
    members, parents, edge, message = parts.members, parts.parent, parts.edge, parts.message
    log_z, mean, change = 0.0, 0.0, 0.0
    first, last = parts.member_ptr[d], parts.member_ptr[d + 1]
    for i in range(first, last):
        v = members[i]
        for x in range(offsets[v], offsets[v + 1]):
            up[x] = logits[x]
    for i in range(last - 1, first - 1, -1):  # parents precede their children
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


@helper
def _update(b, d, inside, variables, unary, flat, parts, scratch, beliefs, entropy):
    """Give component d its best distribution for fixed others; return its log Z and the largest change.

    ``unary`` is flat (N,). With ``inside`` only the factors inside the component count, for the first update.
    """
    n_states, offsets, logits = variables.n_states, variables.offsets, scratch.logits
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
            _weigh(b, f, parts.axes[e], flat, parts, n_states, beliefs, logits, scratch.digits, scratch.place)
    log_z, entropy[d], change = _infer(d, parts, n_states, offsets, scratch, beliefs)
    return log_z, change


@helper
def _bound(b, variables, flat, parts, scratch, beliefs, entropy):
    """E_q[log of all factors] + entropy of q: a lower bound of log Z."""
    unary = variables.log_unary[b]
    total = entropy.sum()
    for x in range(unary.size):
        if beliefs[x] > 0:
            total += beliefs[x] * unary[x]
    for f in range(flat.base.size):
        total += _weigh(b, f, -1, flat, parts, variables.n_states, beliefs, beliefs, scratch.digits, scratch.place)
    return total


@kernel(allocates=True)
def initialize(
    start, stop, variables: Variables, flat: Flat, parts: Components, noise, scratch: Scratch, state: State, bounds
):
    """Give every component its distribution without the factors between components; fill bounds (B,)."""
    for b in range(start, stop):
        beliefs, entropy = state.beliefs[b], state.entropy[b]
        possible, unary = True, variables.log_unary[b] + noise
        for d in range(parts.member_ptr.size - 1):
            log_z, _ = _update(b, d, True, variables, unary, flat, parts, scratch, beliefs, entropy)
            possible = possible and log_z > -np.inf
        bounds[b] = _bound(b, variables, flat, parts, scratch, beliefs, entropy) if possible else -np.inf


@kernel
def solve(
    start, stop, variables: Variables, flat: Flat, parts: Components, tolerance, scratch: Scratch, state: State,
    progress: Progress,
):  # fmt: skip
    """Sweep over the components until no belief changes by more than ``tolerance``."""
    trace, n_iter, residual = progress
    for b in range(start, stop):
        if trace[b, 0] == -np.inf:
            continue
        beliefs, entropy, unary = state.beliefs[b], state.entropy[b], variables.log_unary[b]
        for t in range(1, trace.shape[1]):
            residual[b] = 0.0
            for d in range(parts.member_ptr.size - 1):
                _, change = _update(b, d, False, variables, unary, flat, parts, scratch, beliefs, entropy)
                residual[b] = max(residual[b], change)
            trace[b, t] = _bound(b, variables, flat, parts, scratch, beliefs, entropy)
            n_iter[b] = t
            if residual[b] <= tolerance:
                break
        for t in range(n_iter[b] + 1, trace.shape[1]):
            trace[b, t] = trace[b, n_iter[b]]
