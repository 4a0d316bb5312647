r"""Stochastic training of linear-chain CRFs: averaged SGD and the averaged perceptron.

SGD minimizes the objective of ``ChainObjective`` divided by the number N of sentences,

.. math:: \frac{1}{N} \sum_n \alpha_n \ell_n(w) + \frac{\lambda}{2} \lVert w \rVert^2, \qquad \lambda = 2 c_2 / N,

by steps :math:`w \leftarrow (1 - \eta_k \lambda) w - \eta_k \bar g_k` along the mean gradient of a mini-batch, with
:math:`\eta_k = \eta_0 (1 + \lambda \eta_0 k)^{-3/4}`, k counting steps, not sentences, and averages the weights (Xu,
2011; Bottou, 2012, section 5.3). The perceptron adds the features of the gold labels and subtracts those of the best
labels (Collins, 2002, figure 2). The cost of a step depends on its sentences, not on the number of features.

Training uses one thread of one process, since each step depends on the one before. Runs with the same seed give
identical results.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.errors import ValueRangeError
from trelliswork.learning.sgd import decay
from trelliswork.models.crf.kernels.objective import FeatureWeights, Sentences
from trelliswork.models.crf.kernels.online import Batches, Model, Schedule, train
from trelliswork.models.crf.layout import Allowed, FeatureLayout, Floats, Vector
from trelliswork.models.crf.problem import Problem
from trelliswork.models.crf.weights import ChainWeights, ScoredTokens

SAMPLE = 1000  # number of sentences on which rates are tried
TRIALS = 12  # maximum number of rates that are tried
FIRST_RATE = 0.25
FORGET = 6  # g of SGD's average
CALIBRATION = 1 << 32  # in place of the epoch's number when the sample is shuffled


@dataclass(frozen=True)
class OnlineState:
    """State of training between epochs; data and options being equal, training resumes from it bit for bit."""

    weights: Vector  # (n_features,) after the last step
    mean: Vector  # their average; before the first epoch the initial weights
    epochs: int = 0  # finished epochs
    steps: int = 0  # finished mini-batches
    rate: float = 0.0  # eta_0; 0 before it has been chosen, and for the perceptron


class OnlineChain:
    """Averaged SGD or the averaged perceptron on labeled sentences.

    Parameters
    ----------
    problem : Problem
        The weight of a sentence multiplies its loss or its update. The labels and their pairs must be allowed.
    l2 : float
        c_2 of SGD, for the whole corpus as in ``ChainObjective``; the perceptron has no penalty.
    batch_size : int, optional
        Number of sentences per step; 8 for SGD and 1 for the perceptron by default.
    rate : float, optional
        eta_0 of SGD. By default rates a factor of 2 apart are tried on a sample of ``SAMPLE`` sentences, one pass each,
        and the one with the smallest sum of losses during its pass is chosen.
    seed : int
        Epoch k is shuffled by a generator with the seed (seed, k).

    Notes
    -----
    The average is over the weights after each step: the mean of epoch k has the share (g + 1) / (k + g),
    k = 1, 2, ... With g = 0, for the perceptron, this is the plain average of all steps. SGD has g = 6, so that the
    first steps are soon forgotten, while the window still grows with k (polynomial-decay averaging; Shamir and Zhang,
    2013, section 4). On CoNLL-2000, ten epochs end 2 % above the optimum this way, and 6 % above with the plain average
    that leaves out the first epoch.

    An epoch takes O(entries + tokens S^2) time. State weights are float32, transitions and averages float64.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        kind: Literal["sgd", "perceptron"],
        l2: float = 0.0,
        batch_size: int | None = None,
        rate: float | None = None,
        seed: int = 0,
    ) -> None:
        tokens, layout = problem.tokens, problem.layout
        if layout.n_edge_attributes or problem.label_weights is not None or not problem.labeling.complete:
            raise ValueRangeError(
                "edge features (B templates with columns), label weights and partly labeled sentences need "
                "algorithm='lbfgs': leave them out, or choose that."
            )
        l2 = l2 if kind == "sgd" else 0.0
        self.layout, self.kind, self.seed, self._rate = layout, kind, seed, rate or 0.0
        self.batch_size = batch_size or (8 if kind == "sgd" else 1)
        self._lengths = np.diff(tokens.offsets)
        self._l2, self._decay = l2, 2 * l2 / len(self._lengths)
        if not self._rate * self._decay < 1:
            raise ValueRangeError(f"the learning rate must be below N / (2 l2) = {1 / self._decay:.3g}, got {rate}.")
        rows = ScoredTokens(tokens, layout).arrays
        rows = rows._replace(wide_ids=rows.wide_ids * np.int32(3), narrow_ids=rows.narrow_ids * np.int32(2))
        extra = np.empty((0, layout.padded_labels), np.float32), np.empty(0, np.int32)
        gold = np.ascontiguousarray(problem.labeling.gold, np.int32)
        self._data = Sentences(tokens.offsets, gold, problem.alpha, *extra), rows
        self._model = _model(layout, problem.allowed)
        self._sum = np.zeros(layout.n_features)  # sum of the weights after each step of this epoch
        self.load(self._sum)

    def load(self, weights: Floats) -> None:
        """Restart from these weights, at epoch and step 0 and without an average."""
        start = np.array(weights, np.float64)
        self.restore(OnlineState(start, start, rate=self._rate))

    def restore(self, state: OnlineState) -> None:
        """Resume from a state; data and options must be those of the run that it came from."""
        self.state = state
        self._place(state.weights)

    def epoch(self) -> float:
        """Train one pass over the sentences in random order; return the loss.

        SGD: the sum of losses, each at the weights of its step, plus ``l2 ||w||^2`` at the end. Perceptron: the number
        of wrongly labeled tokens.
        """
        if self.kind == "sgd" and not self.state.rate:
            self.state = replace(self.state, rate=self._calibrate())
        before = self.state
        loss, n_steps = self._pass(self._shuffled(before.epochs), before.rate, before.steps)
        features = self._model.weights
        weights = self.layout.vector(self._model.transition, features.wide[::3], features.narrow[::2])
        if not (np.isfinite(loss) and np.isfinite(weights).all()):
            self._place(before.weights)
            raise ValueRangeError(
                f"the weights left the range of float32 in epoch {before.epochs} (rate {before.rate:g}) and were reset "
                "to those before it: use a smaller rate, a larger l2 or smaller values of the attributes."
            )
        share = decay(before.epochs + 1, FORGET if self.kind == "sgd" else 0)
        mean = (1 - share) * before.mean + share / n_steps * self._sum
        self.state = OnlineState(weights, mean, before.epochs + 1, before.steps + n_steps, before.rate)
        return loss + self._l2 * float(weights @ weights)

    def _shuffled(self, epoch: int) -> NDArray[np.int64]:
        """Return the sentences in random order."""
        return np.random.default_rng((self.seed, epoch)).permutation(len(self._lengths))

    def _pass(self, order: NDArray[np.int64], rate: float, step: int) -> tuple[float, int]:
        """Train on sentences in this order; return their loss and the number of steps. Leaves s = 1 and u = 0."""
        size = self.batch_size
        batch = np.arange(len(order)) // size
        order = order[np.lexsort((-self._lengths[order], batch))]
        n_batches, largest = int(batch[-1]) + 1, int(np.bincount(batch, self._lengths[order]).max())
        residual = np.empty((largest, self._model.weights.wide.shape[1]), np.float32)
        longest, counts = int(self._lengths[order].max()), np.zeros_like(self._model.transition)[None]
        batches = Batches(order, size, longest, residual, counts)
        self._sum[:] = 0
        done, loss = 0, 0.0
        while done < n_batches:
            scalars = np.array([1.0, 0.0, 0.0])
            schedule = Schedule(int(step + done), float(rate), float(self._decay))
            done = threads.call(train, done, n_batches, batches, schedule, self._data, self._model, scalars)
            loss += float(scalars[2])
            self._fold(float(scalars[0]), float(scalars[1]))
        return loss, n_batches

    def _fold(self, s: float, c: float) -> None:
        """Add the sum of the weights so far, c v - u, to ``_sum``; multiply s into v and clear u."""
        m = self._model
        wide, narrow, _ = m.weights
        (v, u), (narrow_v, narrow_u) = (wide[::3], wide[1::3]), (narrow[::2], narrow[1::2])
        with np.errstate(invalid="ignore", over="ignore"):  # `epoch` reports weights that left the range
            wide_sum = c * v.astype(np.float64) - u
            self._sum += self.layout.vector(m.transition_sum, wide_sum, c * narrow_v.astype(np.float64) - narrow_u)
        if s != 1:
            v *= np.float32(s)
            narrow_v *= np.float32(s)
        for values in (u, narrow_u, m.transition_sum):
            values[:] = 0

    def _place(self, weights: Vector) -> None:
        """Lay a weight vector out for the kernels."""
        w, m, n = ChainWeights(weights, self.layout), self._model, len(self.layout.transitions)
        wide, narrow, _ = m.weights
        wide[::3], wide[1::3] = w.wide, 0
        narrow[::2], narrow[1::2] = w.arrays.narrow, 0
        m.transition[:] = m.transition_sum[:] = 0
        m.transition.reshape(-1)[self.layout.transitions] = weights[:n]

    def _calibrate(self) -> float:
        """Return the rate with the smallest loss in one pass over a sample: doubled while that helps, else halved."""
        sample = self._shuffled(CALIBRATION)[:SAMPLE]
        tried: dict[int, float] = {}

        def loss(power: int) -> float:
            if power not in tried and len(tried) < TRIALS and FIRST_RATE * 2.0**power * self._decay < 0.5:
                value, _ = self._pass(sample, FIRST_RATE * 2.0**power, 0)
                tried[power] = value if np.isfinite(value) else np.inf
                self._place(self.state.weights)
            return tried.get(power, np.inf)

        best = 0
        while loss(best) == np.inf and best > -60 and len(tried) < TRIALS:
            best -= 1
        while loss(best + 1) < loss(best):
            best += 1
        while loss(best - 1) < loss(best):
            best -= 1
        return FIRST_RATE * 2.0**best


def _model(layout: FeatureLayout, allowed: Allowed | None) -> Model:
    """Return a model with zero weights, masks of the weights that exist, and constraints."""
    S, (n_wide, Sw) = layout.n_labels, layout.wide_shape
    limits = ChainWeights(np.zeros(layout.n_features), layout, allowed)
    wide, mask = np.zeros((3 * n_wide, Sw), np.float32), np.zeros((S, S))
    has_weight = np.zeros((n_wide, Sw), np.float32)
    has_weight.reshape(-1)[layout.wide_places] = 1
    wide[2::3] = has_weight
    mask.reshape(-1)[layout.transitions] = 1
    narrow = np.zeros(2 * len(layout.narrow_features), np.float32)
    weights = FeatureWeights(wide, narrow, np.repeat(layout.labels[layout.narrow_features], 2))
    return Model(weights, np.zeros((S, S)), np.zeros((S, S)), mask, limits.log_transition, limits.start, limits.end)
