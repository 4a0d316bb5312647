"""Structured probabilistic models of language: taggers, parsers and language models with exact posteriors.

This module lists the public names; the modules behind them are imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from trelliswork.errors import extras_for

__version__ = "0.1.0.dev0"

# Modules and the public names they define.
_MODULES = {
    # estimators: sentences in, predictions out
    "trelliswork.models": (
        "CRF DependencyParser Estimator FactorialCRF HMM HMMLanguageModel KneserNey LogBilinear MRFLanguageModel "
        "MRFTagger PCFG convert load"
    ),
    # distributions: scores in, answers to queries out
    "trelliswork.distributions": (
        "BeamChain Distribution FactorGraph GrammarTree LinearChain NearlyProjectiveTree ProjectiveTree SpanTree "
        "SpanningTree Structure AtMostOne Cardinality ChainFactor ExactlyOne LowRankFactor ProjectiveTreeFactor "
        "SpanningTreeFactor"
    ),
    "trelliswork.integrations.heads": "CRFHead TreeHead",
    "trelliswork.inference.chain.beam": "Beam",
    "trelliswork.models.calibration": "calibrate",
    "trelliswork.models.selection": "select",
    # data: files in, sentences out
    "trelliswork.data": (
        "AttributeCorpus Corpus Tree TreebankSentence Vocabulary bundled read_columns read_conllu read_crfsuite "
        "read_dependencies read_text read_trees read_uai"
    ),
    # what raw text says about words
    "trelliswork.features.brown": "BrownClusters",
    "trelliswork.features.lexicon": "Lexicon",
    "trelliswork.features.presets": "WordFeatures",
    "trelliswork.features.vectors": "WordVectors",
    # counts, and evaluation of predictions against gold
    "trelliswork.models.hmm.counting": "count_chain",
    "trelliswork.data.moments": "Moments count_moments",
    "trelliswork.metrics.brackets": "evaluate_brackets",
    "trelliswork.metrics.calibration": "evaluate_confidence",
    "trelliswork.metrics.induction": "evaluate_induction",
    "trelliswork.metrics.tagging": "evaluate_tagging",
    "trelliswork.metrics.dependencies": "evaluate_parsing",
    # limits, threads and errors
    "trelliswork.compute.limits": "limits set_limits",
    "trelliswork.compute.threads": "get_num_threads num_threads set_num_threads",
    "trelliswork.errors": "TrellisworkError",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [
    "CRF",
    "HMM",
    "PCFG",
    "AtMostOne",
    "AttributeCorpus",
    "Beam",
    "BeamChain",
    "BrownClusters",
    "CRFHead",
    "Cardinality",
    "ChainFactor",
    "Corpus",
    "DependencyParser",
    "Distribution",
    "Estimator",
    "ExactlyOne",
    "FactorGraph",
    "FactorialCRF",
    "GrammarTree",
    "HMMLanguageModel",
    "KneserNey",
    "Lexicon",
    "LinearChain",
    "LogBilinear",
    "LowRankFactor",
    "MRFLanguageModel",
    "MRFTagger",
    "Moments",
    "NearlyProjectiveTree",
    "ProjectiveTree",
    "ProjectiveTreeFactor",
    "SpanTree",
    "SpanningTree",
    "SpanningTreeFactor",
    "Structure",
    "Tree",
    "TreeHead",
    "TreebankSentence",
    "TrellisworkError",
    "Vocabulary",
    "WordFeatures",
    "WordVectors",
    "__version__",
    "bundled",
    "calibrate",
    "convert",
    "count_chain",
    "count_moments",
    "evaluate_brackets",
    "evaluate_confidence",
    "evaluate_induction",
    "evaluate_parsing",
    "evaluate_tagging",
    "get_num_threads",
    "limits",
    "load",
    "num_threads",
    "read_columns",
    "read_conllu",
    "read_crfsuite",
    "read_dependencies",
    "read_text",
    "read_trees",
    "read_uai",
    "select",
    "set_limits",
    "set_num_threads",
]

if TYPE_CHECKING:
    from trelliswork.compute.limits import limits, set_limits
    from trelliswork.compute.threads import get_num_threads, num_threads, set_num_threads
    from trelliswork.data import (
        AttributeCorpus,
        Corpus,
        Tree,
        TreebankSentence,
        Vocabulary,
        bundled,
        read_columns,
        read_conllu,
        read_crfsuite,
        read_dependencies,
        read_text,
        read_trees,
        read_uai,
    )
    from trelliswork.data.moments import Moments, count_moments
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
        NearlyProjectiveTree,
        ProjectiveTree,
        ProjectiveTreeFactor,
        SpanningTree,
        SpanningTreeFactor,
        SpanTree,
        Structure,
    )
    from trelliswork.errors import (
        TrellisworkError,
    )
    from trelliswork.features.brown import BrownClusters
    from trelliswork.features.lexicon import Lexicon
    from trelliswork.features.presets import WordFeatures
    from trelliswork.features.vectors import WordVectors
    from trelliswork.inference.chain.beam import Beam
    from trelliswork.integrations.heads import CRFHead, TreeHead
    from trelliswork.metrics.brackets import evaluate_brackets
    from trelliswork.metrics.calibration import evaluate_confidence
    from trelliswork.metrics.dependencies import evaluate_parsing
    from trelliswork.metrics.induction import evaluate_induction
    from trelliswork.metrics.tagging import evaluate_tagging
    from trelliswork.models import (
        CRF,
        HMM,
        PCFG,
        DependencyParser,
        Estimator,
        FactorialCRF,
        HMMLanguageModel,
        KneserNey,
        LogBilinear,
        MRFLanguageModel,
        MRFTagger,
        convert,
        load,
    )
    from trelliswork.models.calibration import calibrate
    from trelliswork.models.hmm.counting import (
        count_chain,
    )
    from trelliswork.models.selection import select


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'trelliswork' has no attribute {name!r}")
    with extras_for(name):
        value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
