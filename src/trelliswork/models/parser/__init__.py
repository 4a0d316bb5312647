"""Dependency parsers: trees of the first order exactly, of the second order by belief propagation (paper 3)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.learning.lbfgs import FitReport
from trelliswork.metrics.dependencies import ParseReport, evaluate_parsing
from trelliswork.models.base import Arrays, Estimator
from trelliswork.models.parser.data import (
    Evidence,
    Heads,
    Names,
    Sentences,
    read_heads,
    read_labels,
    read_sentences,
    read_trees,
    without_empty,
)
from trelliswork.models.parser.decoding import (
    LabelledTree,
    Parsing,
    Reader,
    Trees,
    features_of,
    from_state,
    to_state,
    uas,
)
from trelliswork.models.parser.features import TokenCoder
from trelliswork.models.parser.first_order import TreeKind
from trelliswork.models.parser.labels import train_labels
from trelliswork.models.parser.scoring import TreeScorer
from trelliswork.models.parser.second_order import Propagation, SecondOrderFeatures
from trelliswork.models.parser.settings import check_settings
from trelliswork.models.parser.tags import TaggerKind, Taggers, jackknife
from trelliswork.models.parser.templates import feature_set
from trelliswork.models.parser.training import Callback, FirstOrder, Learned, SecondOrder, Watch

if TYPE_CHECKING:
    from trelliswork.distributions import ProjectiveTree, SpanningTree


class DependencyParser(Estimator):
    """A dependency parser with probabilities for its arcs.

    Parameters
    ----------
    order : {1, 2}
        1: arcs are scored one by one and all sums are exact. 2: consecutive siblings and grandparents are scored too,
        on the arcs that a first-order model leaves, by belief propagation.
    projective : bool
        True if arcs must not cross. Arcs of training trees that do count as unknown then.
    single_root : bool
        True if exactly one word hangs from the root.
    tagger : {"crf", "hmm"} or None
        Who tags: a tagger of our own for each column of tags, learned with the parser and saved with it (training
        sentences are tagged by taggers that have not seen them), or nobody: sentences come with their tags.
    min_count : int
        Words seen less often are known by shape, prefix and suffix only.
    hash_bits : int
        Features are hashed to ``2**hash_bits`` weights of each kind (4 bytes each; order 2 has four kinds), those of
        labels to ``2**(hash_bits - 5)`` rows of one weight a label.
    epochs, second_epochs, label_epochs : int
        Passes over the sentences of each stage of training.
    batch_size : int
        Sentences of a step.
    rate, second_rate, label_rate : float
        Of AdaGrad.
    threshold : float
        Pruning keeps arcs of at least this part of the probability of the likeliest arc into the same word.
    max_iter, tree_every, tolerance, damping
        Of belief propagation (``inference.tree.second_order.infer``).
    patience : int
        With development data: a stage stops after so many epochs without a better UAS.
    seed : int
        Of the order of sentences. Results do not depend on the number of threads.

    Attributes
    ----------
    weights_ : tuple of ndarray of float32 (2**hash_bits,)
        Of arcs; with order 2 also of arcs, siblings and grandparents of the second-order model.
    labels_ : Vocabulary or None
        Labels of arcs; ``None`` if there were none in training.
    order_ : int
        1 if training was stopped before the second order began.
    report_ : FitReport
        ``converged`` if patience ended the last stage.
    dev_uas_ : float or None
        UAS of the epoch that the last stage kept, on the development data.
    n_dropped_ : int
        Heads of the training trees that counted as unknown, since no tree of the wanted kind has them all.
    input_ : dict
        How the training file was laid out, if the command line read one; saved with the model.

    Examples
    --------
    >>> X = [[("dogs", "N"), ("bark", "V")], [("big", "A"), ("dogs", "N"), ("bark", "V")]]
    >>> parser = DependencyParser(order=1, hash_bits=12, min_count=1).fit(X, [[2, 0], [2, 3, 0]])
    >>> parser.predict_heads([[("big", "A"), ("cats", "N"), ("bark", "V")]])
    [[2, 3, 0]]
    """

    kind: ClassVar[str] = "parser"
    input_: dict[str, Any]

    def __init__(
        self,
        order: int = 2,
        *,
        projective: bool = True,
        single_root: bool = True,
        tagger: TaggerKind | None = None,
        min_count: int = 2,
        hash_bits: int = 22,
        epochs: int = 3,
        second_epochs: int = 3,
        label_epochs: int = 4,
        batch_size: int = 32,
        rate: float = 0.02,
        second_rate: float = 0.02,
        label_rate: float = 0.05,
        threshold: float = 1e-3,
        max_iter: int = Propagation.max_iter,
        tree_every: int = Propagation.tree_every,
        tolerance: float = Propagation.tolerance,
        damping: float = Propagation.damping,
        patience: int = 3,
        seed: int = 0,
    ) -> None:
        self.order = order
        self.projective = projective
        self.single_root = single_root
        self.tagger = tagger
        self.min_count = min_count
        self.hash_bits = hash_bits
        self.epochs = epochs
        self.second_epochs = second_epochs
        self.label_epochs = label_epochs
        self.batch_size = batch_size
        self.rate = rate
        self.second_rate = second_rate
        self.label_rate = label_rate
        self.threshold = threshold
        self.max_iter = max_iter
        self.tree_every = tree_every
        self.tolerance = tolerance
        self.damping = damping
        self.patience = patience
        self.seed = seed

    def fit(
        self,
        X: Sentences,
        heads: Heads,
        labels: Names | None = None,
        *,
        dev: tuple[Sentences, Heads] | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Learn from sentences with trees.

        Parameters
        ----------
        X : list of sentences or Corpus
            Sentences of (word, tag) or (word, tag, second tag), such as UPOS and XPOS; a ``Corpus`` of two or three
            columns. With ``tagger`` these are the tags that it learns.
        heads : list of lists of int
            The head of each word, counted from 1, 0 for the root; ``None`` or -1 where it is unknown.
        labels : list of lists of str, optional
            The label of each arc, ``None`` where it is unknown.
        dev : (X, heads), optional
            Development data: each stage keeps the epoch with the best UAS, and stops early.
        callback : callable, optional
            Called after each epoch with a ``ParserStep`` and the weights; for each tagger, its iterations, each fold
            and each epoch of labels with a step that only says so (its value is nan), and ``None``. A true answer
            stops: what was learned is kept, and that is an epoch of arcs and one of labels at least.
        """
        check_settings(self.get_params())
        columns = read_sentences(X)
        if not columns.tags:
            raise ShapeError("sentences must have tags to learn from: (word, tag) or (word, tag, second tag).")
        given = read_heads(heads, columns.offsets)
        if len(columns.words) and (given.heads < 0).all():
            raise ValueRangeError("heads must tell at least one head to learn from, got None for all words.")
        if dev is not None:
            found_heads = read_heads(dev[1], read_sentences(dev[0]).offsets).heads
            if (found_heads < 0).all():
                raise ValueRangeError("the heads of dev must tell at least one head to measure, got none.")
        names = None if labels is None else read_labels(labels, columns.offsets)
        columns, given, names = without_empty(columns, given, names)
        kind = TreeKind(bool(self.projective), bool(self.single_root))
        gold = given.possible(kind)
        taggers, watch = None, Watch(callback, self.patience)
        if self.tagger is not None:
            taggers = Taggers.fit(self.tagger, columns, watch.note)
            columns = jackknife(self.tagger, columns, self.seed, taggers, watch.note)
        n_tags = len(columns.tags)
        coder = TokenCoder.from_columns(columns.words, columns.tags[0], self.min_count)
        reader = Reader(coder, n_tags, taggers)
        tokens = coder.code(columns.words, columns.tags[0], columns.tags[-1], columns.offsets)
        features = features_of(n_tags, self.hash_bits)
        measured = None
        if dev is not None:
            known, found = reader.read(dev[0])
            measured = known, read_heads(dev[1], found.offsets)

        def stage(name: str, trainer: Any, epochs: int, before: Learned) -> Learned:
            def measure(weights: Learned) -> float:
                assert measured is not None
                return uas(self._scorer(features, before + weights), *measured)

            return watch.run(
                name, trainer, len(tokens), epochs=epochs, batch_size=self.batch_size,
                seed=(self.seed, len(before)), measure=measure if measured is not None else None,
            )  # fmt: skip

        weights = stage("arcs", FirstOrder(tokens, gold, features.arcs, kind, self.rate), self.epochs, ())
        if self.order == 2 and not watch.stopped:
            scorer = self._scorer(features, weights)
            pruned = scorer.pruned(tokens, gold)
            second = SecondOrder(tokens, gold, features, scorer.propagation, pruned, self.second_rate, weights[0])
            weights += stage("second order", second, self.second_epochs, weights)
        label_model = None
        if names is not None and any(name is not None for name in names):
            label_model = train_labels(
                tokens, given.heads, names, columns.offsets, feature_set(n_tags > 1), bits=self.hash_bits,
                rate=self.label_rate, epochs=self.label_epochs, seed=self.seed, note=watch.note,
            )  # fmt: skip
        # Set together at the end: a fit that fails leaves what was learned before.
        self._reader, self._labels, self.weights_ = reader, label_model, weights
        self.order_, self.n_dropped_ = 2 if len(weights) > 1 else 1, gold.n_dropped
        self.labels_ = None if label_model is None else label_model.labels
        self.report_: FitReport = watch.report()
        self.dev_uas_: float | None = watch.dev
        return self

    def predict(self, X: Sentences, *, known: Evidence | None = None) -> list[list[tuple[int, str | None]]]:
        """Head and label of each word, by minimum-risk decoding: the tree with most expected right arcs.

        Parameters
        ----------
        X : as in ``fit``; words alone if the parser has a tagger
        known : list of lists, optional
            What is known of a word's head: a number, a set of numbers that are possible, or ``None``.
        """
        return [[(h, name) for h, name, _ in sentence] for sentence in self.parse(X, known=known)]

    def predict_heads(self, X: Sentences, *, known: Evidence | None = None) -> Trees:
        """The heads alone."""
        return self._parsing(X, known).heads()[0]

    def parse(self, X: Sentences, *, known: Evidence | None = None) -> list[list[tuple[int, str | None, float]]]:
        """Head, label and the probability of the arc (whatever its label), for each word."""
        parsing = self._parsing(X, known)
        heads, probabilities = parsing.heads()
        names = parsing.names(heads)
        return [list(zip(*rows, strict=True)) for rows in zip(heads, names, probabilities, strict=True)]

    def predict_marginals(self, X: Sentences, *, known: Evidence | None = None) -> list[list[dict[int, float]]]:
        """For each word the probabilities of its heads, likeliest first; those that pruning left with order 2."""
        return self._parsing(X, known).marginals()

    def predict_label_probabilities(self, X: Sentences, heads: Sequence[Sequence[int]]) -> list[list[dict[str, float]]]:
        """p(label | tree), likeliest first, of the arcs of given trees."""
        return self._parsing(X, None).label_probabilities(heads)

    def predict_topk(
        self, X: Sentences, k: int, *, known: Evidence | None = None
    ) -> list[list[tuple[LabelledTree, float]]]:
        """The k likeliest trees of each sentence with their probabilities, likeliest first; labels are the best ones.

        By the distribution of ``posterior``: exact for first-order models.
        """
        if k < 1:
            raise ValueRangeError(f"k must be at least 1, got {k}.")
        return self._parsing(X, known).topk(k)

    def posterior(self, sentence: Sequence[Any], *, known: Any = None) -> "ProjectiveTree | SpanningTree":
        """The distribution over trees of one sentence: marginals, samples, k best, entropy, evidence, ...

        For a first-order model p(tree | sentence). For a second-order model the first-order distribution whose
        marginals are the beliefs of belief propagation: the belief of the tree factor, in which pairs of arcs speak
        through the scores of arcs.
        """
        import torch

        from trelliswork.distributions import ProjectiveTree, SpanningTree

        if not len(sentence):
            raise ShapeError("sentence must have at least one word.")
        parsing = self._parsing([list(sentence)], None if known is None else [known])
        (beliefs,) = parsing.beliefs()
        make = ProjectiveTree if self.projective else SpanningTree
        return make(torch.from_numpy(beliefs.tree_scores), single_root=bool(self.single_root))

    def evaluate(self, X: Sentences, heads: Heads, labels: Names | None = None) -> ParseReport:
        """Compare with gold trees, which must be whole: a head, and with labels a label, for each word."""
        self._check_fitted()
        offsets = read_sentences(X).offsets
        read_trees(heads, offsets)
        if labels is not None and None in read_labels(labels, offsets):
            raise ValueRangeError(
                "labels must name every arc to compare with, got None: leave them out, or fill it in."
            )
        parses = self.parse(X)
        found = [[h for h, _, _ in row] for row in parses]
        names = [[name or "" for _, name, _ in row] for row in parses]
        given: Any = labels if labels is not None and self.labels_ is not None else None
        return evaluate_parsing(
            heads,  # type: ignore[arg-type]
            found,
            given,
            None if given is None else names,
            [[p for _, _, p in row] for row in parses],
        )

    def score(self, X: Sentences, heads: Heads) -> float:
        """UAS: the part of the words with the right head; words whose head is unknown do not count."""
        parsing = self._parsing(X, None)
        gold = read_heads(heads, parsing.columns.offsets)
        if (gold.heads < 0).all():
            raise ValueRangeError("heads must tell at least one head to compare with.")
        return uas(parsing.scorer, parsing.tokens, gold)

    def tag(self, X: Sentences) -> list[list[str]]:
        """The columns of tags that the parser sees, flat: those of its taggers, or those given."""
        self._check_fitted()
        return self._reader.read(X)[1].tags

    @property
    def n_columns(self) -> int:
        """How many columns a token of the input has: its word and its tags, or the word alone for one that tags."""
        self._check_fitted()
        return 1 if self.tagger is not None else 1 + self._reader.n_tags

    def known_words(self) -> set[str]:
        """The words that are known by themselves, in lower case."""
        self._check_fitted()
        return set(self._reader.coder.words)

    def _scorer(self, features: SecondOrderFeatures, weights: Learned) -> TreeScorer:
        kind = TreeKind(bool(self.projective), bool(self.single_root))
        propagation = Propagation(kind, self.max_iter, self.tree_every, self.tolerance, self.damping)
        second = (weights[1], weights[2], weights[3]) if len(weights) == 4 else None
        return TreeScorer(features, propagation, self.threshold, weights[0], second)

    def _parsing(self, X: Sentences, known: Evidence | None) -> Parsing:
        self._check_fitted()
        scorer = self._scorer(features_of(self._reader.n_tags, self.hash_bits), self.weights_)
        return Parsing.of(scorer, self._labels, self._reader, X, known)

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        plain, arrays = to_state(self.weights_, self._reader, self._labels)
        plain |= {
            "parameters": self.get_params(),
            "order": self.order_,
            "n_dropped": self.n_dropped_,
            "input": getattr(self, "input_", {}),
            "dev_uas": self.dev_uas_,
            "report": {"converged": self.report_.converged, "reason": self.report_.reason, "value": self.report_.value},
        }
        return plain, arrays

    @classmethod
    def _from_state(cls, plain: dict[str, Any], arrays: Arrays) -> Self:
        self = cls(**plain["parameters"])
        self.order_, self.n_dropped_, self.input_ = plain["order"], plain["n_dropped"], plain["input"]
        self.dev_uas_ = plain.get("dev_uas")
        self.weights_, self._reader, self._labels = from_state(plain, arrays, self.order_, self.hash_bits)
        self.labels_ = None if self._labels is None else self._labels.labels
        report = plain["report"]
        self.report_ = FitReport(report["converged"], report["reason"], report["value"])
        return self
