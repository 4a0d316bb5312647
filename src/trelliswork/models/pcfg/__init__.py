"""Probabilistic context-free grammars, induced from raw text: dense or of low rank (paper 4 and its successors)."""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_count
from trelliswork.data import Corpus, Tree, Vocabulary
from trelliswork.data.files import shorten, whole_number
from trelliswork.data.vocabulary import UNKNOWN
from trelliswork.errors import DataError, ImpossibleError, ShapeError, ValueRangeError, extras_for
from trelliswork.learning import whole
from trelliswork.learning.distributed import one_process
from trelliswork.learning.em import run_em
from trelliswork.learning.report import Callback, FitReport
from trelliswork.learning.watch import Watch
from trelliswork.metrics.brackets import evaluate_brackets
from trelliswork.models.base import Arrays, Description, Table, check_label, watch_for
from trelliswork.models.calibration import LEAST, fit_temperature
from trelliswork.models.parameters import (
    TRAINING,
    BatchSize,
    FurtherOptions,
    LearningRate,
    MinCount,
    Parameter,
    Patience,
    Seed,
    Tol,
    estimator,
    later,
    option,
)
from trelliswork.models.pcfg.decoding import Decoding, best_trees, draw_tree, gold_spans, named_tree
from trelliswork.models.pcfg.objective import (
    GrammarParameters,
    blank_emissions,
    check_lengths,
    check_size,
    log_evidence,
    random_grammar,
    span_posteriors,
    text_batches,
)
from trelliswork.models.pcfg.training import (
    GrammarPriors,
    GrammarUpdates,
    checked,
    text_development,
    training_mark,
)
from trelliswork.models.tasks import LanguageModel, Ranked, TreeParser, best_words, blanks

if TYPE_CHECKING:
    from trelliswork.distributions import GrammarTree

Sentences = Sequence[Sequence[str]]
Spans = Mapping[tuple[int, int], bool]  # whether a tree has a span (start, stop)
Known = Sequence[Spans | None]
MAX_RULES = 50_000_000  # entries of a dense table of rules: 400 MB
MAX_DRAWS = 1000


