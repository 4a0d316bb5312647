"""Compile inference kernels on tiny inputs; a later process loads the compiled code from the disk cache."""

from collections.abc import Callable, Iterator
from importlib import import_module

STRUCTURES = (
    "alignment",
    "chain",
    "chain.beam",
    "factorial",
    "graph",
    "lowrank",
    "segment",
    "span",
    "tree",
    "tree.second_order",
)


def tasks(structure: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the name and the call of each task of a structure.

    Together the tasks of a structure reach each of its kernels in every precision it is used in.
    """
    yield from import_module(f"trelliswork.inference.{structure}.warmup").tasks()
