"""The complete grammar: draws sentences of all types."""

from __future__ import annotations

# Importing these modules registers their constructions.
from trelliswork.data.bundled import complex_sentences, constructions, crossing, questions, statements  # noqa: F401
from trelliswork.data.bundled.nodes import Node, leaf
from trelliswork.data.bundled.sampling import Draw

_CONSTRUCTIONS = constructions.registered()


def sentence(draw: Draw) -> Node:
    """Return the tree of one sentence of a random type."""
    draw.start_sentence()
    build, end = draw.pick(_CONSTRUCTIONS)
    root = build(draw)
    root.children.append(leaf(".", end).as_("punct"))
    return root
