"""Structured probabilistic models of language: taggers, parsers and language models with exact posteriors.

Public names stand on this page; what is heavy is loaded when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0.dev0"

_HOMES = {
    "AtMostOne": "trelliswork.distributions",
    "Beam": "trelliswork.inference.chain.beam",
    "BeamChain": "trelliswork.distributions",
    "bundled": "trelliswork.data",
    "Cardinality": "trelliswork.distributions",
    "ChainFactor": "trelliswork.distributions",
    "Corpus": "trelliswork.data",
    "count_chain": "trelliswork.learning",
    "count_moments": "trelliswork.learning.moments",
    "CRF": "trelliswork.models",
    "DependencyParser": "trelliswork.models",
    "Distribution": "trelliswork.distributions",
    "ExactlyOne": "trelliswork.distributions",
    "FactorGraph": "trelliswork.distributions",
    "FactorialCRF": "trelliswork.models",
    "get_num_threads": "trelliswork.inference.threads",
    "GrammarTree": "trelliswork.distributions",
    "HMM": "trelliswork.models",
    "HMMLanguageModel": "trelliswork.models",
    "KneserNey": "trelliswork.models",
    "LinearChain": "trelliswork.distributions",
    "load": "trelliswork.models",
    "LogBilinear": "trelliswork.models",
    "LowRankFactor": "trelliswork.distributions",
    "Moments": "trelliswork.learning.moments",
    "MRFLanguageModel": "trelliswork.models",
    "MRFTagger": "trelliswork.models",
    "num_threads": "trelliswork.inference.threads",
    "PCFG": "trelliswork.models",
    "ProjectiveTree": "trelliswork.distributions",
    "ProjectiveTreeFactor": "trelliswork.distributions",
    "read_columns": "trelliswork.data",
    "read_conllu": "trelliswork.data",
    "read_crfsuite": "trelliswork.data",
    "read_text": "trelliswork.data",
    "read_trees": "trelliswork.data",
    "set_num_threads": "trelliswork.inference.threads",
    "SpanningTree": "trelliswork.distributions",
    "SpanningTreeFactor": "trelliswork.distributions",
    "SpanTree": "trelliswork.distributions",
    "Structure": "trelliswork.distributions",
    "Tree": "trelliswork.data",
    "TreebankSentence": "trelliswork.data",
    "Vocabulary": "trelliswork.data",
}

__all__ = [
    "CRF",
    "HMM",
    "PCFG",
    "AtMostOne",
    "Beam",
    "BeamChain",
    "Cardinality",
    "ChainFactor",
    "Corpus",
    "DependencyParser",
    "Distribution",
    "ExactlyOne",
    "FactorGraph",
    "FactorialCRF",
    "GrammarTree",
    "HMMLanguageModel",
    "KneserNey",
    "LinearChain",
    "LogBilinear",
    "LowRankFactor",
    "MRFLanguageModel",
    "MRFTagger",
    "Moments",
    "ProjectiveTree",
    "ProjectiveTreeFactor",
    "SpanTree",
    "SpanningTree",
    "SpanningTreeFactor",
    "Structure",
    "Tree",
    "TreebankSentence",
    "Vocabulary",
    "__version__",
    "bundled",
    "count_chain",
    "count_moments",
    "get_num_threads",
    "load",
    "num_threads",
    "read_columns",
    "read_conllu",
    "read_crfsuite",
    "read_text",
    "read_trees",
    "set_num_threads",
]

if TYPE_CHECKING:
    from trelliswork.data import (
        Corpus,
        Tree,
        TreebankSentence,
        Vocabulary,
        bundled,
        read_columns,
        read_conllu,
        read_crfsuite,
        read_text,
        read_trees,
    )
    from trelliswork.distributions import (
        AtMostOne,
        BeamChain,
        Cardinality,
        ChainFactor,
        Distribution,
        ExactlyOne,
        FactorGraph,
        GrammarTree,
        LinearChain,
        LowRankFactor,
        ProjectiveTree,
        ProjectiveTreeFactor,
        SpanningTree,
        SpanningTreeFactor,
        SpanTree,
        Structure,
    )
    from trelliswork.inference.chain.beam import Beam
    from trelliswork.inference.threads import get_num_threads, num_threads, set_num_threads
    from trelliswork.learning import count_chain
    from trelliswork.learning.moments import Moments, count_moments
    from trelliswork.models import (
        CRF,
        HMM,
        PCFG,
        DependencyParser,
        FactorialCRF,
        HMMLanguageModel,
        KneserNey,
        LogBilinear,
        MRFLanguageModel,
        MRFTagger,
        load,
    )


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'trelliswork' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
