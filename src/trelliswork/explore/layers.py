"""Factorial CRFs on the page: several layers of labels, evidence about any of them."""

import math
from typing import Any

import numpy as np

from trelliswork.explore.abilities import Abilities, Answer
from trelliswork.explore.answers import evidence_answer, layer_answer
from trelliswork.explore.requests import Body, allowed_values
from trelliswork.explore.tokens import feature_reader

MAX_WORDS = 100
View = dict[str, tuple[list[str], list[dict[str, float]]]]


class LayersExplorer:
    """A factorial CRF behind the page."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.labels: dict[str, list[str]] = {layer.name: list(layer.labels) for layer in model.layers_}
        readers = [feature_reader(features, MAX_WORDS) for features in model.features_]
        self.reader = max(readers, key=lambda reader: reader.n_columns)
        self.abilities: Abilities = {"tag": self.tag}

    def facts(self) -> Answer:
        """Layers with their labels."""
        layers = [{"name": name, "labels": labels} for name, labels in self.labels.items()]
        about = [["layers", ", ".join(f"{name} ({len(labels)})" for name, labels in self.labels.items())]]
        return {"about": [*about, ["engine", self.model.engine]], "layers": layers, "evidence": True}

    def tag(self, body: Body) -> Answer:
        """Path and marginals of each layer, with evidence and without; the joint labelling has no k best."""
        tokens, words = self.reader.read(body.text("sentence"))
        items = body.items(len(tokens), self.labels)
        body.whole("k", 1, 1, 1)
        body.close()
        known: dict[str, list[Any]] = {name: [None] * len(tokens) for name in self.labels}
        for item in items:
            name = str(item.layer)
            known[name][item.token] = allowed_values(item, self.labels[name], "label")
        before = self._view(tokens, None)
        answer: Answer = {"words": words, "kind": "exact" if self.model.engine == "exact" else "estimate", "best": []}
        now = before
        if items:
            now = self._view(tokens, {name: [rows] for name, rows in known.items()})
            answer["evidence"] = self._evidence(tokens, known)
        named = {
            name: {v for item in items if item.layer == name for v in (*item.forbid, item.force)} for name in known
        }
        answer["layers"] = [
            layer_answer(name, labels, now[name], before[name] if items else None, named[name] - {None})
            for name, labels in self.labels.items()
        ]
        return answer

    def _view(self, tokens: list[Any], known: Any) -> View:
        paths = self.model.predict_layers([tokens], known=known)
        rows = self.model.predict_marginals([tokens], known=known)
        return {name: (paths[name][0], rows[name][0]) for name in self.labels}

    def _evidence(self, tokens: list[Any], known: dict[str, list[Any]]) -> dict[str, Any]:
        """p(evidence) by belief propagation: the difference of two estimates of log Z."""
        graph = self.model.posterior(tokens)
        widest = max(map(len, self.labels.values()))
        allowed = np.ones((len(self.labels) * len(tokens), widest), bool)
        for d, (name, labels) in enumerate(self.labels.items()):
            for t, left in enumerate(known[name]):
                if left is not None:
                    allowed[d * len(tokens) + t, : len(labels)] = [label in left for label in labels]
        log_p = float(graph.condition(allowed=allowed).log_partition()[0]) - float(graph.log_partition()[0])
        return evidence_answer(log_p if not math.isnan(log_p) else -math.inf, graph.kind)
