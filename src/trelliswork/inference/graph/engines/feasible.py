"""Assignments that no factor forbids: starting points of mean field and Gibbs sampling when factors have zeros."""

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ImpossibleError, ShapeError, ValueRangeError
from trelliswork.inference.graph.engines import exact
from trelliswork.inference.graph.kernels import gibbs as kernels
from trelliswork.inference.graph.kernels.records import Flat
from trelliswork.inference.graph.layout import neighbors, variables
from trelliswork.inference.graph.potentials import Integers, Wiring

_SMALL = 1 << 16  # entries up to which the exact engine is tried first: the best assignment is a good start
_MAX_SIZE = 1 << 22  # entries up to which it is tried where local search fails
_STEPS = 20_000  # of local search, and 20 more per factor


def counters(seed: int, n: int) -> NDArray[np.uint64]:
    """Return the initial states (n,) of the random numbers of n graphs."""
    return np.random.SeedSequence(seed).generate_state(n, np.uint64).astype(np.uint64)


def possible_assignment(wiring: Wiring, flat: Flat, graphs: Integers, *, seed: int = 0) -> Integers:
    """Find assignments (n, V) of probability above zero for ``graphs`` (n,); -1 where certainly nothing is possible.

    In small graphs it is the best one, by exact elimination. In others local search (min-conflicts) starts at the best
    unary scores; where it fails, exact elimination decides; if the graph is too large for that, it is an error.
    """
    try:
        return _best(wiring, graphs, _SMALL)
    except ValueRangeError:
        pass
    states, possible = local_search(wiring, flat, graphs, seed=seed)
    if not possible.all():
        try:
            states[~possible] = _best(wiring, graphs[~possible], _MAX_SIZE)
        except ValueRangeError:
            raise ImpossibleError(
                f"no possible assignment of graph {graphs[~possible][0]} was found by local search in {_steps(flat):,} "
                "steps, and it is too large for exact inference. Pass a possible one as start, or allow more states in "
                "its factors."
            ) from None
    return states


def local_search(wiring: Wiring, flat: Flat, graphs: Integers, *, seed: int = 0) -> tuple[Integers, NDArray[np.bool_]]:
    """Run min-conflicts from the best unary scores; return assignments (n, V), and which of them are possible (n,)."""
    n, F = len(graphs), len(flat.base)
    states, possible = np.zeros((n, wiring.n_variables), np.int64), np.zeros(n, np.bool_)
    conflicts = kernels.Conflicts(
        np.zeros(int(wiring.n_states.max(initial=1)), np.int64), np.zeros(F, np.int64), np.zeros(F, np.int64)
    )
    near = neighbors(flat, wiring.n_variables)
    random = np.repeat(counters(seed, 1), n)
    kernels.search(graphs, variables(wiring), flat, near, _steps(flat), random, states, conflicts, possible)
    return states, possible


def _steps(flat: Flat) -> int:
    """Return the number of steps of local search."""
    return _STEPS + 20 * len(flat.base)


def _best(wiring: Wiring, graphs: Integers, max_size: int) -> Integers:
    """Return the best assignment (n, V) of some graphs, -1 where nothing is possible; ValueRangeError if too large."""
    if all(factor.n_graphs == 1 for factor in wiring.structured):
        wiring, graphs = wiring.select(graphs), np.arange(len(graphs))
    assignment = exact.best(wiring, max_size=max_size).assignment
    assert assignment is not None
    return assignment[graphs]


def checked_assignment(wiring: Wiring, start: Integers) -> Integers:
    """Check the shape and values of an assignment, and that its probability is above zero."""
    start = np.asarray(start)
    if start.shape != (wiring.n_graphs, wiring.n_variables):
        raise ShapeError(f"start must have shape (B, V)={wiring.n_graphs, wiring.n_variables}, got {start.shape}.")
    if start.dtype.kind not in "iu" or ((start < 0) | (start >= wiring.n_states)).any():
        raise ValueRangeError("start must contain a state of each variable, numbered from 0.")
    impossible = np.flatnonzero(wiring.score(start) == -np.inf)
    if impossible.size:
        raise ValueRangeError(f"start must be a possible assignment, but that of graph {impossible[0]} has score -inf.")
    return start.astype(np.int64, copy=False)
