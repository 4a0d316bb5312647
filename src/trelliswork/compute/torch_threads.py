"""Torch on the threads of the pool: each thread computes its own products alone."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from trelliswork.compute import threads


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch operations inside the ``with`` block on the calling thread alone."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run(work: Callable[[int, int], object], ranges: Sequence[tuple[int, int]]) -> None:
    """``threads.run`` for work that calls torch."""

    def alone(start: int, stop: int) -> None:
        torch.set_num_threads(1)  # a setting of each thread
        work(start, stop)

    before = torch.get_num_threads()
    try:
        threads.run(alone, ranges)
    finally:
        torch.set_num_threads(before)
