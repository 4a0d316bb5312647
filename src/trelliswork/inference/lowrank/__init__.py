"""HMMs with a low-rank (or dense) transition matrix: sums over states by two thin matrix products per word.

``potentials`` holds transitions and checks, ``packing`` the layout of sentences; ``sweep`` and ``fused`` are two
implementations of forward-backward, ``passes`` and ``rank_space`` use them, and ``autograd`` has the torch gradient.
"""

from trelliswork.inference.lowrank.autograd import log_evidence
from trelliswork.inference.lowrank.packing import Packed, groups, pack
from trelliswork.inference.lowrank.passes import draw, expectations, following, marginals, sample_states, step, viterbi
from trelliswork.inference.lowrank.potentials import Dense, LowRank, Transition
from trelliswork.inference.lowrank.rank_space import score

__all__ = [
    "Dense",
    "LowRank",
    "Packed",
    "Transition",
    "draw",
    "expectations",
    "following",
    "groups",
    "log_evidence",
    "marginals",
    "pack",
    "sample_states",
    "score",
    "step",
    "viterbi",
]
