"""Taggers inside a parser: trained with it, saved with it, and jackknifed for its training sentences."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from trelliswork.compute.sharing import current
from trelliswork.features.brown import BrownClusters
from trelliswork.learning.checkpoint import Arrays, with_prefix
from trelliswork.models.crf import CRF
from trelliswork.models.hmm import HMM
from trelliswork.models.parser.data import Columns

TaggerKind = Literal["crf", "hmm"]
Announce = Callable[[str], bool]  # reports progress; returns whether training is to stop
FOLDS = 5
_CLASSES: dict[str, type[CRF] | type[HMM]] = {"crf": CRF, "hmm": HMM}


@dataclass(frozen=True)
class Taggers:
    """One tagger for each column of tags."""

    models: list[CRF | HMM]

    def tag(self, columns: Columns) -> Columns:
        """Return the same sentences with predicted tags."""
        words = [sentence for sentence in columns.sentences(columns.words) if sentence]
        tags = [[tag for row in (model.predict(words) if words else []) for tag in row] for model in self.models]
        return replace(columns, tags=tags)

    def state(self) -> tuple[list[dict[str, Any]], Arrays]:
        """Return plain data and arrays to save."""
        plain: list[dict[str, Any]] = []
        arrays: Arrays = {}
        for k, model in enumerate(self.models):
            description, own = model._state()
            plain.append({"kind": model.kind, "state": description})
            arrays |= {f"tagger.{k}.{name}": array for name, array in own.items()}
        return plain, arrays

    @classmethod
    def from_state(cls, plain: list[dict[str, Any]], arrays: Arrays) -> "Taggers":
        """Build the taggers from ``state``'s result."""
        models: list[CRF | HMM] = []
        for k, one in enumerate(plain):
            models.append(_CLASSES[one["kind"]]._from_state(one["state"], with_prefix(arrays, f"tagger.{k}.")))
        return cls(models)


class TaggerTrainer:
    """Training of all taggers, one at a time.

    First one tagger per column of tags. Then, for each fold and column, one that is trained on the other folds and tags
    this one: the parser is trained on tags with the errors that it will see in new sentences. ``columns`` are training
    sentences, none of them empty; ``folds`` is the maximum number of folds, which ``seed`` draws.

    In a group of processes, folds are those of the sentences of all ranks, and each tagger is trained by all ranks.
    """

    def __init__(
        self, kind: TaggerKind, columns: Columns, seed: int, folds: int = FOLDS, clusters: BrownClusters | None = None
    ) -> None:
        self.kind, self.columns, self.clusters = kind, columns, clusters
        self.models: list[CRF | HMM] = []  # finished, one per column
        self.predicted: list[list[list[str]]] = []  # tags of the sentences of a fold, finished, by fold and column
        first, total = current().place(len(columns.offsets) - 1)
        self.n_folds = min(folds, total) if total > 1 else 0
        fold = np.random.default_rng((seed, 5)).permutation(total) % max(self.n_folds, 1)
        self._before, self._fold = fold[:first], fold[first : first + len(columns.offsets) - 1]
        self._words = columns.sentences(columns.words)
        self._tags = [columns.sentences(column) for column in columns.tags]

    @property
    def n_done(self) -> int:
        """Number of finished taggers."""
        return len(self.models) + len(self.predicted)

    @property
    def n_taggers(self) -> int:
        """Number of taggers."""
        return (1 + self.n_folds) * len(self._tags)

    def train_next(self, announce: Announce) -> CRF | HMM | list[list[str]]:
        """Return the next tagger, or the tags of a fold; ``add`` takes it.

        Each iteration is announced. If training is to stop, a tagger is returned unfinished, and a fold that has not
        started is tagged by the tagger of all sentences.
        """
        fold, column = divmod(self.n_done, len(self._tags))
        everything = np.arange(len(self._words))
        if fold == 0:
            name = f"tagger {column + 1} of {len(self._tags)}"
            announce(name)
            return self._fit(name, everything, column, announce)
        name = f"jackknifed tags, fold {fold} of {self.n_folds}"
        inside, outside = everything[self._fold != fold - 1], everything[self._fold == fold - 1]
        tagger = self.models[column] if announce(name) else self._fit(name, inside, column, announce)
        return [list(row) for row in tagger.predict([self._words[n] for n in outside])] if len(outside) else []

    def _fit(self, name: str, sentences: Any, column: int, announce: Announce) -> CRF | HMM:
        model: CRF | HMM = CRF("pos", clusters=self.clusters, tol=1e-4) if self.kind == "crf" else HMM(order=2)
        words, tags = ([rows[n] for n in sentences] for rows in (self._words, self._tags[column]))
        return model.fit(words, tags, callback=lambda step: announce(f"{name}, iteration {step.iteration}"))

    def add(self, result: Any) -> None:
        """Store a finished tagger, or the tags of a fold."""
        (self.models if len(self.models) < len(self._tags) else self.predicted).append(result)

    def taggers(self) -> Taggers:
        """Return the taggers of all sentences."""
        return Taggers(self.models)

    def tagged(self) -> Columns:
        """Return the training sentences with jackknifed tags."""
        if not self.n_folds:
            return self.taggers().tag(self.columns)
        columns: list[list[str]] = []
        for column in range(len(self._tags)):
            folds = [iter(self.predicted[k * len(self._tags) + column]) for k in range(self.n_folds)]
            columns.append([tag for k in self._fold.tolist() for tag in next(folds[k])])
        return replace(self.columns, tags=columns)

    def state(self) -> Arrays:
        """Return the finished work of all ranks, for a checkpoint."""
        plain, arrays = self.taggers().state()
        predicted = [
            [row for part in parts for row in part] for parts in zip(*current().gather(self.predicted), strict=True)
        ]
        text = json.dumps({"taggers": plain, "predicted": predicted}, default=lambda number: number.item())
        return arrays | {"plain": np.frombuffer(text.encode(), np.uint8)}

    def restore(self, arrays: Arrays) -> None:
        """Continue from ``state``'s result."""
        plain = json.loads(arrays["plain"].tobytes())
        self.models = Taggers.from_state(plain["taggers"], arrays).models
        self.predicted = []
        for k, rows in enumerate(plain["predicted"]):
            fold = k // len(self._tags)
            first = int((self._before == fold).sum())
            self.predicted.append(rows[first : first + int((self._fold == fold).sum())])
