"""Output of ``trelliswork parse``: CoNLL-U with new heads and labels, or JSON."""

import json as json_module
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from trelliswork.data import Corpus
    from trelliswork.models import DependencyParser

HEAD, DEPREL, DEPS, MISC = 6, 7, 8, 9  # columns of CoNLL-U
ARC_PROBABILITY, SUBTREE_PROBABILITY, TREE_PROBABILITY = "ArcProb=", "SubtreeProb=", "# tree_prob ="
Cells = dict[int, str]  # column and its new value


@dataclass
class Parse:
    """One tree of a sentence."""

    heads: list[int]
    labels: list[str | None]  # None if the parser has none
    arcs: list[float] = field(default_factory=list)  # probabilities of the arcs; empty for the k best trees
    probability: float | None = None  # of the tree, for the k best trees and with sub-trees
    subtrees: list[float] = field(default_factory=list)  # probabilities of the sub-trees; empty if not requested

    def cells(self, marginals: bool) -> list[Cells]:
        """Return the new column values of each word."""
        rows = [{HEAD: str(h), DEPREL: name or "_", DEPS: "_"} for h, name in zip(self.heads, self.labels, strict=True)]
        if marginals:
            for row, p in zip(rows, self.arcs, strict=True):
                row[MISC] = f"{ARC_PROBABILITY}{p:.4f}"
        for row, p in zip(rows, self.subtrees, strict=False):
            row[MISC] = "|".join([*([row[MISC]] if MISC in row else []), f"{SUBTREE_PROBABILITY}{p:.4f}"])
        return rows

    def comment(self) -> str:
        """Return the comment above a tree."""
        return "" if self.probability is None else f"{TREE_PROBABILITY} {self.probability:.6f}\n"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        plain: dict[str, Any] = {"heads": self.heads, "labels": self.labels}
        if self.probability is not None:
            plain["probability"] = self.probability
        if self.subtrees:
            plain["subtree_probabilities"] = self.subtrees
        return plain | ({"arc_probabilities": self.arcs} if self.arcs or self.probability is None else {})


def parses(
    parser: "DependencyParser", corpus: "Corpus", evidence: Any, topk: int | None, decode: Any = "posterior"
) -> Iterator[list[Parse]]:
    """Yield the trees of each sentence: the one that ``decode`` chooses, or the k most probable ones."""
    if topk is None:
        for sentence in parser.parse(corpus, known=evidence, decoding=str(decode)):  # type: ignore[arg-type]
            yield [Parse([h for h, _, _ in sentence], [name for _, name, _ in sentence], [p for _, _, p in sentence])]
        return
    for trees in parser.predict_topk(corpus, topk, known=evidence):
        yield [Parse([h for h, _ in tree], [name for _, name in tree], probability=p) for tree, p in trees]


def add_subtrees(parser: "DependencyParser", corpus: "Corpus", results: list[list[Parse]]) -> None:
    """Add the probabilities of sub-trees and whole trees to the only tree of each sentence."""
    import numpy as np

    heads = [trees[0].heads for trees in results]
    if not heads:
        return
    whole = np.exp(parser.log_prob(corpus, heads)).tolist()
    for (tree,), below, p in zip(results, parser.predict_subtree_probabilities(corpus, heads), whole, strict=True):
        tree.subtrees, tree.probability = below, p


def tag_cells(parser: "DependencyParser", corpus: "Corpus", columns: list[str]) -> list[Cells]:
    """Return the tagger's tags of all words."""
    from trelliswork.data.conllu import COLUMNS

    tags = parser.tag(corpus)
    indices = [COLUMNS.index(name) for name in columns[1:]]
    return [dict(zip(indices, row, strict=True)) for row in zip(*tags, strict=True)]


def write_json(corpus: "Corpus", results: list[list[Parse]], topk: bool, out: TextIO) -> None:
    """Write one object per sentence and line: words and the tree, or the k best ``trees``."""
    from trelliswork.data.tokenize import TokenizedText

    for n, (words, trees) in enumerate(zip(corpus.sentences(0), results, strict=True)):
        plain: dict[str, Any] = {"words": words}
        if isinstance(corpus, TokenizedText):
            plain |= corpus.located(n)
        plain |= {"trees": [one.to_dict() for one in trees]} if topk else trees[0].to_dict()
        out.write(json_module.dumps(plain, ensure_ascii=False) + "\n")


def write_text(
    corpus: "Corpus", results: list[list[Parse]], tags: list[Cells] | None, marginals: bool, out: TextIO
) -> None:
    """Write CoNLL-U for sentences that were read from plain or raw text."""
    from trelliswork.data.tokenize import TokenizedText

    raw = corpus if isinstance(corpus, TokenizedText) else None
    for n, ((start, stop), trees) in enumerate(zip(pairwise(corpus.offsets.tolist()), results, strict=True)):
        for tree in trees:
            rows = tree.cells(marginals)
            out.write(tree.comment())
            if raw is not None:
                out.write(f"# text = {raw.sentence_text(n)}\n")
                for i, row in enumerate(rows, start=start):
                    kept = [row[MISC]] if MISC in row else []
                    places = [f"TokenRange={raw.starts[i]}:{raw.stops[i]}"]
                    row[MISC] = "|".join([*kept, *([] if raw.space_after(i) else ["SpaceAfter=No"]), *places])
            for i in range(start, stop):
                cells = {0: str(i - start + 1), 1: corpus.columns[0][i], **(tags[i] if tags else {}), **rows[i - start]}
                out.write("\t".join(cells.get(c, "_") for c in range(10)) + "\n")
            out.write("\n")


def write_conllu(
    corpus: "Corpus", results: list[list[Parse]], tags: list[Cells] | None, marginals: bool, out: TextIO
) -> None:
    """Write the lines of a file with new cells; a sentence is repeated for each tree, with a distinct sent_id."""
    assert corpus.lines is not None
    assert corpus.token_lines is not None
    word_at = {line: i for i, line in enumerate(corpus.token_lines.tolist())}
    remaining = iter(zip(corpus.offsets.tolist(), results, strict=False))
    block: list[int] = []
    for number, line in enumerate([*corpus.lines, ""]):
        if line.strip("\t "):
            block.append(number)
            continue
        if any(n in word_at for n in block):
            start, trees = next(remaining)
            for copy, tree in enumerate(trees, start=1):
                rows = tree.cells(marginals)
                out.write(tree.comment())
                for n in block:
                    text = corpus.lines[n]
                    if n in word_at:
                        i = word_at[n]
                        text = _replace(text, {**(tags[i] if tags else {}), **rows[i - start]})
                    elif text.startswith(TREE_PROBABILITY):
                        continue  # from an earlier parse
                    elif copy > 1 and re.match(r"#\s*sent_id\s*=", text):
                        text = f"{text.rstrip()}-tree{copy}"
                    out.write(f"{text}\n")
                out.write("\n")
        elif block:  # comments without a sentence
            for n in block:
                out.write(f"{corpus.lines[n]}\n")
            out.write("\n" if number < len(corpus.lines) else "")
        block = []


def _replace(line: str, cells: Cells) -> str:
    """Return a word's line with new cells, without the arc probability of an earlier parse."""
    fields = line.split("\t")
    earlier = (ARC_PROBABILITY, SUBTREE_PROBABILITY)
    kept = [part for part in fields[MISC].split("|") if part != "_" and not part.startswith(earlier)]
    for column, value in cells.items():
        if column == MISC:
            kept.append(value)
        else:
            fields[column] = value
    fields[MISC] = "|".join(kept) or "_"
    return "\t".join(fields)
