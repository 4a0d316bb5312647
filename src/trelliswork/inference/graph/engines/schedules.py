"""Message passing in log space: the schedules of belief propagation and max-product."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_count
from trelliswork.errors import ValueRangeError
from trelliswork.inference.graph.kernels import log_space
from trelliswork.inference.graph.kernels.log_space import Rule, Sweep
from trelliswork.inference.graph.kernels.records import Layout, Messages, TableData, padded
from trelliswork.inference.graph.layout import lay_out, pad_states, table_data
from trelliswork.inference.graph.potentials import Doubles, Integers, Propagator, Wiring, starts

SCHEDULES = ("auto", "flooding", "sequential", "residual")
_REPEATS = 100  # iterations in one call of a kernel, for the prediction of its cost


class Options(NamedTuple):
    """Options of `bp.run` and `max_product.run`."""

    schedule: str
    damping: float
    tolerance: float
    max_iter: int


class Progress(NamedTuple):
    """Iterations, last residual and convergence of each graph, (B,)."""

    n_iter: Integers
    residual: Doubles
    converged: NDArray[np.bool_]


@dataclass(frozen=True)
class Prepared:
    """B graphs with their messages in log space, laid out for the kernels; ``ranges`` divides them among threads."""

    wiring: Wiring
    layout: Layout
    data: TableData
    messages: Messages
    ranges: list[tuple[int, int]]

    def states_of(self, factor: int) -> Integers:
        """Return the indices of the messages of the variables of a factor, concatenated."""
        layout = self.layout
        edges = layout.fac_edge[layout.fac_start[factor] : layout.fac_start[factor + 1]]
        sizes = layout.n_states[layout.edge_variable[edges]]
        first = np.repeat(layout.edge_at[edges] - (np.cumsum(sizes) - sizes), sizes)
        return first + np.arange(sizes.sum())

    def sweep(self) -> Sweep:
        """Return the variables in breadth-first order."""
        order = self.layout.order[self.layout.order < self.wiring.n_variables]
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return Sweep(order, rank)

    def gather(self, variables: Integers) -> None:
        """Update ``log_q`` of some variables."""
        log_space.gather_for(variables, self.layout, self.messages)


def prepare(wiring: Wiring) -> Prepared:
    """Lay out graphs, with uniform messages."""
    layout, data = lay_out(wiring), table_data(wiring)
    B, M = wiring.n_graphs, int(layout.edge_at[-1])
    rows = np.zeros((B, 3, 4 * int(padded(layout.n_states.max(initial=1)))))
    log_unary = pad_states(layout, wiring.log_unary, -np.inf)
    cost = 1 + M + 2 * sum(len(group) * int(np.prod(group.shape)) for group in wiring.groups)
    ranges = threads.cut(np.full(B, cost), least=threads.LEAST_WORK, repeats=_REPEATS)
    messages = Messages(log_unary, np.zeros((B, M)), np.zeros((B, M)), rows, np.ones((1, len(layout.edge_variable))))
    return Prepared(wiring, layout, data, messages, ranges)


def check_options(schedule: str, damping: float, tolerance: float, max_iter: int) -> Options:
    """Return the options; raise an error for invalid ones."""
    if schedule not in SCHEDULES:
        raise ValueRangeError(f"schedule must be one of {', '.join(map(repr, SCHEDULES))}, got {schedule!r}.")
    if not 0 <= damping < 1:
        raise ValueRangeError(f"damping must be in [0, 1), got {damping!r}: it is the fraction of the old message.")
    if not tolerance >= 0:
        raise ValueRangeError(f"tolerance must not be negative, got {tolerance!r}.")
    check_count("max_iter", max_iter)
    return Options(schedule, float(damping), float(tolerance), max_iter)


def takes_one_sweep(graph: Prepared, options: Options) -> bool:
    """Return whether a sweep from the leaves to the roots and back is exact and allowed by the options."""
    plain = graph.layout.is_forest and not graph.wiring.structured
    return plain and options.schedule == "auto" and options.damping == 0


def _floor(graph: Prepared, maximize: bool, tolerance: float) -> float:
    """Return the log-value below which changes do not count (`log_space.change`): far below the tolerance."""
    if maximize or graph.layout.is_forest:
        return -np.inf
    return max(-100.0, math.log(tolerance) - 20) if tolerance > 0 else -100.0


def pass_messages(
    graph: Prepared, options: Options, *, maximize: bool, skip: NDArray[np.bool_] | None = None
) -> Progress:
    """Iterate in place until no message changes by more than the tolerance, for each graph separately.

    Structured factors follow the tables in every iteration: all at once when flooding, else one after the other.
    Graphs in ``skip`` are not changed. On a forest of tables ``auto`` is one sweep, from the leaves to the roots and
    back, which is exact.
    """
    B = graph.wiring.n_graphs
    schedule, damping, tolerance, max_iter = options
    done = np.zeros(B, np.bool_) if skip is None else skip.copy()
    n_iter, residual = np.zeros(B, np.int64), np.zeros(B)
    converged = np.zeros(B, np.bool_)
    if takes_one_sweep(graph, options):
        _iterate(graph, done, np.zeros(B), Rule(0.0, -np.inf, maximize), sequential=True)
        return Progress(n_iter + 1, residual, ~converged)
    rule = Rule(damping, _floor(graph, maximize, tolerance), maximize)
    for n in range(max_iter):
        if done.all():
            break
        n_iter[~done] = n + 1
        _iterate(graph, done, residual, rule, sequential=schedule in ("sequential", "residual"))
        _pass_structured(graph, done, residual, rule, at_once=schedule in ("auto", "flooding"))
        converged |= ~done & (residual <= tolerance)
        done |= converged
    return Progress(n_iter, residual, converged)


def _iterate(graph: Prepared, done: NDArray[np.bool_], residual: Doubles, rule: Rule, *, sequential: bool) -> None:
    given = graph.layout, graph.data, graph.messages, rule, graph.sweep(), sequential
    threads.run(log_space.iterate, graph.ranges, *given, done, residual)


def _pass_structured(graph: Prepared, done: NDArray[np.bool_], residual: Doubles, rule: Rule, *, at_once: bool) -> None:
    for f, factor in enumerate(graph.wiring.structured, graph.layout.n_tables):
        if not at_once:
            graph.gather(factor.variables)
        incoming = graph.messages.log_q[:, graph.states_of(f)]
        new = factor.best(incoming).log_messages if rule.maximize else _sum_messages(factor, incoming)
        log_space.commit_factor(graph.layout, f, new, graph.messages.log_r, rule, done, residual)


def _sum_messages(factor: Propagator, incoming: Doubles) -> Doubles:
    """Return the log-messages of a factor, computed in probability space if it can and nothing underflows there."""
    if hasattr(factor, "weigh"):
        top = np.maximum.reduceat(incoming, starts(factor.n_states)[:-1], axis=1)
        top[top == -np.inf] = 0
        weights = factor.weigh(np.exp(incoming - np.repeat(top, factor.n_states, axis=1)))
        if (weights >= log_space.TINY).all():
            return np.log(weights)
    return factor.propagate(incoming).log_messages
