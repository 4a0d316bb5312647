"""Dependency parsers: first-order trees exactly, second-order trees by belief propagation (paper 3)."""

import math
import os
from collections.abc import Sequence
from dataclasses import KW_ONLY
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ShapeError, ValueRangeError, extras_for
from trelliswork.features.knowledge import Knowledge
from trelliswork.inference.tree import NearlyProjective
from trelliswork.learning.checkpoint import fingerprint
from trelliswork.learning.distributed import one_process
from trelliswork.learning.report import Callback, FitReport
from trelliswork.models.base import Arrays, Description, watch_for
from trelliswork.models.entrance import COLUMNS
from trelliswork.models.parameters import (
    TRAINING,
    BatchSize,
    Clusters,
    Parameter,
    Patience,
    Seed,
    estimator,
    later,
)
from trelliswork.models.parser.data import (
    Arcs,
    Columns,
    Evidence,
    Gold,
    Sentences,
    TreeKind,
    read_development,
    read_evidence,
    read_gold,
    read_sentences,
    read_training,
)
from trelliswork.models.parser.decoding import Decode, LabeledTree, Learned, Parsing, Reader
from trelliswork.models.parser.features import SecondOrderFeatures
from trelliswork.models.parser.labels import LabelModel, LabelTrainer
from trelliswork.models.parser.scoring import Judge, TreeScorer, check_lengths, tree_kinds
from trelliswork.models.parser.second_order import Propagation
from trelliswork.models.parser.tags import TaggerKind, Tagging
from trelliswork.models.parser.templates import FeatureSet
from trelliswork.models.parser.training import (
    FIRST,
    LABELS,
    SECOND,
    FirstOrder,
    Problem,
    SecondOrder,
    Stages,
    TreeTrainer,
)
from trelliswork.models.tasks import TreeParser

if TYPE_CHECKING:
    from trelliswork.distributions import NearlyProjectiveTree, ProjectiveTree, SpanningTree

SECOND_ORDER_RATE, LABEL_RATE = 0.25, 2.5  # step sizes as multiples of that of the first order: the best on UD EWT


