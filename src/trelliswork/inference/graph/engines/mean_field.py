r"""Naive mean field: independent variables, a lower bound of log Z.

.. math:: \log Z \ge E_q\Big[\sum_f \theta_f\Big] + H(q), \qquad q(x) = \prod_v q_v(x_v)

Each update q_v ~ exp E[sum of the factors of v] maximizes the bound over q_v, so the bound never decreases.

Zeros: -inf in a factor counts only where q is positive (0 times -inf is 0 here), so the bound is finite as long as q is
zero on everything impossible; updates preserve this. The start is the distribution of each variable without the
factors; where that includes something impossible, it is one possible assignment, found by local search.
"""

from collections.abc import Callable

import numpy as np

from trelliswork.compute import threads
from trelliswork.compute.checks import check_count
from trelliswork.errors import ValueRangeError
from trelliswork.inference.graph.engines.components import singles
from trelliswork.inference.graph.engines.feasible import possible_assignment
from trelliswork.inference.graph.kernels import mean_field as kernels
from trelliswork.inference.graph.kernels.mean_field import Components, Progress, Scratch, State
from trelliswork.inference.graph.kernels.records import Flat
from trelliswork.inference.graph.layout import flatten, tidy, variables
from trelliswork.inference.graph.potentials import Doubles, Integers, Wiring
from trelliswork.inference.graph.result import Result

_WORK = 50  # cost of an entry in a run, in multiplications


def run(
    wiring: Wiring,
    *,
    max_iter: int = 500,
    tolerance: float = 1e-6,
    noise: float = 0.01,
    seed: int = 0,
    lay_out: Callable[[Wiring, Flat], Components] = singles,
) -> Result:
    """Run coordinate ascent on the mean-field bound.

    Parameters
    ----------
    wiring : Wiring
        B graphs. Structured factors are used as dense tables, which must not be large.
    max_iter : int
        Maximum number of sweeps over all variables.
    tolerance : float
        Stop when no belief changes by more in a sweep.
    noise : float
        Standard deviation of the noise added to the unary scores, whose softmax q starts as. It breaks symmetries, at
        which the updates stop although the bound can increase.
    seed : int
        Seed of the noise and of the search for a possible assignment.
    lay_out : callable
        Lays out the components, each a single variable by default (`structured_mean_field` has larger ones).

    Returns
    -------
    Result
        ``kind`` "lower"; ``log_z`` is the bound. ``trace`` (B, 1 + iterations) has the bound at the start and after
        each sweep. Where nothing is possible it is -inf and the marginals are 0.

    Notes
    -----
    It is an error if factors contain -inf, local search finds no possible assignment, and the graph is too large to
    decide whether there is one. A sweep takes O(sum over factors of k times the size of the table). Graphs run in
    parallel.
    """
    wiring = tidy(wiring)
    flat = flatten(wiring)
    parts = lay_out(wiring, flat)
    check_count("max_iter", max_iter)
    for name, value in (("tolerance", tolerance), ("noise", noise)):
        if not 0 <= value < np.inf:
            raise ValueRangeError(f"{name} must be finite and nonnegative, got {value!r}.")
    B, N = wiring.log_unary.shape
    n_beliefs, n_messages = parts.size.tolist()
    state = State(np.zeros((B, n_beliefs)), np.zeros((B, len(parts.member_ptr) - 1)))
    trace = np.full((B, 1 + max_iter), -np.inf)
    n_iter, residual = np.zeros(B, np.int64), np.zeros(B)
    given, progress = variables(wiring), Progress(trace, n_iter, residual)
    ranges = threads.cut(np.full(B, 1 + _WORK * int(flat.n_entries.sum() + N)), least=threads.LEAST_WORK)

    def scratch() -> Scratch:
        most_axes = int(np.diff(flat.ptr).max(initial=1))
        room = np.zeros((3, max(n_beliefs, n_messages)))
        return Scratch(room[0], room[1], room[2], np.zeros(most_axes, np.int64), np.zeros(most_axes, np.int64))

    jitter, bounds = noise * np.random.default_rng(seed).normal(size=N), np.zeros(B)

    def initialize(first: int, last: int) -> None:
        kernels.initialize(first, last, given, flat, parts, jitter, scratch(), state, bounds)

    threads.run(initialize, ranges)
    stuck = np.flatnonzero(bounds == -np.inf)
    if stuck.size:
        assignment = possible_assignment(wiring, flat, stuck, seed=seed)
        bounds[stuck] = _fix(wiring, parts, stuck, assignment, state)
    trace[:, 0] = bounds

    def climb(first: int, last: int) -> None:
        kernels.solve(first, last, given, flat, parts, float(tolerance), scratch(), state, progress)

    threads.run(climb, ranges)
    beliefs = state.beliefs
    beliefs[trace[:, 0] == -np.inf] = 0

    def factor_marginals() -> tuple[Doubles, ...]:
        first = 0
        by_group = []
        for group in wiring.groups:
            axes = flat.ptr[first : first + len(group), None] + np.arange(len(group.shape))  # (F, k)
            by_group.append(_products(parts, axes, group.shape, beliefs))
            first += len(group)
        return tuple(by_group)

    last = int(n_iter.max(initial=0))
    return Result(
        log_z=trace[:, last].copy(),
        kind="lower",
        marginals=beliefs[:, :N].copy(),
        n_iter=n_iter,
        residual=residual,
        converged=residual <= tolerance,
        compute_factor_marginals=factor_marginals,
        trace=trace[:, : last + 1].copy(),
    )


def _products(parts: Components, axes: Integers, shape: tuple[int, ...], beliefs: Doubles) -> Doubles:
    """Return the products (B, F, s1, .., sk) of the beliefs of the parts that factors touch with their axes (F, k)."""
    F, k = axes.shape
    states = np.indices(shape).reshape(k, 1, -1)
    at = np.repeat(parts.place[axes].T[:, :, None], states.shape[2], axis=2)  # (k, F, size) of each axis's part
    for a in range(k):  # the second axis of a part moves in the beliefs of the first
        np.add.at(at, (parts.part[axes[:, a]], np.arange(F)), parts.move[axes[:, a], None] * states[a])
    own = (parts.part[axes] == np.arange(k)).T[:, :, None]
    product = np.ones((len(beliefs), F, states.shape[2]))
    for a in range(k):
        product *= np.where(own[a], beliefs[:, at[a]], 1.0)
    return product.reshape(len(beliefs), F, *shape)


def _fix(wiring: Wiring, parts: Components, graphs: Integers, assignment: Integers, state: State) -> Doubles:
    """Put all belief of ``graphs`` (n,) on one assignment (n, V) each; return its score (n,), -inf where it is -1."""
    beliefs, entropy = state
    states = np.maximum(assignment, 0)
    beliefs[graphs], entropy[graphs] = 0, 0
    beliefs[graphs[:, None], wiring.offsets[:-1] + states] = 1
    child = np.flatnonzero(parts.parent >= 0)
    at = parts.edge[child] + states[:, parts.parent[child]] * wiring.n_states[child] + states[:, child]
    beliefs[graphs[:, None], at] = 1
    everyone = np.zeros((wiring.n_graphs, wiring.n_variables), np.int64)
    everyone[graphs] = states
    return np.where((assignment >= 0).all(axis=1), wiring.score(everyone)[graphs], -np.inf)
