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

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.data.files import Readable, source_name
from trelliswork.data.foreign.arpa import ArpaOrder, read_arpa, write_arpa
from trelliswork.data.ids import Source, stream_ids
from trelliswork.data.vocabulary import UNKNOWN, Vocabulary
from trelliswork.errors import DataError
from trelliswork.learning.report import Callback, FitReport, counting_callback
from trelliswork.models.base import Arrays, Description
from trelliswork.models.baselines.base import LeftToRight, Tokens
from trelliswork.models.baselines.kernels.ngrams import Level, extend
from trelliswork.models.baselines.ngrams import NgramTable, count_ngrams, positions_in_sentence
from trelliswork.models.parameters import TRAINING, MaxWords, MinCount, Parameter, Strict

_QUERY_COST = 100  # of an n-gram, in multiplications
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

    def words(self) -> NDArray[np.float64]:
        """Return p of each word, if this is order 1 (C,)."""
        return self.share + self.rest[0] / self.C

    def extend(self, p: NDArray[np.float64], at: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the probabilities of n-grams ``at``, given ``p``, those of the order below times ``rest``."""
        return p + self.share[at]

    @cached_property
    def level(self) -> Level:
        """The n-grams for queries."""
        return self.table.level(self.C, self.share, self.rest)


@dataclass
class _Listed:
    """One order of a back-off model: the probability of each listed n-gram, the back-off weight of each context."""

    table: NgramTable
    p: NDArray[np.float64]
    rest: NDArray[np.float64]
    C: int

    def words(self) -> NDArray[np.float64]:
        """Return p of each word, if this is order 1 (C,)."""
        return self.p

    def extend(self, p: NDArray[np.float64], at: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the probabilities of n-grams ``at``; ``p`` is ignored."""
        return self.p[at]

    @cached_property
    def level(self) -> Level:
        """The n-grams for queries."""
        return self.table.level(self.C, self.p, self.rest)


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

    A model that was read from an ARPA file has the probabilities and back-off weights of that file.

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
    _orders: Sequence[_Order | _Listed]

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
        words, *longer = self._orders
        n_words = words.table.counts > 0 if isinstance(words, _Order) else words.p > 0
        return [int(n_words.sum()), *(len(order.table.keys) for order in longer)]

    @classmethod
    def from_arpa(cls, path: Readable) -> Self:
        """Read an n-gram model from an ARPA file, plain or gzip, as KenLM and SRILM write it.

        Its probabilities and back-off weights are kept as they are, whatever smoothing they come from. Unlisted words
        are an error unless the file lists ``<unk>``.
        """
        words, orders = read_arpa(path)
        self = cls(len(orders), strict=UNKNOWN not in words)
        vocabulary = Vocabulary(words, unknown=UNKNOWN if UNKNOWN in words else None)
        self._set_listed(orders)
        self.vocabulary_ = vocabulary
        self.report_ = FitReport(True, f"read from {source_name(path)}", float("nan"))
        return self

    def to_arpa(self, path: str | Path) -> None:
        """Write the model to an ARPA file, which KenLM and SRILM read; gzip if the name ends in ``.gz``.

        Probabilities are interpolated ones, so that back-off gives the same numbers as interpolation.
        """
        self._check_fitted()
        write_arpa(path, [*self.vocabulary_], self._listed())

    def _description(self) -> Description:
        facts = {"order": self.order, "words": len(self.vocabulary_) - 1, "ngrams": self.n_ngrams()}
        smoothing = "Kneser-Ney" if isinstance(self._orders[0], _Order) else "Back-off"
        return Description(f"{smoothing} language model of order {self.order}", facts)

    def _set(self, tables: list[NgramTable], C: int) -> None:
        sizes = [1, *(len(table.keys) for table in tables)]
        self._orders = [_Order(table, n, C) for table, n in zip(tables, sizes, strict=False)]

    def _set_listed(self, orders: list[ArpaOrder]) -> None:
        rest, listed = np.ones(1), list[_Listed]()
        for order in orders:
            listed.append(
                _Listed(NgramTable(order.keys, np.empty(0, np.int64)), np.exp(order.log_p), rest, len(orders[0].keys))
            )
            rest = np.exp(order.log_rest)
        self._orders = listed

    def _listed(self) -> list[ArpaOrder]:
        """Return the probability of every n-gram, and the weight of the order below after it."""
        C, orders = len(self.vocabulary_), []
        p = self._orders[0].words()
        ends = np.empty(0, np.int64)  # index of each n-gram of the order before, without its first word
        for m, order in enumerate(self._orders, start=1):
            if m > 1:
                prefix, word = np.divmod(order.table.keys, C)
                if m == 2:
                    ends = word
                else:
                    ends = self._orders[m - 2].table.find(ends[prefix], word, C)
                assert (ends >= 0).all() or isinstance(order, _Listed)
                p = order.extend(order.rest[prefix] * p[ends], np.arange(len(word)))
            with np.errstate(divide="ignore"):
                log_rest = np.log(self._orders[m].rest) if m < len(self._orders) else np.zeros(len(p))
                orders.append(ArpaOrder(order.table.keys, np.log(p), log_rest))
        return orders

    def _log_p(self, flat: Tokens, offsets: Tokens) -> NDArray[np.float64]:
        C, n = len(self.vocabulary_), len(flat)
        depth = positions_in_sentence(n, offsets)
        p = self._orders[0].words()[flat]
        before = np.where(depth == 0, 0, flat)  # the context that ends at each token; <s> is always known
        ranges = threads.cut(np.full(n, _QUERY_COST), least=threads.LEAST_WORK)
        for m, order in enumerate(self._orders[1:], start=2):
            ids = np.empty(n, np.int64)
            interpolated = isinstance(order, _Order)
            threads.run(extend, ranges, flat, depth - (m - 2), C, before, order.level, interpolated, p, ids)
            before = ids
        with np.errstate(divide="ignore"):
            return np.log(p)

    def _next(self, context: Tokens) -> NDArray[np.float64]:
        C = len(self.vocabulary_)
        p = self._orders[0].words()
        for m, order in enumerate(self._orders[1:], start=2):
            prefix = self._context(context[-(m - 1) :]) if len(context) >= m - 1 else -1
            if prefix < 0:
                break
            a, b = np.searchsorted(order.table.keys, [prefix * C, (prefix + 1) * C])
            p = p * order.rest[prefix]
            words = order.table.keys[a:b] - prefix * C
            p[words] = order.extend(p[words], np.arange(a, b))
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
        if isinstance(self._orders[0], _Listed):
            for m, listed in enumerate(self._listed(), start=1):
                arrays |= {f"{m}.keys": listed.keys, f"{m}.log_p": listed.log_p, f"{m}.log_rest": listed.log_rest}
            return plain | {"back_off": True}, arrays
        for m, order in enumerate(self._orders, start=1):
            arrays |= {f"{m}.keys": order.table.keys, f"{m}.counts": order.table.counts}
        return plain, arrays

    @classmethod
    def _from_state(cls, plain: dict[str, Any], arrays: Arrays) -> Self:
        self = cls(**plain["parameters"])
        vocabulary = Vocabulary.restored(plain["words"], plain["unknown"])
        C = len(vocabulary)
        orders, n_contexts = range(1, self.order + 1), 1
        for m in orders:
            keys = arrays[f"{m}.keys"]
            values = [
                arrays[f"{m}.{name}"] for name in (("log_p", "log_rest") if plain.get("back_off") else ("counts",))
            ]
            fits = all(keys.shape == other.shape for other in values) and bool((keys[1:] > keys[:-1]).all())
            fits = fits and (m > 1 or np.array_equal(keys, np.arange(C)))
            if not fits or (keys >= n_contexts * C).any() or (keys < 0).any() or not _possible(*values):
                raise DataError(f"the table of order {m} is damaged: train again.")
            n_contexts = len(keys)
        if plain.get("back_off"):
            self._set_listed(
                [ArpaOrder(*(arrays[f"{m}.{name}"] for name in ("keys", "log_p", "log_rest"))) for m in orders]
            )
            reason = "read from an ARPA file"
        else:
            self._set([NgramTable(arrays[f"{m}.keys"], arrays[f"{m}.counts"]) for m in orders], C)
            reason = "all n-grams counted"
        self.vocabulary_, self.report_ = vocabulary, FitReport(True, reason, float("nan"))
        return self


def _possible(first: NDArray[Any], log_rest: NDArray[Any] | None = None) -> bool:
    """Return whether these can be counts, or logarithms of probabilities and of back-off weights."""
    if log_rest is None:
        return bool((first >= 0).all())
    return bool((first <= 0).all() and (log_rest < np.inf).all() and first.dtype == log_rest.dtype == np.float64)
