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
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from trelliswork.data.files import shorten
from trelliswork.errors import DataError
from trelliswork.models.hmm.data import Token

Floats = NDArray[np.float64]
State = tuple[dict[str, Any], dict[str, NDArray[Any]]]
LONGEST = 10  # letters of a suffix
RARE = 10 + 1e-3  # suffixes are learned from words with at most 10 tokens, most like unknown ones; counts are rounded
SUFFIX_WEIGHT = 8.0  # tokens that a shorter suffix adds to the counts of a longer one
WORD_WEIGHT = 0.5  # tokens that the suffix of a known word adds to its counts
INITIAL_WEIGHT = 1.0  # the same for the counts of the first word of a sentence in any case
LEAST = 1e-3  # tags less probable than this fraction of a word's best one are impossible, for fast decoding


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
    """Tags of unknown words by shape and suffix, from the tag counts (n_words, S) of distinct words.

    Examples
    --------
    >>> model = SuffixModel(["walking", "talking", "dog"], csr_array([[0, 1], [0, 2], [3, 0]]))
    >>> model.probabilities(["barking", "frog"]).round(2)
    array([[0.19, 0.81],
           [0.64, 0.36]])
    """

    def __init__(self, words: Sequence[str], counts: csr_array, tag_counts: Floats | None = None) -> None:
        self.tag_counts = counts.sum(axis=0).astype(np.float64) if tag_counts is None else tag_counts  # (S,), all words
        self.prior = self.tag_counts / self.tag_counts.sum()
        n = counts.sum(axis=1)
        rare = np.flatnonzero((n > 0) & (n <= RARE))
        self._words = [words[i] for i in rare.tolist()]
        self._word_counts = counts[rare]
        self._nodes: dict[str, int] = {}  # key to id; a key is a shape, a colon and a suffix
        nodes, owners = [], []
        for i, word in enumerate(self._words):
            keys = _keys(word)
            nodes += [self._nodes.setdefault(key, len(self._nodes)) for key in keys]
            owners += [i] * len(keys)
        self._counts = _added(self._word_counts, owners, nodes)

    def probabilities(self, words: Sequence[str]) -> Floats:
        """Return P(tag | word) (n_words, S) by shape and suffix alone."""
        path = np.full((len(words), LONGEST + 3), -1, np.int64)
        for i, word in enumerate(words):
            for level, key in enumerate(_keys(word)):
                node = self._nodes.get(key)
                if node is None:
                    break
                path[i, level] = node
        p = np.tile(self.prior, (len(words), 1))
        for level in range(path.shape[1]):
            rows = np.flatnonzero(path[:, level] >= 0)
            p[rows], _ = _update(p[rows], _rows(self._counts, path[rows, level]), SUFFIX_WEIGHT)
        return p

    def log_emission(self, words: Sequence[str]) -> Floats:
        """Return log P(word | tag) (n_words, S) of words as if each occurred once; -inf for tags that never occur."""
        return _bayes(self.probabilities(words), self.tag_counts, np.ones((len(words), 1)))

    def state(self) -> State:
        """Return the saved state: the rare words and their counts, from which the model is rebuilt."""
        return {"words": self._words}, {"tag_counts": self.tag_counts, **_arrays(self._word_counts)}

    @classmethod
    def from_state(cls, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> "SuffixModel":
        """Build a model from its ``state``."""
        return cls(plain["words"], _counts(arrays, len(plain["words"])), arrays["tag_counts"])


class Lexicon:
    r"""Emissions of labeled text, log P(word | tag), from the tag counts (n_words, S) of distinct words.

    The suffix of a known word adds w tokens to its counts:

    .. math:: p(t \mid word) = \frac{n(word, t) + w\, q(t \mid word)}{n(word) + w}

    where q comes from the suffix model. The first word of a sentence is capitalized because of its position: there q
    is mixed in the same way with the counts of the word in any case.
    """

    def __init__(self, words: Sequence[str], counts: csr_array) -> None:
        self.suffixes = SuffixModel(words, counts)
        self.ids = {word: i for i, word in enumerate(words)}  # known words to rows of ``counts``
        self._counts = counts
        self._lower: dict[str, int] = {}
        rows = [self._lower.setdefault(word.lower(), len(self._lower)) for word in words]
        self._lower_counts = _added(counts, range(len(rows)), rows)

    @property
    def n_states(self) -> int:
        """S."""
        return len(self.suffixes.tag_counts)

    @property
    def words(self) -> list[Token]:
        """The words of training."""
        return list(self.ids)

    def rows(self, tokens: Sequence[Token], offsets: NDArray[np.int64]) -> Floats:
        """Return log p(word | state) of each token (n_tokens, S)."""
        initial = np.zeros(len(tokens), bool)
        initial[offsets[:-1]] = True
        words = [token for token in tokens if isinstance(token, str)]
        if len(words) < len(tokens):
            odd = next(token for token in tokens if not isinstance(token, str))
            raise DataError(f"the model was trained on words: tokens must be strings, got {shorten(odd)}.")
        return self.log_emission(words, initial)

    def table(self) -> Floats:
        """Return log p(word | state, word is listed) (S, V)."""
        log_p = self.log_emission(list(self.ids)).T
        return log_p - np.logaddexp.reduce(log_p, axis=1, keepdims=True)

    def log_emission(self, words: Sequence[str], initial: NDArray[np.bool_] | None = None) -> Floats:
        """Return log P(word | tag) (n_tokens, S) of the words of a text; -inf for tags that are (nearly) impossible.

        ``initial`` (n_tokens,) is True for tokens that start a sentence, by default none. Each distinct word is
        computed once: O(distinct words x letters x S + n_tokens S).
        """
        firsts = [False] * len(words) if initial is None else initial.tolist()
        distinct: dict[tuple[str, bool], int] = {}
        which = [distinct.setdefault(key, len(distinct)) for key in zip(words, firsts, strict=True)]
        forms = [word for word, _ in distinct]
        q = self.suffixes.probabilities(forms)
        lower = [self._lower.get(w.lower(), -1) if first and w != w.lower() else -1 for w, first in distinct]
        q, _ = _update(q, _rows(self._lower_counts, lower), INITIAL_WEIGHT)
        p, n = _update(q, _rows(self._counts, [self.ids.get(w, -1) for w in forms]), WORD_WEIGHT)
        p[p < LEAST * p.max(axis=1, keepdims=True)] = 0
        return _bayes(p, self.suffixes.tag_counts, np.maximum(n, 1))[which]

    def state(self) -> State:
        """Return the saved state: words and counts, from which the lexicon is rebuilt."""
        arrays = {"tag_counts": self.suffixes.tag_counts, **_arrays(self._counts)}
        return {"lexicon": True, "words": list(self.ids)}, arrays

    @classmethod
    def from_state(cls, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> "Lexicon":
        """Build a lexicon from its ``state``."""
        return cls(plain["words"], _counts(arrays, len(plain["words"])))


def _keys(word: str) -> list[str]:
    """Return keys from the most general to the longest suffix; the empty key is for all rare words."""
    shape, lower = shape_class(word) + ":", word.lower()
    n = len(lower)
    return ["", shape, *(shape + lower[n - m :] for m in range(1, min(LONGEST, n) + 1))]


def _rows(counts: csr_array, rows: Any) -> Floats:
    """Return some rows (n, S); -1 gives a row of zeros."""
    rows = np.asarray(rows, np.int64)
    out = np.zeros((len(rows), counts.shape[1]))
    known = rows >= 0
    out[known] = counts[rows[known]].toarray()
    return out


def _added(counts: csr_array, rows: Any, into: Any) -> csr_array:
    """Return new rows, of which each is the sum of old ones: ``new[into[k]] += counts[rows[k]]``."""
    n = (max(into, default=-1) + 1, counts.shape[0])
    return csr_array((np.ones(len(into)), (np.asarray(into, np.int64), np.asarray(rows, np.int64))), n) @ counts


def _arrays(counts: csr_array) -> dict[str, NDArray[Any]]:
    """Return the arrays to save."""
    return {"counts_ptr": counts.indptr, "counts_tags": counts.indices, "counts_values": counts.data}


def _counts(arrays: dict[str, NDArray[Any]], n_words: int) -> csr_array:
    """Build counts from their ``_arrays``; arrays of a damaged file are an error."""
    ptr, tags, values = arrays["counts_ptr"], arrays["counts_tags"], arrays["counts_values"]
    try:
        if ptr[-1:] != len(values):
            raise ValueError
        counts = csr_array((values, tags, ptr), (n_words, len(arrays["tag_counts"])))
        counts.check_format()
    except ValueError:
        raise DataError("damaged weights: the counts do not match: the file is damaged, train again.") from None
    if not (np.isfinite(values) & (values >= 0)).all():
        raise DataError("damaged weights: the counts are out of range: the file is damaged, train again.")
    return counts


def _update(prior: Floats, counts: Floats, weight: float) -> tuple[Floats, Floats]:
    """Return (counts + weight prior) / (n + weight), and n (n_rows, 1)."""
    n = counts.sum(axis=1, keepdims=True)
    return (counts + weight * prior) / (n + weight), n


def _bayes(p: Floats, tag_counts: Floats, n: Floats) -> Floats:
    """Return log P(word | tag) = log p(tag | word) n(word) / n(tag)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(tag_counts > 0, np.log(p * n / tag_counts), -np.inf)
