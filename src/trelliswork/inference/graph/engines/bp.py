r"""Belief propagation (sum-product): exact on forests, an estimate elsewhere.

.. math::
    q_{v \to f}(x_v) &= e^{u_v(x_v)} \prod_{g \ne f} r_{g \to v}(x_v) \\
    r_{f \to v}(x_v) &\propto \sum_{x_f \setminus x_v} e^{\theta_f(x_f)} \prod_{w \ne v} q_{w \to f}(x_w) \\
    \log Z &\approx \sum_v (1 - d_v) \log \sum_{x_v} e^{u_v} \prod_f r_{f \to v}
    + \sum_f \log \sum_{x_f} e^{\theta_f} \prod_v q_{v \to f}

The last line is the Bethe approximation at a fixed point. Its gradient in the log-potentials is the beliefs, because
its derivatives in the messages are zero there. Yedidia, Freeman and Weiss (2005).
"""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.errors import ValueRangeError
from trelliswork.inference.graph.engines.schedules import (
    Options,
    Prepared,
    Progress,
    check_options,
    pass_messages,
    prepare,
    takes_one_sweep,
)
from trelliswork.inference.graph.kernels import beliefs as belief_kernels
from trelliswork.inference.graph.kernels import flooding, residual
from trelliswork.inference.graph.kernels import messages as weights
from trelliswork.inference.graph.kernels.log_space import Sweep
from trelliswork.inference.graph.kernels.messages import (
    CONVERGED,
    IMPOSSIBLE,
    RUNNING,
    UNDERFLOW,
    Outcome,
    Probabilities,
)
from trelliswork.inference.graph.kernels.records import Pairs
from trelliswork.inference.graph.kernels.sweeps import sweep_weights
from trelliswork.inference.graph.layout import unpad_states
from trelliswork.inference.graph.potentials import Doubles, Wiring
from trelliswork.inference.graph.result import Kind, Result

COARSEST = 1e-10  # a larger threshold of underflow would send too many graphs to log space needlessly


def run(
    wiring: Wiring,
    *,
    schedule: str = "auto",
    damping: float = 0.0,
    tolerance: float = 1e-8,
    max_iter: int = 500,
) -> Result:
    """Pass messages to a fixed point; return beliefs and the Bethe value.

    Parameters
    ----------
    wiring : Wiring
    schedule : {"auto", "flooding", "sequential", "residual"}
        ``flooding`` computes all messages from the previous ones; ``sequential`` sweeps over the variables, forth and
        back, and uses each new message at once; ``residual`` updates the messages that may change most (in
        log space, where something can underflow, it sweeps). ``auto`` is one iteration of sweeps on a forest of tables
        without damping, and flooding elsewhere.
    damping : float
        Fraction of the old message in the new one, in [0, 1): helps where messages oscillate.
    tolerance : float
        Converged when no entry of a message would change by more: a probability (``residual``: a bound of the relative
        change) if nothing can underflow, else, and with structured factors, a logarithm (relative beyond 1).
    max_iter : int
        Maximum number of iterations; one iteration of ``residual`` updates as many messages as there are edges.

    Returns
    -------
    Result
        ``kind`` is "exact" if the graph is a forest and all graphs converged, else "estimate". A graph whose messages
        are all zero has no possible assignment: log Z is -inf and its marginals are zero.

    Notes
    -----
    An iteration takes time linear in the total size of the tables, memory linear in variables and factors.
    """
    options = check_options(schedule, damping, tolerance, max_iter)
    if schedule == "residual" and wiring.structured:
        raise ValueRangeError("schedule='residual' needs tables only: use 'sequential' with structured factors.")
    graph = prepare(wiring)
    progress = _iterate(graph, options)
    log_z, marginals = bethe(graph)
    exact = graph.layout.is_forest and bool(progress.converged.all())
    beliefs = partial(factor_beliefs, graph, log_z)
    incoming = [graph.messages.log_q[:, graph.states_of(f)] for f in range(graph.layout.n_tables, wiring.n_factors)]
    kind: Kind = "exact" if exact else "estimate"
    return Result(log_z, kind, marginals, *progress, compute_factor_marginals=beliefs, log_messages=tuple(incoming))


