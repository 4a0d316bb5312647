"""Passing messages until they rest: the schedules of belief propagation and max-product, in log space."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_count
from trelliswork.errors import ValueRangeError
from trelliswork.inference.graph.kernels import log_space as log_kernels
from trelliswork.inference.graph.kernels import residual as residual_kernels
from trelliswork.inference.graph.kernels.flooding import Net
from trelliswork.inference.graph.layout import Layout, TableData, lay_out, pad_states, table_data
from trelliswork.inference.graph.wiring import Doubles, Integers, Wiring

SCHEDULES = ("auto", "flooding", "sequential", "residual")


class Progress(NamedTuple):
    """How passing ended, for each graph (B,): iterations, the last residual, whether it came below the tolerance."""

    n_iter: Integers
    residual: Doubles
    converged: NDArray[np.bool_]


@dataclass(frozen=True)
class Messages:
    """The messages of B graphs in log space, and where they lie.

    Parameters
    ----------
    wiring : Wiring
    layout : Layout
    data : TableData
    net : Net
        The arrays of both for the kernels.
    log_unary : ndarray (B, N)
        Padded to widths.
    log_r, log_q : ndarray (B, M)
        To variables and to factors.
    rows : ndarray (B, 3, 4 * widest)
        Scratch.
    ranges : list of (int, int)
        The graphs, cut for threads.
    """

    wiring: Wiring
    layout: Layout
    data: TableData
    net: Net
    log_unary: Doubles
    log_r: Doubles
    log_q: Doubles
    rows: Doubles
    ranges: list[tuple[int, int]]

    def states_of(self, factor: int) -> Integers:
        """Where the messages of the variables of a factor lie, behind each other."""
        layout = self.layout
        edges = layout.fac_edge[layout.fac_start[factor] : layout.fac_start[factor + 1]]
        sizes = layout.n_states[layout.edge_variable[edges]]
        starts = np.repeat(layout.edge_at[edges] - (np.cumsum(sizes) - sizes), sizes)
        return starts + np.arange(sizes.sum())

    def gather(self, variables: Integers) -> None:
        """Bring ``log_q`` of some variables up to date."""
        log_kernels.gather_for(variables, self.net, self.log_unary, self.log_r, self.log_q)


def fresh_messages(wiring: Wiring) -> Messages:
    """Uniform messages."""
    layout, data = lay_out(wiring), table_data(wiring)
    net = Net(
        layout.n_states, layout.state_at, layout.var_start, layout.edge_at, layout.edge_variable, layout.edge_factor,
        layout.fac_start, layout.fac_edge, data.weight_at, data.log_at,
    )  # fmt: skip
    B, M = wiring.n_graphs, int(layout.edge_at[-1])
    widest = int(layout.widths.max(initial=1))
    cost = 1 + M + 2 * sum(len(group) * int(np.prod(group.shape)) for group in wiring.groups)
    ranges = threads.cut(np.full(B, cost), least=threads.LEAST_WORK) if B > 1 else [(0, B)]
    log_unary = pad_states(layout, wiring.log_unary, -np.inf)
    return Messages(
        wiring, layout, data, net, log_unary, np.zeros((B, M)), np.zeros((B, M)), np.zeros((B, 3, 4 * widest)), ranges
    )


def check_options(schedule: str, damping: float, tolerance: float, max_iter: int) -> None:
    """Refuse options that make no sense."""
    if schedule not in SCHEDULES:
        raise ValueRangeError(f"schedule must be one of {', '.join(map(repr, SCHEDULES))}, got {schedule!r}.")
    if not 0 <= damping < 1:
        raise ValueRangeError(f"damping must lie in [0, 1), got {damping!r}: it is the share of the old message.")
    if not tolerance >= 0:
        raise ValueRangeError(f"tolerance must not be negative, got {tolerance!r}.")
    check_count("max_iter", max_iter)


class _How(NamedTuple):
    """How messages are computed: damping, below which floor they are alike, and whether with maxima."""

    damping: float
    floor: float
    maximise: bool


def _floor(messages: Messages, maximise: bool, tolerance: float) -> float:
    """Log-values below it are alike when changes are measured (`log_kernels.change`): far below the tolerance."""
    if maximise or messages.layout.is_forest:
        return -np.inf
    return max(-100.0, math.log(tolerance) - 20) if tolerance > 0 else -100.0


def sweep_forest(messages: Messages, *, maximise: bool) -> Progress:
    """From the leaves to the roots and back: all there is to do on a forest without structured factors."""
    B = messages.wiring.n_graphs
    _iterate(messages, np.zeros(B, np.bool_), np.zeros(B), _How(0.0, -np.inf, maximise), sequential=True)
    return Progress(np.ones(B, np.int64), np.zeros(B), np.ones(B, np.bool_))


def pass_messages(
    messages: Messages,
    *,
    schedule: str,
    damping: float,
    tolerance: float,
    max_iter: int,
    maximise: bool,
    skip: NDArray[np.bool_] | None = None,
) -> Progress:
    """Iterate in place until no message changes by more than ``tolerance``, each graph on its own.

    Structured factors follow the tables in every iteration: all at once when flooding, else one after the other.
    Graphs in ``skip`` are left alone.
    """
    B, E = messages.wiring.n_graphs, len(messages.layout.edge_variable)
    done = np.zeros(B, np.bool_) if skip is None else skip.copy()
    n_iter, residual = np.zeros(B, np.int64), np.zeros(B)
    converged = np.zeros(B, np.bool_)
    pending, key = np.zeros_like(messages.log_r), np.zeros((B, E))
    heap, place = np.zeros((B, E), np.int64), np.zeros((B, E), np.int64)
    data, how = messages.data, _How(damping, _floor(messages, maximise, tolerance), maximise)

    def by_residual(start: int, stop: int) -> None:
        residual_kernels.residual_round(
            start, stop, messages.net, data.weights, data.log_weights, data.shifts, messages.log_unary,
            messages.log_r, messages.log_q, pending, heap, place, key, messages.rows, *how, tolerance, E, done,
            residual,
        )  # fmt: skip

    for n in range(max_iter):
        if done.all():
            break
        n_iter[~done] = n + 1
        if schedule == "residual":
            threads.run(by_residual, messages.ranges)
        else:
            _iterate(messages, done, residual, how, sequential=schedule == "sequential")
        _pass_structured(messages, done, residual, how, at_once=schedule == "flooding")
        converged |= ~done & (residual <= tolerance)
        done |= converged
    return Progress(n_iter, residual, converged)


def _iterate(
    messages: Messages,
    done: NDArray[np.bool_],
    residual: Doubles,
    how: _How,
    *,
    sequential: bool,
) -> None:
    data, order = messages.data, messages.layout.variable_order
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))

    def work(start: int, stop: int) -> None:
        log_kernels.iterate(
            start, stop, messages.net, data.weights, data.log_weights, data.shifts, messages.log_unary, messages.log_r,
            messages.log_q, messages.rows, *how, order, rank, sequential, done, residual,
        )  # fmt: skip

    threads.run(work, messages.ranges)


def _pass_structured(
    messages: Messages,
    done: NDArray[np.bool_],
    residual: Doubles,
    how: _How,
    *,
    at_once: bool,
) -> None:
    first = messages.layout.n_tables
    for f, factor in enumerate(messages.wiring.structured, first):
        if not at_once:
            messages.gather(factor.variables)
        incoming = messages.log_q[:, messages.states_of(f)]
        new = factor.best(incoming).log_messages if how.maximise else factor.propagate(incoming).log_messages
        log_kernels.commit_factor(messages.net, f, new, messages.log_r, how.damping, how.floor, done, residual)
