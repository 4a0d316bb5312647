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
from trelliswork.inference.factorial.kernels.messages import add_inner, mean_messages, mean_pairs
from trelliswork.inference.factorial.potentials import Floats, Group, Integers, Tables
from trelliswork.inference.factorial.sweeps import Options, Solution, Sums, Sweeps


class MeanField(Sweeps):
    """Structured mean field on one group."""

    kind: ClassVar[str] = "lower"

    def _receive(self, d: int, senders: list[int], active: Integers) -> None:
        for e in senders:
            mean_messages(active, self.group.lengths, self.marginals[e], self._table(e, d), self.log_message[d])

    def _table(self, source: int, target: int) -> Floats:
        """Return the pair scores (S_source, Sp_target)."""
        if source < target:
            return self.tables.ties[source, target].log_table
        return self.tables.ties[target, source].log_back

    def _value(self, sums: Sums | None, weight: Floats) -> NDArray[np.float64]:
        value = self.log_z.sum(axis=0)
        everyone, lengths = self.order, self.group.lengths
        for marginals, message in zip(self.marginals, self.log_message, strict=True):
            add_inner(everyone, lengths, marginals, message, -1.0, value)
        for d, e in self.tables.ties:
            left, right = self.marginals[d], self.marginals[e]
            message = np.zeros_like(left)
            mean_messages(everyone, lengths, right, self._table(e, d), message)
            add_inner(everyone, lengths, left, message, 1.0, value)
            if sums is not None:
                counts = sums.between[d, e]
                padded = np.zeros((len(counts), right.shape[2]))
                mean_pairs(everyone, lengths, weight, left, right, padded)
                counts += padded[:, : counts.shape[1]]
        return value


def solve(
    tables: Tables,
    group: Group,
    options: Options,
    sums: Sums | None = None,
    weight: Floats | None = None,
    start: list[Floats] | None = None,
) -> Solution:
    """Run structured mean field on one group, serially; all pairs of labels must be possible.

    ``start`` are initial marginals (B, T, Sp_d); by default a layer ignores those not yet visited.
    """
    for (d, e), tie in tables.ties.items():
        if not tie.possible:
            raise ValueRangeError(
                f"mean field needs finite scores of label pairs, but log_between[{d}, {e}] has -inf: "
                "use engine='bp' or 'exact', or a large negative score."
            )
    if options.damping:
        raise ValueRangeError("damping is for engine='bp': mean field converges without it.")
    engine = MeanField(tables, group, options)
    if start is not None:
        engine.marginals, engine.started = [marginals.copy() for marginals in start], True
    return engine.run(sums, weight)