def _iterate(graph: Prepared, options: Options) -> Progress:
    """Iterate in probability space where nothing can underflow, in log space elsewhere."""
    B, messages = graph.wiring.n_graphs, graph.messages
    n_iter, change, status = np.zeros(B, np.int64), np.zeros(B), np.full(B, UNDERFLOW)
    unary = _weights_of_states(graph)
    threshold = _threshold(graph)
    # Padding and impossible states have weight zero like underflowed ones: the logarithms distinguish them.
    possible = messages.log_unary > -np.inf
    lowest = min(graph.data.lowest, float(unary.min(where=possible, initial=1.0)))
    if not graph.wiring.structured and threshold <= COARSEST and lowest >= threshold:
        status[:] = RUNNING
        r = _uniform(graph)
        state = Probabilities(unary, r, messages.log_q, messages.rows)
        once = takes_one_sweep(graph, options)
        stop = (np.inf, 1) if once else (options.tolerance, int(options.max_iter))
        rule = weights.Stopping(options.damping, *stop, threshold)
        pairs, outcome = _pairs(graph), Outcome(n_iter, change, status)
        given = graph.layout, graph.data, state
        if once or options.schedule == "sequential":
            sweep = graph.sweep()
            threads.run(sweep_weights, graph.ranges, *given, sweep, _ahead(graph, sweep, pairs), pairs, rule, outcome)
        elif options.schedule == "residual":
            threads.run(residual.residual_weights, graph.ranges, *given, _buckets(graph, pairs), pairs, rule, outcome)
        else:
            _flood(graph, state, pairs, rule, outcome)
        change[:] = 0.0 if once else change
        with np.errstate(divide="ignore"):
            np.log(r, out=messages.log_r)
        messages.log_r[status == IMPOSSIBLE] = -np.inf
        messages.log_r[status == UNDERFLOW] = 0.0
    skip = status != UNDERFLOW
    converged = (status == CONVERGED) | (status == IMPOSSIBLE)
    if not skip.all():
        rest = pass_messages(graph, options, maximize=False, skip=skip)
        n_iter, change = np.where(skip, n_iter, rest.n_iter), np.where(skip, change, rest.residual)
        converged = np.where(skip, converged, rest.converged)
    return Progress(n_iter, change, converged)


