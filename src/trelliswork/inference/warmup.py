"""Compile every kernel once, on tiny inputs, so that nobody waits at the first sentence.

Numba keeps the machine code on disk beside the sources; a later process loads it in milliseconds.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from trelliswork.inference import chain


def tasks() -> Iterator[tuple[str, Callable[[], object]]]:
    """Name and call of each piece of work; together they reach every kernel in every precision it is used in."""
    for dtype in (np.float32, np.float64):
        for layout, shape in (("shared", (2, 2)), ("by sequence", (2, 1, 2, 2)), ("by position", (2, 2, 2, 2))):
            name = f"chain, {np.dtype(dtype).name}, transitions {layout}"
            pairwise = np.zeros(shape, dtype)
            pairwise[..., 0, 1] = -np.inf  # so that the passes are checked for underflow too
            potentials = chain.chain_potentials(np.zeros((2, 3, 2), dtype), pairwise)
            yield f"{name}: expectations", partial(chain.expectations, potentials, counts=True)
            yield f"{name}: edges", partial(chain.expectations, potentials, edges=True)
            yield f"{name}: gradient", partial(_gradient, potentials, layout)
            yield f"{name}: best labelling", partial(_best, potentials)
    impossible = chain.chain_potentials(np.full((1, 2, 2), -np.inf), np.zeros((2, 2)))
    yield "chain, log space: expectations", partial(chain.expectations, impossible, edges=True)
    possible = chain.chain_potentials(np.zeros((1, 2, 2)), np.zeros((2, 2)))
    yield "chain, log space: k best", partial(chain.topk, possible, 2)
    yield "chain, log space: samples", partial(chain.sample, possible, np.zeros((1, 1, 2)))


def _gradient(potentials: chain.Potentials, layout: str) -> chain.Expectations:
    by_position = layout == "by position"
    passed = chain.forward(potentials)
    return chain.backward(passed, edges=by_position, counts=not by_position, total=layout == "shared")


def _best(potentials: chain.Potentials) -> object:
    return chain.score(potentials, chain.viterbi(potentials)[0])
