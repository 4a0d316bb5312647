"""Learned weights of a factorial CRF: the largest ones, and their storage."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Vocabulary
from trelliswork.errors import DataError
from trelliswork.features.feature_map import FeatureMap
from trelliswork.models.base import Arrays, check_finite
from trelliswork.models.crf.layout import FeatureLayout
from trelliswork.models.factorial.data import LabelLayer
from trelliswork.models.factorial.objective import FactorialLayout


@dataclass(frozen=True)
class Learned:
    """Feature maps and labels of the layers, the layout of the weights, and the weights."""

    maps: list[FeatureMap]
    layers: tuple[LabelLayer, ...]
    layout: FactorialLayout
    weights: NDArray[np.float64]

    def top_features(self, d: int, n: int, label: str | None) -> list[tuple[str, str, float]]:
        """Return the n largest weights of layer d by absolute value: attribute, label, weight."""
        layout, labels = self.layout.layers[d], self.layers[d].labels
        weights = self.layout.layer(self.weights, d)[len(layout.transitions) :]
        which = np.arange(len(weights)) if label is None else np.flatnonzero(layout.labels == labels.id(label))
        best = which[np.argsort(-np.abs(weights[which]), kind="stable")[:n]]
        names = self.maps[d].names_of(layout.attributes[best])
        return [(name, labels[layout.labels[f]], float(weights[f])) for name, f in zip(names, best, strict=True)]

    def top_transitions(self, d: int, n: int) -> list[tuple[str, str, float]]:
        """Return the n largest transition weights of layer d by absolute value: from, to, weight."""
        layout, labels = self.layout.layers[d], self.layers[d].labels
        weights = self.layout.layer(self.weights, d)[: len(layout.transitions)]
        best = np.argsort(-np.abs(weights), kind="stable")[:n]
        before, after = np.divmod(layout.transitions[best], len(labels))
        rows = zip(before, after, weights[best].tolist(), strict=True)
        return [(labels[i], labels[j], weight) for i, j, weight in rows]

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
        arrays: Arrays = {"weights": self.weights}
        for d, layer in enumerate(self.layout.layers):
            arrays[f"layer.{d}.transitions"] = layer.transitions
            arrays[f"layer.{d}.attributes"] = layer.attributes
            arrays[f"layer.{d}.labels"] = layer.labels
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
            prefix = f"features.{k}."
            own = {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
            maps.append(FeatureMap.from_state(state, own))
        if len(maps) == 1:
            maps *= len(names)
        rows = zip(names, plain["labels"], plain["schemes"], strict=True)
        layers = tuple(LabelLayer(name, Vocabulary(labels), scheme) for name, labels, scheme in rows)
        layouts = []
        for d, (layer, n_attributes) in enumerate(zip(layers, plain["n_attributes"], strict=True)):
            parts = [arrays[f"layer.{d}.{name}"] for name in ("transitions", "attributes", "labels")]
            layouts.append(FeatureLayout(len(layer.labels), n_attributes, parts[0], parts[1], parts[2]))
            layouts[-1].check()
        ties = tuple((int(d), int(e)) for d, e in plain["ties"])
        weights = arrays["weights"].astype(np.float64)
        check_finite("weights.safetensors", weights)
        layout = FactorialLayout(tuple(layouts), ties)
        if not all(0 <= d < e < len(layers) for d, e in ties) or layout.n_features != len(weights):
            raise DataError("weights.safetensors does not match model.json: they belong to different models.")
        if [m.n_attributes for m in maps] != plain["n_attributes"]:
            raise DataError("model.json is damaged: the number of attributes is wrong.")
        return cls(maps, layers, layout, weights)
