"""Structured probabilistic models of language: taggers, parsers and language models with exact posteriors.

Public names stand on this page; what is heavy is loaded when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0.dev0"

_HOMES = {
    "Distribution": "trelliswork.distributions",
    "LinearChain": "trelliswork.distributions",
    "Structure": "trelliswork.distributions",
    "Tree": "trelliswork.data",
    "TreebankSentence": "trelliswork.data",
    "Vocabulary": "trelliswork.data",
    "bundled": "trelliswork.data",
    "count_chain": "trelliswork.learning",
    "get_num_threads": "trelliswork.inference.threads",
    "num_threads": "trelliswork.inference.threads",
    "set_num_threads": "trelliswork.inference.threads",
}

__all__ = [
    "Distribution",
    "LinearChain",
    "Structure",
    "Tree",
    "TreebankSentence",
    "Vocabulary",
    "__version__",
    "bundled",
    "count_chain",
    "get_num_threads",
    "num_threads",
    "set_num_threads",
]

if TYPE_CHECKING:
    from trelliswork.data import Tree, TreebankSentence, Vocabulary, bundled
    from trelliswork.distributions import Distribution, LinearChain, Structure
    from trelliswork.inference.threads import get_num_threads, num_threads, set_num_threads
    from trelliswork.learning import count_chain


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'trelliswork' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
