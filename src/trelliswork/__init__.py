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
        "CRF DependencyParser Estimator FactorialCRF HMM HMMLanguageModel KneserNey MRFLanguageModel MRFTagger "
        "PCFG load"
    ),
    "trelliswork.models.calibration": "calibrate",
    "trelliswork.evaluation": "evaluate",
    "trelliswork.integrations.convert": "convert",
    "trelliswork.integrations.selection": "select",
    # distributions: scores in, answers to queries out
    "trelliswork.distributions": (
        "Distribution FactorGraph GrammarTree LinearChain ProjectiveTree SpanTree SpanningTree"
    ),
    # data: files and raw text in, sentences out
    "trelliswork.data": "Corpus Tree bundled read_columns read_conllu read_dependencies read_text read_trees",
    "trelliswork.data.schemes": "Span",
    "trelliswork.data.tokenize": "tokenize",
    # what raw text says about words
    "trelliswork.features.brown": "BrownClusters",
    "trelliswork.features.lexicon": "Lexicon",
    "trelliswork.features.vectors": "WordVectors",
    # threads and limits, errors
    "trelliswork.errors": "TrellisworkError",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = ["__version__", "errors", "machine", "rules", *_HOMES]

if TYPE_CHECKING:
    from trelliswork import errors as errors
    from trelliswork import machine as machine
    from trelliswork import rules as rules
    from trelliswork.data import Corpus as Corpus
    from trelliswork.data import Tree as Tree
    from trelliswork.data import bundled as bundled
    from trelliswork.data import read_columns as read_columns
    from trelliswork.data import read_conllu as read_conllu
    from trelliswork.data import read_dependencies as read_dependencies
    from trelliswork.data import read_text as read_text
    from trelliswork.data import read_trees as read_trees
    from trelliswork.data.schemes import Span as Span
    from trelliswork.data.tokenize import tokenize as tokenize
    from trelliswork.distributions import Distribution as Distribution
    from trelliswork.distributions import FactorGraph as FactorGraph
    from trelliswork.distributions import GrammarTree as GrammarTree
    from trelliswork.distributions import LinearChain as LinearChain
    from trelliswork.distributions import ProjectiveTree as ProjectiveTree
    from trelliswork.distributions import SpanningTree as SpanningTree
    from trelliswork.distributions import SpanTree as SpanTree
    from trelliswork.errors import TrellisworkError as TrellisworkError
    from trelliswork.evaluation import evaluate as evaluate
    from trelliswork.features.brown import BrownClusters as BrownClusters
    from trelliswork.features.lexicon import Lexicon as Lexicon
    from trelliswork.features.vectors import WordVectors as WordVectors
    from trelliswork.integrations.convert import convert as convert
    from trelliswork.integrations.selection import select as select
    from trelliswork.models import CRF as CRF
    from trelliswork.models import HMM as HMM
    from trelliswork.models import PCFG as PCFG
    from trelliswork.models import DependencyParser as DependencyParser
    from trelliswork.models import Estimator as Estimator
    from trelliswork.models import FactorialCRF as FactorialCRF
    from trelliswork.models import HMMLanguageModel as HMMLanguageModel
    from trelliswork.models import KneserNey as KneserNey
    from trelliswork.models import MRFLanguageModel as MRFLanguageModel
    from trelliswork.models import MRFTagger as MRFTagger
    from trelliswork.models import load as load
    from trelliswork.models.calibration import calibrate as calibrate


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'trelliswork' has no attribute {name!r}")
    with extras_for(name):
        value = getattr(import_module(_HOMES[name]), name) if name in _HOMES else import_module(f"trelliswork.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
