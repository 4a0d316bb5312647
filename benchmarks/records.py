"""Records of benchmarks: the last measurement of each case, one JSON object per line.

``docs/records/benchmarks.jsonl`` is such a file; ``make docs-tables`` makes the tables of ``docs/benchmarks.md`` from
it.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.declarations import Case, Contender
from benchmarks.rows import Row

KEY = ("bench", "case", "peer", "threads")  # a new measurement replaces the one with the same values


@dataclass(frozen=True)
class Origin:
    """How rows were measured."""

    command: str
    machine: str
    date: str  # 2026-11-16, or 2026-11 if the day is not known


def conditions(contender: Contender, threads: int, precision: str = "") -> str:
    """Return threads and precision of a contender; ``precision`` is that of one case.

    >>> conditions(Contender("crfsuite", "module:function", precision="float64", one_thread=True), 2)
    '1 thread, float64'
    """
    n = 1 if contender.one_thread else threads
    return ", ".join(filter(None, [f"{n} thread{'s' if n > 1 else ''}", precision or contender.precision]))


def entry(row: Row, ours: Contender, peer: Contender | None, case: Case | None, origin: Origin) -> dict[str, Any]:
    """Return the object of one row: its figures, and the conditions that decide what the ratio means."""
    fields: dict[str, Any] = json.loads(row.to_json())
    fields["conditions"] = conditions(ours, row.threads, case.precision if case else "")
    fields["peer_conditions"] = conditions(peer, row.threads) if peer else None
    fields["stop"] = case.stop if case else ""
    return fields | {"command": origin.command, "machine": origin.machine, "date": origin.date}


def update(path: Path, entries: Sequence[dict[str, Any]]) -> None:
    """Replace the entries with the same key, keep the others, and write the file atomically."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    merged = {_key(old): old for old in map(json.loads, lines)}
    merged |= {_key(new): new for new in entries}
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text("".join(json.dumps(item) + "\n" for item in merged.values()), encoding="utf-8")
    temporary.replace(path)


def _key(fields: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(fields[name] for name in KEY)
