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
from trelliswork.inference.factorial.potentials import FactorialPotentials, Floats, Integers, Pair, Tables
from trelliswork.inference.factorial.sweeps import Options, Solution, Sums, Sweeps, outer

# A cavity is a quotient of a belief, which may underflow. The lost part must be negligible after the pair factor.
WIDE = 60.0  # maximum range of pair scores in float32, in nats
WIDEST = 600.0  # the same in float64


class BeliefPropagation(Sweeps):
    """Belief propagation on a batch; ``message[e, d]`` (B, T, S_d) is the message from layer e to layer d."""

    kind: ClassVar[str] = "estimate"

    def __init__(self, p: FactorialPotentials, options: Options) -> None:
        super().__init__(p, options)
        self.message: dict[Pair, Floats] = {}
        for d, e in self.tables.ties:
            self.message[e, d] = np.ones_like(p.log_unary[d])
            self.message[d, e] = np.ones_like(p.log_unary[e])

    def _receive(self, d: int, senders: list[int], active: Integers) -> Floats:
        total: Floats = np.zeros_like(self.p.log_unary[d][active])
        for e in senders:
            tie = self.tables.ties[min(d, e), max(d, e)]
            table = tie.table if e < d else tie.table.T
            damping = table.dtype.type(self.options.damping)
            fresh = np.matmul(_cavity(self.marginals[e][active], self.message[d, e][active]), table)
            _normalize(fresh)
            if damping:
                fresh *= 1 - damping
                fresh += damping * self.message[e, d][active]
            np.maximum(fresh, tie.floor, out=fresh)
            self.message[e, d][active] = fresh
            with np.errstate(divide="ignore"):
                total += np.log(fresh)
        return total

    def _value(self, sums: Sums | None, weight: Floats) -> NDArray[np.float64]:
        value = self.log_z.sum(axis=0)
        for (d, e), tie in self.tables.ties.items():
            left, right = (_cavity(self.marginals[x], self.message[y, x]) for x, y in ((d, e), (e, d)))
            logs = _normalize(left) + _normalize(right)
            mass = (np.matmul(left, tie.table) * right).sum(axis=2)
            with np.errstate(divide="ignore"):
                logs += np.log(mass, dtype=np.float64)
            value += np.where(self.inside, logs, 0).sum(axis=1) + tie.shift * self.p.lengths
            if sums is not None:
                left *= np.divide(1, mass, where=mass > 0, out=np.zeros_like(mass))[:, :, None]
                sums.between[d, e] += outer(left, right, weight) * tie.table
        return value


def _cavity(belief: Floats, back: Floats) -> Floats:
    """Return belief / back. Where a message is zero so is the belief, and the cavity: such a label is impossible."""
    least = belief.dtype.type(1e-37 if belief.itemsize == 4 else 1e-300)  # messages have a floor: smaller ones are zero
    return belief / np.maximum(back, least)


def _normalize(rows: Floats) -> NDArray[np.float64]:
    """Divide rows (B, T, S) by their sums, unless these are 0; return the logarithms (B, T) of the sums."""
    total = np.matmul(rows, np.ones(rows.shape[2], rows.dtype))  # many times as fast as a sum over a short axis
    rows *= np.divide(1, total, where=total > 0, out=np.zeros_like(total))[:, :, None]
    with np.errstate(divide="ignore"):
        return np.log(total, dtype=np.float64)


def precise(tables: Tables) -> bool:
    """Return whether the pair scores need double precision; raise if they are too far apart even for that."""
    span = max((tie.span for tie in tables.ties.values()), default=0.0)
    if span > WIDEST:
        raise ValueRangeError(
            f"scores of label pairs are up to {span:.0f} apart, belief propagation supports at most {WIDEST:.0f}: use "
            "engine='exact', or -inf for impossible pairs."
        )
    return span > WIDE or not all(tie.possible for tie in tables.ties.values())


def solve(p: FactorialPotentials, options: Options, sums: Sums | None = None, weight: Floats | None = None) -> Solution:
    """Run belief propagation on a batch; in float64 if pair scores have a wide range."""
    if precise(p.tables):
        p = p.double()
    return BeliefPropagation(p, options).run(sums, weight)
