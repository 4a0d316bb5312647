"""Variable elimination in log space: tables up, then marginals, best states or samples down.

Clique i has a table over the neighbors of its variable and, as last axis, the variable itself: rows of a table are
states of the neighbors. ``_add`` iterates over a table together with an array that has fewer axes.
"""

import math
from typing import NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.inference.graph.kernels.gibbs import choose
from trelliswork.inference.graph.kernels.records import Doubles, Integers


class Plan(NamedTuple):
    """Cliques in the order of elimination.

    Clique i eliminates ``variable[i]``, whose first unary score is ``unary[i]``. Its axes are
    ``axis_ptr[i]:axis_ptr[i+1]`` of ``variables`` and ``sizes``, its table is ``table_ptr[i]:table_ptr[i+1]``, and its
    message starts at ``message_ptr[i]``. Its table is the sum of the inputs ``input_ptr[i]:input_ptr[i+1]``: tables of
    factors (``factor`` >= 0, at ``base + b * step``) or messages (-1, at ``base``), with one stride per axis from
    ``stride_ptr`` on. ``place`` is where a factor's marginals are stored. ``lowest`` is the state of a variable fixed
    by evidence, else 0.
    """

    variable: Integers
    unary: Integers
    axis_ptr: Integers
    variables: Integers
    sizes: Integers
    table_ptr: Integers
    message_ptr: Integers
    input_ptr: Integers
    factor: Integers
    base: Integers
    step: Integers
    place: Integers
    stride_ptr: Integers
    strides: Integers
    lowest: Integers


class Scratch(NamedTuple):
    """Clique tables and messages of one graph."""

    table: Doubles
    messages: Doubles
    shares: Doubles  # p(neighbors), as messages
    digits: Integers  # counter of `_add`


@helper
def _add(table, sizes, other, base, strides, digits, collect):
    """table[x] += other[base + sum_a strides[a] x_a] for all x; with ``collect`` the other way round."""
    k = sizes.size
    n, move = sizes[k - 1], strides[k - 1]
    digits[:k] = 0
    at = base
    for row in range(0, table.size, n):
        if collect:
            for j in range(n):
                other[at + j * move] += table[row + j]
        else:
            for j in range(n):
                table[row + j] += other[at + j * move]
        a = k - 2
        while a >= 0:
            digits[a] += 1
            at += strides[a]
            if digits[a] < sizes[a]:
                break
            at -= strides[a] * sizes[a]
            digits[a] = 0
            a -= 1


@helper
def _up(b, plan, tables, log_unary, best, scratch):
    """Fill the tables and the messages: log-sum (or, with ``best``, maximum) over each row. Return log Z.

    Without ``best`` the tables end as conditional probabilities of the variable given its neighbors.
    """
    table, messages, digits = scratch.table, scratch.messages, scratch.digits
    log_z = 0.0
    for i in range(plan.variable.size):
        sizes = plan.sizes[plan.axis_ptr[i] : plan.axis_ptr[i + 1]]
        n = sizes[sizes.size - 1]
        here = table[plan.table_ptr[i] : plan.table_ptr[i + 1]]
        for row in range(0, here.size, n):
            for j in range(n):
                here[row + j] = log_unary[b, plan.unary[i] + j]
        for e in range(plan.input_ptr[i], plan.input_ptr[i + 1]):
            strides = plan.strides[plan.stride_ptr[e] : plan.stride_ptr[e] + sizes.size]
            if plan.factor[e] >= 0:
                _add(here, sizes, tables, plan.base[e] + b * plan.step[e], strides, digits, False)
            else:
                _add(here, sizes, messages, plan.base[e], strides, digits, False)
        out = plan.message_ptr[i]
        for row in range(0, here.size, n):
            top = -np.inf
            for j in range(row, row + n):
                top = max(top, here[j])
            if not best:
                mass = 0.0
                for j in range(row, row + n):
                    here[j] = math.exp(here[j] - top) if top > -np.inf else 0.0
                    mass += here[j]
                if mass > 0:
                    top += math.log(mass)
                    for j in range(row, row + n):
                        here[j] /= mass
            messages[out] = top
            out += 1
        if sizes.size == 1:
            log_z += messages[plan.message_ptr[i]]
    return log_z


@kernel
def marginals(start, stop, plan: Plan, tables, log_unary, scratch: Scratch, log_z, beliefs, entries):
    """Fill log_z (B,), beliefs (B, N) and, if it has columns, entries (B, sum of n_entries) of the factors.

    p(clique) = p(variable | neighbors) p(neighbors): there is no division by a number that may be zero.
    """
    table, shares, digits = scratch.table, scratch.shares, scratch.digits
    for b in range(start, stop):
        log_z[b] = _up(b, plan, tables, log_unary, False, scratch)
        shares[:] = 0
        for i in range(plan.variable.size - 1, -1, -1):
            sizes = plan.sizes[plan.axis_ptr[i] : plan.axis_ptr[i + 1]]
            n = sizes[sizes.size - 1]
            here = table[plan.table_ptr[i] : plan.table_ptr[i + 1]]
            if sizes.size == 1 and log_z[b] > -np.inf:
                shares[plan.message_ptr[i]] = 1
            for r in range(here.size // n):
                share = shares[plan.message_ptr[i] + r]
                for j in range(n):
                    here[r * n + j] *= share
                    beliefs[b, plan.unary[i] + j] += here[r * n + j]
            for e in range(plan.input_ptr[i], plan.input_ptr[i + 1]):
                strides = plan.strides[plan.stride_ptr[e] : plan.stride_ptr[e] + sizes.size]
                if plan.factor[e] < 0:
                    _add(here, sizes, shares, plan.base[e], strides, digits, True)
                elif entries.shape[1] > 0:
                    _add(here, sizes, entries[b], plan.place[e], strides, digits, True)


@kernel
def decode(start, stop, plan: Plan, tables, log_unary, scratch: Scratch, uniform, value, states):
    """Fill states (n, B, V), -1 where nothing is possible, and value (B,).

    These are draws by uniform numbers (n, B, V) and log Z or, if there are no numbers, the best states and their score.
    """
    table, best = scratch.table, len(uniform) == 0
    for b in range(start, stop):
        value[b] = _up(b, plan, tables, log_unary, best, scratch)
        if value[b] == -np.inf:
            states[:, b] = -1
            continue
        for d in range(len(states)):
            here = states[d, b]
            for i in range(plan.variable.size - 1, -1, -1):
                v, n = plan.variable[i], plan.sizes[plan.axis_ptr[i + 1] - 1]
                row = 0  # of the states of its neighbors, among which there are no fixed variables
                for a in range(plan.axis_ptr[i], plan.axis_ptr[i + 1] - 1):
                    row = row * plan.sizes[a] + here[plan.variables[a]]
                at = plan.table_ptr[i] + row * n
                chosen = table[at : at + n].argmax() if best else choose(table[at : at + n], n, uniform[d, b, v])
                here[v] = plan.lowest[v] + chosen
