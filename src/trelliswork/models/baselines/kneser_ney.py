r"""N-gram language models with interpolated, modified Kneser-Ney smoothing (Chen and Goodman, 1999, section 4.1).

.. math::
   p_m(w \mid h) = \frac{c(hw) - D_m(c(hw))}{c(h\,\cdot)} + \gamma_m(h)\, p_{m-1}(w \mid h'), \qquad
   \gamma_m(h) = \frac{D_1 N_1(h) + D_2 N_2(h) + D_{3+} N_{3+}(h)}{c(h\,\cdot)}

h' is h without its first word, :math:`N_j(h)` the number of words seen j times after h. Below the highest order c
counts different words before the n-gram instead of how often it occurs; :math:`p_0` is uniform. The discounts of each
order come from the numbers :math:`n_j` of n-grams with count j: :math:`Y = n_1 / (n_1 + 2 n_2)`,
:math:`D_j = j - (j + 1) Y n_{j+1} / n_j`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.ids import Source, stream_ids
from trelliswork.data.vocabulary import Vocabulary
from trelliswork.errors import DataError
from trelliswork.learning.report import Callback, FitReport, counting_callback
from trelliswork.models.base import Arrays, Description
from trelliswork.models.baselines.base import LeftToRight, Tokens
from trelliswork.models.baselines.ngrams import NgramTable, count_ngrams, positions_in_sentence
from trelliswork.models.parameters import TRAINING, MaxWords, MinCount, Parameter, Strict

_FALLBACK = (0.5, 1.0, 1.5)  # discounts for texts so small that counts of counts are missing


def discounts(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return D by count, 0 to 3 and more (4,); ``D[0]`` is 0."""
    n1, n2, n3, n4 = (float((counts == j).sum()) for j in range(1, 5))
    by_count = list(_FALLBACK)
    if min(n1, n2) > 0:
        y = n1 / (n1 + 2 * n2)
        for j, (n, more) in enumerate(((n1, n2), (n2, n3), (n3, n4))):
            estimate = j + 1 - (j + 2) * y * more / n if n > 0 and more > 0 else 0.0
            if estimate > 0:  # no discount would leave no mass for new words
                by_count[j] = estimate
    return np.array([0.0, *by_count])


