"""What an experiment returns: a table of figures, and perhaps learning curves."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

Cell = str | float | int | None
Say = Callable[[str], None]  # told how far an experiment is
RANGE = re.compile(r"(-?\d+(?:\.\d+)?)(?: to (-?\d+(?:\.\d+)?))?")  # a paper's number, or a range of them
QUICK = "quick"  # how a note begins whose figure was computed with small settings


@dataclass
class Curve:
    """One line of a picture."""

    name: str
    x: list[float]
    y: list[float]


@dataclass(frozen=True)
class Figure:
    """One number of ours beside the paper's.

    Attributes
    ----------
    row : str
        What was measured, such as ``"order 1, exact: letters"``.
    paper : str, float or None
        The paper's number, or what it says in words; ``None`` if it gives none.
    ours : float or None
        Our number; ``None`` if there is none, and the note says why.
    unit : str
        Such as ``"%"``, ``"s"``, ``"perplexity per token"``.
    seconds : float or None
        What it took.
    note : str
        Why they differ, and what must be known to compare them.
    """

    row: str
    paper: str | float | None
    ours: float | None
    unit: str
    seconds: float | None = None
    note: str = ""

    @property
    def difference(self) -> float | None:
        """Ours less the paper's; of a range such as ``"20 to 25"`` the nearer end; None without two numbers.

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
    """Figures in rows.

    Attributes
    ----------
    title : str
    columns : list of str
    rows : list of lists
        One cell a column; ``None`` where there is no figure.
    notes : list of str
        What must be known to read it.
    curves : list of Curve
    axes : (str, str)
        What the axes of the curves are.
    figures : list of Figure
        Our numbers beside the paper's, one by one: what ``reproduce --json`` prints.
    """

    title: str
    columns: list[str]
    rows: list[list[Cell]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    axes: tuple[str, str] = ("", "")
    figures: list[Figure] = field(default_factory=list)

    def to_text(self) -> str:
        """The table in Markdown, title and notes around it."""
        cells = [[_show(cell) for cell in row] for row in [list[Cell](self.columns), *self.rows]]
        widths = [max(len(row[k]) for row in cells) for k in range(len(self.columns))]
        lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in cells]
        lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
        return "\n".join([self.title, "", *lines, *([""] if self.notes else []), *self.notes])

    def quick(self, settings: str) -> "Table":
        """The same, saying everywhere that the settings were small ones."""
        figures = [replace(f, note=f"{QUICK}: {f.note}" if f.note else QUICK) for f in self.figures]
        notes = [*self.notes, f"Quick, for a look ({settings}): not to be compared with the paper."]
        return replace(self, title=f"{self.title} ({QUICK})", figures=figures, notes=notes)


def _show(cell: Cell) -> str:
    if cell is None:
        return ""
    return (
        f"{cell:.4g}"
        if isinstance(cell, float) and abs(cell) < 1
        else f"{cell:,.2f}"
        if isinstance(cell, float)
        else str(cell)
    )
