"""PNG pictures, drawn with matplotlib without a display."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import DataError, ShapeError

INK = "#1f2933"
PAPER = "#fcfcf9"


def heat_map(values: NDArray[np.floating], names: list[str], path: str | os.PathLike[str], *, title: str) -> None:
    """Draw a square matrix (S, S) with named rows and columns to a PNG file; darker is larger.

    The shade is the square root of the value, so that small values are visible.
    """
    S = len(names)
    if values.shape != (S, S):
        raise ShapeError(f"values must have shape ({S}, {S}), one row and column per name, got {values.shape}.")
    size = float(np.clip(1.6 + 0.17 * S, 4.0, 30.0))
    figure, axes = _figure(path, (size, size))
    from matplotlib.colors import LinearSegmentedColormap

    colormap = LinearSegmentedColormap.from_list("ink", [PAPER, "#7fa6b8", "#1d4e66", INK])
    axes.imshow(np.sqrt(values), cmap=colormap, vmin=0, vmax=max(1e-12, float(np.sqrt(values.max()))))
    font = 7 if S <= 80 else 4
    axes.set_xticks(range(S), names, rotation=90, fontsize=font, color=INK)
    axes.set_yticks(range(S), names, fontsize=font, color=INK)
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_title(title, fontsize=9, color=INK, loc="left", pad=10)
    _save(figure, path)


def _figure(path: str | os.PathLike[str], size: tuple[float, float]) -> tuple[Any, Any]:
    """Return an empty figure and its axes, after checking the path."""
    check_picture(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, facecolor=PAPER)
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot(facecolor=PAPER)


def check_picture(path: str | os.PathLike[str]) -> None:
    """Raise an error if a picture cannot be written to a path; called before long computations."""
    if Path(path).suffix.lower() != ".png":
        raise DataError(f"{path}: expected a file name that ends in .png.")
    if not Path(path).resolve().parent.is_dir():
        raise DataError(f"{path}: the directory does not exist.")


def _save(figure: Any, path: str | os.PathLike[str]) -> None:
    """Write a figure to a temporary file and rename it."""
    fresh = Path(path).with_name(f".{Path(path).name}.tmp")
    try:
        figure.savefig(fresh, format="png", dpi=150, bbox_inches="tight")
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def curves(
    lines: list[tuple[str, list[float], list[float]]],
    path: str | os.PathLike[str],
    *,
    title: str,
    axes: tuple[str, str],
) -> None:
    """Draw lines (name, x, y) with a legend to a PNG file."""
    figure, plot = _figure(path, (8.0, 4.8))
    shades = ["#1d4e66", "#c4553b", "#5b8c5a", "#8b6fb0", "#c99a2e", "#7a7f87"]
    styles = ["-", "--", "-.", ":"]
    for k, (name, x, y) in enumerate(lines):
        plot.plot(x, y, styles[k // len(shades) % 4], color=shades[k % len(shades)], linewidth=1.6, label=name)
    plot.set_xlabel(axes[0], fontsize=9, color=INK)
    plot.set_ylabel(axes[1], fontsize=9, color=INK)
    plot.tick_params(labelsize=8, colors=INK)
    plot.grid(color="#e3e3dc", linewidth=0.6)
    for side in ("top", "right"):
        plot.spines[side].set_visible(False)
    plot.legend(fontsize=8, frameon=False)
    plot.set_title(title, fontsize=9, color=INK, loc="left", pad=10)
    _save(figure, path)
