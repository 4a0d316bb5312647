"""Taggers inside a parser: trained with it, saved with it, and jack-knifed for its training sentences."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from trelliswork.errors import ValueRangeError
from trelliswork.models.base import Arrays
from trelliswork.models.crf import CRF
from trelliswork.models.hmm import HMM
from trelliswork.models.parser.data import Columns

TaggerKind = Literal["crf", "hmm"]
Note = Callable[[str], bool]  # told what is going on; True if the caller wants to stop
FOLDS = 5
_CLASSES: dict[str, type[CRF] | type[HMM]] = {"crf": CRF, "hmm": HMM}


def check_tagger(tagger: object) -> None:
    """Refuse what is no kind of tagger."""
    if tagger is not None and tagger not in _CLASSES:
        raise ValueRangeError(f"tagger must be 'crf', 'hmm' or None (tags are given), got {tagger!r}.")


def _new(kind: str) -> CRF | HMM:
    return CRF("pos", tol=1e-4) if kind == "crf" else HMM(order=2)


def _fit(kind: str, words: list[list[str]], tags: list[list[str]], about: str, note: Note) -> CRF | HMM:
    """One tagger; the caller hears of it before it begins and in each iteration."""
    note(about)
    return _new(kind).fit(words, tags, callback=lambda step, *_: note(f"{about}, iteration {step.iteration}"))


class Taggers:
    """One tagger for each column of tags."""

    def __init__(self, models: list[CRF | HMM]) -> None:
        self.models = models

    @classmethod
    def fit(cls, kind: str, columns: Columns, note: Note) -> "Taggers":
        """Learn from all sentences; ``note`` is told what is going on, and may stop a tagger where it is."""
        words = columns.sentences(columns.words)
        kept = [n for n, sentence in enumerate(words) if sentence]
        models: list[CRF | HMM] = []
        for number, column in enumerate(columns.tags, start=1):
            tags = columns.sentences(column)
            about = f"tagger {number} of {len(columns.tags)}"
            models.append(_fit(kind, [words[n] for n in kept], [tags[n] for n in kept], about, note))
        return cls(models)

    def tag(self, columns: Columns) -> Columns:
        """The same sentences with predicted tags."""
        words = columns.sentences(columns.words)
        kept = [sentence for sentence in words if sentence]
        tags = [[tag for row in (model.predict(kept) if kept else []) for tag in row] for model in self.models]
        return Columns(columns.words, tags, columns.offsets)

    def state(self) -> tuple[list[dict[str, Any]], Arrays]:
        """Plain data and arrays."""
        plain: list[dict[str, Any]] = []
        arrays: Arrays = {}
        for k, model in enumerate(self.models):
            own, found = model._state()
            plain.append({"kind": model.kind, "state": own})
            arrays |= {f"tagger.{k}.{name}": array for name, array in found.items()}
        return plain, arrays

    @classmethod
    def from_state(cls, plain: list[dict[str, Any]], arrays: Arrays) -> "Taggers":
        """Built again."""
        models: list[CRF | HMM] = []
        for k, one in enumerate(plain):
            start = f"tagger.{k}."
            own = {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
            models.append(_CLASSES[one["kind"]]._from_state(one["state"], own))
        return cls(models)


def jackknife(kind: str, columns: Columns, seed: int, taggers: Taggers, note: Note, folds: int = FOLDS) -> Columns:
    """Tags of training sentences by taggers that have not seen them, as they will be in new sentences.

    If the caller stops, the sentences of the folds that are left get their tags from ``taggers``, who have seen all.
    """
    B = len(columns.offsets) - 1
    if B < 2:
        return taggers.tag(columns)
    fold = np.random.default_rng((seed, 5)).permutation(B) % min(folds, B)
    words = columns.sentences(columns.words)
    gold = [columns.sentences(column) for column in columns.tags]
    found: list[list[list[str]]] = [[[] for _ in range(B)] for _ in gold]
    n_folds = int(fold.max()) + 1
    for k in range(n_folds):
        inside = [n for n in range(B) if fold[n] != k and words[n]]
        outside = [n for n in range(B) if fold[n] == k and words[n]]
        if not inside or not outside:
            inside = outside = inside or outside
        stopped = note(f"tags by others, fold {k + 1} of {n_folds}")
        for column, tags, known in zip(found, gold, taggers.models, strict=True):
            tagger = known
            if not stopped:
                about = f"tags by others, fold {k + 1} of {n_folds}"
                tagger = _fit(kind, [words[n] for n in inside], [tags[n] for n in inside], about, note)
            for n, row in zip(outside, tagger.predict([words[n] for n in outside]), strict=True):
                column[n] = list(row)
    return Columns(columns.words, [[tag for row in column for tag in row] for column in found], columns.offsets)
