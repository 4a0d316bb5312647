r"""Linear chains: log partition functions, marginals, best and random labelings of arrays of log-potentials.

.. math:: p(y) = \frac1Z \exp\Big(\sum_t u_t(y_t) + \sum_t w_t(y_t, y_{t+1})\Big)

``chain_potentials`` checks the input once; every function here takes its result. Time O(T S^2) and memory O(T S) per
sequence, unless a function documents otherwise. Threads: ``trelliswork.compute.threads``.
"""

from trelliswork.inference.chain.passes import (
    Expectations,
    Forward,
    backward,
    expectations,
    forward,
    log_partition,
    pair_counts,
    score,
    viterbi,
)
from trelliswork.inference.chain.plain import sample, topk
from trelliswork.inference.chain.potentials import Potentials, chain_potentials, sizes, transition_steps

__all__ = [
    "Expectations",
    "Forward",
    "Potentials",
    "backward",
    "chain_potentials",
    "expectations",
    "forward",
    "log_partition",
    "pair_counts",
    "sample",
    "score",
    "sizes",
    "topk",
    "transition_steps",
    "viterbi",
]
