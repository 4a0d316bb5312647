r"""Active learning: which sentences to label next, by the uncertainty of a model.

Each token has a value: the entropy of its answer, its margin (1 minus the difference of the two best answers), or its
expected gain, e sqrt(E), where e is the probability that its answer is wrong and E the expected number of errors of the
whole pool on the same word: an error that is frequent in the pool is worth more than a rare one. The value of a
sentence is the sum over its tokens, so that long sentences are worth more, as they also cost more.

With ``diverse``, and always for the expected gain, sentences are chosen one after another, and a token counts half for
each time that its word is in a chosen sentence already:

.. math:: gain(s) = \sum_{t \in s} v_t\, 2^{-c(w_t)}

Gains only fall, so that the greedy choice needs few evaluations (Minoux, 1978).
"""

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_count
from trelliswork.data import AttributeCorpus, Corpus
from trelliswork.errors import DataError, ValueRangeError
from trelliswork.inference import chain
from trelliswork.models.tasks import LayeredTagger, Tagger, TreeParser

Criterion = Literal["entropy", "margin", "expected-gain"]
PART = 500  # sentences whose marginals are in memory at once
Floats = NDArray[np.float64]


class Selected(NamedTuple):
    """A sentence to label."""

    sentence: int  # its place in the pool, from 0
    score: float  # its gain when it was chosen


def select(
    model: Any, X: Any, n: int, *, by: Criterion = "entropy", diverse: bool = False, per_token: bool = False
) -> list[Selected]:
    """Choose the n sentences of a pool that are most useful to label, best first.

    Parameters
    ----------
    model : tagger or DependencyParser
        Fitted; calibrate it first if its probabilities are to be trusted.
    X : list of sentences, or Corpus
        Pool of sentences without labels, as in ``predict``.
    n : int
        Number of sentences; all of a smaller pool.
    by : {"entropy", "margin", "expected-gain"}
        Value of a token: the entropy of its marginal distribution; 1 - (best - second best probability); or its
        probability of error, times the square root of the expected errors of the pool on its word.
    diverse : bool
        Choose one after another, where words that were chosen before count less. "expected-gain" always does.
    per_token : bool
        Divide the value of a sentence by its number of tokens: for a budget of tokens rather than of sentences.

    Examples
    --------
    >>> from trelliswork import CRF
    >>> crf = CRF("U:%x[0,0]", l2=0.1, scheme=None).fit([["the", "dog"], ["a", "dog"]], [["D", "N"], ["D", "N"]])
    >>> [chosen.sentence for chosen in select(crf, [["the", "dog"], ["cats", "sleep"]], 1)]
    [1]
    """
    if by not in get_args(Criterion):
        raise ValueRangeError(f"by must be one of {', '.join(map(repr, get_args(Criterion)))}, got {by!r}.")
    check_count("n", n)
    diverse = diverse or by == "expected-gain"
    values = [token_values(tables, by) for tables in _marginals(model, X)]
    words = _words(X) if diverse else None
    if by == "expected-gain" and words is not None:
        errors: Counter[str] = Counter()
        for row, own in zip(values, words, strict=True):
            for value, word in zip(row.tolist(), own, strict=True):
                errors[word] += value
        values = [row * np.sqrt([errors[word] for word in own]) for row, own in zip(values, words, strict=True)]
    sizes = [max(len(row), 1) if per_token else 1 for row in values]
    if words is None:
        scores = [float(row.sum()) / size for row, size in zip(values, sizes, strict=True)]
        order = sorted(range(len(scores)), key=lambda k: (-scores[k], k))
        return [Selected(k, scores[k]) for k in order[:n]]
    return _greedy(values, words, sizes, n)


def token_values(tables: Sequence[Floats], by: Criterion) -> Floats:
    """Return the value of each token (T,), from the marginals (T, S) of each layer."""
    total = np.zeros(len(tables[0]))
    for p in tables:
        if by == "entropy":
            with np.errstate(divide="ignore", invalid="ignore"):
                total -= np.where(p > 0, p * np.log(p), 0.0).sum(axis=1)
        elif by == "expected-gain":
            total += 1 - p.max(axis=1, initial=0.0)
        else:
            best = np.sort(p, axis=1)[:, -2:] if p.shape[1] > 1 else np.hstack([np.zeros_like(p), p])
            total += 1 - (best[:, -1] - best[:, -2])
    return np.maximum(total, 0.0)


