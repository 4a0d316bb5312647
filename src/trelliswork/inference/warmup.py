"""Compile every kernel once, on tiny inputs, so that nobody waits at the first sentence.

Numba keeps the machine code on disk beside the sources; a later process loads it in milliseconds.
"""

from collections.abc import Callable, Iterator

import numpy as np

from trelliswork.inference import chain


def tasks() -> Iterator[tuple[str, Callable[[], object]]]:
    """Name and call of each piece of work; together they reach every kernel in every precision it is used in."""
    for dtype in (np.float32, np.float64):
        unary = np.zeros((2, 3, 2), dtype)
        for kind, pairwise in (("shared", np.zeros((2, 2), dtype)), ("by position", np.zeros((2, 2, 2, 2), dtype))):
            potentials = chain.chain_potentials(unary, pairwise)
            name = f"chain {kind} {np.dtype(dtype).name}"
            yield f"{name}: expectations", lambda p=potentials: chain.expectations(p, counts=True)  # type: ignore[misc]
            yield f"{name}: edges", lambda p=potentials: chain.expectations(p, edges=True)  # type: ignore[misc]
            yield f"{name}: gradient", lambda p=potentials: _gradient(p)  # type: ignore[misc]
            yield f"{name}: best labelling", lambda p=potentials: chain.viterbi(p)  # type: ignore[misc]
    impossible = chain.chain_potentials(np.full((1, 2, 2), -np.inf), np.zeros((2, 2)))
    yield "chain in log space: expectations", lambda: chain.expectations(impossible, edges=True)
    possible = chain.chain_potentials(np.zeros((1, 2, 2)), np.zeros((2, 2)))
    yield "chain in log space: k best", lambda: chain.topk(possible, 2)
    yield "chain in log space: samples", lambda: chain.sample(possible, np.zeros((1, 1, 2)))


def _gradient(potentials: chain.Potentials) -> chain.Expectations:
    return chain.backward(chain.forward(potentials), counts=True, total=True)
