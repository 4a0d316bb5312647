"""Transfer of weights from one CRF to another, for the attributes and labels that both have."""

from collections.abc import Iterable
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ValueRangeError
from trelliswork.models.crf.learned import Learned

Ids = NDArray[np.int64]


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