@estimator
class PCFG(TreeParser, LanguageModel):
    """A grammar in Chomsky normal form whose symbols have no names, induced from sentences without trees.

    Attributes
    ----------
    vocabulary_ : tuple of str
        Words, and ``<unk>``.
    report_ : FitReport
        Its values are log evidence plus log prior.

    Notes
    -----
    Sentences of one word have no tree in such a grammar: their probability is 0. Training, ``score`` and ``perplexity``
    leave them out; ``predict`` assigns the word's most probable preterminal.

    Examples
    --------
    >>> sentences = [["the", "dog", "runs"], ["a", "dog", "sees", "the", "cat"]]
    >>> pcfg = PCFG(2, n_preterminals=3, max_iter=5, tol=0).fit(sentences)
    >>> [tree.leaves() for tree in pcfg.predict([["the", "cat", "runs"]])]
    [('the', 'cat', 'runs')]
    """

    family: ClassVar[str] = "pcfg"
    _title: ClassVar[str] = "Probabilistic grammar"
    _fit_sets: ClassVar[str] = "_grammar"
    constituents: ClassVar[bool] = True
    shortest: ClassVar[int] = 2  # words of a sentence: its root has two children
    end: ClassVar[bool] = False  # the end of a sentence is not an event: the rules define its length
    _words: Vocabulary = later()
    _grammar: GrammarParameters = later()

    n_nonterminals: Annotated[int, Parameter("Number of symbols of phrases.", minimum=1)] = 10
    _: KW_ONLY
    n_preterminals: Annotated[
        int | None,
        Parameter(
            "Number of symbols of words; None (0 on the command line): each word is its own symbol, for texts with "
            "few different words such as tags.",
            minimum=1,
            option=False,
        ),
    ] = 20
    rank: Annotated[
        int | None,
        Parameter(
            "Rank of the rules, p(A -> x y) = sum_r U[A, r] V[r, x] W[r, y]: inference takes O(n^3 R + n^2 R^2) "
            "instead of O(n^3 N^2 + n^2 N^3).",
            minimum=1,
            unset="every rule has its own probability",
        ),
    ] = None
    neural: Annotated[
        bool,
        Parameter("Whether probabilities come from embeddings and residual networks, trained by Adam instead of EM."),
    ] = False
    rule_prior: Annotated[
        float, Parameter("Pseudo-count of rules, or of the entries of their factors.", minimum=0, panel=TRAINING)
    ] = 0.01
    emission_prior: Annotated[float, Parameter("Pseudo-count of words.", minimum=0, panel=TRAINING)] = 0.01
    min_count: MinCount = 1
    max_length: Annotated[
        int | None,
        Parameter("Maximum length of training sentences.", minimum=2, panel=TRAINING, unset="no limit"),
    ] = None
    right_bias: Annotated[
        float,
        Parameter(
            "EM: left children of two words or more get exp(-right_bias) of their weight at first; for English try 4.",
            panel=TRAINING,
        ),
    ] = 0.0
    n_restarts: Annotated[
        int,
        Parameter(
            "Number of random starts of EM; the best after `probe` iterations continues.",
            minimum=1,
            panel=TRAINING,
        ),
    ] = 1
    max_iter: Annotated[int, Parameter("Maximum number of EM iterations or epochs.", minimum=1, panel=TRAINING)] = 100
    tol: Tol = 1e-4
    learning_rate: LearningRate = 2e-3
    patience: Patience = 10
    seed: Seed = 0
    options: FurtherOptions = None
    root_prior: Annotated[float, Parameter("Pseudo-count of root symbols.", minimum=0, panel=TRAINING)] = option(0.1)
    probe: Annotated[
        int, Parameter("EM iterations of each start before the best is chosen.", minimum=1, panel=TRAINING)
    ] = option(10)
    batch_size: BatchSize = option(16)
    embedding_size: Annotated[int, Parameter("Size of neural embeddings.", minimum=1)] = option(128)

    def fit(
        self,
        X: Sentences | Corpus,
        y: None = None,
        *,
        dev: Sentences | Corpus | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callback: Callback | None = None,
        max_minutes: float | None = None,
    ) -> Self:
        """Induce a grammar from sentences.

        Parameters
        ----------
        X : list of lists of str, or Corpus
            Words; of a corpus the first column.
        y : None
            Trees are hidden: labels are an error.
        dev : like X, optional
            Development sentences: the iteration with the best log-probability per word is kept, and training stops
            ``patience`` iterations later. In a group of processes every rank gets all of them.
        """
        self._check_parameters()
        if y is not None:
            raise ValueRangeError("a PCFG is trained on sentences alone: leave y out.")
        if self.neural:
            one_process("a grammar by gradients")
            if self.n_restarts > 1 or self.right_bias:
                raise ValueRangeError(
                    "n_restarts and right_bias are for EM, without neural: try several seeds instead."
                )
        sentences, longest = _sentences(X, training=True), np.inf if self.max_length is None else self.max_length
        words = Vocabulary.from_sequences(sentences, min_count=self.min_count, unknown=UNKNOWN)
        ids = [words.ids(sentence) for sentence in sentences if 2 <= len(sentence) <= longest]
        if not whole.anywhere(bool(ids)):
            raise DataError("no sentences to learn from: expected at least two words and at most max_length.")
        held = None if dev is None else [words.ids(sentence) for sentence in _sentences(dev)]
        P = len(words) if self.n_preterminals is None else self.n_preterminals
        check_size(self.n_nonterminals, P, len(words), self.rank)
        for text, most in ((sentences, longest), (held or [], np.inf)):
            check_lengths([len(s) if len(s) <= most else 0 for s in text], self.n_nonterminals, P, self.rank)
        mark = partial(
            training_mark, self._values("max_iter", "tol"), ids, held
        )  # a longer run may resume from a shorter one
        development = None if held is None else text_development(held)
        watch = watch_for(self, development, checkpoint, mark, callback, max_minutes)
        # Words that are their own preterminals have no emissions to learn.
        emission_prior = 0.0 if self.n_preterminals is None else self.emission_prior
        priors = GrammarPriors(self.root_prior, self.rule_prior, emission_prior)
        learn = self._by_gradients if self.neural else self._by_em
        self._grammar, self.report_ = learn(ids, (self.n_nonterminals, P, len(words)), priors, watch)
        self._words, self.calibration_ = words, None
        return self

    def _by_em(
        self, ids: Sequence[Sequence[int]], sizes: tuple[int, int, int], priors: GrammarPriors, watch: Watch
    ) -> tuple[GrammarParameters, FitReport]:
        """Return the grammar that EM finds from random starts, and the report."""
        identity, seeds = self.n_preterminals is None, np.random.SeedSequence(self.seed).spawn(self.n_restarts)
        options = {"max_iter": self.max_iter, "n_starts": self.n_restarts, "probe": self.probe}
        return run_em(
            GrammarUpdates(text_batches(ids), priors),
            lambda k: random_grammar(*sizes, self.rank, seed=seeds[k], right_bias=self.right_bias, identity=identity),
            watch, tol=self.tol, **options,
        )  # fmt: skip

    @extras_for("a grammar trained by gradient")
    def _by_gradients(
        self, ids: Sequence[Sequence[int]], sizes: tuple[int, int, int], priors: GrammarPriors, watch: Watch
    ) -> tuple[GrammarParameters, FitReport]:
        """Return the grammar of a network, trained by Adam, and the report."""
        from trelliswork.models.pcfg.neural import GrammarModule, train

        identity = self.n_preterminals is None
        module = GrammarModule(*sizes, self.rank, size=self.embedding_size, identity=identity, seed=self.seed)
        return train(
            module, ids, learning_rate=self.learning_rate, batch_size=self.batch_size, priors=priors,
            max_iter=self.max_iter, tol=self.tol, watch=watch, seed=self.seed,
        )  # fmt: skip

    def predict(self, X: Sentences | Corpus, *, decoding: Decoding = "mbr", known: Known | None = None) -> list[Tree]:
        """Return a binary tree of each sentence, with symbols N0, N1, ... and, over words, P0, P1, ...

        Parameters
        ----------
        X : as in ``fit``
        decoding : {"mbr", "viterbi"}
            The tree with most expected spans, or the most probable one.
        known : list of dict of (int, int) to bool, optional
            Evidence: for each sentence spans (start, stop), of which its tree has those that are true and lacks the
            others.
        """
        sentences = _sentences(X)
        N = self._sizes()[0]
        charts = self._charts(sentences, decoding)
        for n, trees in self._given(sentences, known):
            charts[n] = (trees.mbr() if decoding == "mbr" else trees.argmax()).value[0].numpy()
        return [named_tree(chart, s, N) for chart, s in zip(charts, sentences, strict=True)]

    def predict_marginals(
        self, X: Sentences | Corpus, *, known: Known | None = None
    ) -> list[dict[tuple[int, int], float]]:
        """Return p(span | sentence, known spans) of each span (start, stop) of two words or more, best first.

        A span has a probability if some tree has it, whatever its symbol; that of the whole sentence is 1.
        """
        self._check_fitted()
        sentences = _sentences(X)
        tables = self._span_probabilities(sentences, 1 / self._temperature)
        for n, trees in self._given(sentences, known):
            tables[n] = _by_span(trees.marginals()[0].numpy(), len(sentences[n]))
        return [dict(sorted(table.items(), key=lambda item: -item[1])) for table in tables]

    def predict_topk(
        self, X: Sentences | Corpus, k: int, *, known: Known | None = None
    ) -> list[list[tuple[Tree, float]]]:
        """Return the k most probable trees of each sentence with their probabilities, best first."""
        sentences = _sentences(X)
        N, ranked = self._sizes()[0], []
        for words, given in zip(sentences, known or [None] * len(sentences), strict=True):
            charts, log_p = self.posterior(words, known=given).topk(k)
            pairs = zip(charts[0].numpy(), np.exp(log_p[0].numpy()).tolist(), strict=True)
            ranked.append([(named_tree(chart, words, N), p) for chart, p in pairs if p > 0])
        return ranked

    def _span_probabilities(self, sentences: Sentences, factor: float) -> list[dict[tuple[int, int], float]]:
        """Return p(span | sentence) by span with the log probabilities multiplied by a factor."""
        tables: list[dict[tuple[int, int], float]] = [{} for _ in sentences]
        batches = text_batches(self._ids(sentences))
        for batch, log_z, symbols in span_posteriors(self._grammar.scaled(factor), batches):
            for row, place in enumerate(batch.places.tolist()):
                if np.isneginf(log_z[row]):
                    continue  # an impossible sentence has no spans
                tables[place] = _by_span(symbols[row], int(batch.lengths[row]))
        return tables

    def _calibrate_temperature(self, X: Sentences | Corpus, y: Sequence[Tree]) -> dict[str, float]:
        """Return the temperature with the best log score of all spans but whole sentences, of gold trees or not."""
        sentences = _sentences(X)
        gold = _gold_spans(sentences, y)

        def loss(factor: float) -> float:
            rows = zip(sentences, self._span_probabilities(sentences, factor), gold, strict=True)
            of_gold = [
                p if span in right else 1 - p
                for words, table, right in rows
                for span, p in table.items()
                if span != (0, len(words))
            ]
            if not of_gold:
                raise DataError("no sentence of three words or more: shorter ones have no spans to calibrate with.")
            return -float(np.log(np.maximum(of_gold, LEAST)).sum())

        return {"all": fit_temperature(loss)}

    @extras_for("posterior")
    def posterior(self, sentence: Sequence[str], *, known: Spans | None = None) -> "GrammarTree":
        """Return the distribution over the trees of one sentence, for any query; a low-rank grammar is expanded.

        Parameters
        ----------
        sentence : list of str
        known : dict of (int, int) to bool, optional
            Evidence: spans (start, stop), of which trees have those that are true and lack the others.
        """
        import torch

        from trelliswork.distributions import GrammarTree

        self._check_fitted()
        checked([sentence])
        self._check_dense()
        parameters = self._grammar.scaled(1 / self._temperature)
        log_terminals = parameters.log_emission.T[self._ids([sentence])[0]][None]
        arrays = parameters.log_root, parameters.dense_rules(), np.ascontiguousarray(log_terminals)
        tree = GrammarTree(*(torch.from_numpy(np.array(array)) for array in arrays))
        return tree if known is None else tree.condition(allowed=_allowed(known, len(sentence))[None])

    def log_prob(self, X: Sentences | Corpus, y: Sequence[Tree] | None = None) -> NDArray[np.float64]:
        """Return log p of each sentence (-inf, with a warning, for one word); with trees y, log p(their spans | it)."""
        self._check_fitted()
        sentences = _sentences(X)
        if y is not None:
            gold = zip(sentences, _gold_spans(sentences, y), strict=True)
            pairs = [(self.posterior(s, known=dict.fromkeys(spans, True)), self.posterior(s)) for s, spans in gold]
            return np.array([float(given.log_partition() - trees.log_partition()) for given, trees in pairs])
        if short := [number for number, sentence in enumerate(sentences) if len(sentence) == 1]:
            more = f" and {len(short) - 1} more" if len(short) > 1 else ""
            warnings.warn(
                f"sentence {short[0]}, {shorten(sentences[short[0]][0])},{more} of one word: no tree has one word, so "
                "the log evidence is -inf. Leave such sentences out, as score and perplexity do.",
                stacklevel=2,
            )
        return log_evidence(self._grammar, text_batches(self._ids(sentences)), len(sentences))

    def score(self, X: Sentences | Corpus, y: Sequence[Tree] | None = None) -> float:
        """Return the mean F1 of the spans of gold trees y; without y the mean log-probability per word.

        Sentences of one word do not count. Spans are compared without their labels, which an induced grammar lacks.
        """
        if y is None:
            return LanguageModel.score(self, X)
        sentences = _sentences(X)
        gold = _gold_spans(sentences, y)
        predicted = [gold_spans(tree) for tree in self.predict(sentences)]
        return evaluate_brackets(list(map(len, sentences)), gold, predicted).sentence_f1

    def _evidence(self, X: Sentences | Corpus) -> tuple[NDArray[np.float64], int]:
        sentences = _longer(_sentences(X))
        return self.log_prob(sentences), sum(map(len, sentences))

    def sample(self, n: int = 1, *, seed: int | None = None, max_length: int = 200) -> list[list[str]]:
        """Return n random sentences of at most ``max_length`` words; see ``sample_trees``."""
        return [list(tree.leaves()) for tree in self.sample_trees(n, seed=seed, max_length=max_length)]

    def sample_with_states(
        self, n: int = 1, *, seed: int | None = None, max_length: int = 200
    ) -> list[tuple[list[str], list[str]]]:
        """Return n random sentences with the symbols of their words; see ``sample_trees``."""
        trees = self.sample_trees(n, seed=seed, max_length=max_length)
        return [(list(tree.leaves()), [node.label for node in tree.preterminals()]) for tree in trees]

    def fill(self, sentence: str | Sequence[str | None], n: int = 10, *, unknown: bool = False) -> list[Ranked]:
        """Return the n most probable words for each blank (``None``, or ``___`` in a string), best first.

        ``<unk>`` is one of the words if ``unknown``; probabilities are those of the model in either case.
        """
        self._check_fitted()
        check_count("n", n)
        words = blanks(sentence)
        if len(words) < self.shortest:
            raise DataError("a sentence of one word has no tree: expected at least two words.")
        ids = np.array(self._ids([words])[0], np.int64)
        distributions = blank_emissions(self._grammar, ids, [t for t, w in enumerate(words) if w is None])
        return [best_words(self._words.items, p, n, self._left_out(unknown)) for p in distributions]

    def sample_trees(self, n: int = 1, *, seed: int | None = None, max_length: int = 200) -> list[Tree]:
        """Return n random trees of at most ``max_length`` words; longer ones are drawn again."""
        self._check_fitted()
        check_count("n", n)
        if max_length < 2:
            raise ValueRangeError(f"max_length must be at least 2, got {max_length}: a tree has at least two words.")
        rng = np.random.default_rng(seed)
        trees = []
        for _ in range(n):
            draws = (draw_tree(self._grammar, self._words.items, rng, max_length) for _ in range(MAX_DRAWS))
            tree = next((tree for tree in draws if tree is not None), None)
            if tree is None:
                raise ValueRangeError(
                    f"{MAX_DRAWS} random sentences in a row had more than {max_length} words: raise max_length."
                )
            trees.append(tree)
        return trees

    def top_words(self, label: str, n: int = 10) -> Ranked:
        """Return the n most probable words of a preterminal such as ``P3``, with p(word | preterminal)."""
        check_count("n", n)
        row = self._grammar.log_emission[self._symbol(label, "P", self._sizes()[1])]
        return [(self._words[i], float(np.exp(row[i]))) for i in np.argsort(-row, kind="stable")[:n]]

    def top_rules(self, label: str, n: int = 10) -> list[tuple[str, str, float]]:
        """Return the n most probable pairs of symbols under a nonterminal such as ``N0``, with their probabilities."""
        N = self._sizes()[0]
        number = self._symbol(label, "N", N)
        check_count("n", n)
        self._check_dense()
        rows = self._grammar.dense_rules()[number]
        best = np.argsort(-rows, axis=None, kind="stable")[:n]
        names = [f"N{x}" if x < N else f"P{x - N}" for x in range(len(rows))]
        pairs = [divmod(int(k), len(rows)) for k in best]
        return [(names[x], names[y], float(np.exp(rows[x, y]))) for x, y in pairs]

    def known_words(self) -> set[str]:
        """Return the words of training, without rare ones."""
        self._check_fitted()
        return set(self._words.items) - {UNKNOWN}

    def _sizes(self) -> tuple[int, int, int]:
        self._check_fitted()
        return self._grammar.sizes

    def _charts(self, sentences: Sentences, decoding: Decoding) -> list[NDArray[np.int64]]:
        if decoding not in ("mbr", "viterbi"):
            raise ValueRangeError(f"decoding must be 'mbr' or 'viterbi', got {decoding!r}.")
        self._check_fitted()
        if decoding == "viterbi":
            self._check_dense()
        return best_trees(self._grammar.scaled(1 / self._temperature), self._ids(sentences), decoding)

    def _given(self, sentences: Sentences, known: Known | None) -> Iterator[tuple[int, "GrammarTree"]]:
        """Yield the number of each sentence with evidence, and the distribution over its trees."""
        if known is not None and len(known) != len(sentences):
            raise ShapeError(f"known must have a dict for each sentence: {len(sentences)}, got {len(known)}.")
        for n, given in enumerate(known or ()):
            if given:
                trees = self.posterior(sentences[n], known=given)
                if trees.log_partition()[0] == -np.inf:
                    raise ImpossibleError(f"sentence {n}: no tree of the grammar has the known spans.")
                yield n, trees

    def _ids(self, sentences: Sequence[Sequence[str | None]]) -> list[list[int]]:
        """Return the ids of words, 0 for blanks, after checking the lengths of the sentences."""
        N, P, _ = self._sizes()
        check_lengths([len(sentence) for sentence in sentences], N, P, self._grammar.rank)
        return [[0 if word is None else self._words.id(word) for word in s] for s in sentences]

    def _check_dense(self) -> None:
        N, P, _ = self._sizes()
        if N * (N + P) ** 2 > MAX_RULES:
            raise ValueRangeError(
                f"{N} nonterminals and {P} preterminals have more than {MAX_RULES:,} rules to expand: "
                "use predict(decoding='mbr') or score, which do not need them."
            )

    @staticmethod
    def _symbol(name: str, letter: str, n: int) -> int:
        """Return the number of a symbol."""
        number = whole_number(str(name).removeprefix(letter))
        if number is None or not str(name).startswith(letter) or number >= n:
            raise ValueRangeError(f"expected a symbol from {letter}0 to {letter}{n - 1}, got {shorten(str(name))}.")
        return number

    def describe(self, n: int = 20, label: str | None = None) -> Description:
        """Return the most probable rules and words of each symbol, and how training ended."""
        N, P, V = self._sizes()
        names = [f"N{a}" for a in range(N)] + [f"P{x}" for x in range(P)]
        check_label(label, names)
        chosen = names if label is None else [label]
        rules = [(a, [list(rule) for rule in self.top_rules(a, n)]) for a in chosen if a[0] == "N"]
        words = [(x, [list(word) for word in self.top_words(x, n)]) for x in chosen if x[0] == "P"]
        facts = {"nonterminals": N, "preterminals": P, "rank": self.rank, "words": V}
        tables = [
            Table("rules", "Rules", ("symbol", "children"), rules),
            Table("emissions", "Words", ("symbol", "words"), words),
        ]
        return Description(f"PCFG with {N} nonterminals and {P} preterminals", facts, tables)

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        return {"words": self._words.items}, dict(self._grammar.named())

    def _restore(self, plain: dict[str, Any], arrays: Arrays) -> None:
        self._words = Vocabulary.restored(plain["words"], UNKNOWN)
        self._grammar = GrammarParameters(**arrays)
        self._grammar.check(len(self._words))


