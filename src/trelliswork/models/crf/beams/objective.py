r"""The objective of linear-chain CRFs within beams (Pal, Sutton and McCallum, 2006, section 4.2).

.. math:: f(w) = \sum_n \alpha_n \big(\log Z_{n,I}(w) - \mathrm{score}_n(w)\big) + c_2 \lVert w \rVert^2

Each evaluation chooses beams I by a forward pass, with the labels of the data always inside; value and gradient
belong to one set of paths. Since :math:`\log Z_I \le \log Z`, the value is a lower bound of the exact one, and it is
not negative.
"""

from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.errors import ImpossibleError, ShapeError, ValueRangeError
from trelliswork.inference import chain
from trelliswork.inference.chain.beam import FULL, Beam, BeamSets, BeamStatistics, Rule
from trelliswork.inference.chain.beam.passes import log_arrays, log_space, members
from trelliswork.inference.chain.beam.sparse import SparseChain
from trelliswork.inference.chain.layout import LIMIT
from trelliswork.learning.kernels.vectors import dot
from trelliswork.models.crf.beams.choice import NOTHING, Out, choose, union
from trelliswork.models.crf.beams.layout import BeamWeights, StateWeights, Structure, gradient_vector
from trelliswork.models.crf.beams.response import Factors, Masses, Response
from trelliswork.models.crf.beams.rest import Chosen, ExactPass, Rest
from trelliswork.models.crf.kernels import (
    beams as beam_crf_kernels,
)
from trelliswork.models.crf.kernels import (
    edges as edge_kernels,
)
from trelliswork.models.crf.kernels import (
    held_beams as beam_held_kernels,
)
from trelliswork.models.crf.kernels import (
    objective as crf_kernels,
)
from trelliswork.models.crf.layout import Allowed, FeatureLayout, Floats, Ids, Labelling, ScoredTokens, Tokens, counting
from trelliswork.models.crf.objective import ChainObjective

