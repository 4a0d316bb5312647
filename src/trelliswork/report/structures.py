"""Pictures of structures over a sentence: trellises of labels, spans, dependency trees and constituent trees."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Tree
from trelliswork.errors import ShapeError
from trelliswork.report.page import Html, element, figure, join, percent, scroll, shortened, svg, text_width

_ROW, _TOP, _FOOT = 30.0, 8.0, 64.0  # of a trellis: row height, margins
_STEP = 30.0  # between levels of arcs
_ROUND = 9.0  # radius of their corners
_SMALL = 11.5  # font size of labels
LEAST, MOST = 0.01, 20  # probability of states that a trellis shows, and how many
COLORS = 6  # of types of spans, in the stylesheet
Arc = tuple[int, int]  # head and dependent, from 1; 0 is the root


def trellis(
    words: Sequence[str],
    states: Sequence[str],
    marginals: Any,
    path: Sequence[str] | None = None,
    gold: Sequence[str] | None = None,
    *,
    title: str = "",
) -> Html:
    """Draw a heat map of the posterior marginals of a sentence, with a path over it.

    Parameters
    ----------
    words : list of str (T)
    states : list of str (S)
    marginals : array (T, S), or list of dicts from state to probability
        p(state at t | sentence).
    path : list of str (T), optional
        Decoded labels, drawn as a line.
    gold : list of str (T), optional
        Correct labels: a ring marks those that the path misses.
    title : str

    Notes
    -----
    States that are improbable everywhere are left out, except those of path and gold; at most 20 are shown. On a narrow
    screen the positions scroll and the names of the states stay visible.
    """
    values = _matrix(words, states, marginals)
    rows = _rows(states, values, {*(path or []), *(gold or [])})
    at = {states[s]: _TOP + _ROW * (k + 0.5) for k, s in enumerate(rows)}
    height = _TOP + _ROW * len(rows)
    shown = [shortened(word, 18) for word in words]
    widths = [max(52.0, text_width(word, 14) + 18, text_width(label, _SMALL) + 12)
              for word, label in zip(shown, path or [""] * len(words), strict=True)]  # fmt: skip
    left = np.concatenate([[0.0], np.cumsum(widths)])
    parts = [_cell(words[t], states[s], values[t, s], left[t], at[states[s]], widths[t])
             for t in range(len(words)) for s in rows]  # fmt: skip
    centers = [float(x + width / 2) for x, width in zip(left, widths, strict=False)]
    if path is not None:
        stops = [(x, at[name]) for x, name in zip(centers, path, strict=True)]
        line = "L".join(f"{x:.1f} {y:.1f}" for x, y in stops)
        parts.append(element("path", d=f"M{line}", class_="path"))
        parts += [element("circle", cx=x, cy=y, r=4.0, class_="stop") for x, y in stops]
    for t, x in enumerate(centers):
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
    note = ["Darker cells are more probable."]
    if path is not None:
        note.append("The line is the predicted labeling, with its probabilities below the words.")
    if gold is not None:
        note.append("Rings mark gold labels that it misses.")
    if left_out := len(states) - len(rows):
        note.append(f"{left_out} less probable {'state is' if left_out == 1 else 'states are'} not shown.")
    return figure(element("div", side, scroll(grid, label=about), class_="trellis"), title, " ".join(note))


def entities(words: Sequence[str], spans: Iterable[tuple[str, int, int, float | None]], types: Sequence[str]) -> Html:
    """Draw spans (type, start, stop, probability) in running text; ``types`` are all types, which decide the colors."""
    parts: list[object] = []
    done = 0
    for kind, start, stop, p in spans:
        about = element("small", kind if p is None else f"{kind} {percent(p, 0)}")
        inside = " ".join(map(shortened, words[start:stop]))
        color = f"e{types.index(kind) % COLORS}" if kind in types else None
        parts += [" ".join([*map(shortened, words[done:start]), ""]), element("mark", inside, about, class_=color), " "]
        done = stop
    return element("p", *parts, " ".join(map(shortened, words[done:])), class_="entities")


def _matrix(words: Sequence[str], states: Sequence[str], marginals: Any) -> NDArray[np.float64]:
    if len(marginals) and isinstance(marginals[0], dict):
        marginals = [[row.get(name, 0.0) for name in states] for row in marginals]
    values = np.asarray(marginals, dtype=np.float64)
    if values.shape != (len(words), len(states)):
        raise ShapeError(
            f"marginals must have shape (T, S) = ({len(words)}, {len(states)}), words by states, got {values.shape}."
        )
    return values


def _rows(states: Sequence[str], values: NDArray[np.float64], needed: set[str]) -> list[int]:
    """Return the states to show, in their order."""
    peak = values.max(axis=0, initial=0.0)
    forced = [s for s, name in enumerate(states) if name in needed]
    rest = [s for s in np.argsort(-peak, kind="stable").tolist() if s not in forced and peak[s] >= LEAST]
    return sorted([*forced, *rest[: max(0, MOST - len(forced))]])


def _cell(word: str, state: str, p: float, x: float, y: float, width: float) -> Html:
    place = {"x": float(x) + 1, "y": y - _ROW / 2 + 1, "width": width - 2, "height": _ROW - 2, "rx": 3}
    empty = element("rect", class_="empty", **place)
    if p < 0.0005:
        return empty
    about = element("title", f"{word}: {state} {percent(p)}")
    # The square root makes small probabilities visible.
    return join([empty, element("rect", about, class_="heat", fill_opacity=float(np.sqrt(p)) * 0.85, **place)])


def dependency_tree(
    words: Sequence[str],
    heads: Sequence[int],
    labels: Sequence[str | None] | None = None,
    probabilities: Sequence[float] | None = None,
    gold: Sequence[int] | None = None,
    tags: Sequence[str] | None = None,
) -> Html:
    """Draw arcs over the words, from heads to dependents; fainter arcs are less probable.

    Parameters
    ----------
    words : list of str (T)
    heads : list of int (T)
        Head of each word, from 1; 0 is the root.
    labels : list of str or None, optional
        Labels of the arcs.
    probabilities : list of float, optional
        p(arc | sentence), shown with the labels.
    gold : list of int, optional
        Correct heads: wrong arcs are marked, missed arcs are dashed.
    tags : list of str, optional
        Shown below the words.
    """
    T = len(words)
    for name, given in (("heads", heads), ("labels", labels), ("probabilities", probabilities), ("gold", gold)):
        if given is not None and len(given) != T:
            raise ShapeError(f"{name} must have an entry for each of the {T} words, got {len(given)}.")
    if any(not 0 <= head <= T for head in [*heads, *(gold or [])]):
        raise ShapeError(f"heads must be between 0 (the root) and {T}, got {list(heads)}.")
    shown = [shortened(word, 20) for word in words]
    about = [_about(labels[t] if labels else None, probabilities[t] if probabilities else None) for t in range(T)]
    arcs: list[Arc] = [(heads[t], t + 1) for t in range(T)]
    missed: list[Arc] = [(g, t + 1) for t, g in enumerate(gold or []) if g != heads[t]]
    xs = _places(shown, tags, arcs, about)
    levels = _levels([arc for arc in [*arcs, *missed] if arc[0]])
    base = _STEP * (max(levels.values(), default=0) + 1) + 22
    parts = [_arc(xs, base, arc, levels.get(arc), "", None, "missed") for arc in missed]
    for t, arc in enumerate(arcs):
        right = gold is None or gold[t] == heads[t]
        p = probabilities[t] if probabilities else 1.0
        parts.append(_arc(xs, base, arc, levels.get(arc), about[t], p, "arc" if right else "arc wrong"))
    for t, word in enumerate(shown):
        parts.append(element("text", word, x=xs[t], y=base + 20, class_="wordtext", text_anchor="middle"))
        if tags is not None:
            parts.append(element("text", tags[t], x=xs[t], y=base + 38, class_="small", text_anchor="middle"))
    wide = xs[-1] + text_width(shown[-1]) / 2 + 34 if T else 40.0
    name = f"Dependencies of {' '.join(shown)}"
    picture = svg(wide, base + (48 if tags is not None else 30), *parts, label=name)
    note = ["Percentages are probabilities of arcs; fainter arcs are less probable."] if probabilities else []
    if gold is not None:
        note.append("Wrong arcs are red, missed arcs are dashed.")
    return figure(scroll(picture, label=name), note=" ".join(note))


def constituent_tree(
    tree: Tree, probabilities: Mapping[tuple[int, int], float] | None = None, *, title: str = ""
) -> Html:
    """Draw branches above the words.

    Parameters
    ----------
    tree : Tree
    probabilities : dict of (start, stop) to float, optional
        p(span | sentence), counted from 0 and ``stop`` excluded; shown with the labels, fainter if less probable.
    title : str
    """
    words = [shortened(word, 20) for word in tree.leaves()]
    widths = [max(text_width(word) + 20, 52.0) for word in words]
    ends = list(accumulate(widths))
    centers = [end - width / 2 for end, width in zip(ends, widths, strict=True)]
    nodes = tree.subtrees()
    place: dict[int, tuple[float, int, int, int]] = {}  # of a node: x, height, first and last word
    position = 0
    for node in nodes:
        if isinstance(node.children[0], str):
            place[id(node)] = (centers[position], 0, position, position)
            position += 1
    for node in reversed(nodes):
        if id(node) not in place:
            below = [place[id(child)] for child in node.children]
            x = (below[0][0] + below[-1][0]) / 2
            place[id(node)] = (x, 1 + max(b[1] for b in below), below[0][2], below[-1][3])
    top = place[id(tree)][1]

    def height(level: int) -> float:
        return 22 + 38.0 * (top - level)

    lines, names = [], []
    for node in nodes:
        x, level, first, last = place[id(node)]
        p = None if probabilities is None or first == last else probabilities.get((first, last + 1))
        for child in node.children:
            if isinstance(child, Tree):
                cx, low = place[id(child)][:2]
                inner = element("title", f"{node.label} {percent(p)}") if p is not None else ""
                bend = f"M{x:.1f} {height(level) + 5:.1f}V{height(level) + 11:.1f}H{cx:.1f}V{height(low) - 13:.1f}"
                lines.append(element("path", inner, d=bend, class_="branch", stroke_opacity=_opacity(p)))
        label = node.label if p is None else f"{node.label} {percent(p, 0)}"
        names.append(element("text", label, x=x, y=height(level), class_="small", text_anchor="middle"))
    for word, x in zip(words, centers, strict=True):
        names.append(element("text", word, x=x, y=height(0) + 22, class_="wordtext", text_anchor="middle"))
    about = f"Constituents of {' '.join(words)}"
    picture = svg(ends[-1] + 2, height(0) + 34, *lines, *names, label=about)
    note = "Percentages are probabilities of spans; fainter branches are less probable."
    return figure(scroll(picture, label=about), title, "" if probabilities is None else note)


def automaton(
    arrows: Mapping[Arc, str], loops: Sequence[str], accepting: Sequence[bool], *, title: str = "", note: str = ""
) -> Html:
    """Draw a finite automaton: its states in a row, arrows above them.

    Parameters
    ----------
    arrows : dict of (state, state) to str
        What leads from one state to another; states are numbered from 1, which is the start.
    loops : list of str
        What each state reads without leaving it, shown below the state.
    accepting : list of bool
        Whether a sequence may end in each state: these have two rings.
    title, note : str
    """
    step = max([44.0, *(text_width(text, _SMALL) + 40 for text in [*arrows.values(), *loops])])
    xs, levels = [step * (q + 0.5) for q in range(len(loops))], _levels(list(arrows))
    base = _STEP * (max(levels.values(), default=0) + 1)
    parts = [_arc(xs, base, arc, levels[arc], text, None, "arc") for arc, text in arrows.items()]
    for x, loop, ends in zip(xs, loops, accepting, strict=True):
        parts += [element("circle", cx=x, cy=base + 15, r=r, class_="stop") for r in (11.0, 7.0)[: 1 + ends]]
        again = f"↻ {loop}" if loop else ""
        parts.append(element("text", again, x=x, y=base + 44, class_="small", text_anchor="middle"))
    return figure(scroll(svg(step * len(xs), base + 54, *parts, label="Automaton"), label="Automaton"), title, note)


def _about(label: str | None, p: float | None) -> str:
    return " ".join([*([label] if label else []), *([percent(p, 0)] if p is not None else [])])


def _opacity(p: float | None) -> float:
    return 1.0 if p is None else 0.25 + 0.75 * p


def _places(words: Sequence[str], tags: Sequence[str] | None, arcs: Sequence[Arc], about: Sequence[str]) -> list[float]:
    """Return the centers of the words, far enough apart for the words and the texts of arcs."""
    below = [max(text_width(word), text_width(tag, _SMALL)) for word, tag in zip(words, tags or words, strict=True)]
    xs: list[float] = []
    for t, width in enumerate(below):
        root = text_width(about[t], _SMALL) + 12 if arcs[t][0] == 0 else 0.0
        half = max(width, root) / 2
        xs.append(half + 8 if not xs else max(xs[-1] + below[t - 1] / 2 + width / 2 + 18, xs[-1] + half + 12))
    for head, dependent in sorted((a for a in arcs if a[0]), key=lambda a: abs(a[0] - a[1])):
        left, right = min(head, dependent) - 1, max(head, dependent) - 1
        lacking = text_width(about[dependent - 1], _SMALL) + 26 - (xs[right] - xs[left])
        if lacking > 0:
            xs[right:] = [x + lacking for x in xs[right:]]
    return xs


def _levels(arcs: Sequence[Arc]) -> dict[Arc, int]:
    """Return the heights of arcs: above all shorter arcs that they cover or cross."""
    levels: dict[Arc, int] = {}
    for arc in sorted(set(arcs), key=lambda a: (abs(a[0] - a[1]), a)):
        low, high = min(arc), max(arc)
        inside = [level for other, level in levels.items() if max(low, min(other)) < min(high, max(other))]
        levels[arc] = 1 + max(inside, default=0)
    return levels


def _arc(
    xs: Sequence[float], base: float, arc: Arc, level: int | None, about: str, p: float | None, style: str
) -> Html:
    """Return one arc with its arrow and label; an arc from the root comes from above."""
    head, dependent = arc
    end = xs[dependent - 1]
    fill = "arrow wrongfill" if "wrong" in style or "missed" in style else "arrow"
    shade = _opacity(p)
    arrow = element("path", d=f"M{end - 4:.1f} {base - 3:.1f}h8l-4 7z", class_=fill, fill_opacity=shade)
    place = {"class_": "small mistake" if "wrong" in style else "small", "text_anchor": "middle"}
    if level is None:
        line = f"M{end:.1f} 18.0V{base - 3:.1f}"
        written = element("text", about, x=end, y=13.0, **place)
    else:
        towards = 1 if head < dependent else -1
        start = xs[head - 1] + 7 * towards  # beside the arrow that ends at the head
        top = base - _STEP * level
        line = (
            f"M{start:.1f} {base + 2:.1f}V{top + _ROUND:.1f}"
            f"Q{start:.1f} {top:.1f} {start + _ROUND * towards:.1f} {top:.1f}"
            f"H{end - _ROUND * towards:.1f}Q{end:.1f} {top:.1f} {end:.1f} {top + _ROUND:.1f}V{base - 3:.1f}"
        )
        written = element("text", about, x=(start + end) / 2, y=top - 4, **place)
    return join([element("path", d=line, class_=style, stroke_opacity=shade), arrow, written])
