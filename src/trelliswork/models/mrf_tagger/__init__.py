"""A tagger that is a Markov random field of tags and words, trained by its joint likelihood (paper 0)."""

import os
from collections.abc import Sequence
from dataclasses import KW_ONLY
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_count
from trelliswork.data import Corpus, Vocabulary
from trelliswork.data.files import shorten
from trelliswork.data.vocabulary import strings
from trelliswork.errors import DataError, ShapeError
from trelliswork.features.knowledge import KNOWLEDGE, Knowledge
from trelliswork.learning.report import Callback
from trelliswork.models.base import Arrays, Description, Table, check_finite, check_label
from trelliswork.models.hmm.data import read_sentences
from trelliswork.models.hmm.decoding import StateChain
from trelliswork.models.hmm.tagging import ChainTagger
from trelliswork.models.mrf_tagger.decoding import emission_rows, tag_chain
from trelliswork.models.mrf_tagger.features import PAD, TaggerFeatures
from trelliswork.models.mrf_tagger.objective import offsets_of
from trelliswork.models.mrf_tagger.training import Learned, learn
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
    bound_ : float
        Lower bound on the log-likelihood per position of the training data, pads between sentences counted; exact for
        ``order`` and ``n_words`` 1.
    cover_weights_ : ndarray (K, L)
        Weights of the parts of the bound.

    Notes
    -----
    An iteration costs O(K L T C) for T tags and C types of words, where K is ``order`` and L is ``n_words``. Jernite,
    Rush and Sontag (2015), section 6; the bound, which differs from the paper's, is derived in
    ``trelliswork.models.mrf_tagger.bound``.

    Examples
    --------
    >>> tagger = MRFTagger().fit([["the", "dog"], ["a", "dog", "runs"]], [["D", "N"], ["D", "N", "V"]])
    >>> tagger.predict([["the", "dog", "runs"]])
    [['D', 'N', 'V']]
    """

    family: ClassVar[str] = "mrf-tagger"
    _title: ClassVar[str] = "MRF tagger"
    _apart: ClassVar[tuple[str, ...]] = KNOWLEDGE

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
        checkpoint : path, optional
            A file for the state of training, written twice a minute. If it exists, training resumes from it and ends
            with the weights of an uninterrupted run. ``save`` deletes it.
        callback : callable, optional
            Called after each iteration with a `Step`; a true result stops training.
        max_minutes : float, optional
            Time limit: stop before an iteration that would end later.
        """
        self._check_parameters()
        words: Any = read_sentences(X, training=True)
        _check_tags(words, y)
        held: Any = None
        if dev is not None:
            held = read_sentences(dev[0]), dev[1]
            _check_tags(*held)
        return self._set(learn(self, words, y, held, checkpoint, callback, max_minutes))

    def known_words(self) -> set[str]:
        """Return the words of training."""
        self._check_fitted()
        return set(self._features.words) - {PAD}

    def top_features(self, n: int = 20, label: str | None = None) -> list[tuple[str, str, float]]:
        """Return the n largest weights of features of a tag's own word by absolute value: feature, tag, weight."""
        self._check_fitted()
        check_count("n", n)
        weights = self._weights[0][:, :-1]
        columns = range(len(self._labels)) if label is None else [self._labels.id(label)]
        some = weights[:, list(columns)]
        names = self._features.own_names()
        named = np.array([name != "bias" for name in names])
        best = np.argsort(-np.abs(some * named[:, None]), axis=None, kind="stable")[:n]
        places = [divmod(int(k), some.shape[1]) for k in best]
        return [(names[f], self._labels[columns[t]], float(some[f, t])) for f, t in places]

    def transitions(self) -> NDArray[np.float64]:
        """Return the scores of pairs of neighboring tags (S, S): row before column."""
        self._check_fitted()
        return self._phi[0, :-1, :-1].copy()

    def describe(self, n: int = 20, label: str | None = None) -> Description:
        """Return the largest weights, and the bound."""
        self._check_fitted()
        check_label(label, self._labels)
        facts = {
            "labels": list(self._labels),
            "words": len(self.known_words()),
            "bound": self.bound_,
            "cover": self.cover_weights_.tolist(),
        }
        scores = self.transitions()
        best = [divmod(int(k), len(scores)) for k in np.argsort(-scores, axis=None, kind="stable")[:n]]
        pairs = [(self._labels[a], self._labels[b], float(scores[a, b])) for a, b in best]
        tables = [
            Table("top_features", "Largest weights", ("feature", "label", "weight"), self.top_features(n, label)),
            Table("top_transitions", "Label pairs", ("from", "to", "score"), pairs),
        ]
        return Description(f"MRF tagger with {len(self._labels)} labels", facts, tables)

    def _set(self, learned: Learned) -> Self:
        self._labels, self._features, self._lexicon = learned.labels, learned.features, learned.lexicon
        self._phi, self._weights, self._states = learned.phi, learned.weights, tag_chain(learned.phi)
        self.report_, self.bound_, self.cover_weights_ = learned.report, learned.bound, learned.cover_weights
        self.calibration_ = None
        return self

    @property
    def _chain(self) -> StateChain:
        return self._states

    def _scores(
        self, sentences: Sequence[Sequence[Any]], offsets: NDArray[np.int64], out: NDArray[np.bool_] | None
    ) -> NDArray[np.float64]:
        places = offsets_of(len(self._weights))
        types = list(dict.fromkeys([PAD, *(word for sentence in sentences for word in sentence)]))
        ids = {word: k for k, word in enumerate(types)}
        own, neighbor = self._features.tables(types)
        tables = [own, *[neighbor] * (len(places) - 1)]
        scores = [(table @ u)[:, :-1] for table, u in zip(tables, self._weights, strict=True)]
        flat = np.array([ids[word] for sentence in sentences for word in sentence])
        rows = emission_rows(scores, flat, offsets, places)
        if out is None:
            out = np.zeros(rows.shape, bool)
        if self.closed:
            at = np.array([self._features.words.id(w) if w in self._features.words else -1 for w in types])
            unlisted = ((at >= 0)[:, None] & ~self._lexicon[at])[flat]
            # Evidence overrides the lexicon where they leave no common tag.
            out = np.where((out | unlisted).all(axis=1, keepdims=True), out, out | unlisted)
        rows[out] = -np.inf
        return rows

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        features = self._features
        knowledge, known = features.knowledge.state()
        plain = {
            "knowledge": knowledge,
            "labels": self._labels.items,
            "words": features.words.items,
            "frequent": sorted(features.frequent),
            "own": features.own.items,
            "neighbor": features.neighbor.items,
            "bound": self.bound_,
        }
        arrays: Arrays = {"phi": self._phi, "lexicon": self._lexicon, "cover": self.cover_weights_, **known}
        return plain, arrays | {f"weights.{k}": u for k, u in enumerate(self._weights)}

    def _restore(self, plain: dict[str, Any], arrays: Arrays) -> None:
        own, neighbor = Vocabulary(strings(plain["own"])), Vocabulary(strings(plain["neighbor"]))
        knowledge = Knowledge.from_state(plain.get("knowledge", {}), arrays)
        self.clusters, self.vectors, self.lexicon = knowledge.clusters, knowledge.vectors, knowledge.lexicon
        words, frequent = Vocabulary(strings(plain["words"])), set(strings(plain["frequent"]))
        features = TaggerFeatures(words, frequent, own, neighbor, knowledge)
        labels, phi = Vocabulary(strings(plain["labels"])), arrays["phi"]
        T = len(labels) + 1
        weights = [arrays[f"weights.{k}"] for k in range(arrays["cover"].shape[1])]
        sizes = [len(features.own_names()), *[len(neighbor)] * (len(weights) - 1)]
        fits = phi.shape == (arrays["cover"].shape[0], T, T) and arrays["lexicon"].shape == (len(features.words), T - 1)
        if not fits or [u.shape for u in weights] != [(n, T) for n in sizes]:
            raise DataError("the weights do not match model.json: they belong to different models.")
        for name, array in (("phi", phi), *((f"weights.{k}", u) for k, u in enumerate(weights))):
            check_finite(name, array)
        found = phi, weights, arrays["lexicon"], plain["bound"], arrays["cover"], self.report_
        self._set(Learned(labels, features, *found))


def _check_tags(words: Sentences, tags: Sentences) -> None:
    if [len(sentence) for sentence in words] != [len(sentence) for sentence in tags]:
        raise ShapeError("y must have a tag for each word of X: the lengths of some sentences differ.")
    for n, sentence in enumerate(tags):
        for t, tag in enumerate(sentence):
            if not isinstance(tag, str):
                raise DataError(f"sentence {n}, token {t} of y: expected a tag, got {shorten(tag)}.").at(n, t)
