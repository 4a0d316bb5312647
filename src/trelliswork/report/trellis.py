"""The posterior of a sentence as a picture: states by positions, darker is more probable, and the best path."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ShapeError
from trelliswork.report.markup import Html, element, join, percent, shortened, svg, text_width
from trelliswork.report.page import figure, scroll

_ROW, _TOP, _FOOT = 30.0, 8.0, 64.0


def trellis(
    words: Sequence[str],
    states: Sequence[str],
    marginals: Any,
    path: Sequence[str] | None = None,
    gold: Sequence[str] | None = None,
    *,
    title: str = "",
    least: float = 0.01,
    most: int = 20,
) -> Html:
    """A heat map of the posterior marginals of a sentence, with a path drawn over it.

    Parameters
    ----------
    words : list of str (T)
    states : list of str (S)
    marginals : array (T, S), or list of dicts from state to probability
        p(state at t | sentence).
    path : list of str (T), optional
        The decoded labels; the line goes through them.
    gold : list of str (T), optional
        Right labels: a ring marks those that the path misses.
    title : str
    least : float
        States that reach this probability nowhere are left out (unless path or gold need them).
    most : int
        No more states than these, the most probable ones, and those of path and gold.

    Notes
    -----
    On a narrow screen the positions scroll and the states' names stay.
    """
    values = _matrix(words, states, marginals)
    rows = _rows(states, values, {*(path or []), *(gold or [])}, least, most)
    at = {states[s]: _TOP + _ROW * (k + 0.5) for k, s in enumerate(rows)}
    height = _TOP + _ROW * len(rows)
    shown = [shortened(word, 18) for word in words]
    widths = [max(52.0, text_width(word, 14) + 18, text_width(label, 11.5) + 12)
              for word, label in zip(shown, path or [""] * len(words), strict=True)]  # fmt: skip
    left = np.concatenate([[0.0], np.cumsum(widths)])
    parts = [_cell(words[t], states[s], values[t, s], left[t], at[states[s]], widths[t])
             for t in range(len(words)) for s in rows]  # fmt: skip
    centres = [float(left[t] + widths[t] / 2) for t in range(len(words))]
    if path is not None:
        line = "L".join(f"{x:.1f} {at[name]:.1f}" for x, name in zip(centres, path, strict=True))
        parts.append(element("path", d=f"M{line}", class_="path"))
        parts += [element("circle", cx=x, cy=at[name], r=4.0, class_="stop")
                  for x, name in zip(centres, path, strict=True)]  # fmt: skip
    for t, x in enumerate(centres):
        missed = gold is not None and path is not None and gold[t] != path[t]
        if missed and gold is not None and gold[t] in at:  # a label that the model lacks has no row
            ring = element("title", f"gold: {gold[t]}")
            parts.append(element("circle", ring, cx=x, cy=at[gold[t]], r=8.0, class_="gold"))
        parts.append(element("text", shown[t], x=x, y=height + 22, class_="wordtext", text_anchor="middle"))
        if path is not None:
            p = float(values[t, list(states).index(path[t])])
            small = {"x": x, "text_anchor": "middle", "class_": "small mistake" if missed else "small"}
            parts.append(element("text", path[t], y=height + 40, **small))
            parts.append(element("text", percent(p, 0), y=height + 55, **small))
    names = [shortened(states[s], 14) for s in rows]
    margin = max(text_width(name, 13) for name in names) + 16
    labels = [element("text", name, x=margin - 10, y=at[states[s]] + 4.5, class_="label", text_anchor="end")
              for name, s in zip(names, rows, strict=True)]  # fmt: skip
    about = f"Posterior of the sentence {' '.join(shown)}"
    grid = svg(float(left[-1]) + 2, height + _FOOT, *parts, label=about)
    side = svg(margin, height + _FOOT, *labels, label="States")
    note = _note(len(states) - len(rows), path is not None, gold is not None)
    return figure(element("div", side, scroll(grid, label=about), class_="trellis"), title, note)


def _matrix(words: Sequence[str], states: Sequence[str], marginals: Any) -> NDArray[np.float64]:
    if len(marginals) and isinstance(marginals[0], dict):
        marginals = [[row.get(name, 0.0) for name in states] for row in marginals]
    values = np.asarray(marginals, dtype=np.float64)
    if values.shape != (len(words), len(states)):
        raise ShapeError(
            f"marginals must have shape (T, S) = ({len(words)}, {len(states)}), words by states, got {values.shape}."
        )
    return values


def _rows(states: Sequence[str], values: NDArray[np.float64], needed: set[str], least: float, most: int) -> list[int]:
    """Which states are shown, in their order."""
    peak = values.max(axis=0, initial=0.0)
    forced = [s for s, name in enumerate(states) if name in needed]
    rest = [s for s in np.argsort(-peak, kind="stable").tolist() if s not in forced and peak[s] >= least]
    return sorted([*forced, *rest[: max(0, most - len(forced))]])


def _cell(word: str, state: str, p: float, x: float, y: float, width: float) -> Html:
    place = {"x": float(x) + 1, "y": y - _ROW / 2 + 1, "width": width - 2, "height": _ROW - 2, "rx": 3}
    if p < 0.0005:
        return element("rect", class_="empty", **place)
    about = element("title", f"{word}: {state} {percent(p)}")
    # The square root lets small probabilities be told from none.
    shade = element("rect", about, class_="heat", fill_opacity=float(np.sqrt(p)) * 0.85, **place)
    return join([element("rect", class_="empty", **place), shade])


def _note(left_out: int, path: bool, gold: bool) -> str:
    parts = ["Darker is more probable."]
    if path:
        parts.append("The line is the answer, its probability stands below each word.")
    if gold:
        parts.append("Rings mark gold labels that it misses.")
    if left_out:
        parts.append(f"{left_out} less probable {'state is' if left_out == 1 else 'states are'} not shown.")
    return " ".join(parts)
