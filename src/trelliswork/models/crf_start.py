"""Weights of one CRF as the start of another: those of the same attributes and labels."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Vocabulary
from trelliswork.errors import ValueRangeError
from trelliswork.features.feature_map import FeatureMap
from trelliswork.learning.crf_layout import FeatureLayout

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Learned:
    """What the weights of a CRF belong to."""

    features: FeatureMap
    labels: Vocabulary
    layout: FeatureLayout
    weights: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))


def transfer(old: Learned, new: Learned) -> NDArray[np.float64]:
    """Weights (n_features,) for ``new``: the old ones where attribute and labels are the same, 0 elsewhere."""
    if old.features.hash_bits != new.features.hash_bits:
        raise ValueRangeError(
            f"the model to start from has hash_bits={old.features.hash_bits}, this one {new.features.hash_bits}: "
            "they must be equal, or their attributes cannot be compared."
        )
    label = _same(list(old.labels), list(new.labels))
    pair = _pairs(label, old.layout.n_labels, new.layout.n_labels)
    if old.features.hash_bits is not None:
        attribute, edge = np.arange(old.layout.n_attributes), np.arange(old.layout.n_edge_attributes)
    else:
        attribute = _same(old.features.names(), new.features.names())
        edge = _same(old.features.edge_names(), new.features.edge_names())
    S_old, S = old.layout.n_labels, new.layout.n_labels
    keys = [
        (pair[old.layout.transitions], new.layout.transitions),
        (
            _joined(attribute[old.layout.attributes], label[old.layout.labels], S),
            new.layout.attributes.astype(np.int64) * S + new.layout.labels,
        ),
        (
            _joined(edge[old.layout.edge_attributes], pair[old.layout.edge_pairs], S * S),
            new.layout.edge_attributes.astype(np.int64) * S * S + new.layout.edge_pairs,
        ),
    ]
    assert len(pair) == S_old * S_old
    weights, at = [], 0
    for source, target in keys:
        weights.append(_moved(old.weights[at : at + len(source)], source, target))
        at += len(source)
    return np.concatenate(weights)


def _same(old: Iterable[str], new: Iterable[str]) -> Ids:
    """The new number of each old name, -1 if it is gone."""
    number = {name: i for i, name in enumerate(new)}
    return np.array([number.get(name, -1) for name in old], np.int64)


def _pairs(label: Ids, n_old: int, n_new: int) -> Ids:
    """The same for pairs of labels, flat indices into (S, S)."""
    return np.array(_joined(np.repeat(label, n_old), np.tile(label, n_old), n_new), np.int64)


def _joined(left: Ids, right: Ids, radix: int) -> Ids:
    return np.where((left >= 0) & (right >= 0), left * radix + right, -1)


def _moved(weights: NDArray[np.float64], source: Ids, target: Ids) -> NDArray[np.float64]:
    """The weights with their ``source`` keys put where ``target``, sorted, has these keys."""
    out = np.zeros(len(target))
    if len(target):
        at = np.minimum(np.searchsorted(target, source), len(target) - 1)
        hit = target[at] == source
        out[at[hit]] = weights[hit]
    return out
