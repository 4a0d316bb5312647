"""Learned weights of a factorial CRF: the largest ones, and their storage."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Vocabulary
from trelliswork.data.vocabulary import strings
from trelliswork.errors import DataError
from trelliswork.features.feature_map import FeatureMap
from trelliswork.models.base import Arrays, check_finite
from trelliswork.models.crf.layout import FeatureLayout
from trelliswork.models.crf.learned import Learned as ChainLearned
from trelliswork.models.crf.learned import check_vectors
from trelliswork.models.factorial.data import LabelLayer
from trelliswork.models.factorial.objective import FactorialLayout

LAYER_ARRAYS = ("transitions", "attributes", "labels")  # of a layer's layout


@dataclass(frozen=True)
class Learned:
    """The feature map, the labels of the layers, the layout of the weights, and the weights."""

    features: FeatureMap
    layers: tuple[LabelLayer, ...]
    layout: FactorialLayout
    weights: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

    def layer(self, d: int) -> ChainLearned:
        """Return the weights of layer d as those of a CRF."""
        weights = self.layout.layer(self.weights, d)
        return ChainLearned(self.features, self.layers[d].labels, self.layout.layers[d], weights)

    def top_ties(self, n: int) -> list[tuple[str, str, str, str, float]]:
        """Return the n largest weights of label pairs by absolute value: layer, label, layer, label, weight."""
        pairs = []
        for d, e in self.layout.ties:
            table, one, two = self.layout.tie(self.weights, (d, e)), self.layers[d], self.layers[e]
            for at in np.argsort(-np.abs(table), axis=None, kind="stable")[:n].tolist():
                i, j = divmod(at, table.shape[1])
                pairs.append((one.name, one.labels[i], two.name, two.labels[j], float(table[i, j])))
        return sorted(pairs, key=lambda row: -abs(row[-1]))[:n]

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return plain data for JSON, and arrays."""
        features, arrays = self.features.state()
        first = self.layout.layers[0]
        plain: dict[str, Any] = {
            "labels": [list(layer.labels) for layer in self.layers],
            "schemes": [layer.scheme for layer in self.layers],
            "ties": [list(pair) for pair in self.layout.ties],
            "dense": [first.n_places, first.n_dims],
            "features": features,
        }
        for d, layer in enumerate(self.layout.layers):
            arrays |= {f"layer.{d}.{name}": getattr(layer, name) for name in LAYER_ARRAYS}
        return plain, arrays | {"weights": self.weights}

    @classmethod
    def from_state(cls, plain: dict[str, Any], arrays: Arrays, names: Sequence[str]) -> Self:
        """Build the weights from ``state``'s result; parts that do not match are an error."""
        features = FeatureMap.from_state(plain["features"], arrays)
        rows = zip(names, plain["labels"], plain["schemes"], strict=True)
        layers = tuple(LabelLayer(name, Vocabulary(strings(labels)), scheme) for name, labels, scheme in rows)
        layouts = []
        for d, layer in enumerate(layers):
            parts: dict[str, Any] = {name: arrays[f"layer.{d}.{name}"] for name in LAYER_ARRAYS}
            parts["n_places"], parts["n_dims"] = plain["dense"]
            layouts.append(FeatureLayout(len(layer.labels), features.n_attributes, **parts))
            layouts[-1].check()
            check_vectors(layouts[-1], features)
        ties = tuple((int(d), int(e)) for d, e in plain["ties"])
        weights = arrays["weights"].astype(np.float64, copy=False)
        check_finite("weights", weights)
        layout = FactorialLayout(tuple(layouts), ties)
        if not all(0 <= d < e < len(layers) for d, e in ties) or layout.n_features != len(weights):
            raise DataError("the weights do not match model.json: they belong to different models.")
        return cls(features, layers, layout, weights)
