"""Charts as SVG: lines such as learning curves, and reliability diagrams."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from trelliswork.errors import ShapeError
from trelliswork.metrics.calibration import Bin, calibration_error
from trelliswork.report.page import Html, element, figure, join, number, percent, svg, text_width

WIDTH, HEIGHT = 460.0, 260.0  # small, so that text is readable on a phone
_POINTS = 400  # maximum per line: more cannot be distinguished
_STYLES = 4  # line styles in the stylesheet


def line_chart(
    lines: Sequence[tuple[str, Sequence[float], Sequence[float]]],
    *,
    x: str,
    y: str,
    title: str = "",
    best: str | None = None,
) -> Html:
    """Draw lines over a common axis, such as learning curves.

    Parameters
    ----------
    lines : list of (name, xs, ys)
        Numbers that are not finite are left out. Four lines can be distinguished.
    x, y : str
        Names of the axes.
    title : str
    best : {"min", "max"}, optional
        Mark the lowest or highest point of each line and name it in the legend.

    Returns
    -------
    Html
        Empty if there are no points.
    """
    drawn = [(name, _points(name, xs, ys)) for name, xs, ys in lines]
    drawn = [(name, points) for name, points in drawn if points]
    if not drawn:
        return Html("")
    everything = [point for _, points in drawn for point in points]
    y_ticks = ticks(min(p[1] for p in everything), max(p[1] for p in everything))
    whole = all(float(p[0]).is_integer() for p in everything)
    x_low, x_high = min(p[0] for p in everything), max(p[0] for p in everything)
    x_ticks = [t for t in ticks(x_low, x_high, 6) if x_low <= t <= x_high and (not whole or t == int(t))]
    left = 34 + max(text_width(short(t), 12) for t in y_ticks)
    box = _Box(left, 12, WIDTH - 14, HEIGHT - 44, (x_low, x_high), (y_ticks[0], y_ticks[-1]))
    parts = [_axes(box, x_ticks, y_ticks, x, y)]
    legend = []
    for k, (name, points) in enumerate(drawn):
        style = k % _STYLES
        parts.append(element("path", d=_path(box, points), class_=f"curve c{style}"))
        if len(points) <= 12:
            parts += [_dot(box, p, name, style) for p in points]
        about = name
        if best is not None:
            chosen = (min if best == "min" else max)(points, key=lambda p: p[1])
            parts.append(_dot(box, chosen, f"{name}, best", style, 4.5))
            about += f", best {number(chosen[1])} at {number(_whole(chosen[0]))}"
        sample = element("path", d="M0 5H26", class_=f"curve c{style}")
        legend.append(element("span", svg(26, 10, sample, label=""), about))
    shown = svg(WIDTH, HEIGHT, *parts, label=f"{title or y}: {y} by {x}", class_="chart")
    below = [element("span", *legend, class_="legend")] if len(drawn) > 1 or best is not None else []
    return figure(shown, title, join(below))


def calibration(bins: Sequence[Bin], *, title: str = "", what: str = "tokens") -> Html:
    """Draw a reliability diagram: the fraction of correct answers by their probability, above a histogram.

    Parameters
    ----------
    bins : list of Bin
        From ``metrics.calibration.reliability``.
    title : str
    what : str
        Name of the answers.
    """
    if not bins:
        return Html("")
    size, strip = 320.0, 44.0
    tenths = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    box = _Box(58, 12, size, size - 46, (0.0, 1.0), (0.0, 1.0))
    parts = [_axes(box, tenths, tenths, "", "correct", as_percent=True)]
    parts.append(element("path", d=f"M{box.x(0):g} {box.y(0):g}L{box.x(1):g} {box.y(1):g}", class_="ideal"))
    parts.append(element("path", d=_path(box, [(b.probability, b.accuracy) for b in bins]), class_="curve"))
    most = max(b.count for b in bins)
    base = size + strip
    for b in bins:
        about = f"probability {percent(b.probability)}, correct {percent(b.accuracy)}: {b.count:,} {what}"
        at = {"cx": box.x(b.probability), "cy": box.y(b.accuracy), "r": 2.5 + 3 * math.sqrt(b.count / most)}
        parts.append(element("circle", element("title", about), class_="dot", **at))
        tall = max(1.0, strip * b.count / most)
        bar = {"x": box.x(b.probability) - 7, "y": base - tall, "width": 14.0, "height": tall}
        parts.append(element("rect", element("title", about), class_="count", **bar))
    parts.append(element("path", d=f"M{box.left:g} {base:g}H{box.right:g}", class_="axis"))
    parts.append(
        element("text", "probability given by the model", x=box.right, y=base + 18, class_="name", text_anchor="end")
    )
    parts.append(element("text", what, x=box.left - 8, y=base - 2, class_="tick", text_anchor="end"))
    label = f"{title or 'Calibration'}: correct by probability"
    shown = svg(size + 22, base + 26, *parts, label=label, class_="chart square")
    error = f"Calibration error {percent(calibration_error(bins), 2)} over {sum(b.count for b in bins):,} {what}."
    return figure(shown, title, f"{error} On the dotted line, probabilities are correct.")


class _Box(NamedTuple):
    """Mapping of numbers to positions in a picture."""

    left: float
    top: float
    right: float
    bottom: float
    xs: tuple[float, float]
    ys: tuple[float, float]

    def x(self, value: float) -> float:
        low, high = self.xs
        return self.left + (0.5 if low == high else (value - low) / (high - low)) * (self.right - self.left)

    def y(self, value: float) -> float:
        return self.bottom + (value - self.ys[0]) / (self.ys[1] - self.ys[0]) * (self.top - self.bottom)


def _axes(
    box: _Box, x_ticks: Sequence[float], y_ticks: Sequence[float], x: str, y: str, as_percent: bool = False
) -> Html:
    show = (lambda v: f"{100 * v:.0f} %") if as_percent else short
    parts = []
    for tick in y_ticks:
        parts.append(element("path", d=f"M{box.left:g} {box.y(tick):.2f}H{box.right:g}", class_="grid"))
        parts.append(element("text", show(tick), x=box.left - 8, y=box.y(tick) + 4, class_="tick", text_anchor="end"))
    for tick in x_ticks:
        parts.append(element("text", show(tick), x=box.x(tick), y=box.bottom + 18, class_="tick", text_anchor="middle"))
    parts.append(element("path", d=f"M{box.left:g} {box.bottom:g}H{box.right:g}", class_="axis"))
    parts.append(element("text", x, x=box.right, y=box.bottom + 36, class_="name", text_anchor="end"))
    middle = (box.top + box.bottom) / 2
    turned = f"rotate(-90 12 {middle:g})"
    parts.append(element("text", y, x=12.0, y=middle, class_="name", text_anchor="middle", transform=turned))
    return join(parts)


def _points(name: str, xs: Sequence[float], ys: Sequence[float]) -> list[tuple[float, float]]:
    """Return the finite points of a line, thinned if there are many; the first and last are kept."""
    if len(xs) != len(ys):
        raise ShapeError(f"line {name!r} must have as many xs as ys, got {len(xs)} and {len(ys)}.")
    points = [(float(a), float(b)) for a, b in zip(xs, ys, strict=True) if math.isfinite(a) and math.isfinite(b)]
    if len(points) <= _POINTS:
        return points
    last = len(points) - 1
    return [points[round(i * last / (_POINTS - 1))] for i in range(_POINTS)]


def _path(box: _Box, points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{box.x(a):.1f} {box.y(b):.1f}" for a, b in points)


def _dot(box: _Box, point: tuple[float, float], name: str, style: int, radius: float = 3.0) -> Html:
    about = f"{name}: {number(point[1])} at {number(_whole(point[0]))}"
    at = {"cx": box.x(point[0]), "cy": box.y(point[1]), "r": radius}
    return element("circle", element("title", about), class_=f"dot d{style}", **at)


def _whole(value: float) -> int | float:
    return int(value) if value.is_integer() else value


def ticks(low: float, high: float, n_ticks: int = 5) -> list[float]:
    """Return round numbers from at most ``low`` to at least ``high``, in steps of 1, 2 or 5 times a power of ten.

    Examples
    --------
    >>> ticks(0.0, 97.0)
    [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
    """
    if low == high:
        margin = abs(low) / 10 or 1.0
        low, high = low - margin, high + margin
    rough = (high - low) / n_ticks
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = max(0, -math.floor(math.log10(step)))
    return [round(k * step, digits) for k in range(first, last + 1)]


def short(value: float) -> str:
    """Format a number for an axis.

    Examples
    --------
    >>> short(1500000.0), short(20000.0), short(0.25), short(-3.0)
    ('1.5M', '20k', '0.25', '−3')
    """
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{letter}".replace("-", "−")
    return f"{value:g}".replace("-", "−")
