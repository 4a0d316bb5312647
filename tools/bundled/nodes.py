"""Phrases with marked heads, from which words, tags, arcs and the tree are derived.

A grammar function returns a phrase::

    phrase("S", subject.as_("nsubj"), phrase("VP", leaf("VBD", "sang"), phrase("NP", ...).as_("obj")))

A child without a role is the head of its phrase. Every other child depends on the head word of its phrase by its role,
or, with ``of=other``, on the head word of another phrase, which gives the crossing arcs of extraposed clauses.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from tools.bundled.chunks import chunk_tags
from tools.bundled.morphology import takes_an
from tools.bundled.universal import universal_tag
from trelliswork.data.sentence import Tree, TreebankSentence

HEAD = "head"


@dataclass(slots=True, eq=False)
class Node:
    """A word (with ``word``) or a phrase (with ``children``) that is still being built."""

    label: str
    word: str
    children: list[Node]
    role: str = HEAD
    governor: Node | None = None
    head: int = 0  # 1-based position of the head word, set by annotate

    def as_(self, role: str, of: Node | None = None) -> Node:
        """Set the relation to the head of the surrounding phrase (or of ``of``), and return this node."""
        self.role, self.governor = role, of
        return self


def leaf(tag: str, word: str) -> Node:
    """Return a word with its part-of-speech tag."""
    return Node(tag, word, [])


def phrase(label: str, *children: Node | None) -> Node:
    """Return a phrase; children that are None are left out."""
    return Node(label, "", [child for child in children if child is not None])


def annotate(root: Node) -> TreebankSentence:
    """Number the words, adjust their spelling, and derive every layer from the finished tree."""
    leaves: list[Node] = []
    _number(root, leaves)
    _spell(leaves)
    heads = [0] * len(leaves)
    relations = ["root"] * len(leaves)
    _attach(root, heads, relations)
    words, tags = tuple(node.word for node in leaves), tuple(node.label for node in leaves)
    return TreebankSentence(
        words=words,
        tags=tags,
        chunks=chunk_tags(root),
        heads=tuple(heads),
        relations=tuple(relations),
        tree=_freeze(root),
        upos=tuple(map(universal_tag, tags, relations, words)),
    )


def _number(node: Node, leaves: list[Node]) -> None:
    """Append the words below ``node`` to ``leaves`` and set every ``head``."""
    if node.word:
        leaves.append(node)
        node.head = len(leaves)
        return
    n_heads = 0
    for child in node.children:
        _number(child, leaves)
        if child.role == HEAD:
            node.head = child.head
            n_heads += 1
    assert n_heads == 1, f"{node.label} needs one child without a role, has {[c.role for c in node.children]}"


def _spell(leaves: list[Node]) -> None:
    """Choose between a and an by the next word, and start with a capital."""
    for node, after in pairwise(leaves):
        if node.word == "a" and takes_an(after.word):
            node.word = "an"
    leaves[0].word = leaves[0].word[0].upper() + leaves[0].word[1:]


def _attach(node: Node, heads: list[int], relations: list[str]) -> None:
    for child in node.children:
        if child.role != HEAD:
            heads[child.head - 1] = (child.governor or node).head
            relations[child.head - 1] = child.role
        if not child.word:
            _attach(child, heads, relations)


def _freeze(node: Node) -> Tree:
    return Tree(node.label, (node.word,) if node.word else tuple([_freeze(child) for child in node.children]))
