"""Structured factors: many variables at once, with a dynamic program in place of a table.

Each is a `Propagator`: it returns value, beliefs and messages in time far below the size of its table. All sums are of
positive terms, in log space, so that zeros (-inf) in messages and parameters are handled exactly.
"""

from trelliswork.inference.graph.factors.cardinality import AtMostOne, Cardinality, ExactlyOne
from trelliswork.inference.graph.factors.chain import ChainFactor
from trelliswork.inference.graph.factors.lowrank import LowRankFactor
from trelliswork.inference.graph.factors.trees import ProjectiveTreeFactor, SpanningTreeFactor

__all__ = [
    "AtMostOne",
    "Cardinality",
    "ChainFactor",
    "ExactlyOne",
    "LowRankFactor",
    "ProjectiveTreeFactor",
    "SpanningTreeFactor",
]
