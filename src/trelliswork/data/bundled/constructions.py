"""The registry of sentence types, and the start of the grammar.

Every type of sentence is one function from a ``Draw`` to the root phrase without its final mark, under
``@construction`` with its share and its mark. They are in ``statements``, ``complex_sentences``, ``questions`` and
``crossing``; to add one, write such a function in one of them.
"""

from __future__ import annotations

from collections.abc import Callable

from trelliswork.data.bundled.nodes import Node, leaf, phrase
from trelliswork.data.bundled.sampling import Draw, Table

Construction = Callable[[Draw], Node]
_REGISTERED: dict[str, tuple[tuple[Construction, str], int]] = {}


def construction(share: int, end: str = ".") -> Callable[[Construction], Construction]:
    """Register a type of sentence with its share (per thousand, approximately) and its final mark."""

    def register(build: Construction) -> Construction:
        assert build.__name__ not in _REGISTERED, f"two constructions are called {build.__name__}"
        _REGISTERED[build.__name__] = ((build, end), share)
        return build

    return register


def registered() -> Table[tuple[Construction, str]]:
    """Return the table of all types of sentences, by name, so that the order of imports does not matter."""
    return Table(_REGISTERED[name] for name in sorted(_REGISTERED))


def comma() -> Node:
    """Return a comma that hangs from the head of its phrase."""
    return leaf(",", ",").as_("punct")


def wh(word: str) -> Node:
    """Return a question word as a phrase."""
    tag = {"what": "WP", "who": "WP", "which": "WDT"}.get(word, "WRB")
    return phrase("WHADVP" if tag == "WRB" else "WHNP", leaf(tag, word))
