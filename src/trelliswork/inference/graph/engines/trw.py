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

import numpy as np

from trelliswork.errors import ValueRangeError
from trelliswork.inference.graph.engines import spanning
from trelliswork.inference.graph.engines.bp import bethe, factor_beliefs
from trelliswork.inference.graph.engines.schedules import Prepared, check_options, pass_messages, prepare
from trelliswork.inference.graph.layout import fixed_variables, tidy
from trelliswork.inference.graph.potentials import Doubles, Tables, Wiring
from trelliswork.inference.graph.result import Kind, Result


def run(
    wiring: Wiring,
    *,
    max_iter: int = 1000,
    tolerance: float = 1e-8,
    damping: float = 0.0,
) -> Result:
    """Run tree-reweighted belief propagation.

    The weights are those of a random spanning tree, all of them equally probable (beyond 1,000 connected variables, a
    sample of them). An edge to a variable that evidence fixes has weight 1 and belongs to no cycle.

    Parameters
    ----------
    wiring : Wiring
        B graphs with factors over two variables. Factors over the same two variables are summed.
    max_iter : int
        Maximum number of sweeps forth and back over all variables.
    tolerance : float
        Stop when no message (a logarithm, relative beyond 1) changes by more.
    damping : float
        Fraction of the old message that is kept, in logarithms, in [0, 1).

    Returns
    -------
    Result
        ``kind`` is "upper" if all graphs converged, else "estimate": before convergence the value is not a bound.

    Notes
    -----
    A sweep takes O(B sum over edges of the size of their tables). The weights take O(n^3) for connected parts of n
    variables that are not trees.
    """
    options = check_options("sequential", damping, tolerance, max_iter)
    joined, places = _join_parallel(tidy(wiring))
    ends = np.concatenate([np.zeros((0, 2), np.int64), *(group.variables for group in joined.groups)])
    fixed = fixed_variables(joined)
    free = ~(fixed[:, ends[:, 0]] | fixed[:, ends[:, 1]])  # (B, E); evidence cuts the other edges
    rho = np.ones(free.shape)
    for kept in np.unique(free, axis=0):
        rho[np.ix_((free == kept).all(axis=1), kept)] = spanning.uniform_weights(wiring.n_variables, ends[kept])
    graph = _weighted(joined, rho)
    progress = pass_messages(graph, options, maximize=False)
    log_z, marginals = bethe(graph)

    def factor_marginals() -> tuple[Doubles, ...]:
        beliefs = factor_beliefs(graph, log_z)
        return tuple(
            np.stack([beliefs[g][:, e].swapaxes(1, 2) if turned else beliefs[g][:, e] for g, e, turned in group], 1)
            for group in places
        )

    kind: Kind = "upper" if progress.converged.all() else "estimate"
    return Result(log_z, kind, marginals, *progress, compute_factor_marginals=factor_marginals)


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


def _weighted(wiring: Wiring, rho: Doubles) -> Prepared:
    """Return the graph with tables divided by rho (B, E), which weighs their messages."""
    given = rho[:1] if (rho == rho[0]).all() else rho
    parts = np.split(given, np.cumsum([len(group) for group in wiring.groups]), axis=1)  # and an empty one
    scaled = [
        replace(group, log_tables=group.log_tables / part[:, :, None, None])
        for group, part in zip(wiring.groups, parts, strict=False)
    ]
    graph = prepare(replace(wiring, groups=tuple(scaled)))
    weights = np.ascontiguousarray(given[:, graph.layout.edge_factor])
    return replace(graph, messages=graph.messages._replace(weights=weights))
