"""Argument records of the parser's kernels."""

from typing import Any, NamedTuple


class Tokens(NamedTuple):
    """Coded sentences: the arrays of ``ParseTokens``."""

    codes: Any  # (n_rows, 5) word, first tag, second tag, prefix and suffix
    bits: Any  # (n_rows,) one bit per first tag
    places: Any  # (n_rows, 5) see ``arcs.set_places``
    starts: Any  # (n_sentences,) row of each sentence's root
    lengths: Any  # (n_sentences,) words per sentence


class ArcList(NamedTuple):
    """Arcs of a batch: sentence (its number among the tokens), head and modifier of each; int64 (A,)."""

    owners: Any
    heads: Any
    modifiers: Any


class PartList(NamedTuple):
    """Siblings or grandparents of a batch: sentence, head, modifier, third word (-1: none) and side of each."""

    owners: Any
    heads: Any
    modifiers: Any
    others: Any
    sides: Any


class Trees(NamedTuple):
    """Heads of all words, flat, and the offsets of the sentences."""

    heads: Any  # (n_tokens,)
    offsets: Any  # (n_sentences + 1,)


class AdaGrad(NamedTuple):
    """Weights in training (n, ...), sums of squared gradients, and sums of step number times change."""

    weights: Any
    squares: Any
    changes: Any
