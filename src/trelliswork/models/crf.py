"""Linear-chain conditional random fields: taggers with features (paper 1; what CRFsuite and CRF++ do)."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import AttributeCorpus, Corpus, Vocabulary
from trelliswork.data.schemes import Scheme, allowed_transitions, detect_scheme
from trelliswork.errors import DataError, ShapeError, ValueRangeError
from trelliswork.features.attributes import Attributes
from trelliswork.features.extraction import TemplateExtractor
from trelliswork.features.presets import PRESETS, Preset, derive, preset
from trelliswork.features.ready import ReadyExtractor
from trelliswork.features.templates import Template, parse_templates, read_templates
from trelliswork.inference import chain, threads
from trelliswork.inference.chain import crf_kernels
from trelliswork.learning.crf_objective import ChainObjective, ChainWeights, FeatureLayout, ScoredTokens, Tokens
from trelliswork.learning.lbfgs import FitReport, Step, lbfgs
from trelliswork.models.base import Arrays, Estimator, check_finite

if TYPE_CHECKING:
    from trelliswork.distributions import LinearChain

Sentence = Sequence[Any]
Sentences = Sequence[Sentence] | Corpus | AttributeCorpus
compiled: Any = crf_kernels  # mypy cannot count starred arguments
BATCH_TOKENS = 20_000  # tokens that are scored and decoded together


class CRF(Estimator):
    """A tagger that scores labels by features and neighbouring labels by their pair.

    Parameters
    ----------
    features : str, list of Template, path, or None
        A preset (``chunking``, ``pos``, ``ner``, ``letters``), CRF++ templates (their text, a path to their file, or
        parsed), or ``None`` if tokens come with ready attributes (dicts or lists of strings).
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
    _extractor: TemplateExtractor | ReadyExtractor
    scheme_: Scheme | None
    input_: dict[str, Any]

    def __init__(
        self,
        features: str | Path | Sequence[Template] | None = "pos",
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
        self._preset, self._extractor = self._new_extractor()
        attributes = self._attributes(X, learn=True)
        self.labels_ = Vocabulary.from_sequences(y)
        gold = self._gold(attributes, y)
        tokens = _tokens(attributes)
        n_labels = len(self.labels_)
        self.scheme_ = detect_scheme(self.labels_) if self.scheme == "auto" else self.scheme
        allowed = self._allowed()
        if allowed is not None:
            self._check_scheme(y, allowed)
        if self.feature_set == "all":
            self._layout = FeatureLayout.all_pairs(attributes.n_attributes, n_labels)
        else:
            self._layout = FeatureLayout.observed(tokens, gold, attributes.n_attributes, n_labels)
        objective = ChainObjective(tokens, gold, self._layout, l2=self.l2, weights=sample_weight, allowed=allowed)
        self.weights_, self.report_ = lbfgs(
            objective,
            np.zeros(self._layout.n_features),
            l1=self.l1,
            max_iter=self.max_iter,
            tol=self.tol,
            memory=self.memory,
            callback=callback,
        )
        return self

    def predict(self, X: Sentences) -> list[list[str]]:
        """The most probable labels of each sentence."""
        found: list[list[str]] = []
        for potentials in self._potentials(X):
            labels, _ = chain.viterbi(potentials)
            found += self._strings(labels, potentials.lengths)
        return found

    def predict_marginals(self, X: Sentences) -> list[list[dict[str, float]]]:
        """p(label | sentence) for each token, as a dict by label."""
        names = list(self.labels_)
        found = []
        for potentials in self._potentials(X):
            _, expected = chain.expectations(potentials)
            assert expected.marginals is not None
            for row, n in zip(expected.marginals.tolist(), potentials.lengths.tolist(), strict=True):
                found.append([dict(zip(names, token, strict=True)) for token in row[:n]])
        return found

    def predict_topk(self, X: Sentences, k: int) -> list[list[tuple[list[str], float]]]:
        """The k most probable labellings of each sentence with their probabilities, best first."""
        found = []
        for potentials in self._potentials(X):
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
        names = self._extractor.names()
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
        return None if isinstance(self._extractor, ReadyExtractor) else set(self._extractor.columns[0].strings)

    def _check_parameters(self) -> None:
        if self.feature_set not in ("observed", "all"):
            raise ValueRangeError(f"feature_set must be 'observed' or 'all', got {self.feature_set!r}.")
        if self.scheme not in ("auto", "bio", "bioes", None):
            raise ValueRangeError(f"scheme must be 'auto', 'bio', 'bioes' or None, got {self.scheme!r}.")
        for name in ("l1", "l2"):
            if not getattr(self, name) >= 0:
                raise ValueRangeError(f"{name} must be 0 or more, got {getattr(self, name)}.")

    def _new_extractor(self) -> tuple[Preset | None, TemplateExtractor | ReadyExtractor]:
        if self.features is None:
            return None, ReadyExtractor(min_count=self.min_count)
        if isinstance(self.features, str) and self.features in PRESETS:
            chosen = preset(self.features)
            return chosen, TemplateExtractor(chosen.templates, min_count=self.min_count)
        if isinstance(self.features, str) and ("%x[" in self.features or "\n" in self.features):
            templates = parse_templates(self.features)
        elif isinstance(self.features, str | Path):
            if not Path(self.features).is_file():
                preset(str(self.features))  # says which presets there are
            templates = read_templates(self.features)
        else:
            templates = list(self.features)
        on_labels = [t for t in templates if not t.on_edges]
        for template in templates:
            if template.on_edges and template.macros:
                raise DataError(f"the template {template.name!r} scores label pairs by observations: only plain B can.")
        return None, TemplateExtractor(on_labels, min_count=self.min_count)

    def _attributes(self, X: Sentences, learn: bool) -> Attributes:
        if isinstance(self._extractor, ReadyExtractor):
            if isinstance(X, AttributeCorpus):
                return (self._extractor.fit_corpus if learn else self._extractor.transform_corpus)(X)
            if isinstance(X, Corpus):
                raise DataError("with features=None tokens are dicts or lists of attributes, got a corpus of columns.")
            return self._extractor.fit(X) if learn else self._extractor.transform(X)
        if isinstance(X, AttributeCorpus):
            raise DataError("a file of ready attributes needs features=None: templates make attributes from columns.")
        corpus = X if isinstance(X, Corpus) else Corpus.from_sentences(X)
        columns: Sequence[Sequence[str]] = corpus.columns
        if self._preset is not None:
            if len(columns) < self._preset.n_columns:
                raise DataError(
                    f"features={self.features!r} needs {self._preset.n_columns} columns, the data has {len(columns)}."
                )
            columns = derive(columns, self._preset)
        return (self._extractor.fit if learn else self._extractor.transform)(columns, corpus.offsets)

    def _gold(self, attributes: Attributes, y: Sequence[Sequence[str]]) -> NDArray[np.int32]:
        if len(y) != len(attributes):
            raise ShapeError(f"X and y must pair up, got {len(attributes)} and {len(y)} sentences.")
        for n, (labels, size) in enumerate(zip(y, np.diff(attributes.offsets), strict=True)):
            if len(labels) != size:
                raise ShapeError(f"sentence {n} has {size} tokens and {len(labels)} labels: they must be as many.")
            if size == 0:
                raise ShapeError(f"sentence {n} is empty: leave it out.")
        return np.array([i for labels in y for i in self.labels_.ids(labels)], np.int32)

    def _allowed(self) -> NDArray[np.bool_] | None:
        return None if self.scheme_ is None else allowed_transitions(self.labels_.items, self.scheme_)[0]

    def _check_scheme(self, y: Sequence[Sequence[str]], allowed: NDArray[np.bool_]) -> None:
        """Training labels that the scheme forbids would have probability zero: refuse them with their place."""
        for n, labels in enumerate(y):
            ids = self.labels_.ids(labels)
            for t in range(1, len(ids)):
                if not allowed[ids[t - 1], ids[t]]:
                    raise DataError(
                        f"sentence {n}, token {t}: {labels[t]} after {labels[t - 1]} is not allowed in the scheme "
                        f"{self.scheme_!r}. Mend the labels, or use scheme=None."
                    )

    def _potentials(self, X: Sentences) -> Iterator[chain.Potentials]:
        """Scores of batches of sentences, in their order."""
        self._check_fitted()
        attributes = self._attributes(X, learn=False)
        if attributes.n_tokens == 0:
            return
        tokens = ScoredTokens(_tokens(attributes), self._layout)
        weights = ChainWeights(self.weights_, self._layout, self._allowed())
        S, width = len(self.labels_), weights.wide.shape[1]
        scores = np.empty((attributes.n_tokens, width), np.float32)
        costs = np.diff(attributes.token_ptr)
        threads.run(
            lambda start, stop: compiled.scores(start, stop, *tokens.arrays, *weights.arrays, S, scores, start * width),
            threads.cut(costs, least=threads.LEAST_WORK // width),
        )
        lengths = np.diff(attributes.offsets)
        if lengths.min() == 0:
            raise ShapeError(f"sentence {int(lengths.argmin())} is empty: leave it out.")
        first = 0
        while first < len(lengths):
            # As many sentences as fit when all are padded to the longest.
            widest = np.maximum.accumulate(lengths[first:]) * np.arange(1, len(lengths) - first + 1)
            last = first + max(1, int(np.searchsorted(widest, BATCH_TOKENS, side="right")))
            size = lengths[first:last]
            log_unary = np.zeros((len(size), size.max(), S), np.float32)
            log_unary[np.arange(size.max()) < size[:, None]] = scores[
                attributes.offsets[first] : attributes.offsets[last], :S
            ]
            yield chain.chain_potentials(log_unary, weights.log_transition, size, check_values=False)
            first = last

    def _strings(self, labels: NDArray[np.integer], lengths: NDArray[np.integer]) -> list[list[str]]:
        items = self.labels_.items
        return [[items[j] for j in row[:n]] for row, n in zip(labels.tolist(), lengths.tolist(), strict=True)]

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        plain: dict[str, Any] = {
            "parameters": {k: v for k, v in self.get_params().items() if k != "features"},
            "labels": list(self.labels_),
            "scheme": self.scheme_,
            "n_attributes": self._layout.n_attributes,
            "preset": self.features if self._preset is not None else None,
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
        if isinstance(self._extractor, ReadyExtractor):
            plain["attributes"] = self._extractor.names()
        else:
            plain["extractor"], extra = self._extractor.state()
            arrays |= extra
        return plain, arrays

    @classmethod
    def _from_state(cls, plain: dict[str, Any], arrays: Arrays) -> Self:
        self = cls(plain["preset"], **plain["parameters"])
        self.labels_ = Vocabulary(plain["labels"])
        self.scheme_ = plain["scheme"]
        self._preset = None if plain["preset"] is None else preset(plain["preset"])
        if "extractor" in plain:
            self._extractor = TemplateExtractor.from_state(plain["extractor"], arrays)
            if self._preset is None:
                self.features = self._extractor.templates
        else:
            self._extractor = ReadyExtractor.from_names(plain["attributes"])
        self.weights_ = arrays["weights"].astype(np.float64)
        check_finite("weights.safetensors", self.weights_)
        n_labels = len(self.labels_)
        self._layout = FeatureLayout(
            n_labels, plain["n_attributes"], arrays["transitions"], arrays["attributes"], arrays["labels"]
        )
        if self._layout.n_features != len(self.weights_) or self._extractor.n_attributes != plain["n_attributes"]:
            raise DataError("weights.safetensors does not fit model.json: they belong to different models.")
        self.input_ = plain["input"]
        report = plain["report"]
        self.report_ = FitReport(report["converged"], report["reason"], report["value"])
        return self


def _tokens(attributes: Attributes) -> Tokens:
    return Tokens(attributes.offsets, attributes.token_ptr, attributes.ids, attributes.values)
