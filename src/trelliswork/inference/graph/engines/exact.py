r"""Exact inference in factor graphs: variables are eliminated one by one, as in a junction tree.

Eliminating v from the product of the factors that touch it leaves a message over its neighbors N at that time:

.. math:: m_v(x_N) = \log \sum_{x_v} \exp \Big( u_v(x_v) + \sum_f \theta_f(x_f) + \sum_{w} m_w \Big)

In reverse order, p(x_v, x_N) = p(x_v | x_N) p(x_N) gives all marginals, the best states, or exact draws.
Lauritzen and Spiegelhalter (1988); Koller and Friedman (2009), chapters 9 and 10.
"""

from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute import threads
from trelliswork.compute.checks import check_count, check_possible
from trelliswork.compute.limits import max_entries
from trelliswork.errors import ShapeError
from trelliswork.inference.graph.engines.elimination import elimination_order
from trelliswork.inference.graph.kernels import exact as kernels
from trelliswork.inference.graph.kernels.exact import Plan, Scratch
from trelliswork.inference.graph.kernels.records import Flat
from trelliswork.inference.graph.layout import flatten, split_entries, tidy
from trelliswork.inference.graph.potentials import GRAPHS, Doubles, Integers, Wiring, starts
from trelliswork.inference.graph.result import Result

MAX_SIZE = 1 << 26  # entries: half a gigabyte
_SHARED = 1 << 22  # maximum number of entries for which each thread has tables of its own
_EXP = 10  # cost of an entry, in multiplications


class Prepared(NamedTuple):
    """Graphs with their tables, and the cliques of the elimination."""

    wiring: Wiring
    flat: Flat
    plan: Plan


def prepare(wiring: Wiring, max_size: int | None) -> Prepared:
    """Choose the order of elimination (min-fill) and lay out the cliques, at most ``max_size`` entries in all.

    By default it is `MAX_SIZE`, or what a limit of memory allows. A variable with one allowed state, the same in all
    graphs of the batch, costs nothing: it is not an axis of any table. Forests with n factors take O(n log n); others
    depend on the treewidth.
    """
    if max_size is None:
        max_size = max_entries(MAX_SIZE)
    check_count("max_size", max_size)
    wiring = tidy(wiring)
    flat = flatten(wiring, max_table=max_size)
    V = wiring.n_variables
    allowed = (wiring.log_unary > -np.inf).any(axis=0)
    owner = np.repeat(np.arange(V), wiring.n_states)
    fixed = np.bincount(owner, allowed, V) == 1
    at = np.flatnonzero(allowed & fixed[owner])
    lowest = np.zeros(V, np.int64)
    lowest[owner[at]] = at - wiring.offsets[owner[at]]
    is_fixed, states = fixed.tolist(), np.where(fixed, 1, wiring.n_states).tolist()
    ptr, variables = flat.ptr.tolist(), flat.variables.tolist()
    scopes = [variables[start:stop] for start, stop in pairwise(ptr)]
    free = [[v for v in scope if not is_fixed[v]] for scope in scopes]
    cliques = elimination_order(states, free, max_size)
    when = [0] * V
    for i, clique in enumerate(cliques):
        when[clique[-1]] = i
    inputs: list[list[tuple[int, int, int, int, dict[int, int]]]] = [[] for _ in range(V)]
    shift = (lowest[flat.variables] * flat.strides).tolist()
    base, step, ptr, moves = flat.base.tolist(), flat.step.tolist(), flat.ptr.tolist(), flat.strides.tolist()
    place = (np.cumsum(flat.n_entries) - flat.n_entries).tolist()
    for f, scope in enumerate(scopes):
        start, stop = ptr[f], ptr[f + 1]
        moved = sum(shift[start:stop])
        first = min([when[v] for v in scope if states[v] > 1], default=when[scope[0]])
        axes = dict(zip(scope, moves[start:stop], strict=True))
        inputs[first].append((f, base[f] + moved, step[f], place[f] + moved, axes))
    tables, messages = [0], [0]
    for clique in cliques:  # a message goes to the clique of the neighbor that is eliminated next
        rows, axes = 1, {}
        for v in reversed(clique[:-1]):
            axes[v] = rows
            rows *= states[v]
        if len(clique) > 1:
            inputs[when[clique[-2]]].append((-1, messages[-1], 0, 0, axes))
        tables.append(tables[-1] + rows * states[clique[-1]])
        messages.append(messages[-1] + rows)
    flat_inputs = [entry for row in inputs for entry in row]
    strides = [entry[4].get(v, 0) for clique, row in zip(cliques, inputs, strict=True) for entry in row for v in clique]
    per_input = np.repeat([len(clique) for clique in cliques], [len(row) for row in inputs])
    columns = np.array([entry[:4] for entry in flat_inputs], np.int64).reshape(-1, 4).T.copy()
    order = np.array([clique[-1] for clique in cliques], np.int64)
    axes_of = np.array([v for clique in cliques for v in clique], np.int64)
    plan = Plan(
        order,
        wiring.offsets[order] + lowest[order],
        starts([len(clique) for clique in cliques]),
        axes_of,
        np.array(states, np.int64)[axes_of],
        np.array(tables, np.int64),
        np.array(messages, np.int64),
        starts([len(row) for row in inputs]),
        columns[0],
        columns[1],
        columns[2],
        columns[3],
        starts(per_input),
        np.array(strides, np.int64),
        lowest,
    )
    return Prepared(wiring, flat, plan)


