r"""Structured mean field: each layer keeps its chain, layers are independent of each other (paper 3).

.. math:: \log Z \ge F(q) = \mathrm E_q[\text{score}] + \sum_d H(q_d), \qquad q(y) = \prod_d q_d(y^d)

The best q_d for fixed other layers is the chain whose unary scores are

.. math:: \tilde u^d_t(i) = u^d_t(i) + \sum_{e \ne d} \sum_j q_e(y^e_t = j)\, v^{de}(i, j)

(a sum of pair scores over the other components: paper 3's product over d' != d). Each update maximizes F over q_d, so
that the bound never decreases. With log Z~_d of these chains, F = sum_d (log Z~_d - <q_d, u~_d - u_d>) + sum of the
expected pair scores. At a fixed point the gradient of F is the expectations under q: q is stationary (envelope).
"""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ValueRangeError
from trelliswork.inference.factorial.potentials import FactorialPotentials, Floats, Integers
from trelliswork.inference.factorial.sweeps import Options, Solution, Sums, Sweeps, outer


class MeanField(Sweeps):
    """Structured mean field on a batch."""

    kind: ClassVar[str] = "lower"

    def _receive(self, d: int, senders: list[int], active: Integers) -> Floats:
        messages = [np.matmul(self.marginals[e][active], self._table(e, d)) for e in senders]
        total: Floats = sum(messages[1:], start=messages[0])
        return total

    def _table(self, source: int, target: int) -> Floats:
        """Return the pair scores (S_source, S_target)."""
        between = self.tables.log_between
        return between[source, target] if source < target else between[target, source].T

    def _value(self, sums: Sums | None, weight: Floats) -> NDArray[np.float64]:
        value = self.log_z.sum(axis=0)
        for marginals, message in zip(self.marginals, self.log_message, strict=True):
            value -= _inner(marginals, message)
        for d, e in self.tables.ties:
            left, right = self.marginals[d], self.marginals[e]
            value += _inner(left, np.matmul(right, self._table(e, d)))
            if sums is not None:
                sums.between[d, e] += outer(left, right, weight)
        return value


def _inner(left: Floats, right: Floats) -> NDArray[np.float64]:
    """Return the sums (B,) of left * right, (B, T, S) each."""
    total: NDArray[np.float64] = (left * right).sum(axis=(1, 2), dtype=np.float64)
    return total


def solve(
    p: FactorialPotentials,
    options: Options,
    sums: Sums | None = None,
    weight: Floats | None = None,
    start: list[Floats] | None = None,
) -> Solution:
    """Run structured mean field on a batch; all pairs of labels must be possible.

    ``start`` are initial marginals (B, T, S_d); by default a layer ignores those not yet visited.
    """
    for (d, e), tie in p.tables.ties.items():
        if not tie.possible:
            raise ValueRangeError(
                f"mean field needs finite scores of label pairs, but log_between[{d}, {e}] has -inf: "
                "use engine='bp' or 'exact', or a large negative score."
            )
    if options.damping:
        raise ValueRangeError("damping is for engine='bp': mean field converges without it.")
    return MeanField(p, options, start).run(sums, weight)