def _greedy(values: Sequence[Floats], words: Sequence[Sequence[str]], sizes: Sequence[int], n: int) -> list[Selected]:
    """Choose sentences one after another; the gain of a sentence is computed again when it comes first."""
    seen: Counter[str] = Counter()

    def gain(k: int) -> float:
        own: dict[str, int] = {}
        total = 0.0
        for value, word in zip(values[k].tolist(), words[k], strict=True):
            count = seen[word] + own.get(word, 0)
            total += value * 0.5**count
            own[word] = own.get(word, 0) + 1
        return total / sizes[k]

    heap = [(-gain(k), k) for k in range(len(values))]
    heapq.heapify(heap)
    chosen: list[Selected] = []
    while heap and len(chosen) < n:
        _, k = heapq.heappop(heap)
        now = gain(k)
        if heap and now < -heap[0][0]:
            heapq.heappush(heap, (-now, k))
            continue
        chosen.append(Selected(k, now))
        seen.update(words[k])
    return chosen


def _words(X: Any) -> list[list[str]]:
    """Return the words of sentences, in lower case: the first column."""
    if isinstance(X, AttributeCorpus):
        raise DataError("a choice by words needs words, and the pool has ready attributes: leave diverse out.")
    sentences = X.sentences(0) if isinstance(X, Corpus) else X
    return [[(token if isinstance(token, str) else str(token[0])).lower() for token in row] for row in sentences]


def _parts(X: Any) -> Iterator[Any]:
    """Yield parts of a pool."""
    if isinstance(X, AttributeCorpus):
        yield X
        return
    for first in range(0, len(X), PART):
        if isinstance(X, Corpus):
            ends = X.offsets[first : first + PART + 1]
            yield Corpus([column[ends[0] : ends[-1]] for column in X.columns], ends - ends[0], source=X.source)
        else:
            yield X[first : first + PART]


def _marginals(model: Any, X: Any) -> Iterator[list[Floats]]:
    """Yield the marginals of each sentence: arrays (T, S), one per layer."""
    if not isinstance(model, Tagger | TreeParser) or getattr(model, "constituents", False):
        raise ValueRangeError(f"a {type(model).__name__} has no marginals of tokens: expected a tagger or a parser.")
    if isinstance(model, Tagger) and not isinstance(model, LayeredTagger) and not _needs_dicts(model):
        yield from _chain_marginals(model, X)
        return
    for part in _parts(X):
        found: Any = model.predict_marginals(part)  # type: ignore[union-attr]
        layers = list(found.values()) if isinstance(model, LayeredTagger) else [found]
        for tables in zip(*layers, strict=True):
            yield [_array(table) for table in tables]


def _needs_dicts(model: Tagger) -> bool:
    """Return whether marginals are not those of a chain of labels: isotonic maps, beams, orders above 1."""
    mapped = model.calibration_ is not None and bool(model.calibration_.maps)
    return mapped or getattr(model, "order", 1) != 1 or getattr(model, "beam", None) is not None


def _chain_marginals(model: Tagger, X: Any) -> Iterator[list[Floats]]:
    """Yield the marginals of each sentence as arrays."""
    model._check_fitted()
    for potentials, _ in model._chains(X):
        marginals = chain.expectations(potentials)[1].marginals
        assert marginals is not None
        for row, n in zip(marginals, potentials.lengths.tolist(), strict=True):
            yield [row[:n].astype(np.float64)]


def _array(table: Sequence[dict[Any, float]]) -> Floats:
    """Return the probabilities of the answers for each token, padded with zeros."""
    width = max((len(row) for row in table), default=1)
    out = np.zeros((len(table), width))
    for t, row in enumerate(table):
        out[t, : len(row)] = list(row.values())
    return out
