"""Taggers inside a parser: trained with it, saved with it, and jackknifed for its training sentences."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from trelliswork.features.brown import BrownClusters
from trelliswork.learning.checkpoint import Arrays, with_prefix
from trelliswork.learning.report import Step
from trelliswork.models.crf import CRF
from trelliswork.models.factorial import FactorialCRF
from trelliswork.models.hmm import HMM
from trelliswork.models.parser.data import Columns

TaggerKind = Literal["crf", "hmm", "factorial-crf"]
Model = CRF | HMM | FactorialCRF
Announce = Callable[[str], bool]  # reports progress; returns whether training is to stop
FOLDS = 5
MOST_NEIGHBORS = 50  # sentences in a row that are in the same fold: those of one document know each other's words
FOLD_EPOCHS = 8  # of the averaged perceptron
_CLASSES: dict[str, type[CRF] | type[HMM] | type[FactorialCRF]] = {
    model.family: model for model in (CRF, HMM, FactorialCRF)
}


def _layers(model: Model, words: list[list[str]]) -> list[list[list[str]]]:
    """Return the predicted tags of sentences, one list for each column that the model tags."""
    if isinstance(model, FactorialCRF):
        return list(model.predict_layers(words).values())
    return [model.predict(words)]


@dataclass(frozen=True)
class Taggers:
    """One tagger for each column of tags, or one for all columns."""

    models: list[Model]

    @property
    def n_columns(self) -> int:
        """Number of columns of tags."""
        return sum(len(model.layers) if isinstance(model, FactorialCRF) else 1 for model in self.models)

    def tag(self, columns: Columns) -> Columns:
        """Return the same sentences with predicted tags."""
        words = [sentence for sentence in columns.sentences(columns.words) if sentence]
        if not words:
            return replace(columns, tags=[[] for _ in range(self.n_columns)])
        tags = [[tag for row in rows for tag in row] for model in self.models for rows in _layers(model, words)]
        return replace(columns, tags=tags)

    def state(self) -> tuple[list[dict[str, Any]], Arrays]:
        """Return plain data and arrays to save."""
        plain: list[dict[str, Any]] = []
        arrays: Arrays = {}
        for k, model in enumerate(self.models):
            description, own = model._state()
            plain.append({"kind": model.family, "state": description})
            arrays |= {f"tagger.{k}.{name}": array for name, array in own.items()}
        return plain, arrays

    @classmethod
    def from_state(cls, plain: list[dict[str, Any]], arrays: Arrays) -> "Taggers":
        """Build the taggers from ``state``'s result."""
        models: list[Model] = []
        for k, one in enumerate(plain):
            models.append(_CLASSES[one["kind"]]._from_state(one["state"], with_prefix(arrays, f"tagger.{k}.")))
        return cls(models)


