"""A small treebank of slightly silly English, made by a grammar; part of the package.

``load("train")`` returns 3,000 annotated sentences, ``"dev"`` and ``"test"`` 500 each, without a download. The text has
agreement, ambiguous words, prepositional phrases that attach by preference, nested clauses, a few crossing arcs, and
words in the development and test parts that do not occur in the training part.

The file ``bundled.xz`` has one sentence per line: the constituent tree, whose leaves are the words and their tags, then
chunks, heads, relations and universal tags, separated by tabs. ``python -m tools.bundled`` in a clone writes it.
"""

import lzma
from functools import cache
from pathlib import Path

from trelliswork.data.sentence import Tree, TreebankSentence

__all__ = ["SPLITS", "load"]

SPLITS = {"train": 3000, "dev": 500, "test": 500}
FILE = Path(__file__).with_name("bundled.xz")


def load(split: str = "train") -> list[TreebankSentence]:
    """Return the sentences of one part of the bundled corpus.

    Parameters
    ----------
    split : {"train", "dev", "test"}

    Returns
    -------
    list of TreebankSentence
        A new list; the sentences are immutable and read only once per process.

    Raises
    ------
    ValueError
        If there is no part of this name.

    Examples
    --------
    >>> len(load("dev"))
    500
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(map(repr, SPLITS))}, got {split!r}.")
    return list(_load(split))


@cache
def _load(split: str) -> tuple[TreebankSentence, ...]:
    start = sum(SPLITS[name] for name in list(SPLITS)[: list(SPLITS).index(split)])
    lines = lzma.decompress(FILE.read_bytes()).decode("utf-8").splitlines()
    return tuple(map(_sentence, lines[start : start + SPLITS[split]]))


def _sentence(line: str) -> TreebankSentence:
    brackets, *columns = line.split("\t")
    tree, (chunks, heads, relations, upos) = Tree.parse(brackets), (tuple(column.split()) for column in columns)
    tags = tuple(node.label for node in tree.preterminals())
    return TreebankSentence(tree.leaves(), tags, chunks, tuple(map(int, heads)), relations, tree, upos)
