r"""Active learning: which sentences to label next, by the uncertainty of a model.

Each token has a value: the entropy of its answer, or its margin (1 minus the difference of the two best answers). The
value of a sentence is the sum over its tokens, so that long sentences are worth more, as they also cost more. With
``diverse``, sentences are chosen one after another, and a token counts half for each time that its word is in a chosen
sentence already:

.. math:: gain(s) = \sum_{t \in s} v_t\, 2^{-c(w_t)}

The expected gain of a sentence is what its labels tell about the rest of the pool
(`trelliswork.integrations.information`), given the labels that there are and the sentences that are chosen already.

Gains only fall, so that the greedy choice needs few evaluations (Minoux, 1978).
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_count
from trelliswork.data import AttributeCorpus, Corpus
from trelliswork.errors import DataError, ValueRangeError
from trelliswork.inference.chain.queries import label_marginals
from trelliswork.integrations.information import Gains, variances
from trelliswork.models.tasks import LayeredTagger, Tagger, TreeParser

Criterion = Literal["entropy", "margin", "expected-gain"]
PART = 500  # sentences whose marginals are in memory at once
Floats = NDArray[np.float64]


class Selected(NamedTuple):
    """A sentence to label."""

    sentence: int  # its place in the pool, from 0
    score: float  # its gain when it was chosen


def select(
    model: Any,
    X: Any,
    n: int,
    *,
    by: Criterion = "entropy",
    diverse: bool = False,
    per_token: bool = False,
    labeled: Any = None,
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
        The entropy of the marginal distribution of each token; 1 - (best - second best probability) of each token; or
        what the labels of a sentence tell about the words of the pool, by which copies and what is known count less.
    diverse : bool
        Choose one after another, where words that were chosen before count less. "expected-gain" always does.
    per_token : bool
        Divide the value of a sentence by its number of tokens: for a budget of tokens rather than of sentences.
    labeled : list of sentences, or Corpus, optional
        Sentences that the model was trained on, for "expected-gain": what they tell is not told again.

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
    if by == "expected-gain":
        values = [variances(tables) for tables in _marginals(model, X)]
        gains = Gains(_words(X), values)
        if labeled is not None:
            gains.know(_words(labeled), [variances(tables) for tables in _marginals(model, labeled)])
        return _greedy(gains, gains.add, _sizes(values, per_token), n)
    if labeled is not None:
        raise ValueRangeError(f"labeled= is for by='expected-gain', got by={by!r}: leave it out.")
    values = [token_values(tables, by) for tables in _marginals(model, X)]
    sizes = _sizes(values, per_token)
    if diverse:
        halved = Halved([[word.lower() for word in row] for row in _words(X)], values)
        return _greedy(halved, halved.add, sizes, n)
    scores = [float(row.sum()) / size for row, size in zip(values, sizes, strict=True)]
    order = sorted(range(len(scores)), key=lambda k: (-scores[k], k))
    return [Selected(k, scores[k]) for k in order[:n]]


def _sizes(values: Sequence[Floats], per_token: bool) -> list[int]:
    """Return what the gains of sentences are divided by."""
    return [max(len(row), 1) if per_token else 1 for row in values]


def token_values(tables: Sequence[Floats], by: Criterion) -> Floats:
    """Return the value of each token (T,), from the marginals (T, S) of each layer."""
    total = np.zeros(len(tables[0]))
    for p in tables:
        if by == "entropy":
            with np.errstate(divide="ignore", invalid="ignore"):
                total -= np.where(p > 0, p * np.log(p), 0.0).sum(axis=1)
        else:
            best = np.sort(p, axis=1)[:, -2:] if p.shape[1] > 1 else np.hstack([np.zeros_like(p), p])
            total += 1 - (best[:, -1] - best[:, -2])
    return np.maximum(total, 0.0)


class Halved:
    """Gains of sentences where a token counts half for each time that its word was chosen."""

    def __init__(self, words: Sequence[Sequence[str]], values: Sequence[Floats]) -> None:
        self._words, self._values = words, values
        self._seen: Counter[str] = Counter()

    def __call__(self, sentence: int) -> float:
        """Return the gain of a sentence."""
        own: Counter[str] = Counter()
        total = 0.0
        for value, word in zip(self._values[sentence].tolist(), self._words[sentence], strict=True):
            total += value * 0.5 ** (self._seen[word] + own[word])
            own[word] += 1
        return total

    def add(self, sentence: int) -> None:
        """Choose a sentence."""
        self._seen.update(self._words[sentence])


def _greedy(gain: Callable[[int], float], add: Callable[[int], None], sizes: Sequence[int], n: int) -> list[Selected]:
    """Choose sentences one after another; the gain of a sentence is computed again when it comes first."""
    heap = [(-gain(k) / size, k) for k, size in enumerate(sizes)]
    heapq.heapify(heap)
    chosen: list[Selected] = []
    while heap and len(chosen) < n:
        _, k = heapq.heappop(heap)
        now = gain(k) / sizes[k]
        if heap and now < -heap[0][0]:
            heapq.heappush(heap, (-now, k))
            continue
        chosen.append(Selected(k, now))
        add(k)
    return chosen


def _words(X: Any) -> list[list[str]]:
    """Return the words of sentences: the first column."""
    if isinstance(X, AttributeCorpus):
        raise DataError("this choice needs words, and the sentences have ready attributes: use entropy or margin.")
    sentences = X.sentences(0) if isinstance(X, Corpus) else X
    return [[token if isinstance(token, str) else str(token[0]) for token in row] for row in sentences]


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
    if isinstance(model, Tagger) and not isinstance(model, LayeredTagger):
        yield from _chain_marginals(model, X)
        return
    for part in _parts(X):
        found: Any = model.predict_marginals(part)  # type: ignore[union-attr]
        layers = list(found.values()) if isinstance(model, LayeredTagger) else [found]
        for tables in zip(*layers, strict=True):
            yield [_array(table) for table in tables]


def _chain_marginals(model: Tagger, X: Any) -> Iterator[list[Floats]]:
    """Yield the marginals of each sentence as arrays."""
    model._check_fitted()
    for scores in model._scored(X):
        _, marginals = label_marginals(scores, model._beam())
        for row, n in zip(marginals, scores.lengths.tolist(), strict=True):
            yield [row[:n].astype(np.float64)]


def _array(table: Sequence[dict[Any, float]]) -> Floats:
    """Return the probabilities of the answers for each token, padded with zeros."""
    width = max((len(row) for row in table), default=1)
    out = np.zeros((len(table), width))
    for t, row in enumerate(table):
        out[t, : len(row)] = list(row.values())
    return out
