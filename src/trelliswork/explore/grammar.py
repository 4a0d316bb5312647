"""Grammars on the page: a binary tree with the probabilities of its spans, spans forced and forbidden."""

from typing import Any

import numpy as np

from trelliswork.explore.abilities import Abilities, Answer
from trelliswork.explore.answers import evidence_answer, plain
from trelliswork.explore.requests import MAX_BEST, Body, RequestError
from trelliswork.explore.text import TextExplorer
from trelliswork.explore.tokens import TokenReader

MAX_WORDS = 40
WORTH = 0.01  # less probable spans are not sent


class GrammarExplorer:
    """A PCFG behind the page: trees, and a model of text."""

    def __init__(self, model: Any) -> None:
        from trelliswork.models.pcfg import MAX_RULES

        self.model = model
        N, P, _ = model.parameters_.sizes
        self.names = [f"N{a}" for a in range(N)] + [f"P{x}" for x in range(P)]
        self.n_nonterminals = N
        self.dense = N * (N + P) ** 2 <= MAX_RULES  # or the distribution over trees cannot be laid out
        self.reader = TokenReader(max_words=MAX_WORDS)
        self.abilities: Abilities = {"parse": self.parse} | TextExplorer(model, self.reader).abilities

    def facts(self) -> Answer:
        """Sizes; evidence only where the distribution can be laid out."""
        N, P, _ = self.model.parameters_.sizes
        about = [["symbols", f"{N} over phrases, {P} over words"]]
        if self.model.rank is not None:
            about.append(["rank", str(self.model.rank)])
        return {"about": about, "constituents": True, "evidence": self.dense}

    def parse(self, body: Body) -> Answer:
        """The tree with most expected spans, likely spans, the k best trees; with evidence and without."""
        words = self.reader.words(body.text("sentence"))
        spans = body.pairs("evidence", len(words))
        k = body.whole("k", 5, 1, MAX_BEST)
        body.close()
        if len(words) < 2:
            raise RequestError("the sentence", "two words or more: a tree has two words at least", "one word")
        if not self.dense:
            if spans:
                raise RequestError("field 'evidence'", "nothing: this grammar has too many rules", "evidence")
            tree = self.model.predict([words])[0]
            return {"words": words, "kind": "exact", "tree": _plain_tree(tree), "spans": [], "best": []}
        whole = self.model.posterior(words)
        answer: Answer = {"words": words, "kind": "exact"} | self._view(whole, words)
        found = whole
        if spans:
            found = whole.condition(allowed=_mask(len(words), spans))
            log_p = float(found.log_partition()[0]) - float(whole.log_partition()[0])
            if log_p == -np.inf:
                raise RequestError("the evidence", "spans that one tree can have together", "probability zero")
            before = {"tree": answer["tree"], "spans": answer["spans"]}
            answer |= self._view(found, words) | {"before": before, "evidence": evidence_answer(log_p, "exact")}
        best = found.topk(k)
        log_z = float(found.log_partition()[0])
        answer["best"] = [
            {"tree": self._tree(chart, words, None), "p": plain(float(np.exp(score - log_z)))}
            for chart, score in zip(best.labels[0].numpy(), best.scores[0].tolist(), strict=True)
            if score > -np.inf
        ]
        return answer

    def _view(self, distribution: Any, words: list[str]) -> Answer:
        symbols = distribution.marginals()[0].numpy()
        spans = symbols.sum(axis=2)
        chart = distribution.mbr().labels[0].numpy()
        n = len(words)
        listed = [
            {
                "first": i,
                "last": j,
                "symbol": self.names[int(symbols[i, j].argmax())],
                "p": plain(min(1.0, spans[i, j])),
            }
            for i in range(n)
            for j in range(i + 1, n)
            if spans[i, j] >= WORTH and j - i < n - 1
        ]
        return {"tree": self._tree(chart, words, spans), "spans": sorted(listed, key=lambda s: -s["p"])}

    def _tree(self, chart: Any, words: list[str], spans: Any) -> Answer:
        """A chart (n, n) as nested nodes {symbol, first, last, p, children}."""
        stack: list[Answer] = []
        for j in range(len(words)):
            for i in range(j, -1, -1):
                if chart[i, j] < 0:
                    continue
                node: Answer = {"symbol": self.names[int(chart[i, j])], "first": i, "last": j}
                if spans is not None and i < j:
                    node["p"] = plain(min(1.0, float(spans[i, j])))
                if i < j:  # its two children lie on top of the stack
                    right, left = stack.pop(), stack.pop()
                    node["children"] = [left, right]
                stack.append(node)
        return stack[0]


def _mask(n: int, spans: list[tuple[int, int, bool]]) -> Any:
    """Spans (1, n, n) that evidence allows; in a binary tree a span is there if none crosses it."""
    import torch

    allowed = np.ones((1, n, n), bool)
    i, j = np.arange(n)[:, None], np.arange(n)[None]
    for first, last, force in spans:
        if force:
            crosses = ((i < first) & (first <= j) & (j < last)) | ((first < i) & (i <= last) & (last < j))
            allowed[0] &= ~crosses
        else:
            allowed[0, first, last] = False
    return torch.from_numpy(allowed)


def _plain_tree(tree: Any, first: int = 0) -> Answer:
    """A ``Tree`` as nested nodes."""
    if isinstance(tree.children[0], str):
        return {"symbol": tree.label, "first": first, "last": first}
    children, at = [], first
    for child in tree.children:
        children.append(_plain_tree(child, at))
        at = children[-1]["last"] + 1
    return {"symbol": tree.label, "first": first, "last": at - 1, "children": children}
