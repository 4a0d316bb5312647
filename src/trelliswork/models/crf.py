"""Linear-chain conditional random fields: taggers with features (paper 1; what CRFsuite and CRF++ do)."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Vocabulary
from trelliswork.data.schemes import Scheme, allowed_transitions, detect_scheme
from trelliswork.errors import DataError, ShapeError, ValueRangeError
from trelliswork.features.attributes import Attributes
from trelliswork.features.extraction import TemplateExtractor
from trelliswork.features.feature_map import FeatureMap, Features, Sentence, Sentences
from trelliswork.inference import chain, threads
from trelliswork.inference.chain import crf_kernels
from trelliswork.inference.checks import check_shape
from trelliswork.learning.crf_objective import (
    Allowed,
    ChainObjective,
    ChainWeights,
    FeatureLayout,
    ScoredTokens,
    Tokens,
)
from trelliswork.learning.lbfgs import FitReport, Step, lbfgs
from trelliswork.models.base import Arrays, Estimator, check_finite

if TYPE_CHECKING:
    from trelliswork.distributions import LinearChain

Evidence = Sequence[Sequence[str | Collection[str] | None]]
compiled: Any = crf_kernels  # mypy cannot count starred arguments
BATCH_TOKENS = 20_000  # tokens that are scored and decoded together


class CRF(Estimator):
    """A tagger that scores labels by features and neighbouring labels by their pair.

    Parameters
    ----------
    features : str, list of Template, path, callable, or None
        A preset (``chunking``, ``pos``, ``ner``, ``letters``), CRF++ templates (their text, a path to their file, or
        parsed), a function ``f(sentence, t)`` that gives the attributes of a token (a dict or a list of strings), or
        ``None`` if tokens come with such attributes. A function is not saved: pass it to ``set_params`` after loading.
    l1, l2 : float
        Penalties ``l1 * sum |w| + l2 * sum w^2``.
    feature_set : {"observed", "all"}
        Weights for the pairs of attribute and label that occur in training, or for all.
    scheme : {"auto", "bio", "bioes", None}
        Forbid label pairs that the scheme does not allow, in training and tagging; ``auto`` looks at the labels.
    min_count : int
        Attributes seen less often are dropped.
    max_iter, tol, memory
        Of L-BFGS (``trelliswork.learning.lbfgs``).

    Attributes
    ----------
    labels_ : Vocabulary
    weights_ : ndarray (n_features,)
    report_ : FitReport
        How training ended.
    input_ : dict
        How the training file was laid out, if the command line read one; saved with the model.

    Examples
    --------
    >>> crf = CRF("U:%x[0,0]", l2=0.1, scheme=None)
    >>> crf = crf.fit([["the", "dog"], ["a", "dog", "runs"]], [["D", "N"], ["D", "N", "V"]])
    >>> crf.predict([["the", "dog", "runs"]])
    [['D', 'N', 'V']]
    """

    kind: ClassVar[str] = "crf"
    scheme_: Scheme | None
    input_: dict[str, Any]

    def __init__(
        self,
        features: Features = "pos",
        *,
        l1: float = 0.0,
        l2: float = 1.0,
        feature_set: str = "observed",
        scheme: Literal["auto", "bio", "bioes"] | None = "auto",
        min_count: int = 1,
        max_iter: int = 500,
        tol: float = 1e-5,
        memory: int = 6,
    ) -> None:
        self.features = features
        self.l1 = l1
        self.l2 = l2
        self.feature_set = feature_set
        self.scheme = scheme
        self.min_count = min_count
        self.max_iter = max_iter
        self.tol = tol
        self.memory = memory

    def fit(
        self,
        X: Sentences,
        y: Sequence[Sequence[str]],
        *,
        sample_weight: NDArray[np.floating] | None = None,
        callback: Callable[[Step, NDArray[np.float64]], bool | None] | None = None,
    ) -> Self:
        """Learn from labelled sentences.

        Parameters
        ----------
        X : list of sentences, Corpus or AttributeCorpus
            A sentence is a list of tokens: strings, sequences of strings (columns), or ready attributes.
        y : list of lists of str
            Labels.
        sample_weight : ndarray (n_sentences,), optional
            How much each sentence counts.
        callback : callable, optional
            Called after each iteration with a ``Step`` and the weights; a true answer stops.
        """
        self._check_parameters()
        features = FeatureMap(self.features, min_count=self.min_count)
        attributes = features.fit(X)
        labels = Vocabulary.from_sequences(y)
        gold = _gold(attributes, y, labels)
        weights = _sentence_weights(sample_weight, len(attributes))
        scheme = detect_scheme(labels) if self.scheme == "auto" else self.scheme
        allowed = _allowed(labels, scheme)
        if allowed is not None:
            _check_scheme(y, labels, allowed, scheme)
        tokens = _tokens(attributes)
        if self.feature_set == "all":
            layout = FeatureLayout.all_pairs(attributes.n_attributes, len(labels))
        else:
            layout = FeatureLayout.observed(tokens, gold, attributes.n_attributes, len(labels))
        objective = ChainObjective(tokens, gold, layout, l2=float(self.l2), weights=weights, allowed=allowed)
        self.weights_, self.report_ = lbfgs(
            objective,
            np.zeros(layout.n_features),
            l1=float(self.l1),
            max_iter=self.max_iter,
            tol=self.tol,
            memory=self.memory,
            callback=callback,
        )
        # Set together at the end: a fit that fails leaves what was learned before.
        self.features_, self.labels_, self.scheme_, self._layout = features, labels, scheme, layout
        return self

    def predict(self, X: Sentences, *, known: Evidence | None = None) -> list[list[str]]:
        """The most probable labels of each sentence.

        Parameters
        ----------
        X : as in ``fit``
        known : list of lists, optional
            Evidence: for each token a label, a collection of labels, or ``None`` if nothing is known.
        """
        found: list[list[str]] = []
        for potentials in self._potentials(X, known):
            labels, _ = chain.viterbi(potentials)
            found += self._strings(labels, potentials.lengths)
        return found

    def predict_marginals(self, X: Sentences, *, known: Evidence | None = None) -> list[list[dict[str, float]]]:
        """p(label | sentence, known labels) for each token, as a dict by label."""
        self._check_fitted()
        names = list(self.labels_)
        found = []
        for potentials in self._potentials(X, known):
            _, expected = chain.expectations(potentials)
            assert expected.marginals is not None
            for row, n in zip(expected.marginals.tolist(), potentials.lengths.tolist(), strict=True):
                found.append([dict(zip(names, token, strict=True)) for token in row[:n]])
        return found

    def predict_topk(
        self, X: Sentences, k: int, *, known: Evidence | None = None
    ) -> list[list[tuple[list[str], float]]]:
        """The k most probable labellings of each sentence with their probabilities, best first."""
        found = []
        for potentials in self._potentials(X, known):
            labels, scores = chain.topk(potentials, k)
            log_z = chain.log_partition(potentials)
            for b, n in enumerate(potentials.lengths.tolist()):
                possible = np.isfinite(scores[b])
                strings = self._strings(labels[b][possible], np.full(int(possible.sum()), n))
                probabilities = np.exp(scores[b][possible] - log_z[b]).tolist()
                found.append(list(zip(strings, probabilities, strict=True)))
        return found

    def posterior(self, sentence: Sentence) -> "LinearChain":
        """The distribution over labellings of one sentence: ask it anything."""
        import torch

        from trelliswork.distributions import LinearChain

        if len(sentence) == 0:
            raise ShapeError("the sentence is empty: a distribution over labels needs a token.")
        (potentials,) = self._potentials([sentence])
        return LinearChain(torch.from_numpy(potentials.log_unary), torch.from_numpy(potentials.log_pairwise[0]))

    def score(self, X: Sentences, y: Sequence[Sequence[str]]) -> float:
        """Token accuracy."""
        pairs = [(a, b) for p, g in zip(self.predict(X), y, strict=True) for a, b in zip(p, g, strict=True)]
        return sum(a == b for a, b in pairs) / len(pairs)

    def top_features(self, n: int = 20, label: str | None = None) -> list[tuple[str, str, float]]:
        """The n largest weights by absolute value: attribute, label, weight; of one label if given."""
        self._check_fitted()
        weights = self.weights_[len(self._layout.transitions) :]
        which = np.arange(len(weights))
        if label is not None:
            which = np.flatnonzero(self._layout.labels == self.labels_.id(label))
        best = which[np.argsort(-np.abs(weights[which]), kind="stable")[:n]]
        names = self.features_.names()
        return [
            (names[self._layout.attributes[f]], self.labels_[self._layout.labels[f]], float(weights[f])) for f in best
        ]

    def top_transitions(self, n: int = 20) -> list[tuple[str, str, float]]:
        """The n largest transition weights by absolute value: from, to, weight."""
        self._check_fitted()
        pairs = self._layout.transitions
        best = np.argsort(-np.abs(self.weights_[: len(pairs)]), kind="stable")[:n]
        size = len(self.labels_)
        return [(self.labels_[pairs[f] // size], self.labels_[pairs[f] % size], float(self.weights_[f])) for f in best]

    def known_words(self) -> set[str] | None:
        """The words of the first column in training; ``None`` if the model saw ready attributes."""
        self._check_fitted()
        return self.features_.known_words()

    def _check_parameters(self) -> None:
        if self.feature_set not in ("observed", "all"):
            raise ValueRangeError(f"feature_set must be 'observed' or 'all', got {self.feature_set!r}.")
        if self.scheme not in ("auto", "bio", "bioes", None):
            raise ValueRangeError(f"scheme must be 'auto', 'bio', 'bioes' or None, got {self.scheme!r}.")
        for name in ("l1", "l2"):
            if not getattr(self, name) >= 0:
                raise ValueRangeError(f"{name} must be 0 or more, got {getattr(self, name)}.")

    def _potentials(self, X: Sentences, known: Evidence | None = None) -> Iterator[chain.Potentials]:
        """Scores of batches of sentences, in their order; -inf for labels that the evidence rules out."""
        self._check_fitted()
        if callable(self.features):
            self.features_.function = self.features  # a loaded model gets it by set_params
        attributes = self.features_.transform(X)
        if attributes.n_tokens == 0:
            return
        tokens = ScoredTokens(_tokens(attributes), self._layout)
        weights = ChainWeights(self.weights_, self._layout, _allowed(self.labels_, self.scheme_))
        S, width = len(self.labels_), weights.wide.shape[1]
        scores = np.empty((attributes.n_tokens, width), np.float32)
        costs = np.diff(attributes.token_ptr)
        threads.run(
            lambda start, stop: compiled.scores(start, stop, *tokens.arrays, *weights.arrays, S, scores, start * width),
            threads.cut(costs, least=threads.LEAST_WORK // width),
        )
        lengths = np.diff(attributes.offsets)
        scores[attributes.offsets[:-1]] += weights.start
        scores[attributes.offsets[1:] - 1] += weights.end
        if known is not None:
            self._rule_out(scores, known, lengths)
        first = 0
        while first < len(lengths):
            # As many sentences as fit when all are padded to the longest.
            ahead = lengths[first : first + BATCH_TOKENS]
            widest = np.maximum.accumulate(ahead) * np.arange(1, len(ahead) + 1)
            last = first + max(1, int(np.searchsorted(widest, BATCH_TOKENS, side="right")))
            size = lengths[first:last]
            log_unary = np.zeros((len(size), size.max(), S), np.float32)
            log_unary[np.arange(size.max()) < size[:, None]] = scores[
                attributes.offsets[first] : attributes.offsets[last], :S
            ]
            yield chain.chain_potentials(log_unary, weights.log_transition, size, check_values=False)
            first = last

    def _rule_out(self, scores: NDArray[np.float32], known: Evidence, lengths: NDArray[np.int64]) -> None:
        """Score -inf for every label that is not among the known ones of its token."""
        if [len(sentence) for sentence in known] != lengths.tolist():
            raise ShapeError("known must have as many sentences and tokens as X; None where nothing is known.")
        tokens = (token for sentence in known for token in sentence)
        for i, token in enumerate(tokens):
            if token is not None:
                allowed = self.labels_.ids([token] if isinstance(token, str) else token)
                kept = scores[i, allowed]
                scores[i] = -np.inf
                scores[i, allowed] = kept

    def _strings(self, labels: NDArray[np.integer], lengths: NDArray[np.integer]) -> list[list[str]]:
        items = self.labels_.items
        return [[items[j] for j in row[:n]] for row, n in zip(labels.tolist(), lengths.tolist(), strict=True)]

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        plain: dict[str, Any] = {
            "parameters": {k: v for k, v in self.get_params().items() if k != "features"},
            "labels": list(self.labels_),
            "scheme": self.scheme_,
            "n_attributes": self._layout.n_attributes,
            "input": getattr(self, "input_", {}),
            "report": {
                "converged": self.report_.converged,
                "reason": self.report_.reason,
                "value": self.report_.value,
                "n_iter": self.report_.n_iter,
            },
        }
        arrays: Arrays = {
            "weights": self.weights_,
            "transitions": self._layout.transitions,
            "attributes": self._layout.attributes,
            "labels": self._layout.labels,
        }
        plain["features"], extra = self.features_.state()
        arrays |= extra
        return plain, arrays

    @classmethod
    def _from_state(cls, plain: dict[str, Any], arrays: Arrays) -> Self:
        self = cls(None, **plain["parameters"])
        self.features_ = FeatureMap.from_state(plain["features"], arrays)
        if isinstance(self.features_.extractor, TemplateExtractor):
            self.features = self.features_.preset or self.features_.extractor.templates
        self.labels_ = Vocabulary(plain["labels"])
        self.scheme_ = plain["scheme"]
        self.weights_ = arrays["weights"].astype(np.float64)
        check_finite("weights.safetensors", self.weights_)
        n_labels = len(self.labels_)
        self._layout = FeatureLayout(
            n_labels, plain["n_attributes"], arrays["transitions"], arrays["attributes"], arrays["labels"]
        )
        self._layout.check()
        if self._layout.n_features != len(self.weights_) or self.features_.n_attributes != plain["n_attributes"]:
            raise DataError("weights.safetensors does not fit model.json: they belong to different models.")
        self.input_ = plain["input"]
        report = plain["report"]
        self.report_ = FitReport(report["converged"], report["reason"], report["value"])
        return self


def _tokens(attributes: Attributes) -> Tokens:
    return Tokens(attributes.offsets, attributes.token_ptr, attributes.ids, attributes.values)


def _gold(attributes: Attributes, y: Sequence[Sequence[str]], labels: Vocabulary) -> NDArray[np.int32]:
    """Label ids of all tokens."""
    if len(y) != len(attributes):
        raise ShapeError(f"X and y must pair up, got {len(attributes)} and {len(y)} sentences.")
    for n, (sentence, size) in enumerate(zip(y, np.diff(attributes.offsets), strict=True)):
        if len(sentence) != size:
            raise ShapeError(f"sentence {n} has {size} tokens and {len(sentence)} labels: they must be as many.")
    return np.array([i for sentence in y for i in labels.ids(sentence)], np.int32)


def _sentence_weights(sample_weight: object, n_sentences: int) -> NDArray[np.float32] | None:
    if sample_weight is None:
        return None
    weights = np.asarray(sample_weight, np.float32)
    check_shape("sample_weight", weights.shape, "n_sentences", n_sentences=n_sentences)
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueRangeError("sample_weight must hold finite numbers that are not negative.")
    return weights


def _allowed(labels: Vocabulary, scheme: Scheme | None) -> Allowed | None:
    """What the scheme allows; ``None`` without one."""
    return None if scheme is None else Allowed(*allowed_transitions(labels.items, scheme))


def _check_scheme(y: Sequence[Sequence[str]], labels: Vocabulary, allowed: Allowed, scheme: Scheme | None) -> None:
    """Training labels that the scheme forbids would have probability zero: refuse them with their place."""
    for n, sentence in enumerate(y):
        ids = labels.ids(sentence)
        bad = [(t, f"after {sentence[t - 1]}") for t in range(1, len(ids)) if not allowed.pairs[ids[t - 1], ids[t]]]
        bad += [(0, "at the start")] * (not allowed.start[ids[0]])
        bad += [(len(ids) - 1, "at the end")] * (not allowed.end[ids[-1]])
        for t, where in bad[:1]:
            raise DataError(
                f"sentence {n}, token {t}: {sentence[t]} {where} is not allowed in the scheme {scheme!r}. "
                "Mend the labels, or use scheme=None."
            )
