"""What is known about words beside the labeled data: clusters, vectors and lexicons, as columns for templates.

The word of a token is its first column. `Knowledge` belongs to a feature map, which stores it with the model: tagging
needs no other file.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.counting import first_sentence
from trelliswork.data.vocabulary import strings
from trelliswork.errors import DataError, ValueRangeError
from trelliswork.features.attributes import Dense
from trelliswork.features.brown import BrownClusters
from trelliswork.features.kernels.columns import shifted
from trelliswork.features.lexicon import Lexicon
from trelliswork.features.vectors import WordVectors

ClustersLike = BrownClusters | str | Path
LexiconLike = Lexicon | Mapping[str, Any] | str | Path
VectorsLike = WordVectors | str | Path
KNOWLEDGE = ("clusters", "vectors", "lexicon")  # names of the parameters of estimators
BITS = (4, 6, 8, 10, 12)  # lengths of the prefixes of bit strings that presets use, beside the whole


@dataclass(frozen=True)
class Knowledge:
    """Clusters, vectors and a lexicon of words, each optional."""

    clusters: BrownClusters | None = None
    vectors: WordVectors | None = None
    lexicon: Lexicon | None = None

    @classmethod
    def of(
        cls,
        clusters: ClustersLike | None = None,
        vectors: VectorsLike | None = None,
        lexicon: LexiconLike | None = None,
    ) -> "Knowledge":
        """Return knowledge from objects or files; several files of a lexicon are separated by commas."""
        if isinstance(clusters, str | Path):
            clusters = BrownClusters.read(clusters)
        if isinstance(vectors, str | Path):
            vectors = WordVectors.read(vectors)
        if isinstance(lexicon, str | Path):
            lexicon = Lexicon.read(*str(lexicon).split(","))
        if isinstance(lexicon, Mapping):
            lexicon = Lexicon(lexicon)
        kinds = BrownClusters, WordVectors, Lexicon
        for name, value, kind in zip(KNOWLEDGE, (clusters, vectors, lexicon), kinds, strict=True):
            if value is not None and not isinstance(value, kind):
                raise ValueRangeError(f"{name} must be a {kind.__name__} or a file, got {type(value).__name__}.")
        if clusters is not None:
            clusters._check_fitted()
        return cls(clusters, vectors, lexicon)

    def __bool__(self) -> bool:
        return any(kind is not None for kind in (self.clusters, self.vectors, self.lexicon))

    def check(self, columns: Iterable[str]) -> None:
        """Raise an error if templates need knowledge that is missing."""
        needs = {"c": ("clusters", "clusters"), "v": ("vectors", "vectors"), "l": ("a lexicon", "lexicon")}
        for name in columns:
            what, option = needs[name[0]]
            if getattr(self, option) is None:
                raise ValueRangeError(f"the template macro %{name[0]} needs {what}: pass {option}= (--{option} FILE).")

    def column(
        self, name: str, words: Sequence[str], offsets: NDArray[np.int64], *, training: bool = False
    ) -> list[str]:
        """Return a column of knowledge of words; in ``training``, a learned lexicon leaves some sentences out."""
        if name[0] == "l":
            assert self.lexicon is not None
            ends = np.asarray(offsets).tolist()
            before = first_sentence(len(ends) - 1) if training else 0
            tags: list[str] = []
            for n, (start, stop) in enumerate(pairwise(ends), start=before):
                tags += self.lexicon.tag(words[start:stop], without=n if training else None)
            return tags
        assert self.clusters is not None
        n_bits = int(name[1:]) if len(name) > 1 else None
        known = {word: self.clusters.path(word)[:n_bits] for word in set(words)}
        return [known[word] for word in words]

    def restricted(self, columns: Iterable[str]) -> "Knowledge":
        """Return what these columns use: only the kinds and the bits."""
        used = set(columns)
        bits = [int(name[1:] or 0) for name in used if name[0] == "c"]
        clusters = self.clusters if bits else None
        if clusters is not None and 0 not in bits:
            clusters = BrownClusters.from_paths({w: p[: max(bits)] for w, p in clusters.paths_.items()})
        return Knowledge(clusters, self.vectors if "v" in used else None, self.lexicon if "l" in used else None)

    def dense(self, words: Sequence[str], offsets: NDArray[np.int64], places: Sequence[int]) -> Dense:
        """Return the vectors of the words at some positions around each token."""
        assert self.vectors is not None
        used, own = self.vectors.rows(words)
        rows = np.empty((len(places), len(own)), np.int32)
        beyond = np.full(max((abs(row) for row in places), default=0), -1, np.int64)
        moved = np.empty(len(own), np.int64)
        for k, row in enumerate(places):
            shifted(own.astype(np.int64), np.asarray(offsets, np.int64), row, beyond, beyond, moved)
            rows[k] = moved
        return Dense(used.table, rows)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the state for ``from_state``: plain data for JSON, and arrays."""
        plain: dict[str, Any] = {}
        arrays: dict[str, NDArray[Any]] = {}
        if self.clusters is not None:
            plain["clusters"] = self.clusters.paths_
        if self.lexicon is not None:
            plain["lexicon"] = self.lexicon.state()
        if self.vectors is not None:
            plain["vectors"] = {"words": self.vectors.words}
            arrays["vectors"] = np.asarray(self.vectors.table)
        return plain, arrays

    @classmethod
    def from_state(cls, plain: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> "Knowledge":
        """Build knowledge from its ``state``."""
        clusters = vectors = lexicon = None
        if "vectors" in plain:
            vectors = WordVectors(strings(plain["vectors"]["words"]), arrays["vectors"])
            if not np.isfinite(vectors.table).all():
                raise DataError("the vectors of words are damaged: train again.")
        if "clusters" in plain:
            strings([*plain["clusters"].values()])
            clusters = BrownClusters.from_paths(plain["clusters"])
        if "lexicon" in plain:
            lexicon = Lexicon.from_state(plain["lexicon"])
        return cls(clusters, vectors, lexicon)