class TaggerTrainer:
    """Training of all taggers, one at a time.

    First one tagger per column of tags, or one factorial CRF for all of them. Then, for each fold and tagger, one that
    is trained on the other folds and tags this one: the parser is trained on tags with the errors that it will see in
    new sentences. ``columns`` are training sentences, none of them empty; ``folds`` is the maximum number of folds, of
    blocks of neighboring sentences that ``seed`` draws.

    The CRFs of folds are trained by the averaged perceptron, since only their tags matter: they are as accurate as by
    L-BFGS, which takes more than ten times as long. In place of a factorial CRF, folds have a CRF whose labels are the
    tags of all columns together: its columns agree with each other, too.
    """

    def __init__(
        self, kind: TaggerKind, columns: Columns, seed: int, folds: int = FOLDS, clusters: BrownClusters | None = None
    ) -> None:
        self.kind, self.columns, self.clusters = kind, columns, clusters
        self.models: list[Model] = []  # finished, in the order of the columns
        self.predicted: list[list[Any]] = []  # tags of the sentences of a fold, finished, by fold and tagger
        total = len(columns.offsets) - 1
        self.n_folds = min(folds, total) if total > 1 else 0
        block = np.arange(total) // max(1, min(MOST_NEIGHBORS, total // (10 * max(self.n_folds, 1))))
        order = np.random.default_rng((seed, 5)).permutation(int(block[-1]) + 1 if total else 0)
        self._fold = order[block] % max(self.n_folds, 1)
        self._words = columns.sentences(columns.words)
        tags = [columns.sentences(column) for column in columns.tags]
        self._joint = kind == "factorial-crf" and len(tags) > 1  # with one column it is a CRF
        self._layers = [[list(zip(*rows, strict=True)) for rows in zip(*tags, strict=True)]] if self._joint else tags

    @property
    def n_done(self) -> int:
        """Number of finished taggers."""
        return len(self.models) + len(self.predicted)

    @property
    def n_taggers(self) -> int:
        """Number of taggers."""
        return (1 + self.n_folds) * len(self._layers)

    def train_next(self, announce: Announce) -> Any:
        """Return the next tagger, or the tags of a fold; ``add`` takes it.

        Each iteration is announced. If training is to stop, a tagger is returned unfinished, and a fold that has not
        started is tagged by the tagger of all sentences.
        """
        fold, k = divmod(self.n_done, len(self._layers))
        if fold == 0:
            name = f"tagger {k + 1} of {len(self._layers)}"
            announce(name)
            return self._fit(name, self._words, self._layers[k], announce)
        name = f"jackknifed tags, fold {fold} of {self.n_folds}"
        inside, outside = (np.flatnonzero(rows).tolist() for rows in (self._fold != fold - 1, self._fold == fold - 1))
        words = [self._words[n] for n in outside]
        if announce(name):
            return self.models[k].predict(words) if words else []
        tags = [self._layers[k][n] for n in inside]
        return self._tag_fold(name, [self._words[n] for n in inside], tags, words, announce)

    def _fit(self, name: str, words: list[list[str]], tags: list[list[Any]], announce: Announce) -> Model:
        """Return a tagger of all sentences."""

        def callback(step: Step) -> bool:
            return announce(f"{name}, iteration {step.iteration}")

        if self._joint:
            layers = tuple(f"tags{k + 1}" for k in range(len(self.columns.tags)))
            return FactorialCRF(layers, clusters=self.clusters, tol=1e-3).fit(words, tags, callback=callback)
        if self.kind == "hmm":
            return HMM(order=2).fit(words, tags, callback=callback)
        return CRF("pos", clusters=self.clusters, tol=1e-4).fit(words, tags, callback=callback)

    def _tag_fold(
        self, name: str, words: list[list[str]], tags: list[list[Any]], unseen: list[list[str]], announce: Announce
    ) -> list[list[Any]]:
        """Return the tags of a fold by a tagger that learns from the others; joint tags are sequences."""
        if self.kind == "hmm":
            model = HMM(order=2).fit(words, tags, callback=lambda step: announce(f"{name}, iteration {step.iteration}"))
            return [list(row) for row in model.predict(unseen)] if unseen else []
        if self._joint:
            tags = [[json.dumps(one) for one in row] for row in tags]

        def callback(step: Step) -> bool:
            return announce(f"{name}, iteration {step.iteration}")

        crf = CRF("pos", clusters=self.clusters, algorithm="perceptron", max_iter=FOLD_EPOCHS)
        crf.fit(words, tags, callback=callback)
        rows = crf.predict(unseen) if unseen else []
        return [[json.loads(tag) for tag in row] for row in rows] if self._joint else rows

    def add(self, result: Any) -> None:
        """Store a finished tagger, or the tags of a fold."""
        (self.models if len(self.models) < len(self._layers) else self.predicted).append(result)

    def taggers(self) -> Taggers:
        """Return the taggers of all sentences."""
        return Taggers(self.models)

    def tagged(self) -> Columns:
        """Return the training sentences with jackknifed tags."""
        if not self.n_folds:
            return self.taggers().tag(self.columns)
        columns: list[list[str]] = []
        for layer in range(len(self._layers)):
            folds = [iter(self.predicted[k * len(self._layers) + layer]) for k in range(self.n_folds)]
            tags = [tag for k in self._fold.tolist() for tag in next(folds[k])]
            joint = range(len(self.columns.tags)) if self._joint else ()
            columns += [[tag[k] for tag in tags] for k in joint] or [tags]
        return replace(self.columns, tags=columns)

    def state(self) -> Arrays:
        """Return the finished work, for a checkpoint."""
        plain, arrays = self.taggers().state()
        text = json.dumps({"taggers": plain, "predicted": self.predicted}, default=lambda number: number.item())
        return arrays | {"plain": np.frombuffer(text.encode(), np.uint8)}

    def restore(self, arrays: Arrays) -> None:
        """Continue from ``state``'s result."""
        plain = json.loads(arrays["plain"].tobytes())
        self.models = Taggers.from_state(plain["taggers"], arrays).models
        self.predicted = plain["predicted"]
