r"""Tree-reweighted belief propagation: an upper bound of log Z.

For any distribution over spanning trees in which edge e has probability rho_e, convexity gives

.. math:: \log Z \le \max_b \sum_v \langle b_v, u_v \rangle + \sum_e \langle b_e, \theta_e \rangle
          + \sum_v H(b_v) - \sum_e \rho_e I(b_e)

over locally consistent beliefs b. Messages

.. math:: M_{t \to s}(x_s) \propto \sum_{x_t} e^{\theta_{st}(x_s, x_t) / \rho_{st} + u_t(x_t)}
          \frac{\prod_{v \ne s} M_{v \to t}(x_t)^{\rho_{vt}}}{M_{s \to t}(x_t)^{1 - \rho_{st}}}

have the maximum as their fixed point: those of belief propagation with tables divided by rho, and weighted. On forests
all rho are 1, and the bound is exact.
Wainwright, Jaakkola and Willsky (2005), A new class of upper bounds on the log partition function.
"""

from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_count
from trelliswork.errors import ValueRangeError
from trelliswork.inference.graph.engines import spanning
from trelliswork.inference.graph.engines.bp import bethe, factor_beliefs
from trelliswork.inference.graph.engines.passing import Options, Prepared, check_options, pass_messages, prepare
from trelliswork.inference.graph.layout import fixed_variables, tidy
from trelliswork.inference.graph.potentials import Doubles, Integers, Tables, Wiring
from trelliswork.inference.graph.result import Result

_LEAST_STEP = 1e-3  # of the weights


class _State(NamedTuple):
    """Messages and results for one choice of weights, (B, ..)."""

    messages: Doubles
    weights: Doubles
    log_z: Doubles
    information: Doubles  # (B, E) mutual information of the ends of each edge
    marginals: Doubles
    n_iter: Integers
    residual: Doubles
    converged: NDArray[np.bool_]


def run(
    wiring: Wiring,
    *,
    weights: Literal["uniform", "optimized"] = "uniform",
    max_iter: int = 1000,
    tolerance: float = 1e-8,
    damping: float = 0.0,
    max_updates: int = 30,
    gap: float = 1e-4,
) -> Result:
    """Run tree-reweighted belief propagation.

    Parameters
    ----------
    wiring : Wiring
        B graphs with factors over two variables. Factors over the same two variables are summed.
    weights : {"uniform", "optimized"}
        rho, the probability of each edge in a random spanning tree. "uniform": all spanning trees have the same
        probability (beyond 1,000 connected variables, a sample of them); "optimized": the weights of the least bound
        for each graph, by conditional gradient from "uniform" toward the spanning tree with the largest mutual
        information. An edge to a variable that evidence fixes has weight 1 and belongs to no cycle.
    max_iter : int
        Maximum number of sweeps forth and back over all variables, for each choice of weights.
    tolerance : float
        Stop when no message (a logarithm, relative beyond 1) changes by more.
    damping : float
        Fraction of the old message that is kept, in logarithms, in [0, 1).
    max_updates, gap : int, float
        For "optimized": maximum number of updates, and the duality gap in nats at which to stop.

    Returns
    -------
    Result
        ``kind`` is "upper" if all graphs converged, else "estimate": before convergence the value is not a bound.

    Notes
    -----
    A sweep takes O(B sum over edges of the size of their tables). "uniform" takes O(n^3) for connected parts of n
    variables that are not trees.
    """
    options = check_options("sequential", damping, tolerance, max_iter)
    check_count("max_updates", max_updates)
    if not 0 <= gap < np.inf:
        raise ValueRangeError(f"gap must be finite and nonnegative, got {gap!r}.")
    if weights not in ("uniform", "optimized"):
        raise ValueRangeError(f"weights must be 'uniform' or 'optimized', got {weights!r}.")
    joined, places = _join_parallel(tidy(wiring))
    ends = np.concatenate([np.zeros((0, 2), np.int64), *(group.variables for group in joined.groups)])
    fixed = fixed_variables(joined)
    free = ~(fixed[:, ends[:, 0]] | fixed[:, ends[:, 1]])  # (B, E); evidence cuts the other edges
    rho = np.ones(free.shape)
    for kept in np.unique(free, axis=0):
        rho[np.ix_((free == kept).all(axis=1), kept)] = spanning.uniform_weights(wiring.n_variables, ends[kept])
    state = _solve(joined, None, rho, options)
    trace = [state.log_z]
    if weights == "optimized":
        step = np.full(wiring.n_graphs, 0.5)
        for _ in range(max_updates):
            toward = np.zeros_like(rho)
            for b in range(wiring.n_graphs):
                tree = spanning.spanning_forest(wiring.n_variables, ends[free[b]], state.information[b, free[b]])
                toward[b, free[b]] = tree - state.weights[b, free[b]]
            open_gap = (state.information * toward).sum(axis=1) > gap
            if not (open_gap & (step > _LEAST_STEP)).any():
                break
            moved = state.weights + np.where(open_gap, step, 0)[:, None] * toward
            tried = _solve(joined, state.messages, moved, options)
            lower = (tried.log_z < state.log_z) | ~state.converged  # without convergence it is not a bound
            better = open_gap & tried.converged & lower
            step[open_gap & ~better] /= 2
            arrays = zip(tried, state, strict=True)
            state = _State(*(np.where(better.reshape(-1, *(1,) * (new.ndim - 1)), new, old) for new, old in arrays))
            trace.append(state.log_z)

    def factor_marginals() -> tuple[Doubles, ...]:
        graph = _weighted(joined, state.messages, state.weights)
        graph.gather(np.arange(joined.n_variables))
        beliefs = factor_beliefs(graph, state.log_z)
        return tuple(
            np.stack([beliefs[g][:, e].swapaxes(1, 2) if turned else beliefs[g][:, e] for g, e, turned in group], 1)
            for group in places
        )

    return Result(
        log_z=state.log_z,
        kind="upper" if state.converged.all() else "estimate",
        marginals=state.marginals,
        n_iter=state.n_iter,
        residual=state.residual,
        converged=state.converged,
        compute_factor_marginals=factor_marginals,
        trace=np.stack(trace, axis=1),
    )


