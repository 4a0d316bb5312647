"""Taggers with one layer of labels on the page: CRF, HMM and MRF tagger."""

import math
from typing import Any

import numpy as np

from trelliswork.explore.abilities import Abilities, Answer
from trelliswork.explore.answers import evidence_answer, layer_answer, plain
from trelliswork.explore.requests import MAX_BEST, Body, Item, allowed_values
from trelliswork.explore.tokens import TokenReader, feature_reader

MAX_WORDS = 200


class TaggerExplorer:
    """A tagger behind the page; an HMM is a model of text besides, and is asked as one too."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.labels: list[str] = list(model.labels_)
        self.reader = _reader(model, self.labels)
        self.abilities: Abilities = {"tag": self.tag}
        if model.kind == "hmm":
            from trelliswork.explore.text import TextExplorer

            self.abilities |= TextExplorer(model, self.reader).abilities

    def facts(self) -> Answer:
        """Labels, and that evidence may be given."""
        about = [["labels", f"{len(self.labels):,}"]]
        order = getattr(self.model, "order", 1)
        if order != 1:
            about.append(["order", str(order)])
        return {"about": about, "layers": [{"name": "label", "labels": self.labels}], "evidence": True}

    def tag(self, body: Body) -> Answer:
        """Path, marginals and k best of a sentence, with evidence and without."""
        tokens, words = self.reader.read(body.text("sentence"))
        items = body.items(len(tokens))
        k = body.whole("k", 5, 1, MAX_BEST)
        body.close()
        known: list[Any] = [None] * len(tokens)
        for item in items:
            known[item.token] = allowed_values(item, self.labels, "label")
        whole = self.model.posterior(tokens)
        before = self._view(tokens, None)
        answer: Answer = {"words": words, "kind": whole.kind, "entropy": [plain(float(whole.entropy()[0]))]}
        now = before
        if items:
            given = [known]
            part = whole.condition(allowed=self._mask(whole, known))
            log_p = float(part.log_partition()[0]) - float(whole.log_partition()[0])
            now = self._view(tokens, given)
            answer["evidence"] = evidence_answer(log_p, whole.kind)
            if log_p > -math.inf:
                answer["entropy"].append(plain(float(part.entropy()[0])))
        named = {label for item in items for label in _named(item)}
        answer["layers"] = [layer_answer("label", self.labels, now, before if items else None, named)]
        best = self.model.predict_topk([tokens], k, known=[known] if items else None)[0]
        answer["best"] = [{"labels": list(labels), "p": plain(p)} for labels, p in best]
        return answer

    def _view(self, tokens: list[Any], known: Any) -> tuple[list[str], list[dict[str, float]]]:
        (path,) = self.model.predict([tokens], known=known)
        (rows,) = self.model.predict_marginals([tokens], known=known)
        return path, rows

    def _mask(self, whole: Any, known: list[Any]) -> Any:
        """Evidence on the states of a chain (1, T, S); with order 2 and above state s stands for label s mod L."""
        import torch

        S, L = whole.log_unary.shape[2], len(self.labels)
        allowed = np.array([[label in row if row is not None else True for label in self.labels] for row in known])
        return torch.from_numpy(allowed[:, np.arange(S) % L][None])


def _named(item: Item) -> list[str]:
    return [*item.forbid, *([] if item.force is None else [item.force])]


def _reader(model: Any, labels: list[str]) -> TokenReader:
    if model.kind == "crf":
        return feature_reader(model.features_, MAX_WORDS)
    if model.kind == "hmm" and not isinstance(model.top_words(labels[0], 1)[0][0], str):
        return TokenReader("numbers", max_words=MAX_WORDS)
    return TokenReader(max_words=MAX_WORDS)
