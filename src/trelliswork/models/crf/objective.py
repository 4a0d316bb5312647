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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.memory import aligned_empty
from trelliswork.compute.simd import VECTOR_BYTES
from trelliswork.errors import ImpossibleError
from trelliswork.inference import chain
from trelliswork.learning.evaluation import SharedEvaluation
from trelliswork.models.crf import composites
from trelliswork.models.crf.composites import Composites
from trelliswork.models.crf.kernels import edges, objective
from trelliswork.models.crf.kernels.beams import BeamGradient
from trelliswork.models.crf.kernels.edges import EdgeFeatures
from trelliswork.models.crf.kernels.objective import FeatureWeights, Sentences, Sums
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

    def slot(self, k: int) -> BeamGradient:
        """Return one of the sums as the kernels take it."""
        state = FeatureWeights(self._wide[k], self._narrow[k], self._narrow_labels)
        return BeamGradient(state, self._edges[k], self._counts[k])

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
        counts_shape = 1, layout.n_labels, layout.n_labels
        self._gradient = GradientSums(n_slots, layout, counts_shape, self._composites)
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
        sentences, tokens = part.sentences, part.tokens.arrays
        features = EdgeFeatures(*part.tokens.edge_arrays, *w.edge_arrays)
        transitions = w.potentials.transitions
        loss, safe = np.zeros(len(sentences.weight)), np.ones(len(sentences.weight), bool)
        slot = {start: k for k, (start, _) in enumerate(part.ranges)}

        def work(start: int, stop: int) -> None:
            k = slot[start]
            if k >= used:
                self._gradient.clear(k)
            if start == stop:  # no sentences
                return
            gradient, edge_gradient, counts = self._gradient.slot(k)
            sums = Sums(counts, loss, safe)
            if self.layout.n_edge_attributes:
                edges.loss_gradient(
                    start, stop, sentences, tokens, w.arrays, features, w.labels, gradient, edge_gradient, sums
                )
            elif part.by_lane:
                objective.lane_loss_gradient(
                    start, stop, sentences, tokens, w.arrays, w.labels, transitions, gradient, sums
                )
            else:
                objective.loss_gradient(start, stop, sentences, tokens, w.arrays, w.labels, transitions, gradient, sums)

        threads.run(work, part.ranges)
        for s in np.flatnonzero(~safe):
            loss[s] = self._in_log_space(part, int(s), w)
        return float(loss.sum())

    def _in_log_space(self, part: "_Part", s: int, w: ChainWeights) -> float:
        """Return the loss of one sentence that underflows in probability space; add its gradient to the first sums."""
        offsets, gold, weights, extra, extra_ids = part.sentences
        start, stop = offsets[s], offsets[s + 1]
        S, gold, weight = self.layout.n_labels, gold[start:stop], float(weights[s])
        sentence = Sentence(start, stop, part.tokens, w, extra[extra_ids[start:stop]] if len(extra_ids) else 0)
        p, own = sentence.potentials, sentence.own_transitions
        log_z, expected = chain.expectations(p, edges=own, counts=not own)
        if not log_z[0] > -np.inf:
            raise ImpossibleError(f"sentence {part.numbers[s]}: no labeling agrees with its labels and the scheme.")
        assert expected.marginals is not None
        residual = np.zeros_like(sentence.scores)
        residual[:, :S] = weight * expected.marginals[0]
        score = chain.score(p, gold[None].astype(np.int64))[0] if gold[0] >= 0 else 0.0
        gradient = self._gradient.slot(0)._replace(counts=self._gradient.slot(0).counts[0])
        pairs = None if expected.edges is None else (weight * expected.edges[0]).astype(np.float32)
        if expected.counts is not None:
            gradient.counts[...] += weight * expected.counts[0]
        sentence.add(residual, pairs, gold, weight, gradient)
        return weight * (log_z[0] - score)


class Sentence:
    """Scores of one sentence as chain potentials, for the sentences that underflow in probability space."""

    def __init__(self, start: int, stop: int, tokens: ScoredTokens, w: ChainWeights, extra: Floats | float = 0) -> None:
        self._range, self._tokens = (start, stop), tokens
        self.scores = tokens.scores(w, start, stop)
        self.scores[0] += w.start
        self.scores[-1] += w.end
        self.scores += extra
        self._features = EdgeFeatures(*tokens.edge_arrays, *w.edge_arrays)
        self.own_transitions = len(self._features.ptr) > 1 and stop - start > 1  # that depend on the position
        pairwise: Floats = w.log_transition
        if self.own_transitions:
            pairwise = np.empty((1, stop - start - 1, *pairwise.shape), np.float32)
            edges.edge_scores(start, stop, self._features, w.log_transition, pairwise[0])
        self.potentials = chain.chain_potentials(self.scores[None, :, : w.n_labels], pairwise)

    def add(self, residual: Floats, pairs: Floats | None, gold: Ids, weight: float, gradient: BeamGradient) -> None:
        """Add weighted marginals (T, Sw) and, unless they are in ``counts``, pairs (T-1, S, S), less the gold ones."""
        steps = np.arange(len(gold))
        if gold[0] >= 0:
            residual[steps, gold] -= weight
            if pairs is None:
                np.subtract.at(gradient.counts, (gold[:-1], gold[1:]), weight)
            else:
                pairs[steps[:-1], gold[:-1], gold[1:]] -= weight
        if pairs is not None:
            edges.edge_scatter(*self._range, self._features, pairs, gradient.edges, gradient.counts)
        objective.scatter(*self._range, residual, 0, self._tokens.arrays, gradient.state)


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
        multiple = 1 if layout.n_edge_attributes else LANES if self.by_lane else objective.ROWS
        self.ranges = threads.cut(lengths, multiple=multiple, most=SLOTS)

    def compose(self) -> Composites:
        """Replace rows that often stand side by side by composites, and return these."""
        self.tokens.arrays, found = composites.find_composites(self.tokens.arrays, self.layout.wide_shape[0])
        return found


def fits_lanes(lengths: NDArray[np.int64], layout: FeatureLayout) -> bool:
    """Return whether sentences of these lengths, longest first, are faster with one sentence per lane."""
    padded = int(lengths[::LANES].sum()) * LANES
    room = int(lengths[0]) * max(layout.n_labels, objective.ROWS) * LANES if len(lengths) else 0
    few = 0 < layout.n_labels <= LANE_LABELS and not layout.n_edge_attributes
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
