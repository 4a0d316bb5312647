"""Tables: facts, numbers, bars, words with numbers, and confusion matrices."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trelliswork.errors import ShapeError
from trelliswork.report.page import Html, element, figure, join, number, scroll, shortened, text

CONFUSED = 12  # labels of a confusion matrix
_NUMBER = re.compile(r"[-−–∞\d.,]+( %)?")


def facts(rows: Iterable[tuple[str, object]], *, title: str = "") -> Html:
    """Return a table of names and values, one pair per line."""
    lines = [element("tr", element("th", name, scope="row"), element("td", shown_value(value))) for name, value in rows]
    return figure(_grid(lines, class_="facts"), title) if lines else Html("")


def _grid(lines: Sequence[Html], head: Sequence[Html] = (), class_: str | None = None) -> Html:
    """Return a table of rows, below a row of headers if there are any."""
    above = [element("thead", element("tr", *head))] if head else []
    return element("table", *above, element("tbody", *lines), class_=class_)


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "", digits: int = 4) -> Html:
    """Return a table: columns of numbers are aligned to the right, all others to the left.

    Parameters
    ----------
    headers : list of str
    rows : lists of str, int, float, None or Html
        A column is numeric if no cell contains other text; ``97.1 %`` is a number too.
    digits : int
        Number of decimals.
    """
    body = [list(row) for row in rows]
    for row in body:
        if len(row) != len(headers):
            raise ShapeError(f"each row must have a cell for each of the {len(headers)} headers, got {len(row)}.")
    if not body:
        return Html("")
    numeric = [all(_numeric(row[c]) for row in body) for c in range(len(headers))]
    head = [
        element("th", h, class_="number" if n else None, scope="col") for h, n in zip(headers, numeric, strict=True)
    ]
    lines = []
    for row in body:
        shown = [value if isinstance(value, str) else number(value, digits) for value in row]
        classes = ["number" if n else "word" for n in numeric]
        lines.append(element("tr", *(element("td", s, class_=c) for s, c in zip(shown, classes, strict=True))))
    return figure(scroll(_grid(lines, head), label=title or headers[0]), title)


def _numeric(cell: object) -> bool:
    return not isinstance(cell, str) or (not isinstance(cell, Html) and bool(_NUMBER.fullmatch(cell)))


def bars(
    rows: Sequence[tuple[str, float]], *, title: str = "", headers: tuple[str, str] = ("", ""), digits: int = 3
) -> Html:
    """Return names with bars and numbers; bars of negative numbers have another color.

    Parameters
    ----------
    rows : list of (name, value)
    """
    most = max((abs(value) for _, value in rows), default=0.0) or 1.0
    lines = [
        element(
            "tr",
            element("td", shortened(name, 48), class_="word"),
            element("td", _bar(value / most), class_="bar"),
            element("td", number(value, digits), class_="number"),
        )
        for name, value in rows
    ]
    if not lines:
        return Html("")
    head = [element("th", headers[0]), element("th"), element("th", headers[1], class_="number")]
    return figure(_grid(lines, head if any(headers) else (), "wide bars"), title)


def _bar(share: float) -> Html:
    return element("span", class_="below" if share < 0 else None, style=f"width:{100 * abs(share):.1f}%")


def word_lists(
    lists: Mapping[str, Sequence[tuple[Any, float]]],
    *,
    title: str = "",
    headers: tuple[str, str] = ("", ""),
    digits: int = 2,
) -> Html:
    """Return a table with one line per name: words, each with a number (neighbors, words of states, rules).

    Parameters
    ----------
    lists : dict of str to list of (word, number)
    """
    lines = []
    for name, words in lists.items():
        cell = element("td", terms([(word, number(value, digits)) for word, value in words]), class_="word")
        lines.append(element("tr", element("th", shortened(name, 18), scope="row"), cell))
    if not lines:
        return Html("")
    head = [element("th", h, scope="col") for h in headers] if any(headers) else []
    return figure(_grid(lines, head, "wide"), title)


def terms(words: Sequence[tuple[Any, str]]) -> Html:
    """Return words in a row, each followed by a small text, such as its probability."""
    shown = [element("span", shortened(str(word), 32), element("i", about)) for word, about in words]
    return element("span", *shown, class_="terms") if shown else text("–")


def confusion(gold: Iterable[str], predicted: Iterable[str], *, title: str = "") -> Html:
    """Return how often each gold label (rows) got each label (columns), for the labels with most errors.

    Parameters
    ----------
    gold, predicted : iterables of str
        One label per token.
    """
    pairs = Counter(zip(gold, predicted, strict=True))
    errors = {pair: n for pair, n in pairs.items() if pair[0] != pair[1]}
    wrong: Counter[str] = Counter()
    for (g, p), n in errors.items():
        wrong.update({g: n, p: n})
    chosen = sorted(sorted(wrong, key=lambda label: (-wrong[label], label))[:CONFUSED])
    if not chosen:
        return Html("")
    between = [errors.get((g, p), 0) for g in chosen for p in chosen]
    peak = max(between) or 1
    head = [element("th", ""), *(element("th", shortened(p, 12), scope="col") for p in chosen)]
    lines = []
    for g in chosen:
        cells = [_count(pairs[g, p], peak, g == p) for p in chosen]
        lines.append(element("tr", element("th", shortened(g, 12), scope="row"), *cells))
    shown = f"{sum(between):,} of {sum(errors.values()):,} errors are between these labels."
    note = f"Rows are gold labels, columns are predictions: {shown}"
    return figure(scroll(_grid(lines, head, "confusion"), label=title or "Confusion matrix"), title, note)


def _count(n: int, peak: int, right: bool) -> Html:
    if right or not n:
        return element("td", f"{n:,}" if right else "·", class_="right")
    strength = 10 + 55 * n / peak
    return element("td", f"{n:,}", style=f"background:color-mix(in srgb, var(--error) {strength:.0f}%, transparent)")


def shown_value(value: object) -> object:
    """Return a fact or setting as text."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {shown_value(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(str(shown_value(v)) for v in value)
    if isinstance(value, float) and abs(value) < 1000:
        return f"{value:.5g}"  # settings: 1, not 1.0000
    return number(value) if value is None or isinstance(value, bool | int | float) else str(value)


def code(typed: str) -> Html:
    """Return text in a fixed-width font, such as a command."""
    return element("pre", typed)


def folded(summary: str, *blocks: object) -> Html:
    """Return blocks that are hidden until the summary is clicked; a str becomes a paragraph."""
    shown = [block if isinstance(block, Html) else element("p", block) for block in blocks if block]
    return element("details", element("summary", summary), join(shown)) if shown else Html("")
