"""Make the tables of pages from the records in ``docs/records``.

The table is below a line ``<!-- table: FILE KEY=VALUE ... -->``. Run this module (``make docs-tables``) to rewrite the
tables; ``--check`` only lists the pages whose tables differ.

- ``benchmarks.jsonl bench=NAME``: one line per case, one column per peer with the ratio and the peer's time, and the
  conditions. ``memory=yes`` adds peak memory, ``cases=REGEX`` chooses cases.
- ``results``: what the README shows, one sentence per row.
- ``reproduction.jsonl experiment=NAME`` (or ``NAME+NAME``): a figure's name ``MODEL: MEASURE`` becomes a line and a
  column. ``rows=REGEX`` chooses lines (a group is the name to show), ``columns=A;B`` the columns, ``A=title`` renames
  one. ``split=REGEX`` moves the start of a model's name, its first group, to the columns. ``flat=yes`` makes one line
  of all figures. ``digits=N`` is the number of digits after the point. The number in the paper is in parentheses;
  with ``paper=NAME``, for a paper with other data, it has columns of its own (``NAME, MEASURE``).
"""

import json
import re
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1]
TABLE = re.compile(r"^(<!-- table: (?P<spec>.*?) -->\n)(?:\|.*\n)*", re.MULTILINE)
Entry = dict[str, Any]


def render(text: str) -> str:
    """Return the text of a page with all tables made anew."""
    return TABLE.sub(lambda found: found[1] + "".join(line + "\n" for line in table(found["spec"])), text)


def table(spec: str) -> list[str]:
    """Return the lines of the table that a marker describes."""
    file, *words = shlex.split(spec)
    if file == "results":
        return results()
    options = dict(word.split("=", 1) for word in words)
    entries = records(file)
    key, make = ("bench", benchmark) if "bench" in options else ("experiment", experiment)
    names = options.pop(key).split("+")
    chosen = [entry for entry in entries if entry[key] in names]
    if missing := set(names) - {entry[key] for entry in chosen}:
        raise ValueError(f"{file} has no entry with {key}={' or '.join(sorted(missing))}.")
    return make(chosen, **options)


def records(file: str) -> list[Entry]:
    """Return the lines of a file of records."""
    return [json.loads(line) for line in (DOCS / "records" / file).read_text(encoding="utf-8").splitlines()]


def results() -> list[str]:
    """Return the table of the README: three results, with times and ratios from the records."""
    bench = {(e["bench"], e["case"], e["threads"]): e for e in records("benchmarks.jsonl")}
    trained, tagged = bench["crf", "train ewt-upos, equal objective", 1], bench["tag", "ewt", 1]
    tagging = {(e["experiment"], e.get("row")): e.get("ours") for e in records("reproduction.jsonl")}
    few = [tagging["representations", f"300 sentences, {name}: all words"] for name in ("words alone", "vectors")]

    def race(entry: Entry) -> str:
        ours, theirs = entry["seconds"], entry["peer_seconds"]
        return f"{time(ours)} against {time(theirs)}, {theirs / ours:.1f} times as fast"

    how = "[(how)](docs/benchmarks.md)", "[(how)](docs/tutorials/little_labeled_data.md)"
    tags = f"{number(few[0], '1')} % of the tags are correct, {number(few[1], '1')} % with word vectors from raw text"
    rows = [
        ["The objective of CRFsuite, sooner", f"UD English tags, one thread: {race(trained)} {how[0]}"],
        ["Tagging from file to file", f"1.2 million tokens, one thread: {race(tagged)} {how[0]}"],
        ["Raw text where labels are few", f"300 labeled sentences of UD English: {tags} {how[1]}"],
    ]
    return markdown(["result", "measured"], rows)


def benchmark(entries: list[Entry], cases: str = "", memory: str = "") -> list[str]:
    """Return the table of a benchmark: case, ours, each peer with the ratio, conditions."""
    entries = [e for e in entries if re.search(cases, e["case"])]
    peers = list(dict.fromkeys(e["peer"] for e in entries if e["peer"]))
    # A row has one time of ours: peers that were measured in another run, beside another time, get a row of their own.
    groups: dict[tuple[str, int, float], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry["case"], entry["threads"], entry["seconds"]), []).append(entry)
    rows = []
    for (case, *_), group in groups.items():
        by_peer = {e["peer"]: e for e in group}
        ours = time(group[0]["seconds"], group[0]["peak_mb"] if memory else None)
        rows.append([case, ours, *(_ratio(by_peer.get(peer), memory) for peer in peers), _conditions(group)])
    return markdown(["case", "ours", *peers, "threads, precision, stopping rule"], rows)


