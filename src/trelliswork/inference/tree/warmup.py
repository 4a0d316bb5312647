"""Compile the kernels of trees; see ``inference.warmup``."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from trelliswork.inference.tree import crossing_moves, eisner, matrix_tree, tree_potentials


def tasks() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the name and the call of each task."""
    hard = np.zeros((2, 4, 4))
    hard[0, :, 1] = -np.inf  # impossible: computed in log space
    p, q = tree_potentials(np.zeros((2, 4, 4))), tree_potentials(hard)
    for name, engine in (("projective", eisner), ("spanning", matrix_tree)):
        yield f"{name} trees: log Z", partial(engine.log_partition, p)
        yield f"{name} trees: marginals", partial(engine.expectations, q)
        yield f"{name} trees: best", partial(engine.best, p)
        yield f"{name} trees: k best", partial(engine.topk, p, p.log_arc[..., None], 2)
        yield f"{name} trees: samples", partial(engine.sample, p, np.zeros((1, 2), np.int64))
    yield "trees: crossing arcs", partial(crossing_moves, p, np.array([[0, 1, 2]] * 2))
