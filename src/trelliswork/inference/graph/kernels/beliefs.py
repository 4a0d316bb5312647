"""Results of message passing in log space: beliefs, the Bethe value, max-marginals and a decoded assignment."""

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.logspace import log_dot
from trelliswork.inference.graph.kernels.log_space import commit, factor_messages, gather, messages_of, tables_of
from trelliswork.inference.graph.kernels.records import Layout, Messages, TableData


@helper
def _score(layout, v, state, messages):
    """Unary score of a state of variable v plus all weighted messages to it."""
    acc = messages.log_unary[layout.state_at[v] + state]
    for e in range(layout.var_start[v], layout.var_start[v + 1]):
        acc += messages.weights[e] * messages.log_r[layout.edge_at[e] + state]
    return acc


@kernel
def bethe(start, stop, layout: Layout, data: TableData, messages: Messages, log_beliefs, log_z):
    """Fill log_q, normalized log-beliefs (B, N) of the variables and the Bethe value (B,) without structured factors.

    log Z = sum_v (1 - sum of weights at v) log Z_v + sum_f weight_f log Z_f, which does not depend on the scale of any
    message and has no first-order error in them near a fixed point.
    """
    for b in range(start, stop):
        tables, own = tables_of(data, b), messages_of(messages, b)
        beliefs, zeros, out = log_beliefs[b], own.rows[0], own.rows[1]
        widest = len(out) // 4
        value = 0.0
        for v in range(len(layout.n_states)):
            gather(layout, v, own)
            at, n = layout.state_at[v], layout.n_states[v]
            for i in range(n):
                beliefs[at + i] = _score(layout, v, i, own)
            zeros[:n] = 0.0
            z = log_dot(beliefs[at : at + n], zeros, n)
            if z == -np.inf:
                value = -np.inf
                continue
            value += (1.0 - own.weights[layout.var_start[v] : layout.var_start[v + 1]].sum()) * z
            for i in range(n):
                beliefs[at + i] -= z
        for f in range(layout.n_tables):
            if value > -np.inf:
                slot = layout.fac_start[f]
                arity = layout.fac_start[f + 1] - slot
                factor_messages(layout, f, arity - 1, tables, own, False)
                e = layout.fac_edge[slot]
                at, n = layout.edge_at[e], layout.n_states[layout.edge_variable[e]]
                log_sum = tables.shifts[f] + log_dot(own.log_q[at : at + n], out[(4 - arity) * widest :], n)
                value += own.weights[e] * log_sum
        log_z[b] = value


@kernel
def max_beliefs(layout: Layout, messages: Messages, log_beliefs):
    """Fill (B, N): best score with each state, less the best score of the variable."""
    for b in range(len(messages.log_r)):
        own = messages_of(messages, b)
        for v in range(len(layout.n_states)):
            at = layout.state_at[v]
            top = -np.inf
            for i in range(layout.n_states[v]):
                log_beliefs[b, at + i] = _score(layout, v, i, own)
                top = max(top, log_beliefs[b, at + i])
            if top > -np.inf:
                for i in range(layout.n_states[v]):
                    log_beliefs[b, at + i] -= top


@helper
def _clamp(layout, v, state, log_q):
    """Fix the messages from variable v to its state."""
    for e in range(layout.var_start[v], layout.var_start[v + 1]):
        at = layout.edge_at[e]
        for i in range(layout.n_states[v]):
            log_q[at + i] = 0.0 if i == state else -np.inf


@kernel
def decide(variables, states, layout: Layout, log_q, assignment):
    """Assign states (B, k) to those variables that are not decided yet."""
    for b in range(len(assignment)):
        for k in range(len(variables)):
            v = variables[k]
            if assignment[b, v] < 0 and states[b, k] >= 0:
                assignment[b, v] = states[b, k]
                _clamp(layout, v, states[b, k], log_q[b])


@kernel
def decode(variables, layout: Layout, data: TableData, messages: Messages, assignment):
    """Decide variables one after the other, given those before: the first state of the best score.

    Messages of the table factors of a variable are recomputed from ``log_q``, which holds what is decided.
    """
    for b in range(len(assignment)):
        tables, own = tables_of(data, b), messages_of(messages, b)
        out = own.rows[1]
        widest = len(out) // 4
        for v in variables:
            if assignment[b, v] >= 0:
                continue
            for e in range(layout.var_start[v], layout.var_start[v + 1]):
                f = layout.edge_factor[e]
                if f >= layout.n_tables:
                    continue
                factor_messages(layout, f, -1, tables, own, True)
                slot = layout.fac_start[f]
                arity = layout.fac_start[f + 1] - slot
                k = 0
                while layout.fac_edge[slot + k] != e:
                    k += 1
                row, at = (4 - arity + k) * widest, layout.edge_at[e]
                commit(out, row, layout.n_states[v], own.log_r, at, 0.0, -np.inf)
            top, best = -np.inf, -1
            for i in range(layout.n_states[v]):
                score = _score(layout, v, i, own)
                if score > top:
                    top, best = score, i
            if best >= 0:
                assignment[b, v] = best
                _clamp(layout, v, best, own.log_q)
