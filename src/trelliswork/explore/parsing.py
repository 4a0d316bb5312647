"""Parsers on the page: trees with probabilities, with heads or spans forced and forbidden."""

from typing import Any

import numpy as np

from trelliswork.explore.abilities import Abilities, Answer, evidence_answer, plain
from trelliswork.explore.requests import MAX_BEST, Body, RequestError, allowed_values, token_reader
from trelliswork.explore.text import TextExplorer

MAX_WORDS = 100
MAX_GRAMMAR_WORDS = 40
LEAST_HEAD = 0.001  # less probable heads are left out
LEAST_SPAN = 0.01  # less probable spans are left out


class ParserExplorer:
    """A dependency parser."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.reader = token_reader(model, MAX_WORDS)
        self.abilities: Abilities = {"parse": self.parse}

    def facts(self) -> Answer:
        """Return order, type of the trees, and the number of arc labels."""
        labels = self.model.labels_
        about = [
            ["order", str(self.model.order_)],
            ["trees", "projective" if self.model.projective else "any"],
            ["arc labels", "none" if labels is None else f"{len(labels)}"],
        ]
        return {"about": about, "evidence": True}

    def parse(self, body: Body) -> Answer:
        """Return the tree with most expected correct arcs, likely arcs and k best trees, with and without evidence.

        Tokens count from 0, heads from 1; head 0 is the root.
        """
        tokens, words = self.reader.read(body.text("sentence"))
        n = len(tokens)
        items = body.items(n)
        k = body.whole("k", 5, 1, MAX_BEST)
        body.close()
        known: list[Any] = [None] * n
        for item in items:
            known[item.token] = allowed_values(item, set(range(n + 1)) - {item.token + 1}, "head")
        before = self._view(tokens, None)
        answer: Answer = {"words": words, "kind": "exact" if self.model.order_ == 1 else "estimate"}
        answer["tags"] = self.model.tag([tokens])[0]
        answer |= before
        if items:
            whole = self.model.posterior(tokens)
            part = whole.condition(allowed=_allowed_arcs(known))
            log_p = float(part.log_partition()[0]) - float(whole.log_partition()[0])
            answer |= self._view(tokens, [known]) | {"before": before}
            answer["evidence"] = evidence_answer(log_p, answer["kind"])
        else:
            heads = [arc["head"] for arc in before["arcs"]]
            answer["subtrees"] = [plain(p) for p in self.model.predict_subtree_probabilities([tokens], [heads])[0]]
        best = self.model.predict_topk([tokens], k, known=[known] if items else None)[0]
        answer["best"] = [{"arcs": [list(arc) for arc in tree], "p": plain(p)} for tree, p in best]
        return answer

    def _view(self, tokens: list[Any], known: Any) -> Answer:
        (arcs,) = self.model.parse([tokens], known=known)
        (rows,) = self.model.predict_marginals([tokens], known=known)
        heads = [[[head, plain(p)] for head, p in row.items() if p >= LEAST_HEAD] for row in rows]
        return {"arcs": [{"head": head, "label": label, "p": plain(p)} for head, label, p in arcs], "heads": heads}


def _allowed_arcs(known: list[Any]) -> Any:
    """Return the arcs that evidence allows (1, n + 1, n + 1): axis 1 is the head, axis 2 the word."""
    import torch

    n = len(known)
    allowed = np.ones((1, n + 1, n + 1), bool)
    for d, heads in enumerate(known, start=1):
        if heads is not None:
            allowed[0, :, d] = [head in heads for head in range(n + 1)]
    return torch.from_numpy(allowed)


class GrammarExplorer:
    """A grammar: trees, and a language model."""

    def __init__(self, model: Any) -> None:
        from trelliswork.models.pcfg import MAX_RULES

        self.model = model
        N, P, _ = model.parameters_.sizes
        self.names = [f"N{a}" for a in range(N)] + [f"P{x}" for x in range(P)]
        self.dense = N * (N + P) ** 2 <= MAX_RULES  # else the table of rules is too large for a distribution
        self.reader = token_reader(model, MAX_GRAMMAR_WORDS)
        self.abilities: Abilities = {"parse": self.parse} | TextExplorer(model, self.reader).abilities

    def facts(self) -> Answer:
        """Return sizes; evidence needs the dense table of rules."""
        N, P, _ = self.model.parameters_.sizes
        about = [["symbols", f"{N} over phrases, {P} over words"]]
        if self.model.rank is not None:
            about.append(["rank", str(self.model.rank)])
        return {"about": about, "constituents": True, "evidence": self.dense}

    def parse(self, body: Body) -> Answer:
        """Return the tree with most expected correct spans, spans and k best trees, with and without evidence."""
        words = self.reader.words(body.text("sentence"))
        spans = body.pairs("evidence", len(words))
        k = body.whole("k", 5, 1, MAX_BEST)
        body.close()
        if len(words) < 2:
            raise RequestError("the sentence", "at least two words: a tree has two words or more", "one word")
        if not self.dense:
            if spans:
                raise RequestError("field 'evidence'", "nothing: this grammar has too many rules", "evidence")
            tree = self.model.predict([words])[0]
            return {"words": words, "kind": "exact", "tree": _plain_tree(tree), "spans": [], "best": []}
        whole = trees = self.model.posterior(words)
        answer: Answer = {"words": words, "kind": "exact"} | self._view(whole, words)
        if spans:
            trees = whole.condition(allowed=_allowed_spans(len(words), spans))
            log_p = float(trees.log_partition()[0]) - float(whole.log_partition()[0])
            if log_p == -np.inf:
                raise RequestError("the evidence", "spans that one tree can have together", "probability zero")
            before = {"tree": answer["tree"], "spans": answer["spans"]}
            answer |= self._view(trees, words) | {"before": before, "evidence": evidence_answer(log_p, "exact")}
        best = trees.topk(k)
        log_z = float(trees.log_partition()[0])
        answer["best"] = [
            {"tree": self._tree(chart, words, None), "p": plain(float(np.exp(score - log_z)))}
            for chart, score in zip(best.labels[0].numpy(), best.scores[0].tolist(), strict=True)
            if score > -np.inf
        ]
        return answer

    def _view(self, distribution: Any, words: list[str]) -> Answer:
        symbols = distribution.marginals()[0].numpy()
        p = symbols.sum(axis=2)
        n = len(words)
        spans = []
        for i, j in zip(*np.triu_indices(n, 1), strict=True):
            if p[i, j] >= LEAST_SPAN and j - i < n - 1:
                symbol = self.names[int(symbols[i, j].argmax())]
                spans.append({"first": int(i), "last": int(j), "symbol": symbol, "p": plain(min(1.0, p[i, j]))})
        chart = distribution.mbr().labels[0].numpy()
        return {"tree": self._tree(chart, words, p), "spans": sorted(spans, key=lambda span: -span["p"])}

    def _tree(self, chart: Any, words: list[str], p: Any) -> Answer:
        """Return a chart (n, n) as nested nodes {symbol, first, last, p, children}."""
        stack: list[Answer] = []
        for j in range(len(words)):
            for i in range(j, -1, -1):
                if chart[i, j] < 0:
                    continue
                node: Answer = {"symbol": self.names[int(chart[i, j])], "first": i, "last": j}
                if p is not None and i < j:
                    node["p"] = plain(min(1.0, float(p[i, j])))
                if i < j:  # its children are on top of the stack
                    right, left = stack.pop(), stack.pop()
                    node["children"] = [left, right]
                stack.append(node)
        return stack[0]


def _allowed_spans(n: int, spans: list[tuple[int, int, bool]]) -> Any:
    """Return the spans (1, n, n) that evidence allows; a binary tree has a span if no other span crosses it."""
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
    """Return a ``Tree`` as nested nodes."""
    if isinstance(tree.children[0], str):
        return {"symbol": tree.label, "first": first, "last": first}
    children, at = [], first
    for child in tree.children:
        children.append(_plain_tree(child, at))
        at = children[-1]["last"] + 1
    return {"symbol": tree.label, "first": first, "last": at - 1, "children": children}
