"""Sentences of any form to attributes: by presets, templates, a function, or ready attributes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import AttributeCorpus, Corpus
from trelliswork.data.counting import columns_to_learn
from trelliswork.errors import DataError, ShapeError, ValueRangeError
from trelliswork.features.attributes import Attributes
from trelliswork.features.extraction import TemplateExtractor
from trelliswork.features.hashed import HashedReadyExtractor, HashedTemplateExtractor, check_hash_bits
from trelliswork.features.knowledge import Knowledge
from trelliswork.features.presets import PRESETS, Preset, derive, preset
from trelliswork.features.ready import ReadyExtractor
from trelliswork.features.spelled import SpelledExtractor
from trelliswork.features.templates import Template, parse_templates, read_templates, resolve
from trelliswork.features.word_ids import WordIds

Sentence = Sequence[Any]
Sentences = Sequence[Sentence] | Corpus | AttributeCorpus
TemplateLike = TemplateExtractor | HashedTemplateExtractor
ReadyLike = ReadyExtractor | HashedReadyExtractor
Features = str | Path | Sequence[Template] | Callable[[Sentence, int], Any] | None
_EDGES = "edges."  # before the names of the edge extractor's arrays in a state


class FeatureMap:
    """Attributes of sentences.

    ``features`` is the name of a preset; templates as text, file or parsed; a function ``f(sentence, t)`` that returns
    a dict or a list of strings; or ``None`` for tokens that are such dicts or lists. ``min_count`` is the minimum count
    of an attribute in training. With ``hash_bits``, 1 to 30, a fixed hash maps attributes to ``2**hash_bits`` ids
    (``trelliswork.features.hashed``) instead of storing them: ``fit`` is then the same as ``transform``.

    ``knowledge`` of words adds templates to a preset; other templates use it by their macros.

    B templates with macros make ``Attributes.edges``, with separate ids. A plain B makes nothing: every chain has
    plain transitions.
    """

    extractor: TemplateLike | ReadyLike | SpelledExtractor
    edge_extractor: TemplateLike | SpelledExtractor | None = None
    preset: str | None = None
    function: Callable[[Sentence, int], Any] | None = None
    _templates: Sequence[Template] = ()  # as a user writes them
    _columns: Preset | None = None  # of the data, then derived ones and those of knowledge; None: ready attributes
    _places: Sequence[int] = ()  # rows of the macros for vectors
    _words: WordIds | None = None

    def __init__(
        self,
        features: Features,
        *,
        min_count: int = 1,
        hash_bits: int | None = None,
        knowledge: Knowledge | None = None,
    ) -> None:
        if hash_bits is not None:
            check_hash_bits(hash_bits, min_count)
        self.hash_bits, self.knowledge = hash_bits, Knowledge()
        if features is None or callable(features):
            if knowledge:
                raise ValueRangeError(
                    "clusters=, vectors= and lexicon= need a preset or templates: a function or ready attributes add "
                    "them themselves, such as {'cluster': clusters.path(word)}."
                )
            self.function = features
            ready = ReadyExtractor(min_count=min_count)
            self.extractor = ready if hash_bits is None else HashedReadyExtractor(hash_bits)
            return
        self.preset = features if isinstance(features, str) and features in PRESETS else None
        self._templates = _templates(features, knowledge)
        templates = self._resolved(knowledge or Knowledge())
        self.extractor = _extractor([t for t in templates if not t.on_edges], min_count, hash_bits)
        on_edges = [t for t in templates if t.on_edges]
        if on_edges:
            self.edge_extractor = _extractor(on_edges, min_count, hash_bits)

    @classmethod
    def from_names(cls, names: Sequence[str]) -> "FeatureMap":
        """Return a map of ready attributes with these names."""
        self = cls(None)
        self.extractor = ReadyExtractor(names)
        return self

    @classmethod
    def from_spelled(cls, nodes: SpelledExtractor, edges: SpelledExtractor | None) -> "FeatureMap":
        """Return a map of attributes that templates of another tool make."""
        self = cls(None)
        self.extractor, self.edge_extractor = nodes, edges
        templates = [*nodes.templates, *([] if edges is None else edges.templates)]
        self._columns = Preset(max((t.n_columns for t in templates), default=0), ())
        if nodes.outside == "_B":  # templates of Wapiti make other attributes here
            self._templates = templates
        return self

    def _resolved(self, knowledge: Knowledge) -> list[Template]:
        """Return templates over columns only: those of the data, then those derived from it and from knowledge."""
        names = list(dict.fromkeys(name for template in self._templates for name in template.knowledge))
        knowledge.check(names)
        self.knowledge = knowledge.restricted(names)
        self._places = [row for template in self._templates if template.is_vector for row, _ in template.macros]
        names = [name for name in names if name != "v"]
        templates = [template for template in self._templates if not template.is_vector]
        columns = Preset(max((t.n_columns for t in templates), default=0), ())
        if self.preset is not None:
            columns = PRESETS[self.preset]
        elif names:
            columns = Preset(max(1, columns.n_columns), ())
        first = columns.n_columns + len(columns.derived)
        self._columns = Preset(columns.n_columns, columns.derived + tuple((0, name) for name in names))
        return resolve(templates, names, first)

    @property
    def n_attributes(self) -> int:
        """Number of known attributes."""
        return self.extractor.n_attributes

    @property
    def n_edge_attributes(self) -> int:
        """Number of known attributes of pairs of labels."""
        return 0 if self.edge_extractor is None else self.edge_extractor.n_attributes

    @property
    def features(self) -> Features:
        """The parameter: a function, the name of a preset, templates (without plain B), or ``None``."""
        return self.function or self.preset or list(self._templates) or None

    @property
    def n_columns(self) -> int | None:
        """Number of columns that the data must have; ``None`` for a function and ready attributes."""
        return None if self._columns is None else self._columns.n_columns

    def fit(self, X: Sentences) -> Attributes:
        """Learn and return the attributes of sentences."""
        return self._attributes(X, learn=True)

    def transform(self, X: Sentences) -> Attributes:
        """Return the known attributes of other sentences."""
        return self._attributes(X, learn=False)

    def names(self) -> list[str]:
        """Return the string of every attribute; ``#0``, ``#1``, ... with ``hash_bits``."""
        return self.extractor.names()

    def names_of(self, ids: NDArray[np.integer]) -> list[str]:
        """Return the strings of some attributes."""
        if self.hash_bits is not None:
            return [f"#{i}" for i in ids.tolist()]
        names = self.names()
        return [names[i] for i in ids.tolist()]

    def edge_names(self) -> list[str]:
        """Return the string of every attribute of pairs of labels; ``#0``, ``#1``, ... with ``hash_bits``."""
        return [] if self.edge_extractor is None else self.edge_extractor.names()

    def known_words(self) -> set[str] | None:
        """Return the strings of the first column in training; ``None`` with ready attributes or ``hash_bits``."""
        return set(self.extractor.columns[0].strings) if isinstance(self.extractor, TemplateExtractor) else None

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the state for ``from_state``: plain data for JSON, and arrays, without a function."""
        plain: dict[str, Any] = {"hash_bits": self.hash_bits}
        plain["features"] = self.preset or [asdict(t) for t in self._templates]
        plain["extractor"], arrays = self.extractor.state()
        if self.edge_extractor is not None:
            plain["edges"], extra = self.edge_extractor.state()
            arrays |= {_EDGES + name: array for name, array in extra.items()}
        if self.knowledge:
            plain["knowledge"], extra = self.knowledge.state()
            arrays |= extra
        return plain, arrays

    @classmethod
    def from_state(cls, plain: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> "FeatureMap":
        """Build a map from its ``state``; damaged parts are an error."""
        nodes, edges, given = plain["extractor"], plain.get("edges"), plain["features"]
        if "outside" in nodes:
            pair = None if edges is None else SpelledExtractor.from_state(edges)
            return cls.from_spelled(SpelledExtractor.from_state(nodes), pair)
        if isinstance(given, str):
            preset(given)  # not a file that a damaged model names
        features = given if isinstance(given, str) else [*map(Template.from_plain, given)] or None
        knowledge = Knowledge.from_state(plain["knowledge"], arrays) if "knowledge" in plain else None
        self = cls(features, hash_bits=plain["hash_bits"], knowledge=knowledge)
        if isinstance(self.extractor, TemplateLike | ReadyLike):
            self.extractor.restore(nodes, arrays)
        if isinstance(self.edge_extractor, TemplateLike):
            extra = {name.removeprefix(_EDGES): array for name, array in arrays.items() if name.startswith(_EDGES)}
            self.edge_extractor.restore(edges or {}, extra)
        return self

    def _word_ids(self) -> WordIds | None:
        """Return the ids of words in the columns of a preset that derives columns from words; ``None`` for others."""
        if self._words is None and self.preset is not None and isinstance(self.extractor, TemplateExtractor):
            chosen = preset(self.preset)
            if chosen.n_columns == 1 and chosen.derived and not self.knowledge:  # which looks at whole sentences
                self._words = WordIds(chosen, self.extractor)
        return self._words

    def _attributes(self, X: Sentences, learn: bool) -> Attributes:
        if not isinstance(X, Corpus | AttributeCorpus) and self._columns is not None:
            X = Corpus.from_sentences(X)
        columns: Sequence[Sequence[str]] = X.columns if isinstance(X, Corpus) else ()
        if learn:
            columns, self._words = columns_to_learn(columns, len(X)), None
        lengths = np.diff(X.offsets) if isinstance(X, Corpus | AttributeCorpus) else np.array([len(x) for x in X])
        if len(lengths) == 0 and not learn:
            edges = None if self.edge_extractor is None else _no_sentences(self.n_edge_attributes)
            dense = self.knowledge.dense([], np.zeros(1, np.int64), self._places) if self._places else None
            return replace(_no_sentences(self.n_attributes), edges=edges, dense=dense)
        if lengths.min(initial=1) == 0:
            raise ShapeError(f"sentence {int(lengths.argmin())} is empty: leave it out.")
        if isinstance(self.extractor, ReadyLike):
            return self._ready(X, self.extractor, learn)
        if not isinstance(X, Corpus):
            raise DataError("a file of ready attributes needs features=None: templates make attributes from columns.")
        if not learn and (words := self._word_ids()) is not None:
            return words.transform(columns[0], X.offsets)
        assert self._columns is not None
        if self._columns.derived or self.preset is not None:
            if len(columns) < self._columns.n_columns:
                raise DataError(
                    f"features={self.preset or 'templates'!r} needs {self._columns.n_columns} columns, the data has "
                    f"{len(columns)}. Add the missing columns, or train on fewer (--columns)."
                )
            columns = derive(columns, self._columns, X.offsets, self.knowledge, training=learn)
        nodes = _applied(self.extractor, columns, X.offsets, learn)
        if self._places:
            nodes = replace(nodes, dense=self.knowledge.dense(columns[0], X.offsets, self._places))
        if self.edge_extractor is None:
            return nodes
        return replace(nodes, edges=_applied(self.edge_extractor, columns, X.offsets, learn))

    def _ready(self, X: Sentences, extractor: ReadyLike, learn: bool) -> Attributes:
        if self.function is not None and not isinstance(X, AttributeCorpus):
            X = [[self.function(sentence, t) for t in range(len(sentence))] for sentence in _rows(X)]
        if isinstance(X, Corpus):
            raise DataError("with features=None tokens are dicts or lists of attributes, got a corpus of columns.")
        return (extractor.fit if learn else extractor.transform)(X)


def _applied(
    extractor: TemplateLike | SpelledExtractor,
    columns: Sequence[Sequence[str]],
    offsets: NDArray[np.int64],
    learn: bool,
) -> Attributes:
    """Return the attributes of a corpus, learned or known."""
    if learn and not isinstance(extractor, SpelledExtractor):
        return extractor.fit(columns, offsets)
    return extractor.transform(columns, offsets)


def _templates(features: str | Path | Sequence[Template], knowledge: Knowledge | None = None) -> list[Template]:
    """Return the templates that make attributes: all but a plain B, which every chain has."""
    if isinstance(features, str) and features in PRESETS:
        return list(preset(features, knowledge).templates)
    if isinstance(features, str) and (any(f"%{kind}[" in features for kind in "xclv") or "\n" in features):
        templates = parse_templates(features)
    elif isinstance(features, str | Path):
        if not Path(features).is_file():
            preset(str(features))  # its error lists the presets
        templates = read_templates(features)
    else:
        templates = list(features)
    return [template for template in templates if template.macros or not template.on_edges]


def _extractor(templates: list[Template], min_count: int, hash_bits: int | None) -> TemplateLike:
    if hash_bits is None:
        return TemplateExtractor(templates, min_count=min_count)
    return HashedTemplateExtractor(templates, hash_bits)


def _no_sentences(n_attributes: int) -> Attributes:
    return Attributes(np.zeros(1, np.int64), np.zeros(1, np.int64), np.empty(0, np.int32), None, n_attributes)


def _rows(X: Sequence[Sentence] | Corpus) -> Sequence[Sentence]:
    """Return lists of tokens: strings, or tuples if a corpus has several columns."""
    if not isinstance(X, Corpus):
        return X
    rows = X.columns[0] if len(X.columns) == 1 else list(zip(*X.columns, strict=True))
    return [rows[start:stop] for start, stop in pairwise(np.asarray(X.offsets).tolist())]
