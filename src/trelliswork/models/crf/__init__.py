"""Linear-chain conditional random fields: taggers with features (paper 1; the model of CRFsuite and CRF++)."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Vocabulary
from trelliswork.data.schemes import Scheme, detect_scheme, model_scheme
from trelliswork.errors import DataError, ValueRangeError
from trelliswork.features.attributes import Attributes
from trelliswork.features.feature_map import FeatureMap, Features, Sentences
from trelliswork.features.knowledge import KNOWLEDGE, Knowledge
from trelliswork.inference.chain import queries
from trelliswork.inference.chain.beam import Beam, chosen_beam
from trelliswork.inference.chain.queries import Scores, log_partitions
from trelliswork.learning.distributed import one_process
from trelliswork.learning.report import Callback, FitReport
from trelliswork.models.base import Arrays, Description, Table, check_label, watch_for
from trelliswork.models.calibration import observed, temperature_of_sequences
from trelliswork.models.crf.data import in_scheme, label_vocabulary, label_weight_array, prepare, satisfying
from trelliswork.models.crf.learned import Learned, transfer
from trelliswork.models.crf.online import OnlineState
from trelliswork.models.crf.problem import Problem
from trelliswork.models.crf.training import Algorithm, Settings, learn, one_pass, tagging_development, training_beam
from trelliswork.models.crf.weights import ChainWeights, Scorer
from trelliswork.models.entrance import COLUMNS
from trelliswork.models.evidence import Labels, ruled_out
from trelliswork.models.parameters import (
    L1,
    L2,
    MODEL,
    TRAINING,
    Clusters,
    FurtherOptions,
    HashBits,
    LexiconOption,
    MinAttributeCount,
    Parameter,
    Patience,
    Seed,
    Tol,
    Vectors,
    estimator,
    later,
    option,
    parse_beam,
    parse_weights,
)
from trelliswork.models.tasks import Tagger
from trelliswork.rules import Rule


@estimator
class CRF(Tagger):
    """A tagger that scores labels by features of the sentence, and pairs of neighboring labels.

    Attributes
    ----------
    labels_ : tuple of str
        Labels that occur in training.
    report_ : FitReport
        Report of the training.

    Examples
    --------
    >>> crf = CRF("U:%x[0,0]", l2=0.1, scheme=None)
    >>> crf = crf.fit([["the", "dog"], ["a", "dog", "runs"]], [["D", "N"], ["D", "N", "V"]])
    >>> crf.predict([["the", "dog", "runs"]])
    [['D', 'N', 'V']]
    """

    family: ClassVar[str] = "crf"
    _tokens: ClassVar[tuple[type, ...]] = COLUMNS
    _title: ClassVar[str] = "CRF tagger"
    _apart: ClassVar[tuple[str, ...]] = ("features", *KNOWLEDGE)
    _learned: Learned = later()
    _online: OnlineState | None = later(None)  # of partial_fit
    _frozen: tuple[float, ChainWeights] | None = later(None)  # temperature, and the weights for the kernels

    features: Annotated[
        Features,
        Parameter(
            "A preset (chunking, pos, ner, letters, records), or CRF++ templates: a file or their text. B templates "
            "with columns score pairs of labels by observations. In Python also parsed templates, a function "
            "f(sentence, t) that returns the attributes of a token (a dict or a list of strings), or None if the "
            "tokens are such attributes. A function is not saved: pass it to set_params after loading.",
            parse=str,
        ),
    ] = "pos"
    _: KW_ONLY
    order: Annotated[
        int,
        Parameter(
            "Length of the label n-grams that have weights, minus 1: order 2 adds triples of labels, order 3 "
            "quadruples. Combine with a beam. Only with L-BFGS.",
            minimum=1,
        ),
    ] = 1
    scheme: Annotated[
        Literal["auto", "bio", "iob1", "bioes", "bilou"] | None,
        Parameter(
            "Scheme of span labels; auto: that of most labels. IOB1 becomes BIO, BILOU becomes BIOES. Label pairs "
            "that break it are repaired in training, as conlleval reads them, and forbidden in tagging.",
            unset="plain tags, all pairs are allowed",
        ),
    ] = "auto"
    beam: Annotated[
        Beam | str | None,
        Parameter(
            "Keep few states per token in training and tagging: kl=0.005,min=10; size=20; threshold=6.9,min=4; "
            "kl=auto widens itself when training needs it; auto chooses a beam where it is faster.",
            panel=MODEL,
            unset="exact inference",
            parse=parse_beam,
        ),
    ] = None
    clusters: Clusters = None
    vectors: Vectors = None
    lexicon: LexiconOption = None
    l1: L1 = 0.0
    l2: L2 = 1.0
    min_count: MinAttributeCount = 1
    algorithm: Annotated[
        Algorithm,
        Parameter(
            "L-BFGS (OWL-QN if l1 > 0) on the whole objective, averaged SGD on mini-batches, or the averaged "
            "perceptron.",
            panel=TRAINING,
        ),
    ] = "lbfgs"
    max_iter: Annotated[
        int | None,
        Parameter(
            "Maximum number of L-BFGS iterations or epochs.",
            minimum=1,
            panel=TRAINING,
            unset="500; sgd 30, perceptron 10",
        ),
    ] = None
    tol: Tol = 1e-5
    patience: Patience = 20
    seed: Seed = 0
    options: FurtherOptions = None
    label_weight: Annotated[
        Mapping[str, float] | None,
        Parameter(
            "Train as if a label were this many times as frequent, for example B-LOC=5: more recall for rare "
            "labels, less precision. Only with L-BFGS.",
            panel=TRAINING,
            unset="1 for all labels",
            parse=parse_weights,
        ),
    ] = option(None)
    feature_set: Annotated[
        Literal["observed", "all", "all-states", "all-transitions"],
        Parameter(
            "Weights for the pairs of attribute and label and the pairs of labels that occur in training, or for all; "
            "all-states: for all of the first, all-transitions: of the second kind."
        ),
    ] = option("observed")
    hash_bits: HashBits = option(None)
    batch_size: Annotated[
        int | None,
        Parameter("Sentences per update of SGD and perceptron.", minimum=1, panel=TRAINING, unset="8; 1"),
    ] = option(None)
    learning_rate: Annotated[
        float | None, Parameter("First step size of SGD.", above=0, panel=TRAINING, unset="chosen by trials")
    ] = option(None)
    history_size: ClassVar = 6  # of L-BFGS, as in CRFsuite

    def fit(
        self,
        X: Sentences,
        y: Labels,
        *,
        dev: tuple[Sentences, Sequence[Sequence[str]]] | None = None,
        start: "CRF | None" = None,
        sample_weight: NDArray[np.floating] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callback: Callback | None = None,
        max_minutes: float | None = None,
        rules: Rule | str | None = None,
        on_violation: Literal["error", "skip"] = "error",
    ) -> Self:
        """Train on labeled sentences.

        Parameters
        ----------
        X : list of sentences, Corpus or AttributeCorpus
            A sentence is a list of tokens: strings, sequences of strings (columns), or ready attributes.
        y : list of lists
            For each token its label, a collection of possible labels, or ``None`` if nothing is known.
        dev : (X, y), optional
            Development data: training stops when chunk F1 (labels with a scheme) or accuracy has not increased for
            ``patience`` iterations, and the best weights are kept.
        start : CRF, optional
            Start from the weights of this model, as far as attributes and labels are the same.
        rules : Rule or str, optional
            Probabilities are normalized over the labelings that satisfy these rules only, see `trelliswork.rules`; tag
            with the same rules. All are multiplied in: "at most once" for up to about nine labels. Needs L-BFGS and one
            label per token.
        on_violation : {"error", "skip"}
            Whether a sentence whose labels break the rules is an error, or is left out.
        """
        settings = self._settings()
        y, scheme = in_scheme(y, self.scheme)
        if rules is not None:
            if self.algorithm != "lbfgs":
                raise ValueRangeError("training under rules needs algorithm='lbfgs': choose that, or leave out rules.")
            X, y, sample_weight = satisfying(X, y, rules, on_violation, sample_weight)
        features = self._feature_map()
        attributes, labels = features.fit(X), label_vocabulary(y)
        if not labels:
            raise DataError("y must have at least one label to learn from, got None for all tokens.")
        problem = self._problem(attributes, y, labels, scheme, sample_weight, self.feature_set)
        learned = Learned(features, labels, problem.layout, structure=problem.structure, scheme=scheme)
        trained, ask = (problem, queries) if rules is None else problem.under(rules, labels)
        development = None
        if dev is not None:
            gold: Any = [list(sentence) for sentence in in_scheme(dev[1], self.scheme, "dev")[0]]
            others, beam = features.transform(dev[0]), training_beam(problem, self.beam)
            development = tagging_development(others, gold, learned, beam, ask)
        # Limits are left out of the fingerprint: a longer run may resume from a shorter one.
        plain = self._values("features", "max_iter", *KNOWLEDGE) | {
            "beam": None if self.beam is None else str(self.beam),
            "rules": None if rules is None else str(rules),
        }
        mark = partial(problem.fingerprint, plain, dev and dev[1])
        watch = watch_for(self, development, checkpoint, mark, callback, max_minutes)
        first = None if start is None else transfer(start._fitted(), learned)
        weights, report = learn(trained, settings, first, watch)
        return self._set(replace(learned, weights=weights), report)

    def partial_fit(self, X: Sentences, y: Labels, *, labels: Sequence[str] | None = None) -> Self:
        """Train one pass over a part of data that is too large for memory.

        Needs ``algorithm="sgd"`` or ``"perceptron"`` and ``hash_bits``, so that no attribute must be known beforehand.
        All pairs of attribute and label get a weight. The penalty ``l2`` is spread over the sentences of one call.

        Parameters
        ----------
        X, y : as in ``fit``
        labels : list of str
            All labels of the data; required in the first call.
        """
        settings = self._settings()
        if self.hash_bits is None or self.algorithm == "lbfgs":
            raise ValueRangeError(
                "partial_fit needs hash_bits (say 18) and algorithm='sgd' or 'perceptron', got "
                f"hash_bits={self.hash_bits} and algorithm={self.algorithm!r}."
            )
        if self._online is None:
            if labels is None:
                raise ValueRangeError("the first call of partial_fit needs labels=[...], all labels of the data.")
            features, names = self._feature_map(), Vocabulary(labels)
        else:
            features, names = self._learned.features, self._labels
        if labels is not None and list(labels) != list(names):
            raise ValueRangeError("labels= must be the same in every call of partial_fit.")
        attributes = features.transform(X)
        if attributes.edges is not None:
            raise ValueRangeError(
                "partial_fit does not support edge features (B templates with columns): leave them out."
            )
        scheme = detect_scheme(names) if self.scheme == "auto" else model_scheme(self.scheme)
        problem = self._problem(attributes, y, names, scheme, None, "all")
        weights, report, self._online = one_pass(problem, settings, self._online)
        return self._set(Learned(features, names, problem.layout, weights, scheme=scheme), report)

    def freeze(self) -> Self:
        """Lay out the weights once instead of in each call; they cannot be changed in place from then on."""
        learned = self._fitted()
        learned.weights.flags.writeable = False
        self._frozen = self._temperature, learned.laid_out(learned.layout, self._temperature)
        return self

    def top_features(self, n: int = 20, label: str | None = None) -> list[tuple[str, str, float]]:
        """Return the n largest weights by absolute value: attribute, label, weight; of one label if given."""
        return self._fitted().top_features(n, label)

    def transitions(self) -> NDArray[np.float64]:
        """Return the weights of label pairs (S, S), 0 for a pair without a weight: row before column."""
        return self._fitted().transitions()

    def known_words(self) -> set[str] | None:
        """Return the words of the first column in training; ``None`` if the model saw ready attributes."""
        return self._fitted().features.known_words()

    def describe(self, n: int = 20, label: str | None = None) -> Description:
        """Return the largest weights, and how training ended."""
        learned = self._fitted()
        check_label(label, learned.labels)
        facts = {
            "labels": list(learned.labels),
            "scheme": learned.scheme,
            "features": len(learned.weights),
            "active": int((learned.weights != 0).sum()),
        }
        tables = [
            Table("top_features", "Largest weights", ("attribute", "label", "weight"), learned.top_features(n, label)),
            Table("top_transitions", "Label pairs", ("from", "to", "weight"), learned.top_ngrams(n, 2)),
        ]
        for length in range(3, self.order + 2):
            columns = *(f"label {k}" for k in range(1, length + 1)), "weight"
            tables.append(Table(f"top_{length}grams", f"{length} labels", columns, learned.top_ngrams(n, length)))
        if learned.layout.n_edge_attributes:
            columns = ("attribute", "from", "to", "weight")
            tables.append(Table("top_edge_features", "Edge features", columns, learned.top_edge_features(n)))
        return Description(f"CRF with {len(learned.labels)} labels", facts, tables)

    def _settings(self) -> Settings:
        """Return the checked training settings."""
        self._check_parameters()
        settings = Settings(**{name: getattr(self, name) for name in Settings.__dataclass_fields__})
        settings.check()
        if settings.algorithm != "lbfgs":
            one_process(f"by {settings.algorithm}")
        return settings

    def _feature_map(self) -> FeatureMap:
        knowledge = Knowledge.of(self.clusters, self.vectors, self.lexicon)
        return FeatureMap(self.features, min_count=self.min_count, hash_bits=self.hash_bits, knowledge=knowledge)

    def _problem(
        self, attributes: Attributes, y: Labels, labels: Vocabulary, scheme: Scheme | None, sample_weight: object,
        feature_set: str,
    ) -> Problem:  # fmt: skip
        """Return the data as arrays."""
        if attributes.dense is not None and (self.algorithm != "lbfgs" or self.order > 1 or self.beam is not None):
            raise ValueRangeError(
                "vectors need algorithm='lbfgs', order=1 and exact inference: leave out vectors, or the others."
            )
        weights = label_weight_array(self.label_weight, labels)
        options: Any = {"label_weights": weights, "sample_weight": sample_weight, "order": self.order}
        return prepare(attributes, y, labels, scheme, feature_set=feature_set, **options)

    @classmethod
    def _from_learned(cls, learned: Learned, reason: str) -> Self:
        """Return a fitted CRF with given weights, as of another tool."""
        self = cls(learned.features.features, scheme=None)
        return self._set(learned, FitReport(True, reason, float("nan")))

    def _set(self, learned: Learned, report: FitReport) -> Self:
        self._learned, self._labels, self.report_ = learned, learned.labels, report
        self.calibration_ = self._frozen = None
        return self

    def _fitted(self) -> Learned:
        """Return what was learned; an error before a fit."""
        self._check_fitted()
        return self._learned

    def _beam(self) -> Beam | None:
        """Return the beam for tagging."""
        structure, layout = self._learned.structure, self._learned.layout
        if structure is not None:
            return chosen_beam(self.beam, structure.transitions.n_states, shared=False)
        return chosen_beam(self.beam, layout.n_labels, shared=layout.n_edge_attributes == 0)

    def _scored(self, X: Sentences, known: Labels | None = None) -> Iterator[Scores]:
        """Yield the scores of batches of sentences, in order; -inf for labels that the evidence rules out."""
        learned = self._fitted()
        if callable(self.features):
            learned.features.function = self.features  # set_params has set it on a loaded model
        scorer = Scorer.of(learned.features.transform(X), learned.layout)
        if self._frozen is not None and self._frozen[0] == self._temperature and scorer.layout is learned.layout:
            weights = self._frozen[1]
        else:
            weights = learned.laid_out(scorer.layout, self._temperature)
        return scorer.potentials(weights, None if known is None else ruled_out(known, scorer.lengths, learned.labels))

    def _calibrate_temperature(self, X: Sentences, y: Labels) -> dict[str, float]:
        """Return the temperature with the highest likelihood of labels, the model being at temperature 1."""
        free, given = (list(self._scored(X, known)) for known in (None, observed(y, self._labels)))
        return {"all": temperature_of_sequences(*(partial(log_partitions, some) for some in (free, given)))}

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        return self._learned.state()

    def _restore(self, plain: dict[str, Any], arrays: Arrays) -> None:
        self._set(Learned.from_state(plain, arrays), self.report_)
        self.features = self._learned.features.features
        for name in KNOWLEDGE:
            setattr(self, name, getattr(self._learned.features.knowledge, name))
