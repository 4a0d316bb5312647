"""What people see of objects: counts in messages, displays in notebooks.

Displays are drawn by a room above (``report``), which is imported when a notebook asks for a display.
"""

from importlib import import_module
from typing import Any

DRAWN_BY = "trelliswork.report.notebooks"


def plural(number: int, nouns: str) -> str:
    """Return a number with its noun, whose plural is regular: "1 sentence", "1,200 sentences"."""
    return f"{number:,} {nouns.removesuffix('s') if number == 1 else nouns}"


class Displayed:
    """Base of objects that notebooks show as HTML."""

    def _repr_html_(self) -> str:
        """Return the display: self-contained HTML, without scripts, for light and dark pages."""
        shown: str = import_module(DRAWN_BY).display(self)
        return shown


class Names:
    """Words of a sentence and names of its labels, for displays of a distribution over its structures."""

    def __init__(self, words: Any, labels: Any) -> None:
        self.words = [str(word[0] if isinstance(word, tuple | list) and word else word) for word in words]
        self.labels = [str(label) for label in labels or ()]
