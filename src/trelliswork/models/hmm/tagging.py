"""Taggers whose labels are a Markov chain given the words: queries that need only the chain and scores of tokens."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ShapeError, extras_for
from trelliswork.inference import chain
from trelliswork.models.calibration import observed, temperature_of_sequences
from trelliswork.models.evidence import Labels, ruled_out
from trelliswork.models.hmm.data import chunks, read_sentences
from trelliswork.models.hmm.decoding import StateChain
from trelliswork.models.spans import Chains
from trelliswork.models.tasks import TagDecoding, Tagger, by_label, check_decoding

if TYPE_CHECKING:
    from trelliswork.distributions import LinearChain, NgramChain

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

    def predict(self, X: Any, *, decoding: TagDecoding = "viterbi", known: Labels | None = None) -> list[list[str]]:
        """Return the labels of each sentence.

        Parameters
        ----------
        X : as in ``fit``
        decoding : {"viterbi", "mbr", "mbr-span"}
            The most probable labeling; the most probable label of each token, for the best expected accuracy; or the
            spans with the best expected F1, if the labels encode spans.
        known : list of lists, optional
            Evidence: for each token a label, a collection of possible labels, or ``None`` if nothing is known. It
            overrides a lexicon that does not list the label for the word.
        """
        check_decoding(decoding)
        self._check_fitted()
        if decoding == "mbr-span":
            return self._by_spans(X, known)
        predicted: list[list[str]] = []
        for rows, offsets in self._rows(X, known):
            if decoding == "viterbi":
                states = self._tempered.viterbi(rows, offsets)
            else:
                states = self._tempered.marginals(rows, offsets)[1].argmax(axis=1)
            predicted += [self._labels.strings(states[a:b].tolist()) for a, b in pairwise(offsets.tolist())]
        return predicted

    def predict_marginals(self, X: Any, *, known: Labels | None = None) -> list[list[dict[str, float]]]:
        """Return p(label | sentence, known labels) for each token, as a dict by label, best first."""
        result = []
        for rows, offsets in self._rows(X, known):
            result += by_label(self.labels_, self._tempered.marginals(rows, offsets)[1], np.diff(offsets))
        return result

    def predict_topk(self, X: Any, k: int, *, known: Labels | None = None) -> list[list[tuple[list[str], float]]]:
        """Return the k most probable labelings of each sentence with their probabilities, best first; always exact."""
        ranked = []
        for rows, offsets in self._rows(X, known):
            for a, b in pairwise(offsets.tolist()):
                log_unary, log_pairwise = self._tempered.potentials(rows[a:b])
                potentials = chain.chain_potentials(log_unary[None], log_pairwise)
                states, scores = chain.topk(potentials, k)
                possible = np.isfinite(scores[0])
                p = np.exp(scores[0][possible] - chain.log_partition(potentials)[0])
                labels = (states[0][possible] % len(self._labels)).tolist()  # the last label of an n-gram
                ranked.append([(self._labels.strings(path), q) for path, q in zip(labels, p.tolist(), strict=True)])
        return ranked

    @extras_for("posterior")
    def posterior(self, sentence: Sequence[Any], *, known: Sequence[Any] | None = None) -> "LinearChain | NgramChain":
        """Return the distribution over labelings of one sentence, for any query.

        It is a `LinearChain`, within a beam a `BeamChain`; an `NgramChain` with order 2 and above.
        """
        import torch

        from trelliswork.distributions import LinearChain, NgramChain

        ((rows, _),) = self._rows([sentence], None if known is None else [known])
        log_unary, log_pairwise = self._tempered.potentials(rows)
        chain, S = LinearChain(torch.from_numpy(log_unary[None]), torch.from_numpy(log_pairwise)), len(self._labels)
        chain = chain if self._chain.beam is None else chain.within(self._chain.beam)
        return chain if log_unary.shape[1] == S else NgramChain(chain, np.arange(log_unary.shape[1]) % S, S)

    @property
    def _tempered(self) -> StateChain:
        """The chain of the labels at the temperature of the calibration, for questions about labels."""
        if self._temperature == 1:
            return self._chain
        of = (self._chain, self._temperature)
        if self._scaled is None or self._scaled[0] is not of[0] or self._scaled[1] != of[1]:
            self._scaled = (*of, self._chain.scaled(1 / self._temperature))
        return self._scaled[2]

    def _chains(self, X: Any, known: Labels | None = None) -> Chains:
        states = self._tempered
        for rows, offsets in self._rows(X, known):
            yield from states.batches(rows, offsets)

    def log_prob(self, X: Any, y: Labels | None = None) -> NDArray[np.float64]:
        """Return log p(words) of each sentence (n_sentences,), its end included if that is an event.

        With labels, log p(labels | sentence): as in `Tagger`, but a lexicon rules labels out.
        """
        if y is None:
            self._check_fitted()
            log_p = [self._chain.log_evidence(*rows) for rows in self._rows(X, tempered=False)]
            return np.concatenate([*log_p, np.empty(0)])
        states, parts = self._tempered, list(self._rows(X))
        pairs = zip(parts, self._masked(parts, y), strict=True)
        log_p = [states.log_evidence(*given) - states.log_evidence(*every) for every, given in pairs]
        return np.minimum(np.concatenate([*log_p, np.empty(0)]), 0.0)

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
