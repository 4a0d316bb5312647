r"""Belief propagation with each layer's chain as one factor.

Layers d and e are tied at position t by a pair factor exp v(i, j). The message from layer e to layer d is

.. math:: m_{e \to d,t}(i) \propto \sum_j e^{v(i, j)}\, c_{e,t}(j), \qquad c_{e,t}(j) = b_{e,t}(j) / m_{d \to e,t}(j)

with the marginals b of the chain and the cavity c: the belief of e without the message from d. The next marginals of
the layer come from one forward-backward with unary scores u + sum of log m. With the chains' log Z~ the Bethe value is

.. math:: \sum_d \log \tilde Z_d + \sum_{d<e} \sum_t \log \sum_{ij} c_{d,t}(i)\, e^{v(i,j)}\, c_{e,t}(j)

(the terms of single labels are 0 because sum_i m(i) c(i) = 1). It is stationary in the messages at a fixed point:
there its gradient is the beliefs. It is exact if the layers form no loop: with one layer, or with pair scores that are
sums of scores of single labels.

Beliefs below the smallest positive number are zero: with impossible pairs (-inf), a sequence all of whose possible
pairs have such a belief is treated as impossible.
"""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ValueRangeError
from trelliswork.inference.factorial.kernels.messages import add_logarithms, belief_messages, belief_pairs
from trelliswork.inference.factorial.potentials import Floats, Group, Integers, Pair, Tables
from trelliswork.inference.factorial.sweeps import Options, Solution, Sums, Sweeps

# A cavity is a quotient of a belief, which may underflow. The lost part must be negligible after the pair factor.
WIDE = 60.0  # maximum range of pair scores in float32, in nats
WIDEST = 600.0  # the same in float64


class BeliefPropagation(Sweeps):
    """Belief propagation on one group; ``message[e, d]`` (B, T, Sp_d) is the message from layer e to layer d."""

    kind: ClassVar[str] = "estimate"

    def __init__(self, tables: Tables, group: Group, options: Options) -> None:
        super().__init__(tables, group, options)
        self.message: dict[Pair, Floats] = {}
        for d, e in tables.ties:
            self.message[e, d] = np.ones_like(group.log_unary[d])
            self.message[d, e] = np.ones_like(group.log_unary[e])

    def _receive(self, d: int, senders: list[int], active: Integers) -> None:
        lengths = self.group.lengths
        for e in self._neighbors(d):
            if e in senders:
                tie = self.tables.ties[min(d, e), max(d, e)]
                table = tie.table if e < d else tie.back
                damping = tie.floor.dtype.type(self.options.damping)
                back, message = self.message[d, e], self.message[e, d]
                belief_messages(active, lengths, self.marginals[e], back, table, tie.floor, damping, message)
                n_labels = self.tables.layers[d].n_labels
                add_logarithms(active, lengths, message, n_labels, self.log_message[d])

    def _value(self, sums: Sums | None, weight: Floats) -> NDArray[np.float64]:
        value = self.log_z.sum(axis=0)
        for (d, e), tie in self.tables.ties.items():
            counts = np.zeros((0 if sums is None else len(tie.table), tie.table.shape[1]))
            belief_pairs(
                self.order, self.group.lengths, weight, self.marginals[d], self.message[e, d], self.marginals[e],
                self.message[d, e], tie.table, value, counts,
            )  # fmt: skip
            value += tie.shift * self.group.lengths
            if sums is not None:
                sums.between[d, e] += (counts * tie.table)[:, : tie.n_labels[1]]
        return value


def precise(tables: Tables) -> Tables:
    """Return the tables in the precision required by their pair scores."""
    span = max((tie.span for tie in tables.ties.values()), default=0.0)
    if span > WIDEST:
        raise ValueRangeError(
            f"scores of label pairs are up to {span:.0f} apart, belief propagation supports at most {WIDEST:.0f}: use "
            "engine='exact', or -inf for impossible pairs."
        )
    wide = span > WIDE or not all(tie.possible for tie in tables.ties.values())
    return tables.double if wide and tables.dtype == np.float32 else tables


def solve(
    tables: Tables, group: Group, options: Options, sums: Sums | None = None, weight: Floats | None = None
) -> Solution:
    """Run belief propagation on one group, serially; in float64 if pair scores have a wide range."""
    chosen = precise(tables)
    if chosen is not tables:
        double = None if weight is None else weight.astype(np.float64)
        solution = BeliefPropagation(chosen, group.double(tables.n_labels), options).run(sums, double)
        for rows, fill in ((solution.marginals, 0), (solution.log_unary, -np.inf)):
            for d, part in enumerate(rows):
                rows[d] = np.full_like(group.log_unary[d], fill)
                rows[d][:, :, : part.shape[2]] = part
        return solution
    return BeliefPropagation(tables, group, options).run(sums, weight)
