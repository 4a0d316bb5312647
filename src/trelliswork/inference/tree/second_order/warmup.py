"""Compile the kernels of second-order trees; see ``inference.warmup``."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from trelliswork.inference.tree import second_order


def tasks() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the name and the call of each task."""
    for projective in (True, False):
        yield f"second-order trees, projective {projective}", partial(_infer, projective)


def _infer(projective: bool) -> object:
    parts = second_order.parts(np.array([2]), np.array([0, 4]), np.array([0, 0, 1, 2]), np.array([1, 2, 2, 1]))
    scores = np.zeros(4), np.zeros(len(parts.sibling_heads)), np.zeros(len(parts.grandparent_upper))
    second_order.infer(parts, *scores, projective=projective)
    scores[2][0] = 100.0  # computed in log space
    return second_order.infer(parts, *scores, projective=projective)
