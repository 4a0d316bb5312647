r"""N-gram language models with interpolated, modified Kneser-Ney smoothing (Chen and Goodman, 1999, section 4.1).

.. math::
   p_m(w \mid h) = \frac{c(hw) - D_m(c(hw))}{c(h\,\cdot)} + \gamma_m(h)\, p_{m-1}(w \mid h'), \qquad
   \gamma_m(h) = \frac{D_1 N_1(h) + D_2 N_2(h) + D_{3+} N_{3+}(h)}{c(h\,\cdot)}

h' is h without its first word, :math:`N_j(h)` the number of words seen j times after h. Below the highest order c
counts different words before the n-gram instead of how often it occurs; :math:`p_0` is uniform. The discounts of each
order come from the numbers :math:`n_j` of n-grams with count j: :math:`Y = n_1 / (n_1 + 2 n_2)`,
:math:`D_j = j - (j + 1) Y n_{j+1} / n_j`.
"""

from dataclasses import KW_ONLY
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.ids import Source, renumbered, stream_ids, word_index
from trelliswork.data.text import Lines
from trelliswork.data.vocabulary import UNKNOWN, Vocabulary
from trelliswork.errors import DataError
from trelliswork.learning.report import Callback, FitReport, counting_callback
from trelliswork.models.base import Arrays, Description
from trelliswork.models.baselines.base import LeftToRight, Tokens
from trelliswork.models.baselines.compact import CompactTables, even_stride
from trelliswork.models.baselines.ngrams import count_ngrams, find_ngrams
from trelliswork.models.baselines.sentences import SentenceScorer
from trelliswork.models.parameters import (
    TRAINING,
    FurtherOptions,
    MaxWords,
    MinCount,
    Parameter,
    Unknown,
    estimator,
    later,
    option,
)

_LISTS = {list, tuple}


class ListedOrder(NamedTuple):
    """The n-grams of one order m, sorted by ``keys``; logarithms are natural.

    ``keys`` (n,) are ``prefix * C + word``: the prefix is the index of the first m - 1 words in the order below. Order
    1 lists all C words: item 0 is ``</s>`` as an event, ``<s>`` as a context.
    """

    keys: NDArray[np.int64]
    log_p: NDArray[np.float64]
    log_rest: NDArray[np.float64]  # weight of the order below after these words; 0 in the highest order


