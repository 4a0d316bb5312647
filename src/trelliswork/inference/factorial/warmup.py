"""Compile the kernels of factorial chains; see ``inference.warmup``."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from trelliswork.inference.factorial import ENGINES, decode, factorial_potentials, infer


def tasks() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the name and the call of each compilation task."""
    for dtype in (np.float32, np.float64):
        pairwise = [np.array([[0, -np.inf], [0, 0]], dtype), np.zeros((3, 3), dtype)]
        unary = [np.zeros((2, 3, 2), dtype), np.zeros((2, 3, 3), dtype)]
        p = factorial_potentials(unary, pairwise, {(0, 1): np.zeros((2, 3), dtype)})
        for engine in ENGINES:
            yield f"layers, {np.dtype(dtype).name}: {engine}", partial(infer, p, engine, counts=True)
        yield f"layers, {np.dtype(dtype).name}: best labeling", partial(decode, p, "exact")
