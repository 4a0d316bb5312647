"""Writers of annotated sentences: CoNLL-U, CoNLL-2000 columns, plain text and bracketed trees."""

from collections.abc import Iterable
from typing import TextIO

from trelliswork.data.sentence import TreebankSentence


def write_conllu(sentences: Iterable[TreebankSentence], file: TextIO) -> None:
    """Write sentences in CoNLL-U: ten columns, a blank line after each sentence.

    Lemmas, features and enhanced arcs are empty (``_``). Penn tags are in the XPOS column.
    """
    for number, sentence in enumerate(sentences, start=1):
        file.write(f"# sent_id = {number}\n# text = {sentence}\n")
        rows = zip(sentence.words, sentence.upos, sentence.tags, sentence.heads, sentence.relations, strict=True)
        for i, (word, universal, tag, head, relation) in enumerate(rows, start=1):
            file.write(f"{i}\t{word}\t_\t{universal}\t{tag}\t_\t{head}\t{relation}\t_\t_\n")
        file.write("\n")


def write_columns(sentences: Iterable[TreebankSentence], file: TextIO) -> None:
    """Write word, tag and chunk in columns as in CoNLL-2000: one space between, a blank line after each sentence."""
    for sentence in sentences:
        for row in zip(sentence.words, sentence.tags, sentence.chunks, strict=True):
            file.write(" ".join(row) + "\n")
        file.write("\n")


def write_text(sentences: Iterable[TreebankSentence], file: TextIO) -> None:
    """Write the words only: one sentence per line, one space between words."""
    for sentence in sentences:
        file.write(" ".join(sentence.words) + "\n")


def write_trees(sentences: Iterable[TreebankSentence], file: TextIO) -> None:
    """Write the constituent trees: one Penn bracketing per line."""
    for sentence in sentences:
        file.write(f"{sentence.tree}\n")
