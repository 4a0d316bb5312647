"""Learned weights of a CRF, the attributes and labels that they belong to, and transfer to another CRF."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Vocabulary
from trelliswork.data.schemes import Scheme
from trelliswork.data.vocabulary import strings
from trelliswork.errors import DataError, ValueRangeError
from trelliswork.features.feature_map import FeatureMap
from trelliswork.models.base import Arrays, check_finite
from trelliswork.models.crf.beams.structure import Structure
from trelliswork.models.crf.data import allowed_by
from trelliswork.models.crf.layout import Allowed, FeatureLayout
from trelliswork.models.crf.weights import ChainWeights, laid_out

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Learned:
    """Weights in their order: label n-grams (pairs before triples), then state features, then edge features."""

    features: FeatureMap
    labels: Vocabulary
    layout: FeatureLayout
    weights: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    structure: Structure | None = None  # for order 2 and above
    scheme: Scheme | None = None

    @cached_property
    def allowed(self) -> Allowed | None:
        """Labels and pairs of labels that the scheme allows; ``None`` for all."""
        return allowed_by(self.labels, self.scheme)

    def laid_out(self, layout: FeatureLayout, temperature: float = 1.0) -> ChainWeights:
        """Return the weights at a temperature for the kernels, in this layout for the data at hand."""
        weights = self.weights if temperature == 1 else self.weights / temperature
        return laid_out(weights, layout, self.allowed, self.structure)

    @property
    def grams(self) -> tuple[NDArray[np.int64], ...]:
        """Codes of the pairs, triples, ... of labels that have a weight; of y_1 ... y_n, y_1 S^(n-1) + ... + y_n."""
        return (self.layout.transitions,) if self.structure is None else self.structure.grams

    @property
    def n_grams(self) -> int:
        """Number of weights of label n-grams."""
        return sum(map(len, self.grams))

    def top_features(self, n: int, label: str | None) -> list[tuple[str, str, float]]:
        """Return the n largest weights by absolute value: attribute, label, weight; of one label if given."""
        layout = self.layout
        weights = self.weights[self.n_grams : self.n_grams + len(layout.attributes)]
        which = np.arange(len(weights))
        if label is not None:
            which = np.flatnonzero(layout.labels == self.labels.id(label))
        best = which[_largest(weights[which], n)]
        names = self.features.names_of(layout.attributes[best])
        return [(name, self.labels[layout.labels[f]], float(weights[f])) for name, f in zip(names, best, strict=True)]

    def top_edge_features(self, n: int) -> list[tuple[str, str, str, float]]:
        """Return the n largest weights of edge features by absolute value: attribute, from, to, weight."""
        layout, size = self.layout, len(self.labels)
        first = self.n_grams + len(layout.attributes)
        weights = self.weights[first : first + len(layout.edge_attributes)]
        best = _largest(weights, n)
        names = self.features.edge_names() if len(best) else []
        before, after = np.divmod(layout.edge_pairs[best], size)
        rows = zip(layout.edge_attributes[best], before, after, weights[best].tolist(), strict=True)
        return [(names[a], self.labels[i], self.labels[j], weight) for a, i, j, weight in rows]

    def top_ngrams(self, n: int, length: int) -> list[tuple[Any, ...]]:
        """Return the n largest weights of label n-grams of a length by absolute value: labels, weight."""
        codes, weights = self._ngrams(length)
        best = _largest(weights, n)
        digits = [codes[best] // len(self.labels) ** k % len(self.labels) for k in reversed(range(length))]
        names = ([self.labels[j] for j in digit.tolist()] for digit in digits)
        return list(zip(*names, weights[best].tolist(), strict=True))

    def transitions(self) -> NDArray[np.float64]:
        """Return the weights of label pairs (S, S), 0 for a pair without a weight."""
        out, (codes, weights) = np.zeros(len(self.labels) ** 2), self._ngrams(2)
        out[codes] = weights
        return out.reshape(len(self.labels), -1)

    def _ngrams(self, length: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the codes and the weights of the label n-grams of a length."""
        codes, first = self.grams[length - 2], sum(map(len, self.grams[: length - 2]))
        return codes, self.weights[first : first + len(codes)]

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return plain data and arrays to save."""
        layout = self.layout
        features, arrays = self.features.state()
        plain = {
            "labels": list(self.labels),
            "features": features,
            "n_attributes": layout.n_attributes,
            "n_edge_attributes": layout.n_edge_attributes,
            "order": len(self.grams),
            "scheme": self.scheme,
        }
        if layout.n_places:
            plain["dense"] = [layout.n_places, layout.n_dims]
        arrays |= {
            "weights": self.weights,
            "attributes": layout.attributes,
            "labels": layout.labels,
            "edge_attributes": layout.edge_attributes,
            "edge_pairs": layout.edge_pairs,
        }
        return plain, arrays | {f"ngrams.{n}": codes for n, codes in enumerate(self.grams, start=2)}

    @classmethod
    def from_state(cls, plain: dict[str, Any], arrays: Arrays) -> "Learned":
        """Build the weights from ``state``'s result; damaged or foreign arrays are an error."""
        features, labels = FeatureMap.from_state(plain["features"], arrays), Vocabulary(strings(plain["labels"]))
        weights = arrays["weights"].astype(np.float64, copy=False)
        check_finite("weights", weights)
        grams = [arrays[f"ngrams.{n}"] for n in range(2, plain["order"] + 2)]
        structure = None
        if len(grams) > 1:
            structure = Structure.ngrams(len(labels), grams)
        layout = FeatureLayout(
            len(labels),
            plain["n_attributes"],
            grams[0] if structure is None else np.empty(0, np.int64),
            arrays["attributes"],
            arrays["labels"],
            plain["n_edge_attributes"],
            arrays["edge_attributes"],
            arrays["edge_pairs"],
            *plain.get("dense", (0, 0)),
        )
        layout.check()
        learned = cls(features, labels, layout, weights, structure, plain["scheme"])
        n_features = learned.n_grams + layout.n_features - len(layout.transitions)
        check_vectors(layout, features)
        sizes = (n_features, layout.n_attributes, layout.n_edge_attributes)
        if sizes != (len(weights), features.n_attributes, features.n_edge_attributes):
            raise DataError("the weights do not match model.json: they belong to different models.")
        return learned


