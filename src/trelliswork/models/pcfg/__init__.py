"""Probabilistic context-free grammars, induced from raw text: dense or of low rank (paper 4 and its successors)."""

import os
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_count
from trelliswork.data import Corpus, Tree, Vocabulary
from trelliswork.errors import DataError, ValueRangeError
from trelliswork.metrics.brackets import BracketReport, evaluate_brackets
from trelliswork.models.base import Arrays, Estimator
from trelliswork.models.hmm.em import EMReport, EMStep
from trelliswork.models.pcfg.decoding import Decoding, best_trees, gold_spans, named_tree, spans_of
from trelliswork.models.pcfg.em import Callback, from_named
from trelliswork.models.pcfg.objective import GrammarParameters, log_evidence, text_batches
from trelliswork.models.pcfg.sampling import draw_tree
from trelliswork.models.pcfg.training import PCFGSettings, checked, known_words, learn, listed_words, word_table

if TYPE_CHECKING:
    from trelliswork.distributions import GrammarTree

Sentences = Sequence[Sequence[str]]
MAX_RULES = 50_000_000  # entries of a dense table of rules: 400 MB
MAX_DRAWS = 1000


class PCFG(Estimator):
    """A grammar in Chomsky normal form whose symbols have no names, learned from sentences without trees.

    Parameters
    ----------
    n_nonterminals : int
        Symbols of spans of two words or more.
    n_preterminals : int, optional
        Symbols of single words. None: each word is its own, for texts of few different words such as tags.
    rank : int, optional
        Rules pass through so many hidden values, p(A -> x y) = sum_r U[A, r] V[r, x] W[r, y]: inference takes O(n^3 R +
        n^2 R^2) a sentence instead of O(n^3 N^2 + n^2 N^3). None: every rule has a probability of its own.
    parameterisation : {"plain", "neural"}
        Free probabilities; or embeddings and residual networks that make them, with ``algorithm="gradient"``.
    algorithm : {"em", "gradient"}
        EM (inside-outside), or Adam.
    root_prior, rule_prior, emission_prior : float
        Pseudo-counts; ``rule_prior`` is that of the three factors too.
    min_count : int
        Words seen less often are taken for unknown ones.
    max_length : int, optional
        Learn from sentences up to so many words only.
    max_iter, tol : int, float
        Iterations (epochs of Adam) at most; the relative gain at which learning ends.
    n_restarts, probe : int
        EM: random starts, of which the best after ``probe`` iterations goes on.
    right_bias : float
        EM: a random start gives left children of two words or more exp(-right_bias) of their weight. English leans to
        the right; EM is free to leave it.
    batch_size, learning_rate, curriculum, embedding_size : int, float, int or None, int
        Adam: sentences a step; step size; longest sentence of the first epoch, one more each epoch; size of neural
        embeddings.
    seed : int

    Attributes
    ----------
    words_ : Vocabulary
    parameters_ : GrammarParameters
    report_ : EMReport
        History of the objective.

    Notes
    -----
    Sentences of one word have no tree in such a grammar: their probability is 0. Learning, ``score`` and ``perplexity``
    leave them out; ``predict`` gives them the word's most probable preterminal.

    Examples
    --------
    >>> pcfg = PCFG(2, 3, max_iter=5, tol=0).fit([["the", "dog", "runs"], ["a", "dog", "sees", "the", "cat"]])
    >>> [tree.leaves() for tree in pcfg.predict([["the", "cat", "runs"]])]
    [('the', 'cat', 'runs')]
    """

    kind: ClassVar[str] = "pcfg"
    learned: ClassVar[str] = "parameters_"
    shortest: ClassVar[int] = 2  # words of a sentence: its root has two children
    end: ClassVar[bool] = False  # that a sentence ends is no event of its own: its rules tell its length
    reading_: dict[str, Any]  # how a command read the training file
    words_: Vocabulary
    parameters_: GrammarParameters
    report_: EMReport

    def __init__(
        self,
        n_nonterminals: int = 10,
        n_preterminals: int | None = 20,
        *,
        rank: int | None = None,
        parameterisation: Literal["plain", "neural"] = "plain",
        algorithm: Literal["em", "gradient"] = "em",
        root_prior: float = 0.1,
        rule_prior: float = 0.01,
        emission_prior: float = 0.01,
        min_count: int = 1,
        max_length: int | None = None,
        max_iter: int = 100,
        tol: float = 1e-4,
        n_restarts: int = 1,
        probe: int = 10,
        right_bias: float = 0.0,
        batch_size: int = 16,
        learning_rate: float = 2e-3,
        curriculum: int | None = None,
        embedding_size: int = 128,
        seed: int = 0,
    ) -> None:
        self.n_nonterminals = n_nonterminals
        self.n_preterminals = n_preterminals
        self.rank = rank
        self.parameterisation = parameterisation
        self.algorithm = algorithm
        self.root_prior = root_prior
        self.rule_prior = rule_prior
        self.emission_prior = emission_prior
        self.min_count = min_count
        self.max_length = max_length
        self.max_iter = max_iter
        self.tol = tol
        self.n_restarts = n_restarts
        self.probe = probe
        self.right_bias = right_bias
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.curriculum = curriculum
        self.embedding_size = embedding_size
        self.seed = seed

    def fit(
        self,
        X: Sentences | Corpus,
        y: None = None,
        *,
        callback: Callback | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Learn from sentences.

        Parameters
        ----------
        X : list of lists of str, or Corpus
            Words; of a corpus the first column.
        y : None
            There is nothing to be told: trees are hidden.
        callback : callable, optional
            Called with the ``EMStep`` of each iteration (epoch); a true answer stops.
        checkpoint : path, optional
            A file to keep the state in, now and then; if it is there, learning goes on from it and ends as if it had
            not been interrupted. It is removed at the end.
        """
        if y is not None:
            raise ValueRangeError("a PCFG is learned from sentences alone: leave y out.")
        settings = PCFGSettings(**self.get_params())
        settings.check()
        sentences = _sentences(X)
        words = word_table(sentences, self.min_count)
        parameters, report = learn(sentences, words, settings, callback, checkpoint)
        self.words_, self.parameters_, self.report_ = words, parameters, report
        return self

    def predict(self, X: Sentences | Corpus, *, decoding: Decoding = "mbr") -> list[Tree]:
        """A binary tree of each sentence, with symbols N0, N1, ... and, over words, P0, P1, ...

        Parameters
        ----------
        X : as in ``fit``
        decoding : {"mbr", "viterbi"}
            The tree with most expected spans, or the most probable one.
        """
        sentences = _sentences(X)
        N = self._sizes()[0]
        return [named_tree(chart, s, N) for chart, s in zip(self._charts(sentences, decoding), sentences, strict=True)]

    def posterior(self, sentence: Sequence[str]) -> "GrammarTree":
        """The distribution over the trees of one sentence, with all rules laid out, also of a low-rank grammar."""
        import torch

        from trelliswork.distributions import GrammarTree

        self._check_fitted()
        checked([sentence])
        self._check_dense()
        log_terminals = self.parameters_.log_emission.T[self.words_.ids(sentence)][None]
        arrays = self.parameters_.log_root, self.parameters_.dense_rules(), np.ascontiguousarray(log_terminals)
        return GrammarTree(*(torch.from_numpy(np.array(array)) for array in arrays))

    def log_evidence(self, X: Sentences | Corpus) -> NDArray[np.float64]:
        """log p(sentence) of each sentence; -inf, with a warning, for a single word: every tree has two at least."""
        self._check_fitted()
        sentences = _sentences(X)
        if short := [number for number, sentence in enumerate(sentences) if len(sentence) == 1]:
            more = f" and {len(short) - 1} more" if len(short) > 1 else ""
            warnings.warn(
                f"sentence {short[0]}, {sentences[short[0]][0]!r},{more} of one word: rules have two parts, so the log "
                "evidence is -inf. Leave such sentences out, as score and perplexity do.",
                stacklevel=2,
            )
        ids = [self.words_.ids(sentence) for sentence in sentences]
        return log_evidence(self.parameters_, text_batches(ids), len(ids))

    def score(self, X: Sentences | Corpus, y: None = None) -> float:
        """Log evidence of all sentences of two words or more."""
        return float(sum(self.log_evidence(_longer(_sentences(X)))))

    def perplexity(self, X: Sentences | Corpus) -> float:
        """exp(- log evidence / words), over the sentences of two words or more; lengths are part of the evidence."""
        sentences = _longer(_sentences(X))
        return float(np.exp(-self.score(sentences) / sum(map(len, sentences))))

    def evaluate(
        self, trees: Sequence[Tree], words: Sentences | None = None, *, max_length: int | None = None,
        decoding: Decoding = "mbr",
    ) -> BracketReport:  # fmt: skip
        """Compare with gold trees by their spans, see `evaluate_brackets`.

        Parameters
        ----------
        trees : list of Tree
            Without punctuation and traces, if the grammar is.
        words : list of lists of str, optional
            What the grammar reads instead of the trees' words, such as their tags.
        max_length : int, optional
            Only sentences up to so many words.
        decoding : {"mbr", "viterbi"}
        """
        given = [tree.leaves() for tree in trees] if words is None else words
        gold = [gold_spans(tree) for tree in trees]
        few = [n for n, s in enumerate(given) if max_length is None or len(s) <= max_length]
        lengths = [len(given[n]) for n in few]
        charts = self._charts([given[n] for n in few], decoding)
        return evaluate_brackets(lengths, [gold[n] for n in few], [spans_of(chart) for chart in charts])

    def sample(self, n: int = 1, *, seed: int = 0, max_length: int = 200) -> list[tuple[list[str], list[str]]]:
        """Random sentences from the grammar: words, and the symbols above them; see ``sample_trees``."""
        trees = self.sample_trees(n, seed=seed, max_length=max_length)
        return [(list(tree.leaves()), [node.label for node in tree.preterminals()]) for tree in trees]

    def sample_trees(self, n: int = 1, *, seed: int = 0, max_length: int = 200) -> list[Tree]:
        """Random trees from the grammar, of at most ``max_length`` words: longer ones are drawn again."""
        self._check_fitted()
        check_count("n", n)
        if max_length < 2:
            raise ValueRangeError(f"max_length must be 2 or more, got {max_length}: a tree has two words at least.")
        rng = np.random.default_rng(seed)
        found = []
        for _ in range(n):
            for _ in range(MAX_DRAWS):
                tree = draw_tree(self.parameters_, self.words_.items, rng, max_length)
                if tree is not None:
                    found.append(tree)
                    break
            else:
                raise ValueRangeError(
                    f"{MAX_DRAWS} random sentences in a row had more than {max_length} words: raise max_length."
                )
        return found

    def top_words(self, preterminal: int, n: int = 10) -> list[tuple[str, float]]:
        """The n most probable words of a preterminal, with p(word | preterminal)."""
        self._check_symbol("preterminal", preterminal, self._sizes()[1])
        check_count("n", n)
        row = self.parameters_.log_emission[preterminal]
        return [(self.words_[i], float(np.exp(row[i]))) for i in np.argsort(-row, kind="stable")[:n]]

    def top_rules(self, nonterminal: int, n: int = 10) -> list[tuple[str, str, float]]:
        """The n most probable pairs of symbols under a nonterminal, with their probabilities."""
        N = self._sizes()[0]
        self._check_symbol("nonterminal", nonterminal, N)
        check_count("n", n)
        self._check_dense()
        rows = self.parameters_.dense_rules()[nonterminal]
        best = np.argsort(-rows, axis=None, kind="stable")[:n]
        names = [f"N{x}" if x < N else f"P{x - N}" for x in range(len(rows))]
        pairs = [divmod(int(k), len(rows)) for k in best]
        return [(names[x], names[y], float(np.exp(rows[x, y]))) for x, y in pairs]

    def known_words(self) -> set[str]:
        """The words of training that have a number of their own."""
        self._check_fitted()
        return known_words(self.words_)

    def _sizes(self) -> tuple[int, int, int]:
        self._check_fitted()
        return self.parameters_.sizes

    def _charts(self, sentences: Sentences, decoding: Decoding) -> list[NDArray[np.int64]]:
        if decoding not in ("mbr", "viterbi"):
            raise ValueRangeError(f"decoding must be 'mbr' or 'viterbi', got {decoding!r}.")
        self._check_fitted()
        if decoding == "viterbi":
            self._check_dense()
        return best_trees(self.parameters_, [self.words_.ids(s) for s in checked(sentences)], decoding)

    def _check_dense(self) -> None:
        N, P, _ = self._sizes()
        if N * (N + P) ** 2 > MAX_RULES:
            raise ValueRangeError(
                f"{N} nonterminals and {P} preterminals have more than {MAX_RULES:,} rules to lay out: "
                "predict(decoding='mbr') and score do without."
            )

    @staticmethod
    def _check_symbol(name: str, symbol: int, n: int) -> None:
        if not 0 <= symbol < n:
            raise ValueRangeError(f"{name} must lie between 0 and {n - 1}, got {symbol}.")

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        report = self.report_
        plain: dict[str, Any] = {
            "parameters": self.get_params(),
            "words": self.words_.items,
            "reading": getattr(self, "reading_", {}),
            "report": {
                "converged": report.converged,
                "reason": report.reason,
                "value": report.value,
                "history": [vars(step) for step in report.history],
                "probes": report.probes,
            },
        }
        return plain, dict(self.parameters_.named())

    @classmethod
    def _from_state(cls, plain: dict[str, Any], arrays: Arrays) -> Self:
        self = cls(**plain["parameters"])
        self.words_ = listed_words(plain["words"])
        self.parameters_ = from_named(arrays)
        if self.parameters_.sizes[2] != len(self.words_) or any(np.isnan(a).any() for a in arrays.values()):
            raise DataError("weights.safetensors does not fit model.json: they belong to different models.")
        self.reading_ = plain["reading"]
        report = plain["report"]
        history = [EMStep(**step) for step in report["history"]]
        self.report_ = EMReport(report["converged"], report["reason"], report["value"], history, None, report["probes"])
        return self


def _longer(sentences: Sentences) -> Sentences:
    found = [sentence for sentence in sentences if len(sentence) >= PCFG.shortest]
    if not found:
        raise DataError("no sentence of two words or more to score.")
    return found


def _sentences(X: Sentences | Corpus) -> Sentences:
    found: Sentences = X.sentences(0) if isinstance(X, Corpus) else X
    if len(found) == 0:
        raise DataError("there is no sentence: X is empty.")
    return checked(found)
