"""Feature templates of the parser, as text and as tables for the kernels.

A template is a list of slots. ``h`` is the head, ``m`` the modifier, ``o`` the other word of a pair of arcs (the
sibling nearer to the head, or the grandparent); ``.w`` the word, ``.t`` the first tag, ``.u`` the second tag, ``.p``
and ``.s`` prefix and suffix, ``.c4``, ``.c6`` and ``.d`` the first 4, the first 6 and all bits of the word's cluster;
``h+`` and ``h-`` are the neighboring words; ``verbs``, ``marks`` and ``pair`` are places among verbs, punctuation and
brackets. Arcs follow McDonald et al. (2005), siblings and grandparents McDonald and Pereira (2006) and Carreras (2007),
clusters Koo et al. (2008).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.features.hashed import hash_string

N_BITS = 64  # size of the sets of tags between two words
NOTHING = 0  # a slot that is always 0
_SLOTS = (
    "", "h.w", "h.t", "h.u", "h.p", "h.s", "h-.w", "h-.t", "h-.u", "h+.w", "h+.t", "h+.u",
    "m.w", "m.t", "m.u", "m.p", "m.s", "m-.w", "m-.t", "m-.u", "m+.w", "m+.t", "m+.u", "between",
)  # fmt: skip
# Verbs and punctuation marks between head and modifier, and the place of the head relative to the modifier's brackets.
CLUSTER_SLOTS = ("h.c6", "h.d", "m.c6", "m.d")  # the last ones
ARC_SLOTS = (*_SLOTS, "verbs", "marks", "pair", *CLUSTER_SLOTS)
# Head, modifier and third word: sibling or grandparent.
PART_SLOTS = (
    "", "h.w", "h.t", "h.u", "m.w", "m.t", "m.u", "o.w", "o.t", "o.u",
    "h.c4", "h.c6", "h.d", "m.c4", "m.c6", "m.d", "o.c4", "o.c6", "o.d",
)  # fmt: skip
# Labels add the head's head, the siblings next to the modifier, the number of its children on either side, and each of
# these children in turn.
LABEL_SLOTS = (
    *_SLOTS, "apart", "g.w", "g.t", "left.w", "left.t", "right.w", "right.t", "n.left", "n.right",
    "c.w", "c.t", "side", *CLUSTER_SLOTS,
)  # fmt: skip

_TAGS = """
h.t; m.t; h.w h.t; m.w m.t; h.t m.t; h.w m.t; h.t m.w; h.w h.t m.t; h.t m.w m.t; h.w h.t m.w m.t
h.t h+.t m-.t m.t; h-.t h.t m-.t m.t; h.t h+.t m.t m+.t; h-.t h.t m.t m+.t
h.t m-.t m.t; h.t m.t m+.t; h.t h+.t m.t; h-.t h.t m.t; h.t m-.t m.t m+.t; h-.t h.t h+.t m.t
"""
_WORDS = """
h.w; m.w; h.w m.w; h.w m.w m.t; h.w h.t m.w
h.s m.t; h.t m.s; h.s m.s; h.p m.t; h.t m.p; h.t m.t m.s; h.t h.s m.t
h.t m.t m-.w; h.t m.t m+.w; h.t m.t h-.w; h.t m.t h+.w; h.t m.t between
"""
_PLACES = """
h.t m.t verbs; m.w h.t verbs; m.w verbs marks; h.t m.t marks; m.w h.t marks; m.w h.t pair; h.t m.t pair
h.t m.t verbs marks
"""
_PART_TAGS = """
h.t m.t o.t; m.t o.t; h.w m.t o.t; h.t m.w o.t; h.t m.t o.w; h.t o.t
"""
_PART_WORDS = """
m.w o.w; m.w o.t; m.t o.w; h.t m.w o.w; h.w m.t o.w; h.w m.w o.t; h.w o.w
"""
_LABEL_TAGS = """
h.t; m.t; h.w h.t; m.w m.t; h.t m.t; h.w m.t; h.t m.w; h.w h.t m.t; h.t m.w m.t
h.t m-.t m.t; h.t m.t m+.t; h.t h+.t m.t; h-.t h.t m.t; h.t m-.t m.t m+.t
"""
_LABEL_WORDS = """
m.w; h.w; h.w m.w; h.w m.w m.t; h.s m.t; h.t m.s; h.s m.s; m.s; m.t m-.w; m.t m+.w; h.t m.t m-.w; h.t m.t m+.w
h.t m.t between; g.t h.t m.t; g.w m.t; g.t m.w
h.t m.t left.t; h.t m.t right.t; m.t left.w; m.t right.w; h.w m.t left.t; h.w m.t right.t; h.t m.t left.t right.t
h.t m.t n.left n.right; m.t n.left n.right
h.t m.t apart; m.t apart; m.w apart; h.w m.t apart; h.t m.w apart
"""
_CHILD = """
m.t c.w; h.t m.t c.w; h.t m.t c.t side; h.w m.t c.w; m.w c.w; h.t m.w c.t
"""
# Koo et al. (2008): short prefixes in the place of tags, whole bit strings in that of words, and mixtures. More of them
# for single arcs do not help on UD EWT; those of pairs of arcs do.
_CLUSTERS = """
h.t m.d; h.d m.t; h.d m.d
"""
_PART_CLUSTERS = """
h.c6 m.c6 o.c6; h.c4 m.c4 o.c4; m.c6 o.c6
h.c6 m.t o.t; h.t m.c6 o.t; h.t m.t o.c6; h.c4 m.t o.t; h.t m.c4 o.t; h.t m.t o.c4
m.d o.d; h.d o.d; m.d o.t; m.t o.d; h.d m.t o.t; h.t m.d o.t; h.t m.t o.d; h.t m.d o.d; h.d m.t o.d; h.d m.d o.t
m.w o.d; m.d o.w; h.d m.w o.d
"""
_LABEL_CLUSTERS = """
m.d; h.d; h.d m.d; h.t m.d; h.d m.t; h.c6 m.c6; h.t m.t m.d; h.t m.t h.d; h.w m.d; h.d m.w
"""
# Of each kind the slots; templates of tags, which a second column of tags repeats; of words; of clusters.
_KINDS = {
    "arc": (ARC_SLOTS, _TAGS, f"{_WORDS};{_PLACES}", _CLUSTERS),
    "sibling": (PART_SLOTS, _PART_TAGS, _PART_WORDS, _PART_CLUSTERS),
    "grandparent": (PART_SLOTS, _PART_TAGS, _PART_WORDS, _PART_CLUSTERS),
    "label": (LABEL_SLOTS, _LABEL_TAGS, _LABEL_WORDS, _LABEL_CLUSTERS),
    "child": (LABEL_SLOTS, "", _CHILD, ""),
}


class Templates(NamedTuple):
    """A list of templates as arrays."""

    slots: NDArray[np.int64]  # (n, 4) slots of each template; 0 where there are fewer than four
    keys: NDArray[np.uint64]  # (n,) code of each template


class FeatureSet(NamedTuple):
    """All templates of a parser."""

    arc: Templates
    sibling: Templates
    grandparent: Templates
    label: Templates
    child: Templates


def names(kind: str, second: bool, clusters: bool = False) -> list[str]:
    """Return the templates of a kind ("arc", "sibling", "grandparent", "label", "child") as text.

    ``second`` adds those of a second column of tags, ``clusters`` those of clusters of words.
    """
    _, tags, words, of_clusters = _KINDS[kind]
    templates = _lines(f"{tags};{words}")
    if second:
        templates += [one.replace(".t", ".u") for one in _lines(tags)]
    return templates + (_lines(of_clusters) if clusters else [])


def _lines(text: str) -> list[str]:
    return [" ".join(one.split()) for one in text.replace("\n", ";").split(";") if one.strip()]


def feature_set(second: bool, clusters: bool = False) -> FeatureSet:
    """Return the tables of all templates; ``second`` if sentences have a second column of tags."""
    return FeatureSet(*(_table(kind, names(kind, second, clusters)) for kind in FeatureSet._fields))


def _table(kind: str, templates: list[str]) -> Templates:
    table = np.full((len(templates), 4), NOTHING)
    for k, template in enumerate(templates):
        for j, slot in enumerate(template.split()):
            table[k, j] = _KINDS[kind][0].index(slot)
    return Templates(table, np.array([hash_string(f"{kind}: {t}") for t in templates], np.uint64))


def slot_constants(n: int) -> NDArray[np.uint64]:
    """Return an odd constant for each slot."""
    return np.array([hash_string(f"slot {s}") | 1 for s in range(n)], np.uint64)
