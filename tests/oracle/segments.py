"""Segmentations with labels by enumeration: the ground truth of the tests."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from tests.oracle.trees import Enumerated


def segmentations(n: int, longest: int, n_labels: int, start: int = 0) -> Iterator[tuple[tuple[int, int, int], ...]]:
    """Yield all segmentations of positions ``start``..n-1, each a tuple of (start, length, label)."""
    if start == n:
        yield ()
    for length in range(1, min(longest, n - start) + 1):
        for rest in segmentations(n, longest, n_labels, start + length):
            for label in range(n_labels):
                yield ((start, length, label), *rest)


class Segmented(Enumerated):
    """All segmentations of one sequence; structures are labels (T,) at starts of segments, -1 elsewhere."""

    def __init__(self, log_segment: np.ndarray, n: int, log_pairwise: np.ndarray) -> None:
        T, L, S = log_segment.shape
        self.all = list(segmentations(n, L, S))
        scores = np.zeros(len(self.all))
        structures = np.full((len(self.all), T), -1)
        for k, segments in enumerate(self.all):
            for start, length, label in segments:
                scores[k] += log_segment[start, length - 1, label]
                structures[k, start] = label
            for (_, _, i), (_, _, j) in pairwise(segments):
                scores[k] += log_pairwise[i, j]
        self.shape = log_segment.shape
        super().__init__(structures, scores)

    def marginals(self) -> np.ndarray:
        """Return p(segment), (T, L, S)."""
        out = np.zeros(self.shape)
        for segments, p in zip(self.all, self.probabilities, strict=True):
            for start, length, label in segments:
                out[start, length - 1, label] += p
        return out

    def transition_counts(self) -> np.ndarray:
        """Return the expected number of transitions (S, S)."""
        out = np.zeros((self.shape[2],) * 2)
        for segments, p in zip(self.all, self.probabilities, strict=True):
            for (_, _, i), (_, _, j) in pairwise(segments):
                out[i, j] += p
        return out
