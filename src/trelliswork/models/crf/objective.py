r"""The objective of linear-chain CRFs on sparse attributes.

.. math:: f(w) = \sum_n \alpha_n \big(\log Z_n(w) - \log Z_n(w; Y_n)\big) + c_2 \lVert w \rVert^2

Z(w; Y) sums over the labelings that agree with the known labels: with all labels known it is the score of one labeling.
The gradient is expected minus observed feature counts (paper 1, section 0.1); in a partly labeled sentence the observed
counts are expectations as well.

Label weights r: the desired model is :math:`q(y \mid x; w) \propto p(y \mid x) \prod_t r(y_t)`, where p is the
distribution of the data, as if labels had been r times as frequent. Hence the likelihood of the data is that of
:math:`q(y \mid x; w) / \prod_t r(y_t)`, normalized: during training, log r(j) is subtracted from the score of label j
at every token (logit adjustment; Menon et al., 2021). The objective stays convex.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.memory import aligned_empty
from trelliswork.compute.padding import batches, pad, unpad
from trelliswork.compute.simd import VECTOR_BYTES
from trelliswork.errors import ImpossibleError
from trelliswork.inference import chain
from trelliswork.learning.evaluation import SharedEvaluation
from trelliswork.models.crf import composites
from trelliswork.models.crf.composites import Composites
from trelliswork.models.crf.kernels import edges, objective
from trelliswork.models.crf.kernels.edges import EdgeFeatures
from trelliswork.models.crf.kernels.objective import FeatureWeights, Gradient, Losses, Sentences
from trelliswork.models.crf.layout import (
    Allowed,
    ChainWeights,
    FeatureLayout,
    Floats,
    Ids,
    Labeling,
    ScoredTokens,
    Tokens,
)

LANES = 2 * VECTOR_BYTES // 4  # sentences that advance together, one per lane of two vectors
LANE_LABELS = 40  # maximum number of labels for which this is faster
LANE_PADDING = 2  # maximum number of lanes and positions per token
LANE_ROOM = 1 << 22  # maximum number of states of a group
BATCH_EDGES = 1 << 18  # transition scores of sentences that are computed together
SLOTS = 4  # separate sums of the gradient: the maximum number of threads; results do not depend on it


class GradientSums:
    """Sums of the gradient, one per thread, reused by every evaluation: allocating memory costs more than clearing it.

    ``counts`` are those of the transitions, (n_slots, S, S) or another shape.
    """

    def __init__(
        self,
        n_slots: int,
        layout: FeatureLayout,
        counts_shape: tuple[int, ...],
        composites: Composites | None = None,
    ) -> None:
        n_rows, width = layout.wide_shape
        self._composites = composites
        size = n_rows if composites is None else composites.size
        self._wide = aligned_empty(n_slots, size, width)
        self._narrow = np.empty((n_slots, len(layout.narrow_features)), np.float32)
        self._edges = np.empty((n_slots, len(layout.edge_attributes)), np.float32)
        self._counts = np.empty((n_slots, *counts_shape))
        self._narrow_labels = layout.labels[layout.narrow_features]

    def slot(self, k: int) -> Gradient:
        """Return one of the sums as the kernels take it."""
        state = FeatureWeights(self._wide[k], self._narrow[k], self._narrow_labels)
        return Gradient(state, self._edges[k], self._counts[k])

    def clear(self, k: int) -> None:
        """Set one of the sums to zero."""
        for sums in (self._wide, self._narrow, self._edges, self._counts):
            sums[k] = 0

    def total(self) -> Iterator[NDArray[Any]]:
        """Yield the arguments of ``FeatureLayout.vector``, summed over the threads."""
        for sums in (self._counts, self._wide, self._narrow, self._edges):
            total = sums[0] if len(sums) == 1 else sums.sum(axis=0)
            if sums is self._wide and self._composites is not None:
                self._composites.spread(total)
                total = total[: self._composites.n_rows]
            yield total


class ChainObjective:
    """Penalized negative log-likelihood of labeled sentences and its gradient.

    ``weights`` (n_sentences,) are alpha_n above, ``label_weights`` (S,) r, ``l2`` c_2; by default all labels and pairs
    of labels are ``allowed``. One evaluation takes O(entries + tokens S^2) time, twice that for partly labeled
    sentences. Inner sums are float32, sums over the corpus of losses and transitions float64.
    """

    def __init__(
        self,
        tokens: Tokens,
        labeling: Labeling | Ids,
        layout: FeatureLayout,
        *,
        l2: float = 0.0,
        weights: Floats | None = None,
        label_weights: Floats | None = None,
        allowed: Allowed | None = None,
    ) -> None:
        if tokens.values is None:  # composites have no values
            layout = replace(layout, frequent=tokens.frequent(layout.n_attributes, composites.LEAST))
        self.layout, self.l2, self.allowed = layout, l2, allowed
        known = labeling if isinstance(labeling, Labeling) else Labeling(labeling)
        alpha = np.ones(len(tokens.offsets) - 1) if weights is None else np.asarray(weights)
        self._parts = list(_parts(tokens, known, layout, alpha, label_weights))
        self._composites = None if tokens.values is not None else self._parts[0].compose()
        n_slots = max(len(part.ranges) for part in self._parts)
        self._gradient = GradientSums(n_slots, layout, (layout.n_labels,) * 2, self._composites)
        self.n_features = layout.n_features

    def __call__(self, weights: Floats) -> SharedEvaluation:
        """Return value and gradient at a weight vector."""
        w = ChainWeights(weights, self.layout, self.allowed, self._composites)
        used = 0
        value = 0.0
        for part in self._parts:
            value += self._add(part, w, used)
            used = max(used, len(part.ranges))
        gradient = self.layout.vector(*self._gradient.total())
        return SharedEvaluation(value, gradient, weights, self.l2)

    def _add(self, part: "_Part", w: ChainWeights, used: int) -> float:
        """Add the gradient of a part to the sums, of which the first ``used`` are not empty; return its loss."""
        if self.layout.n_edge_attributes:
            if not used:
                self._gradient.clear(0)
            most = max(1, BATCH_EDGES // self.layout.n_labels**2)
            return sum(self._batch(part, *some, w) for some in batches(np.diff(part.sentences.offsets), most))
        losses = Losses(np.zeros(len(part.numbers)), np.ones(len(part.numbers), bool))
        inputs = part.sentences, part.tokens.arrays, w.arrays, w.labels, w.potentials.transitions
        kernel = objective.lane_loss_gradient if part.by_lane else objective.loss_gradient
        slot = {start: k for k, (start, _) in enumerate(part.ranges)}

        def work(start: int, stop: int) -> None:
            k = slot[start]
            if k >= used:
                self._gradient.clear(k)
            if start < stop:
                kernel(start, stop, *inputs, self._gradient.slot(k), losses)

        threads.run(work, part.ranges)
        for s in np.flatnonzero(~losses.safe).tolist():
            losses.loss[s] = self._batch(part, s, s + 1, w)
        return float(losses.loss.sum())

    def _batch(self, part: "_Part", first: int, last: int, w: ChainWeights) -> float:
        """Return the loss of some sentences, as potentials; add their gradient to the first sums.

        These are sentences that underflow in probability space, or whose transitions depend on the position.
        """
        sentences = part.sentences
        at, weight = slice(sentences.offsets[first], sentences.offsets[last]), sentences.weight[first:last]
        ids = sentences.extra_ids[at]
        gold = sentences.gold[at]
        batch = Batch(first, last, part.tokens, w, sentences.extra[ids] if len(ids) else 0)
        p, residual, gradient = batch.potentials, np.zeros_like(batch.scores), self._gradient.slot(0)
        log_z, expected = chain.expectations(p, edges=batch.by_position, counts=not batch.by_position)
        if not log_z.min() > -np.inf:
            number = part.numbers[first + int(log_z.argmin())]
            raise ImpossibleError(f"sentence {number}: no labeling agrees with its labels and the scheme.")
        assert expected.marginals is not None
        marginals = unpad(expected.marginals, p.lengths)
        residual[:, : self.layout.n_labels] = np.repeat(weight, p.lengths)[:, None] * marginals
        pairs = None if expected.edges is None else (weight[:, None, None, None] * expected.edges).astype(np.float32)
        if expected.counts is not None:
            gradient.counts[...] += np.tensordot(weight, expected.counts, 1)
        return float(weight @ (log_z - batch.add(residual, pairs, gold, weight, gradient)))


class Batch:
    """Scores of some sentences as chain potentials, for those that the fast kernels do not compute."""

    def __init__(self, first: int, last: int, tokens: ScoredTokens, w: ChainWeights, extra: Floats | float = 0) -> None:
        self._tokens, self._ranges = tokens, list(pairwise(tokens.offsets[first : last + 1].tolist()))
        self._start, stop, S = self._ranges[0][0], self._ranges[-1][1], w.n_labels
        lengths = np.diff(tokens.offsets[first : last + 1])
        self.scores = tokens.scores(w, self._start, stop)
        self.scores[tokens.offsets[first:last] - self._start] += w.start
        self.scores[tokens.offsets[first + 1 : last + 1] - self._start - 1] += w.end
        self.scores += extra
        self._features = EdgeFeatures(*tokens.edge_arrays, *w.edge_arrays)
        self.by_position = len(self._features.ptr) > 1 and lengths.max() > 1  # whether transitions depend on it
        transitions: Floats = w.log_transition
        if self.by_position:
            transitions = np.zeros((len(lengths), lengths.max() - 1, S, S), np.float32)
            for b, (start, end) in enumerate(self._ranges):
                edges.edge_scores(start, end, self._features, w.log_transition, transitions[b])
        self.potentials = chain.chain_potentials(pad(self.scores[:, :S], lengths), transitions, lengths)

    def add(
        self, residual: Floats, pairs: Floats | None, gold: Ids, weight: Floats, gradient: Gradient
    ) -> NDArray[np.float64]:
        """Add weighted marginals (n_tokens, Sw) and, unless they are in ``counts``, pairs (B, T-1, S, S), less gold.

        ``weight`` (B,) are those of the sentences. Return the scores (B,) of the gold labels; a sentence whose gold
        labels are -1 has none, and the score 0.
        """
        for b, (start, end) in enumerate(self._ranges):
            here = slice(start - self._start, end - self._start)
            y, steps = gold[here], np.arange(end - start)
            if y[0] >= 0:
                residual[here][steps, y] -= weight[b]
                if pairs is None:
                    np.subtract.at(gradient.counts, (y[:-1], y[1:]), weight[b])
                else:
                    pairs[b, steps[:-1], y[:-1], y[1:]] -= weight[b]
            if pairs is not None:
                edges.edge_scatter(start, end, self._features, pairs[b], gradient.edges, gradient.counts)
        objective.scatter(self._start, self._ranges[-1][1], residual, 0, self._tokens.arrays, gradient.state)
        known = pad(gold, self.potentials.lengths).astype(np.int64)
        return np.where(known[:, 0] >= 0, chain.score(self.potentials, np.maximum(known, 0)), 0.0)


class _Part:
    """Sentences whose losses are added with one sign: all of them, or the constrained side of the partly labeled.

    They are stored longest first, so that sentences that advance together are neighbors in memory.
    """

    def __init__(
        self,
        tokens: Tokens,
        which: NDArray[np.int64],
        gold: Ids,
        layout: FeatureLayout,
        weights: Floats,
        extra: NDArray[np.float32],
        extra_ids: Ids,
    ) -> None:
        self.layout = layout
        order = tokens.longest_first()
        self.numbers = order[np.isin(order, which)]
        taken, token = tokens.sentences(self.numbers)
        self.tokens = ScoredTokens(taken, layout)
        padded = np.zeros((len(extra), layout.padded_labels), np.float32)
        padded[:, : layout.n_labels] = extra
        self.sentences = Sentences(
            self.tokens.offsets,
            np.ascontiguousarray(gold[token], np.int32),
            weights[self.numbers].astype(np.float32),
            padded,
            extra_ids[token] if len(extra_ids) else extra_ids,
        )
        lengths = np.diff(taken.offsets)
        self.by_lane = fits_lanes(lengths, layout)
        multiple = LANES if self.by_lane else objective.ROWS
        self.ranges = threads.cut(lengths, multiple=multiple, most=1 if layout.n_edge_attributes else SLOTS)

    def compose(self) -> Composites:
        """Replace rows that often stand side by side by composites, and return these."""
        self.tokens.arrays, found = composites.find_composites(self.tokens.arrays, self.layout.wide_shape[0])
        return found


def fits_lanes(lengths: NDArray[np.int64], layout: FeatureLayout) -> bool:
    """Return whether sentences of these lengths, longest first, are faster with one sentence per lane."""
    padded = int(lengths[::LANES].sum()) * LANES
    room = int(lengths[0]) * max(layout.n_labels, objective.ROWS) * LANES if len(lengths) else 0
    few = 0 < layout.n_labels <= LANE_LABELS
    return few and padded <= LANE_PADDING * int(lengths.sum()) and room <= LANE_ROOM


def _parts(
    tokens: Tokens, known: Labeling, layout: FeatureLayout, alpha: Floats, label_weights: Floats | None
) -> Iterator[_Part]:
    S = layout.n_labels
    offsets, everywhere = np.zeros((0, S), np.float32), np.empty(0, np.int32)
    if label_weights is not None:
        offsets = -np.log(label_weights)[None].astype(np.float32)
        everywhere = np.zeros(len(known.gold), np.int32)
    yield _Part(tokens, np.arange(len(alpha)), known.gold, layout, alpha, offsets, everywhere)
    partly = np.flatnonzero(known.gold[tokens.offsets[:-1]] < 0)
    if len(partly):
        sets = np.where(known.sets, offsets if len(offsets) else 0, -np.inf).astype(np.float32)
        unlabeled = np.full(len(known.gold), -1, np.int32)
        yield _Part(tokens, partly, unlabeled, layout, -alpha, sets, known.set_ids)
