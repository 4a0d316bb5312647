"""Dependency parsers on the page: arcs with probabilities, heads forced and forbidden."""

import math
from typing import Any

import numpy as np

from trelliswork.explore.abilities import Abilities, Answer
from trelliswork.explore.answers import evidence_answer, plain
from trelliswork.explore.requests import MAX_BEST, Body, allowed_values
from trelliswork.explore.tokens import TokenReader

MAX_WORDS = 100
WORTH = 0.001  # less probable heads are not sent


class ParserExplorer:
    """A parser behind the page."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.reader = TokenReader("columns" if model.n_columns > 1 else "words", model.n_columns, MAX_WORDS)
        self.abilities: Abilities = {"parse": self.parse}

    def facts(self) -> Answer:
        """Order, labels of arcs."""
        labels = self.model.labels_
        about = [
            ["order", str(self.model.order_)],
            ["trees", "projective" if self.model.projective else "any"],
            ["labels of arcs", "none" if labels is None else f"{len(labels)}"],
        ]
        return {"about": about, "evidence": True}

    def parse(self, body: Body) -> Answer:
        """The tree with most expected right arcs, all likely arcs and the k best trees; with evidence and without.

        Tokens count from 0, heads from 1, and head 0 is the root.
        """
        tokens, words = self.reader.read(body.text("sentence"))
        n = len(tokens)
        items = body.items(n)
        k = body.whole("k", 5, 1, MAX_BEST)
        body.close()
        known: list[Any] = [None] * n
        for item in items:
            known[item.token] = allowed_values(item, set(range(n + 1)) - {item.token + 1}, "head")
        whole = self.model.posterior(tokens)
        before = self._view(tokens, None)
        answer: Answer = {"words": words, "kind": "exact" if self.model.order_ == 1 else "estimate"}
        answer["tags"] = self.model.tag([tokens])[0]
        answer |= before
        if items:
            part = whole.condition(allowed=_mask(known))
            log_p = float(part.log_partition()[0]) - float(whole.log_partition()[0])
            answer |= self._view(tokens, [known]) | {"before": before}
            answer["evidence"] = evidence_answer(-math.inf if math.isnan(log_p) else log_p, answer["kind"])
        best = self.model.predict_topk([tokens], k, known=[known] if items else None)[0]
        answer["best"] = [{"arcs": [list(arc) for arc in tree], "p": plain(p)} for tree, p in best]
        return answer

    def _view(self, tokens: list[Any], known: Any) -> Answer:
        (arcs,) = self.model.parse([tokens], known=known)
        (rows,) = self.model.predict_marginals([tokens], known=known)
        heads = [[[head, plain(p)] for head, p in row.items() if p >= WORTH] for row in rows]
        return {
            "arcs": [{"head": head, "label": label, "p": plain(p)} for head, label, p in arcs],
            "heads": heads,
        }


def _mask(known: list[Any]) -> Any:
    """Arcs that evidence allows (1, n + 1, n + 1): axis 1 is the head, axis 2 the word."""
    import torch

    n = len(known)
    allowed = np.ones((1, n + 1, n + 1), bool)
    for d, heads in enumerate(known, start=1):
        if heads is not None:
            allowed[0, :, d] = [head in heads for head in range(n + 1)]
    return torch.from_numpy(allowed)
