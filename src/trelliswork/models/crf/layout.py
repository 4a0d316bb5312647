"""Which features of a CRF have a weight, and the order of the weights."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ValueRangeError
from trelliswork.features.attributes import Attributes
from trelliswork.inference.chain.potentials import whole_vectors
from trelliswork.learning import whole
from trelliswork.models.crf.kernels.layout import FEW, mark

if TYPE_CHECKING:
    from trelliswork.models.crf.problem import Labeling, Tokens

Ids = NDArray[np.int32]
Floats = NDArray[np.floating]
Vector = NDArray[np.float64]
WIDE = FEW  # minimum number of labels of an attribute with a dense row


class Allowed(NamedTuple):
    """Allowed label pairs (S, S), first labels (S,) and last labels (S,)."""

    pairs: NDArray[np.bool_]
    start: NDArray[np.bool_]
    end: NDArray[np.bool_]


@dataclass(frozen=True)
class FeatureLayout:
    """Which (attribute, label), (label, label) and (edge attribute, label, label) have a weight, and its index.

    The weight vector has first the transitions, then the state features, then the edge features; features are sorted
    by attribute, then by label or pair. Last come the weights W (n_places, n_dims, S) of the vectors of words.

    A word at a place then scores the labels by v W, like an attribute whose weights are this row: kernels see an
    attribute for each place and each of the words of the data at hand, numbered from ``n_attributes`` on. All rows
    together are one product of matrices, and so is the gradient of W.
    """

    n_labels: int
    n_attributes: int
    transitions: NDArray[np.int64]  # flat indices into (S, S)
    attributes: Ids  # of the state features
    labels: NDArray[np.int16]  # of the state features
    n_edge_attributes: int = 0
    edge_attributes: Ids = field(default_factory=lambda: np.empty(0, np.int32))
    edge_pairs: Ids = field(default_factory=lambda: np.empty(0, np.int32))  # flat indices into (S, S)
    n_places: int = 0
    n_dims: int = 0
    vectors: NDArray[np.float32] | None = None  # (n_words, n_dims) of the words of the data at hand
    frequent: NDArray[np.bool_] | None = None  # (n_attributes,) those with dense rows although their labels are few

    def for_data(self, attributes: Attributes) -> "FeatureLayout":
        """Return the layout with the vectors of the words of some data."""
        if attributes.dense is None:
            return self
        n_places, vectors = len(attributes.dense.rows), attributes.dense.vectors
        return replace(self, n_places=n_places, n_dims=vectors.shape[1], vectors=vectors)

    def check(self) -> None:
        """Raise if an array is not what kernels rely on, as in a damaged file."""
        for name, values, kind, size in (
            ("transitions", self.transitions, np.int64, self.n_labels**2),
            ("attributes", self.attributes, np.int32, self.n_attributes),
            ("labels", self.labels, np.int16, self.n_labels),
            ("edge attributes", self.edge_attributes, np.int32, self.n_edge_attributes),
            ("edge pairs", self.edge_pairs, np.int32, self.n_labels**2),
        ):
            if values.ndim != 1 or values.dtype != kind:
                raise ValueRangeError(f"{name} of the features must be integers of one axis: the file is damaged.")
            if len(values) and (values.min() < 0 or values.max() >= size):
                raise ValueRangeError(f"{name} of the features must be between 0 and {size - 1}: the file is damaged.")
        for of, with_ in ((self.attributes, self.labels), (self.edge_attributes, self.edge_pairs)):
            if len(of) != len(with_) or (of[1:] < of[:-1]).any():
                raise ValueRangeError("features must be sorted by attribute, with their labels: the file is damaged.")

    @property
    def n_features(self) -> int:
        """Length of the weight vector."""
        return self.first_dense + self.n_places * self.n_dims * self.n_labels

    @property
    def first_dense(self) -> int:
        """Index of the first weight of the vectors."""
        return self.first_edge + len(self.edge_attributes)

    @property
    def n_words(self) -> int:
        """Number of words with a vector in the data at hand."""
        return 0 if self.vectors is None else len(self.vectors)

    @property
    def first_edge(self) -> int:
        """Index of the first edge feature in the weight vector."""
        return len(self.transitions) + len(self.attributes)

    @cached_property
    def complete(self) -> bool:
        """True if every attribute has a weight with every label, in a dense row."""
        whole = len(self.attributes) == self.n_attributes * self.n_labels >= WIDE * self.n_attributes > 0
        return whole and not self.n_places

    @cached_property
    def edge_ptr(self) -> NDArray[np.int64]:
        """(n_edge_attributes + 1,): edge attribute a has edge features ``edge_ptr[a]`` to ``edge_ptr[a + 1]``."""
        return np.searchsorted(self.edge_attributes, np.arange(self.n_edge_attributes + 1))

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """(n,): number of state features of each attribute; 0 for the words at each place."""
        return np.bincount(self.attributes, minlength=self.n_attributes + self.n_places * self.n_words)

    @cached_property
    def wide_rows(self) -> Ids:
        """(n,): the dense row of an attribute, -1 if it has none; each word has one at each place."""
        is_wide = self.sizes >= WIDE
        if self.frequent is not None:
            is_wide[: self.n_attributes] |= self.frequent
        is_wide[self.n_attributes :] = True
        return np.where(is_wide, np.cumsum(is_wide) - 1, -1).astype(np.int32)

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """(n,): where the weights of an attribute are, see `AttributeRows`."""
        n_single = np.where(self.wide_rows < 0, self.sizes, 0)
        return np.where(self.wide_rows >= 0, self.wide_rows, -1 - (FEW * (np.cumsum(n_single) - n_single) + n_single))

    @cached_property
    def wide_features(self) -> NDArray[np.int64]:
        """State features in dense rows."""
        return np.flatnonzero(self.wide_rows[self.attributes] >= 0)

    @cached_property
    def narrow_features(self) -> NDArray[np.int64]:
        """State features with single weights."""
        return np.flatnonzero(self.wide_rows[self.attributes] < 0)

    @cached_property
    def wide_shape(self) -> tuple[int, int]:
        """Number and width of the dense rows."""
        return int(self.wide_rows.max(initial=-1)) + 1, self.padded_labels

    @property
    def padded_labels(self) -> int:
        """Sw, the number of labels rounded up to whole vectors."""
        return whole_vectors(self.n_labels, np.float32)

    @cached_property
    def wide_places(self) -> NDArray[np.int64]:
        """Flat index of each of ``wide_features`` in the dense rows."""
        rows = self.wide_rows[self.attributes[self.wide_features]].astype(np.int64)
        return rows * self.wide_shape[1] + self.labels[self.wide_features]

    def vector(self, transition: Floats, wide: Floats, narrow: Floats, edges: Floats | float = 0) -> Vector:
        """Return weights (or their gradient) in the arrays of the kernels as one vector (n_features,)."""
        vector, pairs = np.empty(self.n_features), transition.reshape(-1)
        vector[: len(self.transitions)] = pairs if len(self.transitions) == len(pairs) else pairs[self.transitions]
        state = vector[len(self.transitions) : self.first_edge]
        if self.complete:
            state.reshape(-1, self.n_labels)[:] = wide[:, : self.n_labels]
        else:
            state[self.wide_features] = wide.reshape(-1)[self.wide_places]
            state[self.narrow_features] = narrow
        vector[self.first_edge : self.first_dense] = edges
        if self.vectors is not None:
            rows = wide[len(wide) - self.n_places * self.n_words :, : self.n_labels]
            shape = self.n_places, self.n_words, self.n_labels
            vector[self.first_dense :] = np.matmul(self.vectors.T, rows.reshape(shape)).reshape(-1)
        return vector

    @classmethod
    def all_pairs(cls, n_attributes: int, n_labels: int, n_edge_attributes: int = 0) -> Self:
        """Return a layout with all weights: (attribute, label), (label, label) and (edge attribute, label, label)."""
        S = n_labels
        return cls(
            S,
            n_attributes,
            np.arange(S**2),
            np.repeat(np.arange(n_attributes, dtype=np.int32), S),
            np.tile(np.arange(S, dtype=np.int16), n_attributes),
            n_edge_attributes,
            np.repeat(np.arange(n_edge_attributes, dtype=np.int32), S**2),
            np.tile(np.arange(S**2, dtype=np.int32), n_edge_attributes),
        )

    @classmethod
    def observed(
        cls, tokens: "Tokens", labeling: "Labeling", n_attributes: int, n_labels: int, n_edge_attributes: int = 0
    ) -> Self:
        """Return a layout of what occurs in the training data, the default of CRFsuite.

        The attributes of a token with a set of labels occur with each of them, those of an unlabeled token with none.
        If any sentence is only partly labeled, all pairs of labels get a weight.
        """
        S, gold = n_labels, labeling.gold
        token, label = labeling.pairs()
        chosen = tokens if labeling.complete else tokens.take(token, np.array([len(token)]))
        seen = whole.union(_seen(chosen, label, n_attributes * S, S))
        following = np.ones(len(gold), bool)
        following[tokens.offsets[:-1]] = False
        following[1:] &= (gold[1:] >= 0) & (gold[:-1] >= 0)
        at = np.flatnonzero(following)
        pairs = gold[at - 1].astype(np.int64) * S + gold[at]
        edge_keys = np.empty(0, np.int64)
        if tokens.edges is not None:
            chosen = tokens.edges.take(at, np.array([len(at)]))
            edge_keys = np.unique(chosen.ids.astype(np.int64) * S**2 + np.repeat(pairs, np.diff(chosen.token_ptr)))
            edge_keys = whole.union(edge_keys)
        return cls(
            S,
            n_attributes,
            np.arange(S**2) if whole.anywhere(not labeling.complete) else whole.union(np.unique(pairs)),
            (seen // S).astype(np.int32),
            (seen % S).astype(np.int16),
            n_edge_attributes,
            (edge_keys // S**2).astype(np.int32),
            (edge_keys % S**2).astype(np.int32),
        )


def _seen(tokens: "Tokens", labels: NDArray[np.int64], n: int, n_labels: int) -> NDArray[np.int64]:
    """Return the distinct codes a S + y below n of attributes a at tokens labeled y, sorted."""
    if n > 1 << 30:  # too many for an array of marks
        per_token = np.diff(tokens.token_ptr)
        return np.unique(tokens.ids.astype(np.int64) * n_labels + np.repeat(labels, per_token))
    marks = np.zeros(n, bool)
    mark(tokens.token_ptr, tokens.ids, labels, n_labels, marks)
    return np.flatnonzero(marks)
