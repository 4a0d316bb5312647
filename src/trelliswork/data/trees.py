"""Bracketed constituent trees, as in the Penn Treebank: reading, pruning, spans."""

import re
from collections.abc import Iterator
from pathlib import Path

from trelliswork.data.files import Readable, check_some, open_text, shorten, source_name
from trelliswork.data.sentence import Tree
from trelliswork.errors import DataError

__all__ = ["PUNCTUATION", "TRACE", "prune", "read_trees", "tree_files", "tree_spans"]

TRACE = "-NONE-"
PUNCTUATION = frozenset([",", ".", ":", "``", "''", "-LRB-", "-RRB-"])  # tags of the Penn Treebank
_BRACKET = re.compile(r"[()]")


def read_trees(
    path: Readable,
    *,
    punctuation: bool = True,
    functions: bool = True,
    unary: bool = True,
) -> list[Tree]:
    """Read Penn bracketings, each on one line or over several.

    Parameters
    ----------
    path : str or path
        A plain or gzip file, ``-`` for the standard input; or a directory, whose ``*.mrg`` files are read in the order
        of their names.
    punctuation : bool
        Whether to keep words tagged as punctuation (``PUNCTUATION``).
    functions : bool
        Whether to keep functions and indices of labels (``NP-SBJ-1``) instead of shortening them to ``NP``.
    unary : bool
        Whether to keep constituents with one child instead of replacing them by the child.

    Returns
    -------
    list of Tree
        Without empty elements (tag ``-NONE-``), and without trees of which nothing is left.

    Raises
    ------
    DataError
        If brackets do not match, there is text outside of them, a constituent is malformed, or there is no tree.
    """
    trees = []
    for file in tree_files(path):
        for line, text in _bracketings(file):
            try:
                tree = Tree.parse(text)
            except ValueError as error:
                raise DataError(f"{source_name(file)}:{line}: in the tree that starts here, {error}") from None
            left = prune(tree, punctuation=punctuation, functions=functions, unary=unary)
            if left is not None:
                trees.append(left)
    check_some(len(trees), path, "a bracketing such as (S (NP (PRP It)) (VP (VBZ rains)))")
    return trees


def tree_files(path: Readable) -> list[Readable]:
    """Return a file, or the ``*.mrg`` files of a directory in the order of their names."""
    folder = Path(source_name(path))
    if not folder.is_dir():
        return [path]
    files: list[Readable] = [*sorted(folder.glob("*.mrg"))]
    if not files:
        raise DataError(
            f"{folder}: expected a directory with *.mrg files, but it has none. Name another one, or a file of trees."
        )
    return files


def prune(tree: Tree, *, punctuation: bool = True, functions: bool = True, unary: bool = True) -> Tree | None:
    """Return a tree without the parts that are not kept, see `read_trees`; ``None`` if nothing is left.

    Examples
    --------
    >>> tree = Tree.parse("(S (NP-SBJ (NNP Kim)) (VP (VBZ sleeps)) (. .))")
    >>> print(prune(tree, punctuation=False, functions=False, unary=False))
    (S (NNP Kim) (VBZ sleeps))
    """
    # Children before parents, without recursion: subtrees() in reverse order.
    done: dict[int, Tree | None] = {}
    for node in reversed(tree.subtrees()):
        label = node.label
        if isinstance(node.children[0], str):
            dropped = label == TRACE or (label in PUNCTUATION and not punctuation)
            done[id(node)] = None if dropped else node
            continue
        if not functions and not label.startswith("-"):
            label = re.split(r"[-=|]", label, maxsplit=1)[0]
        parts = [done[id(child)] for child in node.children]
        kept = tuple(part for part in parts if part is not None)
        if not kept:
            done[id(node)] = None
        elif len(kept) == 1 and not unary:
            done[id(node)] = kept[0]
        else:
            done[id(node)] = Tree(label, kept)
    return done[id(tree)]


def tree_spans(tree: Tree) -> list[tuple[int, int, str]]:
    """Return the constituents as (start, stop, label), stop excluded, parents first; tags are not included."""
    ends: dict[int, tuple[int, int]] = {}
    nodes = tree.subtrees()
    position = 0
    for node in nodes:  # words in their order
        if isinstance(node.children[0], str):
            ends[id(node)] = (position, position + 1)
            position += 1
    for node in reversed(nodes):
        if id(node) not in ends:
            first, last = node.children[0], node.children[-1]
            ends[id(node)] = (ends[id(first)][0], ends[id(last)][1])
    return [(*ends[id(node)], node.label) for node in nodes if not isinstance(node.children[0], str)]


def _bracketings(path: Readable) -> Iterator[tuple[int, str]]:
    """Yield the text of each tree and the number of its first line."""
    name = source_name(path)
    depth, first, parts = 0, 0, list[str]()
    with open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            at = 0
            for match in _BRACKET.finditer(line):
                if depth == 0:
                    outside = line[at : match.start()].strip()
                    if outside or match.group() == ")":
                        raise _outside(f"{name}:{number}", outside or ")")
                    first, at = number, match.start()
                depth += 1 if match.group() == "(" else -1
                if depth == 0:
                    yield first, " ".join([*parts, line[at : match.end()]])
                    parts, at = [], match.end()
            if depth:
                parts.append(line[at:])
            elif line[at:].strip():
                raise _outside(f"{name}:{number}", line[at:].strip())
    if depth:
        raise DataError(f"{name}:{first}: the tree that starts here lacks {depth} closing bracket(s) at its end.")


def _outside(where: str, text: str) -> DataError:
    return DataError(f"{where}: a tree must start with '(', got {shorten(text)} outside of trees.")
