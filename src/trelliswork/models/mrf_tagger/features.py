"""Features of words for the field tagger: the word itself if it is frequent, its shape and affixes if it is rare."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from trelliswork.data import Vocabulary

PAD = "<S>"
AFFIX = 4  # letters of the longest prefix and suffix


def neighbour_features(word: str, frequent: bool) -> list[str]:
    """What a tag sees of a word beside it: the word if it is frequent, else that it is rare, or a number."""
    if frequent or word == PAD:
        return ["bias", f"word={word}"]
    return ["bias", "rare number" if any(c.isdigit() for c in word) else "rare"]


def own_features(word: str, frequent: bool, known: bool) -> list[str]:
    """What a tag sees of its own word: of a rare one also shape, prefixes and suffixes.

    Reference implementation: Jernite's ``MomentsTag.py``. A rare word of the training part keeps a feature of its own
    too.
    """
    found = neighbour_features(word, frequent)
    if frequent or word == PAD:
        return found
    if known:
        found.append(f"word={word}")
    n = min(AFFIX, len(word))
    found += [f"prefix={word[:k]}" for k in range(1, n + 1)] + [f"suffix={word[-k:]}" for k in range(1, n + 1)]
    letters = [c for c in word if c.isalpha()]
    plural = word[-1] in "sS"
    capital, capitals = word[0].isupper(), bool(letters) and all(c.isupper() for c in letters)
    digits = any(c.isdigit() for c in word)
    shapes = {
        "capital": capital,
        "capital, ends in s": capital and plural,
        "capitals": capitals,
        "capitals, ends in S": capitals and plural,
        "ends in s": plural,
        "digit": digits,
        "number": digits and all(c.isdigit() or c in ".,:-/" for c in word),
        "hyphen": "-" in word,
        "small": not capital and not digits,
    }
    return found + [name for name, holds in shapes.items() if holds]


@dataclass
class TaggerFeatures:
    """The words of training, which of them are frequent, and the features of words.

    Attributes
    ----------
    words : Vocabulary
        C types, 0 the pad.
    frequent : set of str
        Words that are known by themselves.
    own, neighbour : Vocabulary
        Features at offset 0, and at others.
    """

    words: Vocabulary
    frequent: set[str]
    own: Vocabulary
    neighbour: Vocabulary

    @classmethod
    def fit(cls, sentences: Iterable[Sequence[str]], rare: int) -> TaggerFeatures:
        """Words seen at most ``rare`` times are rare."""
        from collections import Counter

        counts = Counter(word for sentence in sentences for word in sentence)
        frequent = {word for word, n in counts.items() if n > rare}
        words = Vocabulary([PAD, *(word for word, _ in counts.most_common() if word != PAD)])
        own = dict.fromkeys(f for word in words for f in own_features(word, word in frequent, True))
        neighbour = dict.fromkeys(f for word in words for f in neighbour_features(word, word in frequent))
        return cls(words, frequent, Vocabulary(own), Vocabulary(neighbour))

    def lead(self) -> NDArray[np.int64]:
        """Own features of which each word has one: the word, if it is frequent, or that it is rare."""
        names = [f"word={word}" for word in self.words if word in self.frequent or word == PAD]
        return np.array([self.own.id(name) for name in [*names, "rare", "rare number"] if name in self.own])

    def tables(self, words: Sequence[str]) -> tuple[csr_matrix, csr_matrix]:
        """The features of some words at offset 0 (n, F_0), and at other offsets (n, F_1); new ones are left out."""
        own = [own_features(word, word in self.frequent, word in self.words) for word in words]
        neighbour = [neighbour_features(word, word in self.frequent) for word in words]
        return _table(own, self.own), _table(neighbour, self.neighbour)


def _table(rows: list[list[str]], names: Vocabulary) -> csr_matrix:
    ids = [[names.id(name) for name in row if name in names] for row in rows]
    ends = np.cumsum([0, *map(len, ids)])
    flat = np.array([i for row in ids for i in row], np.int64)
    return csr_matrix((np.ones(len(flat)), flat, ends), (len(rows), len(names)))
