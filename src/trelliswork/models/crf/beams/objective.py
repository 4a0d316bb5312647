r"""Objective of linear-chain CRFs within beams (Pal, Sutton and McCallum, 2006, section 4.2).

.. math:: f(w) = \sum_n \alpha_n \big(\log Z_{n,I}(w) - \mathrm{score}_n(w)\big) + c_2 \lVert w \rVert^2

The beams I are chosen by posterior probabilities and held, with the gold labels always inside; value and gradient
belong to the same set of paths. Since :math:`\log Z_I \le \log Z`, the value is a lower bound of the exact one. It is
not negative.

In a group of processes each rank has the beams of its own sentences; what is decided by them, and what stands for the
states outside of all of them, is summed over the ranks.
"""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.errors import ImpossibleError, ShapeError, ValueRangeError
from trelliswork.inference import chain
from trelliswork.inference.chain.beam import Beam, BeamSets, BeamStatistics, joined
from trelliswork.inference.chain.beam.log_space import log_chain, within
from trelliswork.inference.chain.beam.passes import NO_SETS, members
from trelliswork.learning import whole
from trelliswork.learning.evaluation import SharedEvaluation
from trelliswork.models.crf.beams.choice import choose_all, union
from trelliswork.models.crf.beams.response import Contribution, Response, neutral_factors
from trelliswork.models.crf.beams.rest import NO_REST, Completed, exact_pass
from trelliswork.models.crf.kernels import beams, held_beams, objective
from trelliswork.models.crf.kernels.beams import BeamSentences, ChainScores
from trelliswork.models.crf.kernels.held_beams import Held, Masses
from trelliswork.models.crf.kernels.objective import Losses
from trelliswork.models.crf.layout import Floats, Ids
from trelliswork.models.crf.objective import ChainObjective, GradientSums
from trelliswork.models.crf.problem import Problem, counting
from trelliswork.models.crf.weights import ChainWeights, ScoredTokens, Scorer, SparseWeights, laid_out

# The largest beta / c of a safe sentence: a state that underflows then has less than 1e-8 of the probability.
LIMIT = np.float32(1e30)
MANY = 128  # states; with fewer an exact pass costs little more than one within beams


