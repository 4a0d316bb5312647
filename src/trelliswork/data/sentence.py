"""Annotated sentences and constituent trees."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trelliswork.data.files import shorten

_TOKEN = re.compile(r"[()]|[^\s()]+")


@dataclass(frozen=True, slots=True)
class Tree:
    """A constituent: a label over subtrees, or a part-of-speech tag over one word.

    Parameters
    ----------
    label : str
        Category (``"NP"``) or, above a word, its tag (``"NN"``).
    children : tuple of Tree or str
        The parts from left to right; a word is a plain string.

    Examples
    --------
    >>> tree = Tree("NP", (Tree("DT", ("the",)), Tree("NN", ("cat",))))
    >>> print(tree)
    (NP (DT the) (NN cat))
    >>> tree.leaves()
    ('the', 'cat')
    >>> Tree.parse("(NP (DT the) (NN cat))") == tree
    True
    """

    label: str
    children: tuple[Tree | str, ...]

    def __str__(self) -> str:
        written: list[str] = []
        agenda: list[Tree | str] = [self]  # instead of recursion, so that depth has no limit
        while agenda:
            node = agenda.pop()
            if isinstance(node, str):
                written.append(node)
                continue
            written.append(f"({node.label}")
            agenda.append(")")
            for child in reversed(node.children):
                if isinstance(child, str):
                    child = child.replace("(", "-LRB-").replace(")", "-RRB-")
                agenda += (child, " ")
        return "".join(written)

    def leaves(self) -> tuple[str, ...]:
        """Return the words from left to right."""
        return tuple(child for node in self.subtrees() for child in node.children if isinstance(child, str))

    def preterminals(self) -> tuple[Tree, ...]:
        """Return the subtrees directly above a word, from left to right."""
        return tuple(node for node in self.subtrees() if any(isinstance(child, str) for child in node.children))

    def subtrees(self) -> list[Tree]:
        """Return every subtree including this one, parents before children, left before right."""
        nodes: list[Tree] = []
        agenda = [self]
        while agenda:
            node = agenda.pop()
            nodes.append(node)
            agenda.extend(child for child in reversed(node.children) if isinstance(child, Tree))
        return nodes

    @classmethod
    def parse(cls, text: str) -> Tree:
        """Read one Penn bracketing such as ``(S (NP (PRP It)) (VP (VBZ rains)))``.

        An unlabeled outer bracket, as in the files of the Penn Treebank, is removed. ``-LRB-`` and ``-RRB-`` become
        brackets.

        Parameters
        ----------
        text : str
            One bracketing; it may run over several lines.

        Returns
        -------
        Tree

        Raises
        ------
        ValueError
            If brackets do not match, a label or child is missing, words are mixed with subtrees, or text is left over.
        """
        # One frame (label, children) per open bracket; a stack instead of recursion, so that depth has no limit.
        frames: list[tuple[str, list[Tree | str]]] = []
        tokens = list(_TOKEN.finditer(text))
        done: Tree | None = None
        for i, match in enumerate(tokens):
            token, where = match.group(), match.start()
            if done is not None:
                raise ValueError(f"expected one bracketing, got more text after it: {text[where : where + 20]!r}.")
            if token == "(":
                frames.append(("", []))
            elif not frames:
                raise ValueError(f"a bracketing must start with '(', got {shorten(token)} at character {where}.")
            elif token != ")":
                if tokens[i - 1].group() == "(":
                    frames[-1] = (token, [])
                else:
                    frames[-1][1].append(token.replace("-LRB-", "(").replace("-RRB-", ")"))
            else:
                node = _close(*frames.pop(), where)
                if frames:
                    frames[-1][1].append(node)
                else:
                    done = node
        if frames:
            raise ValueError(f"{len(frames)} bracket(s) left open at the end of the text; add ')'.")
        if done is None:
            raise ValueError("expected a bracketing such as '(S (NP (PRP It)) ...)', got an empty text.")
        return done


def _close(label: str, children: list[Tree | str], where: int) -> Tree:
    """Build the node whose ``)`` is at character ``where``."""
    if not label:
        if len(children) == 1 and isinstance(children[0], Tree):
            return children[0]
        raise ValueError(f"the constituent that ends at character {where} has no label.")
    if not children:
        raise ValueError(f"constituent {shorten(label)} that ends at character {where} has no children.")
    if any(isinstance(child, str) for child in children) and len(children) > 1:
        raise ValueError(
            f"constituent {shorten(label)} that ends at character {where} must have either one word or only subtrees."
        )
    return Tree(label, tuple(children))


@dataclass(frozen=True, slots=True)
class TreebankSentence:
    """One sentence with all its layers of annotation; every layer but the tree has one entry per word.

    Parameters
    ----------
    words : tuple of str
    tags : tuple of str
        Penn Treebank part-of-speech tags.
    chunks : tuple of str
        Base phrases in IOB2: ``B-NP``, ``I-NP``, ``O``.
    heads : tuple of int
        ``heads[i]`` is the 1-based position of the governor of word ``i + 1``; 0 marks the root.
    relations : tuple of str
        Universal-Dependencies-style label of the arc from ``heads[i]``.
    tree : Tree
        Constituents; its leaves are ``words``, its preterminals ``tags``.
    upos : tuple of str
        Universal part-of-speech tags.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    chunks: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    tree: Tree
    upos: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.words)

    def __str__(self) -> str:
        return " ".join(self.words)
