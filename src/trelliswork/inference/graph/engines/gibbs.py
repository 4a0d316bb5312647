r"""Gibbs sampling: each variable in turn is drawn given all others. An independent check of the other engines.

Marginals are averages of the conditional probabilities met on the way (Rao-Blackwell), so they vary less than counts.
Where factors hold zeros, single steps may never leave a region: then the pairs of variables that such a factor touches
are drawn together too. That mends exactly-one constraints and the like, not every graph; zeros can still cut the
assignments into islands, and the walk stays on the one where it began.
Geman and Geman (1984).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_count
from trelliswork.errors import ImpossibleError, ValueRangeError
from trelliswork.inference.graph.engines.feasible import checked_assignment, counters, possible_assignment
from trelliswork.inference.graph.flat import Flat, flatten, split_entries, tidy, touching
from trelliswork.inference.graph.kernels import gibbs as kernels
from trelliswork.inference.graph.result import Result
from trelliswork.inference.graph.wiring import Doubles, Integers, Wiring


class _Walk(NamedTuple):
    marginals: Doubles
    entries: Doubles
    draws: Integers


def run(
    wiring: Wiring,
    n_samples: int = 10_000,
    burn_in: int = 1_000,
    *,
    seed: int = 0,
    pairs: bool | None = None,
    start: Integers | None = None,
) -> Result:
    """Estimate marginals from one long walk in each graph.

    Parameters
    ----------
    wiring : Wiring
        B graphs. A `ChainFactor` takes part step by step; other structured factors by their dense tables, and are
        refused when these are large.
    n_samples : int
        Sweeps over all variables that count.
    burn_in : int
        Sweeps before them.
    seed : int
        The same seed gives the same walk, on any number of threads.
    pairs : bool, optional
        Draw pairs of variables that share a factor together. By default where the factor holds -inf.
    start : ndarray of int (B, V), optional
        A possible assignment to begin from; found by default.

    Returns
    -------
    Result
        ``kind`` "estimate". ``log_z`` is nan: a walk does not tell it. ``residual`` is the largest difference between
        the marginals of the first and the second half of the walk. ``converged`` is False: nothing can say so.

    Raises
    ------
    ImpossibleError
        If a graph has no possible assignment, or none was found to begin with.

    Notes
    -----
    A sweep takes O(sum over variables of states times factors), with pairs times the states of the partner.
    """
    check_count("n_samples", n_samples)
    wiring = tidy(wiring)
    flat = flatten(wiring)
    half = (n_samples + 1) // 2
    states = _begin(wiring, flat, seed, start)
    numbers = counters(seed, 2 * wiring.n_graphs)[wiring.n_graphs :].copy()
    touched = _pairs(wiring, flat, pairs)
    first = _walk(wiring, flat, touched, states, numbers, half, burn_in, 1, entries=True)
    second = _walk(wiring, flat, touched, states, numbers, max(1, n_samples - half), 0, 1, entries=True)
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
    thin: int = 1,
    seed: int = 0,
    pairs: bool | None = None,
    start: Integers | None = None,
) -> Integers:
    """Draw dependent samples (n_samples, B, V) from one walk in each graph, keeping each ``thin``-th sweep.

    Other parameters and errors are those of `run`.
    """
    check_count("n_samples", n_samples)
    check_count("thin", thin)
    wiring = tidy(wiring)
    flat = flatten(wiring)
    states = _begin(wiring, flat, seed, start)
    numbers = counters(seed, 2 * wiring.n_graphs)[wiring.n_graphs :].copy()
    return _walk(
        wiring, flat, _pairs(wiring, flat, pairs), states, numbers, n_samples, burn_in, thin, entries=False
    ).draws


def _begin(wiring: Wiring, flat: Flat, seed: int, start: Integers | None) -> Integers:
    """Return possible assignments (B, V), or raise."""
    if start is not None:
        return checked_assignment(wiring, start).copy()
    states = possible_assignment(wiring, flat, np.arange(wiring.n_graphs), seed=seed)
    bad = np.flatnonzero((states < 0).any(axis=1))
    if bad.size:
        raise ImpossibleError(
            f"Gibbs sampling: every assignment of graph {bad[0]} has probability zero"
            + (f" (and of {bad.size - 1} more)" if bad.size > 1 else "")
            + ". Loosen the evidence or the zeros of its factors, or leave it out of the batch."
        )
    return states


def _pairs(wiring: Wiring, flat: Flat, pairs: bool | None) -> Integers:
    """Pairs of variables (n, 2) that are drawn together."""
    if pairs is None:
        zeros = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.isneginf(flat.tables))])
        at = flat.base[:, None] + flat.step[:, None] * np.arange(wiring.n_graphs)
        chosen = np.flatnonzero((zeros[at + flat.n_entries[:, None]] > zeros[at]).any(axis=1))
    else:
        chosen = np.arange(len(flat.base) if pairs else 0)
    found: set[tuple[int, int]] = set()
    for f in chosen.tolist():
        scope = np.sort(flat.variables[flat.ptr[f] : flat.ptr[f + 1]]).tolist()
        found.update((u, v) for i, u in enumerate(scope) for v in scope[i + 1 :])
    return np.array(sorted(found), np.int64).reshape(-1, 2)


def _walk(
    wiring: Wiring,
    flat: Flat,
    pairs: Integers,
    states: Integers,
    numbers: NDArray[np.uint64],
    n_samples: int,
    burn_in: int,
    thin: int,
    *,
    entries: bool,
) -> _Walk:
    """Walk on from ``states`` (B, V) and ``numbers`` (B,), moving them along; keep ``entries`` of factors, or draws."""
    if not isinstance(burn_in, (int, np.integer)) or burn_in < 0:
        raise ValueRangeError(f"burn_in must be a whole number from 0 up, got {burn_in!r}.")
    B, V, S = wiring.n_graphs, wiring.n_variables, int(wiring.n_states.max(initial=1))
    near = touching(flat, V)
    walk = _Walk(
        np.zeros_like(wiring.log_unary),
        np.zeros((B, int(flat.n_entries.sum()) if entries else 0)),
        np.zeros((0 if entries else n_samples, B, V), np.int64),
    )

    def work(start: int, stop: int) -> None:
        kernels.sample(
            start, stop, flat, near.ptr, near.factors, near.axes, wiring.n_states, wiring.offsets, wiring.log_unary,
            pairs, burn_in, n_samples, thin, numbers, states, np.zeros(S), np.zeros(S * S), *walk,
        )  # fmt: skip

    sweeps = burn_in + n_samples * thin
    costs = np.full(B, sweeps * (int(wiring.n_states.sum()) + S * len(flat.variables)))
    threads.run(work, threads.cut(costs, least=threads.LEAST_WORK))
    return walk
