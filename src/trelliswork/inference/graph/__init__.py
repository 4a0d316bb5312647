"""Factor graphs: exact and approximate inference on arrays of log-potentials.

`wire` checks a graph and converts it to flat arrays. Every engine is a module of ``engines`` with a function ``run``
that takes them and returns a `Result`: `bp`, `max_product`, `exact`, `mean_field`, `structured_mean_field`, `trw`,
`gibbs`.
"""

from trelliswork.inference.graph.factors.cardinality import AtMostOne, Cardinality, ExactlyOne
from trelliswork.inference.graph.factors.chain import ChainFactor
from trelliswork.inference.graph.factors.lowrank import LowRankFactor
from trelliswork.inference.graph.factors.trees import ProjectiveTreeFactor, SpanningTreeFactor
from trelliswork.inference.graph.potentials import BestPropagation, Propagation, Propagator, Tables, Wiring, wire
from trelliswork.inference.graph.result import Result

__all__ = [
    "AtMostOne",
    "BestPropagation",
    "Cardinality",
    "ChainFactor",
    "ExactlyOne",
    "LowRankFactor",
    "ProjectiveTreeFactor",
    "Propagation",
    "Propagator",
    "Result",
    "SpanningTreeFactor",
    "Tables",
    "Wiring",
    "wire",
]
