"""HMMs whose transition matrix has low rank (or is dense): sums over states by two thin matrix products a word."""

from trelliswork.inference.lowrank.autograd import expectations, log_evidence
from trelliswork.inference.lowrank.operators import Dense, LowRank, Transition
from trelliswork.inference.lowrank.packing import Packed, groups, pack
from trelliswork.inference.lowrank.queries import draw, following, marginals, sample_states, viterbi
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
    "viterbi",
]
