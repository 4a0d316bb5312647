"""Taggers inside a parser: trained with it, saved with it, and jack-knifed for its training sentences."""

from typing import Any, Literal

import numpy as np

from trelliswork.errors import ValueRangeError
from trelliswork.models.base import Arrays
from trelliswork.models.crf import CRF
from trelliswork.models.hmm import HMM
from trelliswork.models.parser_input import Columns

TaggerKind = Literal["crf", "hmm"]
FOLDS = 5
_CLASSES: dict[str, type[CRF] | type[HMM]] = {"crf": CRF, "hmm": HMM}


def check_tagger(tagger: object) -> None:
    """Refuse what is no kind of tagger."""
    if tagger is not None and tagger not in _CLASSES:
        raise ValueRangeError(f"tagger must be 'crf', 'hmm' or None (tags are given), got {tagger!r}.")


def _new(kind: str) -> CRF | HMM:
    return CRF("pos", tol=1e-4) if kind == "crf" else HMM(order=2)


class Taggers:
    """One tagger for each column of tags."""

    def __init__(self, models: list[CRF | HMM]) -> None:
        self.models = models

    @classmethod
    def fit(cls, kind: str, columns: Columns) -> "Taggers":
        """Learn from all sentences."""
        words = columns.sentences(columns.words)
        kept = [n for n, sentence in enumerate(words) if sentence]
        models: list[CRF | HMM] = []
        for column in columns.tags:
            tags = columns.sentences(column)
            models.append(_new(kind).fit([words[n] for n in kept], [tags[n] for n in kept]))
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


def jackknife(kind: str, columns: Columns, seed: int, folds: int = FOLDS) -> Columns:
    """Tags of training sentences by taggers that have not seen them, as they will be in new sentences."""
    B = len(columns.offsets) - 1
    if B < 2:
        return Taggers.fit(kind, columns).tag(columns)
    fold = np.random.default_rng((seed, 5)).permutation(B) % min(folds, B)
    words = columns.sentences(columns.words)
    gold = [columns.sentences(column) for column in columns.tags]
    found: list[list[list[str]]] = [[[] for _ in range(B)] for _ in gold]
    for k in range(int(fold.max()) + 1):
        inside = [n for n in range(B) if fold[n] != k and words[n]]
        outside = [n for n in range(B) if fold[n] == k and words[n]]
        if not inside or not outside:
            inside = outside = inside or outside
        for column, tags in zip(found, gold, strict=True):
            tagger = _new(kind).fit([words[n] for n in inside], [tags[n] for n in inside])
            for n, row in zip(outside, tagger.predict([words[n] for n in outside]), strict=True):
                column[n] = list(row)
    return Columns(columns.words, [[tag for row in column for tag in row] for column in found], columns.offsets)
