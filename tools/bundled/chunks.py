"""Base phrases of a tree in IOB2, by the conventions of the CoNLL-2000 chunking task.

Every word has an owner, the phrase whose chunk it belongs to; a chunk is a run of words with one owner.
An NP owns its words up to the head noun, a possessive 's opens the chunk of the outer NP, a chain of verbs
(``wants to have seen``) is one VP chunk with the adverbs inside it, a PP owns only its preposition and an SBAR
only its conjunction.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.bundled.nodes import Node

    Owner = tuple[str, Node]

_CHUNK_OF = {
    **dict.fromkeys(("NP", "WHNP", "QP"), "NP"),
    **dict.fromkeys(("VP", "SQ", "SINV"), "VP"),
    **dict.fromkeys(("ADJP", "WHADJP"), "ADJP"),
    **dict.fromkeys(("ADVP", "WHADVP"), "ADVP"),
    **{label: label for label in ("PP", "SBAR", "PRT")},
}
_OUTSIDE = frozenset((".", ",", "CC"))
_INSIDE_NP = frozenset(("ADJP", "QP", "WHADJP"))


def chunk_tags(root: Node) -> tuple[str, ...]:
    """Return one tag per word: ``B-`` and ``I-`` with NP, VP, PP, ADJP, ADVP, SBAR or PRT, and ``O``."""
    owners: list[Owner | None] = []
    _visit(root, None, None, owners)
    tags = []
    for before, owner in pairwise([None, *owners]):
        if owner is None:
            tags.append("O")
        else:
            continues = before is not None and owner[1] is before[1]
            tags.append(("I-" if continues else "B-") + owner[0])
    return tuple(tags)


def _visit(node: Node, inherited: Owner | None, outer: Owner | None, owners: list[Owner | None]) -> None:
    """Append the owner of each word below ``node``.

    ``inherited`` is the chunk that ``node`` continues, ``outer`` the noun phrase that its possessive 's belongs to.
    """
    label = _CHUNK_OF.get(node.label)
    own: Owner | None = inherited or ((label, node) if label else None)
    is_noun_phrase = label == "NP" and inherited is None
    # A noun phrase around its own head phrase (coordination, modifiers after it) leaves the words to that phrase.
    is_shell = not any(child.word and child.role == "head" for child in node.children)
    for i, child in enumerate(node.children):
        if child.word:
            if child.label == "POS":
                owners.append(outer)
            elif child.label == "CC" and is_noun_phrase and not is_shell:
                owners.append(own)
            elif child.label in _OUTSIDE or (is_noun_phrase and is_shell):
                owners.append(None)
            else:
                owners.append(own)
        elif is_noun_phrase:
            _visit(child, own if child.label in _INSIDE_NP and not is_shell else None, own, owners)
        elif label == "VP" or node.label == "S":
            _visit(child, own if _goes_on(node, i) else None, None, owners)
        else:
            _visit(child, None, None, owners)


def _goes_on(node: Node, i: int) -> bool:
    """Return whether child ``i`` of a clause or verb phrase belongs to the verb chunk that is open."""
    child = node.children[i]
    if child.label == "VP":
        return child.role == "head"
    if child.label == "S":
        return child.role == "xcomp"
    is_before_verb = any(later.label == "VP" and later.role == "head" for later in node.children[i + 1 :])
    return child.label == "ADVP" and node.label == "VP" and is_before_verb