def _flood(graph: Prepared, state: Probabilities, pairs: Pairs, rule: weights.Stopping, outcome: Outcome) -> None:
    """Flood: graph by graph if they are large, then the threads share the variables; else several graphs at a time."""
    layout, new = graph.layout, graph.messages.log_r  # scratch
    ranges = threads.cut(1 + np.diff(layout.var_start) * layout.n_states**2, least=threads.LEAST_WORK)
    if len(ranges) < 2 or len(pairs.large):
        threads.run(flooding.flood, graph.ranges, layout, graph.data, state, new, pairs, rule, outcome)
        return
    n = len(ranges)
    starts = np.array([0, *(stop for _, stop in ranges)])
    parts = flooding.Shares(starts, np.zeros((n, *state.rows.shape[1:])), np.zeros((n, 3)))
    each = threads.cut(np.full(n, ranges.cost // n))
    for b in range(graph.wiring.n_graphs):
        table = graph.data.weights[b if len(graph.data.weights) > 1 else 0]
        r, other = state.r[b], new[b]
        while outcome.status[b] == RUNNING and outcome.n_iter[b] < rule.max_iter:
            own = Probabilities(state.unary[b], r, state.q[b], state.rows[b])
            threads.run(flooding.flood_parts, each, layout, table, own, other, pairs, parts, rule)
            outcome.n_iter[b] += 1
            outcome.status[b], outcome.residual[b] = flooding.status_of_shares(parts, rule)
            r, other = other, r
        if outcome.n_iter[b] % 2:
            state.r[b] = r


def _uniform(graph: Prepared) -> Doubles:
    """Return messages (B, M) that sum to one, zero in the padding."""
    layout = graph.layout
    n, widths = layout.n_states[layout.edge_variable], np.diff(layout.edge_at)
    inside = np.arange(layout.edge_at[-1]) < np.repeat(layout.edge_at[:-1] + n, widths)
    return np.tile(inside / np.repeat(n, widths), (graph.wiring.n_graphs, 1))


def _pairs(graph: Prepared) -> Pairs:
    """Return the two ends of the factors over two variables, in graphs without structured factors."""
    layout, E = graph.layout, len(graph.layout.edge_variable)
    arity = np.diff(layout.fac_start)
    two = np.flatnonzero(arity == 2)
    first, second = layout.fac_edge[layout.fac_start[two]], layout.fac_edge[layout.fac_start[two] + 1]
    sizes = layout.n_states[layout.edge_variable[first]] * layout.widths[layout.edge_variable[second]]
    to, table_at = np.full(E, -1), np.zeros(E, np.int64)
    to[first], to[second] = second, first
    table_at[first], table_at[second] = graph.data.weight_at[two], graph.data.weight_at[two] + sizes
    return Pairs(to, table_at, np.flatnonzero(arity != 2))


def _ahead(graph: Prepared, sweep: Sweep, pairs: Pairs) -> NDArray[np.bool_]:
    """Return which edges of factors over two variables lead to a later variable, (E,)."""
    rank = sweep.rank[graph.layout.edge_variable]
    return rank[pairs.to] > rank


def _buckets(graph: Prepared, pairs: Pairs) -> residual.Buckets:
    """Return scratch space of residual belief propagation, with the contractions of tables."""
    B, E = graph.wiring.n_graphs, len(graph.layout.edge_variable)
    contraction = np.ones((len(graph.data.weights), E))
    residual.contractions(graph.layout, graph.data, pairs, contraction)
    after, before = np.empty((2, B, E + residual.LEVELS), np.int64)
    return residual.Buckets(np.empty((B, E)), contraction, after, before)


def _weights_of_states(graph: Prepared) -> Doubles:
    """Return exp(log_unary) with largest entry 1 for each variable; 0 in the padding and for impossible variables."""
    layout, log_unary = graph.layout, graph.messages.log_unary
    if not log_unary.shape[1]:
        return np.zeros_like(log_unary)
    top = np.maximum.reduceat(log_unary, layout.state_at[:-1], axis=1)
    top[top == -np.inf] = 0
    return np.exp(log_unary - np.repeat(top, layout.widths, axis=1))


def _threshold(graph: Prepared) -> float:
    """Return the smallest t for which no product of numbers >= t in an iteration underflows."""
    degree = np.diff(graph.layout.var_start)
    longest = 1
    for group in graph.wiring.groups:
        of_slots = degree[group.variables]
        longest = max(longest, 1 + int((of_slots.sum(axis=1) - of_slots.min(axis=1)).max()))
    return 10.0 ** (-300.0 / longest)


def bethe(graph: Prepared) -> tuple[Doubles, Doubles]:
    """Return the Bethe value (B,) and the marginals of the variables (B, N) from the messages."""
    wiring, layout, messages = graph.wiring, graph.layout, graph.messages
    log_z = np.zeros(wiring.n_graphs)
    log_beliefs = np.full_like(messages.log_unary, -np.inf)
    threads.run(belief_kernels.bethe, graph.ranges, layout, graph.data, messages, log_beliefs, log_z)
    for f, factor in enumerate(wiring.structured, layout.n_tables):
        value = factor.propagate(messages.log_q[:, graph.states_of(f)]).log_value
        log_z = np.where((log_z == -np.inf) | (value == -np.inf), -np.inf, log_z + value)
    marginals = np.exp(unpad_states(layout, log_beliefs))
    marginals[log_z == -np.inf] = 0
    return log_z, marginals


def factor_beliefs(graph: Prepared, log_z: Doubles) -> tuple[Doubles, ...]:
    """Return normalized beliefs (B, F, s1, .., sk) of each group of table factors, zero for impossible graphs."""
    layout, log_q = graph.layout, graph.messages.log_q
    by_group = []
    first = 0
    for group in graph.wiring.groups:
        slots = layout.fac_start[first : first + len(group)]
        beliefs = np.array(np.broadcast_to(group.dense(), (graph.wiring.n_graphs, len(group), *group.shape)))
        for k, size in enumerate(group.shape):
            at = layout.edge_at[layout.fac_edge[slots + k]][:, None] + np.arange(size)
            axes = (1,) * k + (size,) + (1,) * (len(group.shape) - 1 - k)
            beliefs += log_q[:, at].reshape(*beliefs.shape[:2], *axes)
        every = tuple(range(2, beliefs.ndim))
        top = beliefs.max(axis=every, keepdims=True)
        beliefs -= np.where(top > -np.inf, top, 0)
        np.exp(beliefs, out=beliefs)
        totals = beliefs.sum(axis=every, keepdims=True)
        beliefs /= np.where(totals > 0, totals, 1)
        beliefs[log_z == -np.inf] = 0
        by_group.append(beliefs)
        first += len(group)
    return tuple(by_group)