@estimator
class DependencyParser(TreeParser):
    """A dependency parser with probabilities for its arcs.

    It is trained in stages: taggers (if any), first order, second order, labels, by one process. Results do not depend
    on the number of threads.

    Attributes
    ----------
    labels_ : tuple of str or None
        Labels of arcs; ``None`` if the training data has none.
    report_ : FitReport
        ``value`` is the loss of the trees in their last epoch; ``dev`` is that of the last stage that was measured:
        UAS of the trees, LAS of the labels. ``details["kept_stage"]`` is the stage whose trees the parser predicts,
        "first order" or "second order". ``details["dropped_heads"]`` is the number of training heads that were
        treated as unknown, because no tree of the kind has all of them. ``details["temperatures"]`` are the divisors
        of the scores of each kind of factor (arcs, siblings, grandparents, labels); with order 2, ``details["sharp"]``
        is the share of the beliefs at temperature 1 in the probabilities of arcs. ``details["calibrated_on"]`` names
        the data that they come from.

    Examples
    --------
    >>> X = [[("dogs", "N"), ("bark", "V")], [("big", "A"), ("dogs", "N"), ("bark", "V")]]
    >>> y = [[(2, "nsubj"), (0, "root")], [(2, "amod"), (3, "nsubj"), (0, "root")]]
    >>> parser = DependencyParser(order=1, hash_bits=12, min_count=1).fit(X, y)
    >>> parser.predict([[("big", "A"), ("cats", "N"), ("bark", "V")]])
    [[(2, 'amod'), (3, 'nsubj'), (0, 'root')]]
    """

    family: ClassVar[str] = "parser"
    _tokens: ClassVar[tuple[type, ...]] = COLUMNS
    _title: ClassVar[str] = "Dependency parser"
    _apart: ClassVar[tuple[str, ...]] = ("clusters",)
    labels_: tuple[str, ...] | None = later()
    _fit_sets: ClassVar[str] = "_learned"
    _learned: Learned = later()

    order: Annotated[
        int,
        Parameter(
            "1: arcs are scored one by one, and all sums are exact. 2: consecutive siblings and grandparents are "
            "scored too, by belief propagation on the arcs that a first-order model keeps.",
            minimum=1,
            maximum=2,
        ),
    ] = 2
    _: KW_ONLY
    projective: Annotated[
        bool,
        Parameter("Arcs must not cross. Crossing arcs of the training trees are treated as unknown."),
    ] = True
    single_root: Annotated[bool, Parameter("Exactly one word depends on the root.")] = True
    tagger: Annotated[
        TaggerKind | None,
        Parameter(
            "Kind of tagger that is trained and saved with the parser, one per column of tags. Training sentences are "
            "tagged by taggers that have not seen them.",
            unset="sentences come with tags",
        ),
    ] = None
    clusters: Clusters = None
    min_count: Annotated[
        int, Parameter("Words that occur less often are represented by shape, prefix and suffix.", minimum=1)
    ] = 2
    hash_bits: Annotated[
        int,
        Parameter(
            "Features are hashed to 2^hash_bits weights of each kind (4 bytes each; order 2 has four kinds), those "
            "of labels to 2^(hash_bits - 5) rows of one weight per label.",
            minimum=8,
            maximum=30,
        ),
    ] = 22
    max_iter: Annotated[int, Parameter("Epochs of each order; labels have one more.", minimum=1, panel=TRAINING)] = 3
    batch_size: BatchSize = 32
    learning_rate: Annotated[
        float,
        Parameter(
            "Step size of AdaGrad for the first order; the second order uses a quarter, labels 2.5 times it.",
            above=0,
            below=math.inf,
            panel=TRAINING,
        ),
    ] = 0.02
    calibrated: Annotated[
        bool,
        Parameter(
            "Fit the temperatures of the scores on development data, so that probabilities are frequencies.",
            panel=TRAINING,
        ),
    ] = True
    patience: Patience = 3
    seed: Seed = 0

    def fit(
        self,
        X: Sentences,
        y: Arcs,
        *,
        dev: tuple[Sentences, Arcs] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callback: Callback | None = None,
        max_minutes: float | None = None,
    ) -> Self:
        """Train on sentences with trees.

        Parameters
        ----------
        X : list of sentences, or Corpus
            Sentences of (word, tag) or (word, tag, second tag), such as UPOS and XPOS; a ``Corpus`` of two or three
            columns. With ``tagger`` these are the tags that it learns.
        y : list of lists
            For each word its head, counted from 1, 0 for the root, ``None`` if unknown; or a pair (head, label), with
            ``None`` for an unknown head or label.
        dev : (X, y), optional
            Development data: each stage keeps its best epoch, by UAS for trees and by LAS for labels, and stops after
            ``patience`` epochs without an improvement. The second order is kept unless its UAS is lower than that of
            the first order; without development data it is always kept.
        callback : callable, optional
            Called with a `Step` after each epoch, and for each tagger and its iterations with one that has no value.
            A true result stops training, with at least one epoch of trees and one of labels; taggers in training
            stop at once.
        """
        self._check_parameters()
        one_process("a parser")
        clusters = Knowledge.of(self.clusters).clusters
        columns, given = read_training(X, y)  # sentences, and their heads and labels as numbers
        held_out = None if dev is None else read_development(*dev)
        n_iter = Propagation.max_iter if self.order == 2 else 0
        check_lengths(columns.lengths, n_iter, min(self.batch_size, len(columns.lengths)))
        mark = partial(self._fingerprint, (columns, given), held_out)
        stages = Stages(watch_for(self, None, checkpoint, mark, callback, max_minutes))
        taggers, columns = stages.train_taggers(Tagging(self.tagger, columns, self.seed, clusters))
        reader = Reader.of(columns, taggers, self.min_count, clusters)  # codes of words and tags
        problem = Problem.of(reader.code(columns), given, self._tree_kind())
        judge = None if held_out is None else Judge(reader.read_columns(held_out[0])[0], held_out[1])
        trees = self._train_trees(reader.templates, problem, judge, stages)
        labels = self._train_labels(reader.templates, problem, trees, judge, stages)
        learned, report = Learned(reader, trees, labels), stages.finish(trees)
        report.details["dropped_heads"] = problem.gold.n_dropped
        if self.calibrated and judge is not None:
            learned = learned.calibrated(judge)
            report.details["calibrated_on"] = "development data"
        self._set(learned, report)
        return self

    def _train_trees(self, templates: FeatureSet, problem: Problem, judge: Judge | None, stages: Stages) -> TreeScorer:
        """Train the first order, then the second; return the better model."""
        features, rate, n_epochs = SecondOrderFeatures.of(templates, self.hash_bits), self.learning_rate, self.max_iter
        trees = TreeScorer.of(features, self._tree_kind(), problem.crossing)
        trainer: TreeTrainer = FirstOrder(problem, trees, rate, self.batch_size, (self.seed, 0))
        trees = trees.with_weights(stages.train(FIRST, trainer, n_epochs, judge))
        if self.order == 1 or stages.watch.interrupted:
            return trees
        trainer = SecondOrder(problem, trees, SECOND_ORDER_RATE * rate, self.batch_size, (self.seed, 1))
        return stages.better(trees, trees.with_weights(stages.train(SECOND, trainer, n_epochs, judge)), judge)

    def _train_labels(
        self, templates: FeatureSet, problem: Problem, trees: TreeScorer, judge: Judge | None, stages: Stages
    ) -> LabelModel | None:
        """Return the classifier of labels; ``None`` if no label is known."""
        if problem.given.labels is None:
            return None
        rate = LABEL_RATE * self.learning_rate
        trainer = LabelTrainer(problem.tokens, problem.given, trees, templates, rate=rate, seed=self.seed)
        return trainer.model(stages.train(LABELS, trainer, self.max_iter + 1, judge))

    def _calibrate_temperature(self, X: Sentences, y: Arcs) -> dict[str, float]:
        """Fit and store the temperatures on sentences that training has not seen; return them by kind of factor."""
        self._check_fitted()
        tokens, columns = self._learned.reader.read(X)
        self._set(self._learned.calibrated(Judge(tokens, read_gold(y, columns.offsets))), self.report_)
        self.report_.details["calibrated_on"] = "held-out data"
        return dict(self.report_.details["temperatures"])

    def predict(self, X: Sentences, *, known: Evidence | None = None, decoding: Decode = "mbr") -> list[LabeledTree]:
        """Return head and label of each word, by default in the tree with the most expected correct arcs.

        Parameters
        ----------
        X : as in ``fit``; words alone if the parser has a tagger
        known : list of lists, optional
            Evidence: for each word its head, a set of possible heads, or ``None`` if nothing is known.
        decoding : {"mbr", "viterbi", "mbr-las"}
            "mbr": the largest expected number of correct heads. "viterbi": the most probable tree, the first of
            `predict_topk`. "mbr-las": the largest expected number of words with correct head and label; the probability
            of the label of an arc is that in the first tree, with the word moved to the head in question.
        """
        parsing = self._parsing(X, known)
        heads = parsing.heads(decoding)
        return [list(zip(*rows, strict=True)) for rows in zip(heads, parsing.names(heads), strict=True)]

    def predict_marginals(self, X: Sentences, *, known: Evidence | None = None) -> list[list[dict[int, float]]]:
        """Return p(head | sentence, evidence) of each word, most probable first; with order 2 of the unpruned heads."""
        return self._parsing(X, known).marginals()

    def _subtree_probabilities(self, X: Sentences, heads: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return for each word of given trees p(the words below it and all their arcs are those of the tree).

        A word without dependents has the probability of having none; that of the root, in a tree with a single root, is
        that of the whole tree. They follow the distribution of `posterior`; labels are not considered.
        """
        return self._parsing(X, None).subtree_probabilities(heads)

    def log_prob(self, X: Sentences, y: Arcs) -> NDArray[np.float64]:
        """Return log p(heads | sentence) (n_sentences,), by the distribution of `posterior`.

        ``y`` is as in ``fit``; where heads are ``None``, it is the probability of all trees with the others. Labels do
        not count.
        """
        return self._parsing(X, None).log_prob(y)

    def predict_topk(
        self, X: Sentences, k: int, *, known: Evidence | None = None
    ) -> list[list[tuple[LabeledTree, float]]]:
        """Return the k most probable trees of each sentence with their probabilities, best first.

        Trees follow the distribution of `posterior`, which is exact for first-order models; each has its best labels.
        """
        if k < 1:
            raise ValueRangeError(f"k must be at least 1, got {k}.")
        return self._parsing(X, known).topk(k)

    @extras_for("posterior")
    def posterior(
        self, sentence: Sequence[Any], *, known: Any = None
    ) -> "ProjectiveTree | NearlyProjectiveTree | SpanningTree":
        """Return the distribution over trees of one sentence, for any query.

        For a first-order model it is p(tree | sentence). For a second-order model it is the first-order distribution
        whose marginals are the beliefs: the belief of the tree factor, which sees pairs of arcs through messages.
        With ``projective=False`` it is a mixture of projective and all trees (``details["crossing_share"]``), as a
        `NearlyProjectiveTree`; a `SpanningTree` if evidence excludes projective trees, or if most training sentences
        had crossing arcs.
        """
        import torch

        from trelliswork.distributions import NearlyProjectiveTree, ProjectiveTree, SpanningTree

        if not len(sentence):
            raise ShapeError("sentence must have at least one word.")
        parsing = self._parsing([list(sentence)], None if known is None else [known])
        (beliefs,) = parsing.trees()
        scores, single_root = torch.from_numpy(beliefs.tree_scores), bool(self.single_root)
        if isinstance(beliefs.engine, NearlyProjective):
            return NearlyProjectiveTree(scores, beliefs.engine.cost, single_root=single_root)
        return (ProjectiveTree if self.projective else SpanningTree)(scores, single_root=single_root)

    def score(self, X: Sentences, y: Arcs) -> float:
        """Return the LAS if ``y`` and the parser have labels, else the UAS.

        LAS is the fraction of the words with the correct head and label, UAS that with the correct head. Words whose
        head (for LAS: or label) is ``None`` do not count.
        """
        parsing = self._parsing(X, None)
        gold, labels = read_gold(y, parsing.columns.offsets), parsing.labels
        heads = Judge(parsing.tokens, gold).heads(parsing.scorer)
        if gold.labels is None or labels is None:
            return gold.accuracy(heads)
        return gold.accuracy(heads, labels.best(parsing.tokens, heads, gold.offsets))

    def _judged(
        self, X: Sentences, gold: Sequence[Sequence[int]], labels: Sequence[Any] | None, decoding: Decode
    ) -> list[list[list[Any]]]:
        """Return for `trelliswork.evaluate` a column of each of these, with a row for each sentence.

        Heads; labels; p(head); p(gold head); given the tree, pairs p(label), p(gold label), empty without labels; and
        whether each predicted tag is the given one (``None`` if that is ``_``), empty without a tagger.
        """
        parsing = self._parsing(X, None)
        heads, tables = parsing.heads(decoding), parsing.marginals()
        names = parsing.names(heads)
        p, of_gold = (
            [[row.get(h, 0.0) for row, h in zip(*rows, strict=True)] for rows in zip(tables, trees, strict=True)]
            for trees in (heads, gold)
        )
        of_labels: list[list[Any]] = [[] for _ in heads]
        if labels is not None and parsing.labels is not None:
            rows: Any = zip(parsing.label_probabilities(heads), names, labels, strict=True)
            of_labels = [[[row[a], row.get(b, 0.0)] for row, a, b in zip(*one, strict=True)] for one in rows]
        given = [] if self.tagger is None else zip(read_sentences(X).tags, parsing.columns.tags, strict=False)
        right = [[None if g == "_" else g == p for g, p in zip(*tags, strict=True)] for tags in given]
        of_tags = parsing.columns.sentences([list(word) for word in zip(*right, strict=True)])
        return [heads, names, p, of_gold, of_labels, of_tags]

    def tag(self, X: Sentences) -> list[list[str]]:
        """Return the columns of tags that the parser uses, flat: predicted by its taggers, or as given."""
        self._check_fitted()
        return self._learned.reader.read(X)[1].tags

    @property
    def _n_columns(self) -> int:
        """Number of columns of an input token: word and tags, or the word alone if the parser has a tagger."""
        self._check_fitted()
        return 1 if self.tagger is not None else 1 + self._learned.reader.n_tags

    @property
    def kind(self) -> str:
        """Whether probabilities are "exact" (order 1) or an "estimate" (order 2, by belief propagation)."""
        return "exact" if self._learned.trees.order == 1 else "estimate"

    def known_words(self) -> set[str]:
        """Return the words that have features of their own, in lower case."""
        self._check_fitted()
        return set(self._learned.reader.coder.words)

    def describe(self, n: int = 20, label: str | None = None) -> Description:
        """Return facts about the parser; its features are hashed, so that weights have no names."""
        self._check_fitted()
        if label is not None:
            raise ValueRangeError("the weights of a parser have no names, so that there are none of a label.")
        trees = self._learned.trees
        facts = {
            "order": trees.order,
            "trees": "projective" if self.projective else "non-projective",
            "tagger": self.tagger or "none",
            "words": len(self.known_words()),
            "labels": None if self.labels_ is None else list(self.labels_),
            "weights": sum(map(len, trees.weights)),
            "active": sum(int((w != 0).sum()) for w in trees.weights),
            "dropped_heads": self.report_.details["dropped_heads"],
            "temperatures": self.report_.details["temperatures"],
            "sharp": trees.sharp,
            "calibrated_on": self.report_.details.get("calibrated_on", "nothing: temperatures are 1"),
            "parameters": self._values("clusters"),
        }
        return Description(f"Dependency parser of order {trees.order}; features are hashed and have no names", facts)

    def _set(self, learned: Learned, report: FitReport) -> None:
        """Set all learned attributes at once, so that a failed fit leaves them unchanged."""
        trees, self.calibration_ = learned.trees, None
        self._learned, self.report_ = learned, report
        self.labels_ = None if learned.labels is None else learned.labels.labels.names
        kinds = (*tree_kinds(trees.order == 2), *(() if learned.labels is None else ("labels",)))
        report.details["temperatures"] = {kind: trees.temperature(kind) for kind in kinds}
        if trees.order == 2:
            report.details["sharp"] = trees.sharp
        if not self.projective:
            report.details["crossing_share"] = trees.share

    def _tree_kind(self) -> TreeKind:
        return TreeKind(bool(self.projective), bool(self.single_root))

    def _parsing(self, X: Sentences, known: Evidence | None) -> Parsing:
        self._check_fitted()
        learned = self._learned
        tokens, columns = learned.reader.read(X)
        allowed = None if known is None else read_evidence(known, columns.offsets)
        return Parsing(learned.trees, learned.labels, tokens, columns, allowed)

    def _fingerprint(self, *data: tuple[Columns, Gold] | None) -> str:
        """Return a text that differs for other parameters (limits aside) or data."""
        plain: dict[str, Any] = self._values("clusters", "max_iter")
        clusters = Knowledge.of(self.clusters).clusters
        plain["clusters"] = None if clusters is None else clusters.paths_
        parts = [part for part in data if part is not None]
        plain["data"] = [[columns.words, columns.tags, gold.labels] for columns, gold in parts]
        return fingerprint(plain, *(array for _, gold in parts for array in (gold.heads, gold.offsets)))

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        return self._learned.state()

    def _restore(self, plain: dict[str, Any], arrays: Arrays) -> None:
        learned = Learned.from_state(plain, arrays, self._tree_kind(), self.hash_bits)
        self._set(learned, self.report_)
        self.clusters = learned.reader.coder.clusters
