r"""Sentences as a parser sees them: each string becomes a 64-bit code once, so that features are sums of codes.

A feature is a template and the contents of its slots, such as the head's word and the modifier's tag. Its id is

.. math:: \mathrm{id} = \lfloor \mathrm{mix}(k_{\text{template}} + \textstyle\sum_s v_s c_s + d) / 2^{64 - b} \rfloor

with v_s the code of the string in slot s, c_s an odd constant of the slot, and d a code of direction, or of direction
and distance. Only the known words are stored; features whose ids collide share a weight. The kernels compute ids on the
fly; ``templates`` has the templates.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.data.vocabulary import word_shape
from trelliswork.features.brown import BrownClusters
from trelliswork.features.hashed import hash_string
from trelliswork.models.parser.data import Doubles, Integers
from trelliswork.models.parser.kernels.arcs import arc_ids, arc_scores, score_all
from trelliswork.models.parser.kernels.parts import part_ids, part_scores
from trelliswork.models.parser.kernels.records import ArcList, PartList, Tokens
from trelliswork.models.parser.templates import N_BITS, FeatureSet, Templates

# Columns of ``ParseTokens.codes``.
WORD, TAG, SECOND, PREFIX, SUFFIX = range(5)
GROUP, DEPTH, PARTNER = 2, 3, 4  # columns of ``ParseTokens.places``; before them, numbers of verbs and marks
SHORT = (4, 6)  # numbers of bits of a cluster that stand for a tag
Weights = NDArray[np.float32]
_ROOT, _END = "<root>", "<end>"
_CLOSING = {"(": ")", "[": "]", "{": "}", "-LRB-": "-RRB-", "-LSB-": "-RSB-", "``": "''", "“": "”", "‘": "’", "«": "»",
            "„": "“", '"': '"'}  # fmt: skip
_BRACKETS = frozenset(_CLOSING) | frozenset(_CLOSING.values())


def is_mark(word: str) -> bool:
    """Return whether a word is punctuation or a symbol: it has neither letters nor digits."""
    return word in _BRACKETS or not any(map(str.isalnum, word))


def _is_verb(tag: str) -> bool:
    return tag[:1] in ("V", "v") or tag in ("AUX", "MD")


def brackets(words: Sequence[str]) -> NDArray[np.int64]:
    """Return the innermost pair of brackets or quotes of each word, its depth, and the position of a bracket's partner.

    Pairs are numbered from 1, and 0 is outside of all; positions count from 1, and -1 is no partner. Brackets belong to
    their pair. Those without a partner are ignored.
    """
    places = np.zeros((len(words), 3), np.int64)
    places[:, 2] = -1
    stack: list[tuple[int, str]] = []  # open brackets: position from 0, and what closes them
    pairs: list[tuple[int, int]] = []
    for i, word in enumerate(words):
        at = next((k for k in range(len(stack) - 1, -1, -1) if stack[k][1] == word), -1)
        if at >= 0:
            pairs.append((stack[at][0], i))
            del stack[at:]
        elif word in _CLOSING:
            stack.append((i, _CLOSING[word]))
    for number, (first, last) in enumerate(sorted(pairs), start=1):  # inner pairs come after outer ones
        places[first : last + 1, 0] = number
        places[first : last + 1, 1] += 1
        places[first, 2], places[last, 2] = last + 1, first + 1
    return places


@dataclass(frozen=True)
class ParseTokens:
    """Coded sentences; the words of each are between the root (row 0) and an end (row n + 1)."""

    codes: NDArray[np.uint64]  # (n_rows, 5) word, first tag, second tag, prefix and suffix; (n_rows, 8) with clusters
    bits: NDArray[np.uint64]  # (n_rows,) the bit of the first tag; 0 for the root and the end
    places: NDArray[np.int64]  # (n_rows, 5) places among verbs, marks and brackets; see ``kernels.arcs.set_places``
    starts: NDArray[np.int64]  # (n_sentences,) row of each sentence's root
    lengths: NDArray[np.int64]  # (n_sentences,) words of each sentence

    def __len__(self) -> int:
        return len(self.lengths)

    def some(self, sentences: NDArray[np.int64]) -> "ParseTokens":
        """Return some sentences; the codes are shared."""
        return ParseTokens(self.codes, self.bits, self.places, self.starts[sentences], self.lengths[sentences])

    @cached_property
    def arrays(self) -> Tokens:
        """Argument record of the kernels."""
        return Tokens(self.codes, self.bits, self.places, self.starts, self.lengths)


class TokenCoder:
    """Mapping of words and tags to codes.

    ``words`` are known; all others are represented by their shape. Case is ignored. ``tags`` are first tags, most
    frequent first: from the 64th on they share a bit. With ``clusters``, a word has codes of its cluster too: of the
    first 4, the first 6 and all bits.
    """

    def __init__(self, words: Sequence[str], tags: Sequence[str], clusters: BrownClusters | None = None) -> None:
        self.words, self.tags, self.clusters = list(words), list(tags), clusters
        self._words = frozenset(self.words)
        self._bits = {tag: min(i, N_BITS - 1) for i, tag in enumerate(self.tags)}
        self._word, self._cluster, self._tag = cache(self._of_word), cache(self._of_cluster), cache(self._of_tag)

    @classmethod
    def from_columns(
        cls, words: Sequence[str], tags: Sequence[str], min_count: int, clusters: BrownClusters | None = None
    ) -> "TokenCoder":
        """Make a coder that knows the words with at least ``min_count`` occurrences."""
        counts = Counter(word.lower() for word in words)
        kept = [word for word, n in counts.most_common() if n >= min_count]
        ranked = [tag for tag, _ in Counter(tags).most_common()]
        return cls(kept, ranked, clusters)

    def code(
        self, words: Sequence[str], tags: Sequence[str], second: Sequence[str], offsets: NDArray[np.int64]
    ) -> ParseTokens:
        """Code flat columns of tokens, split into sentences by ``offsets`` (n_sentences + 1,). Time O(n_tokens)."""
        B, n_tokens = len(offsets) - 1, len(words)
        lengths = np.diff(offsets)
        starts = offsets[:-1] + 2 * np.arange(B)
        rows = np.arange(n_tokens) + 2 * np.repeat(np.arange(B), lengths) + 1
        width = 5 if self.clusters is None else 8
        codes, bits = np.empty((n_tokens + 2 * B, width), np.uint64), np.zeros(n_tokens + 2 * B, np.uint64)
        codes[starts] = hash_string(_ROOT)
        codes[starts + lengths + 1] = hash_string(_END)
        codes[rows[:, None], [WORD, PREFIX, SUFFIX]] = np.array(
            [self._word(word) for word in words], np.uint64
        ).reshape(-1, 3)
        codes[rows, TAG] = np.array([self._tag(tag) for tag in tags], np.uint64)
        codes[rows, SECOND] = np.array([self._tag(tag) for tag in second], np.uint64)
        if self.clusters is not None:
            codes[rows, 5:] = np.array([self._cluster(word) for word in words], np.uint64).reshape(-1, 3)
        numbers = np.array([self._bits.get(tag, N_BITS - 1) for tag in tags], np.uint64)
        bits[rows] = np.uint64(1) << numbers
        places = np.zeros((n_tokens + 2 * B, 5), np.int64)
        places[:, PARTNER] = -1
        counted = np.array([(_is_verb(tag), is_mark(word)) for word, tag in zip(words, tags, strict=True)], np.int64)
        places[rows, :2] = counted.reshape(-1, 2)
        places[:, :2] = np.cumsum(places[:, :2], axis=0) - places[:, :2]
        paired = np.flatnonzero([word in _BRACKETS for word in words])
        for b in np.unique(np.searchsorted(offsets, paired, side="right") - 1).tolist():
            own = slice(starts[b] + 1, starts[b] + 1 + lengths[b])
            places[own, GROUP : PARTNER + 1] = brackets(words[offsets[b] : offsets[b + 1]])
        return ParseTokens(codes, bits, places, starts, lengths)

    def _of_word(self, word: str) -> tuple[int, int, int]:
        lower = word.lower()
        form = f"w {lower}" if lower in self._words else f"shape {word_shape(word)}"
        return hash_string(form), hash_string(f"pre {lower[:4]}"), hash_string(f"suf {lower[-3:]}")

    def _of_cluster(self, word: str) -> tuple[int, ...]:
        assert self.clusters is not None
        path = self.clusters.path(word)
        return *(hash_string(f"{n} bits {path[:n]}") for n in SHORT), hash_string(f"cluster {path}")

    def _of_tag(self, tag: str) -> int:
        return hash_string(f"tag {tag}")


@dataclass(frozen=True)
class Features:
    """Features of one kind of parts, hashed to ``2**bits`` weights."""

    templates: Templates
    bits: int
    score_kernel: ClassVar[Any]
    id_kernel: ClassVar[Any]
    cost: ClassVar[int]  # multiplications that take as long as the features of one part
    n_more: ClassVar[int] = 0  # ids per part at most, besides two for each template

    @property
    def shift(self) -> np.uint64:
        """Number of bits to drop from a 64-bit key."""
        return np.uint64(64 - self.bits)

    def scores(self, tokens: ParseTokens, parts: ArcList | PartList, weights: Weights) -> Doubles:
        """Return the scores (P,) of a list of parts."""
        scores = np.empty(len(parts.heads))
        self._run(self.score_kernel, parts, tokens, weights, scores)
        return scores

    def ids(self, tokens: ParseTokens, parts: ArcList | PartList) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
        """Return feature ids (P, most) and the number in use of each row (P,)."""
        P, most = len(parts.heads), 2 * len(self.templates.keys) + self.n_more
        ids, counts = np.empty((P, most), np.uint32), np.empty(P, np.int32)
        self._run(self.id_kernel, parts, tokens, ids, counts)
        return ids, counts

    def _run(self, kernel: Any, parts: ArcList | PartList, tokens: ParseTokens, *arrays: Any) -> None:
        ranges = threads.cut(np.full(len(parts.heads), self.cost), least=threads.LEAST_WORK)
        threads.run(kernel, ranges, parts, tokens.arrays, self.templates, self.shift, *arrays)


class ArcFeatures(Features):
    """Features of arcs."""

    score_kernel, id_kernel = staticmethod(arc_scores), staticmethod(arc_ids)
    cost = 3000
    n_more = N_BITS

    def log_arcs(self, tokens: ParseTokens, sentences: Integers, weights: NDArray[np.floating]) -> Doubles:
        """Return the scores of all arcs (B, n+1, n+1) of the given sentences; 0 where there is no arc."""
        lengths = tokens.lengths[sentences]
        N = int(lengths.max()) + 1
        log_arc = np.zeros((len(sentences), N, N))
        ranges = threads.cut(lengths**2 * self.cost, least=threads.LEAST_WORK)
        threads.run(score_all, ranges, sentences, tokens.arrays, self.templates, self.shift, weights, log_arc)
        return log_arc


class PartFeatures(Features):
    """Features of siblings or of grandparents."""

    score_kernel, id_kernel = staticmethod(part_scores), staticmethod(part_ids)
    cost = 800


class SecondOrderFeatures(NamedTuple):
    """All features of a second-order model, in the order of its weights."""

    arcs: ArcFeatures
    siblings: PartFeatures
    grandparents: PartFeatures

    @classmethod
    def of(cls, templates: FeatureSet, bits: int) -> "SecondOrderFeatures":
        """Return the features of some templates, hashed to ``2**bits`` weights of each kind."""
        siblings, grandparents = (PartFeatures(part, bits) for part in (templates.sibling, templates.grandparent))
        return cls(ArcFeatures(templates.arc, bits), siblings, grandparents)
