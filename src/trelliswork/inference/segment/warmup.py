"""Compile the recursions of segmentations; see ``inference.warmup``."""

from collections.abc import Callable, Iterator

import numpy as np

from trelliswork.inference.segment import SEGMENTATIONS, lattice


def tasks() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the name and the call of each task."""
    given = lattice(np.array([2]), 2, 2, 1), np.zeros((1, 4)), np.zeros(1)
    yield from (("segments: " + name, work) for name, work in SEGMENTATIONS.tasks(*given))
