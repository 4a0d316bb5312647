"""Compile every inference kernel once, on tiny inputs; a later process loads the compiled code from the disk cache."""

from collections.abc import Callable, Iterator

from trelliswork.inference.chain import warmup as chain
from trelliswork.inference.factorial import warmup as factorial
from trelliswork.inference.graph import warmup as graph
from trelliswork.inference.lowrank import warmup as lowrank
from trelliswork.inference.span import warmup as span
from trelliswork.inference.tree import warmup as tree


def tasks() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield name and call of each task; together they reach every kernel in every precision it is used in."""
    for structure in (chain, factorial, graph, tree, span, lowrank):
        yield from structure.tasks()
