"""The posterior of one sentence for the page of a model: marginals and best structures, given evidence."""

import math
import warnings
from collections.abc import Collection, Sequence
from typing import Any

from trelliswork.answers import Answer, Want, ask, layer_labels, layers_with_spans, number, span_symbols
from trelliswork.data import Tree
from trelliswork.errors import ImpossibleError
from trelliswork.serve.requests import RequestError

LEAST_LABEL, LEAST_HEAD, LEAST_SPAN = 1e-6, 0.001, 0.01  # less probable ones are left out
Plain = dict[str, Any]


def labels(model: Any, sentences: Sequence[Any], options: Sequence[Any]) -> list[Plain]:
    """Answer for a tagger: marginals, spans, and for one layer of labels entropy and k best labelings."""
    *k, evidence, rules = options
    names, spans = layer_labels(model), bool(layers_with_spans(model))

    def read(n: int) -> Any:
        given = {"": evidence} if k else evidence
        if not isinstance(given, dict) or not given or not given.keys() <= names.keys():
            raise RequestError("field 'evidence'", f"an object with lists for layers: {', '.join(names)}", evidence)
        rows = {name: [_values(own, [set(names[name])] * n, "label")] for name, own in given.items()}
        return rows[""] if k else rows

    known = _one(sentences, evidence, read)
    want = Want(outcomes=True, spans=spans, topk=sum(k), entropy=bool(k), evidence=known is not None)
    return [_plain(*answer) for answer in _ask(model, sentences, want, known=known, rules=rules)]


def states(model: Any, sentences: Sequence[Any], options: Sequence[Any]) -> list[Plain]:
    """Answer for the hidden states of a language model; evidence cannot be given."""
    return [_plain(*answer) for answer in _ask(model, sentences, task="tag")]


def arcs(model: Any, sentences: Sequence[Any], options: Sequence[Any]) -> list[Plain]:
    """Answer for a dependency parser: the tree with most expected correct arcs, heads, and k best trees."""
    k, evidence = options

    def read(n: int) -> list[Any]:
        return _values(evidence, [set(range(n + 1)) - {t} for t in range(1, n + 1)], "head")

    known = _one(sentences, evidence, read)
    want = Want(marginals=True, outcomes=True, topk=k, subtrees=known is None, evidence=known is not None)
    answers = _ask(model, sentences, want, decoding="mbr", known=known and [known])
    return [_plain(*a) | {"tags": tags} for a, tags in zip(answers, model.tag(sentences), strict=True)]


def trees(model: Any, sentences: Sequence[Any], options: Sequence[Any]) -> list[Plain]:
    """Answer for a grammar: the tree with most expected correct spans, spans, and k best trees."""
    k, evidence = options
    check_trees(sentences)
    known = _one(sentences, evidence, lambda n: _spans(evidence, n))
    if not has_all_rules(model):
        if known:
            raise RequestError("field 'evidence'", "nothing: this grammar has too many rules", "evidence")
        return [_tree_answer(*answer, {}) for answer in _ask(model, sentences)]
    want = Want(marginals=True, outcomes=True, topk=k, evidence=known is not None)
    try:
        answers = _ask(model, sentences, want, known=known and [known])
    except ImpossibleError:
        raise RequestError("the evidence", "spans that one tree can have together", "probability zero") from None
    return [_tree_answer(*answer, span_symbols(model, answer[0].words or (), known)) for answer in answers]


def _ask(model: Any, *question: Any, **how: Any) -> list[tuple[Answer, Plain]]:
    """Return answers, each with the warnings about all of them, such as that belief propagation has not converged."""
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", UserWarning)
        answers = ask(model, *question, **how)
    texts = list(dict.fromkeys(str(note.message) for note in notes))
    return [(answer, {"notes": texts} if texts else {}) for answer in answers]


def has_all_rules(model: Any) -> bool:
    """Return whether a grammar is small enough for a table of all rules, which evidence needs."""
    from trelliswork.models import pcfg

    N, P, _ = model._grammar.sizes
    return bool(N * (N + P) ** 2 <= pcfg.MAX_RULES)


