"""Taggers inside a parser: trained with it, saved with it, and jackknifed for its training sentences."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from trelliswork.features.brown import BrownClusters
from trelliswork.learning.checkpoint import Arrays, with_prefix
from trelliswork.learning.report import Step
from trelliswork.models.crf import CRF
from trelliswork.models.hmm import HMM
from trelliswork.models.parser.data import Columns, Integers

TaggerKind = Literal["crf", "hmm"]
Model = CRF | HMM
Announce = Callable[[str], bool]  # reports progress; returns whether training is to stop
FOLDS = 5
MOST_NEIGHBORS = 50  # sentences in a row that are in the same fold: those of one document know each other's words
FOLD_EPOCHS = 8  # of the averaged perceptron
_CLASSES: dict[str, type[CRF] | type[HMM]] = {model.family: model for model in (CRF, HMM)}


@dataclass(frozen=True)
class Taggers:
    """One tagger for each column of tags."""

    models: list[Model]

    def tag(self, columns: Columns) -> Columns:
        """Return the same sentences with predicted tags."""
        words = [sentence for sentence in columns.sentences(columns.words) if sentence]
        if not words:
            return replace(columns, tags=[[] for _ in self.models])
        tags = [[tag for row in model.predict(words) for tag in row] for model in self.models]
        return replace(columns, tags=tags)

    def state(self) -> tuple[list[dict[str, Any]], Arrays]:
        """Return plain data and arrays to save."""
        plain: list[dict[str, Any]] = []
        arrays: Arrays = {}
        for k, model in enumerate(self.models):
            description, own = model._content()
            plain.append({"kind": model.family, "state": description})
            arrays |= {f"tagger.{k}.{name}": array for name, array in own.items()}
        return plain, arrays

    @classmethod
    def from_state(cls, plain: list[dict[str, Any]], arrays: Arrays) -> "Taggers":
        """Build the taggers from ``state``'s result."""
        models: list[Model] = []
        for k, one in enumerate(plain):
            own = with_prefix(arrays, f"tagger.{k}.")
            models.append(_CLASSES[one["kind"]]._restored(f"tagger {k + 1}", one["state"], own))
        return cls(models)


@dataclass(frozen=True)
class Tagging:
    """Training of the taggers of a parser.

    First one tagger per column of tags. Then, for each fold, taggers that are trained on the other folds and tag this
    one: the parser is trained on tags with the errors that it will see in new sentences. ``columns`` are training
    sentences, none of them empty; ``folds`` is the maximum number of folds, of blocks of neighboring sentences that
    ``seed`` draws.

    The CRFs of folds are trained by the averaged perceptron, since only their tags matter: they are as accurate as by
    L-BFGS, which takes more than ten times as long.
    """

    kind: TaggerKind | None  # None: no taggers
    columns: Columns
    seed: int
    clusters: BrownClusters | None = None
    folds: int = FOLDS

    def fold_of_sentences(self) -> Integers:
        """Return the fold of each sentence, from 0; all 0 if there is one sentence."""
        total = len(self.columns.offsets) - 1
        n_folds = min(self.folds, total)
        block = np.arange(total) // max(1, min(MOST_NEIGHBORS, total // (10 * n_folds)))
        order = np.random.default_rng((self.seed, 5)).permutation(int(block[-1]) + 1)
        return np.asarray(order[block] % n_folds, np.int64)

    def run(self, announce: Announce) -> tuple[Taggers, Columns]:
        """Return the taggers, and the sentences with tags by taggers that have not seen them.

        Each tagger and its iterations are announced. If training is to stop, taggers are returned unfinished, and folds
        that have not started are tagged by the taggers of all sentences.
        """
        words = self.columns.sentences(self.columns.words)
        tags = [self.columns.sentences(column) for column in self.columns.tags]
        models = []
        for k, column in enumerate(tags):
            name = f"tagger {k + 1} of {len(tags)}"
            announce(name)
            models.append(self._fitted(name, words, column, announce, jackknifed=False))
        fold = self.fold_of_sentences()
        if len(fold) == 1:
            return Taggers(models), Taggers(models).tag(self.columns)
        predicted: list[list[list[str]]] = [[[]] * len(fold) for _ in tags]  # by column and sentence
        for number in range(int(fold.max()) + 1):
            name = f"jackknifed tags, fold {number + 1} of {int(fold.max()) + 1}"
            seen, unseen = (np.flatnonzero(some).tolist() for some in (fold != number, fold == number))
            for model, column, found in zip(models, tags, predicted, strict=True):
                if not announce(name):
                    own = [words[n] for n in seen], [column[n] for n in seen]
                    model = self._fitted(name, *own, announce, jackknifed=True)
                for n, row in zip(unseen, model.predict([words[n] for n in unseen]), strict=True):
                    found[n] = row
        columns = [[tag for row in found for tag in row] for found in predicted]
        return Taggers(models), replace(self.columns, tags=columns)

    def _fitted(
        self, name: str, words: list[list[str]], tags: list[list[str]], announce: Announce, *, jackknifed: bool
    ) -> Model:
        """Return a tagger of all sentences, or of the others of a fold."""

        def callback(step: Step) -> bool:
            return announce(f"{name}, iteration {step.iteration}")

        if self.kind == "hmm":
            return HMM(order=2).fit(words, tags, callback=callback)
        crf = CRF("pos", clusters=self.clusters, tol=1e-4)
        if jackknifed:
            crf = CRF("pos", clusters=self.clusters, algorithm="perceptron", max_iter=FOLD_EPOCHS)
        return crf.fit(words, tags, callback=callback)
