"""Compile the recursions of alignments; see ``inference.warmup``."""

from collections.abc import Callable, Iterator

import numpy as np

from trelliswork.inference.alignment import ALIGNMENTS, lattice


def tasks() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the name and the call of each task."""
    given = lattice(np.array([[1, 1]]), 1), np.zeros((1, 12)), np.zeros(9)
    yield from (("alignments: " + name, work) for name, work in ALIGNMENTS.tasks(*given))
