"""HMMs with many states: transitions of low rank or dense, over all states or between blocks of them.

``potentials`` holds transitions, ``packing`` the layout of sentences, ``sweep`` forward-backward over many sentences;
``passes`` scores words and has the torch gradient, ``queries`` answer questions about one sentence with evidence.
"""

from trelliswork.inference.lowrank.packing import Moves, groups, moves, pack
from trelliswork.inference.lowrank.passes import double, log_evidence, posteriors, score
from trelliswork.inference.lowrank.potentials import Blocks, Dense, LowRank, Transition
from trelliswork.inference.lowrank.queries import Messages, Open, draw, moved, step, viterbi

__all__ = [
    "Blocks",
    "Dense",
    "LowRank",
    "Messages",
    "Moves",
    "Open",
    "Transition",
    "double",
    "draw",
    "groups",
    "log_evidence",
    "moved",
    "moves",
    "pack",
    "posteriors",
    "score",
    "step",
    "viterbi",
]
