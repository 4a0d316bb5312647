"""Calibration: how often answers are correct, by the probability that a model gave them."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Bin:
    """Answers of similar probability."""

    probability: float  # mean probability given by the model
    accuracy: float  # fraction of correct answers
    count: int
    low: float = 0.0  # limits of the probabilities
    high: float = 1.0


def reliability(probabilities: Iterable[float], correct: Iterable[bool], bins: int = 10) -> list[Bin]:
    """Sort answers into bins of equal width by their probability; empty bins are left out.

    Examples
    --------
    >>> for row in reliability([0.92, 0.98, 0.55], [True, True, False]):
    ...     print(row)
    Bin(probability=0.55, accuracy=0.0, count=1, low=0.5, high=0.6)
    Bin(probability=0.95, accuracy=1.0, count=2, low=0.9, high=1.0)
    """
    answers: list[list[tuple[float, bool]]] = [[] for _ in range(bins)]
    for p, hit in zip(probabilities, correct, strict=True):
        answers[min(int(p * bins), bins - 1)].append((p, hit))
    return [
        Bin(
            math.fsum(p for p, _ in some) / len(some),
            sum(hit for _, hit in some) / len(some),
            len(some),
            k / bins,
            (k + 1) / bins,
        )
        for k, some in enumerate(answers)
        if some
    ]


def calibration_error(bins: Sequence[Bin]) -> float:
    """Return the mean absolute difference of probability and accuracy, weighted by the number of answers."""
    total = sum(row.count for row in bins)
    return sum(row.count * abs(row.probability - row.accuracy) for row in bins) / total if total else 0.0
