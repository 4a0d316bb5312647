"""Learned parameters of a parser, and its answers: trees, labels and probabilities of sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Vocabulary
from trelliswork.data.vocabulary import strings
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.features.brown import BrownClusters
from trelliswork.features.knowledge import Knowledge
from trelliswork.inference.tree import NearlyProjective
from trelliswork.models.base import Arrays, check_finite
from trelliswork.models.parser.calibration import with_temperatures
from trelliswork.models.parser.data import (
    UNKNOWN,
    Arcs,
    Columns,
    Doubles,
    Integers,
    Sentences,
    TreeKind,
    read_arcs,
    read_sentences,
    read_trees,
)
from trelliswork.models.parser.features import ParseTokens, SecondOrderFeatures, TokenCoder
from trelliswork.models.parser.kernels.records import ArcList
from trelliswork.models.parser.labels import LabelModel
from trelliswork.models.parser.scoring import Beliefs, Judge, TreeScorer, check_temperatures, rule_out
from trelliswork.models.parser.tags import Taggers
from trelliswork.models.parser.templates import FeatureSet, feature_set

LabeledTree = list[tuple[int, str | None]]
Decode = Literal["viterbi", "mbr", "mbr-las"]
LEAST = 1e-3  # belief of the arcs that are labeled to choose a tree


@dataclass(frozen=True)
class Reader:
    """Conversion of sentences to codes; with ``taggers`` their tags are predicted."""

    coder: TokenCoder
    n_tags: int
    taggers: Taggers | None

    @classmethod
    def of(cls, columns: Columns, taggers: Taggers | None, min_count: int, clusters: BrownClusters | None) -> "Reader":
        """Return a reader that knows the frequent words of training sentences."""
        coder = TokenCoder.from_columns(columns.words, columns.tags[0], min_count, clusters)
        return cls(coder, len(columns.tags), taggers)

    @property
    def templates(self) -> FeatureSet:
        """Templates for the columns of tags, and for clusters of words if there are any."""
        return feature_set(self.n_tags > 1, self.coder.clusters is not None)

    def read(self, X: Sentences) -> tuple[ParseTokens, Columns]:
        """Return codes, and the columns that they come from, tags included."""
        return self.read_columns(read_sentences(X))

    def read_columns(self, columns: Columns) -> tuple[ParseTokens, Columns]:
        """Return codes of columns, and the columns, whose tags are replaced if there are taggers."""
        if self.taggers is not None:
            columns = self.taggers.tag(columns)
        elif not columns.words:
            columns = Columns([], [[]] * self.n_tags, columns.offsets)
        elif len(columns.tags) != self.n_tags:
            raise ShapeError(
                f"the parser was trained on words with {self.n_tags} columns of tags, got {len(columns.tags)}: give "
                "the tags, or train with a tagger."
            )
        return self.code(columns), columns

    def code(self, columns: Columns) -> ParseTokens:
        """Return the codes of sentences with tags."""
        return self.coder.code(columns.words, columns.tags[0], columns.tags[-1], columns.offsets)


@dataclass(frozen=True)
class Learned:
    """Learned parameters."""

    reader: Reader
    trees: TreeScorer
    labels: LabelModel | None

    def calibrated(self, judge: Judge) -> "Learned":
        """Return the parameters with the temperatures that fit sentences that training has not seen."""
        return replace(self, trees=with_temperatures(self.trees, self.labels, judge))

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return plain data and arrays to save."""
        reader, trees, labels = self.reader, self.trees, self.labels
        arrays: Arrays = {f"weights.{k}": one for k, one in enumerate(trees.weights)}
        plain: dict[str, Any] = {
            "order": trees.order,
            "n_tags": reader.n_tags,
            "words": reader.coder.words,
            "tags": reader.coder.tags,
            "labels": None if labels is None else list(labels.labels),
            "taggers": None,
            "temperatures": dict(trees.temperatures),
            "sharp": trees.sharp,
            "crossing_share": trees.share,
        }
        if reader.coder.clusters is not None:
            plain["knowledge"], own = Knowledge(reader.coder.clusters).state()
            arrays |= own
        if labels is not None:
            arrays["labels"] = labels.weights
        if reader.taggers is not None:
            plain["taggers"], own = reader.taggers.state()
            arrays |= own
        return plain, arrays

    @classmethod
    def from_state(cls, plain: dict[str, Any], arrays: Arrays, kind: TreeKind, bits: int) -> "Learned":
        """Build the parameters from ``state``'s result; damaged arrays are an error."""
        weights = tuple(arrays[f"weights.{k}"] for k in range(4 if plain["order"] == 2 else 1))
        for one in weights:
            if one.shape != (1 << bits,):
                raise ValueRangeError(f"weights must have shape ({1 << bits},), got {one.shape}.")
            check_finite("weights", one)
        taggers = None if plain["taggers"] is None else Taggers.from_state(plain["taggers"], arrays)
        n_tags = plain["n_tags"]
        if type(n_tags) is not int or n_tags < 1 or (taggers is not None and len(taggers.models) != n_tags):
            raise ValueRangeError(f"n_tags must be the number of taggers or of columns of tags, got {n_tags!r}.")
        temperatures = check_temperatures(plain["temperatures"])
        sharp, share = plain["sharp"], plain["crossing_share"]
        if not isinstance(sharp, float) or not 0 <= sharp < 1:
            raise ValueRangeError(f"sharp must be at least 0 and less than 1, got {sharp!r}.")
        if share is not None and not (isinstance(share, float) and 0 <= share <= 1):
            raise ValueRangeError(f"crossing_share must be between 0 and 1, or None, got {share!r}.")
        clusters = Knowledge.from_state(plain.get("knowledge", {}), arrays).clusters
        reader = Reader(TokenCoder(strings(plain["words"]), strings(plain["tags"]), clusters), n_tags, taggers)
        trees = TreeScorer.of(SecondOrderFeatures.of(reader.templates, bits), kind, share)
        trees = replace(trees, weights=weights, temperatures=temperatures, sharp=sharp)
        if plain["labels"] is None:
            return cls(reader, trees, None)
        rows, n_labels = arrays["labels"], len(plain["labels"])
        check_finite("labels", rows)
        if rows.ndim != 2 or rows.shape[1] != n_labels or len(rows) & (len(rows) - 1):
            raise ValueRangeError(f"weights of labels must have shape (power of 2, {n_labels}), got {rows.shape}.")
        labels = Vocabulary(strings(plain["labels"]))
        return cls(reader, trees, LabelModel(labels, rows, reader.templates))


