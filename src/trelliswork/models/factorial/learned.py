"""Learned weights of a factorial CRF: the largest ones, and their storage."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Vocabulary
from trelliswork.data.vocabulary import strings
from trelliswork.errors import DataError
from trelliswork.features.feature_map import FeatureMap
from trelliswork.learning.checkpoint import with_prefix
from trelliswork.models.base import Arrays, check_finite
from trelliswork.models.crf.layout import FeatureLayout
from trelliswork.models.crf.learned import Learned as ChainLearned
from trelliswork.models.crf.learned import check_vectors
from trelliswork.models.factorial.data import LabelLayer
from trelliswork.models.factorial.objective import FactorialLayout

LAYER_ARRAYS = ("transitions", "attributes", "labels")  # of a layer's layout


@dataclass(frozen=True)
class Learned:
    """Feature maps and labels of the layers, the layout of the weights, and the weights."""

    maps: list[FeatureMap]
    layers: tuple[LabelLayer, ...]
    layout: FactorialLayout
    weights: NDArray[np.float64]

    def layer(self, d: int) -> ChainLearned:
        """Return the weights of layer d as those of a CRF."""
        weights = self.layout.layer(self.weights, d)
        return ChainLearned(self.maps[d], self.layers[d].labels, self.layout.layers[d], weights)

    def top_ties(self, n: int) -> list[tuple[str, str, str, str, float]]:
        """Return the n largest weights of label pairs by absolute value: layer, label, layer, label, weight."""
        pairs = []
        for d, e in self.layout.ties:
            table, one, two = self.layout.tie(self.weights, (d, e)), self.layers[d], self.layers[e]
            for at in np.argsort(-np.abs(table), axis=None, kind="stable")[:n].tolist():
                i, j = divmod(at, table.shape[1])
                pairs.append((one.name, one.labels[i], two.name, two.labels[j], float(table[i, j])))
        return sorted(pairs, key=lambda row: -abs(row[-1]))[:n]

    def state(self, by_layer: bool) -> tuple[dict[str, Any], Arrays]:
        """Return plain data for JSON, and arrays, with one feature map or one per layer."""
        plain: dict[str, Any] = {
            "labels": [list(layer.labels) for layer in self.layers],
            "schemes": [layer.scheme for layer in self.layers],
            "ties": [list(pair) for pair in self.layout.ties],
            "n_attributes": [layer.n_attributes for layer in self.layout.layers],
            "features": [],
        }
        if any(layer.n_places for layer in self.layout.layers):
            plain["dense"] = [[layer.n_places, layer.n_dims] for layer in self.layout.layers]
        arrays: Arrays = {"weights": self.weights}
        for d, layer in enumerate(self.layout.layers):
            arrays |= {f"layer.{d}.{name}": getattr(layer, name) for name in LAYER_ARRAYS}
        for k, m in enumerate(self.maps if by_layer else self.maps[:1]):
            state, extra = m.state()
            plain["features"].append(state)
            arrays |= {f"features.{k}.{name}": array for name, array in extra.items()}
        return plain, arrays

    @classmethod
    def from_state(cls, plain: dict[str, Any], arrays: Arrays, names: Sequence[str]) -> Self:
        """Build the weights from ``state``'s result; parts that do not match are an error."""
        maps = []
        for k, state in enumerate(plain["features"]):
            maps.append(FeatureMap.from_state(state, with_prefix(arrays, f"features.{k}.")))
        if len(maps) == 1:
            maps *= len(names)
        rows = zip(names, plain["labels"], plain["schemes"], strict=True)
        layers = tuple(LabelLayer(name, Vocabulary(strings(labels)), scheme) for name, labels, scheme in rows)
        layouts = []
        for d, (layer, n_attributes) in enumerate(zip(layers, plain["n_attributes"], strict=True)):
            parts: dict[str, Any] = {name: arrays[f"layer.{d}.{name}"] for name in LAYER_ARRAYS}
            if "dense" in plain:
                parts["n_places"], parts["n_dims"] = plain["dense"][d]
            layouts.append(FeatureLayout(len(layer.labels), n_attributes, **parts))
            layouts[-1].check()
            check_vectors(layouts[-1], maps[d])
        ties = tuple((int(d), int(e)) for d, e in plain["ties"])
        weights = arrays["weights"].astype(np.float64, copy=False)
        check_finite("weights", weights)
        layout = FactorialLayout(tuple(layouts), ties)
        if not all(0 <= d < e < len(layers) for d, e in ties) or layout.n_features != len(weights):
            raise DataError("the weights do not match model.json: they belong to different models.")
        if [m.n_attributes for m in maps] != plain["n_attributes"]:
            raise DataError("model.json is damaged: the number of attributes is wrong.")
        return cls(maps, layers, layout, weights)
