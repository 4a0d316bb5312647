"""Files, sentences, vocabularies and ids; readers and writers of the common formats; the bundled corpus."""

from trelliswork.data import bundled
from trelliswork.data.annotations import read_spans, write_spans
from trelliswork.data.columns import read_columns
from trelliswork.data.conllu import read_conllu, read_dependencies
from trelliswork.data.corpus import AttributeCorpus, Corpus
from trelliswork.data.crfsuite import read_crfsuite
from trelliswork.data.sentence import Tree, TreebankSentence
from trelliswork.data.text import Lines, read_text
from trelliswork.data.trees import read_trees
from trelliswork.data.uai import UaiGraph, read_uai
from trelliswork.data.vocabulary import Vocabulary

__all__ = [
    "AttributeCorpus",
    "Corpus",
    "Lines",
    "Tree",
    "TreebankSentence",
    "UaiGraph",
    "Vocabulary",
    "bundled",
    "read_columns",
    "read_conllu",
    "read_crfsuite",
    "read_dependencies",
    "read_spans",
    "read_text",
    "read_trees",
    "read_uai",
    "write_spans",
]