compiled: Any = beam_crf_kernels  # mypy cannot count starred arguments
compiled_held: Any = beam_held_kernels
compiled_scores: Any = crf_kernels
compiled_edges: Any = edge_kernels
MOST_PLACES = 1 << 24
MANY = 128  # states; with fewer an exact pass costs little more than one within beams


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
    completes : bool, optional
        Count what lies outside of held beams, too (``beam_rest``): it needs shared transitions, and pays from 128
        states on, which is the default.
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
        completes: bool | None = None,
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
        self._shared = structure is None and not layout.n_edge_attributes
        self.completes = self._shared and (layout.n_labels >= MANY if completes is None else completes)
        # With all states the kernels of ``ChainObjective`` are the faster ones.
        self._make_exact = partial(ChainObjective, tokens, known, layout, l2=l2, weights=weights, allowed=allowed)
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
        self._counts = np.empty((n, S, S) if structure is None else (n, structure.weight_ids.shape[1]))
        self._masses = Masses.zeros(n, layout)
        self._response: Response | None = None
        self.release()
        self.n_transitions = len(layout.transitions) if structure is None else structure.n_weights
        self.n_features = layout.n_features + (structure.n_weights if structure is not None else 0)
        self._complete = len(layout.attributes) == layout.n_attributes * layout.n_labels >= 3 * layout.n_attributes > 0
        self.statistics = BeamStatistics(float(S), S, 0.0, len(self._gold), 0, True)
        self._chosen = self._grown = NOTHING  # by the last ``hold``, without and with those that stayed

    @cached_property
    def _exact(self) -> ChainObjective:
        return self._make_exact()

    def __call__(self, weights: Floats) -> tuple[float, NDArray[np.float64]]:
        """Value and gradient at a weight vector."""
        self.n_evaluations += 1
        first = self.n_evaluations == 1 and self.full_first and not self.sets.ptr.size
        if self._all or (first and self.structure is None):
            self.statistics = BeamStatistics(float(self.n_states), self.n_states, 0.0, len(self._gold), 0, True)
            return self._exact(weights)
        held = self.statistics if self._held else None
        answer = None
        if self._response is not None:
            self._factors, answer = self._response.factors(weights, self.layout)
        value = self._evaluate(weights, FULL if first else self.beam.rule, Out.none())
        self.statistics = self.statistics if held is None else held
        gradient = self._gather()
        if answer is not None:
            value += answer.add(weights, self._masses.summed(), gradient)
        if self.l2:
            value += self.l2 * dot(weights, weights)
            gradient += 2 * self.l2 * weights
        return value, gradient

    def fix(self, weights: Floats) -> None:
        """Choose the beams at ``weights`` and keep them for all evaluations to come, until ``release``.

        Then the objective is one smooth function.
        """
        self.release()
        out = self._beams_at(weights)
        self.sets = BeamSets(out.ptr, out.states)

    def hold(self, weights: Floats, *, grow: bool = False) -> None:
        """Choose beams by the posterior probabilities at ``weights`` and keep them until the next choice.

        The posterior is exact where transitions are shared, otherwise that within the beams of a forward pass. If the
        objective ``completes``, what is outside counts, too, and value and gradient are exact at ``weights``; otherwise
        states of the choice before stay, with ``grow`` all that are held. If more than a quarter of the states would
        stay, evaluations are exact until the next choice. ``statistics`` are those of this choice.
        """
        held = self._grown if grow else self._chosen
        self.release()
        S = self.n_states
        if self.structure is None and not weights.any():  # all states look alike
            self._all = True
            return
        found: Chosen | None = None
        exact = ExactPass(self._tokens, self._gold, self._alpha, self.layout)
        if self.completes:
            found = exact.run(self._weights(weights), self.beam.rule)
            sets, kept = found.sets, found.kept
        elif self._shared:
            sets, kept = exact.choose(self._weights(weights), self.beam.rule)
        else:
            out = self._beams_at(weights)
            sets, kept = choose(out.ptr, out.states, out.masses, self._gold, self.beam.rule, S)
        self._chosen = sets
        if found is None and len(held.ptr):
            sets = union(sets, held, S)
        sizes = np.diff(sets.ptr)
        if self.structure is None and sizes.mean() > S / 4:
            self._all, self._chosen = True, NOTHING
        else:
            self.sets, self._grown, self._held = sets, sets, True
            if found is not None:
                self._complete_by(found, weights)
        gap = float(-np.log(kept).sum())
        self.statistics = BeamStatistics(float(sizes.mean()), int(sizes.max()), gap, len(sizes), 0, False)

    def _complete_by(self, found: Chosen, weights: Floats) -> None:
        """From now on count what is outside, too, as it is at ``weights``."""
        self._rest = found.rest
        self._evaluate(weights, self.beam.rule, Out.none())
        wide, narrow, counts = found.gradients
        outside = self._vector(wide, narrow, counts, np.empty(0, np.float32)) - self._gather()
        self._response = Response.of(outside, weights, self._masses.summed())

    def held(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What ``hold`` has chosen, as plain data and arrays; ``hold_again`` takes it."""
        arrays: dict[str, NDArray[Any]] = {}
        for name, sets in (("chosen", self._chosen), ("grown", self._grown)):
            arrays |= {f"{name}.ptr": sets.ptr, f"{name}.states": sets.states}
        if self._response is not None:
            arrays |= {f"rest.{name}": values for name, values in self._rest._asdict().items()}
            arrays |= {f"response.{name}": values for name, values in self._response.arrays().items()}
        return {"all": self._all, "statistics": vars(self.statistics)}, arrays

    def hold_again(self, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Go on with what ``held`` told."""
        self.release()
        self._chosen = BeamSets(arrays["chosen.ptr"], arrays["chosen.states"])
        self._grown = BeamSets(arrays["grown.ptr"], arrays["grown.states"])
        self._all, self.statistics = plain["all"], BeamStatistics(**plain["statistics"])
        if not self._all:
            self.sets, self._held = self._grown, True
            given = {name.removeprefix("response."): a for name, a in arrays.items() if name.startswith("response.")}
            if given:
                self._rest = Rest(*(arrays[f"rest.{name}"] for name in Rest._fields))
                self._response = Response(**given)
        self.full_first = False  # the first evaluation is long past

    @property
    def completed(self) -> bool:
        """Whether states are held, and what is outside counts."""
        return self._response is not None

    def release(self) -> None:
        """Choose beams at every evaluation again."""
        self.sets, self._rest = NOTHING, Rest.none()
        self._response = None
        self._factors = Factors.neutral(self.layout)
        self._held = self._all = False

    def _beams_at(self, weights: Floats) -> Out:
        """The beams of a forward pass and the probabilities within them."""
        n, S = len(self._gold), self.n_states
        if n * S <= MOST_PLACES:  # room for every state of every token: one pass
            ptr = np.arange(n + 1) * S
        else:
            self._evaluate(weights, self.beam.rule, Out.none())  # tells the sizes
            ptr = np.concatenate([[0], np.cumsum(self._sizes)])
        out = Out(ptr, np.empty(ptr[-1], np.int32), np.empty(ptr[-1], np.float32))
        self._evaluate(weights, self.beam.rule, out)
        if n * S > MOST_PLACES:
            return out
        inside = (np.arange(S) < self._sizes[:, None]).reshape(-1)
        return Out(np.concatenate([[0], np.cumsum(self._sizes)]), out.states[inside], out.masses[inside])

    def _evaluate(self, weights: Floats, rule: Rule, beams_out: Out) -> float:
        """Fill the gradients; return the loss without penalty."""
        w = self._weights(weights)
        full = rule == FULL
        limit = np.float32(LIMIT[np.dtype(np.float32)])
        beams = (*rule, self.beam.refine and not full, *self.sets, limit)
        n_tokens, n_sentences = len(self._gold), len(self._alpha)
        loss, safe = np.zeros(n_sentences), np.ones(n_sentences, bool)
        sizes, kept = np.diff(self.sets.ptr) if self.sets.ptr.size else np.zeros(n_tokens, np.int64), np.ones(n_tokens)
        slot = {start: k for k, (start, _) in enumerate(self._ranges)}

        def work(start: int, stop: int) -> None:
            k = slot[start]
            sums = (self._wide_gradient[k], self._narrow_gradient[k], self._edge_gradient[k], self._counts[k])
            masses = [part[k] for part in self._masses]
            for values in (*sums, *masses):
                values[...] = 0
            out = (loss, safe, sizes, kept, *beams_out)
            if self.structure is None:
                given = (
                    start, stop, self._tokens.offsets, self._gold, self._alpha, *self._tokens.arrays, *w.state.arrays,
                    w.state.start, w.state.end, self.n_states, *self._tokens.edge_arrays, *w.state.edge_arrays,
                    self.layout.n_edge_attributes > 0, *w.dense,
                )  # fmt: skip
                if self.sets.ptr.size:
                    compiled_held.loss_gradient(
                        *given, *self.sets, *self._rest, *self._factors, limit, *sums, *masses, loss, safe
                    )
                else:
                    compiled.dense(*given, *beams, w.check, *sums, *out)
            else:
                compiled.sparse(
                    start, stop, self._tokens.offsets, self._gold, self._entry, self._alpha, *self._tokens.arrays,
                    *w.state.arrays, self.layout.n_labels, *w.sparse, *beams, *sums[:2], sums[3], *out,
                )  # fmt: skip

        threads.run(work, self._ranges)
        n_exact = 0
        for n in np.flatnonzero(~safe).tolist():
            n_exact += self._in_log_space(n, w, rule, loss, sizes, kept, beams_out)
        gap, self._sizes = float(-np.log(kept).sum()), sizes
        self.statistics = BeamStatistics(float(sizes.mean()), int(sizes.max()), gap, n_tokens, n_exact, full)
        return float(loss.sum())

    def _weights(self, weights: Floats) -> BeamWeights:
        n = self.n_transitions
        state = StateWeights(weights[n:], self.layout, self._complete, self.allowed)
        return BeamWeights(weights[:n], state, self.layout, self.allowed, self.structure)

    def _gather(self) -> NDArray[np.float64]:
        """The gradient as one vector in the order of the layout."""
        counts = self._counts[0] if len(self._counts) == 1 else self._counts.sum(axis=0)
        wide, narrow, edges = (a.sum(axis=0) for a in (self._wide_gradient, self._narrow_gradient, self._edge_gradient))
        return self._vector(wide, narrow, counts, edges)

    def _vector(self, wide: Floats, narrow: Floats, counts: Floats, edges: Floats) -> NDArray[np.float64]:
        return gradient_vector(wide, narrow, counts, edges, self.layout, self._complete, self.structure)

    def _in_log_space(
        self,
        n: int,
        w: BeamWeights,
        rule: tuple[int, float, float],
        loss: NDArray[np.float64],
        sizes: NDArray[np.int64],
        kept: NDArray[np.float64],
        beams_out: Out,
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
        given = members(self.sets, int(start), int(stop), S) if self.sets.ptr.size else None
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
        if len(beams_out.ptr):
            for t, member in enumerate(found.member):
                at = slice(int(beams_out.ptr[start + t]), int(beams_out.ptr[start + t]) + int(member.sum()))
                beams_out.states[at], beams_out.masses[at] = np.flatnonzero(member), found.marginals[t, member]
        return found.exact
