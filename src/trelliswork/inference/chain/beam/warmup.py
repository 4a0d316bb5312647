"""Compile the kernels of chains with beams; see ``inference.warmup``."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from trelliswork.inference.chain import Potentials
from trelliswork.inference.chain.beam import Beam, passes
from trelliswork.inference.chain.beam.sparse import SparseChain, SparseTransitions, sparse_chain
from trelliswork.inference.chain.warmup import LAYOUTS, example


def tasks() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield name and call of each task."""
    pairs = SparseTransitions.ngrams(2, 2)
    for dtype in (np.float32, np.float64):
        name = f"beams, {np.dtype(dtype).name}, transitions"
        for layout in LAYOUTS:
            yield f"{name} {layout}", partial(_all, example(layout, dtype))
        sparse = sparse_chain(np.zeros((2, 3, 2), dtype), pairs, np.zeros(len(pairs.targets), dtype))
        yield f"{name} sparse", partial(_all, sparse)


def _all(potentials: Potentials | SparseChain) -> object:
    """Compute sums and the best labeling, also where beams lose every path and log space takes over."""
    passes.expectations(potentials, Beam("size", size=1), counts=True)
    last = potentials.log_unary.copy()
    last[:, -1] = -np.inf
    impossible = replace(potentials, log_unary=last) if isinstance(potentials, Potentials) else potentials
    passes.expectations(impossible, Beam("size", size=1))
    return passes.viterbi(potentials, Beam("size", size=1))
