"""Assignments that no factor forbids: where mean field and Gibbs sampling can begin when factors hold zeros."""

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ImpossibleError, ShapeError, ValueRangeError
from trelliswork.inference.graph.engines import exact
from trelliswork.inference.graph.flat import Flat, touching
from trelliswork.inference.graph.kernels import gibbs as gibbs_kernels
from trelliswork.inference.graph.wiring import Integers, Wiring

_SMALL = 1 << 16  # entries up to which the exact engine is asked at once: the best assignment is a good one to begin at
_MAX_SIZE = 1 << 22  # entries up to which it is asked where local search fails
_STEPS = 20_000  # of local search, and 20 more for each factor


def counters(seed: int, n: int) -> NDArray[np.uint64]:
    """Where the random numbers of each of n graphs begin, (n,) of uint64."""
    return np.random.SeedSequence(seed).generate_state(n, np.uint64).astype(np.uint64)


def possible_assignment(wiring: Wiring, flat: Flat, graphs: Integers, *, seed: int = 0) -> Integers:
    """Find an assignment of probability above zero for some graphs of a batch.

    In small graphs it is the best one, by exact elimination. In others local search (min-conflicts) begins at the best
    unary scores; where it fails, exact elimination decides, if it is not too large.

    Parameters
    ----------
    graphs : ndarray of int (n,)

    Returns
    -------
    ndarray of int (n, V)
        -1 throughout where it is certain that nothing is possible.

    Raises
    ------
    ImpossibleError
        If none was found and the graph is too large to be certain.
    """
    try:
        return _best(wiring, graphs, _SMALL)
    except ValueRangeError:
        pass
    states, found = local_search(wiring, flat, graphs, seed=seed)
    if not found.all():
        try:
            states[~found] = _best(wiring, graphs[~found], _MAX_SIZE)
        except ValueRangeError:
            raise ImpossibleError(
                f"no possible assignment of graph {graphs[~found][0]} was found by local search in {_steps(flat):,} "
                "steps, and it is too large for exact inference. Give a possible one as start, or loosen the zeros of "
                "its factors."
            ) from None
    return states


def local_search(wiring: Wiring, flat: Flat, graphs: Integers, *, seed: int = 0) -> tuple[Integers, NDArray[np.bool_]]:
    """Min-conflicts from the best unary scores: assignments (n, V), and which of them are possible (n,)."""
    n, F = len(graphs), len(flat.base)
    near = touching(flat, wiring.n_variables)
    states, found = np.zeros((n, wiring.n_variables), np.int64), np.zeros(n, np.bool_)
    count = np.zeros(int(wiring.n_states.max(initial=1)), np.int64)
    gibbs_kernels.search(
        graphs, flat, near.ptr, near.factors, near.axes, wiring.n_states, wiring.offsets, wiring.log_unary,
        _steps(flat), np.repeat(counters(seed, 1), n), states, count, np.zeros(F, np.int64), np.zeros(F, np.int64),
        found,
    )  # fmt: skip
    return states, found


def _steps(flat: Flat) -> int:
    """How long to search."""
    return _STEPS + 20 * len(flat.base)


def _best(wiring: Wiring, graphs: Integers, max_size: int) -> Integers:
    """The best assignment (n, V) of some graphs, -1 where nothing is possible; ValueRangeError if too large."""
    if all(factor.n_graphs == 1 for factor in wiring.structured):
        wiring, graphs = wiring.select(graphs), np.arange(len(graphs))
    found = exact.best(wiring, max_size=max_size).assignment
    assert found is not None
    return found[graphs]


def checked_assignment(wiring: Wiring, start: Integers) -> Integers:
    """Refuse an assignment that does not fit or has probability zero."""
    start = np.asarray(start)
    if start.shape != (wiring.n_graphs, wiring.n_variables):
        raise ShapeError(f"start must have shape (B, V)={wiring.n_graphs, wiring.n_variables}, got {start.shape}.")
    if start.dtype.kind not in "iu" or ((start < 0) | (start >= wiring.n_states)).any():
        raise ValueRangeError("start must hold a state of each variable, counted from 0.")
    impossible = np.flatnonzero(wiring.score(start) == -np.inf)
    if impossible.size:
        raise ValueRangeError(f"start must be a possible assignment, but that of graph {impossible[0]} has score -inf.")
    return start.astype(np.int64, copy=False)
