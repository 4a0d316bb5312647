"""Potentials of chains from the attributes and weights of a CRF, batch by batch."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.features.attributes import Attributes
from trelliswork.inference import chain
from trelliswork.inference.chain.beam.sparse import SparseChain
from trelliswork.models.crf.beams.layout import BeamWeights, StateWeights, Structure
from trelliswork.models.crf.kernels.edges import EdgeFeatures, edge_scores
from trelliswork.models.crf.kernels.objective import scores
from trelliswork.models.crf.layout import Allowed, ChainWeights, FeatureLayout, Floats, ScoredTokens, Tokens

Scores = chain.Potentials | SparseChain
BATCH_TOKENS = 20_000  # maximum number of tokens that are decoded together
BATCH_EDGES = 1 << 24  # maximum number of transition scores in memory, if each position has its own


def tokens_of(attributes: Attributes) -> Tokens:
    """Return attributes as plain arrays."""
    edges = None if attributes.edges is None else tokens_of(attributes.edges)
    return Tokens(attributes.offsets, attributes.token_ptr, attributes.ids, attributes.values, edges)


class Scorer:
    """Sentences to be scored under one layout, with one or several weight vectors."""

    def __init__(
        self, attributes: Attributes, layout: FeatureLayout, allowed: Allowed | None, structure: Structure | None = None
    ) -> None:
        self._tokens = ScoredTokens(tokens_of(attributes), layout)
        self._layout, self._allowed, self._structure = layout, allowed, structure
        self.lengths = np.diff(attributes.offsets)
        self._costs = np.diff(attributes.token_ptr)

    def potentials(self, weights: Floats, ruled_out: NDArray[np.bool_] | None = None) -> Iterator[Scores]:
        """Yield the scores of batches of sentences, in order; -inf for labels ``ruled_out`` (n_tokens, S)."""
        if len(self._costs) == 0:
            return
        w: ChainWeights | StateWeights
        higher = None
        if self._structure is None:
            w = ChainWeights(weights, self._layout, self._allowed)
        else:
            n = self._structure.n_weights
            w = StateWeights(weights[n:], self._layout, False, None)
            higher = BeamWeights(weights[:n], w, self._layout, self._allowed, self._structure)
        S, width = self._layout.n_labels, w.wide.shape[1]
        unary = np.empty((len(self._costs), width), np.float32)
        threads.run(
            lambda start, stop: scores(start, stop, self._tokens.arrays, w.arrays, S, unary, start * width),
            threads.cut(self._costs, least=threads.LEAST_WORK // width),
        )
        offsets = self._tokens.offsets
        unary[offsets[:-1]] += w.start
        unary[offsets[1:] - 1] += w.end
        if ruled_out is not None:
            unary[:, :S][ruled_out] = -np.inf
        for first, last in self._batches():
            size = self.lengths[first:last]
            log_unary = np.zeros((len(size), size.max(), S), np.float32)
            log_unary[np.arange(size.max()) < size[:, None]] = unary[offsets[first] : offsets[last], :S]
            if higher is not None:
                assert self._structure is not None
                ends = higher.log_start, higher.log_end
                yield SparseChain(log_unary, self._structure.transitions, higher.log_weights, *ends, size)
                continue
            assert isinstance(w, ChainWeights)
            pairwise = w.log_transition
            if self._layout.n_edge_attributes:
                pairwise = np.zeros((len(size), size.max() - 1, S, S), np.float32)
                features = EdgeFeatures(*self._tokens.edge_arrays, *w.edge_arrays)
                for b in range(len(size)):
                    edge_scores(offsets[first + b], offsets[first + b + 1], features, w.log_transition, pairwise[b])
            yield chain.chain_potentials(log_unary, pairwise, size, check_values=False)

    def _batches(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of sentences: as many as fit when all are padded to the longest."""
        most = BATCH_TOKENS
        if self._layout.n_edge_attributes:
            most = max(1, min(most, BATCH_EDGES // self._layout.n_labels**2))
        first = 0
        while first < len(self.lengths):
            ahead = self.lengths[first : first + most]
            widest = np.maximum.accumulate(ahead) * np.arange(1, len(ahead) + 1)
            last = first + max(1, int(np.searchsorted(widest, most, side="right")))
            yield first, last
            first = last
