"""The Markov random field language model: order K, globally normalised, learned from pair counts."""

import inspect
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_count
from trelliswork.data import Vocabulary
from trelliswork.data.moments import Moments
from trelliswork.data.moments.files import Source
from trelliswork.data.moments.text import Callback as CountCallback
from trelliswork.data.moments.text import open_vocabulary, unknown_word
from trelliswork.errors import DataError, ValueRangeError
from trelliswork.inference.lifted import ChainBound, ChainCover, Star, StarBound
from trelliswork.learning.lbfgs import FitReport
from trelliswork.models.base import Arrays, Estimator
from trelliswork.models.mrf.field import MRFField
from trelliswork.models.mrf.queries import (
    Estimate,
    SentenceBounds,
    blank_words,
    estimate,
    nearest,
    random_sentences,
    sentence_ids,
    word_ids,
    write_word2vec,
)
from trelliswork.models.mrf.shapes import Frequencies
from trelliswork.models.mrf.training import (
    Algorithm,
    Bound,
    Callback,
    Form,
    Settings,
    learn_lifted,
    learn_pseudo,
    moments_of,
)

BLANK = "___"


class MRFLanguageModel(Estimator):
    r"""A language model without a direction: every word is tied to K neighbours on both sides.

    .. math:: p(t_1 \dots t_M \mid M) \propto \exp \sum_i \Big(\theta^0(t_i) + \sum_{l=1}^K \theta^l(x_i, x_{i+l})\Big)

    with K pads ``<S>`` on both sides and a distribution tau of lengths (Jernite, Rush and Sontag, 2015). It is learned
    from counts of words and pairs: after they are counted, the time of a step does not depend on the size of the text.

    Parameters
    ----------
    K : int
        The largest distance of two words that are tied. K = 1 is learned exactly, else a lower bound of the likelihood.
    rank : int
        D of low-rank tables.
    form : "UW", "URW" or "full"
        :math:`\theta^l = U W_l^\top` (paper's eq. 5), :math:`U R_l W^\top` (eq. 4), or a score for every pair (for
        every pair of the text if there are more than a million).
    unary : bool
        Whether words have scores :math:`\theta^0` of their own. Without, and without a bias, the bound costs more.
    bias : bool
        Whether tables have a bias :math:`\theta^l(x, y) + B(y)` of right words, one for all distances, as in the
        authors' code (``unary=False, bias=True``). It adds up to a unary: with either, or both, it is the same model.
    bound : "chain" or "star"
        The cover that bounds the partition function: one chain a distance, or the paper's star, which is looser.
    weights : sequence of K floats, optional
        Of the chains, at most 1 together; equal by default.
    algorithm : "lifted" or "pseudo-likelihood"
        The bound from moments by L-BFGS, or p(word | neighbours) from the text by stochastic gradients.
    l2 : float
        Penalty on the tables, for the text as a whole.
    min_count, max_words : int
        Rarer words, and all but so many, are the unknown word ``<unk>``.
    max_iter, tol, memory : of L-BFGS
    patience : int
        With development data: stop after so many iterations (of pseudo-likelihood: tenths of epochs) without a better
        figure.
    epochs, rate, batch_size : of pseudo-likelihood
    seed : int
        What is given and has no meaning for the algorithm or form is refused.

    Attributes
    ----------
    vocabulary_ : Vocabulary
        Id 0 is the pad ``<S>``.
    field_ : MRFField
        Scores, and the cover that bounds them.
    report_ : FitReport
        Its value is minus the bound a position, penalty included (of pseudo-likelihood: minus the mean log p of a
        word); ``history[i].dev`` the development data's bound (mean log p).
    n_positions_, n_tokens_ : int
        Of the training text: with K pads a sentence, and with one end of sentence each.

    Examples
    --------
    >>> text = [["the", "dog", "runs"], ["the", "cat", "runs"], ["a", "dog", "sleeps"]] * 5
    >>> model = MRFLanguageModel(K=1, rank=4, l2=0.1).fit(text)
    >>> model.fill("the ___ runs", 2)[0][0] in ("dog", "cat"), model.log_likelihood_bounds(text[:1]).kind
    (True, 'exact')
    """

    kind: ClassVar[str] = "mrf-lm"
    learned: ClassVar[str] = "field_"
    input_: dict[str, Any]

    def __init__(
        self,
        K: int = 2,
        rank: int = 30,
        *,
        form: Form = "UW",
        unary: bool = True,
        bias: bool = False,
        bound: Bound = "chain",
        weights: Sequence[float] | None = None,
        algorithm: Algorithm = "lifted",
        l2: float = 5.0,
        min_count: int = 1,
        max_words: int | None = None,
        max_iter: int = 300,
        tol: float = 1e-4,
        memory: int = 10,
        patience: int = 20,
        epochs: int = 5,
        rate: float = 2e-3,
        batch_size: int = 512,
        seed: int = 0,
    ) -> None:
        self.K = K
        self.rank = rank
        self.form = form
        self.unary = unary
        self.bias = bias
        self.bound = bound
        self.weights = weights
        self.algorithm = algorithm
        self.l2 = l2
        self.min_count = min_count
        self.max_words = max_words
        self.max_iter = max_iter
        self.tol = tol
        self.memory = memory
        self.patience = patience
        self.epochs = epochs
        self.rate = rate
        self.batch_size = batch_size
        self.seed = seed

    def fit(
        self,
        X: Source | Moments,
        y: object = None,
        *,
        dev: Source | Moments | None = None,
        start: "MRFLanguageModel | None" = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callback: Callback | None = None,
        counting: CountCallback | None = None,
    ) -> Self:
        """Learn from text or from its moments.

        Parameters
        ----------
        X : path, list of paths, Corpus, list of sentences, or Moments
            Files have one sentence a line. ``Moments`` are counted before, with this K; pseudo-likelihood needs text.
        y : ignored
        dev : likewise, optional
            Development text: the iteration with its best bound is kept, and training ends when it gets no better.
        start : MRFLanguageModel, optional
            Begin with the tables of another low-rank model of the same words, such as the exact one of K = 1.
        checkpoint : path, optional
            Where an interrupted training goes on from; removed at the end, but kept if ``callback`` stops it.
        callback : callable, optional
            Called with a ``Step`` and the parameters after each iteration; a true answer stops.
        counting : callable, optional
            Told a ``CountStep`` now and then while text is counted.
        """
        settings = self._settings()
        settings.check(self._given())
        settings.check_sources(X, dev, start)
        moments = self._moments(X, None, counting)
        if self.algorithm == "lifted":
            field, report = learn_lifted(
                settings,
                moments,
                None if dev is None else self._moments(dev, moments.vocabulary, counting),
                start=None if start is None else start._same_words(moments.vocabulary),
                checkpoint=checkpoint,
                callback=callback,
            )
        else:
            field, report = learn_pseudo(settings, X, moments, dev, checkpoint=checkpoint, callback=callback)  # type: ignore[arg-type]
        # Set together at the end: a fit that fails leaves what was learned before.
        self.field_, self.report_, self.vocabulary_ = field, report, moments.vocabulary
        self.n_positions_, self.n_tokens_ = moments.n_positions, moments.n_tokens + moments.n_sentences
        return self

    def log_likelihood_bounds(self, X: Source) -> SentenceBounds:
        """Log-likelihoods of sentences: exact for K = 1 and for tiny vocabularies, else lower bounds.

        Time O(K M C^2) once, M the longest sentence.
        """
        return SentenceBounds(self._field().log_likelihoods(self._ids(X)), self.evidence_kind, self.evidence_bound)

    def log_evidence(self, X: Source) -> NDArray[np.float64]:
        """The values of ``log_likelihood_bounds``."""
        return self.log_likelihood_bounds(X).values

    def score(self, X: Source, y: object = None) -> NDArray[np.float64]:
        """The same; ``y`` is not looked at."""
        return self.log_evidence(X)

    @property
    def evidence_kind(self) -> str:
        """Of ``log_evidence``: "exact" or "lower"."""
        return "exact" if self._field().exact else "lower"

    @property
    def evidence_bound(self) -> str:
        """Of ``log_evidence``: "exact", or the cover that bounds it (``SentenceBounds``)."""
        if self._field().exact:
            return "exact"
        return "chain with star weights" if self.bound_ == "star" else "chain"

    @property
    def bound_(self) -> str:
        """Of the text in a circle, which training maximises and ``moment_bound`` tells: "exact", "chain" or "star".

        "exact" only if K = 1 and the chain has all of the weight.
        """
        if self._field().K == 1 and self.field_.weights[0] > 1 - 1e-9:
            return "exact"
        return self.bound if self.algorithm == "lifted" else "chain"

    def perplexity(self, X: Source) -> float:
        """exp of minus the mean log-likelihood (or its bound) of a token, one end of sentence counted."""
        ids = self._some_ids(X)
        return float(np.exp(-self._field().log_likelihoods(ids).sum() / (sum(map(len, ids)) + len(ids))))

    def moment_bound(self, X: Source | Moments) -> tuple[float, float]:
        """Lower bounds of a text's log-likelihood in a circle (the paper's): a position, and a token.

        Positions count K pads a sentence, tokens one end of sentence. The cover is that of training, ``bound_``. It is
        that of an endless circle (N -> infinity), so for a few words the bounds may be a little above the truth.
        """
        self._check_fitted()
        moments = self._moments(X, self.vocabulary_)
        value = self.field_.moment_bound(Frequencies.of(moments))
        return value, value * moments.n_positions / (moments.n_tokens + moments.n_sentences)

    def tighten(self, bound: Bound = "chain", **options: Any) -> ChainBound | StarBound:
        """Look for the tightest bound of A / N of this model; ``options`` of ``ChainCover`` or ``Star.tighten``."""
        field = self._field()
        if bound == "star":
            return Star(field.log_unary, field.tables).tighten(**options)
        if bound != "chain":
            raise ValueRangeError(f"bound must be 'chain' or 'star', got {bound!r}.")
        return ChainCover(field.log_unary, field.tables).tighten(**options)

    def estimate(
        self, X: Source, *, n_lengths: int = 6, n_samples: int = 64, n_steps: int = 50, seed: int = 0
    ) -> Estimate:
        """Estimate the true log-likelihood of a text a token, with a standard error (annealed importance sampling).

        Parameters
        ----------
        X : text
        n_lengths : int
            log Z is estimated at so many lengths; between them its distance from the bound is interpolated. The error
            of that is not in the standard error.
        n_samples, n_steps : int
            Samples, two or more, and temperatures.
        seed : int
        """
        for name, value in (("n_lengths", n_lengths), ("n_samples", n_samples), ("n_steps", n_steps)):
            check_count(name, value)
        if n_samples < 2:
            raise ValueRangeError(
                "n_samples must be 2 or more, got 1: one sample has no spread to tell the error from."
            )
        return estimate(self._field(), self._some_ids(X), n_lengths, n_samples, n_steps, seed)

    def fill(self, sentence: str | Sequence[str], n: int = 10) -> list[tuple[str, float]]:
        """The n most probable words for the blank ``___`` of a sentence, with p(word | all others): exact."""
        words = sentence.split() if isinstance(sentence, str) else list(sentence)
        if words.count(BLANK) != 1:
            raise ValueRangeError(f"a sentence with one blank {BLANK} is wanted, got {words.count(BLANK)} in {words}.")
        check_count("n", n)
        self._check_fitted()
        at = words.index(BLANK)
        others = word_ids(self.vocabulary_, words[:at] + words[at + 1 :], "the sentence")
        p = blank_words(self.field_, others[:at], others[at:])
        best = 1 + np.argsort(-p[1:], kind="stable")[:n]  # a pad is no word
        return [(self.vocabulary_[i], float(p[i])) for i in best.tolist()]

    def sample(self, n: int = 1, *, seed: int = 0, max_length: int = 200, sweeps: int = 30) -> list[list[str]]:
        """Draw sentences: exactly for K = 1, else by Gibbs sampling from samples of the chain of distance 1.

        Parameters
        ----------
        n, seed : int
        max_length : int
            Longer ones are cut.
        sweeps : int
            Of Gibbs sampling.
        """
        field = self._field()
        check_count("n", n)
        check_count("max_length", max_length)
        check_count("sweeps", sweeps)
        return [self.vocabulary_.strings(ids) for ids in random_sentences(field, n, seed, max_length, sweeps)]

    @property
    def embeddings_(self) -> NDArray[Any]:
        """U, a vector for each word (C, D); the first is the pad's."""
        if self._field().form == "full":
            raise ValueRangeError("a full-rank model has no embeddings: use form='UW' or 'URW'.")
        return self.field_.factors["left"]

    def neighbors(self, word: str, n: int = 10) -> list[tuple[str, float]]:
        """The n words whose embeddings have the largest cosines with that of a word."""
        embeddings = self.embeddings_
        check_count("n", n)
        if word not in self.vocabulary_ or self.vocabulary_.id(word) == 0:
            raise ValueRangeError(f"{word!r} is not among the {len(self.vocabulary_) - 1} words of the model.")
        return [(self.vocabulary_[i], c) for i, c in nearest(embeddings, self.vocabulary_.id(word), n)]

    def export_word2vec(self, path: str | Path) -> None:
        """Write the embeddings in word2vec's text format: a line "words dimensions", then one a word, no pad."""
        write_word2vec(path, self.embeddings_[1:], self.vocabulary_.items[1:])

    def _settings(self) -> Settings:
        return Settings(**{k: v for k, v in self.get_params().items() if k not in ("min_count", "max_words")})

    def _field(self) -> MRFField:
        self._check_fitted()
        return self.field_

    def _given(self) -> set[str]:
        """The parameters that differ from their defaults."""
        defaults = inspect.signature(type(self).__init__).parameters
        plain = {k: v for k, v in self.get_params().items() if k != "weights"}  # an array does not compare
        return {k for k, v in plain.items() if v != defaults[k].default} | (
            set() if self.weights is None else {"weights"}
        )

    def _same_words(self, vocabulary: Vocabulary) -> MRFField:
        self._check_fitted()
        if self.vocabulary_.items != vocabulary.items:
            raise ValueRangeError("start was trained with another vocabulary: count both texts with the same one.")
        return self.field_

    def _moments(
        self, X: Source | Moments, vocabulary: Vocabulary | None, counting: CountCallback | None = None
    ) -> Moments:
        return moments_of(X, self.K, vocabulary, self.min_count, self.max_words, counting)

    def _ids(self, X: Source) -> list[NDArray[np.int64]]:
        self._check_fitted()
        return sentence_ids(self.vocabulary_, X)

    def _some_ids(self, X: Source) -> list[NDArray[np.int64]]:
        """The same of at least one sentence: there is no mean of nothing."""
        found = self._ids(X)
        if not found:
            raise DataError("the text has no sentence: there is nothing to take a mean of.")
        return found

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        plain, arrays = self.field_.state()
        report = self.report_
        plain |= {
            "parameters": self.get_params(),
            "words": self.vocabulary_.items,
            "unknown": unknown_word(self.vocabulary_),
            "positions": self.n_positions_,
            "tokens": self.n_tokens_,
            "input": getattr(self, "input_", {}),
            "report": {"converged": report.converged, "reason": report.reason, "value": report.value},
        }
        return plain, arrays

    @classmethod
    def _from_state(cls, plain: dict[str, Any], arrays: Arrays) -> Self:
        self = cls(**plain["parameters"])
        self.vocabulary_ = open_vocabulary(plain["words"], plain["unknown"])
        self.field_ = MRFField.from_state(plain, arrays, len(self.vocabulary_))
        self.n_positions_, self.n_tokens_ = plain["positions"], plain["tokens"]
        self.input_ = plain["input"]
        report = plain["report"]
        self.report_ = FitReport(report["converged"], report["reason"], report["value"])  # its history is not kept
        return self
