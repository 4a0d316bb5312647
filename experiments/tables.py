"""Results of experiments: tables of figures, with learning curves where there are any."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

Cell = str | float | int | None
Say = Callable[[str], None]  # receives lines about the progress of an experiment
RANGE = re.compile(r"(-?\d+(?:\.\d+)?)(?: to (-?\d+(?:\.\d+)?))?")  # a number in a paper, or a range
QUICK = "quick"  # start of the note of a figure computed with small settings


@dataclass
class Curve:
    """One line of a plot."""

    name: str
    x: list[float] = field(default_factory=list)
    y: list[float] = field(default_factory=list)

    def add(self, x: float, y: float) -> None:
        """Add a point."""
        self.x.append(float(x))
        self.y.append(y)


@dataclass(frozen=True)
class Figure:
    """One of our numbers and the corresponding number of the paper."""

    row: str  # what was measured, such as "order 1, exact: letters"
    paper: str | float | None  # number in the paper, or its statement in words; None if it gives none
    ours: float | None  # None if there is none, for the reason in the note
    unit: str  # such as "%", "s", "perplexity per token"
    seconds: float | None = None  # time to compute it
    note: str = ""  # reasons for a difference, and conditions for a comparison

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's, for a range such as ``"20 to 25"`` its nearer end; ``None`` without two numbers.

        >>> Figure("states", "20 to 25", 27.0, "states").difference
        2.0
        """
        if self.ours is None or self.paper is None:
            return None
        if not isinstance(self.paper, str):
            return self.ours - self.paper
        ends = RANGE.fullmatch(self.paper)
        if ends is None:
            return None
        low, high = float(ends[1]), float(ends[2] or ends[1])
        return self.ours - min(max(self.ours, low), high)


@dataclass
class Table:
    """Figures in rows."""

    title: str
    columns: list[str]
    rows: list[list[Cell]] = field(default_factory=list)  # one cell per column; None where there is no figure
    notes: list[str] = field(default_factory=list)  # explanations
    curves: list[Curve] = field(default_factory=list)
    axes: tuple[str, str] = ("", "")  # labels of the axes of the curves
    figures: list[Figure] = field(default_factory=list)  # as ``dev reproduce --json`` prints them

    def add(
        self, row: str, paper: str | float | None, ours: float | None, unit: str, seconds: float | None = None,
        note: str = "",
    ) -> None:  # fmt: skip
        """Add a figure."""
        self.figures.append(Figure(row, paper, ours, unit, seconds, note))

    def to_text(self) -> str:
        """Return the table in Markdown with its title and notes."""
        cells = [[_show(cell) for cell in row] for row in [list[Cell](self.columns), *self.rows]]
        widths = [max(len(row[k]) for row in cells) for k in range(len(self.columns))]
        lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in cells]
        lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
        return "\n".join([self.title, "", *lines, *([""] if self.notes else []), *self.notes])

    def quick(self, settings: str) -> "Table":
        """Return a copy that is marked as computed with small settings."""
        figures = [replace(f, note=f"{QUICK}: {f.note}" if f.note else QUICK) for f in self.figures]
        notes = [*self.notes, f"Quick run with small settings ({settings}): not comparable with the paper."]
        return replace(self, title=f"{self.title} ({QUICK})", figures=figures, notes=notes)


def _show(cell: Cell) -> str:
    if isinstance(cell, float):
        return f"{cell:.4g}" if abs(cell) < 1 else f"{cell:,.2f}"
    return "" if cell is None else str(cell)
