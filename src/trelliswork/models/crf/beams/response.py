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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.models.crf.kernels import beam_response
from trelliswork.models.crf.kernels.held_beams import Factors, Masses
from trelliswork.models.crf.layout import FeatureLayout, Floats

NOISE = 1e-4  # of counts: differences of sums in float32


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

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all arrays by name."""
        return {"expected": self.expected, "linear": self.linear, "anchor": self.anchor, **self.masses._asdict()}

    @classmethod
    def from_arrays(cls, expected: Any, linear: Any, anchor: Any, **masses: Any) -> "Response":
        """Return the response with these ``arrays``."""
        return cls(expected, linear, anchor, Masses(**masses))

    def factors(self, weights: Floats, layout: FeatureLayout) -> "tuple[Factors, Contribution]":
        """Return the factors at ``weights``, and the contribution to be added after the kernels."""
        n, S = len(layout.transitions), layout.n_labels
        grown = np.empty(-(-len(weights) // 16) * 16, np.float32)
        beam_response.grow(self.expected, weights, self.anchor, grown)
        log_state = np.zeros(layout.wide_shape[0])
        beam_response.state_factors(
            layout.attribute_ptr, layout.wide_rows, self.expected[n:], grown[n:], self.masses.state, log_state
        )
        row, column = np.ones(S), np.ones(S)
        sums = np.zeros((4, S))  # rows and columns: expected at w_0, and now
        both = 1.0
        if n == S * S:
            beam_response.pair_sums(self.expected, grown, sums)
            row, column = (np.where(sums[k] > 0, sums[k + 2] / np.maximum(sums[k], 1e-30), 1) for k in (0, 1))
            both = float(sums[2].sum() / sums[0].sum()) if sums[0].sum() > 0 else 1.0
        factors = Factors(log_state.astype(np.float32), row.astype(np.float32), column.astype(np.float32), both)
        return factors, Contribution(self, grown, sums, log_state, layout)


@dataclass(frozen=True)
class Contribution:
    """Contribution of the rests to value and gradient at some weights."""

    response: Response
    grown: NDArray[np.float32]
    sums: NDArray[np.float64]
    log_state: NDArray[np.float64]
    layout: FeatureLayout

    def add(self, weights: Floats, masses: Masses, gradient: NDArray[np.float64]) -> float:
        """Add to the gradient; return the addition to the value."""
        r, layout, n = self.response, self.layout, len(self.layout.transitions)
        value = beam_response.add_states(
            layout.attribute_ptr, layout.wide_rows, r.expected[n:], self.grown[n:], r.masses.state, masses.state,
            self.log_state, gradient[n:],
        )  # fmt: skip
        value += beam_response.add_linear(r.linear, weights, r.anchor, gradient)
        if n == layout.n_labels**2:
            value += beam_response.add_pairs(
                r.expected, self.grown, weights, r.anchor, self.sums, r.masses, masses, gradient
            )
        else:
            value += beam_response.add_alone(r.expected[:n], self.grown[:n], gradient[:n])
        return float(value)
