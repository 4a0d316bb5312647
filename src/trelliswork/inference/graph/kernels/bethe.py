"""Beliefs and Bethe's value from messages in log space."""

import math

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.inference.graph.kernels.log_space import _messages, gather, of_graph


@helper
def _log_total(a, at, b, to, n):
    """log sum_i exp(a[at + i] + b[to + i])."""
    top = -np.inf
    for i in range(n):
        top = max(top, a[at + i] + b[to + i])
    if top == -np.inf:
        return top
    acc = 0.0
    for i in range(n):
        acc += math.exp(a[at + i] + b[to + i] - top)
    return top + math.log(acc)


@kernel
def finish(start, stop, net, weights, log_weights, shifts, log_unary, log_r, log_q, rows, log_beliefs, log_z):
    """Fill log_q, normalised log-beliefs (B, N) of the variables and Bethe's log Z (B,) without structured factors.

    log Z = sum_v (1 - degree_v) log Z_v + sum_f log Z_f, which does not depend on the scale of any message and has no
    first-order error in them near a fixed point.
    """
    widest = rows.shape[2] // 4
    for b in range(start, stop):
        tables = of_graph(weights, log_weights, shifts, b)
        value = 0.0
        for v in range(len(net.n_states)):
            gather(net, v, log_unary[b], log_r[b], log_q[b])
            at, n = net.state_at[v], net.n_states[v]
            for i in range(n):
                acc = log_unary[b, at + i]
                for e in range(net.var_start[v], net.var_start[v + 1]):
                    acc += log_r[b, net.edge_at[e] + i]
                log_beliefs[b, at + i] = acc
            rows[b, 0, :n] = 0.0
            z = _log_total(log_beliefs[b], at, rows[b, 0], 0, n)
            if z == -np.inf:
                value = -np.inf
            elif value > -np.inf:
                value += (1 - (net.var_start[v + 1] - net.var_start[v])) * z
                for i in range(n):
                    log_beliefs[b, at + i] -= z
        for f in range(len(net.weight_at)):
            if value > -np.inf:
                slot = net.fac_start[f]
                arity = net.fac_start[f + 1] - slot
                _messages(net, f, arity - 1, log_q[b], tables, False, rows[b, 0], rows[b, 1], rows[b, 2])
                e = net.fac_edge[slot]
                at, n = net.edge_at[e], net.n_states[net.edge_variable[e]]
                value += tables.shifts[f] + _log_total(log_q[b], at, rows[b, 1], (4 - arity) * widest, n)
        log_z[b] = value