def check_vectors(layout: FeatureLayout, features: FeatureMap) -> None:
    """Raise if the weights of vectors are not those of the vectors that the features have."""
    vectors = features.knowledge.vectors
    if layout.n_places and (vectors is None or vectors.n_dims != layout.n_dims):
        raise DataError("the vectors of words do not match model.json: they belong to different models.")


def _largest(weights: NDArray[np.float64], n: int) -> NDArray[np.int64]:
    """Return the indices of the n largest by absolute value."""
    return np.argsort(-np.abs(weights), kind="stable")[:n]


def transfer(old: Learned, new: Learned) -> NDArray[np.float64]:
    """Return weights (n_features,) for ``new``: the old ones where attribute and labels are the same, else 0."""
    if old.features.hash_bits != new.features.hash_bits:
        raise ValueRangeError(
            f"the model to start from has hash_bits={old.features.hash_bits}, this one {new.features.hash_bits}: "
            "they must be equal."
        )
    label = _same(list(old.labels), list(new.labels))
    S_old, S = old.layout.n_labels, new.layout.n_labels
    pair = _joined(np.repeat(label, S_old), np.tile(label, S_old), S)
    if old.features.hash_bits is not None:
        attribute, edge = np.arange(old.layout.n_attributes), np.arange(old.layout.n_edge_attributes)
    else:
        attribute = _same(old.features.names(), new.features.names())
        edge = _same(old.features.edge_names(), new.features.edge_names())
    grams = zip_longest(old.grams, new.grams, fillvalue=np.empty(0, np.int64))
    keys = [(_renumbered(codes, n, label, S), target) for n, (codes, target) in enumerate(grams, start=2)]
    source = _joined(attribute[old.layout.attributes], label[old.layout.labels], S)
    keys.append((source, new.layout.attributes.astype(np.int64) * S + new.layout.labels))
    source = _joined(edge[old.layout.edge_attributes], pair[old.layout.edge_pairs], S * S)
    keys.append((source, new.layout.edge_attributes.astype(np.int64) * S * S + new.layout.edge_pairs))
    weights, at = [], 0
    for source, target in keys:
        weights.append(_moved(old.weights[at : at + len(source)], source, target))
        at += len(source)
    if new.layout.n_places:  # the same vectors, or others, which have other weights
        size = new.layout.n_places * new.layout.n_dims * S
        same = (old.layout.n_places, old.layout.n_dims, list(old.labels)) == (
            new.layout.n_places,
            new.layout.n_dims,
            list(new.labels),
        )
        weights.append(old.weights[at:] if same else np.zeros(size))
    return np.concatenate(weights)


def _same(old: Iterable[str], new: Iterable[str]) -> Ids:
    """Return the new number of each old name, -1 if there is none."""
    number = {name: i for i, name in enumerate(new)}
    return np.array([number.get(name, -1) for name in old], np.int64)


def _renumbered(codes: Ids, length: int, label: Ids, n_new: int) -> Ids:
    """Return the codes of label n-grams in the new numbers of their labels, -1 if a label is missing."""
    n_old, new_codes = len(label), np.zeros(len(codes), np.int64)
    for k in reversed(range(length)):
        new_codes = _joined(new_codes, label[codes // n_old**k % n_old], n_new)
    return new_codes


def _joined(left: Ids, right: Ids, radix: int) -> Ids:
    return np.where((left >= 0) & (right >= 0), left * radix + right, -1)


def _moved(weights: NDArray[np.float64], source: Ids, target: Ids) -> NDArray[np.float64]:
    """Return the weights at the positions where the sorted ``target`` has their ``source`` keys."""
    out = np.zeros(len(target))
    if len(target):
        at = np.minimum(np.searchsorted(target, source), len(target) - 1)
        hit = target[at] == source
        out[at[hit]] = weights[hit]
    return out
