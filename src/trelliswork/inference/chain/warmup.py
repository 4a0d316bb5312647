"""Compile the kernels of linear chains; see ``inference.warmup``."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from trelliswork.compute.kernels.scores import are_scores
from trelliswork.inference import chain
from trelliswork.inference.chain.potentials import Floats
from trelliswork.inference.chain.segments import SegmentKinds, Segments

LAYOUTS = {"shared": (2, 2), "by sequence": (2, 1, 2, 2), "by position": (2, 2, 2, 2)}  # of transitions, their shapes


def tasks() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield name and call of each task."""
    for dtype in (np.float32, np.float64):
        for layout in LAYOUTS:
            name, potentials = f"chain, {np.dtype(dtype).name}, transitions {layout}", example(layout, dtype)
            yield f"{name}: expectations", partial(chain.expectations, potentials, counts=True)
            yield f"{name}: edges", partial(chain.expectations, potentials, edges=True)
            yield f"{name}: gradient", partial(_gradient, potentials, layout)
            yield f"{name}: best labeling", partial(_best, potentials)
            yield f"{name}: check", partial(are_scores, potentials.log_unary, np.zeros(LAYOUTS[layout], dtype))
        one = chain.chain_potentials(np.zeros((1, 2, 2), dtype), np.zeros((2, 2), dtype))
        yield f"chain, {np.dtype(dtype).name}: one sentence", partial(_one, one)
    impossible = chain.chain_potentials(np.full((1, 2, 2), -np.inf), np.zeros((2, 2)))
    yield "chain, log space: expectations", partial(chain.expectations, impossible, edges=True)
    possible = chain.chain_potentials(np.zeros((1, 2, 2)), np.zeros((2, 2)))
    yield "chain, log space: k best", partial(chain.topk, possible, 2)
    yield "chain, log space: samples", partial(chain.sample, possible, np.zeros((1, 1, 2)))
    yield "chain, log space: segments", partial(_segments, possible)


def example(layout: str, dtype: type) -> chain.Potentials:
    """Return two small chains; a transition is impossible, so that the passes check for underflow."""
    pairwise: Floats = np.zeros(LAYOUTS[layout], dtype)
    pairwise[..., 0, 1] = -np.inf
    return chain.chain_potentials(np.zeros((2, 3, 2), dtype), pairwise)


def _gradient(potentials: chain.Potentials, layout: str) -> chain.Expectations:
    by_position = layout == "by position"
    passed = chain.forward(potentials)
    return chain.backward(passed, edges=by_position, counts=not by_position, total=layout == "shared")


def _best(potentials: chain.Potentials) -> object:
    return chain.score(potentials, chain.viterbi(potentials)[0])


def _one(potentials: chain.Potentials) -> object:
    return chain.expectations(potentials), chain.viterbi(potentials)


def _segments(potentials: chain.Potentials) -> object:
    segments = Segments(potentials, SegmentKinds(np.array([0, 0]), np.ones((2, 2), bool)))
    return segments.log_probabilities(segments.likely()[0])
