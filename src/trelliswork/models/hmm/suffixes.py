r"""Tags of a word: by its suffix if it is unknown, by its counts and its suffix if it is known.

**Suffixes** (Brants, 2000, section 2.3). Tags of a word whose last m letters are :math:`s_m`, by successive abstraction
from the whole corpus over rare words, words of the same shape (digits, capitals, hyphen) and ever longer suffixes:

.. math:: p(t \mid s_m) = \frac{\hat p(t \mid s_m) + \theta\, p(t \mid s_{m-1})}{1 + \theta}

Brants chooses for :math:`\theta` the standard deviation of the tags' probabilities. Here it is :math:`w / n`, where n
is the number of tokens with this suffix: frequent suffixes have more influence than rare ones. Equivalently, the
shorter suffix adds w tokens to the counts. By Bayes' rule,

.. math:: p(word \mid t) = p(t \mid word)\, p(word) / p(t), \qquad p(word) = \max(n(word), 1) / N,

an unknown word counts as if it had occurred once among the N tokens: scores of known and unknown words are on one
scale, and the evidence of a sentence is that of a model which has seen each of its unknown words once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import DataError, ShapeError, ValueRangeError

Floats = NDArray[np.float64]
State = tuple[dict[str, Any], dict[str, NDArray[Any]]]
ROUNDING = 1e-3  # tokens; expected counts are sums of rounded numbers


def shape_class(word: str) -> str:
    """Return the shape of a word; suffixes of different shapes are counted separately.

    Examples
    --------
    >>> [shape_class(w) for w in ("1,000", "4th", "me@x.org", "?!", "USA", "Paris", "I", "well-off", "word")]
    ['0', '0x', '@', '.', 'XX', 'Xx', 'Xx', 'x-', 'x']
    """
    letters = any(c.isalpha() for c in word)
    if any(c.isdigit() for c in word):
        return "0x" if letters else "0"
    if "@" in word or "/" in word or "www" in word:
        return "@"
    if not letters:
        return "."
    hyphen = "-" if "-" in word else ""
    if len(word) > 1 and word.isupper():
        return "XX" + hyphen
    return ("Xx" if word[0].isupper() else "x") + hyphen


class SuffixModel:
    """Tags of unknown words by shape and suffix, made by ``SuffixModel.fit``.

    Suffixes have at most ``max_length`` letters and are learned from words with at most ``max_count`` tokens, which are
    most similar to unknown words. A shorter suffix adds ``weight`` tokens to the counts of a longer one; with None its
    weight is Brants's theta, the standard deviation of the tags' probabilities, for any number of tokens.
    """

    OPTIONS: ClassVar = ("max_length", "max_count", "weight")

    def __init__(
        self,
        words: Sequence[str],
        counts: "SparseCounts",
        tag_counts: Floats,
        *,
        max_length: int = 10,
        max_count: float = 10,
        weight: float | None = 8.0,
    ) -> None:
        if not isinstance(max_length, int) or not 0 <= max_length <= 1000:
            raise ValueRangeError(f"max_length must be a whole number of letters, 0 to 1000, got {max_length!r}.")
        if weight is not None and not weight > 0:
            raise ValueRangeError(f"weight must be positive, or None for Brants's theta, got {weight!r}.")
        self.tag_counts = tag_counts  # (S,), of all words
        self.prior = tag_counts / tag_counts.sum()
        self.max_length, self.max_count, self.weight = max_length, max_count, weight
        self._theta = float(self.prior.std(ddof=1)) if len(self.prior) > 1 else 0.0
        n = counts.totals()
        rare = np.flatnonzero((n > 0) & (n <= max_count + ROUNDING))
        self._words = [words[i] for i in rare.tolist()]
        self._word_counts = counts.gather(rare, np.arange(len(rare)), len(rare))
        self._nodes: dict[str, int] = {}  # key to id; a key is a shape, a colon and a suffix
        nodes, owners = [], []
        for i, word in enumerate(self._words):
            keys = self._keys(word)
            nodes += [self._nodes.setdefault(key, len(self._nodes)) for key in keys]
            owners += [i] * len(keys)
        self._counts = self._word_counts.gather(np.array(owners, np.int64), np.array(nodes, np.int64), len(self._nodes))

    @classmethod
    def fit(cls, words: Sequence[str], counts: NDArray[Any], **options: Any) -> "SuffixModel":
        """Train on distinct words and their tag counts (n_words, S). O(n_words max_length), S-fold at worst.

        Examples
        --------
        >>> model = SuffixModel.fit(["walking", "talking", "dog"], np.array([[0, 1], [0, 2], [3, 0]]), weight=1.0)
        >>> model.probabilities(["barking", "frog"]).round(2)
        array([[0.01, 0.99],
               [0.88, 0.12]])
        """
        return cls(words, *_check_counts(words, counts), **options)

    def probabilities(self, words: Sequence[str]) -> Floats:
        """Return P(tag | word) (n_words, S) by shape and suffix alone, in time O(n_words max_length S)."""
        path = np.full((len(words), self.max_length + 3), -1, np.int64)
        for i, word in enumerate(words):
            for level, key in enumerate(self._keys(word)):
                node = self._nodes.get(key)
                if node is None:
                    break
                path[i, level] = node
        p = np.tile(self.prior, (len(words), 1))
        for level in range(path.shape[1]):
            rows = np.flatnonzero(path[:, level] >= 0)
            seen = self._counts.dense(path[rows, level])
            n = seen.sum(axis=1, keepdims=True)
            theta = self._theta if self.weight is None else self.weight / n
            p[rows] = (seen / n + theta * p[rows]) / (1 + theta)
        return p

    def log_emission(self, words: Sequence[str]) -> Floats:
        """Return log P(word | tag) (n_words, S) of words as if each occurred once; -inf for tags that never occur."""
        return _bayes(self.probabilities(words), self.tag_counts, np.ones((len(words), 1)))

    def state(self) -> State:
        """Return the saved state: the rare words and their counts, from which the model is rebuilt."""
        plain = {"words": self._words, **{name: getattr(self, name) for name in self.OPTIONS}}
        return plain, {"tag_counts": self.tag_counts, **self._word_counts.arrays()}

    @classmethod
    def from_state(cls, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> "SuffixModel":
        """Build a model from its ``state``."""
        tag_counts = arrays["tag_counts"]
        counts = SparseCounts.from_arrays(arrays, len(tag_counts))
        return cls(plain["words"], counts, tag_counts, **{name: plain[name] for name in cls.OPTIONS})

    def _keys(self, word: str) -> list[str]:
        """Return keys from the most general to the longest suffix; the empty key is for all rare words."""
        shape, lower = shape_class(word) + ":", word.lower()
        n = len(lower)
        return ["", shape, *(shape + lower[n - m :] for m in range(1, min(self.max_length, n) + 1))]


class Lexicon:
    r"""Log P(word | tag) of known and unknown words, made by ``Lexicon.fit``.

    The suffix of a known word adds ``word_weight`` tokens to its counts:

    .. math:: p(t \mid word) = \frac{n(word, t) + w\, q(t \mid word)}{n(word) + w}

    where q comes from the suffix model. The first word of a sentence is capitalized because of its position: there q
    is mixed in the same way with the counts of the word in any case, with ``initial_weight`` for w. Tags less probable
    than the fraction ``least`` of the word's best one are impossible (-inf), for fast decoding.
    """

    OPTIONS: ClassVar = ("word_weight", "initial_weight", "least")

    def __init__(
        self,
        words: Sequence[str],
        counts: "SparseCounts",
        suffixes: SuffixModel,
        *,
        word_weight: float = 0.5,
        initial_weight: float = 1.0,
        least: float = 1e-3,
    ) -> None:
        for name, value in (("word_weight", word_weight), ("initial_weight", initial_weight)):
            if not 0 <= value < np.inf:
                raise ValueRangeError(f"{name} must be a number of tokens, 0 or more, got {value!r}.")
        if not 0 <= least < 1:
            raise ValueRangeError(f"least must be at least 0 and less than 1, got {least!r}.")
        self.suffixes = suffixes
        self.word_weight, self.initial_weight, self.least = word_weight, initial_weight, least
        self.ids = {word: i for i, word in enumerate(words)}  # known words to rows of ``counts``
        self._counts = counts
        self._lower: dict[str, int] = {}
        rows = np.array([self._lower.setdefault(word.lower(), len(self._lower)) for word in words], np.int64)
        self._lower_counts = counts.gather(np.arange(len(rows)), rows, len(self._lower))

    @classmethod
    def fit(cls, words: Sequence[str], counts: NDArray[Any], **options: Any) -> "Lexicon":
        """Train on distinct words and their tag counts (n_words, S); options are those of both classes."""
        own = {name: options.pop(name) for name in cls.OPTIONS if name in options}
        sparse, tag_counts = _check_counts(words, counts)
        return cls(words, sparse, SuffixModel(words, sparse, tag_counts, **options), **own)

    def __contains__(self, word: object) -> bool:
        return word in self.ids

    def log_emission(self, words: Sequence[str], initial: NDArray[np.bool_] | None = None) -> Floats:
        """Return log P(word | tag) (n_tokens, S) of the words of a text; -inf for tags that are (nearly) impossible.

        ``initial`` (n_tokens,) is True for tokens that start a sentence, by default none. Each distinct word is
        computed once: O(distinct words x max_length x S + n_tokens S).
        """
        firsts = np.zeros(len(words), bool) if initial is None else np.asarray(initial, bool)
        if firsts.shape != (len(words),):
            raise ShapeError(f"initial must have shape ({len(words)},), one entry for each word, got {firsts.shape}.")
        distinct: dict[tuple[str, bool], int] = {}
        which = [distinct.setdefault(key, len(distinct)) for key in zip(words, firsts.tolist(), strict=True)]
        forms = [word for word, _ in distinct]
        q = self.suffixes.probabilities(forms)
        lower = [self._lower.get(w.lower(), -1) if first and w != w.lower() else -1 for w, first in distinct]
        q, _ = _update(q, self._lower_counts.dense(np.array(lower, np.int64)), self.initial_weight)
        counts = self._counts.dense(np.array([self.ids.get(w, -1) for w in forms], np.int64))
        p, n = _update(q, counts, self.word_weight)
        p[p < self.least * p.max(axis=1, keepdims=True)] = 0
        return _bayes(p, self.suffixes.tag_counts, np.maximum(n, 1))[which]

    def state(self) -> State:
        """Return the saved state: words, counts and parameters, from which the lexicon is rebuilt."""
        plain = {name: getattr(self, name) for name in self.OPTIONS}
        options = {name: getattr(self.suffixes, name) for name in SuffixModel.OPTIONS}
        arrays = {"tag_counts": self.suffixes.tag_counts, **self._counts.arrays()}
        return {**plain, "suffixes": options, "words": list(self.ids)}, arrays

    @classmethod
    def from_state(cls, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> "Lexicon":
        """Build a lexicon from its ``state``."""
        words, tag_counts = plain["words"], arrays["tag_counts"]
        counts = SparseCounts.from_arrays(arrays, len(tag_counts))
        suffixes = SuffixModel(words, counts, tag_counts, **plain["suffixes"])
        return cls(words, counts, suffixes, **{name: plain[name] for name in cls.OPTIONS})


@dataclass(frozen=True, eq=False)
class SparseCounts:
    """Sparse rows of tag counts: row i is ``tags[ptr[i] : ptr[i + 1]]``, ``values`` likewise."""

    ptr: NDArray[np.int64]
    tags: NDArray[np.int32]
    values: Floats
    n_tags: int

    @classmethod
    def from_dense(cls, counts: Floats) -> "SparseCounts":
        """Return the nonzero counts of (n_rows, S)."""
        rows, tags = np.nonzero(counts)
        ptr = np.searchsorted(rows, np.arange(len(counts) + 1))
        return cls(ptr, tags.astype(np.int32), counts[rows, tags], counts.shape[1])

    def totals(self) -> Floats:
        """Return the sum of each row (n_rows,)."""
        rows = np.repeat(np.arange(len(self.ptr) - 1), np.diff(self.ptr))
        return np.bincount(rows, weights=self.values, minlength=len(self.ptr) - 1).astype(np.float64)

    def dense(self, rows: NDArray[np.int64]) -> Floats:
        """Return some rows (n, S); -1 gives a row of zeros."""
        out = np.zeros((len(rows), self.n_tags))
        at = np.flatnonzero(rows >= 0)
        where, entries = self._entries(rows[at])
        out[at[where], self.tags[entries]] = self.values[entries]
        return out

    def gather(self, rows: NDArray[np.int64], into: NDArray[np.int64], n_rows: int) -> "SparseCounts":
        """Return new rows: ``new[into[k]] += old[rows[k]]`` for all k."""
        where, entries = self._entries(rows)
        keys, inverse = np.unique(into[where] * self.n_tags + self.tags[entries], return_inverse=True)
        values = np.bincount(inverse, weights=self.values[entries], minlength=len(keys)).astype(np.float64)
        ptr = np.searchsorted(keys, np.arange(n_rows + 1) * self.n_tags)
        return SparseCounts(ptr, (keys % self.n_tags).astype(np.int32), values, self.n_tags)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays to save."""
        return {"counts_ptr": self.ptr, "counts_tags": self.tags, "counts_values": self.values}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]], n_tags: int) -> "SparseCounts":
        """Build counts from their ``arrays``; arrays of a damaged file are an error."""
        ptr, tags, values = arrays["counts_ptr"], arrays["counts_tags"], arrays["counts_values"]
        rises = ptr.ndim == 1 and len(ptr) > 0 and ptr[0] == 0 and (np.diff(ptr) >= 0).all()
        if not rises or ptr[-1] != len(tags) or len(tags) != len(values):
            raise DataError("damaged weights: the counts do not match: the file is damaged, train again.")
        if len(tags) and (tags.min() < 0 or tags.max() >= n_tags or not (np.isfinite(values) & (values >= 0)).all()):
            raise DataError("damaged weights: the counts are out of range: the file is damaged, train again.")
        return cls(ptr, tags, values, n_tags)

    def _entries(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the index into ``rows`` and into ``tags`` of every entry of some rows."""
        sizes = self.ptr[rows + 1] - self.ptr[rows]
        where = np.repeat(np.arange(len(rows)), sizes)
        within = np.arange(len(where)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return where, self.ptr[rows][where] + within


def _check_counts(words: Sequence[str], counts: NDArray[Any]) -> tuple[SparseCounts, Floats]:
    """Check counts, and return them as sparse rows with their sum (S,)."""
    counts = np.asarray(counts, np.float64)
    if counts.ndim != 2 or len(counts) != len(words):
        raise ShapeError(f"counts must have shape (n_words={len(words)}, S), got {counts.shape}.")
    if len(set(words)) < len(words):
        raise ValueRangeError("words must be distinct, got one twice: add up its counts.")
    if not np.isfinite(counts).all() or (counts < 0).any():
        raise ValueRangeError("counts must be finite and not negative.")
    if not counts.any():
        raise ValueRangeError("counts must not all be zero: there is nothing to learn from.")
    return SparseCounts.from_dense(counts), counts.sum(axis=0)


def _update(prior: Floats, counts: Floats, weight: float) -> tuple[Floats, Floats]:
    """Return (counts + weight prior) / (n + weight), or the prior where n is 0; and n (n_rows, 1)."""
    n = counts.sum(axis=1, keepdims=True)
    mixed = (counts + weight * prior) / np.where(n > 0, n + weight, 1)
    return np.where(n > 0, mixed, prior), n


def _bayes(p: Floats, tag_counts: Floats, n: Floats) -> Floats:
    """Return log P(word | tag) = log p(tag | word) n(word) / n(tag)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(tag_counts > 0, np.log(p * n / tag_counts), -np.inf)
