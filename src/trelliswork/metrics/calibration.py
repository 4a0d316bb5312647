"""Confidence of answers: calibration, proper scores, and what a threshold accepts."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from trelliswork.errors import ShapeError, ValueRangeError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Answers = Sequence[Sequence[tuple[float, bool, float]]]
N_BINS = 10
LEAST = 1e-6  # smallest probability in a log score
THRESHOLDS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
SAMPLES = 1000  # of a bootstrap over sentences
CHUNK = 1 << 22  # weights of sentences in memory at once


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


@dataclass(frozen=True)
class Interval:
    """A figure with its 95 % interval, by a bootstrap over sentences."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Accepted:
    """Answers with at least a probability: the fraction of all answers, and how many of them are correct."""

    threshold: float
    coverage: float
    accuracy: float | None  # None if there are none


@dataclass(frozen=True)
class AtPrecision:
    """The lowest threshold at which the accepted answers have a precision, and how much of gold they find.

    The threshold of an interval is chosen anew in each sample; precision is that of the threshold of the whole.
    """

    what: str
    target: float
    threshold: Interval | None  # None if no threshold reaches the target
    precision: Interval | None = None
    recall: Interval | None = None

    def summary(self) -> str:
        """Return the figures in a line."""
        if self.threshold is None:
            return f"no threshold gives {self.what} a precision of {self.target:g}"
        names = ("threshold", "precision", "recall")
        figures = [f"{n} {f.value:.4f} ({f.low:.4f} to {f.high:.4f})" for n in names for f in [getattr(self, n)]]
        return f"{self.what} at precision {self.target:g}: {', '.join(figures)}; 95 % intervals, bootstrap of sentences"


@dataclass(frozen=True)
class ConfidenceReport:
    """Result of ``evaluate_confidence``.

    Attributes
    ----------
    what : str
        Name of the answers, such as "tokens".
    n_answers : int
    calibration_error : Interval
        Expected calibration error: the mean difference of probability and accuracy in ten bins of equal width. Random
        differences in small bins do not cancel, so that it is above 0 also for a perfect model.
    brier : Interval
        Mean squared difference of the probability of an answer and 1 if it is correct, 0 if not. Smaller is better.
    log_score : Interval
        Mean natural log-probability of the gold answer, of at least 1e-6. Larger is better.
    bins : tuple of Bin
    accepted : tuple of Accepted
        What a threshold on the probability accepts.
    """

    what: str
    n_answers: int
    calibration_error: Interval
    brier: Interval
    log_score: Interval
    bins: tuple[Bin, ...]
    accepted: tuple[Accepted, ...]
    answers: Any = field(default=None, repr=False, compare=False)  # p, correct, sentence; and gold of each sentence

    def at_precision(self, target: float) -> AtPrecision:
        """Return the lowest threshold on probabilities at which the answers of these data have a precision."""
        import numpy as np

        p, correct, sentence, support = self.answers
        order = np.argsort(-p, kind="stable")
        p, correct, sentence = p[order], correct[order], sentence[order]
        last = np.append(p[1:] < p[:-1], True)  # of equal probabilities

        def chosen(weights: "NDArray[np.float64]", at: int | None = None) -> tuple[float, float, float] | None:
            taken, right = np.cumsum(weights[sentence]), np.cumsum(weights[sentence] * correct)
            good = np.flatnonzero(last & (taken > 0) & (right >= target * taken)) if at is None else [at]
            if not len(good) or taken[good[-1]] == 0:
                return None
            k = int(good[-1])
            return float(p[k]), float(right[k] / taken[k]), float(right[k] / max(weights @ support, 1e-300))

        value, n, rng = chosen(np.ones(len(support))), len(support), np.random.default_rng(0)
        if value is None:
            return AtPrecision(self.what, target, None)
        fixed, rows = int(np.flatnonzero(p >= value[0])[-1]), []
        for _ in range(SAMPLES):
            weights = rng.multinomial(n, np.full(n, 1 / n)).astype(np.float64)
            anew, same = chosen(weights), chosen(weights, fixed)
            if anew is not None and same is not None:
                rows.append((anew[0], same[1], anew[2]))
        low, high = np.quantile(rows or [value], [0.025, 0.975], axis=0).tolist()
        return AtPrecision(self.what, target, *map(Interval, value, low, high))

    def figures(self) -> dict[str, Interval]:
        """Return the figures with intervals by name."""
        return {"calibration error": self.calibration_error, "Brier score": self.brier, "log score": self.log_score}

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        plain = asdict(replace(self, answers=None))
        del plain["answers"]
        return plain | {"bins": list(plain["bins"]), "accepted": list(plain["accepted"])}

    def summary(self) -> str:
        """Return the figures, the reliability diagram and the thresholds as text."""
        rows = [(name, f.value, f"{f.low:.4f} to {f.high:.4f}") for name, f in self.figures().items()]
        parts = [align([(f"confidence of {self.n_answers:,} {self.what}", "value", "95 % interval"), *rows])]
        bins = [
            (f"{b.low:.1f}-{b.high:.1f}", b.count, f"{b.probability:.3f}", f"{b.accuracy:.3f}", _bar(b))
            for b in self.bins
        ]
        parts.append(align([("probability", self.what, "mean", "correct", "# correct, | mean"), *bins], 1))
        shown = [(f"{a.threshold:g}", a.coverage, a.accuracy) for a in self.accepted]
        parts.append(align([("accept from", "coverage", "accuracy"), *shown]))
        return "\n\n".join(parts)


