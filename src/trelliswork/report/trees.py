"""Trees as pictures: dependencies as arcs over the words, constituents as branches above them."""

from collections.abc import Mapping, Sequence
from itertools import accumulate

from trelliswork.data import Tree
from trelliswork.errors import ShapeError
from trelliswork.report.markup import Html, element, join, percent, shortened, svg, text_width
from trelliswork.report.page import figure, scroll

_STEP = 30.0  # between levels of arcs
_ROUND = 9.0  # of their corners
_SMALL = 11.5
Arc = tuple[int, int]  # head and dependent, from 1; 0 is the root


def dependency_tree(
    words: Sequence[str],
    heads: Sequence[int],
    labels: Sequence[str | None] | None = None,
    probabilities: Sequence[float] | None = None,
    gold: Sequence[int] | None = None,
    tags: Sequence[str] | None = None,
    *,
    title: str = "",
) -> Html:
    """Arcs over the words, from heads to dependents; fainter arcs are less probable.

    Parameters
    ----------
    words : list of str (T)
    heads : list of int (T)
        Of each word, from 1; 0 is the root.
    labels : list of str or None, optional
        Of the arcs.
    probabilities : list of float, optional
        p(arc | sentence), shown with the labels.
    gold : list of int, optional
        Right heads: arcs that differ are marked, and the missed ones are dashed.
    tags : list of str, optional
        Below the words.
    title : str
    """
    T = len(words)
    for name, given in (("heads", heads), ("labels", labels), ("probabilities", probabilities), ("gold", gold)):
        if given is not None and len(given) != T:
            raise ShapeError(f"{name} must have an entry for each of the {T} words, got {len(given)}.")
    if any(not 0 <= head <= T for head in [*heads, *(gold or [])]):
        raise ShapeError(f"heads must lie between 0 (the root) and {T}, got {list(heads)}.")
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
    return figure(scroll(picture, label=name), title, _note(probabilities is not None, gold is not None))


def constituent_tree(
    tree: Tree, probabilities: Mapping[tuple[int, int], float] | None = None, *, title: str = ""
) -> Html:
    """Branches above the words.

    Parameters
    ----------
    tree : Tree
    probabilities : dict of (first, last) to float, optional
        p(span | sentence), both ends included and counted from 0; shown beside the labels, fainter if less probable.
    title : str
    """
    words = [shortened(word, 20) for word in tree.leaves()]
    widths = [max(text_width(word) + 20, 52.0) for word in words]
    ends = list(accumulate(widths))
    centres = [end - width / 2 for end, width in zip(ends, widths, strict=True)]
    nodes = tree.subtrees()
    place: dict[int, tuple[float, int, int, int]] = {}  # of a node: x, height, first and last word
    position = 0
    for node in nodes:
        if isinstance(node.children[0], str):
            place[id(node)] = (centres[position], 0, position, position)
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
        p = None if probabilities is None or first == last else probabilities.get((first, last))
        for child in node.children:
            if isinstance(child, Tree):
                cx, low = place[id(child)][:2]
                inner = element("title", f"{node.label} {percent(p)}") if p is not None else ""
                bend = f"M{x:.1f} {height(level) + 5:.1f}V{height(level) + 11:.1f}H{cx:.1f}V{height(low) - 13:.1f}"
                lines.append(element("path", inner, d=bend, class_="branch", stroke_opacity=_opacity(p)))
        label = node.label if p is None else f"{node.label} {percent(p, 0)}"
        names.append(element("text", label, x=x, y=height(level), class_="small", text_anchor="middle"))
    for word, x in zip(words, centres, strict=True):
        names.append(element("text", word, x=x, y=height(0) + 22, class_="wordtext", text_anchor="middle"))
    about = f"Constituents of {' '.join(words)}"
    picture = svg(ends[-1] + 2, height(0) + 34, *lines, *names, label=about)
    note = "" if probabilities is None else "Percents tell how probable each span is; fainter branches are less so."
    return figure(scroll(picture, label=about), title, note)


def _about(label: str | None, p: float | None) -> str:
    return " ".join([*([label] if label else []), *([percent(p, 0)] if p is not None else [])])


def _opacity(p: float | None) -> float:
    return 1.0 if p is None else 0.25 + 0.75 * p


def _places(words: Sequence[str], tags: Sequence[str] | None, arcs: Sequence[Arc], about: Sequence[str]) -> list[float]:
    """Centres of the words, far enough apart for themselves and for what is written on arcs."""
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
    """Heights of arcs: above all shorter ones that they cover or cross."""
    found: dict[Arc, int] = {}
    for arc in sorted(set(arcs), key=lambda a: (abs(a[0] - a[1]), a)):
        low, high = min(arc), max(arc)
        inside = [level for other, level in found.items() if max(low, min(other)) < min(high, max(other))]
        found[arc] = 1 + max(inside, default=0)
    return found


def _arc(
    xs: Sequence[float], base: float, arc: Arc, level: int | None, about: str, p: float | None, style: str
) -> Html:
    """One arc with its arrow and label; from above for the root."""
    head, dependent = arc
    end = xs[dependent - 1]
    fill = "arrow wrongfill" if "wrong" in style or "missed" in style else "arrow"
    shade = _opacity(p)
    arrow = element("path", d=f"M{end - 4:.1f} {base - 3:.1f}h8l-4 7z", class_=fill, fill_opacity=shade)
    place = {"class_": "small mistake" if "wrong" in style else "small", "text_anchor": "middle"}
    if level is None:
        top = 18.0
        line = f"M{end:.1f} {top:.1f}V{base - 3:.1f}"
        written = element("text", about, x=end, y=top - 5, **place)
        return join([element("path", d=line, class_=style, stroke_opacity=shade), arrow, written])
    towards = 1 if head < dependent else -1
    start = xs[head - 1] + 7 * towards  # beside the arrow that comes to the head
    top = base - _STEP * level
    line = (
        f"M{start:.1f} {base + 2:.1f}V{top + _ROUND:.1f}Q{start:.1f} {top:.1f} {start + _ROUND * towards:.1f} {top:.1f}"
        f"H{end - _ROUND * towards:.1f}Q{end:.1f} {top:.1f} {end:.1f} {top + _ROUND:.1f}V{base - 3:.1f}"
    )
    written = element("text", about, x=(start + end) / 2, y=top - 4, **place)
    return join([element("path", d=line, class_=style, stroke_opacity=shade), arrow, written])


def _note(probabilities: bool, gold: bool) -> str:
    parts = []
    if probabilities:
        parts.append("Percents tell how probable each arc is; fainter ones are less so.")
    if gold:
        parts.append("Wrong arcs are red, those that should be there instead are dashed.")
    return " ".join(parts)
