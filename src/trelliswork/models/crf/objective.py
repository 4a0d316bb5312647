r"""The objective of linear-chain CRFs on sparse attributes.

.. math:: f(w) = \sum_n \alpha_n \big(\log Z_n(w) - \log Z_n(w; Y_n)\big) + c_2 \lVert w \rVert^2

Z(w; Y) sums over the labellings that agree with what is known: with all labels known it is the score of one. The
gradient is expected minus observed feature counts (paper 1, section 0.1), where the observed ones are expectations too
if a sentence is only partly labelled.

Label weights r: the model that is wanted is :math:`q(y \mid x; w) \propto p(y \mid x) \prod_t r(y_t)`, p being the
distribution of the data, as if labels had been r times as frequent. Hence the data's likelihood is that of
:math:`q(y \mid x; w) / \prod_t r(y_t)`, normalised: while learning, label j scores log r(j) less at every token (logit
adjustment; Menon et al., 2021). The objective stays convex.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.errors import ImpossibleError, ValueRangeError
from trelliswork.inference import chain
from trelliswork.inference.chain.layout import exp_transition, limit, panels
from trelliswork.learning.kernels.vectors import dot
from trelliswork.models.crf.kernels import edges as edge_kernels
from trelliswork.models.crf.kernels import objective as crf_kernels
from trelliswork.models.crf.layout import (
    Allowed,
    ChainWeights,
    FeatureLayout,
    Floats,
    Ids,
    Labelling,
    ScoredTokens,
    Tokens,
    counting,
)

compiled: Any = crf_kernels  # mypy cannot count starred arguments
compiled_edges: Any = edge_kernels
SLOTS = 4  # gradients that are summed apart; as many threads can work at once, and results do not depend on them


class ChainObjective:
    """Penalised negative log-likelihood of labelled sentences and its gradient.

    Parameters
    ----------
    tokens : Tokens
    labelling : Labelling or ndarray of int32 (n_tokens,)
        Label ids, or what is known about them.
    layout : FeatureLayout
    l2 : float
        c_2 above.
    weights : ndarray (n_sentences,), optional
        alpha_n above.
    label_weights : ndarray (S,), optional
        r above; positive.
    allowed : Allowed, optional
        What may occur; everything by default.

    Notes
    -----
    One evaluation takes O(entries + tokens S^2) time, twice that for partly labelled sentences. Inner sums are float32,
    sums over the corpus of losses and transitions float64.
    """

    def __init__(
        self,
        tokens: Tokens,
        labelling: Labelling | Ids,
        layout: FeatureLayout,
        *,
        l2: float = 0.0,
        weights: Floats | None = None,
        label_weights: Floats | None = None,
        allowed: Allowed | None = None,
    ) -> None:
        self.layout, self.l2, self.allowed = layout, l2, allowed
        known = labelling if isinstance(labelling, Labelling) else Labelling(labelling)
        alpha = np.ones(len(tokens.offsets) - 1) if weights is None else np.asarray(weights)
        self._parts = list(_parts(tokens, known, layout, alpha, label_weights))
        n_slots = max(len(part.ranges) for part in self._parts)
        # Kept from one evaluation to the next: fresh memory costs more than clearing it.
        self._wide_gradient = np.empty((n_slots, *layout.wide_shape), np.float32)
        self._narrow_gradient = np.empty((n_slots, len(layout.narrow_features)), np.float32)
        self._edge_gradient = np.empty((n_slots, len(layout.edge_attributes)), np.float32)
        self.n_features = layout.n_features

    def __call__(self, weights: Floats) -> tuple[float, NDArray[np.float64]]:
        """Value and gradient at a weight vector."""
        w = ChainWeights(weights, self.layout, self.allowed)
        S = self.layout.n_labels
        counts = np.zeros((len(self._wide_gradient), 1, S, S))
        used = 0
        value = 0.0
        for part in self._parts:
            value += self._add(part, w, used, counts)
            used = max(used, len(part.ranges))
        gradient = self._gather(counts[:, 0].sum(axis=0))
        if self.l2:
            value += self.l2 * dot(weights, weights)
            gradient += 2 * self.l2 * weights
        return value, gradient

    def _add(self, part: "_Part", w: ChainWeights, used: int, counts: NDArray[np.float64]) -> float:
        """Add the gradient of a part to the sums, of which ``used`` hold something already; return its loss."""
        S, p = self.layout.n_labels, w.potentials
        wide, narrow, edge = self._wide_gradient, self._narrow_gradient, self._edge_gradient
        transition, shift = exp_transition(p)
        strips, strips_t = panels(p, transition), panels(p, np.ascontiguousarray(transition.T))
        loss, safe = np.zeros(len(part.weights)), np.ones(len(part.weights), bool)
        slot = {start: k for k, (start, _) in enumerate(part.ranges)}

        def work(start: int, stop: int) -> None:
            k = slot[start]
            if k >= used:
                wide[k], narrow[k], edge[k] = 0, 0, 0
            sentences = (start, stop, part.tokens.offsets, part.gold, part.weights)
            if self.layout.n_edge_attributes:
                compiled_edges.loss_gradient(
                    *sentences, *part.tokens.arrays, *part.tokens.edge_arrays, *w.arrays, *w.edge_arrays,
                    w.start, w.end, part.extra, part.extra_ids, S, limit(p), w.log_transition,
                    wide[k], narrow[k], edge[k], counts[k, 0], loss, safe,
                )  # fmt: skip
            else:
                compiled.loss_gradient(
                    *sentences, *part.tokens.arrays, *w.arrays,
                    w.start, w.end, part.extra, part.extra_ids, S, transition, strips, strips_t, shift, limit(p),
                    not p.mixing, w.log_transition, wide[k], narrow[k], counts[k], loss, safe,
                )  # fmt: skip

        threads.run(work, part.ranges)
        for s in np.flatnonzero(~safe):
            loss[s] = self._in_log_space(part, int(s), w, counts[0, 0])
        return float(loss.sum())

    def _gather(self, counts: Floats) -> NDArray[np.float64]:
        """The gradient as one vector in the order of the layout."""
        layout = self.layout
        gradient = np.empty(layout.n_features)
        gradient[: len(layout.transitions)] = counts.reshape(-1)[layout.transitions]
        state = gradient[len(layout.transitions) : layout.first_edge]
        state[layout.wide_features] = self._wide_gradient.sum(axis=0).reshape(-1)[layout.wide_places]
        state[layout.narrow_features] = self._narrow_gradient.sum(axis=0)
        gradient[layout.first_edge :] = self._edge_gradient.sum(axis=0)
        return gradient

    def _in_log_space(self, part: "_Part", s: int, w: ChainWeights, counts: Floats) -> float:
        """Loss of one sentence that underflows in probability space; its gradient goes to the first sums."""
        start, stop = part.tokens.offsets[s], part.tokens.offsets[s + 1]
        S, gold = self.layout.n_labels, part.gold[start:stop]
        out = np.empty((stop - start, w.wide.shape[1]), np.float32)
        compiled.scores(start, stop, *part.tokens.arrays, *w.arrays, S, out, 0)
        out[0] += w.start
        out[-1] += w.end
        if len(part.extra_ids):
            out += part.extra[part.extra_ids[start:stop]]
        own = self.layout.n_edge_attributes > 0 and stop - start > 1  # transitions that depend on the position
        pairwise: Floats = w.log_transition
        if own:
            pairwise = np.empty((1, stop - start - 1, S, S), np.float32)
            edges = part.tokens.edge_arrays
            compiled_edges.edge_scores(start, stop, *edges, *w.edge_arrays, w.log_transition, pairwise[0])
        p = chain.chain_potentials(out[None, :, :S], pairwise)
        log_z, found = chain.expectations(p, edges=own, counts=not own)
        if not log_z[0] > -np.inf:
            raise ImpossibleError(f"sentence {part.numbers[s]}: no labelling agrees with its labels and the scheme.")
        assert found.marginals is not None
        weight = float(part.weights[s])
        residual = np.zeros_like(out)
        residual[:, :S] = weight * found.marginals[0]
        score = 0.0
        if gold[0] >= 0:
            score = chain.score(p, gold[None].astype(np.int64))[0]
            residual[np.arange(stop - start), gold] -= weight
        if own:
            assert found.edges is not None
            pairs = (weight * found.edges[0]).astype(np.float32)
            if gold[0] >= 0:
                pairs[np.arange(stop - start - 1), gold[:-1], gold[1:]] -= weight
            compiled_edges.edge_scatter(
                start, stop, *part.tokens.edge_arrays, w.edge_ptr, w.edge_pairs, pairs, self._edge_gradient[0], counts
            )
        else:
            assert found.counts is not None
            counts += weight * found.counts[0]
            if gold[0] >= 0:
                np.subtract.at(counts, (gold[:-1], gold[1:]), weight)
        compiled.scatter(
            start, stop, residual, 0, *part.tokens.arrays, w.narrow_labels,
            self._wide_gradient[0], self._narrow_gradient[0],
        )  # fmt: skip
        return weight * (log_z[0] - score)


class _Part:
    """Sentences whose losses are added with one sign: all of them, or the constrained side of those partly labelled.

    They lie longest first, in memory too: sentences that advance together are neighbours.
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
        self.gold = np.ascontiguousarray(gold[token], np.int32)
        self.weights = weights[self.numbers].astype(np.float32)
        self.extra = np.zeros((len(extra), layout.wide_shape[1]), np.float32)
        self.extra[:, : layout.n_labels] = extra
        self.extra_ids = extra_ids[token] if len(extra_ids) else extra_ids
        multiple = 1 if layout.n_edge_attributes else crf_kernels.ROWS
        self.ranges = threads.cut(lengths, multiple=multiple, most=SLOTS)


def _parts(
    tokens: Tokens, known: Labelling, layout: FeatureLayout, alpha: Floats, label_weights: Floats | None
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
        nothing = np.full(len(known.gold), -1, np.int32)
        yield _Part(tokens, partly, nothing, layout, -alpha, sets, known.set_ids)
