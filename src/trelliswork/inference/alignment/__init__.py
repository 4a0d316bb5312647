"""Monotone alignments of two sequences: their graph, for `Recursions`.

Cell (i, j) stands for i items of the first sequence and j of the second. A *match* leads to it from (i-1, j-1), a
*delete* from (i-1, j), an *insert* from (i, j-1). A node is a cell with the move that led to it.
"""

from typing import NamedTuple

import numpy as np

from trelliswork.inference.semirings import Integers, Lattice, Recursions

MATCH, DELETE, INSERT = MOVES = range(3)


class Sizes(NamedTuple):
    """What `edges` reads: lengths (B, 2) of both sequences, the largest length of the second."""

    lengths: Integers
    longest: int


def edges(sizes: Sizes, b: int, v: int, sources: Integers, parts: Integers, pairs: Integers) -> int:
    """List the edges into node v. Nodes are 0, then the moves to each cell, row by row, and the last one."""
    n, m = sizes.lengths[b]
    if v == 1 + 3 * (n + 1) * (m + 1):  # the last node, from the last cell
        for move in range(3):
            sources[move], parts[move], pairs[move] = v - 3 + move, -1, -1
        return 3
    cell, move = (v - 1) // 3, (v - 1) % 3
    i, j = cell // (m + 1), cell % (m + 1)
    part = (i * (sizes.longest + 1) + j) * 3 + move
    if move != INSERT:
        i -= 1
    if move != DELETE:
        j -= 1
    if i < 0 or j < 0:
        return 0
    if i == 0 and j == 0:  # the first move
        sources[0], parts[0], pairs[0] = 0, part, -1
        return 1
    for before in range(3):
        sources[before], parts[before], pairs[before] = 1 + 3 * (i * (m + 1) + j) + before, part, 3 * before + move
    return 3


ALIGNMENTS = Recursions(edges)


def lattice(lengths: Integers, longest: int) -> Lattice:
    """Return the graphs of a batch. Parts are moves to cells (N+1, M+1, 3); pairs (3, 3) are moves in a row."""
    cells = (lengths + 1).prod(axis=1)
    return Lattice(Sizes(lengths, longest), 2 + 3 * cells, 3, 2 + int(lengths.sum(axis=1).max()))


def moves_of(paths: Integers, n_moves: int) -> Integers:
    """Return moves (.., n_moves), in order, -1 beyond, of paths (.., longest)."""
    nodes = paths[..., 1:]  # without the last node
    inside = nodes > 0
    at = inside.sum(axis=-1, keepdims=True) - 1 - np.arange(n_moves)
    moves = np.take_along_axis((nodes - 1) % 3, np.maximum(at, 0), axis=-1)
    return np.where(at >= 0, moves, -1)
