"""From sentences of any form to attributes: presets, templates, a function, or attributes that are there already."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import AttributeCorpus, Corpus
from trelliswork.errors import DataError, ShapeError
from trelliswork.features.attributes import Attributes
from trelliswork.features.extraction import TemplateExtractor
from trelliswork.features.presets import PRESETS, derive, preset
from trelliswork.features.ready import ReadyExtractor
from trelliswork.features.templates import Template, parse_templates, read_templates

Sentence = Sequence[Any]
Sentences = Sequence[Sentence] | Corpus | AttributeCorpus
Features = str | Path | Sequence[Template] | Callable[[Sentence, int], Any] | None


class FeatureMap:
    """Attributes of sentences.

    Parameters
    ----------
    features : str, path, list of Template, callable, or None
        A preset's name; templates as text, file or parsed; ``f(sentence, t)`` that gives a dict or a list of strings;
        ``None`` for tokens that are such dicts or lists.
    min_count : int
        Attributes seen less often in training are dropped.
    """

    def __init__(self, features: Features, *, min_count: int = 1) -> None:
        self.function = features if callable(features) else None
        self.preset = features if isinstance(features, str) and features in PRESETS else None
        self.extractor: TemplateExtractor | ReadyExtractor
        if features is None or callable(features):
            self.extractor = ReadyExtractor(min_count=min_count)
        else:
            self.extractor = TemplateExtractor(_templates(features), min_count=min_count)

    @property
    def n_attributes(self) -> int:
        """Number of known attributes."""
        return self.extractor.n_attributes

    def fit(self, X: Sentences) -> Attributes:
        """Learn the attributes of some sentences, and return them."""
        return self._attributes(X, learn=True)

    def transform(self, X: Sentences) -> Attributes:
        """Known attributes of other sentences."""
        return self._attributes(X, learn=False)

    def names(self) -> list[str]:
        """The string of every attribute."""
        return self.extractor.names()

    def known_words(self) -> set[str] | None:
        """The strings of the first column in training; ``None`` if there are only ready attributes."""
        return None if isinstance(self.extractor, ReadyExtractor) else set(self.extractor.columns[0].strings)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What ``from_state`` needs: plain data for JSON, and arrays. A function is not part of it."""
        if isinstance(self.extractor, ReadyExtractor):
            return {"names": self.extractor.names()}, {}
        plain, arrays = self.extractor.state()
        return {"preset": self.preset, "extractor": plain}, arrays

    @classmethod
    def from_state(cls, plain: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> "FeatureMap":
        """Build a map from its ``state``."""
        self = cls(None)
        if "names" in plain:
            self.extractor = ReadyExtractor.from_names(plain["names"])
        else:
            self.preset = plain["preset"]
            self.extractor = TemplateExtractor.from_state(plain["extractor"], arrays)
        return self

    def _attributes(self, X: Sentences, learn: bool) -> Attributes:
        lengths = np.diff(X.offsets) if isinstance(X, Corpus | AttributeCorpus) else np.array([len(x) for x in X])
        if len(lengths) == 0:
            if learn:
                raise DataError("no sentence to learn from: X is empty.")
            return Attributes(
                np.zeros(1, np.int64), np.zeros(1, np.int64), np.empty(0, np.int32), None, self.n_attributes
            )
        if lengths.min() == 0:
            raise ShapeError(f"sentence {int(lengths.argmin())} is empty: leave it out.")
        if isinstance(self.extractor, ReadyExtractor):
            return self._ready(X, self.extractor, learn)
        if isinstance(X, AttributeCorpus):
            raise DataError("a file of ready attributes needs features=None: templates make attributes from columns.")
        corpus = X if isinstance(X, Corpus) else Corpus.from_sentences(X)
        columns: Sequence[Sequence[str]] = corpus.columns
        if self.preset is not None:
            chosen = preset(self.preset)
            if len(columns) < chosen.n_columns:
                raise DataError(
                    f"features={self.preset!r} needs {chosen.n_columns} columns, the data has {len(columns)}."
                )
            columns = derive(columns, chosen)
        return (self.extractor.fit if learn else self.extractor.transform)(columns, corpus.offsets)

    def _ready(self, X: Sentences, extractor: ReadyExtractor, learn: bool) -> Attributes:
        if isinstance(X, AttributeCorpus):
            return (extractor.fit_corpus if learn else extractor.transform_corpus)(X)
        if self.function is not None:
            X = [[self.function(sentence, t) for t in range(len(sentence))] for sentence in _rows(X)]
        if isinstance(X, Corpus):
            raise DataError("with features=None tokens are dicts or lists of attributes, got a corpus of columns.")
        return (extractor.fit if learn else extractor.transform)(X)


def _templates(features: str | Path | Sequence[Template]) -> list[Template]:
    """Templates that score labels; a plain B (which every chain has) is accepted and needs nothing."""
    if isinstance(features, str) and features in PRESETS:
        return list(preset(features).templates)
    if isinstance(features, str) and ("%x[" in features or "\n" in features):
        templates = parse_templates(features)
    elif isinstance(features, str | Path):
        if not Path(features).is_file():
            preset(str(features))  # says which presets there are
        templates = read_templates(features)
    else:
        templates = list(features)
    for template in templates:
        if template.on_edges and template.macros:
            raise DataError(
                f"the template {template.name!r} scores pairs of labels by observations, which is not supported yet: "
                "a plain B, or a U template with the same macros, is."
            )
    return [template for template in templates if not template.on_edges]


def _rows(X: Sequence[Sentence] | Corpus) -> Sequence[Sentence]:
    """Lists of tokens: strings, or tuples where a corpus has several columns."""
    if not isinstance(X, Corpus):
        return X
    rows = X.columns[0] if len(X.columns) == 1 else list(zip(*X.columns, strict=True))
    return [rows[start:stop] for start, stop in pairwise(np.asarray(X.offsets).tolist())]