def _eliminate(kernel: Any, given: Prepared, *out: Doubles | Integers) -> None:
    """Call a kernel with ``out`` for ranges of graphs, each with scratch memory of its own."""
    wiring, flat, plan = given
    size, n_messages = int(plan.table_ptr[-1]), int(plan.message_ptr[-1])

    def work(start: int, stop: int) -> None:
        digits = np.zeros(1 + int(np.diff(plan.axis_ptr).max(initial=1)), np.int64)
        scratch = Scratch(np.empty(size), np.empty(n_messages), np.empty(n_messages), digits)
        kernel(start, stop, plan, flat.tables, wiring.log_unary, scratch, *out)

    costs = np.full(wiring.n_graphs, max(1, _EXP * size))
    most = threads.MAX_RANGES if size <= _SHARED else 1
    threads.run(work, threads.cut(costs, least=threads.LEAST_WORK, most=most))


def run(wiring: Wiring, *, max_size: int | None = None) -> Result:
    """Return log Z and the marginals of all variables and factors, exactly.

    Parameters
    ----------
    wiring : Wiring
        B graphs. Structured factors are used as dense tables.
    max_size : int, optional
        Maximum number of entries of all clique tables together, 8 bytes each; 2^26 by default, or as many as a limit of
        memory allows (``machine.limits``).

    Notes
    -----
    Impossible graphs have log Z -inf and marginals 0. Time and memory O(B sum over cliques of the size of their
    tables): for a tree with S states O(B V S^2).
    """
    given = prepare(wiring, max_size)

    def marginals(entries: Doubles) -> tuple[Doubles, Doubles]:
        log_z, beliefs = np.empty(len(entries)), np.zeros_like(wiring.log_unary)
        _eliminate(kernels.marginals, given, log_z, beliefs, entries)
        return log_z, beliefs

    def factor_marginals() -> tuple[Doubles, ...]:
        entries = np.zeros((wiring.n_graphs, int(given.flat.n_entries.sum())))
        marginals(entries)
        return split_entries(wiring, entries)

    return _result(*marginals(np.zeros((wiring.n_graphs, 0))), factor_marginals)


def _result(log_z: Doubles, marginals: Doubles, factor_marginals: Any, assignment: Integers | None = None) -> Result:
    B = len(log_z)
    progress = np.ones(B, np.int64), np.zeros(B), np.ones(B, np.bool_)
    return Result(log_z, "exact", marginals, *progress, factor_marginals, assignment)


def best(wiring: Wiring, *, max_size: int | None = None) -> Result:
    """Return the most probable states of each graph, exactly (max-product elimination); parameters as in `run`.

    ``assignment`` (B, V) is -1 where nothing is possible, ``log_z`` its score, ``marginals`` its indicator. Ties go to
    the lower state.
    """
    value, (assignment,) = _decode(wiring, np.zeros((0, wiring.n_graphs, wiring.n_variables)), 1, max_size)
    marginals = np.zeros_like(wiring.log_unary)
    possible = np.flatnonzero(value > -np.inf)
    marginals[possible[:, None], wiring.offsets[:-1] + assignment[possible]] = 1
    return _result(value, marginals, partial(wiring.indicators, assignment), assignment)


def sample(wiring: Wiring, uniform: Doubles, *, max_size: int | None = None) -> Integers:
    """Draw exact, independent states (n, B, V) from uniform random numbers (n, B, V); other parameters as in `run`.

    One elimination, then O(V S) per draw.
    """
    B, V = wiring.n_graphs, wiring.n_variables
    uniform = np.ascontiguousarray(uniform, np.float64)
    if uniform.ndim != 3 or uniform.shape[1:] != (B, V):
        raise ShapeError(f"uniform must have shape (n, B, V) with B={B} and V={V}, got {uniform.shape}.")
    log_z, draws = _decode(wiring, uniform, len(uniform), max_size)
    check_possible(log_z, "nothing to sample", **GRAPHS)
    return draws


def _decode(wiring: Wiring, uniform: Doubles, n: int, max_size: int | None) -> tuple[Doubles, Integers]:
    """Return values (B,) and n states (n, B, V) of the kernel `decode`."""
    value, states = np.empty(wiring.n_graphs), np.zeros((n, wiring.n_graphs, wiring.n_variables), np.int64)
    _eliminate(kernels.decode, prepare(wiring, max_size), uniform, value, states)
    return value, states
