"""A tagger that is a Markov random field of tags and words, learned by its joint likelihood (paper 0)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_count
from trelliswork.data import Corpus, Vocabulary
from trelliswork.errors import DataError, ShapeError, ValueRangeError
from trelliswork.inference import chain
from trelliswork.learning.lbfgs import FitReport, Step
from trelliswork.models.base import Arrays, Estimator, check_finite
from trelliswork.models.evidence import Labels, ruled_out
from trelliswork.models.hmm.decoding import StateChain
from trelliswork.models.mrf_tagger.decoding import emission_rows, tag_chain
from trelliswork.models.mrf_tagger.features import PAD, TaggerFeatures
from trelliswork.models.mrf_tagger.objective import offsets_of
from trelliswork.models.mrf_tagger.training import Learned, learn

if TYPE_CHECKING:
    from trelliswork.distributions import LinearChain

Sentences = Sequence[Sequence[str]]
Callback = Callable[[Step, NDArray[np.float64]], bool | None]
CHUNK = 1 << 18  # tokens that are scored at once
MAX_K = 3


class MRFTagger(Estimator):
    """Tags and words as one Markov random field: each tag is tied to K tags after it and to the L words nearest to it.

    Learned by maximising a lower bound on the joint likelihood of tags and words, from counts: an iteration takes the
    same time for any size of corpus. New words are judged by their shapes, prefixes and suffixes. Given the words, tags
    are a chain, so that the best tagging and marginals are exact.

    Parameters
    ----------
    K : {1, 2, 3}
        Distances at which tags are tied.
    n_words : int
        L: words that a tag sees, the nearest first: its own, the one before, the one after, ...
    l2 : float
        Penalty on the weights of features.
    rare : int
        Words seen at most so often are known by their features too, not only by themselves.
    dictionary : bool
        Whether words of the training part get only tags that they had there.
    max_iter, tol : int, float
        Iterations of L-BFGS at most, and the relative fall of the objective (in 10 iterations) at which it stops.
    patience : int
        With development sentences: stop after so many iterations without a better accuracy.

    Attributes
    ----------
    tags_ : Vocabulary
    report_ : FitReport
        How training ended.
    bound_ : float
        Lower bound on the log-likelihood per position of the training part, pads between sentences counted; exact for
        K = L = 1.
    cover_weights_ : ndarray (K, L)
        The weights of the parts of the bound.

    Notes
    -----
    An iteration costs O(K L T C), T tags and C types of words. Jernite, Rush and Sontag (2015), section 6; the bound,
    which differs from the paper's, is derived in ``trelliswork.models.mrf_tagger.bound``.

    Examples
    --------
    >>> tagger = MRFTagger().fit([["the", "dog"], ["a", "dog", "runs"]], [["D", "N"], ["D", "N", "V"]])
    >>> tagger.predict([["the", "dog", "runs"]])
    [['D', 'N', 'V']]
    """

    kind: ClassVar[str] = "mrf-tagger"
    learned: ClassVar[str] = "tags_"
    input_: dict[str, Any]
    tags_: Vocabulary

    def __init__(
        self,
        K: int = 1,
        n_words: int = 1,
        *,
        l2: float = 1.0,
        rare: int = 5,
        dictionary: bool = False,
        max_iter: int = 100,
        tol: float = 1e-3,
        patience: int = 20,
    ) -> None:
        self.K = K
        self.n_words = n_words
        self.l2 = l2
        self.rare = rare
        self.dictionary = dictionary
        self.max_iter = max_iter
        self.tol = tol
        self.patience = patience

    def fit(
        self,
        X: Sentences | Corpus,
        y: Sentences,
        *,
        dev: tuple[Sentences | Corpus, Sentences] | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Learn from tagged sentences.

        Parameters
        ----------
        X : list of lists of str, or Corpus
            Words; of a corpus the first column.
        y : list of lists of str
            The tag of each word.
        dev : (X, y), optional
            Development sentences: stop early, keep the best iteration.
        callback : callable, optional
            Called with the ``Step`` of each iteration and the weights; a true answer stops.
        """
        for name in ("K", "n_words", "max_iter", "patience"):
            check_count(name, getattr(self, name))
        if self.K > MAX_K:
            raise ValueRangeError(f"K must be 1 to {MAX_K}, got {self.K}: states are sequences of K tags.")
        if not (self.l2 >= 0 and self.rare >= 0 and self.tol >= 0):
            raise ValueRangeError(f"l2, rare and tol must not be negative, got {self.l2}, {self.rare}, {self.tol}.")
        words = _sentences(X)
        _check_tags(words, y)
        measure = None
        if dev is not None:
            dev_words = _sentences(dev[0])
            _check_tags(dev_words, dev[1])

            def measure(found: Learned) -> float:
                trial = self._trial(found)
                pairs = zip(trial.predict(dev_words), dev[1], strict=True)
                right = [p == g for one, gold in pairs for p, g in zip(one, gold, strict=True)]
                return sum(right) / max(1, len(right))

        return self._set(
            learn(words, y, K=self.K, n_words=self.n_words, l2=self.l2, rare=self.rare, max_iter=self.max_iter,
                  tol=self.tol, patience=self.patience, measure=measure, callback=callback)
        )  # fmt: skip

    def predict(self, X: Sentences | Corpus, *, known: Labels | None = None) -> list[list[str]]:
        """The most probable tags of each sentence.

        Parameters
        ----------
        X : as in ``fit``
        known : list of lists, optional
            Evidence: for each token a tag, a collection of tags, or ``None`` if nothing is known.
        """
        names, chain_ = self._names(), self._chain()
        found: list[list[str]] = []
        for rows, offsets in self._rows(X, known):
            states = chain_.viterbi(rows, offsets)
            found += [[names[s] for s in states[a:b].tolist()] for a, b in pairwise(offsets.tolist())]
        return found

    def predict_marginals(self, X: Sentences | Corpus, *, known: Labels | None = None) -> list[list[dict[str, float]]]:
        """p(tag | sentence) for each token, as a dict by tag."""
        names, chain_ = self._names(), self._chain()
        found = []
        for rows, offsets in self._rows(X, known):
            _, marginals = chain_.marginals(rows, offsets)
            for a, b in pairwise(offsets.tolist()):
                found.append([dict(zip(names, row, strict=True)) for row in marginals[a:b].tolist()])
        return found

    def predict_topk(
        self, X: Sentences | Corpus, k: int, *, known: Labels | None = None
    ) -> list[list[tuple[list[str], float]]]:
        """The k most probable taggings of each sentence with their probabilities, best first."""
        check_count("k", k)
        names, chain_ = self._names(), self._chain()
        found = []
        for rows, offsets in self._rows(X, known):
            for a, b in pairwise(offsets.tolist()):
                p = chain.chain_potentials(*_batch_of_one(chain_, rows[a:b]))
                states, scores = chain.topk(p, k)
                possible = np.isfinite(scores[0])
                odds = np.exp(scores[0][possible] - chain.log_partition(p)[0])
                paths = states[0][possible] % len(names)  # of a pair the second tag
                found.append([([names[s] for s in path], float(q)) for path, q in zip(paths, odds, strict=True)])
        return found

    def posterior(self, sentence: Sequence[str]) -> LinearChain:
        """The distribution over taggings of one sentence; with K > 1 its states are as in an ``HMM`` of that order."""
        import torch

        from trelliswork.distributions import LinearChain

        self._check_fitted()
        rows, _ = next(self._rows([sentence], None))
        log_unary, log_pairwise = _batch_of_one(self._chain(), rows)
        return LinearChain(torch.from_numpy(log_unary), torch.from_numpy(log_pairwise))

    def score(self, X: Sentences | Corpus, y: Sentences) -> float:
        """Accuracy of the tags of all tokens."""
        pairs = zip(self.predict(X), y, strict=True)
        right = [p == g for found, gold in pairs for p, g in zip(found, gold, strict=True)]
        return sum(right) / max(1, len(right))

    def known_words(self) -> set[str]:
        """The words of training."""
        self._check_fitted()
        return set(self._features.words) - {PAD}

    def top_features(self, n: int = 20, tag: str | None = None) -> list[tuple[str, str, float]]:
        """The n features of a tag's own word with the largest weights (in absolute value): feature, tag, weight."""
        self._check_fitted()
        check_count("n", n)
        weights = self._weights[0][:, :-1]
        columns = range(len(self.tags_)) if tag is None else [self.tags_.id(tag)]
        some = weights[:, list(columns)]
        named = np.array([name != "bias" for name in self._features.own])
        best = np.argsort(-np.abs(some * named[:, None]), axis=None, kind="stable")[:n]
        places = [divmod(int(k), some.shape[1]) for k in best]
        return [(self._features.own[f], self.tags_[columns[t]], float(some[f, t])) for f, t in places]

    def top_transitions(self, n: int = 20) -> list[tuple[str, str, float]]:
        """The n pairs of neighbouring tags with the highest scores: tag, next tag, score."""
        self._check_fitted()
        table = self._phi[0, :-1, :-1]
        best = np.argsort(-table, axis=None, kind="stable")[:n]
        return [(self.tags_[int(k) // len(table)], self.tags_[int(k) % len(table)], float(table.flat[k])) for k in best]

    def _trial(self, found: Learned) -> MRFTagger:
        """Another tagger with these weights."""
        return MRFTagger(**self.get_params())._set(found)

    def _set(self, found: Learned) -> Self:
        self.tags_, self._features, self._lexicon = found.tags, found.features, found.lexicon
        self._phi, self._weights = found.phi, found.weights
        self.report_, self.bound_, self.cover_weights_ = found.report, found.bound, found.cover_weights
        self._order, self._n_words = len(found.phi), len(found.weights)
        return self

    def _names(self) -> list[str]:
        self._check_fitted()
        return self.tags_.items

    def _chain(self) -> StateChain:
        return tag_chain(self._phi)

    def _rows(self, X: Sentences | Corpus, known: Labels | None) -> Any:
        """Scores of tags at the tokens of as many sentences as are scored at once, and their offsets."""
        sentences = _sentences(X)
        if known is not None and len(known) != len(sentences):
            raise ShapeError(f"known must have as many sentences as X, {len(sentences)}, got {len(known)}.")
        places = offsets_of(self._n_words)
        first = 0
        while first < len(sentences):
            last, n = first + 1, len(sentences[first])
            while last < len(sentences) and n + len(sentences[last]) <= CHUNK:
                n += len(sentences[last])
                last += 1
            some = sentences[first:last]
            lengths = np.array([len(sentence) for sentence in some])
            types = list(dict.fromkeys([PAD, *(word for sentence in some for word in sentence)]))
            ids = {word: k for k, word in enumerate(types)}
            own, neighbour = self._features.tables(types)
            tables = [own, *[neighbour] * (len(places) - 1)]
            scores = [(table @ u)[:, :-1] for table, u in zip(tables, self._weights, strict=True)]
            offsets = np.concatenate([[0], np.cumsum(lengths)])
            flat = np.array([ids[word] for sentence in some for word in sentence])
            rows = emission_rows(scores, flat, offsets, places)
            out = np.zeros(rows.shape, bool)
            if known is not None:
                out = ruled_out(known[first:last], lengths, self.tags_)
            if self.dictionary:
                at = np.array([self._features.words.id(w) if w in self._features.words else -1 for w in types])
                unlisted = ((at >= 0)[:, None] & ~self._lexicon[at])[flat]
                # Evidence overrules the dictionary, where they leave no tag together.
                out = np.where((out | unlisted).all(axis=1, keepdims=True), out, out | unlisted)
            rows[out] = -np.inf
            yield rows, offsets
            first = last

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        features, report = self._features, self.report_
        plain = {
            "parameters": self.get_params(),
            "tags": self.tags_.items,
            "words": features.words.items,
            "frequent": sorted(features.frequent),
            "own": features.own.items,
            "neighbour": features.neighbour.items,
            "bound": self.bound_,
            "input": getattr(self, "input_", {}),
            "report": {"converged": report.converged, "reason": report.reason, "value": report.value},
        }
        arrays: Arrays = {"phi": self._phi, "lexicon": self._lexicon, "cover": self.cover_weights_}
        return plain, arrays | {f"weights.{k}": u for k, u in enumerate(self._weights)}

    @classmethod
    def _from_state(cls, plain: dict[str, Any], arrays: Arrays) -> Self:
        self = cls(**plain["parameters"])
        own, neighbour = Vocabulary(plain["own"]), Vocabulary(plain["neighbour"])
        features = TaggerFeatures(Vocabulary(plain["words"]), set(plain["frequent"]), own, neighbour)
        tags, phi = Vocabulary(plain["tags"]), arrays["phi"]
        T = len(tags) + 1
        weights = [arrays[f"weights.{k}"] for k in range(arrays["cover"].shape[1])]
        sizes = [len(own), *[len(neighbour)] * (len(weights) - 1)]
        fits = phi.shape == (arrays["cover"].shape[0], T, T) and arrays["lexicon"].shape == (len(features.words), T - 1)
        if not fits or [u.shape for u in weights] != [(n, T) for n in sizes]:
            raise DataError("weights.safetensors does not fit model.json: they belong to different models.")
        for name, array in (("phi", phi), *((f"weights.{k}", u) for k, u in enumerate(weights))):
            check_finite(name, array)
        report = FitReport(**plain["report"])
        found = Learned(tags, features, phi, weights, arrays["lexicon"], plain["bound"], arrays["cover"], report)
        self.input_ = plain["input"]
        return self._set(found)


def _batch_of_one(states: StateChain, rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    log_unary, log_pairwise = states.potentials(rows)
    return log_unary[None], log_pairwise


def _sentences(X: Sentences | Corpus) -> Sentences:
    found: Sentences = X.sentences(0) if isinstance(X, Corpus) else X
    for n, sentence in enumerate(found):
        if isinstance(sentence, str) or not len(sentence):
            raise DataError(f"sentence {n} must be a list of one word or more, got {sentence!r}.")
    return found


def _check_tags(words: Sentences, tags: Sentences) -> None:
    if not len(words):
        raise DataError("no sentence to learn from: X is empty.")
    if [len(sentence) for sentence in words] != [len(sentence) for sentence in tags]:
        raise ShapeError("y must have a tag for each word of X: the lengths of some sentences differ.")
