"""Pictures, drawn with matplotlib without a display."""

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import DataError, ShapeError

INK = "#1f2933"
PAPER = "#fcfcf9"


def heat_map(values: NDArray[np.floating], names: list[str], path: str | os.PathLike[str], *, title: str) -> None:
    """Draw a square matrix (S, S) with named rows and columns to a PNG file; darker is larger.

    Values are drawn by their square root, so that small ones can be told from nothing.
    """
    S = len(names)
    if values.shape != (S, S):
        raise ShapeError(f"values must have shape ({S}, {S}), one row and column a name, got {values.shape}.")
    if Path(path).suffix.lower() != ".png":
        raise DataError(f"{path}: a file name that ends in .png is wanted.")
    if not Path(path).resolve().parent.is_dir():
        raise DataError(f"{path}: its directory does not exist.")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    size = float(np.clip(1.6 + 0.17 * S, 4.0, 30.0))
    figure = Figure(figsize=(size, size), facecolor=PAPER)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(facecolor=PAPER)
    colours = LinearSegmentedColormap.from_list("ink", [PAPER, "#7fa6b8", "#1d4e66", INK])
    axes.imshow(np.sqrt(values), cmap=colours, vmin=0, vmax=max(1e-12, float(np.sqrt(values.max()))))
    font = 7 if S <= 80 else 4
    axes.set_xticks(range(S), names, rotation=90, fontsize=font, color=INK)
    axes.set_yticks(range(S), names, fontsize=font, color=INK)
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_title(title, fontsize=9, color=INK, loc="left", pad=10)
    fresh = Path(path).with_name(f".{Path(path).name}.tmp")
    try:
        figure.savefig(fresh, format="png", dpi=150, bbox_inches="tight")
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
