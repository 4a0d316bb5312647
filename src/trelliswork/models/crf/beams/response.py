r"""How what lies outside held beams answers to weights (see ``beam_rest``).

At the weights :math:`w_0` of the choice, :math:`r_k` is what is expected of feature k outside, and
:math:`E_k = r_k e^{w_k - w_{0,k}}`. The rest of a token is a mixture of states, whose shares are taken to be those of
all tokens with the same attribute, label before, or label after. So its scores are multiplied by

.. math:: D(a) = 1 + \frac{\sum_y (E_{a,y} - r_{a,y})}{M(a)} \qquad R(i) = \frac{\sum_j E_{i,j}}{\sum_j r_{i,j}} \qquad
          C(j) = \frac{\sum_i E_{i,j}}{\sum_i r_{i,j}} \qquad G = \frac{\sum E_{i,j}}{\sum r_{i,j}}

D for each attribute a of its token, with M(a) the probability of rests at tokens with a; R for transitions from i into
a rest; C for those out of one into j; G from rest to rest. What these do not make up of r at :math:`w_0`, a few per
cent of the transitions, is added to the objective: :math:`\kappa_k (E_k - r_k)` where it lacks,
:math:`\kappa_k r_k (w_k - w_{0,k})` where it exceeds.
"""

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.models.crf.kernels import beam_response as beam_response_kernels
from trelliswork.models.crf.layout import FeatureLayout, Floats

compiled: Any = beam_response_kernels  # mypy cannot count starred arguments
NOISE = 1e-4  # counts: differences of sums in float32


class Factors(NamedTuple):
    """What the scores of rests are multiplied by.

    Attributes
    ----------
    log_state : ndarray (n_wide_rows,)
        log D of the attributes that have a dense row.
    row, column : ndarray (S,)
    both : float
        R, C and G.
    """

    log_state: NDArray[np.float32]
    row: NDArray[np.float32]
    column: NDArray[np.float32]
    both: float

    @classmethod
    def neutral(cls, layout: FeatureLayout) -> "Factors":
        """At the weights of the choice."""
        ones = np.ones(layout.n_labels, np.float32)
        return cls(np.zeros(layout.wide_shape[0], np.float32), ones, ones, 1.0)


class Masses(NamedTuple):
    """Probability of rests, weighted and summed: with attributes of dense rows, after and before labels, in a row."""

    state: NDArray[np.float64]
    row: NDArray[np.float64]
    column: NDArray[np.float64]
    both: NDArray[np.float64]

    @classmethod
    def zeros(cls, n: int, layout: FeatureLayout) -> "Masses":
        """For n threads."""
        S = layout.n_labels
        return cls(*(np.zeros((n, size)) for size in (layout.wide_shape[0], S, S, 1)))

    def summed(self) -> "Masses":
        """Over the threads."""
        return Masses(*(part.sum(axis=0) for part in self))


@dataclass(frozen=True)
class Response:
    """The answer of one choice of states.

    Attributes
    ----------
    expected : ndarray (n_features,)
        r above.
    linear : ndarray (n_features,)
        Where real-valued attributes make r negative, that; empty if nowhere.
    anchor : ndarray (n_features,)
        w_0.
    state, row, column, both : ndarray
        The masses at w_0.
    """

    expected: NDArray[np.float32]
    linear: NDArray[np.float32]
    anchor: NDArray[np.float64]
    state: NDArray[np.float64]
    row: NDArray[np.float64]
    column: NDArray[np.float64]
    both: NDArray[np.float64]

    @classmethod
    def of(cls, outside: Floats, weights: Floats, masses: Masses) -> "Response":
        """By what is expected outside at ``weights``."""
        negative = np.minimum(outside, 0).astype(np.float32)
        linear = negative if negative.min(initial=0) < -NOISE else np.empty(0, np.float32)
        return cls(np.maximum(outside, 0).astype(np.float32), linear, weights.astype(np.float64), *masses)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All of it by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def factors(self, weights: Floats, layout: FeatureLayout) -> "tuple[Factors, Answer]":
        """The factors at ``weights``, and what ``Answer.add`` needs later."""
        n, S = len(layout.transitions), layout.n_labels
        grown = np.empty(-(-len(weights) // 16) * 16, np.float32)
        compiled.grow(self.expected, weights, self.anchor, grown)
        log_state = np.zeros(layout.wide_shape[0])
        compiled.state_factors(
            layout.attribute_ptr, layout.wide_rows, self.expected[n:], grown[n:], self.state, log_state
        )
        row, column = np.ones(S), np.ones(S)
        sums = np.zeros((4, S))  # of rows and columns: expected at w_0, and now
        both = 1.0
        if n == S * S:
            compiled.pair_sums(self.expected, grown, sums)
            row, column = (np.where(sums[k] > 0, sums[k + 2] / np.maximum(sums[k], 1e-30), 1) for k in (0, 1))
            both = float(sums[2].sum() / sums[0].sum()) if sums[0].sum() > 0 else 1.0
        found = Factors(log_state.astype(np.float32), row.astype(np.float32), column.astype(np.float32), both)
        return found, Answer(self, grown, sums, log_state, layout)


@dataclass(frozen=True)
class Answer:
    """What the rests contribute at some weights."""

    response: Response
    grown: NDArray[np.float32]
    sums: NDArray[np.float64]
    log_state: NDArray[np.float64]
    layout: FeatureLayout

    def add(self, weights: Floats, masses: Masses, gradient: NDArray[np.float64]) -> float:
        """Add to the gradient; return what the value lacks."""
        r, layout, n = self.response, self.layout, len(self.layout.transitions)
        value = compiled.add_states(
            layout.attribute_ptr, layout.wide_rows, r.expected[n:], self.grown[n:], r.state, masses.state,
            self.log_state, gradient[n:],
        )  # fmt: skip
        value += compiled.add_linear(r.linear, weights, r.anchor, gradient)
        if n == layout.n_labels**2:
            return float(
                value
                + compiled.add_pairs(
                    r.expected, self.grown, weights, r.anchor, self.sums, r.row, r.column, r.both[0],
                    masses.row, masses.column, masses.both[0], gradient,
                )
            )  # fmt: skip
        return float(value + compiled.add_alone(r.expected[:n], self.grown[:n], gradient[:n]))