def check_trees(sentences: Sequence[Any]) -> None:
    """Raise an error for a sentence that no tree has."""
    for n, sentence in enumerate(sentences):
        if len(sentence) < 2:
            raise RequestError(f"sentence {n}", "at least two words: a tree has two words or more", "one word")


def _one(sentences: Sequence[Any], evidence: Any, read: Any) -> Any:
    """Return the evidence about the one sentence of a request; None without evidence."""
    if evidence is None:
        return None
    if len(sentences) != 1:
        raise RequestError("field 'sentences'", "one sentence, since there is evidence", f"{len(sentences)} sentences")
    return read(len(sentences[0]))


def _values(given: Any, possible: Sequence[Collection[Any]], noun: str) -> list[Any]:
    """Return the values that evidence allows by token; ``None`` for any."""
    n = len(possible)
    if not isinstance(given, list) or len(given) != n:
        expected = f"a list with null or a list of {noun}s for each of the {n} tokens"
        raise RequestError("field 'evidence'", expected, given)
    for t, own in enumerate(given):
        if own is None:
            continue
        if not isinstance(own, list) or not own:
            raise RequestError(f"the evidence about token {t}", f"null or a list of at least one {noun}", own)
        for value in own:
            if type(value) not in (str, int) or value not in possible[t]:
                raise RequestError(f"the evidence about token {t}", f"a {noun} of the model", value)
    return [own and frozenset(own) for own in given]


def _spans(given: Any, n: int) -> dict[tuple[int, int], bool]:
    """Return spans of at least two words, and whether a tree must have them or must not."""
    expected = f"a list of [first, last, true or false] with 0 <= first < last < {n}"
    for span in given if isinstance(given, list) and len(given) <= n * n else [given]:
        right = isinstance(span, list) and len(span) == 3 and [type(part) for part in span] == [int, int, bool]
        if not right or not 0 <= span[0] < span[1] < n:
            raise RequestError("field 'evidence'", expected, span)
    return {(first, last + 1): force for first, last, force in given}


def _plain(answer: Answer, notes: Plain) -> Plain:
    """Return an answer with the probabilities of all labels or heads of each word."""
    plain = answer.result()
    least = LEAST_HEAD if "heads" in plain else LEAST_LABEL

    def rows(table: Any) -> Any:
        if isinstance(table, dict):
            return {name: rows(own) for name, own in table.items()}
        return [{key: p for key, p in row.items() if p >= least} for row in table]

    return plain | {"kind": answer.kind, "marginals": rows(answer.outcomes)} | _evidence(answer) | notes


def _evidence(answer: Answer) -> Plain:
    """Return the probability of evidence, and the entropy if it is possible."""
    log_p = answer.evidence
    plain: Plain = {} if answer.entropy is None or log_p == -math.inf else {"entropy": number(answer.entropy)}
    if log_p is not None:
        log_p = -math.inf if math.isnan(log_p) else min(log_p, 0.0)
        plain["evidence"] = {"p": math.exp(log_p), "log_prob": number(log_p), "kind": answer.kind}
    return plain


def _tree_answer(answer: Answer, notes: Plain, symbols: dict[tuple[int, int], str]) -> Plain:
    total = answer.outcomes or {}
    n = len(answer.words or ())
    found = [
        {"first": start, "last": stop - 1, "symbol": symbols[start, stop], "p": p}
        for (start, stop), p in total.items()
        if p >= LEAST_SPAN and stop - start < n
    ]
    plain: Plain = {"kind": answer.kind, "tree": _node(answer.value, total)}
    plain["spans"] = found
    plain["trees"] = [{"tree": _node(tree), "probability": p} for tree, p in answer.alternatives or ()]
    return plain | _evidence(answer) | notes


def _node(tree: Tree, total: Any = None, first: int = 0) -> Plain:
    """Return a tree as nested nodes: symbol, first and last word, probability of the span, children."""
    children, at = [], first
    for child in tree.children:
        if isinstance(child, Tree):
            children.append(_node(child, total, at))
            at = children[-1]["last"] + 1
    node: Plain = {"symbol": tree.label, "first": first, "last": max(first, at - 1)}
    if children:
        node["children"] = children
        if total:
            node["p"] = total[first, node["last"] + 1]
    return node
