r"""Belief propagation with each layer's chain as one factor.

Between layer d and layer e at position t stands a pair factor exp v(i, j). What layer e says to layer d is

.. math:: m_{e \to d,t}(i) \propto \sum_j e^{v(i, j)}\, c_{e,t}(j), \qquad c_{e,t}(j) = b_{e,t}(j) / m_{d \to e,t}(j)

with the chain's marginals b and the cavity c: what e believes without having heard d. The layer's next marginals come
from one forward-backward with unary scores u + sum of log m. With the chains' log Z~ the Bethe value is

.. math:: \sum_d \log \tilde Z_d + \sum_{d<e} \sum_t \log \sum_{ij} c_{d,t}(i)\, e^{v(i,j)}\, c_{e,t}(j)

(the terms of single labels are 0 because sum_i m(i) c(i) = 1). It is stationary in the messages at a fixed point:
there its gradient is the beliefs. Exact when the layers form no loop: with one layer, or with pair scores that are
sums of single ones.

Beliefs below the smallest positive number count as zero: with impossible pairs (-inf), a sequence whose every possible
pair has such a belief counts as impossible.
"""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ValueRangeError
from trelliswork.inference.factorial.potentials import Floats, Group, Integers, Pair, Tables
from trelliswork.inference.factorial.sweeps import Options, Solution, Sums, Sweeps, compiled

# A cavity is a quotient of a belief, which may underflow. What is lost must not matter after a tie has weighed it.
WIDE = 60.0  # nats that float32 stands
WIDEST = 600.0  # and float64


class BeliefPropagation(Sweeps):
    """Belief propagation on one group; ``message[e, d]`` (B, T, Sp_d) is what layer e says to layer d."""

    kind: ClassVar[str] = "estimate"

    def __init__(self, tables: Tables, group: Group, options: Options) -> None:
        super().__init__(tables, group, options)
        self.message: dict[Pair, Floats] = {}
        for d, e in tables.ties:
            self.message[e, d] = np.ones_like(group.log_unary[d])
            self.message[d, e] = np.ones_like(group.log_unary[e])

    def _listen(self, d: int, heard: list[int], active: Integers) -> None:
        lengths = self.group.lengths
        for e in self._neighbours(d):
            if e in heard:
                tie = self.tables.ties[min(d, e), max(d, e)]
                table = tie.table if e < d else tie.back
                damping = tie.floor.dtype.type(self.options.damping)
                compiled.belief_messages(
                    active, lengths, self.marginals[e], self.message[d, e], table, tie.floor, damping,
                    self.message[e, d],
                )  # fmt: skip
                n_labels = self.tables.layers[d].n_labels
                compiled.add_logarithms(active, lengths, self.message[e, d], n_labels, self.log_message[d])

    def _value(self, sums: Sums | None, weight: Floats) -> NDArray[np.float64]:
        value = self.log_z.sum(axis=0)
        for (d, e), tie in self.tables.ties.items():
            scratch = np.zeros(tie.table.shape, tie.table.dtype)
            counts = np.zeros((0 if sums is None else len(tie.table), tie.table.shape[1]))
            compiled.belief_pairs(
                self.order, self.group.lengths, weight, self.marginals[d], self.message[e, d], self.marginals[e],
                self.message[d, e], tie.table, scratch, value, counts,
            )  # fmt: skip
            value += tie.shift * self.group.lengths
            if sums is not None:
                sums.between[d, e] += (counts * tie.table)[:, : tie.n_labels[1]]
        return value


def precise(tables: Tables) -> Tables:
    """The tables in the precision that their label pairs need."""
    span = max((tie.span for tie in tables.ties.values()), default=0.0)
    if span > WIDEST:
        raise ValueRangeError(
            f"scores of label pairs lie {span:.0f} apart, belief propagation takes at most {WIDEST:.0f}: use "
            "engine='exact', or -inf for what is impossible."
        )
    wide = span > WIDE or not all(tie.possible for tie in tables.ties.values())
    return tables.double if wide and tables.dtype == np.float32 else tables


def solve(
    tables: Tables, group: Group, options: Options, sums: Sums | None = None, weight: Floats | None = None
) -> Solution:
    """Belief propagation on one group, serial; in float64 if scores of label pairs lie far apart."""
    chosen = precise(tables)
    if chosen is not tables:
        heavy = None if weight is None else weight.astype(np.float64)
        found = BeliefPropagation(chosen, group.double(tables.n_labels), options).run(sums, heavy)
        for rows, like in ((found.marginals, group.log_unary), (found.log_unary, group.log_unary)):
            for d, part in enumerate(rows):
                rows[d] = np.full_like(like[d], -np.inf if rows is found.log_unary else 0)
                rows[d][:, :, : part.shape[2]] = part
        return found
    return BeliefPropagation(tables, group, options).run(sums, weight)
