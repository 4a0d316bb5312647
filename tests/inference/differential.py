"""Differential testing: each structure against enumeration on random small problems, its engines against each other.

An error is a difference divided by 1 + the size of the problem, which is the sum of the largest scores of a structure's
parts: rounding errors of sums are proportional to it. Infinite values must be equal, and nan never is.
"""

import itertools
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trelliswork.compute import threads
from trelliswork.errors import ConvergenceWarning

# Comparisons: with enumeration or a law (bounds), of torch operations, of float32 with float64, of 1 and 2 threads.
LIMITS = {"enumeration": 3e-12, "torch": 3e-12, "float32": 1e-6, "threads": 0.0}
KINDS = ("normal", "zeros", "ties", "large", "huge", "forbidden", "mixed")


class DiscrepancyError(Exception):
    """Two computations of one value differ."""


@dataclass
class Tally:
    """Problems of one structure so far: number, largest error of each comparison, and what failed."""

    structure: str
    n_problems: int = 0
    n_values: int = 0
    worst: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def same(self, comparison: str, what: str, found: Any, want: Any, size: float) -> None:
        """Compare arrays; raise `DiscrepancyError` if their error is beyond the limit."""
        found, want = (np.asarray(x, np.float64) for x in (found, want))
        if found.shape != want.shape:
            raise DiscrepancyError(f"{comparison}: {what} has shape {found.shape} instead of {want.shape}")
        self.n_values += found.size
        finite = np.isfinite(want)
        if not (np.isfinite(found) == finite).all() or not np.array_equal(found[~finite], want[~finite]):
            raise DiscrepancyError(f"{comparison}: {what} is {found.tolist()} instead of {want.tolist()}")
        error = float(np.abs(found[finite] - want[finite]).max(initial=0)) / (1 + size)
        self.worst[comparison] = max(error, self.worst.get(comparison, 0.0))
        if error > LIMITS[comparison]:
            raise DiscrepancyError(
                f"{comparison}: error {error:.3g} of {what}: {found.tolist()} instead of {want.tolist()}"
            )

    def at_most(self, what: str, low: Any, high: Any, size: float) -> None:
        """Check low <= high, up to rounding."""
        low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
        self.same("enumeration", what, np.maximum(low, high), high, size)


class Scores:
    """Random log-potentials of one kind, exact in float32; ``size`` is the largest finite one so far."""

    def __init__(self, rng: np.random.Generator, kinds: tuple[str, ...] = KINDS) -> None:
        self.rng, self.kind, self.size = rng, str(rng.choice(kinds)), 0.0

    def __call__(self, *shape: int) -> np.ndarray:
        rng, normal = self.rng, self.rng.normal(size=shape)
        values = {
            "normal": lambda: normal,
            "zeros": lambda: np.zeros(shape),
            "ties": lambda: rng.integers(-1, 2, shape).astype(float),
            "large": lambda: 30 * normal,
            "huge": lambda: np.where(rng.random(shape) < 0.5, 1e4 * normal, rng.choice([-1e4, 0, 1e4], shape)),
            "forbidden": lambda: np.where(rng.random(shape) < 0.35, -np.inf, normal),
            "mixed": lambda: np.where(rng.random(shape) < 0.6, rng.choice([-np.inf, 0, -1e4, 1e4], shape), normal),
        }[self.kind]()
        values = np.asarray(values, np.float32).astype(np.float64)
        self.size = max(self.size, float(np.abs(values[np.isfinite(values)]).max(initial=0)))
        return values

    def length(self, most: int) -> int:
        """Return a number from 1 to ``most``; 1 in a quarter of the cases."""
        return 1 if self.rng.random() < 0.25 else int(self.rng.integers(1, most + 1))


@contextmanager
def many_ranges() -> Iterator[None]:
    """Cut even small work into ranges, so that several threads get some."""
    before, threads.LEAST_WORK = threads.LEAST_WORK, 1
    try:
        yield
    finally:
        threads.LEAST_WORK = before


def on_threads(tally: Tally, what: str, compute: Callable[[], Any]) -> None:
    """Compare the arrays that ``compute`` returns on 1 thread and on 2, bit by bit."""
    with many_ranges():
        results = []
        for n in (1, 2):
            with threads.num_threads(n):
                results.append([np.asarray(x) for x in compute()])
    for k, (one, two) in enumerate(zip(*results, strict=True)):
        same = one.tobytes() == two.tobytes()
        tally.n_values += one.size
        tally.worst["threads"] = max(tally.worst.get("threads", 0.0), 0.0 if same else 1.0)
        if not same:
            raise DiscrepancyError(f"threads: {what}[{k}] is {one.tolist()} with 1 thread, {two.tolist()} with 2")


Problem = Callable[[np.random.Generator, Tally], None]


def run(structures: dict[str, Problem], n: int, seed: int = 0, progress: Any = None) -> list[Tally]:
    """Solve n problems, as many of each structure; problem k of a structure depends on seed and k only."""
    tallies = [Tally(name) for name in structures]
    for k, tally in zip(range(n), itertools.cycle(tallies), strict=False):
        number = k // len(tallies)
        started = time.perf_counter()
        try:
            one(structures[tally.structure], tally, seed, number)
        except Exception as error:  # whatever it is, it is a finding
            tally.failures.append(f"{tally.structure} {number} (seed {seed}): {type(error).__name__}: {error}")
        tally.n_problems += 1
        tally.seconds += time.perf_counter() - started
        if progress is not None:
            progress(k + 1, tallies)
    return tallies


def one(problem: Problem, tally: Tally, seed: int, number: int) -> None:
    """Solve one problem; warnings other than those of convergence are errors."""
    rng = np.random.default_rng([seed, number, *tally.structure.encode()])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        problem(rng, tally)


def table(tallies: list[Tally]) -> str:
    """Return counts and largest errors, one row per structure."""
    names = list(LIMITS)
    rows = [["structure", "problems", "values", *names, "failures", "seconds"]]
    for t in tallies:
        cells = [f"{t.worst[name]:.1e}" if name in t.worst else "-" for name in names]
        rows.append(
            [t.structure, f"{t.n_problems:,}", f"{t.n_values:,}", *cells, str(len(t.failures)), f"{t.seconds:.1f}"]
        )
    total = [sum(getattr(t, name) for t in tallies) for name in ("n_problems", "n_values")]
    largest = [max((t.worst.get(name, 0.0) for t in tallies), default=0.0) for name in names]
    failed, seconds = sum(len(t.failures) for t in tallies), sum(t.seconds for t in tallies)
    rows.append(["all", *(f"{x:,}" for x in total), *(f"{x:.1e}" for x in largest), str(failed), f"{seconds:.1f}"])
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(x.rjust(w) for x, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    )
