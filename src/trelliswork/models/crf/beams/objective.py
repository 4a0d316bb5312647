r"""Objective of linear-chain CRFs within beams (Pal, Sutton and McCallum, 2006, section 4.2).

.. math:: f(w) = \sum_n \alpha_n \big(\log Z_{n,I}(w) - \mathrm{score}_n(w)\big) + c_2 \lVert w \rVert^2

The beams I are chosen by posterior probabilities and held, with the gold labels always inside; value and gradient
belong to the same set of paths. Since :math:`\log Z_I \le \log Z`, the value is a lower bound of the exact one. It is
not negative.

In a group of processes each rank has the beams of its own sentences; what is decided by them, and what stands for the
states outside of all of them, is summed over the ranks.
"""

from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.errors import ImpossibleError, ShapeError, ValueRangeError
from trelliswork.inference.chain.beam import Beam, BeamSets, BeamStatistics, joined
from trelliswork.inference.chain.beam.kernels.records import Choice
from trelliswork.inference.chain.beam.log_space import log_chain, log_space
from trelliswork.inference.chain.beam.passes import NO_SETS, members
from trelliswork.inference.chain.potentials import LIMIT
from trelliswork.learning import whole
from trelliswork.learning.evaluation import SharedEvaluation
from trelliswork.models.crf.beams.choice import choose_all, union
from trelliswork.models.crf.beams.layout import SparseWeights, Structure
from trelliswork.models.crf.beams.response import Contribution, Response, neutral_factors
from trelliswork.models.crf.beams.rest import NO_REST, Completed, exact_pass
from trelliswork.models.crf.kernels import beams, held_beams, objective
from trelliswork.models.crf.kernels.beams import BeamSentences, ChainScores
from trelliswork.models.crf.kernels.edges import EdgeFeatures
from trelliswork.models.crf.kernels.held_beams import Held, Masses
from trelliswork.models.crf.kernels.objective import Losses
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
from trelliswork.models.crf.objective import Batch, ChainObjective, GradientSums
from trelliswork.models.crf.scoring import LaidOut, Scorer, laid_out

MANY = 128  # states; with fewer an exact pass costs little more than one within beams


