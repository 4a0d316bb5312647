"""The Markov random field language model: window K, globally normalized, trained on pair counts."""

import os
from collections.abc import Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_count
from trelliswork.compute.sharing import Group, sharing
from trelliswork.data import Vocabulary
from trelliswork.data.files import shorten
from trelliswork.data.ids import Source
from trelliswork.data.moments import Moments
from trelliswork.errors import DataError, ValueRangeError
from trelliswork.learning.report import Callback, counting_callback
from trelliswork.models.base import Arrays, Description, Table
from trelliswork.models.mrf.field import MRFField
from trelliswork.models.mrf.queries import (
    Estimate,
    blank_words,
    canonical_vectors,
    estimate,
    nearest,
    random_sentences,
    write_word2vec,
)
from trelliswork.models.mrf.spectral import learn_spectral
from trelliswork.models.mrf.training import (
    Algorithm,
    Bound,
    Form,
    check,
    learn_lifted,
    learn_pseudo,
    moments_of,
)
from trelliswork.models.parameters import (
    L2,
    TRAINING,
    FurtherOptions,
    LearningRate,
    MaxWords,
    MinCount,
    Parameter,
    Patience,
    Seed,
    Tol,
    Unknown,
    estimator,
    option,
    parse_numbers,
)
from trelliswork.models.tasks import Conditional