class BeamObjective:
    """Penalized negative log-likelihood within beams and its gradient, with the interface of ``ChainObjective``.

    ``hold`` chooses the beams; it must be called before the first evaluation. Every token must have a label, also with
    a structure (sparse transitions), where the labels determine the states and the layout has no transitions. ``beam``
    may be replaced between choices (``objective.beam = objective.beam.tighter()``). ``statistics`` are those of the
    last choice. An evaluation takes O(entries + tokens |I|^2) time.

    ``completes``: include the states outside held beams (``rest``). This requires dense transitions; by default it is
    used from 128 states on, where it pays.
    """

    def __init__(self, problem: Problem, *, beam: Beam, l2: float = 0.0, completes: bool | None = None) -> None:
        layout, structure = problem.layout, problem.structure
        if problem.labeling.gold.min(initial=0) < 0 or problem.label_weights is not None or layout.n_edge_attributes:
            raise ValueRangeError(
                "training within a beam, under rules or with order above 1 needs one label per token, no label weights "
                "and no B templates with columns. Use order=1 without a beam; set_params(beam=...) after training sets "
                "one for tagging."
            )
        if structure is not None and len(layout.transitions):
            raise ShapeError("with a structure the layout must have no transitions of its own.")
        self.problem, self.layout, self.beam, self.l2, self.structure = problem, layout, beam, l2, structure
        self.completes = structure is None and (layout.n_labels >= MANY if completes is None else completes)
        self._numbers = problem.tokens.longest_first()
        taken, token = problem.tokens.sentences(self._numbers)
        lengths = np.diff(taken.offsets)
        self._tokens, self._scorer = ScoredTokens(taken, layout), Scorer(taken, layout)
        self._alpha, self._gold = problem.alpha[self._numbers], np.ascontiguousarray(problem.labeling.gold[token])
        self.n_states = n = layout.n_labels
        self._emits: Ids = np.arange(n, dtype=np.int32)
        inner = counting(lengths) > 0  # all but the first tokens
        self._entry = np.where(inner, np.roll(self._gold, 1) * np.int64(n) + self._gold, -1)
        if structure is not None:
            self.n_states, self._emits = structure.transitions.n_states, structure.transitions.emits
            self._gold = structure.transitions.states(self._gold, lengths)
            self._entry = np.where(inner, structure.transitions.entries(np.roll(self._gold, 1), self._gold), -1)
        self._sentences = BeamSentences(self._tokens.offsets, self._gold, self._alpha, self._entry)
        large = self.n_states >= 512 and structure is None  # then few copies of the counts (S, S)
        self._ranges = threads.cut(lengths, most=2 if large else 4)
        k, S, L = len(self._ranges), self.n_states, layout.n_labels
        self._gradient = GradientSums(k, layout, (S, S) if structure is None else structure.weight_ids.shape[1:])
        self._masses = Masses(*(np.zeros((k, size)) for size in (layout.wide_shape[0], L, L, 1)))
        self._n_tokens = int(whole.total(len(self._gold)))
        self.statistics = self._all_states()
        self._chosen = self._grown = NO_SETS  # by the last ``hold``, without and with the states that were kept
        self._response: Response | None
        self._release()

    @cached_property
    def _exact(self) -> ChainObjective:
        """The objective of all states, whose kernels are then faster."""
        return ChainObjective(self.problem, l2=self.l2)

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

        The posterior is exact where transitions are dense, otherwise it is that within the beams of a forward pass. If
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
            w = ChainWeights(weights, self.layout, self.problem.allowed)
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
        held = Held(self.sets, self._rest, self._factors)
        losses = Losses(np.zeros(len(self._alpha)), np.ones(len(self._alpha), bool))
        slot = {start: k for k, (start, _) in enumerate(self._ranges)}
        tokens, sentences = self._tokens.arrays, self._sentences

        def work(start: int, stop: int) -> None:
            k = slot[start]
            gradient, masses = self._gradient.slot(k), Masses(*(part[k] for part in self._masses))
            self._gradient.clear(k)
            for values in masses:
                values[:] = 0
            if start == stop:  # no sentences
                return
            if isinstance(w, SparseWeights):
                beams.sparse(start, stop, sentences, tokens, w.entry_scores, self.sets, LIMIT, gradient, losses)
            else:
                scores = ChainScores(w.arrays, w.labels, w.transitions.matrix, w.transitions.log_shift)
                held_beams.loss_gradient(start, stop, sentences, tokens, scores, held, LIMIT, gradient, masses, losses)

        threads.run(work, self._ranges)
        for n in np.flatnonzero(~losses.safe).tolist():
            losses.loss[n] = self._in_log_space(n, w)
        return float(losses.loss.sum())

    def _total_masses(self) -> Masses:
        return Masses(*whole.summed(*(part.sum(axis=0) for part in self._masses)))

    def _weights(self, weights: Floats) -> ChainWeights:
        return laid_out(weights, self.layout, self.problem.allowed, self.structure)

    def _gather(self) -> NDArray[np.float64]:
        """Return the gradient as one vector in the order of the weights."""
        counts, *features = self._gradient.total()
        own = self.layout.vector(counts, *features)
        return own if self.structure is None else np.concatenate([self.structure.gather(counts), own])

    def _in_log_space(self, n: int, w: ChainWeights) -> float:
        """Return the loss of a sentence that underflows; add its gradient to the first sums.

        With a rest it is that of all states, for which the rest stands.
        """
        offsets, weight = self._tokens.offsets[n : n + 2], float(self._alpha[n])
        start, stop = map(int, offsets)
        gold, entry, steps = self._gold[start:stop], self._entry[start + 1 : stop], np.arange(stop - start)
        scores, gradient = self._tokens.scores(w, start, stop), self._gradient.slot(0)
        counts, p = gradient.counts.reshape(-1), w.chains(scores, offsets)
        one = log_chain(p, 0)
        score = float(one.log_unary[steps, gold].sum() + one.log_values[0, entry].sum())
        if not score > -np.inf:
            raise ImpossibleError(f"sentence {self._numbers[n]}: its labels are impossible under the scheme.")
        if isinstance(p, chain.Potentials) and len(self._rest.stay):
            found: Any
            (log_z,), found = chain.expectations(p, counts=True)
            marginals = weight * found.marginals[0]
            counts += weight * found.counts.reshape(-1)
        else:
            log_z, marginals = within(one, weight, members(self.sets, start, stop, self.n_states), counts)
        residual = np.zeros_like(scores)
        np.add.at(residual.T, self._emits, marginals.T.astype(np.float32))
        residual[steps, self._emits[gold]] -= weight
        np.subtract.at(counts, entry, weight)
        objective.scatter(start, stop, residual, 0, self._tokens.arrays, gradient.state)
        return weight * (log_z - score)


def _agreed(own: BeamStatistics) -> BeamStatistics:
    """Return the statistics of all ranks together."""
    together = joined([BeamStatistics(**part) for part in whole.of_parts(vars(own))])
    return own if together is None else together
