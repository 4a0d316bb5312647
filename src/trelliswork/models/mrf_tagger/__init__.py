"""A tagger that is a Markov random field of tags and words, trained by its joint likelihood (paper 0)."""

import os
from collections.abc import Sequence
from dataclasses import KW_ONLY
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_count
from trelliswork.data import Corpus
from trelliswork.data.files import shorten
from trelliswork.errors import DataError, ShapeError
from trelliswork.features.knowledge import KNOWLEDGE
from trelliswork.learning.report import Callback, FitReport
from trelliswork.models.base import Arrays, Description, Table, check_label
from trelliswork.models.hmm.data import read_sentences
from trelliswork.models.hmm.decoding import StateChain
from trelliswork.models.hmm.tagging import ChainTagger
from trelliswork.models.mrf_tagger.features import PAD
from trelliswork.models.mrf_tagger.learned import Learned, emission_rows
from trelliswork.models.mrf_tagger.objective import offsets_of
from trelliswork.models.mrf_tagger.training import learn
from trelliswork.models.parameters import (
    L2,
    Clusters,
    LexiconOption,
    MaxIter,
    Parameter,
    Patience,
    Tol,
    Vectors,
    estimator,
    later,
)

Sentences = Sequence[Sequence[str]]


@estimator
class MRFTagger(ChainTagger):
    """Tags and words as one Markov random field: each tag depends on K tags after it and on the L nearest words.

    It maximizes a lower bound on the joint likelihood of tags and words, from counts: the time of an iteration does not
    depend on the size of the corpus. Unknown words are scored by their shapes, prefixes and suffixes. Given the words,
    tags are a chain, so that all queries are exact.

    Attributes
    ----------
    labels_ : tuple of str
        Tags.
    report_ : FitReport
        Report of the training.

    Notes
    -----
    ``describe`` has the bound per position of the training data, pads between sentences counted, which is exact for
    ``order`` and ``n_words`` 1, and the weights of its parts. An iteration costs O(K L T C) for T tags and C types of
    words, where K is ``order`` and L is ``n_words``. Jernite, Rush and Sontag (2015), section 6; the bound, which
    differs from the paper's, is derived in ``trelliswork.models.mrf_tagger.bound``.

    Examples
    --------
    >>> tagger = MRFTagger().fit([["the", "dog"], ["a", "dog", "runs"]], [["D", "N"], ["D", "N", "V"]])
    >>> tagger.predict([["the", "dog", "runs"]])
    [['D', 'N', 'V']]
    """

    family: ClassVar[str] = "mrf-tagger"
    _title: ClassVar[str] = "MRF tagger"
    _apart: ClassVar[tuple[str, ...]] = KNOWLEDGE
    _learned: Learned = later()

    order: Annotated[int, Parameter("Largest distance of tags that have a common potential.", minimum=1, maximum=3)] = 1
    _: KW_ONLY
    n_words: Annotated[
        int,
        Parameter("Words that a tag depends on, nearest first: its own, the one before, the one after.", minimum=1),
    ] = 1
    clusters: Clusters = None
    vectors: Vectors = None
    lexicon: LexiconOption = None
    l2: L2 = 0.5
    min_count: Annotated[
        int, Parameter("Words that occur less often also have features of shape and affixes.", minimum=1)
    ] = 6
    closed: Annotated[bool, Parameter("Whether words of the training data get only tags that they had there.")] = False
    max_iter: MaxIter = 100
    tol: Tol = 1e-3
    patience: Patience = 20

    def fit(
        self,
        X: Sentences | Corpus,
        y: Sentences,
        *,
        dev: tuple[Sentences | Corpus, Sentences] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callback: Callback | None = None,
        max_minutes: float | None = None,
    ) -> Self:
        """Train on tagged sentences.

        Parameters
        ----------
        X : list of lists of str, or Corpus
            Words; the first column of a corpus.
        y : list of lists of str
            The tag of each word.
        dev : (X, y), optional
            Development data: training stops when the accuracy has not increased for ``patience`` iterations, and the
            best iteration is kept.
        """
        self._check_parameters()
        words: Any = read_sentences(X, training=True)
        _check_tags(words, y)
        held: Any = None
        if dev is not None:
            held = read_sentences(dev[0]), dev[1]
            _check_tags(*held)
        return self._set(*learn(self, words, y, held, checkpoint, callback, max_minutes))

    def known_words(self) -> set[str]:
        """Return the words of training."""
        self._check_fitted()
        return set(self._learned.features.words) - {PAD}

    def top_features(self, n: int = 20, label: str | None = None) -> list[tuple[str, str, float]]:
        """Return the n largest weights of features of a tag's own word by absolute value: feature, tag, weight."""
        self._check_fitted()
        check_count("n", n)
        weights, names = self._learned.weights[0][:, :-1], self._learned.features.own_names()
        columns = range(len(self._labels)) if label is None else [self._labels.id(label)]
        named = [f for f, name in enumerate(names) if name != "bias"]
        some = weights[np.ix_(named, columns)]
        best = np.argsort(-np.abs(some), axis=None, kind="stable")[:n]
        places = zip(*np.divmod(best, len(columns)), strict=True)
        return [(names[named[f]], self._labels[columns[t]], float(some[f, t])) for f, t in places]

    def transitions(self) -> NDArray[np.float64]:
        """Return the scores of pairs of neighboring tags (S, S): row before column."""
        self._check_fitted()
        return self._learned.phi[0, :-1, :-1].copy()

    def describe(self, n: int = 20, label: str | None = None) -> Description:
        """Return the largest weights, and the bound."""
        self._check_fitted()
        check_label(label, self._labels)
        facts = {
            "labels": list(self._labels),
            "words": len(self.known_words()),
            "bound": self._learned.bound,
            "cover": self._learned.cover.tolist(),
        }
        scores = self.transitions()
        best = [divmod(int(k), len(scores)) for k in np.argsort(-scores, axis=None, kind="stable")[:n]]
        pairs = [(self._labels[a], self._labels[b], float(scores[a, b])) for a, b in best]
        tables = [
            Table("top_features", "Largest weights", ("feature", "label", "weight"), self.top_features(n, label)),
            Table("top_transitions", "Label pairs", ("from", "to", "score"), pairs),
        ]
        return Description(f"MRF tagger with {len(self._labels)} labels", facts, tables)

    def _set(self, learned: Learned, report: FitReport) -> Self:
        self._learned, self._labels, self.report_, self.calibration_ = learned, learned.labels, report, None
        return self

    @property
    def _chain(self) -> StateChain:
        return self._learned.chain

    def _scores(
        self, sentences: Sequence[Sequence[Any]], offsets: NDArray[np.int64], out: NDArray[np.bool_] | None
    ) -> NDArray[np.float64]:
        features, weights = self._learned.features, self._learned.weights
        types = list(dict.fromkeys([PAD, *(word for sentence in sentences for word in sentence)]))
        ids = {word: k for k, word in enumerate(types)}
        own, neighbor = features.tables(types)
        scores = [((neighbor if k else own) @ u)[:, :-1] for k, u in enumerate(weights)]
        flat = np.array([ids[word] for sentence in sentences for word in sentence])
        rows = emission_rows(scores, flat, offsets, offsets_of(len(weights)))
        if out is None:
            out = np.zeros(rows.shape, bool)
        if self.closed:
            at = np.array([features.words.id(word) if word in features.words else -1 for word in types])
            unlisted = ((at >= 0)[:, None] & ~self._learned.lexicon[at])[flat]
            # Evidence overrides the lexicon where they leave no common tag.
            out = np.where((out | unlisted).all(axis=1, keepdims=True), out, out | unlisted)
        rows[out] = -np.inf
        return rows

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        return self._learned.state()

    def _restore(self, plain: dict[str, Any], arrays: Arrays) -> None:
        self._set(Learned.from_state(plain, arrays), self.report_)
        for name in KNOWLEDGE:
            setattr(self, name, getattr(self._learned.features.knowledge, name))


def _check_tags(words: Sentences, tags: Sentences) -> None:
    if [len(sentence) for sentence in words] != [len(sentence) for sentence in tags]:
        raise ShapeError("y must have a tag for each word of X: the lengths of some sentences differ.")
    for n, sentence in enumerate(tags):
        for t, tag in enumerate(sentence):
            if not isinstance(tag, str):
                raise DataError(f"sentence {n}, token {t} of y: expected a tag, got {shorten(tag)}.").at(n, t)
