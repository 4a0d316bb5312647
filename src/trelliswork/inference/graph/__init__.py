"""Factor graphs: exact and approximate inference on arrays of log-potentials.

``wire`` checks a graph and lays it out; every engine is a module with a function ``run`` that takes the result:
`bp`, `max_product`, `exact`, `mean_field`, `structured_mean_field`, `trw`, `gibbs`. All return a `Result`.
"""

from trelliswork.inference.graph.factors import AtMostOne, Cardinality, ChainFactor, ExactlyOne
from trelliswork.inference.graph.factors.lowrank import LowRankFactor
from trelliswork.inference.graph.factors.trees import ProjectiveTreeFactor, SpanningTreeFactor
from trelliswork.inference.graph.result import Result
from trelliswork.inference.graph.wiring import BestPropagation, Propagation, Propagator, Tables, Wiring, wire

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
