"""Factor graphs: ours and PGMax on the same potentials.

Each function takes ``{"task": ..., "seed": ..., sizes}``:

- ``grid``: a Potts grid, side x side variables of S states, one table for all edges;
- ``factorial``: two chains of T labels with S[0] and S[1] states, pairs within each and between the two per position;
- ``chain``: T variables of S states with one table per factor, solved exactly;
- ``linear``: a grid of two states with n factors and one table per factor.

The loopy tasks run ``n_iter`` iterations of undamped flooding, which converges, and compute the marginals.
Choices favor the peer, see the functions.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.declarations import Params, Task

Doubles = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Problem(NamedTuple):
    """Layers of variables with the same number of states, unary scores, and pairwise factors.

    Parameters
    ----------
    unary : list of ndarray (V, S)
        One array per layer; variables are numbered across layers.
    pairs : list of (ndarray (F, 2), ndarray (S, S') or (F, S, S'))
        Variables and log-tables: one table for all factors of the entry, or one per factor.
    """

    unary: list[Doubles]
    pairs: list[tuple[Integers, Doubles]]


def _grid_pairs(side: int) -> Integers:
    index = np.arange(side * side).reshape(side, side)
    right = np.stack([index[:, :-1].ravel(), index[:, 1:].ravel()], axis=1)
    down = np.stack([index[:-1].ravel(), index[1:].ravel()], axis=1)
    return np.concatenate([right, down])


def _steps(first: int, length: int) -> Integers:
    return first + np.stack([np.arange(length - 1), np.arange(1, length)], axis=1)


def problem(params: Params) -> Problem:
    """Return the seeded problem: unary scores from N(0, 1), couplings weak enough for flooding to converge."""
    rng = np.random.default_rng(params["seed"])
    if params["task"] == "grid":
        unary = rng.normal(0, 1, (params["side"] ** 2, params["S"]))
        return Problem([unary], [(_grid_pairs(params["side"]), 0.5 * np.eye(params["S"]))])
    if params["task"] == "factorial":
        T, (S, Q) = params["T"], params["S"]
        tables = [rng.normal(0, 1, shape) for shape in ((S, S), (Q, Q), (S, Q))]
        unary = [rng.normal(0, 1, (T, n)) for n in (S, Q)]
        across = np.stack([np.arange(T), T + np.arange(T)], axis=1)
        return Problem(unary, list(zip((_steps(0, T), _steps(T, T), across), tables, strict=True)))
    if params["task"] == "chain":
        T, S = params["T"], params["S"]
        return Problem([rng.normal(0, 1, (T, S))], [(_steps(0, T), rng.normal(0, 1, (T - 1, S, S)))])
    side = 1 + round((params["n"] / 2) ** 0.5)
    pairs = _grid_pairs(side)[: params["n"]]
    return Problem([rng.normal(0, 1, (side * side, 2))], [(pairs, rng.normal(0, 0.3, (len(pairs), 2, 2)))])


def digest_marginals(marginals: list[Any]) -> dict[str, Any]:
    """Return the first and the last marginals of each layer."""
    arrays = [np.asarray(layer, dtype=np.float64) for layer in marginals]
    return {"first": [layer[:5].tolist() for layer in arrays], "last": [layer[-5:].tolist() for layer in arrays]}


def wired(problem: Problem) -> Any:
    """Return the problem as a wiring of ours."""
    from trelliswork.inference.graph import Tables, wire

    unary, pairs = problem
    tables = [
        Tables(
            v,
            np.arange(len(v)) if t.ndim == 3 else np.zeros(len(v), np.int64),
            t[None] if t.ndim == 3 else t[None, None],
        )
        for v, t in pairs
    ]
    n_states = np.concatenate([np.full(len(layer), layer.shape[1]) for layer in unary])
    return wire(n_states, tables, log_unary=np.concatenate([layer.ravel() for layer in unary]))


def trelliswork(params: Params) -> Task:
    """Ours; building the graph and exponentiating the tables are part of the call."""
    from trelliswork.inference.graph.engines import bp, max_product

    unary, pairs = problem(params)
    wiring = wired(Problem(unary, pairs))
    n_iter, schedule = params.get("n_iter"), params.get("schedule", "flooding")
    largest = params.get("engine") == "max_product"
    ends = np.cumsum([layer.size for layer in unary])[:-1]

    def call() -> Any:
        if n_iter is None:
            return bp.run(wiring)
        if largest:
            return max_product.run(wiring, schedule=schedule, damping=0.0, tolerance=0, max_iter=n_iter)
        return bp.run(wiring, schedule=schedule, tolerance=0, max_iter=n_iter)

    def digest(result: Any) -> dict[str, Any]:
        if n_iter is not None and result.n_iter[0] < n_iter and result.residual[0] > 0:
            raise RuntimeError(f"{result.n_iter[0]} iterations, not {n_iter}.")
        parts = np.split(result.marginals[0], ends)
        return digest_marginals([part.reshape(layer.shape) for part, layer in zip(parts, unary, strict=True)])

    return Task(call, None if largest else digest)  # max-marginals are others


def flooding(params: Params) -> Task:
    """Our flooding, beside other schedules of the same number of messages."""
    if "schedule" not in params:
        raise NotImplementedError("flooding is what we run")
    task = trelliswork({k: v for k, v in params.items() if k not in ("engine", "schedule")})
    return task if params["engine"] == "bp" else Task(task.call)


def pgmax(params: Params) -> Task:
    """PGMax in float32, its preferred precision, compiled once; the graph is built before the timing.

    It has flooding only: an exact chain takes as many iterations as steps.
    """
    if "schedule" in params:
        raise NotImplementedError("flooding only")
    import jax
    from jax.extend import backend
    from pgmax import fgraph, fgroup, infer, vgroup

    if not hasattr(jax.lib, "xla_bridge"):  # PGMax 0.6.1 looks for get_backend where jax had it until 0.8
        jax.lib.xla_bridge = backend

    unary, pairs = problem(params)
    layers = [vgroup.NDVarArray(num_states=layer.shape[1], shape=(len(layer),)) for layer in unary]
    graph = fgraph.FactorGraph(variable_groups=layers)
    names = [layer[i] for layer, scores in zip(layers, unary, strict=True) for i in range(len(scores))]
    groups = [
        fgroup.PairwiseFactorGroup(
            variables_for_factors=[[names[a], names[b]] for a, b in variables], log_potential_matrix=table
        )
        for variables, table in pairs
    ]
    for group in groups:
        graph.add_factors(group)
    bp = infer.build_inferer(graph.bp_state, backend="bp")
    evidence = {layer: scores.astype(np.float32) for layer, scores in zip(layers, unary, strict=True)}
    arrays = jax.device_put(bp.init(evidence_updates=evidence))
    n_iter = params.get("n_iter", len(unary[0]))

    @jax.jit
    def run(arrays: Any) -> Any:
        done = bp.run(arrays, num_iters=n_iter, damping=0.0, temperature=1.0)
        return infer.get_marginals(bp.get_beliefs(done))

    def call() -> Any:
        return jax.block_until_ready(run(arrays))

    return Task(call, lambda marginals: digest_marginals([marginals[layer] for layer in layers]))