@dataclass
class _Order:
    """One order: the discounted share of each n-gram, and the remaining mass of each context, when they are needed."""

    table: NgramTable
    n_contexts: int
    C: int

    @cached_property
    def _weights(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        prefix, counts = self.table.keys // self.C, self.table.counts
        D = discounts(counts)[np.minimum(counts, 3)]
        total = np.bincount(prefix, weights=counts, minlength=self.n_contexts)
        lost = np.bincount(prefix, weights=D, minlength=self.n_contexts)
        rest = np.divide(lost, total, out=np.ones(self.n_contexts), where=total > 0)
        return (counts - D) / total[prefix], rest

    @property
    def share(self) -> NDArray[np.float64]:
        """(c - D(c)) / c(h .) of each n-gram (n,)."""
        return self._weights[0]

    @property
    def rest(self) -> NDArray[np.float64]:
        """gamma(h) of each context (contexts,); 1 where it was never seen."""
        return self._weights[1]


class KneserNey(LeftToRight):
    """An n-gram language model with interpolated modified Kneser-Ney smoothing.

    Attributes
    ----------
    vocabulary_ : Vocabulary
        Id 0, ``<s>``, is the start of a sentence as a context and its end as an event.

    Notes
    -----
    Training takes O(n order log n) for n tokens, scoring O(order log n) per token. ``memory`` bounds the memory of
    counting beside that of the words, however long the text is; scoring needs 32 bytes per n-gram.

    Examples
    --------
    >>> model = KneserNey(2).fit([["a", "b"], ["a", "b"], ["b"]])
    >>> model.predict_next(["a"], 1)[0][0]
    'b'
    >>> round(float(model.next_distribution(["a"]).sum()), 6)
    1.0
    """

    kind: ClassVar[str] = "kneser-ney"
    title: ClassVar[str] = "Kneser-Ney language model"

    def __init__(
        self,
        order: Annotated[
            int,
            Parameter(
                "Length of the n-grams: with 5, a word depends on the four before it. Orders beyond the longest "
                "sentence and its two edges change nothing.",
                minimum=1,
            ),
        ] = 5,
        *,
        min_count: MinCount = 1,
        max_words: MaxWords = None,
        strict: Strict = False,
        memory: Annotated[
            int,
            Parameter("Megabytes for counting; temporary files beyond that.", minimum=1, panel=TRAINING),
        ] = 1024,
    ) -> None:
        self.order = order
        self.min_count = min_count
        self.max_words = max_words
        self.strict = strict
        self.memory = memory

    def fit(self, X: Source, y: object = None, *, callback: Callback | None = None) -> Self:
        """Count the n-grams of a text.

        Parameters
        ----------
        X : path, list of paths, Corpus or list of sentences
            Text files (plain or gzip, one sentence per line), directories of them, or lists of words.
        callback : callable, optional
            Called with a `Step` while the text is read; its result is ignored.
        """
        self._check_parameters()
        counting = counting_callback(callback)
        limits: Any = {"min_count": self.min_count, "max_words": self.max_words, "open_vocabulary": not self.strict}
        memory = self.memory << 20
        text = stream_ids(X, edges=True, callback=counting, memory_limit=memory, **limits)
        tables = count_ngrams(text.blocks, self.order, len(text.vocabulary), memory)
        self._set(tables, len(text.vocabulary))
        self.vocabulary_, self.report_ = text.vocabulary, FitReport(True, "all n-grams counted", float("nan"))
        return self

    @property
    def reach(self) -> int:
        """Number of words before a word that its probability depends on."""
        return self.order - 1

    def n_ngrams(self) -> list[int]:
        """Return the number of n-grams of each order, from 1 on."""
        self._check_fitted()
        words, *longer = (order.table for order in self._orders)
        return [int((words.counts > 0).sum()), *(len(table.keys) for table in longer)]

    def _description(self) -> Description:
        facts = {"order": self.order, "words": len(self.vocabulary_) - 1, "ngrams": self.n_ngrams()}
        return Description(f"Kneser-Ney language model of order {self.order}", facts)

    def _set(self, tables: list[NgramTable], C: int) -> None:
        sizes = [1, *(len(table.keys) for table in tables)]
        self._orders = [_Order(table, n, C) for table, n in zip(tables, sizes, strict=False)]

    def _log_p(self, flat: Tokens, offsets: Tokens) -> NDArray[np.float64]:
        C = len(self.vocabulary_)
        depth = positions_in_sentence(len(flat), offsets)
        lowest = self._orders[0]
        p = lowest.share[flat] + lowest.rest[0] / C
        ids = np.where(depth == 0, 0, flat)  # of the context that ends at each token; <s> is always known
        for m, order in enumerate(self._orders[1:], start=2):
            context = np.concatenate([[-1], ids[:-1]])
            context[depth < m - 1] = -1
            at = order.table.find(context, flat, C)
            known = context >= 0
            p[known] *= order.rest[context[known]]
            p[at >= 0] += order.share[at[at >= 0]]
            ids = at
        with np.errstate(divide="ignore"):
            return np.log(p)

    def _next(self, context: Tokens) -> NDArray[np.float64]:
        C = len(self.vocabulary_)
        p = self._orders[0].share + self._orders[0].rest[0] / C
        for m, order in enumerate(self._orders[1:], start=2):
            prefix = self._context(context[-(m - 1) :]) if len(context) >= m - 1 else -1
            if prefix < 0:
                break
            a, b = np.searchsorted(order.table.keys, [prefix * C, (prefix + 1) * C])
            p = p * order.rest[prefix]
            p[order.table.keys[a:b] - prefix * C] += order.share[a:b]
        return p

    def _context(self, words: Tokens) -> int:
        """Return the index of some words in the table of their order, -1 if they are not listed."""
        at = words[:1]
        for order, word in zip(self._orders[1:], words[1:], strict=False):
            at = order.table.find(at, word[None], len(self.vocabulary_))
        return int(at[0])

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        plain = {
            "parameters": self.get_params(),
            "words": self.vocabulary_.items,
            "unknown": self.vocabulary_.unknown_word,
        }
        arrays: Arrays = {}
        for m, order in enumerate(self._orders, start=1):
            arrays |= {f"{m}.keys": order.table.keys, f"{m}.counts": order.table.counts}
        return plain, arrays

    @classmethod
    def _from_state(cls, plain: dict[str, Any], arrays: Arrays) -> Self:
        self = cls(**plain["parameters"])
        vocabulary = Vocabulary.restored(plain["words"], plain["unknown"])
        C = len(vocabulary)
        tables = [NgramTable(arrays[f"{m}.keys"], arrays[f"{m}.counts"]) for m in range(1, self.order + 1)]
        for m, table in enumerate(tables):
            n_contexts = 1 if m == 0 else len(tables[m - 1].keys)
            fits = table.keys.shape == table.counts.shape and (table.keys[1:] > table.keys[:-1]).all()
            if not fits or (table.keys >= n_contexts * C).any() or (table.counts < 0).any():
                raise DataError(f"the table of order {m + 1} is damaged: train again.")
        self._set(tables, C)
        self.vocabulary_, self.report_ = vocabulary, FitReport(True, "all n-grams counted", float("nan"))
        return self
