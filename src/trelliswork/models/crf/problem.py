"""Labeled sentences of a CRF as arrays, and training problems: which weights there are, and constraints."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Vocabulary
from trelliswork.errors import ValueRangeError
from trelliswork.features.attributes import Attributes
from trelliswork.learning.checkpoint import fingerprint
from trelliswork.models.crf.beams.structure import Structure
from trelliswork.models.crf.kernels.layout import take
from trelliswork.models.crf.layout import Allowed, FeatureLayout, Floats, Ids
from trelliswork.rules import Rule
from trelliswork.rules.chains import Ruled

_NO_VALUES = np.empty(0, np.float32)  # all are 1


@dataclass(frozen=True)
class Labeling:
    """Known labels of tokens.

    ``gold`` (n_tokens,) are label ids, -1 at *all* tokens of a sentence that is only partly labeled. ``sets``
    (n_sets, S) are the distinct sets of possible labels of tokens in such sentences, and ``set_ids`` (n_tokens,) the
    set of each token, -1 in sentences with gold labels; empty if every sentence is labeled.
    """

    gold: Ids
    sets: NDArray[np.bool_] = field(default_factory=lambda: np.empty((0, 0), bool))
    set_ids: Ids = field(default_factory=lambda: np.empty(0, np.int32))

    @property
    def complete(self) -> bool:
        """True if every token has a label."""
        return len(self.set_ids) == 0

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return tokens and their labels in order: the label, or each of a proper subset of all labels."""
        if self.complete:
            return np.arange(len(self.gold)), self.gold.astype(np.int64)
        sets = self.sets & ~self.sets.all(axis=1, keepdims=True)
        shown = np.zeros((len(self.gold), sets.shape[1]), bool)
        partly = self.gold < 0
        shown[partly] = sets[self.set_ids[partly]]
        shown[~partly, self.gold[~partly]] = True
        token, label = np.nonzero(shown)
        return token, label


@dataclass(frozen=True)
class Tokens:
    """Attributes of tokens in compressed rows (those of ``features.Attributes``), as plain arrays.

    ``edges`` are the attributes of the pair of a token and the one before it.
    """

    offsets: NDArray[np.int64]
    token_ptr: NDArray[np.int64]
    ids: Ids
    values: NDArray[np.float32] | None = None
    edges: "Tokens | None" = None

    @classmethod
    def of(cls, attributes: Attributes) -> Self:
        """Return attributes as plain arrays."""
        edges = None if attributes.edges is None else cls.of(attributes.edges)
        return cls(attributes.offsets, attributes.token_ptr, attributes.ids, attributes.values, edges)

    @classmethod
    def with_vectors(cls, attributes: Attributes) -> Self:
        """Return attributes as plain arrays, with those of words at the places of vectors (see `FeatureLayout`)."""
        tokens, dense = cls.of(attributes), attributes.dense
        if dense is None:
            return tokens
        places = np.arange(len(dense.rows))[:, None]
        ids = attributes.n_attributes + dense.rows + places * len(dense.vectors)
        known = dense.rows >= 0
        n_own, n_more = np.diff(tokens.token_ptr), known.sum(axis=0)
        token_ptr = np.concatenate([[0], np.cumsum(n_own + n_more)])
        merged = np.empty(token_ptr[-1], np.int32)
        merged[np.repeat(token_ptr[:-1], n_own) + counting(n_own)] = tokens.ids
        merged[np.repeat(token_ptr[:-1] + n_own, n_more) + counting(n_more)] = ids.T[known.T]
        return replace(tokens, token_ptr=token_ptr, ids=merged, values=None)

    def without_zeros(self) -> Self:
        """Return the tokens without attributes of value 0: these may have weights, but add nothing to any sum."""
        if self.values is None:
            return self
        kept = self.values != 0
        token_ptr = np.concatenate([[0], np.cumsum(kept)])[self.token_ptr]
        values = None if (self.values[kept] == 1).all() else self.values[kept]
        return replace(self, token_ptr=token_ptr, ids=self.ids[kept], values=values)

    @property
    def given_values(self) -> NDArray[np.float32]:
        """The values as the kernels take them, none if all are 1."""
        return _NO_VALUES if self.values is None else self.values

    def sentences(self, which: NDArray[np.int64]) -> "tuple[Tokens, NDArray[np.int64]]":
        """Return the sentences ``which``, in this order, and the numbers of their tokens."""
        lengths = np.diff(self.offsets)[which]
        token = np.repeat(self.offsets[which], lengths) + counting(lengths)
        return self.take(token, lengths), token

    def longest_first(self) -> NDArray[np.int64]:
        """Return the numbers of the sentences by decreasing length; raise if one is empty."""
        lengths = np.diff(self.offsets)
        if lengths.min(initial=1) < 1:
            raise ValueRangeError(f"sentence {int(lengths.argmin())} is empty: leave it out.")
        return np.argsort(-lengths, kind="stable")

    def take(self, which: NDArray[np.int64], lengths: NDArray[np.int64]) -> "Tokens":
        """Return the tokens ``which``, in this order, split into sentences of these lengths."""
        token_ptr = np.concatenate([[0], np.cumsum(np.diff(self.token_ptr)[which])])
        ids = np.empty(token_ptr[-1], np.int32)
        values = None if self.values is None else np.empty(token_ptr[-1], np.float32)
        take(self.token_ptr, self.ids, self.given_values, which, ids, _NO_VALUES if values is None else values)
        return Tokens(
            np.concatenate([[0], np.cumsum(lengths)]),
            token_ptr,
            ids,
            values,
            None if self.edges is None else self.edges.take(which, lengths),
        )


