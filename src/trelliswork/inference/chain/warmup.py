"""Compile the kernels of linear chains; see ``inference.warmup``."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from trelliswork.inference import chain
from trelliswork.inference.chain.beam import Beam, passes
from trelliswork.inference.chain.beam.sparse import SparseChain, SparseTransitions, sparse_chain


def tasks() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield name and call of each task."""
    for dtype in (np.float32, np.float64):
        for layout, shape in (("shared", (2, 2)), ("by sequence", (2, 1, 2, 2)), ("by position", (2, 2, 2, 2))):
            name = f"chain, {np.dtype(dtype).name}, transitions {layout}"
            pairwise = np.zeros(shape, dtype)
            pairwise[..., 0, 1] = -np.inf  # so that the passes check for underflow
            potentials = chain.chain_potentials(np.zeros((2, 3, 2), dtype), pairwise)
            yield f"{name}: expectations", partial(chain.expectations, potentials, counts=True)
            yield f"{name}: edges", partial(chain.expectations, potentials, edges=True)
            yield f"{name}: gradient", partial(_gradient, potentials, layout)
            yield f"{name}: best labeling", partial(_best, potentials)
            yield f"{name}: beams", partial(_beams, potentials)
        pairs = SparseTransitions.ngrams(2, 2)
        sparse = sparse_chain(np.zeros((2, 3, 2), dtype), pairs, np.zeros(len(pairs.targets), dtype))
        yield f"chain, {np.dtype(dtype).name}, sparse transitions: beams", partial(_beams, sparse)
    impossible = chain.chain_potentials(np.full((1, 2, 2), -np.inf), np.zeros((2, 2)))
    yield "chain, log space: expectations", partial(chain.expectations, impossible, edges=True)
    possible = chain.chain_potentials(np.zeros((1, 2, 2)), np.zeros((2, 2)))
    yield "chain, log space: k best", partial(chain.topk, possible, 2)
    yield "chain, log space: samples", partial(chain.sample, possible, np.zeros((1, 1, 2)))


def _beams(potentials: chain.Potentials | SparseChain) -> object:
    """Compute sums and the best labeling, also where beams lose every path and log space takes over."""
    passes.expectations(potentials, Beam("size", size=1), counts=True)
    last = potentials.log_unary.copy()
    last[:, -1] = -np.inf
    impossible = replace(potentials, log_unary=last) if isinstance(potentials, chain.Potentials) else potentials
    passes.expectations(impossible, Beam("size", size=1))
    return passes.viterbi(potentials, Beam("size", size=1))


def _gradient(potentials: chain.Potentials, layout: str) -> chain.Expectations:
    by_position = layout == "by position"
    passed = chain.forward(potentials)
    return chain.backward(passed, edges=by_position, counts=not by_position, total=layout == "shared")


def _best(potentials: chain.Potentials) -> object:
    return chain.score(potentials, chain.viterbi(potentials)[0])
