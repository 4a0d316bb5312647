"""Files, sentences, vocabularies and ids; readers and writers of the common formats; the bundled corpus.

The room is larger than its budget by spans in running text (``annotations``): five formats of annotation tools are
read as labeled sentences and written back, with reports of what does not fit.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trelliswork.data import bundled as bundled
    from trelliswork.data.annotations import read_spans as read_spans
    from trelliswork.data.annotations import write_spans as write_spans
    from trelliswork.data.columns import read_columns as read_columns
    from trelliswork.data.conllu import read_conllu as read_conllu
    from trelliswork.data.conllu import read_dependencies as read_dependencies
    from trelliswork.data.corpus import AttributeCorpus as AttributeCorpus
    from trelliswork.data.corpus import Corpus as Corpus
    from trelliswork.data.crfsuite import read_crfsuite as read_crfsuite
    from trelliswork.data.moments import Moments as Moments
    from trelliswork.data.moments import count_moments as count_moments
    from trelliswork.data.reading import Layout as Layout
    from trelliswork.data.reading import open as open
    from trelliswork.data.schemes import spans as spans
    from trelliswork.data.sentence import Tree as Tree
    from trelliswork.data.sentence import TreebankSentence as TreebankSentence
    from trelliswork.data.text import Lines as Lines
    from trelliswork.data.text import read_text as read_text
    from trelliswork.data.trees import prune as prune
    from trelliswork.data.trees import read_trees as read_trees
    from trelliswork.data.uai import UaiGraph as UaiGraph
    from trelliswork.data.uai import read_uai as read_uai
    from trelliswork.data.vocabulary import Vocabulary as Vocabulary

# Modules here and the names that they define, which are loaded when they are first used.
_MODULES = {
    "annotations": "read_spans write_spans",
    "columns": "read_columns",
    "conllu": "read_conllu read_dependencies",
    "corpus": "AttributeCorpus Corpus",
    "crfsuite": "read_crfsuite",
    "moments": "Moments count_moments",
    "reading": "Layout open",
    "schemes": "spans",
    "sentence": "Tree TreebankSentence",
    "text": "Lines read_text",
    "trees": "prune read_trees",
    "uai": "UaiGraph read_uai",
    "vocabulary": "Vocabulary",
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names.split()}

__all__ = ["bundled", *_HOMES]


def __getattr__(name: str) -> Any:
    if name == "bundled":
        return import_module(f"{__name__}.bundled")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value
