"""Assignments that no factor forbids: starting points of mean field and Gibbs sampling when factors have zeros."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ImpossibleError, ValueRangeError
from trelliswork.inference.graph.engines import exact
from trelliswork.inference.graph.kernels import gibbs as kernels
from trelliswork.inference.graph.kernels.records import Flat, Variables
from trelliswork.inference.graph.layout import neighbors
from trelliswork.inference.graph.potentials import Integers, Wiring

_SMALL = 1 << 16  # entries up to which the exact engine is tried first: the best assignment is a good start
_MAX_SIZE = 1 << 22  # entries up to which it is tried where local search fails
_PENALTIES = np.geomspace(1, 30, 12)  # in nats per violated factor: annealing
_SWEEPS = 10  # at each of them
_STARTS = 40  # of annealing


def counters(seed: int, n: int) -> NDArray[np.uint64]:
    """Return the initial states (n,) of the random numbers of n graphs."""
    return np.random.SeedSequence(seed).generate_state(n, np.uint64).astype(np.uint64)


def possible_assignment(wiring: Wiring, flat: Flat, graphs: Integers, *, seed: int = 0) -> Integers:
    """Find assignments (n, V) of probability above zero for ``graphs`` (n,); -1 where certainly nothing is possible.

    In small graphs it is the best one, by exact elimination. In others local search starts at the best unary scores;
    where it fails, exact elimination decides; if the graph is too large for that, it is an error.
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
                f"no possible assignment of graph {graphs[~possible][0]} was found by local search in "
                f"{_STARTS * len(_PENALTIES) * _SWEEPS:,} sweeps, and it is too large for exact inference. Allow "
                "more states in its factors."
            ) from None
    return states


def local_search(wiring: Wiring, flat: Flat, graphs: Integers, *, seed: int = 0) -> tuple[Integers, NDArray[np.bool_]]:
    """Anneal the number of violated factors; return assignments (n, V), and which of them are possible (n,)."""
    V, S = wiring.n_variables, int(wiring.n_states.max(initial=1))
    allowed = wiring.log_unary > -np.inf
    start = [wiring.log_unary[:, a:b].argmax(axis=1) for a, b in pairwise(wiring.offsets)]
    states = np.stack([np.zeros(wiring.n_graphs, np.int64), *start], axis=1)[:, 1:].copy()
    walk = kernels.Walk(counters(seed, wiring.n_graphs), states, np.zeros(S), np.zeros(0))
    given = Variables(wiring.n_states, wiring.offsets, np.where(allowed, 0.0, -np.inf))
    out = kernels.Averages(
        np.zeros_like(wiring.log_unary), np.zeros((wiring.n_graphs, 0)), np.zeros((0, 1, V), np.int64)
    )
    steps = kernels.Schedule(_SWEEPS, 0)
    left = [b for b in graphs.tolist() if wiring.score(states)[b] == -np.inf]
    left = [b for b in left if all(allowed[b, i:j].any() for i, j in pairwise(wiring.offsets))]
    for penalty in np.tile(_PENALTIES, _STARTS if left else 0):
        soft = flat._replace(tables=np.where(flat.tables > -np.inf, 0.0, -penalty))
        for b in left:
            kernels.sample(b, b + 1, given, soft, neighbors(flat, V), np.zeros((0, 2), np.int64), steps, walk, out)
        score = wiring.score(states)
        left = [b for b in left if score[b] == -np.inf]
        if not left:
            break
    return states[graphs], wiring.score(states)[graphs] > -np.inf


def _best(wiring: Wiring, graphs: Integers, max_size: int) -> Integers:
    """Return the best assignment (n, V) of some graphs, -1 where nothing is possible; ValueRangeError if too large."""
    if all(factor.n_graphs == 1 for factor in wiring.structured):
        wiring, graphs = wiring.select(graphs), np.arange(len(graphs))
    assignment = exact.best(wiring, max_size=max_size).assignment
    assert assignment is not None
    return assignment[graphs]
