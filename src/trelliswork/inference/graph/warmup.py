"""Compile the kernels of factor graphs; see ``inference.warmup``."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from trelliswork.inference.graph import (
    AtMostOne,
    ChainFactor,
    ProjectiveTreeFactor,
    Propagator,
    SpanningTreeFactor,
    Tables,
    Wiring,
    wire,
)
from trelliswork.inference.graph.engines import (
    bp,
    exact,
    feasible,
    gibbs,
    max_product,
    mean_field,
    structured_mean_field,
    trw,
)
from trelliswork.inference.graph.layout import flatten


def tasks() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the name and the call of each task."""
    table = np.zeros((1, 1, 2, 2))
    table[..., 0, 1] = -np.inf
    cycle = Tables(np.array([[0, 1], [1, 2], [2, 0]]), np.zeros(3, np.int64), table)
    triple = Tables(np.array([[0, 1, 2]]), np.zeros(1, np.int64), np.zeros((1, 1, 2, 2, 2)))
    loop = wire([2, 2, 2], [cycle, triple])
    factors: list[Propagator] = [ChainFactor(np.arange(3), np.zeros((2, 2))), AtMostOne(np.arange(3))]
    structured = wire([2, 2, 2], [cycle], structured=factors)
    for schedule in ("flooding", "sequential", "residual"):
        yield f"graph, {schedule}: belief propagation", partial(bp.run, loop, schedule=schedule)
    for schedule in ("flooding", "sequential"):
        yield f"graph, {schedule}: structured factors", partial(bp.run, structured, schedule=schedule)
        yield f"graph, {schedule}: max-product", partial(max_product.run, loop, schedule=schedule)
    large = Tables(cycle.variables, cycle.which, np.zeros((1, 1, 400, 400)))
    yield "graph, flooding: large graphs", partial(bp.run, wire([400] * 3, [large]), max_iter=1)
    yield "graph: max-product, structured factors", partial(max_product.run, structured)
    arcs = np.arange(2), np.array([0, 1]), np.array([1, 2]), 2
    for tree in (ProjectiveTreeFactor(*arcs), SpanningTreeFactor(*arcs)):
        yield f"graph: {type(tree).__name__}", partial(bp.run, wire([2, 2], structured=[tree]))
        yield f"graph: best of {type(tree).__name__}", partial(max_product.run, wire([2, 2], structured=[tree]))
    pairs = Tables(np.array([[0, 1], [1, 2]]), np.zeros(2, np.int64), np.zeros((1, 1, 2, 2)))
    yield "graph: other engines", partial(_engines, wire([2, 2, 2], [pairs], n_graphs=2))


def _engines(graph: Wiring) -> object:
    exact.best(graph)
    exact.sample(graph, np.zeros((1, 2, 3)))
    gibbs.run(graph, 1, 0)
    feasible.local_search(graph, flatten(graph), np.arange(2))
    runs = (exact.run(graph), mean_field.run(graph, max_iter=1), trw.run(graph, max_iter=1))
    structured_mean_field.run(graph, max_iter=1)
    return [result.factor_marginals for result in runs]
