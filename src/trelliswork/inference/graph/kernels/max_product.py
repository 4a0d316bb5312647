"""Max-product: beliefs from messages, and the decoding of an assignment."""

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.inference.graph.kernels.log_space import _messages, commit, of_graph


@kernel
def max_beliefs(net, log_unary, log_r, log_beliefs):
    """Best score of each state less the best of the variable, (B, N)."""
    for b in range(len(log_r)):
        for v in range(len(net.n_states)):
            at = net.state_at[v]
            top = -np.inf
            for i in range(net.n_states[v]):
                acc = log_unary[b, at + i]
                for e in range(net.var_start[v], net.var_start[v + 1]):
                    acc += log_r[b, net.edge_at[e] + i]
                log_beliefs[b, at + i] = acc
                top = max(top, acc)
            if top > -np.inf:
                for i in range(net.n_states[v]):
                    log_beliefs[b, at + i] -= top


@helper
def _clamp(net, v, state, log_q):
    """From now on variable v tells its factors its state."""
    for e in range(net.var_start[v], net.var_start[v + 1]):
        at = net.edge_at[e]
        for i in range(net.n_states[v]):
            log_q[at + i] = 0.0 if i == state else -np.inf


@kernel
def decide(variables, states, net, log_q, assignment):
    """Take the states (B, k) of variables that are not decided yet."""
    for b in range(len(assignment)):
        for k in range(len(variables)):
            v = variables[k]
            if assignment[b, v] < 0 and states[b, k] >= 0:
                assignment[b, v] = states[b, k]
                _clamp(net, v, states[b, k], log_q[b])


@kernel
def decode(variables, net, weights, log_weights, shifts, log_unary, log_r, log_q, rows, assignment):
    """Decide variables one after the other, given those before: the first state of the best score.

    What the table factors of a variable tell it is computed anew from ``log_q``, which knows what is decided.
    """
    F = len(net.weight_at)
    widest = rows.shape[2] // 4
    for b in range(len(assignment)):
        tables = of_graph(weights, log_weights, shifts, b)
        for v in variables:
            if assignment[b, v] >= 0:
                continue
            for e in range(net.var_start[v], net.var_start[v + 1]):
                f = net.edge_factor[e]
                if f >= F:
                    continue
                _messages(net, f, -1, log_q[b], tables, True, rows[b, 0], rows[b, 1], rows[b, 2])
                slot = net.fac_start[f]
                arity = net.fac_start[f + 1] - slot
                k = 0
                while net.fac_edge[slot + k] != e:
                    k += 1
                commit(rows[b, 1], (4 - arity + k) * widest, net.n_states[v], log_r[b], net.edge_at[e], 0.0, -np.inf)
            top, best = -np.inf, -1
            for i in range(net.n_states[v]):
                acc = log_unary[b, net.state_at[v] + i]
                for e in range(net.var_start[v], net.var_start[v + 1]):
                    acc += log_r[b, net.edge_at[e] + i]
                if acc > top:
                    top, best = acc, i
            if best >= 0:
                assignment[b, v] = best
                _clamp(net, v, best, log_q[b])