@estimator
class KneserNey(LeftToRight):
    """An n-gram language model with interpolated modified Kneser-Ney smoothing.

    Attributes
    ----------
    vocabulary_ : tuple of str
        Id 0, ``<s>``, is the start of a sentence as a context and its end as an event.

    Notes
    -----
    Training takes O(n order log n) for n tokens, scoring O(order log n) per token. ``memory`` bounds the memory of
    counting beside that of the words, however long the text is; scoring needs 4 to 12 bytes per n-gram,
    which may be pages of the model's file (``load(path, mapped=True)``).

    A model converted from an ARPA file has the probabilities and back-off weights of that file.

    Examples
    --------
    >>> model = KneserNey(2).fit([["a", "b"], ["a", "b"], ["b"]])
    >>> model.predict_next(["a"], 1)[0][0]
    'b'
    >>> round(float(model.next_distribution(["a"]).sum()), 6)
    1.0
    """

    family: ClassVar[str] = "kneser-ney"
    _title: ClassVar[str] = "Kneser-Ney language model"
    _tables: CompactTables = later()
    _scorer: SentenceScorer | None = later(None)

    order: Annotated[
        int,
        Parameter(
            "Length of the n-grams: with 5, a word depends on the four before it. Orders beyond the longest "
            "sentence and its two edges change nothing.",
            minimum=1,
        ),
    ] = 5
    _: KW_ONLY
    min_count: MinCount = 1
    max_words: MaxWords = None
    unknown: Unknown = "symbol"
    options: FurtherOptions = None
    memory: Annotated[
        int,
        Parameter("Megabytes for counting; temporary files beyond that.", minimum=1, panel=TRAINING),
    ] = option(256)

    def fit(self, X: Source, y: object = None, *, callback: Callback | None = None) -> Self:
        """Count the n-grams of a text.

        Parameters
        ----------
        X : Path, list of Path, Corpus or list of sentences
            Text files (plain or gzip, one sentence per line), directories of them, or lists of words.
        callback : callable, optional
            Called with a `Step` while the text is read; its result is ignored.
        """
        self._check_parameters()
        counting = counting_callback(callback)
        limits: Any = {"min_count": self.min_count, "max_words": self.max_words, "unknown": self.unknown}
        memory = self.memory << 20
        text = stream_ids(X, callback=counting, memory_limit=memory, **limits)
        C = len(text.vocabulary)
        stride = even_stride(C)
        numbers = (np.arange(C) * stride % C).astype(np.int32)
        blocks = (renumbered(block, numbers) for block in text.blocks)
        tables = count_ngrams(blocks, self.order, C, memory)
        self._set(CompactTables.counted(tables, stride, memory // (4 * self.order)), text.vocabulary)
        self.report_ = FitReport(True, "all n-grams counted", float("nan"))
        return self

    def _set(self, tables: CompactTables, vocabulary: Vocabulary) -> None:
        self._tables, self._words, self._scorer = tables, vocabulary, SentenceScorer(tables, vocabulary)

    @property
    def _reach(self) -> int:
        """Number of words before a word that its probability depends on."""
        return self.order - 1

    def n_ngrams(self) -> list[int]:
        """Return the number of n-grams of each order, from 1 on."""
        self._check_fitted()
        return self._tables.sizes()

    def log_prob(self, X: Source) -> NDArray[np.float64]:
        """Return the natural log-probability of each sentence, its end included (n_sentences,).

        Parameters
        ----------
        X : as in ``fit``
            Unlisted words are the unknown word, or an error if the vocabulary has none.
        """
        self._check_fitted()
        sentences, split = (X.lines, False) if isinstance(X, Lines) else (X, True)
        if isinstance(sentences, list | tuple) and sentences and not (split and {*map(type, sentences)} - _LISTS):
            assert self._scorer is not None
            log_p = self._scorer.log_evidence(sentences, split=split)
            if log_p is not None:
                return log_p
        return super().log_prob(X)

    @classmethod
    def from_orders(cls, words: list[str], orders: list[ListedOrder], source: str) -> Self:
        """Return a model with these probabilities and back-off weights, whatever smoothing they come from.

        Item 0 of the words is ``<s>``. Other words are an error unless ``<unk>`` is listed.
        """
        self = cls(len(orders), unknown="symbol" if UNKNOWN in words else "error")
        vocabulary = Vocabulary(words, unknown=UNKNOWN if UNKNOWN in words else None)
        numbers = [[np.exp(order.log_p) for order in orders], [np.exp(order.log_rest) for order in orders]]
        self._set(CompactTables.listed([order.keys for order in orders], *numbers), vocabulary)
        self.report_ = FitReport(True, f"read from {source}", float("nan"))
        return self

    def _description(self) -> Description:
        facts = {"order": self.order, "words": len(self._words) - 1, "ngrams": self.n_ngrams()}
        smoothing = "Kneser-Ney" if self._tables.interpolated else "Back-off"
        return Description(f"{smoothing} language model of order {self.order}", facts)

    def orders(self) -> list[ListedOrder]:
        """Return the interpolated probability of every n-gram, and the weight of the order below after it."""
        self._check_fitted()
        C, orders = len(self._words), []
        p, below = np.empty(0), np.empty(0)
        table = ends = np.empty(0, np.int64)  # index of each n-gram of the order before, without its first word
        for m, (keys, share, rest) in enumerate(self._tables.plain_orders(), start=1):
            if m == 1:
                p = share
            else:
                prefix, word = np.divmod(keys, C)
                ends = word if m == 2 else find_ngrams(table, ends[prefix], word, C)
                assert (ends >= 0).all() or not self._tables.interpolated
                p = below[prefix] * p[ends] + share if self._tables.interpolated else share
            with np.errstate(divide="ignore"):
                orders.append(ListedOrder(keys, np.log(p), np.log(rest)))
            table, below = keys, rest
        return orders

    def _log_p(self, flat: Tokens, offsets: Tokens) -> NDArray[np.float64]:
        assert self._scorer is not None
        with np.errstate(divide="ignore"):
            return np.log(self._scorer.ids(flat, offsets))

    def _next(self, context: Tokens) -> NDArray[np.float64]:
        return self._tables.after(context)

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        tables, arrays = self._tables.state()
        return {"words": self._words.items, "unknown": self._words.unknown_word, "tables": tables}, arrays

    def _restore(self, plain: dict[str, Any], arrays: Arrays) -> None:
        vocabulary = Vocabulary.restored(plain["words"], plain["unknown"], check=False)
        if word_index(vocabulary) is None:  # it lists distinct words only
            vocabulary.check_distinct()
        tables = CompactTables.restored(plain["tables"], arrays)
        if len(vocabulary) != tables.C or len(tables.levels) != self.order:
            raise DataError(f"the tables do not fit {len(vocabulary)} words and order {self.order}: train again.")
        self._set(tables, vocabulary)
