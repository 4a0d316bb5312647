r"""Tree-reweighted belief propagation: an upper bound of log Z.

For any distribution over spanning trees in which edge e has probability rho_e, convexity gives

.. math:: \log Z \le \max_b \sum_v \langle b_v, u_v \rangle + \sum_e \langle b_e, \theta_e \rangle
          + \sum_v H(b_v) - \sum_e \rho_e I(b_e)

over locally consistent beliefs b. Messages

.. math:: M_{t \to s}(x_s) \propto \sum_{x_t} e^{\theta_{st}(x_s, x_t) / \rho_{st} + u_t(x_t)}
          \frac{\prod_{v \ne s} M_{v \to t}(x_t)^{\rho_{vt}}}{M_{s \to t}(x_t)^{1 - \rho_{st}}}

have the maximum as their fixed point. On forests all rho are 1, and the bound is exact.
Wainwright, Jaakkola and Willsky (2005), A new class of upper bounds on the log partition function.
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_count
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.graph.engines import spanning
from trelliswork.inference.graph.kernels import trw as kernels
from trelliswork.inference.graph.kernels.records import Flat
from trelliswork.inference.graph.kernels.trw import Beliefs, Edges, Options
from trelliswork.inference.graph.layout import fixed_variables, flatten, neighbors, tidy, variables
from trelliswork.inference.graph.potentials import Doubles, Integers, Wiring
from trelliswork.inference.graph.result import Result

_WORK = 500  # cost of an entry in a run, in multiplications
_LEAST_STEP = 1e-3  # of the weights


class _State(NamedTuple):
    """Messages and results for one choice of weights."""

    messages: Doubles
    weights: Doubles
    log_z: Doubles
    information: Doubles
    beliefs: Doubles
    n_iter: Integers
    residual: Doubles


def edge_ends(wiring: Wiring) -> Integers:
    """Return pairs of variables (E, 2) that factors join, in the order of the ``weights`` of `run`."""
    return _edges(wiring, flatten(wiring))[0].ends


def run(
    wiring: Wiring,
    *,
    weights: Literal["uniform", "sampled", "optimized"] | NDArray[np.floating] = "uniform",
    max_iter: int = 1000,
    tolerance: float = 1e-8,
    damping: float = 0.0,
    max_updates: int = 30,
    gap: float = 1e-4,
    seed: int = 0,
) -> Result:
    """Run tree-reweighted belief propagation.

    Parameters
    ----------
    wiring : Wiring
        B graphs with factors over two variables; a `ChainFactor` is used step by step. Factors over the same two
        variables are summed.
    weights : {"uniform", "sampled", "optimized"} or ndarray (E,) or (B, E)
        rho, the probability of each edge in a random spanning tree; edges in the order of `edge_ends`. "uniform": all
        spanning trees have the same probability (beyond 1,000 connected variables, a sample of them); "sampled": the
        average of a few trees that cover the graph; "optimized": the weights of the least bound for each graph, by
        conditional gradient from "uniform" toward the spanning tree with the largest mutual information. An edge to a
        variable that evidence fixes has weight 1 and belongs to no cycle. Given weights must be those of a distribution
        over spanning forests; beyond 1,000 edges this is not checked, and the result is an "estimate".
    max_iter : int
        Maximum number of sweeps forth and back over all variables, for each choice of weights.
    tolerance : float
        Stop when no message (as a probability) changes by more.
    damping : float
        Fraction of the old message that is kept, in logarithms, in [0, 1).
    max_updates, gap : int, float
        For "optimized": maximum number of updates, and the duality gap in nats at which to stop.
    seed : int
        Seed of sampled trees.

    Returns
    -------
    Result
        ``kind`` is "upper" if all graphs converged, else "estimate": before convergence the value is not a bound.

    Notes
    -----
    A sweep takes O(B sum over edges of the size of their tables). "uniform" takes O(n^3) for connected parts of n
    variables that are not trees.
    """
    check_count("max_iter", max_iter)
    check_count("max_updates", max_updates)
    if not 0 <= damping < 1:
        raise ValueRangeError(f"damping must be in [0, 1), got {damping!r}.")
    for name, value in (("tolerance", tolerance), ("gap", gap)):
        if not 0 <= value < np.inf:
            raise ValueRangeError(f"{name} must be finite and nonnegative, got {value!r}.")
    wiring = tidy(wiring)
    flat = flatten(wiring)
    edges, owner = _edges(wiring, flat)
    fixed = fixed_variables(wiring)
    free = ~(fixed[:, edges.ends[:, 0]] | fixed[:, edges.ends[:, 1]])  # (B, E); evidence cuts the other edges
    rho = _weights(wiring, edges, free, weights, seed)

    options = Options(float(damping), float(tolerance), int(max_iter))
    sizes = wiring.n_states[edges.ends].ravel()
    uniform = np.tile(-np.log(np.repeat(sizes, sizes)), (wiring.n_graphs, 1))
    state = _solve(wiring, edges, uniform, rho, options)
    trace = [state.log_z]
    if isinstance(weights, str) and weights == "optimized":
        step = np.full(wiring.n_graphs, 0.5)
        for _ in range(max_updates):
            toward = np.zeros_like(rho)
            for b in range(wiring.n_graphs):
                tree = spanning.spanning_forest(wiring.n_variables, edges.ends[free[b]], state.information[b, free[b]])
                toward[b, free[b]] = tree - state.weights[b, free[b]]
            open_gap = (state.information * toward).sum(axis=1) > gap
            if not (open_gap & (step > _LEAST_STEP)).any():
                break
            moved = state.weights + np.where(open_gap, step, 0)[:, None] * toward
            tried = _solve(wiring, edges, state.messages, moved, options)
            lower = (tried.log_z < state.log_z) | (state.residual > tolerance)  # without convergence it is not a bound
            better = open_gap & (tried.residual <= tolerance) & lower
            step[open_gap & ~better] /= 2
            arrays = zip(tried, state, strict=True)
            state = _State(*(np.where(better.reshape(-1, *(1,) * (new.ndim - 1)), new, old) for new, old in arrays))
            trace.append(state.log_z)
    converged = state.residual <= tolerance
    known = isinstance(weights, str) or len(edges.ends) <= spanning.CHECKED

    def factor_marginals() -> tuple[Doubles, ...]:
        entries = _finish(wiring, edges, state.messages, state.weights, entries=True).entries
        return _by_group(wiring, edges, owner, entries)

    return Result(
        log_z=state.log_z,
        kind="upper" if converged.all() and known else "estimate",
        marginals=state.beliefs,
        n_iter=state.n_iter,
        residual=state.residual,
        converged=converged,
        compute_factor_marginals=factor_marginals,
        trace=np.stack(trace, axis=1),
    )


def _edges(wiring: Wiring, flat: Flat) -> tuple[Edges, Integers]:
    """Return the edges, and the edge of each factor (F,); factors over the same pair are summed."""
    arity = np.diff(flat.ptr)
    if (arity != 2).any():
        f = int(np.flatnonzero(arity != 2)[0])
        scope = flat.variables[flat.ptr[f] : flat.ptr[f + 1]].tolist()
        raise ValueRangeError(
            f"tree-reweighted propagation supports factors over two variables, but factor {f} is over {scope}. "
            "Use 'bp', 'mean_field' or 'exact'."
        )
    V = wiring.n_variables
    pairs, moves = flat.variables.reshape(-1, 2), flat.strides.reshape(-1, 2)
    turned = pairs[:, 0] > pairs[:, 1]
    pairs, moves = np.where(turned[:, None], pairs[:, ::-1], pairs), np.where(turned[:, None], moves[:, ::-1], moves)
    keys, first, owner, counts = np.unique(
        pairs[:, 0] * V + pairs[:, 1], return_index=True, return_inverse=True, return_counts=True
    )
    E = len(keys)
    ends, base, step, strides = pairs[first], flat.base[first], flat.step[first], moves[first]
    sizes = wiring.n_states[ends].reshape(E, 2)
    merged = [flat.tables]
    end = len(flat.tables)
    members = np.argsort(owner, kind="stable")
    starts = np.cumsum(counts) - counts
    for e in np.flatnonzero(counts > 1).tolist():
        group = members[starts[e] : starts[e] + counts[e]]
        B = wiring.n_graphs if flat.step[group].any() else 1
        grid = np.arange(B)[:, None, None], np.arange(sizes[e, 0])[:, None], np.arange(sizes[e, 1])
        at = [flat.base[f] + grid[0] * flat.step[f] + grid[1] * moves[f, 0] + grid[2] * moves[f, 1] for f in group]
        total = np.sum([flat.tables[index] for index in at], axis=0)
        merged.append(total.ravel())
        base[e], step[e], strides[e] = end, total[0].size if B > 1 else 0, (sizes[e, 1], 1)
        end += total.size
    lengths = sizes.ravel()
    n_entries = sizes.prod(axis=1)
    as_flat = flat._replace(
        base=base, n_entries=n_entries, ptr=2 * np.arange(E + 1), variables=ends.ravel(), strides=strides.ravel()
    )
    near = neighbors(as_flat, V)
    edges = Edges(
        np.concatenate(merged),
        np.ascontiguousarray(ends),
        base,
        step,
        np.ascontiguousarray(strides),
        (np.cumsum(lengths) - lengths).reshape(E, 2),
        np.cumsum(n_entries) - n_entries,
        near.ptr,
        near.factors,
        near.axes,
    )
    return edges, owner.reshape(-1)


def _weights(
    wiring: Wiring, edges: Edges, free: NDArray[np.bool_], weights: str | NDArray[np.floating], seed: int
) -> Doubles:
    """Return weights (B, E), checked unless there are very many; only those of ``free`` edges (B, E) matter."""
    B, E, V = wiring.n_graphs, len(edges.ends), wiring.n_variables
    if isinstance(weights, str):
        if weights not in ("uniform", "sampled", "optimized"):
            raise ValueRangeError(
                "weights must be 'uniform', 'sampled', 'optimized' or an array with one for each edge, "
                f"got {weights!r}."
            )
        make = spanning.sampled_weights if weights == "sampled" else spanning.uniform_weights
        rho = np.ones((B, E))
        for kept in np.unique(free, axis=0):
            rho[np.ix_((free == kept).all(axis=1), kept)] = make(V, edges.ends[kept], seed)
        return rho
    given = np.asarray(weights, np.float64)
    if given.shape not in ((E,), (B, E)):
        raise ShapeError(f"weights must have shape (E,) or (B, E) with E={E} and B={B}, got {given.shape}.")
    given = np.array(np.broadcast_to(given, (B, E)), order="C")
    if given.size and not ((given > 0) & (given <= 1)).all():
        raise ValueRangeError("weights must be in (0, 1]: they are probabilities of edges in spanning trees.")
    for row, kept in zip(given, free, strict=True) if E <= spanning.CHECKED else ():
        over = spanning.excess(V, edges.ends[kept], row[kept])
        if over > 1e-5:
            raise ValueRangeError(
                "weights must be those of spanning trees: their sum inside any n variables is at most n-1, got "
                f"{over:.3g} more. With such weights the value is not a bound: use 'bp' for weights of 1."
            )
    return given


def _solve(wiring: Wiring, edges: Edges, start: Doubles, weights: Doubles, options: Options) -> _State:
    """Pass messages until they converge, or for ``max_iter`` sweeps."""
    B, given = wiring.n_graphs, variables(wiring)
    messages, n_iter, residual = start.copy(), np.zeros(B, np.int64), np.zeros(B)

    def work(first: int, last: int) -> None:
        room = np.zeros((4, int(wiring.n_states.max(initial=1))))
        kernels.solve(first, last, edges, given, weights, options, room, messages, n_iter, residual)

    costs = np.full(B, 1 + _WORK * int(wiring.n_states[edges.ends].prod(axis=1).sum()))
    threads.run(work, threads.cut(costs, least=threads.LEAST_WORK))
    out = _finish(wiring, edges, messages, weights, entries=False)
    return _State(messages, weights, out.log_z, out.information, out.beliefs, n_iter, residual)


def _finish(wiring: Wiring, edges: Edges, messages: Doubles, weights: Doubles, *, entries: bool) -> Beliefs:
    """Compute value and beliefs, those of edges only if ``entries``."""
    B, E = weights.shape
    n_entries = int(wiring.n_states[edges.ends].prod(axis=1).sum()) if entries else 0
    scores, beliefs = np.zeros_like(wiring.log_unary), np.zeros_like(wiring.log_unary)
    out = Beliefs(scores, beliefs, np.zeros((B, n_entries)), np.zeros(B), np.zeros((B, E)))
    kernels.finish(0, B, edges, variables(wiring), weights, messages, out)
    return out


def _by_group(wiring: Wiring, edges: Edges, owner: Integers, entries: Doubles) -> tuple[Doubles, ...]:
    """Return the beliefs of edges (B, n) as those of factors, one array (B, F, s1, s2) for each group."""
    beliefs, f = [], 0
    for group in wiring.groups:
        n, m = group.shape
        start = edges.entry[owner[f : f + len(group)]][:, None, None]
        x, y = np.arange(n)[:, None], np.arange(m)
        turned = (group.variables[:, 0] > group.variables[:, 1])[:, None, None]
        beliefs.append(entries[:, start + np.where(turned, y * n + x, x * m + y)])
        f += len(group)
    return tuple(beliefs)
