"""Features of words for the MRF tagger: the word itself if it is frequent, its shape and affixes if it is rare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack

from trelliswork.data import Vocabulary
from trelliswork.data.vocabulary import START
from trelliswork.errors import ValueRangeError
from trelliswork.features.knowledge import BITS, Knowledge
from trelliswork.features.lexicon import Lexicon
from trelliswork.learning import whole

PAD = START  # between sentences
AFFIX = 4  # letters of the longest prefix and suffix


def neighbor_features(word: str, frequent: bool) -> list[str]:
    """Return the features of a word next to a tag's own: the word if it is frequent, else that it is rare."""
    if frequent or word == PAD:
        return ["bias", f"word={word}"]
    return ["bias", "rare number" if any(c.isdigit() for c in word) else "rare"]


def own_features(word: str, frequent: bool, known: bool) -> list[str]:
    """Return the features of a tag's own word: of a rare one also shape, prefixes and suffixes.

    Reference implementation: Jernite's ``MomentsTag.py``. A rare word of the training data also keeps a feature of its
    own.
    """
    features = neighbor_features(word, frequent)
    if frequent or word == PAD:
        return features
    if known:
        features.append(f"word={word}")
    n = min(AFFIX, len(word))
    features += [f"prefix={word[:k]}" for k in range(1, n + 1)] + [f"suffix={word[-k:]}" for k in range(1, n + 1)]
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
    return features + [name for name, holds in shapes.items() if holds]


def known_features(word: str, knowledge: Knowledge, bits: Sequence[int | None]) -> list[str]:
    """Return the first bits of the cluster of a word, and its classes in the lexicon."""
    features: list[str] = []
    if knowledge.clusters is not None and word != PAD:
        path = knowledge.clusters.path(word)
        features += [f"cluster {'' if n is None else n}={path[:n]}" for n in bits]
    if knowledge.lexicon is not None and word != PAD:
        features += [f"lexicon={name}" for name in knowledge.lexicon.classes(word)]
    return features


def check_lexicon(lexicon: Lexicon) -> None:
    """Raise if a lexicon cannot be used: all that the model knows of a token is its word."""
    if lexicon.learned:
        raise ValueRangeError(
            "MRFTagger trains on counts of words and tags, so it cannot leave the sentence at hand out of a learned "
            "lexicon: pass a lexicon from another source, or use CRF."
        )
    if all(len(key) > 1 for key in lexicon.entries):
        raise ValueRangeError(
            "MRFTagger looks up single words, and every entry of the lexicon has several: add words, or use CRF."
        )


@dataclass
class TaggerFeatures:
    """The words of training, the frequent ones among them, and the features of words."""

    words: Vocabulary  # C types; 0 is the pad
    frequent: set[str]  # words without features of shape and affixes
    own: Vocabulary  # features at offset 0
    neighbor: Vocabulary  # features at other offsets
    knowledge: Knowledge = Knowledge()  # noqa: RUF009

    @classmethod
    def fit(
        cls, sentences: Iterable[Sequence[str]], min_count: int, knowledge: Knowledge | None = None
    ) -> TaggerFeatures:
        """List words and features; words that occur less often than ``min_count`` are rare."""
        knowledge = knowledge or Knowledge()
        if knowledge.lexicon is not None:
            check_lexicon(knowledge.lexicon)
        counts = Counter(whole.counted(Counter(word for sentence in sentences for word in sentence)))
        frequent = {word for word, n in counts.items() if n >= min_count}
        words = Vocabulary([PAD, *(word for word, _ in counts.most_common() if word != PAD)])
        made = cls(words, frequent, Vocabulary([]), Vocabulary([]), knowledge)
        own, neighbor = (dict.fromkeys(f for row in rows for f in row) for rows in made._rows(words))
        return cls(words, frequent, Vocabulary(own), Vocabulary(neighbor), knowledge)

    def _rows(self, words: Iterable[str]) -> tuple[list[list[str]], list[list[str]]]:
        """Return the names of the features of words at offset 0 and at others."""
        own, neighbor = [], []
        for word in words:
            frequent, known = word in self.frequent, word in self.words
            own.append(own_features(word, frequent, known) + known_features(word, self.knowledge, (*BITS, None)))
            neighbor.append(neighbor_features(word, frequent) + known_features(word, self.knowledge, (None,)))
        return own, neighbor

    def own_names(self) -> list[str]:
        """Return the names of the features at offset 0; the dimensions of vectors are the last ones."""
        n_dims = 0 if self.knowledge.vectors is None else self.knowledge.vectors.n_dims
        return [*self.own, *(f"vector {d}" for d in range(n_dims))]

    def lead(self) -> NDArray[np.int64]:
        """Return the own features of which each word has exactly one: the frequent word, or that it is rare."""
        names = [f"word={word}" for word in self.words if word in self.frequent or word == PAD]
        return np.array([self.own.id(name) for name in [*names, "rare", "rare number"] if name in self.own])

    def tables(self, words: Sequence[str]) -> tuple[csr_matrix, csr_matrix]:
        """Return the features of words at offset 0 (n, F_0) and at others (n, F_1), without unlisted features."""
        own, neighbor = self._rows(words)
        listed = _table(own, self.own)
        if self.knowledge.vectors is not None:
            used, rows = self.knowledge.vectors.rows(words)
            vectors = np.zeros((len(words), used.n_dims))
            vectors[rows >= 0] = used.table[rows[rows >= 0]]
            listed = hstack([listed, csr_matrix(vectors)], format="csr")
        return listed, _table(neighbor, self.neighbor)


def _table(rows: list[list[str]], names: Vocabulary) -> csr_matrix:
    ids = [[names.id(name) for name in row if name in names] for row in rows]
    ends = np.cumsum([0, *map(len, ids)])
    flat = np.array([i for row in ids for i in row], np.int64)
    return csr_matrix((np.ones(len(flat)), flat, ends), (len(rows), len(names)))
