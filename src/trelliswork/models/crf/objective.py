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

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.errors import ImpossibleError, ValueRangeError
from trelliswork.inference import chain
from trelliswork.learning.kernels.vectors import dot
from trelliswork.models.crf.kernels import edges, objective
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
    Vector,
    counting,
)

SLOTS = 4  # separate sums of the gradient: the maximum number of threads; results do not depend on it


class ChainObjective:
    """Penalized negative log-likelihood of labeled sentences and its gradient.

    Parameters
    ----------
    tokens : Tokens
    labeling : Labeling or ndarray of int32 (n_tokens,)
        Known labels, or label ids.
    layout : FeatureLayout
    l2 : float
        c_2 above.
    weights : ndarray (n_sentences,), optional
        alpha_n above.
    label_weights : ndarray (S,), optional
        r above; positive.
    allowed : Allowed, optional
        Allowed labels and label pairs; all by default.

    Notes
    -----
    One evaluation takes O(entries + tokens S^2) time, twice that for partly labeled sentences. Inner sums are float32,
    sums over the corpus of losses and transitions float64.
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
        self.layout, self.l2, self.allowed = layout, l2, allowed
        known = labeling if isinstance(labeling, Labeling) else Labeling(labeling)
        alpha = np.ones(len(tokens.offsets) - 1) if weights is None else np.asarray(weights)
        self._parts = list(_parts(tokens, known, layout, alpha, label_weights))
        n_slots = max(len(part.ranges) for part in self._parts)
        # Reused by every evaluation: allocating memory costs more than clearing it.
        self._wide_gradient = np.empty((n_slots, *layout.wide_shape), np.float32)
        self._narrow_gradient = np.empty((n_slots, len(layout.narrow_features)), np.float32)
        self._edge_gradient = np.empty((n_slots, len(layout.edge_attributes)), np.float32)
        self.n_features = layout.n_features

    def __call__(self, weights: Floats) -> tuple[float, Vector]:
        """Return value and gradient at a weight vector."""
        w = ChainWeights(weights, self.layout, self.allowed)
        S = self.layout.n_labels
        counts = np.zeros((len(self._wide_gradient), 1, S, S))
        used = 0
        value = 0.0
        for part in self._parts:
            value += self._add(part, w, used, counts)
            used = max(used, len(part.ranges))
        sums = (array.sum(axis=0) for array in (self._wide_gradient, self._narrow_gradient, self._edge_gradient))
        gradient = self.layout.vector(counts[:, 0].sum(axis=0), *sums)
        if self.l2:
            value += self.l2 * dot(weights, weights)
            gradient += 2 * self.l2 * weights
        return value, gradient

    def _add(self, part: "_Part", w: ChainWeights, used: int, counts: NDArray[np.float64]) -> float:
        """Add the gradient of a part to the sums, of which the first ``used`` are not empty; return its loss."""
        sentences, tokens = part.sentences, part.tokens.arrays
        features = EdgeFeatures(*part.tokens.edge_arrays, *w.edge_arrays)
        transitions, check = w.potentials.transitions, not w.potentials.mixing
        loss, safe = np.zeros(len(sentences.weight)), np.ones(len(sentences.weight), bool)
        slot = {start: k for k, (start, _) in enumerate(part.ranges)}

        def work(start: int, stop: int) -> None:
            k = slot[start]
            gradient, edge_gradient = self._gradient(k, w), self._edge_gradient[k]
            if k >= used:
                for values in (gradient.wide, gradient.narrow, edge_gradient):
                    values[:] = 0
            sums = Sums(counts[k], loss, safe)
            if self.layout.n_edge_attributes:
                edges.loss_gradient(
                    start, stop, sentences, tokens, w.arrays, features, w.labels, gradient, edge_gradient, sums
                )
            else:
                objective.loss_gradient(
                    start, stop, sentences, tokens, w.arrays, w.labels, transitions, check, gradient, sums
                )

        threads.run(work, part.ranges)
        for s in np.flatnonzero(~safe):
            loss[s] = self._in_log_space(part, int(s), w, counts[0, 0])
        return float(loss.sum())

    def _gradient(self, slot: int, w: ChainWeights) -> FeatureWeights:
        """Return one of the sums of the gradient of the state features."""
        return FeatureWeights(self._wide_gradient[slot], self._narrow_gradient[slot], w.narrow_labels)

    def _in_log_space(self, part: "_Part", s: int, w: ChainWeights, counts: Floats) -> float:
        """Return the loss of one sentence that underflows in probability space; add its gradient to the first sums."""
        offsets, gold, weights, extra, extra_ids = part.sentences
        start, stop = offsets[s], offsets[s + 1]
        S, gold, weight = self.layout.n_labels, gold[start:stop], float(weights[s])
        out = np.empty((stop - start, w.wide.shape[1]), np.float32)
        objective.scores(start, stop, part.tokens.arrays, w.arrays, S, out, 0)
        out[0] += w.start
        out[-1] += w.end
        if len(extra_ids):
            out += extra[extra_ids[start:stop]]
        own = self.layout.n_edge_attributes > 0 and stop - start > 1  # transitions that depend on the position
        features = EdgeFeatures(*part.tokens.edge_arrays, *w.edge_arrays)
        pairwise: Floats = w.log_transition
        if own:
            pairwise = np.empty((1, stop - start - 1, S, S), np.float32)
            edges.edge_scores(start, stop, features, w.log_transition, pairwise[0])
        p = chain.chain_potentials(out[None, :, :S], pairwise)
        log_z, expected = chain.expectations(p, edges=own, counts=not own)
        if not log_z[0] > -np.inf:
            raise ImpossibleError(f"sentence {part.numbers[s]}: no labeling agrees with its labels and the scheme.")
        assert expected.marginals is not None
        residual = np.zeros_like(out)
        residual[:, :S] = weight * expected.marginals[0]
        score = 0.0
        if gold[0] >= 0:
            score = chain.score(p, gold[None].astype(np.int64))[0]
            residual[np.arange(stop - start), gold] -= weight
        if own:
            assert expected.edges is not None
            pairs = (weight * expected.edges[0]).astype(np.float32)
            if gold[0] >= 0:
                pairs[np.arange(stop - start - 1), gold[:-1], gold[1:]] -= weight
            edges.edge_scatter(start, stop, features, pairs, self._edge_gradient[0], counts)
        else:
            assert expected.counts is not None
            counts += weight * expected.counts[0]
            if gold[0] >= 0:
                np.subtract.at(counts, (gold[:-1], gold[1:]), weight)
        objective.scatter(start, stop, residual, 0, part.tokens.arrays, self._gradient(0, w))
        return weight * (log_z[0] - score)


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
        lengths = np.diff(tokens.offsets)
        if lengths.min(initial=1) < 1:
            raise ValueRangeError(f"sentence {int(lengths.argmin())} is empty: leave it out.")
        self.numbers = which[np.argsort(-lengths[which], kind="stable")]
        lengths = lengths[self.numbers]
        token = np.repeat(tokens.offsets[self.numbers], lengths) + counting(lengths)
        self.tokens = ScoredTokens(tokens.take(token, lengths), layout)
        padded = np.zeros((len(extra), layout.wide_shape[1]), np.float32)
        padded[:, : layout.n_labels] = extra
        self.sentences = Sentences(
            self.tokens.offsets,
            np.ascontiguousarray(gold[token], np.int32),
            weights[self.numbers].astype(np.float32),
            padded,
            extra_ids[token] if len(extra_ids) else extra_ids,
        )
        multiple = 1 if layout.n_edge_attributes else objective.ROWS
        self.ranges = threads.cut(lengths, multiple=multiple, most=SLOTS)


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
