"""What a parser has learned, and the answers it gives: from sentences to trees, labels and probabilities."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trelliswork.data import Vocabulary
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.models.base import Arrays, check_finite
from trelliswork.models.parser.data import Columns, Evidence, Gold, Sentences, read_evidence, read_sentences, read_trees
from trelliswork.models.parser.features import ParseTokens, TokenCoder
from trelliswork.models.parser.first_order import ArcFeatures, Integers
from trelliswork.models.parser.labels import LabelModel
from trelliswork.models.parser.scoring import Beliefs, TreeScorer
from trelliswork.models.parser.second_order import PartFeatures, SecondOrderFeatures
from trelliswork.models.parser.tags import Taggers
from trelliswork.models.parser.templates import feature_set

Trees = list[list[int]]
LabelledTree = list[tuple[int, str | None]]


def features_of(n_tags: int, bits: int) -> SecondOrderFeatures:
    """The features of sentences with so many columns of tags."""
    found = feature_set(n_tags > 1)
    siblings, grandparents = (PartFeatures(templates, bits) for templates in (found.sibling, found.grandparent))
    return SecondOrderFeatures(ArcFeatures(found.arc, bits), siblings, grandparents)


@dataclass(frozen=True)
class Reader:
    """Sentences to codes; ``taggers`` if tags are predicted."""

    coder: TokenCoder
    n_tags: int
    taggers: Taggers | None

    def read(self, X: Sentences) -> tuple[ParseTokens, Columns]:
        """Codes, and the columns they come from, tags included."""
        columns = read_sentences(X)
        if self.taggers is not None:
            columns = self.taggers.tag(columns)
        elif not columns.words:
            columns = Columns([], [[]] * self.n_tags, columns.offsets)
        elif len(columns.tags) != self.n_tags:
            raise ShapeError(
                f"the parser was trained on words with {self.n_tags} columns of tags, got {len(columns.tags)}: give "
                "the tags, or train with a tagger."
            )
        return self.coder.code(columns.words, columns.tags[0], columns.tags[-1], columns.offsets), columns


@dataclass(frozen=True)
class Parsing:
    """Some sentences under a model: each query computes batch by batch."""

    scorer: TreeScorer
    labels: LabelModel | None
    tokens: ParseTokens
    columns: Columns
    allowed: list[frozenset[int] | None] | None = None

    @classmethod
    def of(
        cls, scorer: TreeScorer, labels: LabelModel | None, reader: Reader, X: Sentences, known: Evidence | None
    ) -> "Parsing":
        """Read the sentences."""
        tokens, columns = reader.read(X)
        allowed = None if known is None else read_evidence(known, columns.offsets)
        return cls(scorer, labels, tokens, columns, allowed)

    def beliefs(self) -> Iterator[Beliefs]:
        """Of batches of sentences."""
        for sentences in self.scorer.batches(self.tokens):
            yield self.scorer.beliefs(self.tokens, sentences, self.allowed)

    def heads(self) -> tuple[Trees, list[list[float]]]:
        """Minimum-risk trees and the probabilities of their arcs."""
        trees: Trees = [[] for _ in range(len(self.tokens))]
        probabilities: list[list[float]] = [[] for _ in range(len(self.tokens))]
        for b in self.beliefs():
            heads = self.scorer.heads(b)
            for row, n in enumerate(b.sentences.tolist()):
                size = int(b.lengths[row])
                trees[n] = heads[row, :size].tolist()
                p = b.arcs[row, heads[row, :size], np.arange(1, size + 1)]
                probabilities[n] = np.clip(p, 0.0, 1.0).tolist()
        return trees, probabilities

    def names(self, heads: Trees) -> list[list[str | None]]:
        """The likeliest labels of trees; ``None`` if there are no labels."""
        if self.labels is None:
            return [[None] * len(tree) for tree in heads]
        flat = np.array([h for tree in heads for h in tree], np.int64)
        best = self.labels.probabilities(self.tokens, flat, self.columns.offsets).argmax(axis=1).tolist()
        names: list[str | None] = [self.labels.labels[j] for j in best]
        return self._cut(names)

    def marginals(self) -> list[list[dict[int, float]]]:
        """For each word the probabilities of its heads, likeliest first."""
        found: list[list[dict[int, float]]] = [[] for _ in range(len(self.tokens))]
        for b in self.beliefs():
            for row, n in enumerate(b.sentences.tolist()):
                for d in range(1, int(b.lengths[row]) + 1):
                    heads = np.flatnonzero(b.possible[row, : b.lengths[row] + 1, d])
                    heads = heads[heads != d]
                    p = b.arcs[row, heads, d]
                    found[n].append({int(heads[k]): float(p[k]) for k in np.argsort(-p, kind="stable")})
        return found

    def topk(self, k: int) -> list[list[tuple[LabelledTree, float]]]:
        """The k likeliest trees with their best labels, and their probabilities."""
        engine = self.scorer.kind.engine
        trees: list[list[tuple[list[int], float]]] = [[([], 1.0)] for _ in range(len(self.tokens))]
        for b in self.beliefs():
            potentials = self.scorer.kind.potentials(b.tree_scores, b.lengths)
            log_z = engine.log_partition(potentials)
            heads, _, scores = engine.topk(potentials, potentials.log_arc[..., None], k)
            for row, n in enumerate(b.sentences.tolist()):
                trees[n] = [
                    (heads[row, j, : b.lengths[row]].tolist(), float(np.exp(scores[row, j] - log_z[row])))
                    for j in range(k)
                    if scores[row, j] > -np.inf
                ]
        found: list[list[tuple[LabelledTree, float]]] = [[] for _ in trees]
        for j in range(max(map(len, trees), default=0)):
            here = [some[min(j, len(some) - 1)][0] for some in trees]
            for n, names in enumerate(self.names(here)):
                if j < len(trees[n]):
                    found[n].append((list(zip(here[n], names, strict=True)), trees[n][j][1]))
        return found

    def label_probabilities(self, heads: Sequence[Sequence[int]]) -> list[list[dict[str, float]]]:
        """p(label | tree), likeliest first, of the arcs of whole trees."""
        if self.labels is None:
            raise ValueRangeError("the parser learned no labels: give fit labels.")
        flat = read_trees(heads, self.columns.offsets).heads
        names = list(self.labels.labels)
        rows = self.labels.probabilities(self.tokens, flat, self.columns.offsets)
        order = np.argsort(-rows, axis=1, kind="stable").tolist()
        values = rows.tolist()
        return self._cut([{names[j]: row[j] for j in best} for row, best in zip(values, order, strict=True)])

    def _cut(self, flat: list[Any]) -> list[list[Any]]:
        ends = self.columns.offsets.tolist()
        return [flat[a:b] for a, b in itertools.pairwise(ends)]


def uas(scorer: TreeScorer, tokens: ParseTokens, gold: Gold) -> float:
    """The part of the words with known heads that get them."""
    right = total = 0
    for sentences in scorer.batches(tokens):
        heads: Integers = scorer.heads(scorer.beliefs(tokens, sentences))
        given = gold.rows(sentences, heads.shape[1])
        right += int(((heads == given) & (given >= 0)).sum())
        total += int((given >= 0).sum())
    return right / max(total, 1)


def to_state(weights: tuple[Any, ...], reader: Reader, labels: LabelModel | None) -> tuple[dict[str, Any], Arrays]:
    """Plain data and arrays of what was learned."""
    arrays: Arrays = {f"weights.{k}": one for k, one in enumerate(weights)}
    plain: dict[str, Any] = {
        "n_tags": reader.n_tags,
        "words": reader.coder.words,
        "tags": reader.coder.tags,
        "labels": None,
        "taggers": None,
    }
    if labels is not None:
        plain["labels"] = list(labels.labels)
        arrays["labels"] = labels.weights
    if reader.taggers is not None:
        plain["taggers"], found = reader.taggers.state()
        arrays |= found
    return plain, arrays


def from_state(
    plain: dict[str, Any], arrays: Arrays, order: int, bits: int
) -> tuple[tuple[Any, ...], Reader, LabelModel | None]:
    """What ``to_state`` took apart."""
    weights = tuple(arrays[f"weights.{k}"] for k in range(4 if order == 2 else 1))
    for one in weights:
        if one.shape != (1 << bits,):
            raise ValueRangeError(f"weights must have shape ({1 << bits},), got {one.shape}.")
        check_finite("weights", one)
    taggers = None if plain["taggers"] is None else Taggers.from_state(plain["taggers"], arrays)
    reader = Reader(TokenCoder(plain["words"], plain["tags"]), plain["n_tags"], taggers)
    labels = None
    if plain["labels"] is not None:
        check_finite("labels", arrays["labels"])
        rows = arrays["labels"]
        if rows.ndim != 2 or rows.shape[1] != len(plain["labels"]) or len(rows) & (len(rows) - 1):
            raise ValueRangeError(f"weights of labels must be (power of 2, {len(plain['labels'])}), got {rows.shape}.")
        labels = LabelModel(Vocabulary(plain["labels"]), rows, feature_set(reader.n_tags > 1))
    return weights, reader, labels
