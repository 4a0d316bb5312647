r"""Lifted inference for Markov random fields over text: bounds whose cost does not depend on the length of the text.

N words in a circle, each tied to its K right neighbors by one table of scores per distance (``potentials``). ``star``
and ``chain_cover`` bound the log partition function per position, ``exact`` computes it for tiny vocabularies, ``ais``
estimates it for ``sentences``; ``conditionals`` is the pass used in learning. ``reference`` has the equations. There is
no compiled code and no autograd function: torch computes tables in ``tiles``, and gradients are explicit.
"""

from trelliswork.inference.lifted.chain_cover import ChainBound, ChainCover
from trelliswork.inference.lifted.potentials import LowRankTable, SparseTable, Table
from trelliswork.inference.lifted.star import Star, StarBound

__all__ = [
    "ChainBound",
    "ChainCover",
    "LowRankTable",
    "SparseTable",
    "Star",
    "StarBound",
    "Table",
]
