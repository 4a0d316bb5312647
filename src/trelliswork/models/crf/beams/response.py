r"""Response of the states outside held beams to a change of the weights (see ``rest``).

At the weights :math:`w_0` of the choice, :math:`r_k` is the expected count of feature k outside, and
:math:`E_k = r_k e^{w_k - w_{0,k}}`. The rest of a token is a mixture of states, whose shares are taken to be those of
all tokens with the same attribute, previous label, or next label. So its scores are multiplied by

.. math:: D(a) = 1 + \frac{\sum_y (E_{a,y} - r_{a,y})}{M(a)} \qquad R(i) = \frac{\sum_j E_{i,j}}{\sum_j r_{i,j}} \qquad
          C(j) = \frac{\sum_i E_{i,j}}{\sum_i r_{i,j}} \qquad G = \frac{\sum E_{i,j}}{\sum r_{i,j}}

D for each attribute a of its token, with M(a) the probability of rests at tokens with a; R for transitions from i into
a rest; C for transitions from a rest into j; G from rest to rest. The part of r at :math:`w_0` that these do not cover,
a few percent of the transitions, is added to the objective: :math:`\kappa_k (E_k - r_k)` where something is missing,
:math:`\kappa_k r_k (w_k - w_{0,k})` where there is too much.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trelliswork.models.crf.kernels.held_beams import Factors, Masses
from trelliswork.models.crf.layout import FeatureLayout, Floats

NOISE = 1e-4  # of counts: differences of sums in float32
STEEPEST = 30.0  # largest exponent: the line search rejects longer steps anyway


def neutral_factors(layout: FeatureLayout) -> Factors:
    """Return the factors at the weights of the choice."""
    ones = np.ones(layout.n_labels, np.float32)
    return Factors(np.zeros(layout.wide_shape[0], np.float32), ones, ones, 1.0)


@dataclass(frozen=True)
class Response:
    """Response of one choice of states."""

    expected: NDArray[np.float32]  # (n_features,) r above, where it is positive
    linear: NDArray[np.float32]  # (n_features,) negative parts of r, of real-valued attributes; or empty
    anchor: NDArray[np.float64]  # (n_features,) w_0
    masses: Masses  # at w_0

    @classmethod
    def of(cls, outside: Floats, weights: Floats, masses: Masses) -> "Response":
        """Return the response for the expected counts outside at ``weights``."""
        negative = np.minimum(outside, 0).astype(np.float32)
        linear = negative if negative.min(initial=0) < -NOISE else np.empty(0, np.float32)
        return cls(np.maximum(outside, 0).astype(np.float32), linear, weights.astype(np.float64), masses)

    def at(self, weights: Floats, layout: FeatureLayout) -> "Contribution":
        """Return the factors at ``weights``, and what is added to value and gradient after the kernels."""
        n, S, moved = len(layout.transitions), layout.n_labels, weights - self.anchor
        grown = self.expected * np.exp(np.minimum(moved, STEEPEST).astype(np.float32))
        before, now = (
            np.bincount(layout.attributes, x[n:], layout.n_attributes).astype(np.float64, copy=False)
            for x in (self.expected, grown)
        )
        mass = np.append(self.masses.state, 0)[layout.wide_rows]  # row -1: no mass
        covered = np.flatnonzero(mass > 0)
        change = np.zeros(layout.n_attributes)
        change[covered] = np.log1p((now - before)[covered] / np.maximum(mass, before)[covered])
        log_state = np.zeros(layout.wide_shape[0], np.float32)
        log_state[layout.wide_rows[covered]] = change[covered]
        factors = neutral_factors(layout)._replace(log_state=log_state)
        if n == S * S:
            x, e = (pairs[:n].reshape(S, S).astype(np.float64) for pairs in (self.expected, grown))
            row, column = (np.where(x.sum(k) > 0, e.sum(k) / np.maximum(x.sum(k), 1e-30), 1) for k in (1, 0))
            both = float(e.sum() / x.sum()) if x.sum() > 0 else 1.0
            factors = Factors(log_state, row.astype(np.float32), column.astype(np.float32), both)
        return Contribution(self, layout, factors, moved, grown, before, now, change)


@dataclass(frozen=True)
class Contribution:
    """Contribution of the rests to value and gradient at some weights; sums are by attribute."""

    response: Response
    layout: FeatureLayout
    factors: Factors
    moved: NDArray[np.float64]  # w - w_0
    grown: NDArray[np.float32]  # E
    before: NDArray[np.float64]  # sum of r
    now: NDArray[np.float64]  # sum of E
    change: NDArray[np.float64]  # log D

    def add(self, masses: Masses, gradient: NDArray[np.float64]) -> float:
        """Add to the gradient, given the probabilities of rests at these weights; return the addition to the value."""
        r, layout, n, S = self.response, self.layout, len(self.layout.transitions), self.layout.n_labels
        # States: the part that factors do not cover is ``alone``.
        at, now = (np.append(part.state, 0)[layout.wide_rows] for part in (r.masses, masses))
        at = np.maximum(at, 0)  # real values of attributes may be negative: no factor covers these
        whole = np.maximum(at, self.before)
        alone = 1 - _share(at, whole)
        by = np.where(at > 0, _share(now, whole * np.exp(self.change)), 0) + alone
        gradient[n : n + len(layout.attributes)] += by[layout.attributes] * self.grown[n:]
        value = float(alone @ (self.now - self.before))
        if len(r.linear):
            gradient += r.linear
            value += float(r.linear @ self.moved)
        x, e = (pairs[:n].astype(np.float64) for pairs in (r.expected, self.grown))
        if n < S * S:  # no factor covers pairs
            gradient[:n] += e
            return value + float((e - x).sum())
        x, e, moved = x.reshape(S, S), e.reshape(S, S), self.moved[:n].reshape(S, S)
        held, by = (
            _share(of.row, pairs.sum(1))[:, None] + _share(of.column, pairs.sum(0)) + _share(of.both, pairs.sum())
            for of, pairs in ((r.masses, x), (masses, e))
        )
        lack = 1 - held
        missing = lack > 0
        gradient[:n] += (e * by + lack * np.where(missing, e, x)).reshape(-1)
        return value + float((lack * np.where(missing, e - x, x * moved)).sum())


def _share(part: Floats, whole: Floats) -> Floats:
    """Return part / whole, 0 where there is nothing."""
    return np.where(whole > 0, part / np.maximum(whole, 1e-300), 0.0)
