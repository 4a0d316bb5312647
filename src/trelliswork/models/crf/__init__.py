"""Linear-chain conditional random fields: taggers with features (paper 1; what CRFsuite and CRF++ do)."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Vocabulary
from trelliswork.data.schemes import Scheme, detect_scheme
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.features.attributes import Attributes
from trelliswork.features.feature_map import FeatureMap, Features, Sentence, Sentences
from trelliswork.inference.chain.beam import Beam, BeamStatistics, chosen_beam
from trelliswork.inference.chain.beam.sparse import SparseChain
from trelliswork.learning.lbfgs import FitReport
from trelliswork.models.base import Arrays, Estimator
from trelliswork.models.crf.beams.layout import Structure
from trelliswork.models.crf.data import Problem, open_checkpoint, prepare
from trelliswork.models.crf.decoding import best_labellings, best_labels, marginals
from trelliswork.models.crf.labels import allowed_by, label_vocabulary, label_weight_array
from trelliswork.models.crf.layout import FeatureLayout
from trelliswork.models.crf.learned import Learned
from trelliswork.models.crf.online import OnlineState
from trelliswork.models.crf.scoring import Scorer, Scores
from trelliswork.models.crf.start import transfer
from trelliswork.models.crf.training import (
    Algorithm,
    Callback,
    Development,
    Settings,
    Watch,
    learn,
    one_pass,
    training_beam,
)
from trelliswork.models.evidence import Labels, ruled_out

if TYPE_CHECKING:
    from trelliswork.distributions import LinearChain


class CRF(Estimator):
    """A tagger that scores labels by features and neighbouring labels by their pair.

    Parameters
    ----------
    features : str, list of Template, path, callable, or None
        A preset (``chunking``, ``pos``, ``ner``, ``letters``), CRF++ templates (their text, a path to their file, or
        parsed), a function ``f(sentence, t)`` that gives the attributes of a token (a dict or a list of strings), or
        ``None`` if tokens come with such attributes. A function is not saved: pass it to ``set_params`` after loading.
        B templates with columns score pairs of labels by observations.
    l1, l2 : float
        Penalties ``l1 * sum |w| + l2 * sum w^2``.
    feature_set : {"observed", "all"}
        Weights for the pairs of attribute and label that occur in training, or for all.
    scheme : {"auto", "bio", "bioes", None}
        Forbid label pairs that the scheme does not allow, in training and tagging; ``auto`` looks at the labels.
    label_weight : dict, optional
        Learn as if labels were so many times as frequent: 5 finds more of a rare one, at the price of false alarms. 1
        for those not named (``learning.crf_objective`` has the equation). Only with L-BFGS.
    min_count : int
        Attributes seen less often are dropped.
    hash_bits : int, optional
        Map attributes to ``2**hash_bits`` numbers by a fixed hash instead of remembering them.
    algorithm : {"lbfgs", "sgd", "perceptron"}
        L-BFGS (OWL-QN if l1 > 0) on the whole objective; averaged SGD on mini-batches; the averaged perceptron.
    max_iter : int, optional
        Iterations of L-BFGS or epochs at most; 500, 30 and 10 by default.
    tol, memory
        Of L-BFGS (``trelliswork.learning.lbfgs``); ``tol`` also ends SGD.
    batch_size, rate, seed
        Of SGD and the perceptron (``trelliswork.models.crf.online``).
    patience : int
        With development data: stop after so many iterations without a better figure.
    order : int
        2: weights for triples of labels too, 3 for fours. There are as many states as label pairs (triples), of which
        a ``beam`` keeps few. Only with L-BFGS.
    beam : Beam, str or None
        Keep few states at each token, in training and tagging: ``"kl=0.005,min=10"``, ``"size=20"``,
        ``"threshold=6.9,min=4"``; ``"kl=auto"`` widens itself when training asks for it; ``"auto"`` is a beam where
        it is faster than exact inference. The labels of the training data are always inside.

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
    _online: OnlineState | None = None  # of partial_fit
    _structure: Structure | None = None  # of the second order and above

    def __init__(
        self,
        features: Features = "pos",
        *,
        l1: float = 0.0,
        l2: float = 1.0,
        feature_set: str = "observed",
        scheme: Literal["auto", "bio", "bioes"] | None = "auto",
        label_weight: Mapping[str, float] | None = None,
        min_count: int = 1,
        hash_bits: int | None = None,
        algorithm: Algorithm = "lbfgs",
        max_iter: int | None = None,
        tol: float = 1e-5,
        memory: int = 6,
        batch_size: int | None = None,
        rate: float | None = None,
        seed: int = 0,
        patience: int = 20,
        order: int = 1,
        beam: Beam | str | None = None,
    ) -> None:
        self.features = features
        self.l1 = l1
        self.l2 = l2
        self.feature_set = feature_set
        self.scheme = scheme
        self.label_weight = label_weight
        self.min_count = min_count
        self.hash_bits = hash_bits
        self.algorithm = algorithm
        self.max_iter = max_iter
        self.tol = tol
        self.memory = memory
        self.batch_size = batch_size
        self.rate = rate
        self.seed = seed
        self.patience = patience
        self.order = order
        self.beam = beam

    def fit(
        self,
        X: Sentences,
        y: Labels,
        *,
        sample_weight: NDArray[np.floating] | None = None,
        dev: tuple[Sentences, Sequence[Sequence[str]]] | None = None,
        start: "CRF | None" = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Learn from labelled sentences.

        Parameters
        ----------
        X : list of sentences, Corpus or AttributeCorpus
            A sentence is a list of tokens: strings, sequences of strings (columns), or ready attributes.
        y : list of lists
            For each token its label, a collection of labels it may have, or ``None`` if nothing is known.
        sample_weight : ndarray (n_sentences,), optional
            How much each sentence counts.
        dev : (X, y), optional
            Development data: training stops when chunk F1 (labels with a scheme) or accuracy has not risen for
            ``patience`` iterations, and the weights of the best iteration are kept.
        start : CRF, optional
            Begin with the weights of this model, as far as attributes and labels are the same.
        checkpoint : path, optional
            A file for the state of training, written twice a minute. If it is there, training goes on from it, and ends
            with the very weights of an uninterrupted run. It is removed at the end.
        callback : callable, optional
            Called after each iteration with a ``Step`` and the weights; a true answer stops.
        """
        settings = self._settings()
        features = FeatureMap(self.features, min_count=self.min_count, hash_bits=self.hash_bits)
        attributes = features.fit(X)
        labels = label_vocabulary(y)
        problem, scheme = self._prepare(attributes, y, labels, sample_weight)
        development = None
        if dev is not None:
            scorer = Scorer(features.transform(dev[0]), problem.layout, problem.allowed, problem.structure)
            gold = [list(sentence) for sentence in dev[1]]
            development = Development(scorer, gold, labels, scheme, training_beam(problem, self.beam))
        # max_iter is not looked at: a longer run may go on from a shorter one.
        parameters = {k: v for k, v in self._plain_parameters().items() if k != "max_iter"}
        kept = None if checkpoint is None else open_checkpoint(checkpoint, problem, parameters, dev and dev[1])
        watch = Watch(development, self.patience, kept, callback)
        begin = None
        if start is not None:
            begin = transfer(start._learned(), Learned(features, labels, problem.layout, structure=problem.structure))
        weights, report = learn(problem, settings, begin, watch)
        # Set together at the end: a fit that fails leaves what was learned before.
        self.features_, self.labels_, self.scheme_, self._layout = features, labels, scheme, problem.layout
        self.weights_, self.report_, self._online, self._structure = weights, report, None, problem.structure
        return self

    def partial_fit(self, X: Sentences, y: Labels, *, labels: Sequence[str] | None = None) -> Self:
        """One pass of stochastic training over a part of data that is too large to be held at once.

        Wants ``algorithm="sgd"`` or ``"perceptron"`` and ``hash_bits``: then no attribute must be known beforehand.
        All pairs of attribute and label get a weight. The penalty ``l2`` is spread over the sentences of one call.

        Parameters
        ----------
        X, y : as in ``fit``
        labels : list of str
            All labels there will be; wanted in the first call.
        """
        settings = self._settings()
        if self.hash_bits is None or self.algorithm == "lbfgs":
            raise ValueRangeError(
                "partial_fit needs hash_bits (say 18) and algorithm='sgd' or 'perceptron', got "
                f"hash_bits={self.hash_bits} and algorithm={self.algorithm!r}."
            )
        if self._online is None:
            if labels is None:
                raise ValueRangeError("the first call of partial_fit needs labels=[...], all there will be.")
            features, names = FeatureMap(self.features, hash_bits=self.hash_bits), Vocabulary(labels)
        else:
            features, names = self.features_, self.labels_
        if labels is not None and list(labels) != list(names):
            raise ValueRangeError("labels= must be the same in every call of partial_fit.")
        attributes = features.transform(X)
        if attributes.edges is not None:
            raise ValueRangeError("partial_fit knows no edge features (B templates with columns): leave them out.")
        layout = FeatureLayout.all_pairs(attributes.n_attributes, len(names))
        problem, scheme = self._prepare(attributes, y, names, None, layout)
        self.weights_, self.report_, self._online = one_pass(problem, settings, self._online)
        self.features_, self.labels_, self.scheme_, self._layout = features, names, scheme, layout
        return self

    def predict(self, X: Sentences, *, known: Labels | None = None) -> list[list[str]]:
        """The most probable labels of each sentence.

        Parameters
        ----------
        X : as in ``fit``
        known : list of lists, optional
            Evidence: for each token a label, a collection of labels, or ``None`` if nothing is known.
        """
        found: list[list[str]] = []
        for potentials in self._potentials(X, known):
            found += self._strings(best_labels(potentials, self._beam()), potentials.lengths)
        return found

    def predict_marginals(self, X: Sentences, *, known: Labels | None = None) -> list[list[dict[str, float]]]:
        """p(label | sentence, known labels) for each token, as a dict by label."""
        self._check_fitted()
        names = list(self.labels_)
        found = []
        for potentials in self._potentials(X, known):
            probabilities = marginals(potentials, self._beam())
            for row, n in zip(probabilities.tolist(), potentials.lengths.tolist(), strict=True):
                found.append([dict(zip(names, token, strict=True)) for token in row[:n]])
        return found

    def predict_topk(self, X: Sentences, k: int, *, known: Labels | None = None) -> list[list[tuple[list[str], float]]]:
        """The k most probable labellings of each sentence with their probabilities, best first; always exact."""
        found = []
        for potentials in self._potentials(X, known):
            labels, log_p = best_labellings(potentials, k)
            for b, n in enumerate(potentials.lengths.tolist()):
                possible = np.isfinite(log_p[b])
                strings = self._strings(labels[b][possible], np.full(int(possible.sum()), n))
                found.append(list(zip(strings, np.exp(log_p[b][possible]).tolist(), strict=True)))
        return found

    def posterior(self, sentence: Sentence) -> "LinearChain":
        """The distribution over labellings of one sentence: ask it anything.

        With a beam it is a ``BeamChain``. With order 2 its states are first the L labels, as the begin of a sentence,
        then pairs: L + a L + b is label b after label a; with order 3 triples follow.
        """
        import torch

        from trelliswork.distributions import LinearChain

        if len(sentence) == 0:
            raise ShapeError("the sentence is empty: a distribution over labels needs a token.")
        (scores,) = self._potentials([sentence])
        potentials = scores.dense() if isinstance(scores, SparseChain) else scores
        pairwise = potentials.log_pairwise[0] if potentials.shared else potentials.log_pairwise[None]
        found = LinearChain(torch.from_numpy(potentials.log_unary), torch.from_numpy(pairwise))
        beam = self._beam()
        return found if beam is None else found.within(beam)

    def score(self, X: Sentences, y: Sequence[Sequence[str]]) -> float:
        """Token accuracy."""
        pairs = [(a, b) for p, g in zip(self.predict(X), y, strict=True) for a, b in zip(p, g, strict=True)]
        return sum(a == b for a, b in pairs) / len(pairs)

    def top_features(self, n: int = 20, label: str | None = None) -> list[tuple[str, str, float]]:
        """The n largest weights by absolute value: attribute, label, weight; of one label if given."""
        return self._learned().top_features(n, label)

    def top_edge_features(self, n: int = 20) -> list[tuple[str, str, str, float]]:
        """The n largest weights of edge features by absolute value: attribute, from, to, weight."""
        return self._learned().top_edge_features(n)

    def top_transitions(self, n: int = 20) -> list[tuple[str, str, float]]:
        """The n largest weights of pairs of labels by absolute value: from, to, weight."""
        return [(before, after, weight) for (before, after), weight in self.top_ngrams(n)]

    def top_ngrams(self, n: int = 20, length: int = 2) -> list[tuple[tuple[str, ...], float]]:
        """The n largest weights of label n-grams of a length, 2 to ``order + 1``: labels, weight."""
        return self._learned().top_ngrams(n, length)

    def known_words(self) -> set[str] | None:
        """The words of the first column in training; ``None`` if the model saw ready attributes."""
        self._check_fitted()
        return self.features_.known_words()

    def _settings(self) -> Settings:
        """How to learn, checked."""
        if self.feature_set not in ("observed", "all"):
            raise ValueRangeError(f"feature_set must be 'observed' or 'all', got {self.feature_set!r}.")
        if self.scheme not in ("auto", "bio", "bioes", None):
            raise ValueRangeError(f"scheme must be 'auto', 'bio', 'bioes' or None, got {self.scheme!r}.")
        names = Settings.__dataclass_fields__
        settings = Settings(**{name: getattr(self, name) for name in names})
        settings.check()
        return settings

    def _prepare(
        self, attributes: Attributes, y: Labels, labels: Vocabulary, sample_weight: object,
        layout: FeatureLayout | None = None,
    ) -> tuple[Problem, Scheme | None]:  # fmt: skip
        """Data as the learner takes them, and the label scheme."""
        scheme = detect_scheme(labels) if self.scheme == "auto" else self.scheme
        weights = label_weight_array(self.label_weight, labels)
        problem = prepare(attributes, y, labels, scheme, self.feature_set, weights, sample_weight, layout, self.order)
        return problem, scheme

    def _learned(self) -> Learned:
        self._check_fitted()
        return Learned(self.features_, self.labels_, self._layout, self.weights_, self._structure)

    def _beam(self) -> Beam | None:
        """The beam of tagging."""
        if self._structure is not None:
            return chosen_beam(self.beam, self._structure.transitions.n_states, shared=False)
        return chosen_beam(self.beam, len(self.labels_), shared=self._layout.n_edge_attributes == 0)

    def _plain_parameters(self) -> dict[str, Any]:
        """Parameters for JSON, without the features."""
        plain = {k: v for k, v in self.get_params().items() if k != "features"}
        return plain | {"beam": None if self.beam is None else str(self.beam)}

    def _potentials(self, X: Sentences, known: Labels | None = None) -> Iterator[Scores]:
        """Scores of batches of sentences, in their order; -inf for labels that the evidence rules out."""
        self._check_fitted()
        if callable(self.features):
            self.features_.function = self.features  # a loaded model gets it by set_params
        allowed = allowed_by(self.labels_, self.scheme_)
        scorer = Scorer(self.features_.transform(X), self._layout, allowed, self._structure)
        return scorer.potentials(
            self.weights_, None if known is None else ruled_out(known, scorer.lengths, self.labels_)
        )

    def _strings(self, labels: NDArray[np.integer], lengths: NDArray[np.integer]) -> list[list[str]]:
        items = self.labels_.items
        return [[items[j] for j in row[:n]] for row, n in zip(labels.tolist(), lengths.tolist(), strict=True)]

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        learned, arrays = self._learned().state()
        report, beam = self.report_, self.report_.beam
        plain: dict[str, Any] = {
            "parameters": self._plain_parameters(),
            "scheme": self.scheme_,
            "input": getattr(self, "input_", {}),
            "report": {
                "converged": report.converged,
                "reason": report.reason,
                "value": report.value,
                "n_iter": report.n_iter,
                "beam": None if beam is None else vars(beam),
            },
        }
        return plain | learned, arrays

    @classmethod
    def _from_state(cls, plain: dict[str, Any], arrays: Arrays) -> Self:
        self = cls(None, **plain["parameters"])
        learned = Learned.from_state(plain, arrays)
        self.features_, self.labels_, self._layout = learned.features, learned.labels, learned.layout
        self.weights_, self._structure = learned.weights, learned.structure
        self.features, self.scheme_, self.input_ = self.features_.features, plain["scheme"], plain["input"]
        report = plain["report"]
        beam = None if report["beam"] is None else BeamStatistics(**report["beam"])
        self.report_ = FitReport(report["converged"], report["reason"], report["value"], beam=beam)
        return self
