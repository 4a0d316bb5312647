r"""The objective of linear-chain CRFs within beams (Pal, Sutton and McCallum, 2006, section 4.2).

.. math:: f(w) = \sum_n \alpha_n \big(\log Z_{n,I}(w) - \mathrm{score}_n(w)\big) + c_2 \lVert w \rVert^2

Each evaluation chooses beams I by a forward pass, with the labels of the data always inside; value and gradient
belong to one set of paths. Since :math:`\log Z_I \le \log Z`, the value is a lower bound of the exact one, and it is
not negative.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ImpossibleError, ShapeError, ValueRangeError
from trelliswork.inference import chain, threads
from trelliswork.inference.chain import beam_crf_kernels, crf_kernels, edge_kernels
from trelliswork.inference.chain.beam import FULL, Beam, BeamSets
from trelliswork.inference.chain.beam_passes import log_arrays, log_space, members
from trelliswork.inference.chain.beam_sparse import SparseChain
from trelliswork.inference.chain.layout import LIMIT
from trelliswork.learning.beam_layout import BeamWeights, StateWeights, Structure
from trelliswork.learning.crf_layout import (
    Allowed,
    FeatureLayout,
    Floats,
    Ids,
    Labelling,
    ScoredTokens,
    Tokens,
    counting,
)
from trelliswork.learning.crf_objective import ChainObjective
from trelliswork.learning.vector_kernels import dot

compiled: Any = beam_crf_kernels  # mypy cannot count starred arguments
compiled_scores: Any = crf_kernels
compiled_edges: Any = edge_kernels


@dataclass(frozen=True)
class BeamStatistics:
    """What the beams of one evaluation were like.

    Attributes
    ----------
    mean_size, max_size : states a token, and of the largest beam
    gap_estimate : float
        Sum over all tokens of minus the logarithm of the mass that was kept: an estimate of log Z - log Z_I in total,
        exact where what follows does not tell the kept states from the others. nan with fixed beams.
    n_exact : int
        Sentences whose beams lost every path and which were computed with all states.
    full : bool
        True if every possible state was kept.
    """

    mean_size: float
    max_size: int
    gap_estimate: float
    n_exact: int
    full: bool


class BeamObjective:
    """Penalised negative log-likelihood within beams and its gradient; called like ``ChainObjective``.

    Parameters
    ----------
    tokens : Tokens
    labelling : Labelling or ndarray of int32 (n_tokens,)
        Every token must have its label; with a ``structure`` these are labels too, and tell the states.
    layout : FeatureLayout
    beam : Beam
        May be replaced between evaluations (``objective.beam = objective.beam.tighter()``).
    l2 : float
    weights : ndarray (n_sentences,), optional
        alpha_n above.
    allowed : Allowed, optional
        What may occur; everything by default.
    structure : Structure, optional
        Sparse transitions; ``layout`` then has none.
    full_first : bool
        Keep every possible state in the first evaluation: at the start all states look alike, and a beam would choose
        among them at random (MALLET does the same).

    Attributes
    ----------
    statistics : BeamStatistics
        Of the last evaluation.
    n_evaluations : int

    Notes
    -----
    One evaluation takes O(entries + tokens |I| S) time, or O(entries + tokens |I| successors) with a structure.
    """

    def __init__(
        self,
        tokens: Tokens,
        labelling: Labelling | Ids,
        layout: FeatureLayout,
        *,
        beam: Beam,
        l2: float = 0.0,
        weights: Floats | None = None,
        allowed: Allowed | None = None,
        structure: Structure | None = None,
        full_first: bool = True,
    ) -> None:
        known = labelling if isinstance(labelling, Labelling) else Labelling(labelling)
        if known.gold.min(initial=0) < 0:
            raise ValueRangeError(
                "a beam needs every token's label: label the sentences fully, or train without a beam."
            )
        if structure is not None and len(layout.transitions) + layout.n_edge_attributes:
            raise ShapeError("with a structure the layout must have no transitions and no edge features of its own.")
        lengths = np.diff(tokens.offsets)
        if lengths.min(initial=1) < 1:
            raise ValueRangeError(f"sentence {int(lengths.argmin())} is empty: leave it out.")
        self.layout, self.beam, self.l2, self.allowed, self.structure = layout, beam, l2, allowed, structure
        self.full_first, self.n_evaluations = full_first, 0
        # With all states the kernels of ``ChainObjective`` are the faster ones.
        self._exact = partial(ChainObjective, tokens, known, layout, l2=l2, weights=weights, allowed=allowed)
        alpha = np.ones(len(lengths)) if weights is None else np.asarray(weights)
        self._numbers = np.argsort(-lengths, kind="stable")
        lengths = lengths[self._numbers]
        token = np.repeat(tokens.offsets[self._numbers], lengths) + counting(lengths)
        self._tokens = ScoredTokens(tokens.take(token, lengths), layout)
        self._gold = np.ascontiguousarray(known.gold[token], np.int32)
        self._alpha = alpha[self._numbers].astype(np.float32)
        self._entry = np.empty(0, np.int64)
        self.n_states = layout.n_labels
        if structure is not None:
            self.n_states = structure.transitions.n_states
            self._gold = structure.transitions.states(self._gold, lengths)
            self._entry = np.full(len(self._gold), -1)
            self._entry[1:] = structure.transitions.entries(self._gold[:-1], self._gold[1:])
        large = self.n_states >= 512 and structure is None  # few sums of (S, S) then
        self._ranges = threads.cut(lengths, most=2 if large else 4)
        n = len(self._ranges)
        self._wide_gradient = np.empty((n, *layout.wide_shape), np.float32)
        self._narrow_gradient = np.empty((n, len(layout.narrow_features)), np.float32)
        self._edge_gradient = np.empty((n, len(layout.edge_attributes)), np.float32)
        S = self.n_states
        self._counts = np.empty((n, S, S) if structure is None else (n, len(structure.weight_ids)))
        self._sets = BeamSets(np.empty(0, np.int64), np.empty(0, np.int32))
        self.n_transitions = len(layout.transitions) if structure is None else structure.n_weights
        self.n_features = layout.n_features + (structure.n_weights if structure is not None else 0)
        self._complete = len(layout.attributes) == layout.n_attributes * layout.n_labels >= 3 * layout.n_attributes > 0
        self.statistics = BeamStatistics(float(S), S, 0.0, 0, True)

    def __call__(self, weights: Floats) -> tuple[float, NDArray[np.float64]]:
        """Value and gradient at a weight vector."""
        self.n_evaluations += 1
        if self.n_evaluations == 1 and self.full_first and self.structure is None and not self._sets.ptr.size:
            self.statistics = BeamStatistics(float(self.n_states), self.n_states, 0.0, 0, True)
            return self._exact()(weights)
        value = self._evaluate(weights, np.empty((0, 0), np.int32))
        gradient = self._gather()
        if self.l2:
            value += self.l2 * dot(weights, weights)
            gradient += 2 * self.l2 * weights
        return value, gradient

    def fix(self, weights: Floats) -> None:
        """Choose the beams at ``weights`` and keep them for all evaluations to come, until ``release``.

        Then the objective is one smooth function. Needs memory for every state of every token.
        """
        self.release()
        states = np.full((len(self._gold), self.n_states), -1, np.int32)
        before, self.full_first = self.full_first, False
        self._evaluate(weights, states)
        self.full_first = before
        inside = states >= 0
        self._sets = BeamSets(np.concatenate([[0], np.cumsum(inside.sum(axis=1))]), states[inside])

    def release(self) -> None:
        """Choose beams at every evaluation again."""
        self._sets = BeamSets(np.empty(0, np.int64), np.empty(0, np.int32))

    def _evaluate(self, weights: Floats, out_states: NDArray[np.int32]) -> float:
        """Fill the gradients; return the loss without penalty."""
        w = self._weights(weights)
        full = self.full_first and self.n_evaluations == 1 and not self._sets.ptr.size
        rule = FULL if full else self.beam.rule
        beams = (*rule, self.beam.refine and not full, *self._sets, np.float32(LIMIT[np.dtype(np.float32)]))
        n_tokens, n_sentences = len(self._gold), len(self._alpha)
        loss, safe = np.zeros(n_sentences), np.ones(n_sentences, bool)
        sizes, kept = np.zeros(n_tokens, np.int64), np.ones(n_tokens)
        slot = {start: k for k, (start, _) in enumerate(self._ranges)}

        def work(start: int, stop: int) -> None:
            k = slot[start]
            sums = (self._wide_gradient[k], self._narrow_gradient[k], self._edge_gradient[k], self._counts[k])
            for values in sums:
                values[...] = 0
            out = (loss, safe, sizes, kept, out_states)
            if self.structure is None:
                compiled.dense(
                    start, stop, self._tokens.offsets, self._gold, self._alpha, *self._tokens.arrays, *w.state.arrays,
                    w.state.start, w.state.end, self.n_states, *self._tokens.edge_arrays, *w.state.edge_arrays,
                    self.layout.n_edge_attributes > 0, *w.dense, *beams, w.check, *sums, *out,
                )  # fmt: skip
            else:
                compiled.sparse(
                    start, stop, self._tokens.offsets, self._gold, self._entry, self._alpha, *self._tokens.arrays,
                    *w.state.arrays, self.layout.n_labels, *w.sparse, *beams, *sums[:2], sums[3], *out,
                )  # fmt: skip

        threads.run(work, self._ranges)
        n_exact = 0
        for n in np.flatnonzero(~safe).tolist():
            n_exact += self._in_log_space(n, w, rule, loss, sizes, kept, out_states)
        gap = float(-np.log(kept).sum())
        self.statistics = BeamStatistics(float(sizes.mean()), int(sizes.max()), gap, n_exact, full)
        return float(loss.sum())

    def _weights(self, weights: Floats) -> BeamWeights:
        n = self.n_transitions
        state = StateWeights(weights[n:], self.layout, self._complete, self.allowed)
        return BeamWeights(weights[:n], state, self.layout, self.allowed, self.structure)

    def _gather(self) -> NDArray[np.float64]:
        """The gradient as one vector in the order of the layout."""
        layout, n = self.layout, self.n_transitions
        gradient = np.empty(self.n_features)
        counts = self._counts[0] if len(self._counts) == 1 else self._counts.sum(axis=0)
        if self.structure is not None:
            gradient[:n] = np.bincount(self.structure.weight_ids, counts, minlength=n)
        elif n == counts.size:
            gradient[:n] = counts.reshape(-1)
        else:
            gradient[:n] = counts.reshape(-1)[layout.transitions]
        state = gradient[n : n + len(layout.attributes)]
        wide = self._wide_gradient.sum(axis=0)
        if self._complete:
            state.reshape(-1, layout.n_labels)[:] = wide[:, : layout.n_labels]
        else:
            state[layout.wide_features] = wide.reshape(-1)[layout.wide_places]
            state[layout.narrow_features] = self._narrow_gradient.sum(axis=0)
        gradient[n + len(layout.attributes) :] = self._edge_gradient.sum(axis=0)
        return gradient

    def _in_log_space(
        self,
        n: int,
        w: BeamWeights,
        rule: tuple[int, float, float],
        loss: NDArray[np.float64],
        sizes: NDArray[np.int64],
        kept: NDArray[np.float64],
        out_states: NDArray[np.int32],
    ) -> bool:
        """Loss and gradient of one sentence that underflows or loses all paths; True if all states were needed."""
        start, stop = self._tokens.offsets[n], self._tokens.offsets[n + 1]
        L, S, T = self.layout.n_labels, self.n_states, int(stop - start)
        gold, weight = self._gold[start:stop], float(self._alpha[n])
        out = np.empty((T, w.state.wide.shape[1]), np.float32)
        compiled_scores.scores(start, stop, *self._tokens.arrays, *w.state.arrays, L, out, 0)
        counts, edges = self._counts[0].reshape(-1), np.empty(0)
        p: chain.Potentials | SparseChain
        if w.structure is None:
            out[0] += w.state.start
            out[-1] += w.state.end
            pairwise: Floats = w.log_transition
            if self.layout.n_edge_attributes and T > 1:
                pairwise = np.empty((1, T - 1, S, S), np.float32)
                compiled_edges.edge_scores(
                    start, stop, *self._tokens.edge_arrays, *w.state.edge_arrays, w.log_transition, pairwise[0]
                )
                edges = np.zeros((T - 1) * S * S)
                counts = np.empty(0)
            p = chain.chain_potentials(out[None, :, :L], pairwise)
            score = chain.score(p, gold[None].astype(np.int64))[0]
            emits = np.arange(S, dtype=np.int32)
        else:
            structure = w.structure.transitions
            p = SparseChain(out[None, :, :L], structure, w.log_weights, w.log_start, w.log_end, np.array([T]))
            entry, emits = self._entry[start + 1 : stop], structure.emits
            score = float(out[np.arange(T), emits[gold]].sum(dtype=np.float64))
            score += float(w.log_weights[entry].sum(dtype=np.float64) + w.log_start[gold[0]] + w.log_end[gold[-1]])
        given = members(self._sets, int(start), int(stop), S) if self._sets.ptr.size else None
        found = log_space(log_arrays(p, 0), gold, rule, self.beam.refine, given, weight, counts, edges)
        if not score > -np.inf:
            raise ImpossibleError(f"sentence {self._numbers[n]}: its labels are impossible under the scheme.")
        residual = np.zeros_like(out)
        np.add.at(residual.T, emits, found.marginals.T.astype(np.float32))
        residual[np.arange(T), emits[gold]] -= weight
        if edges.size:
            square = edges.reshape(T - 1, S, S).astype(np.float32)
            square[np.arange(T - 1), gold[:-1], gold[1:]] -= weight
            compiled_edges.edge_scatter(
                start, stop, *self._tokens.edge_arrays, *w.state.edge_arrays[:2], square,
                self._edge_gradient[0], self._counts[0],
            )  # fmt: skip
        elif w.structure is None:
            np.subtract.at(self._counts[0], (gold[:-1], gold[1:]), weight)
        else:
            np.subtract.at(self._counts[0], entry, weight)
        compiled_scores.scatter(
            start, stop, residual, 0, *self._tokens.arrays, w.state.narrow_labels,
            self._wide_gradient[0], self._narrow_gradient[0],
        )  # fmt: skip
        loss[n] = weight * (found.log_z - score)
        sizes[start:stop], kept[start:stop] = found.member.sum(axis=1), found.kept
        if len(out_states):
            for t, member in enumerate(found.member):
                out_states[start + t, : member.sum()] = np.flatnonzero(member)
        return found.exact
