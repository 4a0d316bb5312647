"""Files and sentences: the annotated sentence, writers of the usual formats, and the bundled corpus."""

from trelliswork.data import bundled
from trelliswork.data.sentence import Tree, TreebankSentence
from trelliswork.data.vocabulary import Vocabulary

__all__ = ["Tree", "TreebankSentence", "Vocabulary", "bundled"]
