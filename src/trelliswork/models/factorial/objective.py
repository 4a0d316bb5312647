r"""Objective of factorial CRFs: several layers of labels on sparse attributes, tied at each token.

.. math:: f(w) = \sum_n \alpha_n \big(\Phi_n(w) - \text{score}_n(w)\big) + c_2 \lVert w \rVert^2

Phi is log Z (exact), a lower bound of it (structured mean field) or its Bethe estimate (belief propagation). At a fixed
point of the engine, its gradient equals the engine's expectations, so that the gradient of f is expected minus observed
counts for all three.

Belief propagation restarts at every evaluation, so that f depends on w alone. Mean field, whose bound has several
optima, starts from the result of the previous evaluation: a line search needs it to stay with one of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.padding import pad, unpad
from trelliswork.errors import ImpossibleError
from trelliswork.inference.factorial import mean_field
from trelliswork.inference.factorial.engines import GROUP, engine
from trelliswork.inference.factorial.potentials import FactorialPotentials, Pair, Tables
from trelliswork.inference.factorial.sweeps import Options, Sums
from trelliswork.learning.evaluation import SharedEvaluation
from trelliswork.models.crf.kernels import objective as crf_kernels
from trelliswork.models.crf.layout import Allowed, FeatureLayout, Floats
from trelliswork.models.crf.objective import GradientSums
from trelliswork.models.crf.problem import Problem
from trelliswork.models.crf.weights import ChainWeights, ScoredTokens

compiled: Any = crf_kernels  # mypy cannot count starred arguments
SLOTS = 4  # partial gradients, at most one thread each; fixed, so that results do not depend on the threads
Vector = NDArray[np.float64]


@dataclass(frozen=True)
class FactorialLayout:
    """Order of the weights of a factorial CRF in one vector: layer by layer, then the tables of ties."""

    layers: tuple[FeatureLayout, ...]
    ties: tuple[Pair, ...]  # tied layers d < e; each tie has a weight for every pair of labels

    @property
    def n_features(self) -> int:
        """Length of the weight vector."""
        sizes = [layer.n_labels for layer in self.layers]
        return sum(layer.n_features for layer in self.layers) + sum(sizes[d] * sizes[e] for d, e in self.ties)

    def layer(self, weights: Vector, d: int) -> Vector:
        """Return the weights of layer d (a view)."""
        first = sum(layer.n_features for layer in self.layers[:d])
        return weights[first : first + self.layers[d].n_features]

    def tie(self, weights: Vector, pair: Pair) -> Vector:
        """Return the table (S_d, S_e) of a tie (a view)."""
        sizes = [layer.n_labels for layer in self.layers]
        first = sum(layer.n_features for layer in self.layers)
        for d, e in self.ties:
            if (d, e) == pair:
                return weights[first : first + sizes[d] * sizes[e]].reshape(sizes[d], sizes[e])
            first += sizes[d] * sizes[e]
        raise KeyError(pair)


class FactorialWeights:
    """A weight vector laid out for the kernels and engines, in float32."""

    def __init__(self, weights: Vector, layout: FactorialLayout, allowed: Sequence[Allowed | None]) -> None:
        self.chains = [
            ChainWeights(layout.layer(weights, d), layer, allowed[d]) for d, layer in enumerate(layout.layers)
        ]
        between = {pair: layout.tie(weights, pair).astype(np.float32) for pair in layout.ties}
        self.tables = Tables([chain.log_transition for chain in self.chains], between)

    def scores(self, d: int, tokens: ScoredTokens, first: int, last: int) -> NDArray[np.float32]:
        """Return the unary scores (n_tokens, S_d) of the sentences ``first`` to ``last``."""
        w, ends = self.chains[d], tokens.offsets[first : last + 1]
        out, ends = tokens.scores(w, int(ends[0]), int(ends[-1])), ends - ends[0]
        out[ends[:-1]] += w.start
        out[ends[1:] - 1] += w.end
        return out[:, : w.n_labels]


class FactorialObjective:
    """Penalized loss of labeled sentences and its gradient.

    ``problems`` are those of the layers, with the same tokens; the weights of their sentences are alpha_n and ``l2`` is
    c_2 in the equation above. In a group of processes the sentences are those of this rank; value and gradient are
    summed over all ranks.
    After an evaluation ``residual`` is the largest change of a marginal in a final sweep, and ``n_unconverged`` the
    number of sentences whose engine stopped before reaching its tolerance.

    One evaluation takes O(entries + sweeps * tokens * (sum_d S_d^2 + sum of S_d S_e)) time. Inner sums are float32,
    sums over the corpus of losses, transitions and label pairs float64.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        layout: FactorialLayout,
        *,
        engine: str = "bp",
        l2: float = 0.0,
        options: Options | None = None,
    ) -> None:
        self.layout, self.l2, self.engine = layout, l2, engine
        self._allowed = [problem.allowed for problem in problems]
        self.options = options or Options(tolerance=1e-3)
        # Longest first, also in memory: sentences that are processed together are adjacent.
        self._numbers = problems[0].tokens.longest_first()
        tokens, at = problems[0].tokens.sentences(self._numbers)
        self._tokens = [ScoredTokens(tokens, layer) for layer in layout.layers]
        self._gold = [problem.labeling.gold[at].astype(np.int64) for problem in problems]
        self._lengths = np.diff(self._tokens[0].offsets)
        self._weights = problems[0].alpha[self._numbers]
        self._ranges = threads.cut(self._lengths, multiple=GROUP, most=SLOTS)
        # Reused by all evaluations: allocating memory costs more than clearing it.
        n = len(self._ranges)
        self._gradients = [GradientSums(n, layer, (0,)) for layer in layout.layers]
        self._ends: dict[int, list[Floats]] = {}  # mean field: final marginals of the groups, by first sentence
        self.residual, self.n_unconverged = 0.0, 0

    def __call__(self, weights: Vector) -> SharedEvaluation:
        """Return value and gradient at a weight vector."""
        w = FactorialWeights(weights, self.layout, self._allowed)
        loss, residual = np.zeros(len(self._lengths)), np.zeros(len(self._lengths))
        sums = [Sums.zeros(w.tables) for _ in self._ranges]
        slots = {start: k for k, (start, _) in enumerate(self._ranges)}

        def work(start: int, stop: int) -> None:
            k = slots[start]
            for gradient in self._gradients:
                gradient.clear(k)
            for first in range(start, stop, GROUP):
                last = min(first + GROUP, stop)
                self._add(w, first, last, k, sums[k], (loss, residual))

        threads.run(work, self._ranges)
        self.residual, self.n_unconverged = residual.max(initial=0), int((residual > self.options.tolerance).sum())
        for other in sums[1:]:
            sums[0].add(other)
        return SharedEvaluation(float(loss.sum()), self._gather(sums[0]), weights, self.l2)

    def _add(
        self, w: FactorialWeights, first: int, last: int, slot: int, sums: Sums, out: tuple[Vector, Vector]
    ) -> None:
        """Add loss and gradient of the sentences ``first`` to ``last``."""
        lengths, weight = self._lengths[first:last], self._weights[first:last]
        scores = [w.scores(d, tokens, first, last) for d, tokens in enumerate(self._tokens)]
        group = FactorialPotentials(tuple(pad(rows, lengths) for rows in scores), w.tables, lengths)
        if self.engine == "structured_mean_field":
            solution = mean_field.solve(group, self.options, sums, weight, self._ends.get(first))
            self._ends[first] = solution.marginals
        else:
            solution = engine(self.engine)(group, self.options, sums, weight)
        if not (solution.value > -np.inf).all():
            bad = self._numbers[first + int(np.argmin(solution.value))]
            raise ImpossibleError(f"sentence {bad}: no labeling satisfies the schemes of its layers.")
        offsets = self._tokens[0].offsets[first : last + 1]
        start, ends = offsets[0], offsets - offsets[0]
        n, following = int(ends[-1]), np.ones(int(ends[-1]), bool)
        following[ends[:-1]] = False
        token_weight = np.repeat(weight, lengths)
        gold = [row[start : start + n] for row in self._gold]
        score = np.zeros(n)
        for d, tokens in enumerate(self._tokens):
            y = gold[d]
            score += scores[d][np.arange(n), y]
            at = np.flatnonzero(following)
            score[at] += w.tables.log_pairwise[d][y[at - 1], y[at]]
            np.subtract.at(sums.transitions[d], (y[at - 1], y[at]), token_weight[at])
            residual = np.zeros((n, w.chains[d].wide.shape[1]), np.float32)
            residual[:, : w.chains[d].n_labels] = unpad(solution.marginals[d], lengths) * token_weight[:, None]
            residual[np.arange(n), y] -= token_weight
            gradient = self._gradients[d].slot(slot).state
            compiled.scatter(int(start), int(start) + n, residual, 0, tokens.arrays, gradient)
        for (d, e), counts in sums.between.items():
            score += w.tables.log_between[d, e][gold[d], gold[e]]
            np.subtract.at(counts, (gold[d], gold[e]), token_weight)
        loss, change = out
        loss[first:last] = weight * (solution.value - np.add.reduceat(score, ends[:-1]))
        change[first:last] = solution.residual

    def _gather(self, sums: Sums) -> Vector:
        """Return the gradient as one vector in the order of the layout."""
        gradient = np.empty(self.layout.n_features)
        for d, layer in enumerate(self.layout.layers):
            _, *features = self._gradients[d].total()
            self.layout.layer(gradient, d)[:] = layer.vector(sums.transitions[d], *features)
        for pair, counts in sums.between.items():
            self.layout.tie(gradient, pair)[:] = counts
        return gradient
