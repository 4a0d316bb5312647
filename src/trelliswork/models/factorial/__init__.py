"""Factorial conditional random fields: several layers of labels over the same tokens, tagged together (paper 3)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Corpus
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.features.attributes import Attributes
from trelliswork.features.feature_map import Features, Sentence, Sentences
from trelliswork.inference import factorial
from trelliswork.inference.factorial.engines import engine as engine_of
from trelliswork.inference.factorial.sweeps import Options
from trelliswork.learning.lbfgs import FitReport
from trelliswork.models.base import Arrays, Estimator
from trelliswork.models.crf.labels import sentence_weights
from trelliswork.models.crf.layout import FeatureLayout
from trelliswork.models.crf.scoring import tokens_of
from trelliswork.models.crf.training import Callback, Watch
from trelliswork.models.evidence import Labels, ruled_out
from trelliswork.models.factorial.data import FactorialReport, Joint, LabelLayer, LayerLabels, by_layer, compare, joined
from trelliswork.models.factorial.learned import Learned
from trelliswork.models.factorial.objective import FactorialLayout, FactorialObjective
from trelliswork.models.factorial.scoring import FactorialScorer, as_factor_graph
from trelliswork.models.factorial.training import JointDevelopment, feature_maps, learn, tie_numbers

if TYPE_CHECKING:
    from trelliswork.distributions.factor_graph import FactorGraph

Engine = Literal["bp", "structured_mean_field", "exact"]


class FactorialCRF(Estimator):
    """A tagger of several layers at once: a chain of labels in each, and scores for labels of the same token.

    Parameters
    ----------
    layers : sequence of str
        Names of the layers, such as ``("pos", "chunk")``; engines visit them in this order.
    features : as in ``CRF``, or a dict of such by layer
        What the layers see of a sentence.
    engine : {"bp", "structured_mean_field", "exact"}
        How sums over labellings are found, in training and tagging: belief propagation (an estimate), structured mean
        field (a lower bound), or the product of the layers' chains, at most 20,000 combinations of labels.
    l2 : float
        Penalty ``l2 * sum w^2``.
    ties : sequence of (str, str), optional
        Layers that score each other's labels; all pairs by default.
    feature_set : {"observed", "all"}
        Weights for the pairs of attribute and label that occur in training, or for all. Labels of tied layers always
        have a weight for each pair.
    scheme : {"auto", None}
        ``auto``: layers whose labels follow BIO or BIOES allow nothing else.
    min_count, hash_bits : as in ``CRF``
    max_iter, tol, memory
        Of L-BFGS (``trelliswork.learning.lbfgs``).
    tolerance : float
        An engine stops when no marginal of a sentence moves by more in a sweep.
    max_sweeps : int
        Sweeps at most.
    damping : float
        The part of the old messages that belief propagation keeps, if it would swing otherwise.
    patience : int
        With development data: stop after so many iterations without a better joint accuracy.

    Attributes
    ----------
    layers_ : tuple of LabelLayer
        Names, labels (a ``Vocabulary``) and scheme of each layer.
    weights_ : ndarray (n_features,)
    report_ : FitReport
    input_ : dict
        How the training file was laid out, if the command line read one; saved with the model.

    Examples
    --------
    >>> X, y = [["the", "dog"], ["a", "dog", "runs"]], [[("D", "B-NP"), ("N", "I-NP")]]
    >>> y.append([("D", "B-NP"), ("N", "I-NP"), ("V", "B-VP")])
    >>> tagger = FactorialCRF(("pos", "chunk"), "U:%x[0,0]", l2=0.1).fit(X, y)
    >>> tagger.predict([["the", "dog", "runs"]])
    [[('D', 'B-NP'), ('N', 'I-NP'), ('V', 'B-VP')]]
    """

    kind: ClassVar[str] = "factorial-crf"
    input_: dict[str, Any]

    def __init__(
        self,
        layers: Sequence[str] = ("pos", "chunk"),
        features: Features | Mapping[str, Features] = "pos",
        *,
        engine: Engine = "bp",
        l2: float = 1.0,
        ties: Sequence[tuple[str, str]] | None = None,
        feature_set: str = "observed",
        scheme: Literal["auto"] | None = "auto",
        min_count: int = 1,
        hash_bits: int | None = None,
        max_iter: int = 500,
        tol: float = 1e-5,
        memory: int = 6,
        tolerance: float = 1e-3,
        max_sweeps: int = 50,
        damping: float = 0.0,
        patience: int = 20,
    ) -> None:
        self.layers = layers
        self.features = features
        self.engine = engine
        self.l2 = l2
        self.ties = ties
        self.feature_set = feature_set
        self.scheme = scheme
        self.min_count = min_count
        self.hash_bits = hash_bits
        self.max_iter = max_iter
        self.tol = tol
        self.memory = memory
        self.tolerance = tolerance
        self.max_sweeps = max_sweeps
        self.damping = damping
        self.patience = patience

    def fit(
        self,
        X: Sentences,
        y: LayerLabels,
        *,
        sample_weight: NDArray[np.floating] | None = None,
        dev: tuple[Sentences, LayerLabels] | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Learn from labelled sentences.

        Parameters
        ----------
        X : list of sentences or Corpus
            As in ``CRF.fit``.
        y : dict of str to list of lists, or list of lists of tuples
            The labels of each layer by its name, or for each token a tuple of labels in the order of ``layers``.
        sample_weight : ndarray (n_sentences,), optional
            How much each sentence counts.
        dev : (X, y), optional
            Development data: training stops when joint accuracy has not risen for ``patience`` iterations, and the
            weights of the best iteration are kept.
        callback : callable, optional
            Called after each iteration with a ``Step`` and the weights; a true answer stops, and they are kept.
        """
        self._check_parameters()
        columns = by_layer(y, self.layers)
        maps = feature_maps(self.features, self.layers, min_count=self.min_count, hash_bits=self.hash_bits)
        fitted = {id(m): m.fit(X) for m in maps}
        attributes = [fitted[id(m)] for m in maps]
        layers, gold, layouts = [], [], []
        made = {id(a): tokens_of(a) for a in attributes}
        for name, column, found in zip(self.layers, columns, attributes, strict=True):
            layer = LabelLayer.from_column(name, column, self.scheme == "auto")
            if found.edges is not None:
                raise ValueRangeError(
                    "factorial CRFs have no edge features (B templates with columns): leave them out."
                )
            layers.append(layer)
            gold.append(layer.gold(found, column))
            sizes = (found.n_attributes, len(layer.labels))
            all_pairs = self.feature_set == "all"
            layouts.append(
                FeatureLayout.all_pairs(*sizes)
                if all_pairs
                else FeatureLayout.observed(made[id(found)], gold[-1], *sizes)
            )
        layout = FactorialLayout(tuple(layouts), tie_numbers(self.ties, self.layers))
        objective = FactorialObjective(
            [made[id(a)] for a in attributes],
            gold,
            layout,
            engine=self.engine,
            l2=self.l2,
            weights=sentence_weights(sample_weight, len(attributes[0])),
            allowed=[layer.allowed for layer in layers],
            options=self._options(),
        )
        development = None
        if dev is not None:
            known = {id(m): m.transform(dev[0]) for m in maps}
            scorer = FactorialScorer([known[id(m)] for m in maps], layout, [layer.allowed for layer in layers])
            development = JointDevelopment(scorer, by_layer(dev[1], self.layers), layers, self._decode)
        weights, report = learn(objective, Watch(development, self.patience, None, callback), *self._stopping())
        # Set together at the end: a fit that fails leaves what was learned before.
        self.features_, self.layers_, self._layout = maps, tuple(layers), layout
        self.weights_, self.report_ = weights, report
        return self

    def predict(self, X: Sentences, *, known: Mapping[str, Labels] | None = None) -> Joint:
        """The most probable labelling of all layers together: for each token a tuple of labels.

        With more than 5,000 combinations of labels and an engine other than ``exact`` it is one that no change of a
        single layer makes more probable (``inference.factorial.decode``).

        Parameters
        ----------
        X : as in ``fit``
        known : dict of str to list of lists, optional
            Evidence by layer: for each token a label, a collection of labels, or ``None`` if nothing is known.
        """
        return joined(list(self.predict_layers(X, known=known).values()))

    def predict_layers(self, X: Sentences, *, known: Mapping[str, Labels] | None = None) -> dict[str, list[list[str]]]:
        """The same as a dict: the labels of each layer by its name."""
        found: dict[str, list[list[str]]] = {name: [] for name in self.layers}
        for potentials in self._potentials(X, known):
            for layer, labels in zip(self.layers_, self._decode(potentials), strict=True):
                items = layer.labels.items
                rows = zip(labels.tolist(), potentials.lengths.tolist(), strict=True)
                found[layer.name] += [[items[j] for j in row[:n]] for row, n in rows]
        return found

    def predict_marginals(
        self, X: Sentences, *, known: Mapping[str, Labels] | None = None
    ) -> dict[str, list[list[dict[str, float]]]]:
        """p(label | sentence, known labels) for each layer and token, as a dict by label; by the engine's beliefs."""
        found: dict[str, list[list[dict[str, float]]]] = {name: [] for name in self.layers}
        for potentials in self._potentials(X, known):
            beliefs = self._infer(potentials)
            for layer, marginals in zip(self.layers_, beliefs.marginals, strict=True):
                names = list(layer.labels)
                for row, n in zip(marginals.tolist(), potentials.lengths.tolist(), strict=True):
                    found[layer.name].append([dict(zip(names, token, strict=True)) for token in row[:n]])
        return found

    def posterior(self, sentence: Sentence, engine: str = "bp") -> "FactorGraph":
        """The distribution over labellings of one sentence as a factor graph: ask it anything, with any of its engines.

        Token t of layer d (counted in the order of ``layers``) is variable ``d * len(sentence) + t``; its states are
        the labels in the order of ``layers_[d].labels``.
        """
        if len(sentence) == 0:
            raise ShapeError("the sentence is empty: a distribution over labels needs a token.")
        (potentials,) = self._potentials([sentence])
        return as_factor_graph(potentials, engine)

    def score(self, X: Sentences, y: LayerLabels) -> float:
        """Joint token accuracy: the part of the tokens with all labels right."""
        return self.evaluate(X, y).joint_accuracy

    def evaluate(self, X: Sentences, y: LayerLabels) -> FactorialReport:
        """Accuracy of each layer, spans where its labels follow a scheme, and joint accuracy."""
        predicted = list(self.predict_layers(X).values())
        words = X.sentences(0) if isinstance(X, Corpus) else None
        return compare(self.layers_, by_layer(y, self.layers), predicted, words, self.known_words())

    def top_features(self, layer: str, n: int = 20, label: str | None = None) -> list[tuple[str, str, float]]:
        """The n largest weights of a layer by absolute value: attribute, label, weight; of one label if given."""
        return self._learned().top_features(self._layer_number(layer), n, label)

    def top_transitions(self, layer: str, n: int = 20) -> list[tuple[str, str, float]]:
        """The n largest transition weights of a layer by absolute value: from, to, weight."""
        return self._learned().top_transitions(self._layer_number(layer), n)

    def top_ties(self, n: int = 20) -> list[tuple[str, str, str, str, float]]:
        """The n largest weights of label pairs by absolute value: layer, label, layer, label, weight."""
        return self._learned().top_ties(n)

    def known_words(self) -> set[str] | None:
        """The words of the first column in training; ``None`` if the model saw ready attributes."""
        self._check_fitted()
        return self.features_[0].known_words()

    def _check_parameters(self) -> None:
        if isinstance(self.layers, str) or not self.layers or len(set(self.layers)) != len(self.layers):
            raise ValueRangeError(f"layers must be different names, such as ('pos', 'chunk'), got {self.layers!r}.")
        if self.feature_set not in ("observed", "all"):
            raise ValueRangeError(f"feature_set must be 'observed' or 'all', got {self.feature_set!r}.")
        if self.scheme not in ("auto", None):
            raise ValueRangeError(f"scheme must be 'auto' or None, got {self.scheme!r}.")
        for name in ("l2", "tol"):
            if not getattr(self, name) >= 0:
                raise ValueRangeError(f"{name} must be 0 or more, got {getattr(self, name)}.")
        if self.patience < 1:
            raise ValueRangeError(f"patience must be at least 1, got {self.patience}.")
        engine_of(self.engine)
        self._options()
        tie_numbers(self.ties, self.layers)

    def _options(self) -> Options:
        options = Options(self.tolerance, self.max_sweeps, self.damping)
        options.check()
        return options

    def _stopping(self) -> tuple[int, float, int]:
        return self.max_iter, self.tol, self.memory

    def _learned(self) -> Learned:
        self._check_fitted()
        return Learned(self.features_, self.layers_, self._layout, self.weights_)

    def _layer_number(self, name: str) -> int:
        self._check_fitted()
        if name not in self.layers:
            raise ValueRangeError(f"there is no layer {name!r}; there are {', '.join(self.layers)}.")
        return list(self.layers).index(name)

    def _infer(self, potentials: factorial.FactorialPotentials) -> factorial.Beliefs:
        o = self._options()
        return factorial.infer(potentials, self.engine, tolerance=o.tolerance, max_iter=o.max_iter, damping=o.damping)

    def _decode(self, potentials: factorial.FactorialPotentials) -> list[NDArray[np.int64]]:
        o = self._options()
        return factorial.decode(potentials, self.engine, tolerance=o.tolerance, max_iter=o.max_iter, damping=o.damping)[
            0
        ]

    def _attributes(self, X: Sentences) -> list[Attributes]:
        """What each layer sees."""
        for m, name in zip(self.features_, self.layers, strict=True):
            given = self.features[name] if isinstance(self.features, Mapping) else self.features
            if callable(given):
                m.function = given  # a loaded model gets it by set_params
        found = {id(m): m.transform(X) for m in self.features_}
        return [found[id(m)] for m in self.features_]

    def _potentials(
        self, X: Sentences, known: Mapping[str, Labels] | None = None
    ) -> Iterator[factorial.FactorialPotentials]:
        """Scores of batches of sentences, in their order; -inf for labels that the evidence rules out."""
        self._check_fitted()
        scorer = FactorialScorer(self._attributes(X), self._layout, [layer.allowed for layer in self.layers_])
        out = None
        if known is not None:
            for name in known:
                self._layer_number(name)
            out = [
                ruled_out(known[layer.name], scorer.lengths, layer.labels) if layer.name in known else None
                for layer in self.layers_
            ]
        return scorer.potentials(self.weights_, out)

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        by_layer = isinstance(self.features, Mapping)
        plain, arrays = self._learned().state(by_layer)
        plain |= {
            "parameters": {k: v for k, v in self.get_params().items() if k != "features"},
            "by_layer": by_layer,
            "input": getattr(self, "input_", {}),
            "report": {
                "converged": self.report_.converged,
                "reason": self.report_.reason,
                "value": self.report_.value,
                "n_iter": self.report_.n_iter,
            },
        }
        return plain, arrays

    @classmethod
    def _from_state(cls, plain: dict[str, Any], arrays: Arrays) -> Self:
        parameters = plain["parameters"]
        parameters["layers"] = tuple(parameters["layers"])
        if parameters["ties"] is not None:
            parameters["ties"] = tuple(tuple(tie) for tie in parameters["ties"])
        self = cls(features=None, **parameters)
        learned = Learned.from_state(plain, arrays, self.layers)
        self.features_, self.layers_ = learned.maps, learned.layers
        self._layout, self.weights_ = learned.layout, learned.weights
        given = [m.features for m in learned.maps]
        self.features = dict(zip(self.layers, given, strict=True)) if plain["by_layer"] else given[0]
        self.input_ = plain["input"]
        report = plain["report"]
        self.report_ = FitReport(report["converged"], report["reason"], report["value"])
        return self
