"""Potentials of chains from the attributes and weights of a CRF, batch by batch."""

from collections.abc import Iterator
from typing import Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.padding import batches
from trelliswork.features.attributes import Attributes
from trelliswork.inference.chain.queries import Scores
from trelliswork.models.crf.kernels.layout import AttributeRows, attribute_scores
from trelliswork.models.crf.layout import FeatureLayout
from trelliswork.models.crf.problem import Tokens
from trelliswork.models.crf.weights import LARGEST, ChainWeights, check_overflow

BATCH_TOKENS = 20_000  # maximum number of tokens that are decoded together
BATCH_SCORES = 1 << 23  # maximum number of their scores, of labels or, with edge features, of transitions


class Scorer:
    """Sentences to be scored under one layout, with one or several weight vectors."""

    def __init__(self, tokens: Tokens, layout: FeatureLayout) -> None:
        self._tokens, self.layout = tokens, layout
        self.lengths = np.diff(tokens.offsets)

    @classmethod
    def of(cls, attributes: Attributes, layout: FeatureLayout) -> Self:
        """Return the scorer of sentences by their attributes."""
        return cls(Tokens.with_vectors(attributes), layout.for_data(attributes))

    def potentials(self, w: ChainWeights, ruled_out: NDArray[np.bool_] | None = None) -> Iterator[Scores]:
        """Yield the scores of batches of sentences, in order; -inf for labels ``ruled_out`` (n_tokens, S)."""
        if not self._tokens.offsets[-1]:
            return
        S, offsets, edges = self.layout.n_labels, self._tokens.offsets, self._tokens.edges
        most = min(BATCH_TOKENS, BATCH_SCORES // (S**2 if self.layout.n_edge_attributes else S))
        for first, last in batches(self.lengths, max(1, most)):
            start, stop = int(offsets[first]), int(offsets[last])
            unary = self._unary(w, start, stop)
            if self._tokens.values is not None:  # or scores are sums of few weights
                check_overflow(unary, largest=LARGEST)
            if ruled_out is not None:
                unary[:, :S][ruled_out[start:stop]] = -np.inf
            given = None if edges is None else (edges.token_ptr, edges.ids)
            yield w.chains(unary, offsets[first : last + 1], given)

    def _unary(self, w: ChainWeights, first: int, last: int) -> NDArray[np.float32]:
        """Return the scores (last - first, Sw) of the labels of some tokens."""
        width, token_ptr = w.wide.shape[1], self._tokens.token_ptr[first : last + 1]
        rows = AttributeRows(token_ptr, self._tokens.ids, self._tokens.given_values, self.layout.places)
        out = np.empty((last - first, width), np.float32)
        ranges = threads.cut(np.diff(token_ptr), least=threads.LEAST_WORK // width)
        threads.run(attribute_scores, ranges, rows, w.arrays, w.n_labels, out)
        return out
