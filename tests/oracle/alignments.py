"""Alignments of two sequences by enumeration: the ground truth of the tests."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from tests.oracle.trees import Enumerated

STEPS = ((1, 1), (1, 0), (0, 1))  # of both sequences: match, delete, insert


def alignments(n: int, m: int) -> Iterator[tuple[int, ...]]:
    """Yield all sequences of moves that use up both sequences."""
    if n == m == 0:
        yield ()
    for move, (down, right) in enumerate(STEPS):
        if n >= down and m >= right:
            for rest in alignments(n - down, m - right):
                yield (move, *rest)


class Aligned(Enumerated):
    """All alignments of two sequences; structures are moves (n_moves,), -1 beyond."""

    def __init__(self, log_moves: np.ndarray, lengths: tuple[int, int], log_pairwise: np.ndarray) -> None:
        self.all = list(alignments(*lengths))
        self.shape = log_moves.shape
        structures = np.full((len(self.all), sum(self.shape[:2]) - 2), -1)
        scores = np.zeros(len(self.all))
        for k, moves in enumerate(self.all):
            structures[k, : len(moves)] = moves
            scores[k] = sum(log_moves[cell] for cell in self.cells(moves))
            scores[k] += sum(log_pairwise[pair] for pair in pairwise(moves))
        super().__init__(structures, scores)

    @staticmethod
    def cells(moves: tuple[int, ...]) -> list[tuple[int, int, int]]:
        """Return the cells that the moves lead to, with the moves."""
        at, found = np.zeros(2, int), []
        for move in moves:
            at += STEPS[move]
            found.append((*at.tolist(), move))
        return found

    def partners(self) -> np.ndarray:
        """Return the items of the second sequence with which those of the first are aligned, -1 for none, (n, N)."""
        out = np.full((len(self.all), self.shape[0] - 1), -1)
        for k, moves in enumerate(self.all):
            for i, j, move in self.cells(moves):
                if move == 0:
                    out[k, i - 1] = j - 1
        return out

    def marginals(self) -> np.ndarray:
        """Return p(arriving at a cell by a move), (N+1, M+1, 3)."""
        out = np.zeros(self.shape)
        for moves, p in zip(self.all, self.probabilities, strict=True):
            for cell in self.cells(moves):
                out[cell] += p
        return out

    def transition_counts(self) -> np.ndarray:
        """Return the expected number of times that a move follows a move (3, 3)."""
        out = np.zeros((3, 3))
        for moves, p in zip(self.all, self.probabilities, strict=True):
            for pair in pairwise(moves):
                out[pair] += p
        return out