def _join_parallel(wiring: Wiring) -> tuple[Wiring, list[list[tuple[int, int, bool]]]]:
    """Sum the factors over the same two variables, the lower one first.

    Returns the graph with one factor for each pair, and for each factor of each group of ``wiring`` its group and place
    there, and whether its table was transposed.
    """
    groups = list(wiring.groups)
    for factor in wiring.structured:
        if len(factor.variables) == 2:
            groups.append(Tables(factor.variables[None], np.zeros(1, np.int64), factor.table()[:, None]))
    scopes = [*(v for group in groups for v in group.variables), *(f.variables for f in wiring.structured)]
    wrong = next((f for f, scope in enumerate(scopes) if len(scope) != 2), None)
    if wrong is not None:
        raise ValueRangeError(
            f"tree-reweighted propagation supports factors over two variables, but factor {wrong} is over "
            f"{scopes[wrong].tolist()}. Use 'bp', 'mean_field' or 'exact'."
        )
    sums: dict[tuple[int, ...], dict[tuple[int, int], Doubles]] = {}  # by shape, then by pair
    names: list[list[tuple[tuple[int, ...], tuple[int, int], bool]]] = []
    for group in groups:
        names.append([])
        for (u, v), table in zip(group.variables.tolist(), group.dense().swapaxes(0, 1), strict=True):
            turned = u > v
            table, pair = (table.swapaxes(1, 2), (v, u)) if turned else (table, (u, v))
            pairs = sums.setdefault(table.shape[1:], {})
            pairs[pair] = pairs[pair] + table if pair in pairs else table
            names[-1].append((table.shape[1:], pair, turned))
    joined = []
    for pairs in sums.values():
        rows = max(len(table) for table in pairs.values())
        tables = np.stack([np.broadcast_to(t, (rows, *t.shape[1:])) for t in pairs.values()], axis=1)
        joined.append(Tables(np.array(list(pairs)), np.arange(len(pairs)), tables))
    number = {shape: (g, {pair: e for e, pair in enumerate(pairs)}) for g, (shape, pairs) in enumerate(sums.items())}
    places = [[(number[s][0], number[s][1][pair], turned) for s, pair, turned in group] for group in names]
    return replace(wiring, groups=tuple(joined), structured=()), places[: len(wiring.groups)]


def _weighted(wiring: Wiring, messages: Doubles | None, rho: Doubles) -> Prepared:
    """Return the graph with tables divided by rho (B, E), and with these messages, uniform by default."""
    given = rho[:1] if (rho == rho[0]).all() else rho
    parts = np.split(given, np.cumsum([len(group) for group in wiring.groups]), axis=1)  # and an empty one
    scaled = [
        replace(group, log_tables=group.log_tables / part[:, :, None, None])
        for group, part in zip(wiring.groups, parts, strict=False)
    ]
    graph = prepare(replace(wiring, groups=tuple(scaled)))
    own = graph.messages._replace(weights=np.ascontiguousarray(given[:, graph.layout.edge_factor]))
    return replace(graph, messages=own if messages is None else own._replace(log_r=messages.copy()))


def _solve(wiring: Wiring, start: Doubles | None, rho: Doubles, options: Options) -> _State:
    """Pass messages until they converge, or for ``max_iter`` sweeps."""
    graph = _weighted(wiring, start, rho)
    progress = pass_messages(graph, options, maximize=False)
    log_z, marginals = bethe(graph)
    information = [np.zeros((len(rho), 0))]
    for joint in factor_beliefs(graph, log_z):
        independent = joint.sum(axis=3, keepdims=True) * joint.sum(axis=2, keepdims=True)
        ratio = np.divide(joint, independent, out=np.ones_like(joint), where=(joint > 0) & (independent > 0))
        information.append((joint * np.log(ratio)).sum(axis=(2, 3)))
    return _State(graph.messages.log_r, rho, log_z, np.concatenate(information, axis=1), marginals, *progress)
