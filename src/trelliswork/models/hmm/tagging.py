"""Taggers whose labels are a Markov chain given the words: queries that need only the chain and scores of tokens."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.chain.beam import Beam
from trelliswork.inference.chain.queries import Scores
from trelliswork.models.calibration import observed, temperature_of_sequences
from trelliswork.models.evidence import Labels, ruled_out
from trelliswork.models.hmm.data import chunks, read_sentences
from trelliswork.models.hmm.decoding import StateChain
from trelliswork.models.tasks import Tagger

CHUNK_SCORES = 1 << 24  # scores of states that are computed at a time: 128 MB
Rows = NDArray[np.float64]
Offsets = NDArray[np.int64]


class ChainTagger(Tagger):
    """Queries of a tagger that provides scores of tokens and a chain of labels."""

    _scaled: tuple[StateChain, float, StateChain] | None = None  # a chain, a temperature, and the chain at it

    @property
    @abstractmethod
    def _chain(self) -> StateChain:
        """The chain of the labels."""

    @abstractmethod
    def _scores(self, sentences: Sequence[Sequence[Any]], offsets: Offsets, out: NDArray[np.bool_] | None) -> Rows:
        """Return scores of labels (n_tokens, S), -inf where the evidence ``out`` rules a label out."""

    @property
    def _tempered(self) -> StateChain:
        """The chain of the labels at the temperature of the calibration, for questions about labels."""
        if self._temperature == 1:
            return self._chain
        of = (self._chain, self._temperature)
        if self._scaled is None or self._scaled[0] is not of[0] or self._scaled[1] != of[1]:
            self._scaled = (*of, self._chain.scaled(1 / self._temperature))
        return self._scaled[2]

    def _scored(self, X: Any, known: Labels | None = None) -> Iterator[Scores]:
        for rows, offsets in self._rows(X, known):
            for _, scores in self._tempered.batches(rows, offsets):
                yield scores

    def _beam(self) -> Beam | None:
        return self._chain.beam

    def log_prob(self, X: Any, y: Labels | None = None, *, rules: Any = None) -> NDArray[np.float64]:
        """Return log p(words) of each sentence (n_sentences,), its end included if that is an event.

        With labels, log p(labels | sentence): as in `Tagger`, but a lexicon rules labels out.
        """
        if y is not None:
            return super().log_prob(X, y, rules=rules)
        if rules is not None:
            raise ValueRangeError("rules are about labels: pass y, too.")
        self._check_fitted()
        log_p = [self._chain.log_evidence(*rows) for rows in self._rows(X, tempered=False)]
        return np.concatenate([*log_p, np.empty(0)])

    def _agreeing(self, X: Any, y: Labels) -> Iterator[Scores]:
        for rows, offsets in self._masked(list(self._rows(X)), y):
            for _, scores in self._tempered.batches(rows, offsets):
                yield scores

    def _masked(self, parts: list[tuple[Rows, Offsets]], y: Labels) -> Iterator[tuple[Rows, Offsets]]:
        """Yield scores with -inf for all labels but those of y."""
        first = 0
        if sum(len(offsets) - 1 for _, offsets in parts) != len(y):
            raise ShapeError("y must have as many sentences as X.")
        for rows, offsets in parts:
            last = first + len(offsets) - 1
            out = ruled_out(y[first:last], np.diff(offsets), self._labels)
            yield np.where(out, -np.inf, rows), offsets
            first = last

    def _calibrate_temperature(self, X: Any, y: Any) -> dict[str, float]:
        """Return the temperature with the highest likelihood of labels, the model being at temperature 1."""
        parts = list(self._rows(X))
        given = list(self._masked(parts, observed(y, self._labels)))

        def log_z(some: list[tuple[Rows, Offsets]], factor: float) -> NDArray[np.float64]:
            states = self._chain.scaled(factor)
            return np.concatenate([states.log_evidence(rows * factor, offsets) for rows, offsets in some])

        return {"all": temperature_of_sequences(partial(log_z, parts), partial(log_z, given))}

    def _rows(self, X: Any, known: Labels | None = None, *, tempered: bool = True) -> Iterator[tuple[Rows, Offsets]]:
        """Yield the scores of parts of the sentences, divided by the temperature, and their offsets."""
        self._check_fitted()
        sentences = read_sentences(X)
        if known is not None and len(known) != len(sentences):
            raise ShapeError(f"known must have as many sentences as X, {len(sentences)}, got {len(known)}.")
        lengths = np.array([len(sentence) for sentence in sentences], np.int64)
        ends = np.concatenate([[0], np.cumsum(lengths)])
        for first, last in chunks(ends, max(1, CHUNK_SCORES // len(self._labels))):
            out = None if known is None else ruled_out(known[first:last], lengths[first:last], self._labels)
            offsets = ends[first : last + 1] - ends[first]
            rows = self._scores(sentences[first:last], offsets, out)
            if tempered and self._temperature != 1:
                rows /= self._temperature
            yield rows, offsets
