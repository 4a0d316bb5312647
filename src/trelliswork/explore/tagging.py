"""Taggers on the page: posteriors of labels, in one layer or several, with labels forced and forbidden."""

import math
from typing import Any

import numpy as np

from trelliswork.data.schemes import detect_scheme
from trelliswork.explore.abilities import Abilities, Answer, evidence_answer, layer_answer, plain, span_answers
from trelliswork.explore.requests import MAX_BEST, Body, allowed_values, token_reader
from trelliswork.models.tasks import LanguageModel

MAX_WORDS = 200
MAX_LAYERED_WORDS = 100
View = tuple[list[str], list[dict[str, float]]]  # path and marginals


class TaggerExplorer:
    """A tagger with one layer of labels; one that is a language model too is also asked as such."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.labels: list[str] = list(model.labels_)
        self.reader = token_reader(model, MAX_WORDS)
        self.abilities: Abilities = {"tag": self.tag}
        if isinstance(model, LanguageModel):
            from trelliswork.explore.text import TextExplorer

            self.abilities |= TextExplorer(model, self.reader).abilities

    def facts(self) -> Answer:
        """Return the labels; evidence can be given."""
        about = [["labels", f"{len(self.labels):,}"]]
        order = getattr(self.model, "order", 1)
        if order != 1:
            about.append(["order", str(order)])
        return {"about": about, "layers": [{"name": "label", "labels": self.labels}], "evidence": True}

    def tag(self, body: Body) -> Answer:
        """Return path, marginals and k best labelings of a sentence, with and without evidence."""
        tokens, words = self.reader.read(body.text("sentence"))
        items = body.items(len(tokens))
        k = body.whole("k", 5, 1, MAX_BEST)
        body.close()
        known: list[Any] = [None] * len(tokens)
        for item in items:
            known[item.token] = allowed_values(item, self.labels, "label")
        given = [known] if items else None
        whole = self.model.posterior(tokens)
        before = now = self._view(tokens, None)
        answer: Answer = {"words": words, "kind": whole.kind, "entropy": [plain(float(whole.entropy()[0]))]}
        if items:
            part = whole.condition(allowed=self._mask(whole, known))
            log_p = float(part.log_partition()[0]) - float(whole.log_partition()[0])
            now = self._view(tokens, given)
            answer["evidence"] = evidence_answer(log_p, whole.kind)
            if log_p > -math.inf:
                answer["entropy"].append(plain(float(part.entropy()[0])))
        named = {label for item in items for label in item.named}
        answer["layers"] = [layer_answer("label", self.labels, now, before if items else None, named)]
        if detect_scheme(self.labels) is not None:
            answer["layers"][0]["spans"] = span_answers(self.model.predict_spans([tokens], known=given)[0])
        best = self.model.predict_topk([tokens], k, known=given)[0]
        answer["best"] = [{"labels": list(labels), "p": plain(p)} for labels, p in best]
        return answer

    def _view(self, tokens: list[Any], known: Any) -> View:
        (path,) = self.model.predict([tokens], known=known)
        (rows,) = self.model.predict_marginals([tokens], known=known)
        return path, rows

    def _mask(self, whole: Any, known: list[Any]) -> Any:
        """Return evidence about the states of a chain (1, T, S); with higher orders, state s has label s mod L."""
        import torch

        S, L = whole.log_unary.shape[2], len(self.labels)
        allowed = np.array([[label in row if row is not None else True for label in self.labels] for row in known])
        return torch.from_numpy(allowed[:, np.arange(S) % L][None])


class LayersExplorer:
    """A tagger with several layers of labels."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.labels: dict[str, list[str]] = {layer.name: list(layer.labels) for layer in model.layers_}
        self.reader = token_reader(model, MAX_LAYERED_WORDS)
        self.abilities: Abilities = {"tag": self.tag}

    def facts(self) -> Answer:
        """Return the layers with their labels."""
        layers = [{"name": name, "labels": labels} for name, labels in self.labels.items()]
        about = [["layers", ", ".join(f"{name} ({len(labels)})" for name, labels in self.labels.items())]]
        return {"about": [*about, ["engine", self.model.engine]], "layers": layers, "evidence": True}

    def tag(self, body: Body) -> Answer:
        """Return path and marginals of each layer, with and without evidence; there are no k best joint labelings."""
        tokens, words = self.reader.read(body.text("sentence"))
        items = body.items(len(tokens), self.labels)
        body.whole("k", 1, 1, 1)
        body.close()
        known: dict[str, list[Any]] = {name: [None] * len(tokens) for name in self.labels}
        named: dict[str, set[str]] = {name: set() for name in self.labels}
        for item in items:
            name = str(item.layer)
            known[name][item.token] = allowed_values(item, self.labels[name], "label")
            named[name].update(item.named)
        before = now = self._view(tokens, None)
        answer: Answer = {"words": words, "kind": "exact" if self.model.engine == "exact" else "estimate", "best": []}
        given = {name: [rows] for name, rows in known.items()} if items else None
        if items:
            now = self._view(tokens, given)
            answer["evidence"] = self._evidence(tokens, known)
        answer["layers"] = [
            layer_answer(name, labels, now[name], before[name] if items else None, named[name])
            for name, labels in self.labels.items()
        ]
        if any(detect_scheme(labels) is not None for labels in self.labels.values()):
            found = self.model.predict_spans([tokens], known=given)
            for layer in answer["layers"]:
                if layer["name"] in found:
                    layer["spans"] = span_answers(found[layer["name"]][0])
        return answer

    def _view(self, tokens: list[Any], known: Any) -> dict[str, View]:
        paths = self.model.predict_layers([tokens], known=known)
        rows = self.model.predict_marginals([tokens], known=known)
        return {name: (paths[name][0], rows[name][0]) for name in self.labels}

    def _evidence(self, tokens: list[Any], known: dict[str, list[Any]]) -> Answer:
        """Return p(evidence) by belief propagation: the difference of two estimates of log Z."""
        graph = self.model.posterior(tokens)
        widest = max(map(len, self.labels.values()))
        allowed = np.ones((len(self.labels) * len(tokens), widest), bool)
        for d, (name, labels) in enumerate(self.labels.items()):
            for t, left in enumerate(known[name]):
                if left is not None:
                    allowed[d * len(tokens) + t, : len(labels)] = [label in left for label in labels]
        log_p = float(graph.condition(allowed=allowed).log_partition()[0]) - float(graph.log_partition()[0])
        return evidence_answer(log_p, graph.kind)
