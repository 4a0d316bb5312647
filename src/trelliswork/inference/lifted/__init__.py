r"""Lifted inference for Markov random fields over text: bounds whose cost does not depend on the length of the text.

N words in a circle, each tied to its K right neighbours by one table of scores a distance. ``tables`` holds the scores;
``star`` and ``chain_cover`` bound the log partition function a position, ``exact`` computes it for tiny vocabularies;
``reference`` has the equations. ``conditionals`` is the pass that learning consists of.
"""

from trelliswork.inference.lifted.chain_cover import ChainBound, ChainCover
from trelliswork.inference.lifted.star import Star, StarBound
from trelliswork.inference.lifted.tables import BiasedTable, DenseTable, LowRankTable, SparseTable, Table

__all__ = [
    "BiasedTable",
    "ChainBound",
    "ChainCover",
    "DenseTable",
    "LowRankTable",
    "SparseTable",
    "Star",
    "StarBound",
    "Table",
]
