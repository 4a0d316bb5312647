"""Taggers whose labels are a Markov chain given the words: queries that need only the chain and scores of tokens."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ShapeError, ValueRangeError, extras_for
from trelliswork.inference import chain
from trelliswork.models.evidence import Labels, ruled_out
from trelliswork.models.hmm.data import chunks, read_sentences
from trelliswork.models.hmm.decoding import StateChain
from trelliswork.models.tasks import Tagger

if TYPE_CHECKING:
    from trelliswork.distributions import LinearChain

CHUNK_SCORES = 1 << 24  # scores of states that are computed at a time: 128 MB
Rows = NDArray[np.float64]
Offsets = NDArray[np.int64]


class ChainTagger(Tagger):
    """Queries of a tagger that provides scores of tokens and a chain of labels."""

    @property
    @abstractmethod
    def _chain(self) -> StateChain:
        """The chain of the labels."""

    @abstractmethod
    def _scores(self, sentences: Sequence[Sequence[Any]], offsets: Offsets, out: NDArray[np.bool_] | None) -> Rows:
        """Return scores of labels (n_tokens, S), -inf where the evidence ``out`` rules a label out."""

    def predict(
        self, X: Any, *, decoding: Literal["viterbi", "posterior"] = "viterbi", known: Labels | None = None
    ) -> list[list[str]]:
        """Return the labels of each sentence: the most probable sequence, or the most probable label of each token.

        Parameters
        ----------
        X : as in ``fit``
        decoding : {"viterbi", "posterior"}
        known : list of lists, optional
            Evidence: for each token a label, a collection of possible labels, or ``None`` if nothing is known. It
            overrides a lexicon that does not list the label for the word.
        """
        if decoding not in ("viterbi", "posterior"):
            raise ValueRangeError(f"decoding must be 'viterbi' or 'posterior', got {decoding!r}.")
        predicted: list[list[str]] = []
        for rows, offsets in self._rows(X, known):
            if decoding == "viterbi":
                states = self._chain.viterbi(rows, offsets)
            else:
                states = self._chain.marginals(rows, offsets)[1].argmax(axis=1)
            predicted += [self.labels_.strings(states[a:b].tolist()) for a, b in pairwise(offsets.tolist())]
        return predicted

    def predict_marginals(self, X: Any, *, known: Labels | None = None) -> list[list[dict[str, float]]]:
        """Return p(label | sentence, known labels) for each token, as a dict by label."""
        result = []
        for rows, offsets in self._rows(X, known):
            _, marginals = self._chain.marginals(rows, offsets)
            for a, b in pairwise(offsets.tolist()):
                result.append([dict(zip(self.labels_, row, strict=True)) for row in marginals[a:b].tolist()])
        return result

    def predict_topk(self, X: Any, k: int, *, known: Labels | None = None) -> list[list[tuple[list[str], float]]]:
        """Return the k most probable labelings of each sentence with their probabilities, best first; always exact."""
        ranked = []
        for rows, offsets in self._rows(X, known):
            for a, b in pairwise(offsets.tolist()):
                log_unary, log_pairwise = self._chain.potentials(rows[a:b])
                potentials = chain.chain_potentials(log_unary[None], log_pairwise)
                states, scores = chain.topk(potentials, k)
                possible = np.isfinite(scores[0])
                p = np.exp(scores[0][possible] - chain.log_partition(potentials)[0])
                labels = (states[0][possible] % len(self.labels_)).tolist()  # the last label of an n-gram
                ranked.append([(self.labels_.strings(path), q) for path, q in zip(labels, p.tolist(), strict=True)])
        return ranked

    @extras_for("posterior")
    def posterior(self, sentence: Sequence[Any], *, known: Sequence[Any] | None = None) -> "LinearChain":
        """Return the distribution over labelings of one sentence, for any query.

        With a beam it is a ``BeamChain``. With order 2 its states are first the S labels, as the start of a sentence,
        then pairs: S + a S + b is label b after label a; with order 3 triples follow.
        """
        import torch

        from trelliswork.distributions import LinearChain

        ((rows, _),) = self._rows([sentence], None if known is None else [known])
        log_unary, log_pairwise = self._chain.potentials(rows)
        distribution = LinearChain(torch.from_numpy(log_unary[None]), torch.from_numpy(log_pairwise))
        return distribution if self._chain.beam is None else distribution.within(self._chain.beam)

    def _rows(self, X: Any, known: Labels | None = None) -> Iterator[tuple[Rows, Offsets]]:
        """Yield the scores of parts of the sentences, and the offsets of the sentences in them."""
        self._check_fitted()
        sentences = read_sentences(X)
        if known is not None and len(known) != len(sentences):
            raise ShapeError(f"known must have as many sentences as X, {len(sentences)}, got {len(known)}.")
        lengths = np.array([len(sentence) for sentence in sentences], np.int64)
        ends = np.concatenate([[0], np.cumsum(lengths)])
        for first, last in chunks(ends, max(1, CHUNK_SCORES // len(self.labels_))):
            out = None if known is None else ruled_out(known[first:last], lengths[first:last], self.labels_)
            offsets = ends[first : last + 1] - ends[first]
            yield self._scores(sentences[first:last], offsets, out), offsets