class BeamObjective:
    """Penalized negative log-likelihood within beams and its gradient, with the interface of ``ChainObjective``.

    ``hold`` chooses the beams; it must be called before the first evaluation. Every token must have a label, also with
    a ``structure`` (sparse transitions), where the labels determine the states and the layout has no transitions.
    ``beam`` may be replaced between choices (``objective.beam = objective.beam.tighter()``). ``statistics`` are those
    of the last choice. An evaluation takes O(entries + tokens |I|^2) time.

    ``completes``: include the states outside held beams (``rest``). This requires shared transitions; by default it is
    used from 128 states on, where it pays.
    """

    def __init__(
        self,
        tokens: Tokens,
        labeling: Labeling | Ids,
        layout: FeatureLayout,
        *,
        beam: Beam,
        l2: float = 0.0,
        weights: Floats | None = None,
        allowed: Allowed | None = None,
        structure: Structure | None = None,
        completes: bool | None = None,
    ) -> None:
        known = labeling if isinstance(labeling, Labeling) else Labeling(labeling)
        if known.gold.min(initial=0) < 0:
            raise ValueRangeError(
                "a beam needs every token's label: label the sentences fully, or train without a beam."
            )
        if structure is not None and len(layout.transitions) + layout.n_edge_attributes:
            raise ShapeError("with a structure the layout must have no transitions and no edge features of its own.")
        self._numbers = tokens.longest_first()
        self.layout, self.beam, self.l2, self.allowed, self.structure = layout, beam, l2, allowed, structure
        shared = structure is None and not layout.n_edge_attributes
        self.completes = shared and (layout.n_labels >= MANY if completes is None else completes)
        # With all states the kernels of ``ChainObjective`` are faster.
        self._make_exact = partial(ChainObjective, tokens, known, layout, l2=l2, weights=weights, allowed=allowed)
        alpha = np.ones(len(self._numbers)) if weights is None else np.asarray(weights)
        taken, token = tokens.sentences(self._numbers)
        lengths = np.diff(taken.offsets)
        self._tokens, self._scorer = ScoredTokens(taken, layout), Scorer(taken, layout, allowed, structure)
        self._gold = np.ascontiguousarray(known.gold[token], np.int32)
        self._alpha = alpha[self._numbers].astype(np.float32)
        self._entry = np.empty(0, np.int64)
        self.n_states = layout.n_labels
        if structure is not None:
            self.n_states = structure.transitions.n_states
            self._gold = structure.transitions.states(self._gold, lengths)
            self._entry = np.full(len(self._gold), -1)
            self._entry[1:] = structure.transitions.entries(self._gold[:-1], self._gold[1:])
        self._sentences = BeamSentences(self._tokens.offsets, self._gold, self._alpha, self._entry)
        large = self.n_states >= 512 and structure is None  # then few copies of the counts (S, S)
        self._ranges = threads.cut(lengths, most=2 if large else 4)
        n, S, L = len(self._ranges), self.n_states, layout.n_labels
        self._gradient = GradientSums(n, layout, (S, S) if structure is None else structure.weight_ids.shape[1:])
        self._masses = Masses(*(np.zeros((n, size)) for size in (layout.wide_shape[0], L, L, 1)))
        self.n_features = layout.n_features + (structure.n_weights if structure is not None else 0)
        self._n_tokens = int(whole.total(len(self._gold)))
        self.statistics = self._all_states()
        self._chosen = self._grown = NO_SETS  # by the last ``hold``, without and with the states that were kept
        self._response: Response | None
        self._release()

    @cached_property
    def _exact(self) -> ChainObjective:
        return self._make_exact()

    def _all_states(self) -> BeamStatistics:
        """Return the statistics of an exact evaluation."""
        return BeamStatistics(float(self.n_states), self.n_states, 0.0, self._n_tokens, 0, True)

    def __call__(self, weights: Floats) -> SharedEvaluation:
        """Return value and gradient at a weight vector."""
        if self._all:
            return self._exact(weights)
        outside: Contribution | None = None
        if self._response is not None:
            outside = self._response.at(weights, self.layout)
            self._factors = outside.factors
        value, gradient = self._evaluate(weights), self._gather()
        if outside is not None:
            masses = self._total_masses()
            if whole.is_first():
                value += outside.add(masses, gradient)
        return SharedEvaluation(value, gradient, weights, self.l2)

    def hold(self, weights: Floats, *, grow: bool = False) -> None:
        """Choose beams by the posterior probabilities at ``weights`` and keep them until the next choice.

        The posterior is exact where transitions are shared, otherwise it is that within the beams of a forward pass. If
        the objective ``completes``, the states outside are included, and value and gradient are exact at ``weights``.
        Otherwise the states of the previous choice are kept, with ``grow`` all states that are held. If more than a
        quarter of the states is kept, evaluations are exact until the next choice. ``statistics`` describe this choice.
        """
        held = self._grown if grow else self._chosen
        self._release()
        S = self.n_states
        if self.structure is None and not weights.any():  # all states are equal
            self._all, self.statistics = True, self._all_states()
            return
        completed: Completed | None = None
        if self.completes:
            w = ChainWeights(weights, self.layout, self.allowed)
            completed = exact_pass(self._scorer, self._tokens, self._gold, self._alpha, w, self.beam.rule)
            sets, kept = completed.sets, completed.kept
        else:
            sets, kept = choose_all(self._scorer, self._weights(weights), self._gold, self.beam, S)
        self._chosen = sets
        if completed is None and len(held.ptr):
            sets = union(sets, held, S)
        statistics = _agreed(BeamStatistics.of(np.diff(sets.ptr), kept, 0, full=False))
        if self.structure is None and statistics.mean_size > S / 4:
            self._all, self._chosen = True, NO_SETS
        else:
            self.sets = self._grown = sets
            if completed is not None:
                self._complete_by(completed, weights)
        self.statistics = statistics

    def _complete_by(self, exact: Completed, weights: Floats) -> None:
        """Include the states outside from now on, as they are at ``weights``."""
        self._rest = exact.rest
        self._evaluate(weights)
        outside = self.layout.vector(*exact.gradient.total()) - self._gather()
        self._response = Response.of(whole.summed(outside.astype(np.float32))[0], weights, self._total_masses())

    def held(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the choice of ``hold``, of all parts, as plain data and arrays for ``hold_again``."""
        arrays: dict[str, NDArray[Any]] = {}
        for name, sets in (("chosen", self._chosen), ("grown", self._grown)):
            arrays[f"{name}.sizes"] = whole.concatenated(np.diff(sets.ptr))
            arrays[f"{name}.states"] = whole.concatenated(sets.states)
        return {"all": self._all, "statistics": vars(self.statistics)}, arrays

    def hold_again(self, plain: dict[str, Any], arrays: dict[str, NDArray[Any]], weights: Floats) -> None:
        """Restore the choice at ``weights`` that ``held`` returned."""
        if self.completes:
            self.hold(weights)
            return
        self._release()
        first, _ = whole.place(len(self._gold))
        for name in ("_chosen", "_grown"):
            sizes, states = (arrays[f"{name[1:]}.{part}"] for part in ("sizes", "states"))
            ptr = np.concatenate([[0], np.cumsum(sizes)])[first : first + len(self._gold) + 1]
            setattr(self, name, BeamSets(ptr - ptr[0], states[ptr[0] : ptr[-1]]) if len(sizes) else NO_SETS)
        self._all, self.statistics = plain["all"], BeamStatistics(**plain["statistics"])
        if not self._all:
            self.sets = self._grown

    @property
    def completed(self) -> bool:
        """Whether states are held, and those outside are included."""
        return self._response is not None

    def _release(self) -> None:
        """Drop the last choice."""
        self.sets, self._rest = NO_SETS, NO_REST
        self._response = None
        self._factors = neutral_factors(self.layout)
        self._all = False

    def _evaluate(self, weights: Floats) -> float:
        """Fill the gradients; return the loss without penalty."""
        w = self._weights(weights)
        limit = np.float32(LIMIT[np.dtype(np.float32)])
        held = Held(self.sets, self._rest, self._factors)
        losses = Losses(np.zeros(len(self._alpha)), np.ones(len(self._alpha), bool))
        slot = {start: k for k, (start, _) in enumerate(self._ranges)}
        tokens, sentences = self._tokens.arrays, self._sentences
        scores = None if isinstance(w, SparseWeights) else _chain_scores(w, self._tokens)

        def work(start: int, stop: int) -> None:
            k = slot[start]
            gradient, masses = self._gradient.slot(k), Masses(*(part[k] for part in self._masses))
            self._gradient.clear(k)
            for values in masses:
                values[:] = 0
            if start == stop:  # no sentences
                return
            if isinstance(w, SparseWeights):
                beams.sparse(start, stop, sentences, tokens, w.entry_scores, self.sets, limit, gradient, losses)
            else:
                held_beams.loss_gradient(start, stop, sentences, tokens, scores, held, limit, gradient, masses, losses)

        threads.run(work, self._ranges)
        for n in np.flatnonzero(~losses.safe).tolist():
            losses.loss[n] = self._in_log_space(n, w)
        return float(losses.loss.sum())

    def _total_masses(self) -> Masses:
        return Masses(*whole.summed(*(part.sum(axis=0) for part in self._masses)))

    def _weights(self, weights: Floats) -> LaidOut:
        return laid_out(weights, self.layout, self.allowed, self.structure)

    def _gather(self) -> NDArray[np.float64]:
        """Return the gradient as one vector in the order of the weights."""
        counts, *features = self._gradient.total()
        own = self.layout.vector(counts, *features)
        return own if self.structure is None else np.concatenate([self.structure.gather(counts), own])

    def _in_log_space(self, n: int, w: LaidOut) -> float:
        """Return the loss of a sentence that underflows; add its gradient to the first sums."""
        start, stop = int(self._tokens.offsets[n]), int(self._tokens.offsets[n + 1])
        S, T, gold, weight = self.n_states, stop - start, self._gold[start:stop], float(self._alpha[n])
        gradient, inside = self._gradient.slot(0), members(self.sets, start, stop, S)
        choice, counts, pairs = Choice(gold, self.beam.rule, False), gradient.counts.reshape(-1), np.empty(0)
        if isinstance(w, ChainWeights):
            batch = Batch(n, n + 1, self._tokens, w)
            if batch.by_position:
                counts, pairs = np.empty(0), np.zeros((T - 1) * S * S)
            result = log_space(log_chain(batch.potentials, 0), choice, inside, weight, counts, pairs)
            residual = np.zeros_like(batch.scores)
            residual[:, :S] = result.marginals
            square = pairs.reshape(1, T - 1, S, S).astype(np.float32) if pairs.size else None
            score = batch.add(residual, square, gold, self._alpha[n : n + 1], gradient)[0]
        else:
            out, emits = self._tokens.scores(w, start, stop), w.entry_scores.entries.emits
            p = w.chain(out[None, :, : w.n_labels], np.array([T]))
            entry, labels = self._entry[start + 1 : stop], emits[gold]
            score = float(out[np.arange(T), labels].sum(dtype=np.float64))
            score += float(p.log_weights[entry].sum(dtype=np.float64) + p.log_start[gold[0]] + p.log_end[gold[-1]])
            result = log_space(log_chain(p, 0), choice, inside, weight, counts, pairs)
            residual = np.zeros_like(out)
            np.add.at(residual.T, emits, result.marginals.T.astype(np.float32))
            residual[np.arange(T), labels] -= weight
            np.subtract.at(gradient.counts, entry, weight)
            objective.scatter(start, stop, residual, 0, self._tokens.arrays, gradient.state)
        if not score > -np.inf:
            raise ImpossibleError(f"sentence {self._numbers[n]}: its labels are impossible under the scheme.")
        return float(weight * (result.log_z - score))


def _chain_scores(w: ChainWeights, tokens: ScoredTokens) -> ChainScores:
    """Return weights as the kernel takes them; edge features are those of ``tokens``."""
    features, transitions = EdgeFeatures(*tokens.edge_arrays, *w.edge_arrays), w.potentials.transitions
    use_edges = len(features.ptr) > 1
    return ChainScores(
        w.arrays, w.labels, transitions.matrix, 0.0 if use_edges else transitions.log_shift, features, use_edges
    )


def _agreed(own: BeamStatistics) -> BeamStatistics:
    """Return the statistics of all ranks together."""
    together = joined([BeamStatistics(**part) for part in whole.of_parts(vars(own))])
    return own if together is None else together