@dataclass(frozen=True)
class Parsing:
    """Sentences under a model; each query computes batch by batch."""

    scorer: TreeScorer
    labels: LabelModel | None
    tokens: ParseTokens
    columns: Columns
    allowed: list[frozenset[int] | None] | None = None

    def batches(self) -> Iterator[tuple[TreeScorer, Integers]]:
        """Yield the indices of sentences that are computed together, and their model.

        If projective trees are a part of a mixture, sentences whose evidence excludes them have all trees.
        """
        scorer, tokens = self.scorer, self.tokens
        if self.allowed is None or scorer.share is None:
            yield from ((scorer, sentences) for sentences in scorer.batches(tokens))
            return
        crossing = np.zeros(len(tokens), bool)
        flat = replace(scorer.kind, projective=True)
        for sentences in scorer.batches(tokens):
            N = int(tokens.lengths[sentences].max()) + 1
            zeros = np.zeros((len(sentences), N, N))
            rule_out(zeros, tokens, sentences, self.allowed)
            log_z = flat.engine.log_partition(flat.potentials(zeros, tokens.lengths[sentences]))
            crossing[sentences] = log_z == -np.inf
        for one, some in ((scorer, ~crossing), (scorer.of_all_trees(), crossing)):
            yield from ((one, sentences) for sentences in one.batches(tokens, np.flatnonzero(some)))

    def beliefs(self) -> Iterator[Beliefs]:
        """Yield the beliefs of batches of sentences."""
        for scorer, sentences in self.batches():
            yield scorer.beliefs(self.tokens, sentences, self.allowed)

    def trees(self) -> Iterator[Beliefs]:
        """Yield beliefs with the scores of the distribution over whole trees that has these probabilities of arcs."""
        for b in self.beliefs():
            yield replace(b, tree_scores=self.scorer.tree_scores_of(b), sharp=None)

    def heads(self, decoding: Decode = "mbr") -> list[list[int]]:
        """Return trees; see `DependencyParser.predict`. Probabilities that they do not need are not computed."""
        self._check(decoding)
        trees: list[list[int]] = [[] for _ in range(len(self.tokens))]
        for scorer, sentences in self.batches():
            scored = scorer.scored(self.tokens, sentences, self.allowed)
            beliefs = (scorer if decoding == "viterbi" else scorer.for_trees()).infer(scored)
            heads = self._decoded(scorer, beliefs, decoding)
            for row, n in enumerate(sentences.tolist()):
                trees[n] = heads[row, : beliefs.lengths[row]].tolist()
        return trees

    def _check(self, decoding: Decode) -> None:
        if decoding not in get_args(Decode):
            raise ValueRangeError(f"decoding must be one of {', '.join(get_args(Decode))}, got {decoding!r}.")
        if decoding == "mbr-las" and self.labels is None:
            raise ValueRangeError("decoding='mbr-las' needs labels: train the parser with pairs (head, label).")

    def _decoded(self, scorer: TreeScorer, beliefs: Beliefs, decoding: Decode) -> Integers:
        """Return the heads (B, n) of a batch, from the beliefs of `for_trees`; for Viterbi, of probabilities."""
        if decoding == "viterbi":
            scores = scorer.tree_scores_of(beliefs)
            return beliefs.engine.best(scorer.kind.potentials(scores, beliefs.lengths))[0]
        heads = scorer.heads(beliefs)
        if decoding == "mbr" or self.labels is None:
            return heads
        rows, h, m = np.nonzero(beliefs.possible & (beliefs.arcs >= LEAST))
        flat, ends = np.concatenate([tree[:n] for tree, n in zip(heads, beliefs.lengths, strict=True)]), beliefs.lengths
        offsets = np.concatenate([[0], np.cumsum(ends)])
        arcs = ArcList(rows, h, m)
        some, temperature = self.tokens.some(beliefs.sentences), self.scorer.temperature("labels")
        labels = self.labels.arc_probabilities(some, flat, offsets, arcs, temperature)
        gains = np.zeros_like(beliefs.arcs)
        gains[rows, h, m] = beliefs.arcs[rows, h, m] * labels.max(axis=1)
        return scorer.heads(beliefs, gains)

    def names(self, heads: list[list[int]]) -> list[list[str | None]]:
        """Return the most probable labels of trees; ``None`` if the model has no labels."""
        if self.labels is None:
            return [[None] * len(tree) for tree in heads]
        flat = np.array([h for tree in heads for h in tree], np.int64)
        return self.columns.sentences(self.labels.best(self.tokens, flat, self.columns.offsets))

    def marginals(self) -> list[list[dict[int, float]]]:
        """Return the probabilities of the heads of each word, most probable first."""
        tables: list[list[dict[int, float]]] = [[] for _ in range(len(self.tokens))]
        for b in self.beliefs():
            for row, n in enumerate(b.sentences.tolist()):
                for d in range(1, int(b.lengths[row]) + 1):
                    heads = np.flatnonzero(b.possible[row, : b.lengths[row] + 1, d])
                    heads = heads[heads != d]
                    p = np.clip(b.arcs[row, heads, d], 0.0, 1.0)
                    tables[n].append({int(heads[k]): float(p[k]) for k in np.argsort(-p, kind="stable")})
        return tables

    def topk(self, k: int) -> list[list[tuple[LabeledTree, float]]]:
        """Return the k most probable trees with their best labels, and their probabilities."""
        trees: list[list[tuple[list[int], float]]] = [[([], 1.0)] for _ in range(len(self.tokens))]
        for b in self.trees():
            potentials = self.scorer.kind.potentials(b.tree_scores, b.lengths)
            log_z = b.engine.log_partition(potentials)
            heads, _, scores = b.engine.topk(potentials, potentials.log_arc[..., None], k)
            for row, n in enumerate(b.sentences.tolist()):
                trees[n] = [
                    (heads[row, j, : b.lengths[row]].tolist(), float(np.exp(scores[row, j] - log_z[row])))
                    for j in range(scores.shape[1])
                    if scores[row, j] > -np.inf
                ]
        ranked: list[list[tuple[LabeledTree, float]]] = [[] for _ in trees]
        for j in range(max(map(len, trees), default=0)):
            jth = [ranking[min(j, len(ranking) - 1)][0] for ranking in trees]
            for n, names in enumerate(self.names(jth)):
                if j < len(trees[n]):
                    ranked[n].append((list(zip(jth[n], names, strict=True)), trees[n][j][1]))
        return ranked

    def log_prob(self, y: Arcs) -> Doubles:
        """Return the log-probabilities (n_sentences,) of all trees that have the known heads."""
        heads = read_arcs(y, self.columns.offsets).heads.tolist()
        known = [None if head == UNKNOWN else frozenset((head,)) for head in heads]
        log_p, potentials = np.zeros(len(self.tokens)), self.scorer.kind.potentials
        for b in self.trees():
            agreeing = b.tree_scores.copy()
            rule_out(agreeing, self.tokens, b.sentences, known)
            log_p[b.sentences] = b.engine.log_partition(potentials(agreeing, b.lengths))
            log_p[b.sentences] -= b.engine.log_partition(potentials(b.tree_scores, b.lengths))
        return np.minimum(log_p, 0.0)

    def subtree_probabilities(self, heads: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return for each word the probability that the words below it, and their arcs, are those of the given tree.

        It is Z of the trees with these arcs and no others into the sub-tree, divided by Z: one pass per word.
        """
        flat, offsets = read_trees(heads, self.columns.offsets, "heads").heads, self.columns.offsets
        result: list[list[float]] = [[] for _ in range(len(self.tokens))]
        for b in self.trees():
            log_z = b.engine.log_partition(self.scorer.kind.potentials(b.tree_scores, b.lengths))
            for row, n in enumerate(b.sentences.tolist()):
                size = int(b.lengths[row])
                engine = b.engine
                if isinstance(engine, NearlyProjective):
                    engine = engine.rows(np.full(size, row))
                scores = np.repeat(b.tree_scores[row : row + 1, : size + 1, : size + 1], size, axis=0)
                scores[~arcs_of_subtrees(flat[offsets[n] : offsets[n + 1]])] = -np.inf
                potentials = self.scorer.kind.potentials(scores, np.full(size, size))
                log_p = engine.log_partition(potentials) - log_z[row]
                result[n] = np.exp(np.minimum(log_p, 0.0)).tolist()
        return result

    def label_probabilities(self, heads: Sequence[Sequence[int]]) -> list[list[dict[str, float]]]:
        """Return p(label | tree) of the arcs of complete trees, most probable first."""
        assert self.labels is not None
        flat = read_trees(heads, self.columns.offsets, "heads").heads
        names = list(self.labels.labels)
        rows = self.labels.probabilities(self.tokens, flat, self.columns.offsets, self.scorer.temperature("labels"))
        order = np.argsort(-rows, axis=1, kind="stable").tolist()
        tables = [{names[j]: row[j] for j in best} for row, best in zip(rows.tolist(), order, strict=True)]
        return self.columns.sentences(tables)


def arcs_of_subtrees(heads: Integers) -> NDArray[np.bool_]:
    """Return the arcs (n, n+1, n+1) that leave the sub-tree below each word of a tree as it is: head, word.

    Words below it have their heads, and all other words have heads outside of it; its own head is free.
    """
    n = len(heads)
    arcs = np.arange(n + 1)[:, None] == np.concatenate([[0], heads])  # of the tree
    itself = np.eye(n + 1, dtype=bool)
    below = arcs | itself  # [word, word below it or itself]
    for _ in range(n.bit_length()):
        below = below @ below
    return np.where((below & ~itself)[1:, None, :], arcs, ~below[1:, :, None])