@estimator
class MRFLanguageModel(Conditional):
    r"""A language model without a direction: every word is tied to K neighbors on both sides.

    .. math:: p(t_1 \dots t_M \mid M) \propto \exp \sum_i \Big(\theta^0(t_i) + \sum_{l=1}^K \theta^l(x_i, x_{i+l})\Big)

    with K pads ``<s>`` on both sides and a distribution tau of lengths (Jernite, Rush and Sontag, 2015). It is trained
    on counts of words and pairs: once they are counted, the time of a step does not depend on the size of the text.
    Parameters that have no effect with the chosen algorithm or form are an error.

    Attributes
    ----------
    vocabulary_ : tuple of str
        Id 0 is the pad ``<s>``.
    report_ : FitReport
        Its value is minus the bound per position, penalty included (pseudo-likelihood: minus the mean log p per word);
        ``history[i].dev`` is the bound of the development data (mean log p).

    Examples
    --------
    >>> text = [["the", "dog", "runs"], ["the", "cat", "runs"], ["a", "dog", "sleeps"]] * 5
    >>> model = MRFLanguageModel(window=1, rank=4, l2=0.05).fit(text)
    >>> model.fill("the ___ runs", 2)[0][0][0] in ("dog", "cat"), model.kind
    (True, 'exact')
    """

    family: ClassVar[str] = "mrf-lm"
    _title: ClassVar[str] = "Markov random field language model"
    _fit_sets: ClassVar[str] = "_field"

    window: Annotated[
        int,
        Parameter(
            "K, the largest distance of two words that are tied. With 1 the model is trained exactly, beyond by a "
            "lower bound of the likelihood.",
            minimum=1,
        ),
    ] = 2
    _: KW_ONLY
    rank: Annotated[int, Parameter("Rank D of the tables.", minimum=1)] = 30
    form: Annotated[
        Form,
        Parameter(
            "Tables: U W_l' (eq. 5 of the paper), U R_l W' (eq. 4), or a score for every pair (beyond a million "
            "pairs, for every pair of the text)."
        ),
    ] = "UW"
    algorithm: Annotated[
        Algorithm,
        Parameter(
            "L-BFGS on the bound from moments; one table for all distances in closed form from their mutual "
            "information (for word vectors); or stochastic gradients on p(word | neighbors) from the text.",
            panel=TRAINING,
        ),
    ] = "lifted"
    l2: L2 = 2.5
    min_count: MinCount = 1
    max_words: MaxWords = None
    unknown: Unknown = "symbol"
    max_iter: Annotated[
        int | None,
        Parameter(
            "Maximum number of L-BFGS iterations, or of epochs.",
            minimum=1,
            panel=TRAINING,
            unset="300; pseudo-likelihood 5; spectral has none",
        ),
    ] = None
    tol: Tol = 1e-4
    patience: Patience = 20
    seed: Seed = 0
    options: FurtherOptions = None
    unary: Annotated[
        bool,
        Parameter("Whether words have scores of their own. Without them the bound costs more."),
    ] = option(True)
    bound: Annotated[
        Bound,
        Parameter("Cover that bounds the partition function: one chain per distance, or the paper's looser star."),
    ] = option("chain")
    cover_weights: Annotated[
        Sequence[float] | None,
        Parameter(
            "Weights of the chains, one per distance, that sum to at most 1.", unset="equal", parse=parse_numbers
        ),
    ] = option(None)
    learning_rate: LearningRate = option(2e-3)
    batch_size: Annotated[int, Parameter("Words per update of pseudo-likelihood.", minimum=1, panel=TRAINING)] = option(
        512
    )

    def fit(
        self,
        X: Source | Moments,
        y: object = None,
        *,
        dev: Source | Moments | None = None,
        start: "MRFLanguageModel | None" = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callback: Callback | None = None,
        max_minutes: float | None = None,
    ) -> Self:
        """Train on text or on its moments.

        Parameters
        ----------
        X : Path, list of Path, Corpus, list of sentences, or Moments
            Files have one sentence per line. ``Moments`` must have K = ``window``, and fix the words (``min_count``,
            ``max_words`` and ``unknown`` do not apply); pseudo-likelihood needs text. In a group of processes each rank
            has its own part of the text, or all have the same ``Moments``.
        y : ignored
        dev : like X, optional
            Development text: the iteration with its best bound is kept, and training stops ``patience`` iterations (of
            pseudo-likelihood: epochs) later.
        start : MRFLanguageModel, optional
            Start from the tables of another low-rank model with the same words, such as the exact one of window 1.
        callback : callable, optional
            Called with a `Step` while text is counted and after each iteration; a true result after an iteration stops
            training.
        """
        self._check_parameters()
        check(self, X, dev, start, checkpoint)
        counting = counting_callback(callback)
        moments = moments_of(self, X, None, counting)
        run: Any = {"checkpoint": checkpoint, "callback": callback, "max_minutes": max_minutes}
        if self.algorithm == "pseudo-likelihood":
            field, report = learn_pseudo(self, X, moments, dev, **run)  # type: ignore[arg-type]
        else:
            other = None
            if dev is not None:
                with sharing(Group()):  # all ranks of a group have all of it
                    other = moments_of(self, dev, moments.vocabulary, counting)
            if self.algorithm == "lifted":
                first = None if start is None else start._same_words(moments.vocabulary)
                field, report = learn_lifted(self, moments, other, start=first, **run)
            else:
                field, report = learn_spectral(self, moments, other, callback)
        # Set together at the end: a fit that fails leaves the learned attributes unchanged.
        self._field, self.report_, self._words = field, report, moments.vocabulary
        self._n_positions, self._n_tokens = moments.n_positions, moments.n_tokens + moments.n_sentences
        return self

    def log_prob(self, X: Source) -> NDArray[np.float64]:
        """Return the log-likelihood of each sentence in nats, its length included, or a lower bound of it: see `kind`.

        It is exact for window 1 and for tiny vocabularies. Time O(K M C^2) once, M the longest sentence.
        """
        return self._evidence(X)[0]

    def _evidence(self, X: Source) -> tuple[NDArray[np.float64], int]:
        ids = self._ids(X).sentences()
        return self._fitted_field().log_likelihoods(ids), sum(map(len, ids)) + len(ids)

    @property
    def kind(self) -> str:
        """Whether log-probabilities of text are "exact" or "lower" bounds."""
        return "exact" if self._fitted_field().exact else "lower"

    @property
    def _bound_kind(self) -> str:
        """Bound of the text in a circle, which training maximizes: exact, chain or star.

        "exact" only for window 1 with all weight on the chain.
        """
        if self._fitted_field().K == 1 and self._field.weights[0] > 1 - 1e-9:
            return "exact"
        return self.bound if self.algorithm == "lifted" else "chain"

    def estimate(
        self, X: Source, *, n_lengths: int = 6, n_samples: int = 64, n_steps: int = 50, seed: int = 0
    ) -> Estimate:
        """Estimate the true log-likelihood per token, with a standard error, by annealed importance sampling.

        Parameters
        ----------
        X : text
        n_lengths : int
            Number of lengths at which log Z is estimated; between them its distance from the bound is interpolated.
            The interpolation error is not part of the standard error.
        n_samples, n_steps : int
            Number of samples, at least 2, and of temperatures.
        seed : int
        """
        for name, value in (("n_lengths", n_lengths), ("n_samples", n_samples), ("n_steps", n_steps)):
            check_count(name, value)
        if n_samples < 2:
            raise ValueRangeError("n_samples must be at least 2, got 1: a single sample has no standard error.")
        field, ids = self._fitted_field(), self._ids(X).sentences()
        if not ids:
            raise DataError("the text has no sentences, so there is no mean per token.")
        return estimate(field, ids, n_lengths, n_samples, n_steps, seed)

    def _blank(self, ids: NDArray[np.int64], t: int) -> NDArray[np.float64]:
        return blank_words(self._field, ids[:t], ids[t + 1 :])

    def sample(
        self, n: int = 1, *, seed: int | None = None, max_length: int = 200, sweeps: int = 30
    ) -> list[list[str]]:
        """Return n random sentences: exact for window 1, else by Gibbs sampling from the chain of distance 1.

        Parameters
        ----------
        n, seed : int
        max_length : int
            Longer sentences are cut.
        sweeps : int
            Sweeps of Gibbs sampling.
        """
        field = self._fitted_field()
        check_count("n", n)
        check_count("max_length", max_length)
        check_count("sweeps", sweeps)
        return [self._words.strings(ids) for ids in random_sentences(field, n, seed, max_length, sweeps)]

    def vectors(self, scaling: float | None = None) -> NDArray[Any]:
        """Return one vector per word (C, D); the first is the pad's.

        Parameters
        ----------
        scaling : float, optional
            By default the vectors are the rows of U as they were learned. Tables do not change if U is multiplied by a
            matrix and W by its inverse; a number chooses U among these: the left singular vectors of all tables, times
            their singular values to this power. 0 gives all dimensions the same weight, 1 gives words with similar
            rows of the tables similar vectors. With algorithm "spectral" U is that of 0.
        """
        if self._fitted_field().form == "full":
            raise ValueRangeError("a full-rank model has no vectors of words: use form='UW' or 'URW'.")
        return self._field.factors["left"] if scaling is None else canonical_vectors(self._field, scaling)

    def neighbors(self, word: str, n: int = 10) -> list[tuple[str, float]]:
        """Return the n words whose vectors have the largest cosines with that of a word."""
        vectors = self.vectors()
        check_count("n", n)
        if word not in self._words or self._words.id(word) == 0:
            raise ValueRangeError(f"{shorten(word)} is not one of the {len(self._words) - 1} words of the model.")
        return [(self._words[i], c) for i, c in nearest(vectors, self._words.id(word), n)]

    def export_word2vec(self, path: str | Path, *, scaling: float | None = None) -> None:
        """Write the ``vectors`` in word2vec's text format, without the pad."""
        write_word2vec(path, self.vectors(scaling)[1:], self._words.items[1:])

    def describe(self, n: int = 20, label: str | None = None) -> Description:
        """Return shape and bound of the model, how training ended, and neighbors of frequent words, or of one word."""
        field = self._fitted_field()
        words, k = (self._words.items[1 : n + 1], 5) if label is None else ([label], n)
        facts = {
            "words": len(self._words) - 1,
            "window": self.window,
            "form": "one table" if self.algorithm == "spectral" else self.form,
            "rank": None if self.form == "full" else self.rank,
            "unary": self.unary,
            "algorithm": self.algorithm,
            "bound": self._bound_kind,
            "cover_weights": field.weights.tolist(),
            "positions": self._n_positions,
            "tokens": self._n_tokens,
            "per": "word" if self.algorithm == "pseudo-likelihood" else "position",
        }
        rows: list[tuple[Any, ...]] = []
        if self.form != "full":
            rows = [(word, [list(pair) for pair in self.neighbors(word, k)]) for word in words]
        about = "frequent words" if label is None else label
        tables = [Table("neighbors", f"Neighbors of {about}", ("word", "neighbors"), rows)]
        return Description(f"Markov random field with window {self.window}", facts, tables)

    def _fitted_field(self) -> MRFField:
        self._check_fitted()
        return self._field

    def _same_words(self, vocabulary: Vocabulary) -> MRFField:
        self._check_fitted()
        if self._words.items != vocabulary.items:
            raise ValueRangeError("start has another vocabulary: count both texts with the same one.")
        return self._field

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        plain, arrays = self._field.state()
        plain |= {
            "words": self._words.items,
            "unknown": self._words.unknown_word,
            "positions": self._n_positions,
            "tokens": self._n_tokens,
        }
        return plain, arrays

    def _restore(self, plain: dict[str, Any], arrays: Arrays) -> None:
        self._words = Vocabulary.restored(plain["words"], plain["unknown"])
        self._field = MRFField.from_state(plain, arrays, len(self._words))
        self._n_positions, self._n_tokens = plain["positions"], plain["tokens"]