def _longer(sentences: Sentences) -> Sentences:
    longer = [sentence for sentence in sentences if len(sentence) >= PCFG.shortest]
    if not longer:
        raise DataError("no sentence of at least two words to score.")
    return longer


def _sentences(X: Sentences | Corpus, *, training: bool = False) -> Sentences:
    sentences: Sentences = X.sentences(0) if isinstance(X, Corpus) else X
    if not (whole.anywhere(len(sentences) > 0) if training else len(sentences)):
        raise DataError("X has no sentences.")
    return checked(sentences)


def _gold_spans(sentences: Sentences, y: Sequence[Tree]) -> list[set[tuple[int, int]]]:
    if [len(sentence) for sentence in sentences] != [len(tree.leaves()) for tree in y]:
        raise ShapeError("y must have a tree for each sentence of X, with as many words.")
    return [gold_spans(tree) for tree in y]


def _by_span(symbols: NDArray[np.floating], n: int) -> dict[tuple[int, int], float]:
    """Return p(span) by span (start, stop) from p(symbol over span) (n, n, S), whose last words are included."""
    first, last = np.triu_indices(n, 1)
    p = np.minimum(symbols[first, last].sum(axis=1), 1.0)
    return dict(zip(zip(first.tolist(), (last + 1).tolist(), strict=True), p.tolist(), strict=True))


def _allowed(known: Spans, n: int) -> NDArray[np.bool_]:
    """Return the spans (n, n) that evidence allows; a binary tree has a span if no other span crosses it."""
    allowed = np.ones((n, n), bool)
    start, stop = np.indices((n, n))
    stop = stop + 1
    if not isinstance(known, Mapping):
        raise ValueRangeError(f"known must be a dict of spans (start, stop) to True or False, got {known!r:.60}.")
    for (i, j), has in known.items():
        if not 0 <= i < j <= n:
            raise ValueRangeError(f"known spans must lie within the sentence of {n} words, got {(i, j)}.")
        if has:
            allowed &= ~(((start < i) & (i < stop) & (stop < j)) | ((i < start) & (start < j) & (j < stop)))
        else:
            allowed[i, j - 1] = False
    return allowed
