"""Times and ratios on pages round what records have; the tables are generated (``test_pages``)."""

import json
import re
from functools import cache

from tests.conftest import ROOT

FIGURE = re.compile(
    r"(?<![\w.,/=-])(\d[\d,]*(?:\.\d+)?)(?: (?:CPU )?(µs|ms|s|seconds|minutes|times as fast|tokens per second)\b|(×))"
)
UNITS = {"µs": 1e-6, "ms": 1e-3, "minutes": 60.0}


@cache
def recorded(kind: str) -> list[float]:
    """Return what records have of a kind: times, ratios, or tokens per second."""
    numbers: list[float] = []
    for path in (ROOT / "docs" / "records").glob("*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            if kind == "ratio":
                numbers += [entry["ratio"]] if entry.get("ratio") else []
                continue
            for taken, side in (("seconds", "ours"), ("peer_seconds", "theirs")):
                counts = (entry.get("extra") or {}).get(side) or {}
                seconds = [entry[taken]] if entry.get(taken) else []
                if kind == "time":
                    numbers += seconds + [n for name, n in counts.items() if name.endswith("cpu_seconds")]
                else:
                    numbers += [counts["tokens"] / s for s in seconds if "tokens" in counts]
    return numbers


def typed(text: str) -> list[str]:
    """Return the figures of a page, outside of generated tables and code, that round no recorded number."""
    text = re.sub(r"^<!-- table:.*\n(?:\|.*\n)*", "", text, flags=re.MULTILINE)
    text = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    found = []
    for match in FIGURE.finditer(text):
        shown, unit = match[1].replace(",", ""), match[2] or match[3]
        kind = {"tokens per second": "rate", "times as fast": "ratio", "×": "ratio"}.get(unit, "time")
        digits = len(shown.partition(".")[2])
        step = 0.5 * 10.0 ** (-digits if digits else len(shown) - len(shown.rstrip("0")))
        if not any(abs(number / UNITS.get(unit, 1.0) - float(shown)) <= 1.001 * step for number in recorded(kind)):
            found.append(match[0])
    return found


def test_figures_of_pages_have_records():
    found = {}
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if figures := typed(page.read_text(encoding="utf-8")):
            found[page.relative_to(ROOT).as_posix()] = figures
    assert not found, f"measure with --record, or delete: {found}"
