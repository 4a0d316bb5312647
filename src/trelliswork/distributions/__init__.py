"""Distributions over structures, on torch tensors; above the budget, which knew no rules, segments or alignments."""

from trelliswork.distributions.alignment import Alignment
from trelliswork.distributions.base import Best, Distribution
from trelliswork.distributions.beam_chain import BeamChain
from trelliswork.distributions.dependency_tree import NearlyProjectiveTree, ProjectiveTree, SpanningTree
from trelliswork.distributions.factor_graph import FactorGraph
from trelliswork.distributions.grammar_tree import GrammarExpectations, GrammarTree
from trelliswork.distributions.linear_chain import LinearChain
from trelliswork.distributions.ngram_chain import NgramChain
from trelliswork.distributions.path_structure import ChainExpectations
from trelliswork.distributions.ruled_chain import RuledChain
from trelliswork.distributions.semi_markov_chain import SemiMarkovChain
from trelliswork.distributions.span_tree import SpanTree
from trelliswork.distributions.tree_base import TreeExpectations
from trelliswork.inference.chain.beam import Beam
from trelliswork.inference.graph import (
    AtMostOne,
    BestPropagation,
    Cardinality,
    ChainFactor,
    ExactlyOne,
    LowRankFactor,
    ProjectiveTreeFactor,
    Propagation,
    SpanningTreeFactor,
)

__all__ = [
    "Alignment",
    "AtMostOne",
    "Beam",
    "BeamChain",
    "Best",
    "BestPropagation",
    "Cardinality",
    "ChainExpectations",
    "ChainFactor",
    "Distribution",
    "ExactlyOne",
    "FactorGraph",
    "GrammarExpectations",
    "GrammarTree",
    "LinearChain",
    "LowRankFactor",
    "NearlyProjectiveTree",
    "NgramChain",
    "ProjectiveTree",
    "ProjectiveTreeFactor",
    "Propagation",
    "RuledChain",
    "SemiMarkovChain",
    "SpanTree",
    "SpanningTree",
    "SpanningTreeFactor",
    "TreeExpectations",
]
