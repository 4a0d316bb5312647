"""Potentials of chains from the attributes and weights of a CRF, batch by batch."""

from collections.abc import Iterator
from typing import Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import are_scores
from trelliswork.compute.padding import batches, pad
from trelliswork.errors import ValueRangeError
from trelliswork.features.attributes import Attributes
from trelliswork.inference import chain
from trelliswork.inference.chain.queries import Scores
from trelliswork.models.crf.beams.layout import SparseWeights, Structure
from trelliswork.models.crf.kernels.edges import EdgeFeatures, edge_scores
from trelliswork.models.crf.kernels.layout import AttributeRows, attribute_scores
from trelliswork.models.crf.layout import Allowed, ChainWeights, FeatureLayout, Floats, Tokens

LaidOut = ChainWeights | SparseWeights
BATCH_TOKENS = 20_000  # maximum number of tokens that are decoded together
BATCH_SCORES = 1 << 23  # maximum number of their scores, of labels or, with edge features, of transitions


def laid_out(weights: Floats, layout: FeatureLayout, allowed: Allowed | None, structure: Structure | None) -> LaidOut:
    """Return a weight vector laid out for the kernels."""
    if structure is None:
        return ChainWeights(weights, layout, allowed)
    return SparseWeights(weights, layout, allowed, structure)


LARGEST = 1e30  # sums of such scores along a sentence stay finite


def check_overflow(scores: NDArray[np.floating], values: object = None) -> None:
    """Raise if sums of weights times values of attributes leave the range of float32, also along a sentence."""
    if not are_scores(scores) or (
        values is not None and np.abs(scores).max(initial=0, where=scores > -np.inf) > LARGEST
    ):
        raise ValueRangeError(
            "the scores of labels left the range of float32: use smaller values of the attributes, or train with a "
            "larger l2."
        )


class Scorer:
    """Sentences to be scored under one layout, with one or several weight vectors."""

    def __init__(
        self, tokens: Tokens, layout: FeatureLayout, allowed: Allowed | None, structure: Structure | None = None
    ) -> None:
        self._tokens, self.layout, self._allowed, self._structure = tokens, layout, allowed, structure
        self.lengths = np.diff(tokens.offsets)

    @classmethod
    def of(
        cls, attributes: Attributes, layout: FeatureLayout, allowed: Allowed | None, structure: Structure | None = None
    ) -> Self:
        """Return the scorer of sentences by their attributes."""
        return cls(Tokens.with_vectors(attributes), layout.for_data(attributes), allowed, structure)

    def potentials(self, weights: Floats | LaidOut, ruled_out: NDArray[np.bool_] | None = None) -> Iterator[Scores]:
        """Yield the scores of batches of sentences, in order; -inf for labels ``ruled_out`` (n_tokens, S)."""
        if not self._tokens.offsets[-1]:
            return
        w = weights
        if not isinstance(w, ChainWeights | SparseWeights):
            w = laid_out(w, self.layout, self._allowed, self._structure)
        S, offsets = self.layout.n_labels, self._tokens.offsets
        most = min(BATCH_TOKENS, BATCH_SCORES // (S**2 if self.layout.n_edge_attributes else S))
        for first, last in batches(self.lengths, max(1, most)):
            start, stop, size = int(offsets[first]), int(offsets[last]), self.lengths[first:last]
            unary = self._unary(w, start, stop)
            check_overflow(unary, self._tokens.values)
            unary[offsets[first:last] - start] += w.start
            unary[offsets[first + 1 : last + 1] - 1 - start] += w.end
            if ruled_out is not None:
                unary[:, :S][ruled_out[start:stop]] = -np.inf
            log_unary = pad(unary[:, :S], size)
            if isinstance(w, SparseWeights):
                yield w.chain(log_unary, size)
                continue
            pairwise = w.log_transition
            if self.layout.n_edge_attributes:
                pairwise = np.zeros((len(size), size.max() - 1, S, S), np.float32)
                edges = self._tokens.edges
                assert edges is not None
                features = EdgeFeatures(edges.token_ptr, edges.ids, *w.edge_arrays)
                for b in range(len(size)):
                    edge_scores(offsets[first + b], offsets[first + b + 1], features, w.log_transition, pairwise[b])
            check_overflow(pairwise)
            yield chain.chain_potentials(log_unary, pairwise, size, check_values=False)

    def _unary(self, w: LaidOut, first: int, last: int) -> NDArray[np.float32]:
        """Return the scores (last - first, Sw) of the labels of some tokens."""
        width, token_ptr = w.wide.shape[1], self._tokens.token_ptr[first : last + 1]
        rows = AttributeRows(token_ptr, self._tokens.ids, self._tokens.given_values, self.layout.places)
        out = np.empty((last - first, width), np.float32)
        ranges = threads.cut(np.diff(token_ptr), least=threads.LEAST_WORK // width)
        threads.run(attribute_scores, ranges, rows, w.arrays, w.n_labels, out)
        return out
