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
from trelliswork.compute.padding import batches, pad, unpad
from trelliswork.compute.simd import VECTOR_BYTES
from trelliswork.errors import ImpossibleError
from trelliswork.inference import chain
from trelliswork.learning.evaluation import SharedEvaluation
from trelliswork.models.crf import composites
from trelliswork.models.crf.composites import Composites
from trelliswork.models.crf.kernels import objective
from trelliswork.models.crf.kernels.edges import EdgeFeatures, edge_scatter
from trelliswork.models.crf.kernels.objective import FeatureWeights, Gradient, Losses, Sentences
from trelliswork.models.crf.layout import FeatureLayout, Floats, Ids
from trelliswork.models.crf.problem import Problem
from trelliswork.models.crf.weights import ChainWeights, ScoredTokens

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
        self, n_slots: int, layout: FeatureLayout, counts_shape: tuple[int, ...], composites: Composites | None = None
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

    The weights of a problem's sentences are alpha_n above, those of its labels r, and ``l2`` is c_2. One evaluation
    takes O(entries + tokens S^2) time, twice that for partly labeled sentences. Inner sums are float32, sums over the
    corpus of losses and transitions float64.
    """

    def __init__(self, problem: Problem, *, l2: float = 0.0) -> None:
        tokens, layout = problem.tokens, problem.layout
        n = layout.n_attributes
        layout = replace(layout, frequent=np.bincount(tokens.ids, minlength=n)[:n] >= composites.LEAST)
        self.layout, self.l2, self._allowed = layout, l2, problem.allowed
        self._parts = list(_parts(problem, layout))
        scored = self._parts[0].tokens
        scored.arrays, self._composites = composites.find_composites(scored.arrays, layout.wide_shape[0])
        n_slots = max(len(part.ranges) for part in self._parts)
        self._gradient = GradientSums(n_slots, layout, (layout.n_labels,) * 2, self._composites)

    def __call__(self, weights: Floats) -> SharedEvaluation:
        """Return value and gradient at a weight vector."""
        w = ChainWeights(weights, self.layout, self._allowed, self._composites)
        used = 0
        value = 0.0
        for part in self._parts:
            value += self._add(part, w, used)
            used = max(used, len(part.ranges))
        gradient = self.layout.vector(*self._gradient.total())
        return SharedEvaluation(value, gradient, weights, self.l2)

    def _add(self, part: "_Part", w: ChainWeights, used: int) -> float:
        """Add the gradient of a part to the sums, of which the first ``used`` are not empty; return its loss."""
        losses = Losses(np.zeros(len(part.numbers)), np.ones(len(part.numbers), bool))
        inputs = part.sentences, part.tokens.arrays, w.arrays, w.labels, w.transitions
        kernel = objective.lane_loss_gradient if part.by_lane else objective.loss_gradient
        slot = {start: k for k, (start, _) in enumerate(part.ranges)}

        def work(start: int, stop: int) -> None:
            k = slot[start]
            if k >= used:
                self._gradient.clear(k)
            if self.layout.n_edge_attributes:
                most = max(1, BATCH_EDGES // self.layout.n_labels**2)
                for first, last in batches(np.diff(part.sentences.offsets[start : stop + 1]), most):
                    losses.loss[start + first : start + last] = self._batch(part, start + first, start + last, w, k)
            elif start < stop:
                kernel(start, stop, *inputs, self._gradient.slot(k), losses)

        threads.run(work, part.ranges)
        for s in np.flatnonzero(~losses.safe).tolist():
            losses.loss[s : s + 1] = self._batch(part, s, s + 1, w, 0)
        return float(losses.loss.sum())

    def _batch(self, part: "_Part", first: int, last: int, w: ChainWeights, k: int) -> NDArray[np.float64]:
        """Return the losses of some sentences, as potentials; add their gradient to the sums k.

        These are sentences that underflow in probability space, or whose transitions depend on the position.
        """
        sentences, tokens, gradient = part.sentences, part.tokens, self._gradient.slot(k)
        offsets, weight = sentences.offsets[first : last + 1], sentences.weight[first:last]
        start, stop, lengths = offsets[0], offsets[-1], np.diff(offsets)
        gold, scores = sentences.gold[start:stop], tokens.scores(w, start, stop)
        if len(sentences.extra_ids):
            scores += sentences.extra[sentences.extra_ids[start:stop]]
        p: Any = w.chains(scores, offsets, tokens.edge_arrays)
        by_position = self.layout.n_edge_attributes > 0 and lengths.max() > 1
        expected: Any
        log_z, expected = chain.expectations(p, weights=weight, edges=by_position, counts=not by_position)
        if not log_z.min() > -np.inf:
            number = part.numbers[first + int(log_z.argmin())]
            raise ImpossibleError(f"sentence {number}: no labeling agrees with its labels and the scheme.")
        residual, of_token = np.zeros_like(scores), np.repeat(weight, lengths)
        residual[:, : self.layout.n_labels] = unpad(expected.marginals, lengths)
        labeled = np.flatnonzero(gold >= 0)
        residual[labeled, gold[labeled]] -= of_token[labeled]
        objective.scatter(start, stop, residual, 0, tokens.arrays, gradient.state)
        to = labeled[~np.isin(labeled, offsets - start)]  # the first token of a sentence has no pair
        if by_position:
            pairs, features = expected.edges, EdgeFeatures(*tokens.edge_arrays, *w.edge_arrays)
            row = np.repeat(np.arange(len(lengths)), lengths)[to]
            np.subtract.at(pairs, (row, to - (offsets[row] - start) - 1, gold[to - 1], gold[to]), of_token[to])
            for b in range(len(lengths)):
                edge_scatter(offsets[b], offsets[b + 1], features, pairs[b], gradient.edges, gradient.counts)
        else:
            gradient.counts[...] += expected.counts.sum(axis=0, dtype=np.float64)
            np.subtract.at(gradient.counts, (gold[to - 1], gold[to]), of_token[to])
        known = pad(gold, lengths).astype(np.int64)
        losses: NDArray[np.float64] = log_z - np.where(known[:, 0] >= 0, chain.score(p, np.maximum(known, 0)), 0.0)
        return weight * losses


class _Part:
    """Sentences whose losses are added with one sign: all of them, or the constrained side of the partly labeled.

    They are stored longest first, so that sentences that advance together are neighbors in memory.
    """

    def __init__(
        self,
        problem: Problem,
        layout: FeatureLayout,
        which: NDArray[np.bool_],
        gold: Ids,
        alpha: Floats,
        extra: NDArray[np.float32],
        extra_ids: Ids,
    ) -> None:
        self.layout = layout
        order = problem.tokens.longest_first()
        self.numbers = order[which[order]]
        taken, token = problem.tokens.sentences(self.numbers)
        self.tokens = ScoredTokens(taken, layout)
        padded = np.zeros((len(extra), layout.padded_labels), np.float32)
        padded[:, : layout.n_labels] = extra
        own_ids = extra_ids[token] if len(extra_ids) else extra_ids
        gold = np.ascontiguousarray(gold[token], np.int32)
        self.sentences = Sentences(taken.offsets, gold, alpha[self.numbers], padded, own_ids)
        lengths = np.diff(taken.offsets)
        self.by_lane = fits_lanes(lengths, layout)
        multiple = LANES if self.by_lane else objective.ROWS
        self.ranges = threads.cut(lengths, multiple=multiple, most=SLOTS)


def fits_lanes(lengths: NDArray[np.int64], layout: FeatureLayout) -> bool:
    """Return whether sentences of these lengths, longest first, are faster with one sentence per lane."""
    padded = int(lengths[::LANES].sum()) * LANES
    room = int(lengths[0]) * max(layout.n_labels, objective.ROWS) * LANES if len(lengths) else 0
    few = 0 < layout.n_labels <= LANE_LABELS
    return few and padded <= LANE_PADDING * int(lengths.sum()) and room <= LANE_ROOM


def _parts(problem: Problem, layout: FeatureLayout) -> Iterator[_Part]:
    known, alpha = problem.labeling, problem.alpha
    offsets, everywhere = np.zeros((0, layout.n_labels), np.float32), np.empty(0, np.int32)
    if problem.label_weights is not None:
        offsets = -np.log(problem.label_weights)[None].astype(np.float32)
        everywhere = np.zeros(len(known.gold), np.int32)
    yield _Part(problem, layout, np.ones(len(alpha), bool), known.gold, alpha, offsets, everywhere)
    partly = known.gold[problem.tokens.offsets[:-1]] < 0
    if partly.any():
        sets = np.where(known.sets, offsets if len(offsets) else 0, -np.inf).astype(np.float32)
        unlabeled = np.full(len(known.gold), -1, np.int32)
        yield _Part(problem, layout, partly, unlabeled, -alpha, sets, known.set_ids)
