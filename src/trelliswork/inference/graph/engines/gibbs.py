r"""Gibbs sampling: each variable in turn is drawn given all others. An independent check of the other engines.

Marginals are averages of conditional probabilities (Rao-Blackwell), so they vary less than counts. Where factors have
zeros, single steps may never leave a region: pairs of variables that such a factor touches are then drawn together too.
This solves exactly-one constraints and the like, but not every graph; zeros can still separate the assignments into
regions, and the walk stays in the one where it started.
Geman and Geman (1984).
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from trelliswork.compute import threads
from trelliswork.compute.checks import check_count, check_possible
from trelliswork.errors import ValueRangeError
from trelliswork.inference.graph.engines.feasible import counters, possible_assignment
from trelliswork.inference.graph.kernels import gibbs as kernels
from trelliswork.inference.graph.kernels.gibbs import Averages, Schedule, Walk
from trelliswork.inference.graph.kernels.records import Flat
from trelliswork.inference.graph.layout import flatten, neighbors, split_entries, tidy, variables
from trelliswork.inference.graph.potentials import GRAPHS, Doubles, Integers, Wiring
from trelliswork.inference.graph.result import Result


def run(
    wiring: Wiring,
    n_samples: int = 10_000,
    burn_in: int = 1_000,
    *,
    seed: int = 0,
    pairs: bool | None = None,
) -> Result:
    """Estimate marginals from one long walk in each graph.

    Parameters
    ----------
    wiring : Wiring
        B graphs. Structured factors are used as dense tables, which must not be large.
    n_samples : int
        Number of sweeps over all variables that are averaged.
    burn_in : int
        Number of sweeps before them.
    seed : int
        The same seed gives the same walk, on any number of threads.
    pairs : bool, optional
        Draw pairs of variables that share a factor together. By default only if the factor contains -inf.

    Returns
    -------
    Result
        ``kind`` "estimate". ``log_z`` is nan: sampling does not estimate it. ``residual`` is the largest difference
        between the marginals of the first and the second half of the walk. ``converged`` is False: it cannot be known.

    Notes
    -----
    It is an error if a graph has no possible assignment, or none was found to start from. A sweep takes
    O(sum over variables of states times factors); with pairs, times the states of the partner.
    """
    check_count("n_samples", n_samples)
    half = (n_samples + 1) // 2
    walk = _walk(wiring, seed, pairs)
    first = walk(_schedule(burn_in, half), entries=True)
    second = walk(_schedule(0, max(1, n_samples - half)), entries=True)
    share = half / (half + max(1, n_samples - half))

    def factor_marginals() -> tuple[Doubles, ...]:
        return split_entries(wiring, share * first.entries + (1 - share) * second.entries)

    B = wiring.n_graphs
    return Result(
        log_z=np.full(B, np.nan),
        kind="estimate",
        marginals=share * first.marginals + (1 - share) * second.marginals,
        n_iter=np.full(B, burn_in + n_samples, np.int64),
        residual=np.abs(first.marginals - second.marginals).max(axis=1, initial=0.0),
        converged=np.zeros(B, np.bool_),
        compute_factor_marginals=factor_marginals,
    )


def sample(
    wiring: Wiring,
    n_samples: int,
    burn_in: int = 1_000,
    *,
    seed: int = 0,
    pairs: bool | None = None,
) -> Integers:
    """Draw dependent samples (n_samples, B, V) from one walk in each graph, one per sweep.

    The other parameters and errors are those of `run`.
    """
    check_count("n_samples", n_samples)
    return _walk(wiring, seed, pairs)(_schedule(burn_in, n_samples), entries=False).draws


def _schedule(burn_in: int, n_samples: int) -> Schedule:
    if not isinstance(burn_in, (int, np.integer)) or burn_in < 0:
        raise ValueRangeError(f"burn_in must be a nonnegative integer, got {burn_in!r}.")
    return Schedule(int(burn_in), int(n_samples))


def _walk(wiring: Wiring, seed: int, pairs: bool | None) -> Callable[..., Averages]:
    """Return `_continue` for walks that start at possible assignments; raise an error if there are none."""
    wiring = tidy(wiring)
    flat = flatten(wiring)
    B, S = wiring.n_graphs, int(wiring.n_states.max(initial=1))
    states = possible_assignment(wiring, flat, np.arange(B), seed=seed)
    impossible = (states < 0).any(axis=1)
    check_possible(np.where(impossible, -np.inf, 0.0), "Gibbs sampling", **GRAPHS)
    walk = Walk(counters(seed, 2 * B)[B:].copy(), states, np.zeros(S), np.zeros(S * S))
    return partial(_continue, wiring, flat, _pairs(wiring, flat, pairs), walk)


def _pairs(wiring: Wiring, flat: Flat, pairs: bool | None) -> Integers:
    """Return pairs of variables (n, 2) that are drawn together."""
    if pairs is None:
        zeros = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.isneginf(flat.tables))])
        at = flat.base[:, None] + flat.step[:, None] * np.arange(wiring.n_graphs)
        chosen = np.flatnonzero((zeros[at + flat.n_entries[:, None]] > zeros[at]).any(axis=1))
    else:
        chosen = np.arange(len(flat.base) if pairs else 0)
    drawn: set[tuple[int, int]] = set()
    for f in chosen.tolist():
        scope = np.sort(flat.variables[flat.ptr[f] : flat.ptr[f + 1]]).tolist()
        drawn.update((u, v) for i, u in enumerate(scope) for v in scope[i + 1 :])
    return np.array(sorted(drawn), np.int64).reshape(-1, 2)


def _continue(
    wiring: Wiring, flat: Flat, pairs: Integers, walk: Walk, schedule: Schedule, *, entries: bool
) -> Averages:
    """Continue walks in place; average the entries of the factors if ``entries``, else keep the draws."""
    B, V, S = wiring.n_graphs, wiring.n_variables, len(walk.scores)
    near, given = neighbors(flat, V), variables(wiring)
    averages = Averages(
        np.zeros_like(wiring.log_unary),
        np.zeros((B, int(flat.n_entries.sum()) if entries else 0)),
        np.zeros((0 if entries else schedule.n_kept, B, V), np.int64),
    )

    def work(start: int, stop: int) -> None:
        own = walk._replace(scores=np.zeros(S), joint=np.zeros(S * S))  # scratch of this thread
        kernels.sample(start, stop, given, flat, near, pairs, schedule, own, averages)

    sweeps = schedule.burn_in + schedule.n_kept
    costs = np.full(B, sweeps * (int(wiring.n_states.sum()) + S * len(flat.variables)))
    threads.run(work, threads.cut(costs, least=threads.LEAST_WORK))
    return averages
