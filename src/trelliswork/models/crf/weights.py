"""Weights and tokens of a CRF laid out in memory for the kernels, and sentences scored with them, batch by batch."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import are_scores
from trelliswork.compute.memory import aligned_zeros
from trelliswork.compute.padding import batches, pad
from trelliswork.errors import ValueRangeError
from trelliswork.features.attributes import Attributes
from trelliswork.inference import chain
from trelliswork.inference.chain.beam.passes import scaled_entries
from trelliswork.inference.chain.beam.sparse import SparseChain
from trelliswork.inference.chain.queries import Scores
from trelliswork.models.crf.beams.structure import Structure
from trelliswork.models.crf.composites import Composites
from trelliswork.models.crf.kernels.beams import EntryScores
from trelliswork.models.crf.kernels.edges import EdgeFeatures, edge_scores
from trelliswork.models.crf.kernels.layout import AttributeRows, attribute_scores, lay
from trelliswork.models.crf.kernels.objective import FeatureWeights, LabelScores, TokenRows, scores
from trelliswork.models.crf.layout import Allowed, FeatureLayout, Floats
from trelliswork.models.crf.problem import Tokens

BATCH_TOKENS = 20_000  # maximum number of tokens that are decoded together
BATCH_SCORES = 1 << 23  # maximum number of their scores, of labels or, with edge features, of transitions
LARGEST = 1e30  # sums of such scores along a sentence stay finite
EdgeAttributes = tuple[NDArray[np.int64], NDArray[np.int32]]  # ``token_ptr`` and ``ids`` of tokens


def check_overflow(*scores: NDArray[np.floating], largest: float = np.inf) -> None:
    """Raise if sums of weights times values of attributes leave the range of float32, or are above ``largest``."""
    for some in scores:
        if not are_scores(some) or (largest < np.inf and np.abs(some).max(initial=0, where=some > -np.inf) > largest):
            raise ValueRangeError(
                "the scores of labels left the range of float32: use smaller values of the attributes, or train with a "
                "larger l2."
            )


class ScoredTokens:
    """Tokens split by layout into dense rows and single weights, ready for the kernels.

    ``edge_arrays`` are ``token_ptr`` and ``ids`` of the edge attributes, empty without any.
    """

    def __init__(self, tokens: Tokens, layout: FeatureLayout) -> None:
        self.offsets = tokens.offsets
        n_tokens = len(tokens.token_ptr) - 1
        attributes = AttributeRows(tokens.token_ptr, tokens.ids, tokens.given_values, layout.places)
        occurrences, is_wide = np.bincount(tokens.ids, minlength=len(layout.places)), layout.wide_rows >= 0
        sizes = int(occurrences[is_wide].sum()), int(occurrences[~is_wide] @ layout.sizes[~is_wide])
        arrays: list[NDArray[Any]] = []
        for n in sizes:  # an occurrence of an attribute with single weights becomes one entry for each of them
            n_values = 0 if tokens.values is None else n
            arrays += [np.empty(n_tokens + 1, np.int64), np.empty(n, np.int32), np.empty(n_values, np.float32)]
        self.arrays = TokenRows(*arrays)
        lay(attributes, self.arrays)
        self.edge_arrays = np.zeros(n_tokens + 1, np.int64), np.empty(0, np.int32)
        if tokens.edges is not None:
            self.edge_arrays = tokens.edges.token_ptr, tokens.edges.ids

    def scores(self, w: "ChainWeights", first: int, last: int) -> NDArray[np.float32]:
        """Return the scores (last - first, Sw) of the labels at tokens ``first`` to ``last``."""
        tokens, width = self.arrays, len(w.start)
        out = np.empty((last - first, width), np.float32)
        costs = np.diff(tokens.wide_ptr[first : last + 1]) + np.diff(tokens.narrow_ptr[first : last + 1])
        threads.run(
            lambda start, stop: scores(first + start, first + stop, tokens, w.arrays, w.n_labels, out, start * width),
            threads.cut(costs, least=threads.LEAST_WORK // width),
        )
        return out


class ChainWeights:
    """A weight vector laid out for the kernels, in float32; scores that are not allowed are -inf.

    ``edge_arrays`` are ``ptr``, ``pairs`` and ``weights`` of the edge features.
    """

    def __init__(
        self,
        weights: Floats,
        layout: FeatureLayout,
        allowed: Allowed | None = None,
        composites: Composites | None = None,
    ) -> None:
        self.n_labels = S = layout.n_labels
        first, last, (n_rows, width) = len(layout.transitions), layout.first_edge, layout.wide_shape
        size = n_rows if composites is None else composites.size
        self.wide, narrow = aligned_zeros(size, width), np.empty(0, np.float32)
        own = self.wide[:n_rows]
        if layout.complete:
            own[:, :S] = weights[first:last].reshape(-1, S)
        else:
            state = weights[first:last].astype(np.float32)
            narrow = state[layout.narrow_features]
            own.reshape(-1)[layout.wide_places] = state[layout.wide_features]
        if layout.vectors is not None:
            W = weights[layout.first_dense :].astype(np.float32).reshape(layout.n_places, -1, S)
            rows = np.matmul(layout.vectors, W).reshape(-1, S)
            own[n_rows - len(rows) :, :S] = rows
        if composites is not None:
            composites.fill(self.wide)
        self.start, self.end = np.zeros((2, layout.padded_labels), np.float32)
        log_transition = np.zeros(S * S, np.float32)
        log_transition[layout.transitions] = weights[:first]
        if allowed is not None:
            log_transition[~allowed.pairs.reshape(-1)] = -np.inf
            self.start[:S][~allowed.start] = -np.inf
            self.end[:S][~allowed.end] = -np.inf
        self.log_transition = log_transition.reshape(S, S)
        self.arrays = FeatureWeights(self.wide, narrow, layout.labels[layout.narrow_features])
        self.labels = LabelScores(self.start, self.end, self.log_transition)
        edges = weights[last : layout.first_dense].astype(np.float32)
        self.edge_arrays = layout.edge_ptr, layout.edge_pairs, edges

    @cached_property
    def transitions(self) -> Any:
        """The transitions as probabilities, as the chain kernels take them."""
        return chain.chain_potentials(np.zeros((1, 1, self.n_labels), np.float32), self.log_transition).transitions

    def chains(
        self, scores: NDArray[np.float32], offsets: NDArray[np.int64], edges: EdgeAttributes | None = None
    ) -> Scores:
        """Return scored sentences as chains, in which the scores (n_tokens, Sw) change.

        They start at the tokens ``offsets``, whose edge attributes may make the transitions depend on the position.
        """
        lengths, ends, S = np.diff(offsets), offsets - offsets[0], self.n_labels
        scores[ends[:-1]] += self.start
        scores[ends[1:] - 1] += self.end
        transitions: Floats = self.log_transition
        if edges is not None and len(self.edge_arrays[0]) > 1 and lengths.max() > 1:
            transitions = np.empty((len(lengths), lengths.max() - 1, S, S), np.float32)
            features = EdgeFeatures(*edges, *self.edge_arrays)
            for b, n in enumerate(lengths.tolist()):
                transitions[b, n - 1 :] = 0
                edge_scores(offsets[b], offsets[b + 1], features, self.log_transition, transitions[b])
        check_overflow(scores, transitions)
        return chain.chain_potentials(pad(scores[:, :S], lengths), transitions, lengths, check_values=False)


class SparseWeights(ChainWeights):
    """A weight vector laid out for the kernels, with the transitions of a structure."""

    def __init__(self, weights: Floats, layout: FeatureLayout, allowed: Allowed | None, structure: Structure) -> None:
        super().__init__(weights[structure.n_weights :], layout)
        s = structure.transitions
        log_weights = structure.scores(weights[: structure.n_weights])
        log_start = np.where(s.first, 0, -np.inf).astype(np.float32)
        log_end = np.zeros(s.n_states, np.float32)
        if structure.last is not None:
            log_end[~structure.last] = -np.inf
        if allowed is not None:
            log_weights[~allowed.pairs[s.emits[s.sources], s.emits[s.targets]]] = -np.inf
            log_start[~allowed.start[s.emits]] = -np.inf
            log_end[~allowed.end[s.emits]] = -np.inf
        self._transitions = s, log_weights, log_start, log_end
        one = SparseChain(np.zeros((1, 1, layout.n_labels), np.float32), *self._transitions, np.ones(1, int))
        self.entry_scores = EntryScores(
            self.arrays, scaled_entries(one), log_start, log_end, log_weights, self.n_labels
        )

    def chains(
        self, scores: NDArray[np.float32], offsets: NDArray[np.int64], edges: EdgeAttributes | None = None
    ) -> Scores:
        """Return scored sentences as chains; a structure has no edge attributes."""
        check_overflow(scores)
        lengths = np.diff(offsets)
        return SparseChain(pad(scores[:, : self.n_labels], lengths), *self._transitions, lengths)


def laid_out(
    weights: Floats, layout: FeatureLayout, allowed: Allowed | None, structure: Structure | None
) -> ChainWeights:
    """Return a weight vector laid out for the kernels."""
    if structure is None:
        return ChainWeights(weights, layout, allowed)
    return SparseWeights(weights, layout, allowed, structure)


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