def evaluate_confidence(
    answers: Answers, *, what: str = "tokens", support: Sequence[int] | None = None
) -> ConfidenceReport:
    """Compare the probabilities of answers with how often they are correct.

    Parameters
    ----------
    answers : list of lists of (float, bool, float)
        For each sentence its answers: the probability of the answer, whether it is correct, and the probability of the
        gold answer. For yes-or-no questions, such as "is this a span", the latter is p if correct, else 1 - p.
    what : str
        Name of the answers.
    support : list of int, optional
        Number of gold answers of each sentence, if they are not as many as answers.

    Examples
    --------
    >>> report = evaluate_confidence([[(0.9, True, 0.9), (0.6, False, 0.3)], [(0.8, True, 0.8)]])
    >>> round(report.brier.value, 4), report.accepted[5]
    (0.1367, Accepted(threshold=0.9, coverage=0.3333333333333333, accuracy=1.0))
    """
    import numpy as np

    flat = np.array([answer for sentence in answers for answer in sentence], np.float64).reshape(-1, 3)
    if not len(flat):
        raise ShapeError(f"no {what} to compare: expected at least one answer with a probability.")
    if not (np.isfinite(flat).all() and (flat >= -1e-6).all() and (flat <= 1 + 1e-4).all()):
        raise ValueRangeError("probabilities of answers must lie between 0 and 1.")
    p, correct, gold = np.clip(flat, 0.0, 1.0).T
    place = np.minimum((p * N_BINS).astype(np.int64), N_BINS - 1)
    sentence = np.repeat(np.arange(len(answers)), [len(some) for some in answers])
    columns = np.zeros((len(answers), 3 + 2 * N_BINS))  # sums: answers, Brier, log score, p and correct of each bin
    for k, sums_of in enumerate((np.ones(len(p)), (p - correct) ** 2, np.log(np.maximum(gold, LEAST)))):
        columns[:, k] = np.bincount(sentence, sums_of, len(answers))
    for k, sums_of in enumerate((p, correct)):
        cells = np.bincount(sentence * N_BINS + place, sums_of, len(answers) * N_BINS)
        columns[:, 3 + k * N_BINS : 3 + (k + 1) * N_BINS] = cells.reshape(-1, N_BINS)
    values = _figures(columns.sum(axis=0, keepdims=True))[0]
    rng, samples = np.random.default_rng(0), []
    n = len(answers)
    size = max(1, CHUNK // n)
    for first in range(0, SAMPLES, size):
        weights = rng.multinomial(n, np.full(n, 1 / n), size=min(size, SAMPLES - first)).astype(np.float64)
        sums = weights @ columns
        samples.append(_figures(sums[sums[:, 0] > 0]))
    low, high = np.quantile(np.concatenate(samples), [0.025, 0.975], axis=0)
    error, brier, log_score = (Interval(*row) for row in zip(values.tolist(), low.tolist(), high.tolist(), strict=True))
    accepted = []
    for threshold in THRESHOLDS:
        above = p >= threshold
        accuracy = float(correct[above].mean()) if above.any() else None
        accepted.append(Accepted(threshold, float(above.mean()), accuracy))
    bins = tuple(reliability(p.tolist(), (correct > 0.5).tolist(), N_BINS))
    gold_answers = np.array([len(some) for some in answers] if support is None else support, np.float64)
    raw = (p, correct, sentence, gold_answers)
    return ConfidenceReport(what, len(flat), error, brier, log_score, bins, tuple(accepted), raw)


def _figures(sums: "NDArray[np.float64]") -> "NDArray[np.float64]":
    """Return calibration error, Brier score and log score (n, 3) from sums (n, 3 + 2 bins)."""
    import numpy as np

    total = sums[:, 0]
    stated, right = sums[:, 3 : 3 + N_BINS], sums[:, 3 + N_BINS :]
    error = np.abs(stated - right).sum(axis=1) / total
    return np.stack([error, sums[:, 1] / total, sums[:, 2] / total], axis=1)


def _bar(row: Bin, width: int = 40) -> str:
    """Return a bar of the fraction of correct answers, with a mark at their mean probability."""
    cells = ["#"] * round(width * row.accuracy) + [" "] * (width - round(width * row.accuracy))
    cells[min(round(width * row.probability), width - 1)] = "|"
    return "".join(cells).rstrip()


def align(rows: Sequence[Sequence[str | float | None]], n_left: int = 0) -> str:
    """Return a table of texts, counts and rates: the first column and the last ``n_left`` to the left, others right."""
    texts = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    left = {0, *range(len(widths) - n_left, len(widths))}
    padded = [
        [c.ljust(w) if k in left else c.rjust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True))]
        for row in texts
    ]
    return "\n".join("  ".join(row).rstrip() for row in padded)


def _cell(value: str | float | None) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