def _ratio(entry: Entry | None, memory: str) -> str:
    if entry is None:
        return ""
    if entry["peer_seconds"] is None:
        return str(entry["extra"].get("failed", "failed"))
    ratio = entry["peer_seconds"] / entry["seconds"]
    shown = f"{ratio:#.3g}".rstrip(".") if ratio < 1000 else f"{ratio:,.0f}"
    return f"**{shown}×** {time(entry['peer_seconds'], entry['peer_peak_mb'] if memory else None)}"


def _conditions(group: list[Entry]) -> str:
    ours = group[0]["conditions"]
    others = [f"{e['peer']}: {e['peer_conditions']}" for e in group if e["peer"] and e["peer_conditions"] != ours]
    disturbed = [e["peer"] or "ours" for e in group if e["extra"].get("disturbed")]
    mark = f"other processes were running ({', '.join(disturbed)})" if disturbed else ""
    return "; ".join(filter(None, [ours, *others, group[0]["stop"], mark]))


def time(seconds: float | None, megabytes: float | None = None) -> str:
    """Return a duration, with memory if given: ``1.52 ms, 4.6 MB``."""
    if seconds is None:
        return ""
    size, unit = next(u for u in ((1.0, "s"), (1e-3, "ms"), (0.0, "µs")) if seconds >= u[0])
    shown = f"{seconds / (size or 1e-6):#.3g}".rstrip(".")
    return f"{shown} {unit}" + ("" if megabytes is None else f", {memory_size(megabytes)}")


def memory_size(megabytes: float) -> str:
    """Return an amount of memory: ``24 MB``, ``4.6 MB``, ``1.3 GB``."""
    if megabytes >= 1000:
        return f"{megabytes / 1000:.1f} GB"
    return f"{megabytes:.0f} MB" if megabytes >= 10 else f"{megabytes:.2g} MB"


def experiment(
    entries: list[Entry],
    rows: str = "",
    columns: str = "",
    split: str = "",
    flat: str = "",
    digits: str = "",
    paper: str = "",
) -> list[str]:
    """Return the table of an experiment: one line per model, one column per measure."""
    titles = dict((c.split("=", 1) if "=" in c else (c, c)) for c in columns.split(";") if c)
    cells: dict[str, dict[str, str]] = {}
    for entry in entries:
        if "row" not in entry or not (found := re.search(rows, entry["row"])):
            continue
        model, _, measure = entry["row"].rpartition(": ")
        model, measure = ("", entry["row"]) if flat else (model, measure) if model else (entry["row"], entry["unit"])
        model = found[1] if found.re.groups else model
        if titles and measure not in titles:
            continue
        measure = title = titles.get(measure, measure)
        if split and (prefix := re.match(split, model)):
            model, measure = model[prefix.end() :], f"{prefix[1]}, {measure}"
        cells.setdefault(model, {})[measure] = figure(entry | {"paper": None} if paper else entry, digits)
        if paper and entry["paper"] is not None:
            cells[model][f"{paper}, {title}"] = number(entry["paper"], digits)
    if not cells:
        raise ValueError(f"no figure matches rows={rows!r} and columns={columns!r}.")
    measures = list(dict.fromkeys(measure for line in cells.values() for measure in line))
    if titles and not split:
        measures = [*titles.values(), *(m for m in measures if m not in titles.values())]
    if paper:
        measures.sort(key=lambda measure: measure.startswith(f"{paper}, "))
    lines = [[model, *(line.get(measure, "") for measure in measures)] for model, line in cells.items()]
    if flat:
        return markdown(measures, [line[1:] for line in lines])
    return markdown(["", *measures], lines)


def figure(entry: Entry, digits: str = "") -> str:
    """Return our figure, with that of the paper in parentheses."""
    ours = "" if entry["ours"] is None else number(entry["ours"], digits)
    paper = entry["paper"]
    return ours if paper is None else f"{ours} ({paper if isinstance(paper, str) else number(paper, digits)})"


def number(value: float, digits: str = "") -> str:
    """Return a number: with some digits after the point, or ``1,234.5``, ``92.72``, ``-5.2137``, ``1.1e-16``."""
    size = abs(value)
    if size >= 100 and value == int(value):
        return f"{value:,.0f}"
    if digits:
        return f"{value:,.{digits}f}"
    return format(value, ",.1f" if size >= 100 else ".2f" if size >= 10 else ".4f" if size >= 0.001 else ".2g")


def markdown(header: list[str], rows: Iterable[list[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in [header, *rows]]
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    return [lines[0], "|" + "---|" * len(header), *lines[1:]]


def main(arguments: list[str]) -> int:
    """Rewrite the README and the pages, or with ``--check`` list those that differ."""
    changed = []
    for page in (DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))):
        before = page.read_text(encoding="utf-8")
        after = render(before)
        if after != before:
            changed.append(page)
            if "--check" not in arguments:
                page.write_text(after, encoding="utf-8")
    for page in changed:
        print(page.relative_to(DOCS.parent))
    return int("--check" in arguments and bool(changed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