def counting(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return 0, 1, ..., lengths[0]-1, 0, 1, ..., lengths[1]-1, and so on."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


@dataclass(frozen=True)
class Problem:
    """What every objective of a CRF is made of; by default all labels and pairs of labels are allowed."""

    tokens: Tokens
    labeling: Labeling
    layout: FeatureLayout
    weights: Floats | None = None  # (n_sentences,)
    label_weights: Floats | None = None  # (S,)
    allowed: Allowed | None = None
    structure: Structure | None = None  # for order 2 and above, and under rules

    @property
    def n_features(self) -> int:
        """Length of the weight vector."""
        return self.layout.n_features + (0 if self.structure is None else self.structure.n_weights)

    @property
    def alpha(self) -> NDArray[np.float32]:
        """The weight of each sentence (n_sentences,)."""
        n = len(self.tokens.offsets) - 1
        return np.ones(n, np.float32) if self.weights is None else np.asarray(self.weights, np.float32)

    def under(self, rules: Rule | str, labels: Vocabulary) -> tuple["Problem", Ruled]:
        """Return the same problem over the labelings that satisfy rules, and what answers queries about those."""
        if self.layout.n_edge_attributes or self.layout.vectors is not None:
            raise ValueRangeError("training under rules supports neither B templates with columns nor vectors.")
        ruled = Ruled.of(rules, labels.names)
        free = self.structure or Structure.ngrams(self.layout.n_labels, [self.layout.transitions])
        layout = replace(self.layout, transitions=np.empty(0, np.int64))
        return replace(self, layout=layout, structure=free.under(ruled.whole())), ruled

    def fingerprint(self, parameters: dict[str, Any], dev: Sequence[Sequence[Any]] | None) -> str:
        """Return the mark of a run on this data with these parameters and development labels, for a checkpoint."""
        tokens, known = self.tokens, self.labeling
        plain = parameters | {"dev": None if dev is None else [list(sentence) for sentence in dev]}
        edges = None if tokens.edges is None else tokens.edges.ids
        arrays = tokens.offsets, tokens.ids, tokens.values, edges, known.gold, known.sets, known.set_ids
        return fingerprint(plain, *arrays, self.weights, self.layout.vectors)
