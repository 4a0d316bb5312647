"""Factorial conditional random fields: several layers of labels over the same tokens, tagged together (paper 3)."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.padding import unpad
from trelliswork.data.schemes import detect_scheme
from trelliswork.errors import ImpossibleError, ShapeError, ValueRangeError, extras_for
from trelliswork.features.feature_map import FeatureMap, Features, Sentence, Sentences
from trelliswork.features.knowledge import KNOWLEDGE, Knowledge
from trelliswork.inference import factorial
from trelliswork.inference.chain import queries
from trelliswork.inference.factorial.sweeps import Options
from trelliswork.learning.report import Callback, FitReport
from trelliswork.metrics.tagging import gold_in_scheme_of
from trelliswork.models.base import Arrays, Description, Table, check_label, watch_for
from trelliswork.models.calibration import LEAST, fit_temperature, observed
from trelliswork.models.crf.data import in_scheme, label_vocabulary, prepare
from trelliswork.models.entrance import COLUMNS
from trelliswork.models.evidence import Labels, SentenceRules, ruled_out
from trelliswork.models.factorial.data import (
    Joint,
    LabelLayer,
    LayerLabels,
    by_layer,
    joined,
    with_rules,
)
from trelliswork.models.factorial.learned import Learned
from trelliswork.models.factorial.objective import FactorialLayout, FactorialObjective
from trelliswork.models.factorial.scoring import FactorialScorer, as_factor_graph
from trelliswork.models.factorial.training import joint_development, learn, tie_numbers
from trelliswork.models.parameters import (
    L2,
    TRAINING,
    Clusters,
    FurtherOptions,
    HashBits,
    LexiconOption,
    MaxIter,
    MinAttributeCount,
    Parameter,
    Patience,
    Tol,
    Vectors,
    estimator,
    later,
    option,
    parse_names,
    parse_pairs,
)
from trelliswork.models.spans import THRESHOLD, Chains, Confident, SpanLabels
from trelliswork.models.tasks import LayeredTagger, TagDecoding, accuracy, by_label, check_decoding

if TYPE_CHECKING:
    from trelliswork.distributions.factor_graph import FactorGraph

LayerRulesGiven = Mapping[str, Any] | None
Engine = Literal["bp", "structured_mean_field", "exact"]


@estimator
class FactorialCRF(LayeredTagger):
    """A tagger of several layers at once: a chain of labels in each layer, and scores for labels of the same token.

    Attributes
    ----------
    labels_ : dict of str to tuple of str
        Labels of each layer.
    report_ : FitReport
        Report of the training.

    Examples
    --------
    >>> X, y = [["the", "dog"], ["a", "dog", "runs"]], [[("D", "B-NP"), ("N", "I-NP")]]
    >>> y.append([("D", "B-NP"), ("N", "I-NP"), ("V", "B-VP")])
    >>> tagger = FactorialCRF(("pos", "chunk"), features="U:%x[0,0]", l2=0.1).fit(X, y)
    >>> tagger.predict([["the", "dog", "runs"]])
    [[('D', 'B-NP'), ('N', 'I-NP'), ('V', 'B-VP')]]
    """

    family: ClassVar[str] = "factorial-crf"
    _tokens: ClassVar[tuple[type, ...]] = COLUMNS
    _title: ClassVar[str] = "Factorial CRF"
    _apart: ClassVar[tuple[str, ...]] = ("features", *KNOWLEDGE)
    _learned: Learned = later()

    layers: Annotated[
        Sequence[str],
        Parameter(
            "Names of the layers, such as pos,chunk, in the order of their columns; engines visit them in this order.",
            parse=parse_names,
        ),
    ] = ("pos", "chunk")
    _: KW_ONLY
    features: Annotated[
        Features,
        Parameter(
            "A preset (pos, ner, chunking, letters) or a CRF++ template file; in Python all features of CRF.", parse=str
        ),
    ] = "pos"
    ties: Annotated[
        Sequence[tuple[str, str]] | None,
        Parameter(
            "Pairs of layers that score each other's labels, such as pos-chunk.",
            unset="all pairs",
            parse=parse_pairs,
        ),
    ] = None
    engine: Annotated[
        Engine,
        Parameter(
            "Inference in training and tagging: belief propagation (an estimate), structured mean field (a lower "
            "bound), or the exact product of the layers' chains (at most 20,000 combinations of labels)."
        ),
    ] = "bp"
    scheme: Annotated[
        Literal["auto"] | None,
        Parameter(
            "auto: labels of spans (BIO, IOB1, BIOES, BILOU) are recognized, and pairs that break their scheme are "
            "repaired in training and forbidden in tagging.",
            unset="plain tags, all pairs are allowed",
        ),
    ] = "auto"
    clusters: Clusters = None
    vectors: Vectors = None
    lexicon: LexiconOption = None
    l2: L2 = 1.0
    min_count: MinAttributeCount = 1
    max_iter: MaxIter = 500
    tol: Tol = 1e-5
    patience: Patience = 20
    options: FurtherOptions = None
    feature_set: Annotated[
        Literal["observed", "all"],
        Parameter("Weights for the pairs of attribute and label that occur in training, or for all pairs."),
    ] = option("observed")
    hash_bits: HashBits = option(None)
    sweep_tol: Annotated[
        float,
        Parameter("Largest change of a marginal in one sweep at which inference stops.", above=0, panel=TRAINING),
    ] = option(1e-3)
    max_sweeps: Annotated[int, Parameter("Maximum number of sweeps per sentence.", minimum=1, panel=TRAINING)] = option(
        50
    )
    damping: Annotated[
        float,
        Parameter(
            "Fraction of the old messages that belief propagation keeps; for oscillating messages.",
            minimum=0,
            below=1,
            panel=TRAINING,
        ),
    ] = option(0.0)
    history_size: ClassVar = 6  # of L-BFGS, as in CRFsuite

    def fit(
        self,
        X: Sentences,
        y: LayerLabels,
        *,
        dev: tuple[Sentences, LayerLabels] | None = None,
        sample_weight: NDArray[np.floating] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callback: Callback | None = None,
        max_minutes: float | None = None,
    ) -> Self:
        """Train on labeled sentences.

        Parameters
        ----------
        X : list of sentences or Corpus
            As in ``CRF.fit``.
        y : dict of str to list of lists, or list of lists of tuples
            The labels of each layer by its name, or for each token a tuple of labels in the order of ``layers``.
        dev : (X, y), optional
            Development data: training stops when joint accuracy has not increased for ``patience`` iterations, and
            the best weights are kept.
        """
        self._check_parameters()
        knowledge = Knowledge.of(self.clusters, self.vectors, self.lexicon)
        features = FeatureMap(self.features, min_count=self.min_count, hash_bits=self.hash_bits, knowledge=knowledge)
        attributes = features.fit(X)
        if attributes.edges is not None:
            raise ValueRangeError(
                "factorial CRFs do not support edge features (B templates with columns): leave them out."
            )
        layers, problems = [], []
        for name, column in zip(self.layers, by_layer(y, self.layers), strict=True):
            own, scheme = in_scheme(column, self.scheme, f"layer {name}")
            layers.append(LabelLayer(name, label_vocabulary(own), scheme))
            given: Any = {"feature_set": self.feature_set, "sample_weight": sample_weight}
            problems.append(prepare(attributes, own, layers[-1].labels, scheme, **given))
        layout = FactorialLayout(tuple(p.layout for p in problems), tie_numbers(self.ties, self.layers))
        learned, options = Learned(features, tuple(layers), layout), Options(**self._settings())
        objective = FactorialObjective(problems, layout, engine=self.engine, l2=self.l2, options=options)
        development = held = None
        if dev is not None:
            held = by_layer(dev[1], self.layers)
            development = joint_development(features.transform(dev[0]), held, learned, self._decode)
        plain = self._values("max_iter", *self._apart)

        def mark() -> str:
            return " ".join(problem.fingerprint(plain, held) for problem in problems)

        watch = watch_for(self, development, checkpoint, mark, callback, max_minutes)
        weights, report = learn(objective, watch, max_iter=self.max_iter, tol=self.tol, history_size=self.history_size)
        return self._set(replace(learned, weights=weights), report)

    def predict(  # type: ignore[override]  # by layer
        self,
        X: Sentences,
        *,
        decoding: TagDecoding = "viterbi",
        known: Mapping[str, Labels] | None = None,
        rules: LayerRulesGiven = None,
    ) -> Joint:
        """Return the labels of all layers: a tuple of labels per token.

        With more than 5,000 combinations of labels and an engine other than ``exact`` it is a labeling that no change
        of a single layer makes more probable (``inference.factorial.decode``).

        Parameters
        ----------
        X : as in ``fit``
        decoding : {"viterbi", "mbr", "mbr-span"}
            The most probable labeling of all layers together; the most probable label of each token in each layer; or
            the spans with the best expected F1 in layers whose labels encode spans, and the most probable label of
            each token in the others.
        known : dict of str to list of lists, optional
            Evidence by layer: for each token a label, a collection of possible labels, or ``None``.
        rules : dict of str to Rule or str, or to lists with one for each sentence, optional
            What must hold in layers of whole sentences, see `trelliswork.rules`. They are exact with the engine
            ``exact``, which supports 3,000 combinations of labels then; other engines treat each layer with its rules
            as one factor.
        """
        return joined(list(self._predict_layers(X, decoding=decoding, known=known, rules=rules).values()))

    def _predict_layers(
        self,
        X: Sentences,
        *,
        decoding: TagDecoding = "viterbi",
        known: Mapping[str, Labels] | None = None,
        rules: LayerRulesGiven = None,
    ) -> dict[str, list[list[str]]]:
        """Return the labels of each layer, as a dict by layer; arguments as in ``predict``."""
        check_decoding(decoding)
        predicted: dict[str, list[list[str]]] = {name: [] for name in self.layers}
        for potentials in self._potentials(X, known, rules):
            if decoding == "viterbi":
                decoded = self._decode(potentials)
            else:
                decoded = [p.argmax(axis=2) for p in self._possible(potentials).marginals]
            for layer, labels in zip(self._layers, decoded, strict=True):
                items = layer.labels.items
                rows = zip(labels.tolist(), potentials.lengths.tolist(), strict=True)
                predicted[layer.name] += [[items[j] for j in row[:n]] for row, n in rows]
        if decoding == "mbr-span":
            self._replace_by_spans(predicted, X, known, rules)
        return predicted

    def _replace_by_spans(self, predicted: dict[str, list[list[str]]], X: Sentences, known: Any, rules: Any) -> None:
        """Replace the labels of layers with spans by those with the best expected F1."""
        thresholds = {} if self.calibration_ is None else self.calibration_.span_thresholds
        for name, reader in self._span_layers().items():
            labels = reader.decode(self._layer_chains(X, known, name, rules), thresholds.get(name, THRESHOLD))
            names = set(reader.labels)
            for n, row in enumerate(labels):
                if row is not None and names.issuperset(row):
                    predicted[name][n] = row

    def predict_spans(  # type: ignore[override]  # by layer
        self,
        X: Sentences,
        *,
        decoding: TagDecoding = "viterbi",
        known: Mapping[str, Labels] | None = None,
        rules: LayerRulesGiven = None,
    ) -> dict[str, list[Confident]]:
        """Return the spans of each sentence with their probabilities, for each layer whose labels encode spans.

        They are those of the layer's chain with the messages of the other layers, an estimate (see
        ``inference.factorial.layer_chains``). Arguments are those of ``predict``.
        """
        readers = self._span_layers()
        if not readers:
            raise ValueRangeError("no layer of this model has labels that encode spans (BIO or BIOES).")
        labels = self._predict_layers(X, decoding=decoding, known=known, rules=rules)
        return {
            name: reader.confidences(self._layer_chains(X, known, name, rules), labels[name])
            for name, reader in readers.items()
        }

    def log_prob(  # type: ignore[override]  # by layer
        self, X: Sentences, y: LayerLabels, *, rules: LayerRulesGiven = None
    ) -> NDArray[np.float64]:
        """Return log p(labels of all layers | sentence, rules) (n_sentences,), with the engine's value of log Z.

        It is exact for the engine "exact", and an estimate otherwise. ``y`` is given as in ``fit``, with ``None`` for
        unknown labels.
        """
        columns = dict(zip(self.layers, by_layer(y, self.layers), strict=True))
        every = [self._possible(potentials).value for potentials in self._potentials(X, None, rules)]
        return np.minimum(self._log_z(X, columns, rules) - np.concatenate([np.empty(0), *every]), 0.0)

    def predict_marginals(  # type: ignore[override]  # by layer
        self, X: Sentences, *, known: Mapping[str, Labels] | None = None, rules: LayerRulesGiven = None
    ) -> dict[str, list[list[dict[str, float]]]]:
        """Return p(label | sentence, known labels, rules) by layer and token: dicts by label, best first."""
        result: dict[str, list[list[dict[str, float]]]] = {name: [] for name in self.layers}
        for potentials in self._potentials(X, known, rules):
            beliefs = self._possible(potentials)
            for layer, marginals in zip(self._layers, beliefs.marginals, strict=True):
                rows = unpad(marginals, potentials.lengths)
                result[layer.name] += by_label(layer.labels.names, rows, potentials.lengths)
        return result

    def predict_topk(  # type: ignore[override]  # by layer
        self, X: Sentences, k: int, *, known: Mapping[str, Labels] | None = None, rules: LayerRulesGiven = None
    ) -> list[list[tuple[list[tuple[str, ...]], float]]]:
        """Return the k most probable labelings of all layers with their probabilities, best first; always exact.

        At most 3,000 combinations of labels are supported.
        """
        ranked: list[list[tuple[list[tuple[str, ...]], float]]] = []
        for potentials in self._potentials(X, known, rules):
            labels, log_p = factorial.topk(potentials, k)
            for b, n in enumerate(potentials.lengths.tolist()):
                best = []
                for r in np.flatnonzero(np.isfinite(log_p[b])).tolist():
                    pairs = zip(self._layers, labels, strict=True)
                    names = [layer.labels.strings(rows[b, r, :n].tolist()) for layer, rows in pairs]
                    best.append((list(zip(*names, strict=True)), float(np.exp(log_p[b, r]))))
                ranked.append(best)
        return ranked

    @extras_for("posterior")
    def posterior(
        self,
        sentence: Sentence,
        *,
        known: Mapping[str, Sequence[Any]] | None = None,
        rules: Mapping[str, Any] | None = None,
        engine: str = "bp",
    ) -> "FactorGraph":
        """Return the distribution over labelings of one sentence as a factor graph, for any query and engine.

        Token t of layer d (counted in the order of ``layers``) is variable ``d * len(sentence) + t``; its states are
        the labels in the order of ``labels_``. Rules add variables after these.
        """
        if len(sentence) == 0:
            raise ShapeError("the sentence is empty: a distribution over labels needs a token.")
        evidence = None if known is None else {name: [list(labels)] for name, labels in known.items()}
        (potentials,) = self._potentials([sentence], evidence, rules)
        return as_factor_graph(potentials, engine)

    def score(self, X: Sentences, y: LayerLabels) -> float:
        """Return the joint token accuracy: the fraction of tokens with all labels correct."""
        predicted, gold = list(self._predict_layers(X).values()), by_layer(y, self.layers)
        pairs = zip(self._layers, predicted, gold, strict=True)
        return accuracy(joined(predicted), joined([gold_in_scheme_of(layer.labels, p, g) for layer, p, g in pairs]))

    @property
    def kind(self) -> str:
        """Whether probabilities are "exact", which the engine "exact" makes them, or an "estimate"."""
        return "exact" if self.engine == "exact" else "estimate"

    def top_features(self, n: int = 20, label: str | None = None, *, layer: str) -> list[tuple[str, str, float]]:
        """Return the n largest weights of a layer (absolute): attribute, label, weight; for one label if given."""
        return self._learned.layer(self._layer_number(layer)).top_features(n, label)

    def known_words(self) -> set[str] | None:
        """Return the words of the first column in training; ``None`` if the model saw ready attributes."""
        self._check_fitted()
        return self._learned.features.known_words()

    def describe(self, n: int = 20, label: str | None = None) -> Description:
        """Return the largest weights of every layer and of tied layers, and how training ended."""
        self._check_fitted()
        names = [name for layer in self._layers for name in layer.labels]
        check_label(label, names)
        facts = {
            "engine": self.engine,
            "features": len(self._learned.weights),
            "active": int((self._learned.weights != 0).sum()),
            "labels": {layer.name: list(layer.labels) for layer in self._layers},
            "schemes": {layer.name: layer.scheme for layer in self._layers},
        }
        tables = []
        for layer in self._layers:
            if label is None or label in layer.labels:
                rows = self.top_features(n, label, layer=layer.name)
                columns = ("attribute", "label", "weight")
                tables.append(Table(f"{layer.name}.top_features", f"Layer {layer.name}: weights", columns, rows))
                pairs = self._learned.layer(self._layer_number(layer.name)).top_ngrams(n, 2)
                title = f"Layer {layer.name}: label pairs"
                tables.append(Table(f"{layer.name}.top_transitions", title, ("from", "to", "weight"), pairs))
        ties = [(f"{a} {x}", f"{b} {y}", weight) for a, x, b, y, weight in self._learned.top_ties(n)]
        tables.append(Table("top_ties", "Labels of the same token", ("label", "label", "weight"), ties))
        return Description(f"Factorial CRF with {len(self.layers)} layers", facts, tables)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if isinstance(self.layers, str) or not self.layers or len(set(self.layers)) != len(self.layers):
            raise ValueRangeError(f"layers must be different names, such as ('pos', 'chunk'), got {self.layers!r}.")
        tie_numbers(self.ties, self.layers)

    def _settings(self) -> dict[str, Any]:
        """Return the settings of an engine."""
        return {"tolerance": self.sweep_tol, "max_iter": self.max_sweeps, "damping": self.damping}

    def _set(self, learned: Learned, report: FitReport) -> Self:
        self._learned, self._layers, self.report_, self.calibration_ = learned, learned.layers, report, None
        return self

    def _layer_number(self, name: str) -> int:
        self._check_fitted()
        if name not in self.layers:
            raise ValueRangeError(f"no layer {name!r}; the layers are {', '.join(self.layers)}.")
        return list(self.layers).index(name)

    def _infer(self, potentials: factorial.FactorialPotentials) -> factorial.Beliefs:
        return factorial.infer(potentials, self.engine, **self._settings())

    def _possible(self, potentials: factorial.FactorialPotentials) -> factorial.Beliefs:
        """Return the beliefs of a batch; an error if rules make a sentence impossible."""
        beliefs, rules = self._infer(potentials), potentials.rules
        if rules is not None and (beliefs.value == -np.inf).any():
            for d, unary in enumerate(potentials.log_unary):
                rows = potentials.tables.chain(d, unary, potentials.lengths)
                if rules.layers[d] is not queries:
                    rules.layers[d].check(rows, rules.layers[d].log_partition(rows))
            raise ImpossibleError("no labeling satisfies the rules of all layers together.")
        return beliefs

    def _log_z(self, X: Sentences, known: Any, rules: Any) -> NDArray[np.float64]:
        """Return the engine's log Z (n_sentences,) of the labelings that agree with what is known and rules."""
        parts = [self._infer(p).value for p in self._potentials(X, known, rules)]
        return np.concatenate([np.empty(0), *parts])

    def _rules_hold(self, X: Sentences, rules: Any, known: Any) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        log_p = self._log_z(X, known, rules) - self._log_z(X, known, None)
        return np.exp(np.minimum(log_p, 0.0)), np.zeros(len(log_p), bool)

    def _decode(self, potentials: factorial.FactorialPotentials) -> list[NDArray[np.int64]]:
        return factorial.decode(potentials, self.engine, **self._settings())[0]

    def _potentials(
        self, X: Sentences, known: Mapping[str, Labels] | None = None, rules: LayerRulesGiven = None
    ) -> Iterator[factorial.FactorialPotentials]:
        """Yield the scores of batches of sentences, in order; -inf for labels that the evidence rules out."""
        self._check_fitted()
        learned = self._learned
        if callable(self.features):
            learned.features.function = self.features  # a loaded model gets it by set_params
        attributes = learned.features.transform(X)
        scorer = FactorialScorer(attributes, learned.layout, [layer.allowed for layer in self._layers])
        given: Any = {} if known is None else known
        by_rules: Any = {} if rules is None else rules
        if not isinstance(by_rules, Mapping):
            names = ", ".join(self.layers)
            raise ValueRangeError(f"rules must be a dict by layer, of the layers {names}, got {rules!r:.60}.")
        for name in [*given, *by_rules]:
            self._layer_number(name)
        out = None
        if known is not None:
            out = [
                ruled_out(known[layer.name], scorer.lengths, layer.labels) if layer.name in known else None
                for layer in self._layers
            ]
        batches = scorer.potentials(self._divided(self._learned.weights), out)
        if not by_rules:
            return batches
        each = SentenceRules([(by_rules.get(own.name), own.labels.names) for own in self._layers], len(scorer.lengths))
        return with_rules(each, batches)

    def _scored(self, X: Any, known: Any = None) -> Any:
        raise AssertionError("the layers are chains, see _layer_chains")

    def _beam(self) -> None:
        raise AssertionError("the layers are chains, see _layer_chains")

    def _layer_chains(
        self, X: Sentences, known: Mapping[str, Labels] | None, name: str, rules: LayerRulesGiven = None
    ) -> Chains:
        """Yield the sentences as chains of a layer."""
        d = self._layer_number(name)
        for potentials in self._potentials(X, known, rules):
            own = factorial.layer_chains(potentials, self.engine, **self._settings())[d]
            yield from potentials.asked(d).dense_parts(own)

    def _span_layers(self) -> dict[str, SpanLabels]:
        """Return the layers whose labels encode spans."""
        self._check_fitted()
        return {
            layer.name: SpanLabels.of(layer.labels) for layer in self._layers if detect_scheme(layer.labels) is not None
        }

    def _calibrate_temperature(self, X: Sentences, y: LayerLabels) -> dict[str, float]:
        """Return the temperature with the best log score of the labels' marginals, all layers together.

        The engine's value is no likelihood unless it is exact; marginals are what people read.
        """
        batches, gold = list(self._potentials(X)), []
        for layer, column in zip(self._layers, by_layer(y, self.layers), strict=True):
            known = [label for row in observed(column, layer.labels) for label in row]
            gold.append(np.array([-1 if label is None else layer.labels.id(label) for label in known]))

        def loss(factor: float) -> float:
            total, first = 0.0, 0
            for p in batches:
                last = first + int(p.lengths.sum())
                for ids, marginals in zip(gold, self._infer(p.scaled(factor)).marginals, strict=True):
                    at = np.flatnonzero(ids[first:last] >= 0)
                    right = unpad(marginals, p.lengths)[at, ids[first + at]]
                    total -= float(np.log(np.maximum(right, LEAST), dtype=np.float64).sum())
                first = last
            return total

        return {"all": fit_temperature(loss)}

    def _span_thresholds(self, X: Sentences) -> dict[str, float]:
        return {name: r.threshold(self._layer_chains(X, None, name)) for name, r in self._span_layers().items()}

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        return self._learned.state()

    def _restore(self, plain: dict[str, Any], arrays: Arrays) -> None:
        self.layers = tuple(self.layers)
        if self.ties is not None:
            self.ties = tuple((a, b) for a, b in self.ties)
        self._set(Learned.from_state(plain, arrays, self.layers), self.report_)
        self.features = self._learned.features.features
        for name in KNOWLEDGE:
            setattr(self, name, getattr(self._learned.features.knowledge, name))
