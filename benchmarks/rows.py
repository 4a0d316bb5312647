"""Results of benchmarks: rows as JSON lines or as a table."""

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any


@dataclass
class Row:
    """Our package against one peer on one case.

    Parameters
    ----------
    bench, case : str
        Names of benchmark and case.
    peer : str or None
        Peer; ``None`` for a row without one.
    threads : int
        Number of threads of both sides.
    seconds, peer_seconds : float or None
        Best repetition of each side; None when it was skipped or failed.
    peak_mb, peer_peak_mb : float or None
        Peak memory of each side, see ``worker.py``.
    extra : dict
        ``skipped`` or ``failed`` with the reason, ``disturbed``, ``interrupted``, and additions of the benchmark.
    """

    bench: str
    case: str
    peer: str | None
    threads: int
    seconds: float | None = None
    peer_seconds: float | None = None
    peak_mb: float | None = None
    peer_peak_mb: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """``peer_seconds / seconds``: above 1, ours is faster."""
        return self.peer_seconds / self.seconds if self.seconds and self.peer_seconds else None

    def to_json(self) -> str:
        """Return the row as one line of JSON, floats rounded to 4 digits."""
        fields = asdict(self) | {"ratio": self.ratio}
        order = ("bench", "case", "peer", "threads", "seconds", "peer_seconds", "ratio", "peak_mb", "peer_peak_mb")
        return json.dumps({name: round_significant(fields[name]) for name in (*order, "extra")})


def round_significant(value: Any, digits: int = 4) -> Any:
    """Round floats, also inside dicts and lists, to significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {key: round_significant(item, digits) for key, item in value.items()}
    if isinstance(value, list):
        return [round_significant(item, digits) for item in value]
    return value


def without_absent(rows: list[Row]) -> tuple[list[Row], dict[str, list[str]]]:
    """Return rows without the peers that were skipped in every row, and these peers by reason.

    A case without another row keeps one, of ours alone. Rows in which ours was skipped are kept.

    Examples
    --------
    >>> rows = [Row("chain", "S=16", "none", 2, 0.001, extra={"skipped": "not installed"})]
    >>> shown, absent = without_absent(rows)
    >>> shown[0].peer, shown[0].seconds, shown[0].extra, absent
    (None, 0.001, {}, {'not installed': ['none']})
    """
    present = {row.peer for row in rows if "skipped" not in row.extra or row.seconds is None}
    absent = {row.peer: row.extra["skipped"] for row in rows if row.peer is not None and row.peer not in present}
    shown: list[Row] = []
    for row in rows:
        if row.peer not in absent:
            shown.append(row)
            continue
        same = [r for r in rows if (r.case, r.threads) == (row.case, row.threads)]
        others = [r for r in same if r.peer is not None and r.peer not in absent]
        if not others and not any(r in shown for r in same) and _own(row) not in shown:
            shown.append(_own(row))
    return shown, {reason: [peer for peer in absent if absent[peer] == reason] for reason in absent.values()}


def _own(row: Row) -> Row:
    """Return the row of ours alone instead of one with an absent peer."""
    return replace(row, peer=None, extra={key: value for key, value in row.extra.items() if key != "skipped"})


def format_table(rows: list[Row]) -> str:
    """Return the rows as an aligned table, the ratio first; threads have a column if their number differs.

    Examples
    --------
    >>> print(format_table([Row("chain", "S=16", "slow", 2, 0.001, 0.0125, 1.0, 25.0)]))
    ratio  case  peer  ours     peer's   MB   peer's MB
    -----  ----  ----  -------  -------  ---  ---------
    12.50  S=16  slow  1.00 ms  12.5 ms  1.0       25.0
    """
    header = ("ratio", "case", "peer", "ours", "peer's", "MB", "peer's MB", "")
    cells = [header, *(_cells(row) for row in rows)]
    if len({row.threads for row in rows}) > 1:
        cells = [
            (*line[:-1], text, line[-1])
            for line, text in zip(cells, ["threads", *(str(row.threads) for row in rows)], strict=True)
        ]
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    cells.insert(1, tuple("-" * width for width in widths))
    to_right = {0, 3, 4, 5, 6}
    lines = []
    for n, line in enumerate(cells):
        justified = (
            cell.rjust(width) if i in to_right and n > 1 else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        lines.append("  ".join(justified).rstrip())
    return "\n".join(lines)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        f"{row.ratio:.2f}" if row.ratio is not None else "-",
        row.case,
        row.peer or "-",
        _format_seconds(row.seconds),
        _format_seconds(row.peer_seconds),
        f"{row.peak_mb:.1f}" if row.peak_mb is not None else "-",
        f"{row.peer_peak_mb:.1f}" if row.peer_peak_mb is not None else "-",
        ", ".join(f"{key}: {value}" for key, value in round_significant(row.extra).items()),
    )


def _format_seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    unit, size = next((u for u in (("s", 1.0), ("ms", 1e-3)) if seconds >= u[1]), ("us", 1e-6))
    digits = f"{seconds / size:#.3g}".rstrip(".")
    return f"{digits} {unit}"
