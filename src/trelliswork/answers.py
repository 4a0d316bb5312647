"""Answers of models as plain data: what the command line, the service, pages and spaCy show.

`ask` puts a question to a model of any task and returns an `Answer` for each sentence. The faces format answers; among
them only this module calls ``predict``, ``predict_marginals`` and their relatives, ``posterior`` and ``fill``.

================ =========================================== ===================================================
task             value of an answer                          model
================ =========================================== ===================================================
``tag``          labels, or a dict of them by layer          a tagger; states of a language model that has some
``parse``        pairs of head and label, or a `Tree`        a parser, a grammar
``score``        none; ``log_prob`` is that of the words     a language model
``fill``         for each blank words with probabilities     a language model
``next``         next words with probabilities               a language model that predicts from left to right
================ =========================================== ===================================================
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from trelliswork.data import AttributeCorpus, Corpus, Tree
from trelliswork.data.schemes import Span, detect_scheme
from trelliswork.data.trees import tree_spans
from trelliswork.errors import ValueRangeError
from trelliswork.models.tasks import LayeredTagger, Tagger, TreeParser

Task = Literal["tag", "parse", "score", "fill", "next"]
Confident = list[tuple[Span, float]]  # spans with their probabilities
ByLayer = dict[str, Any]  # the name of a single layer is empty
WITHHELD = "_"  # instead of a tag that is not probable enough
OUTSIDE = "O"  # the label of words outside of all spans


@dataclass(frozen=True)
class Want:
    """What answers have beside their values.

    Attributes
    ----------
    marginals : bool
        The probability of each label or arc, or of each span of a tree.
    outcomes : bool
        The probabilities of all labels or heads of each word, or of all spans of a sentence.
    spans : bool
        Spans of labels with their probabilities.
    topk : int
        Number of most probable labelings or trees; 0 for none.
    subtrees : bool
        The probability of the tree below each word.
    log_prob : bool
        The log-probability of the whole answer.
    entropy : bool
        The entropy of the distribution that the answer comes from, in nats.
    evidence : bool
        The log-probability of what is known.
    n : int
        Number of words for a blank, or of next words.
    unknown : bool
        Whether ``<unk>`` may be one of them.
    """

    marginals: bool = False
    outcomes: bool = False
    spans: bool = False
    topk: int = 0
    subtrees: bool = False
    log_prob: bool = False
    entropy: bool = False
    evidence: bool = False
    n: int = 10
    unknown: bool = False


PLAIN = Want()


@dataclass(slots=True)
class Answer:
    """The answer for one sentence; ``None`` is what was not wanted.

    Attributes
    ----------
    task : str
        See the table above.
    words : list, optional
        The tokens as given; none for files of ready attributes.
    value : list, dict by layer, Tree or None
        What the model's ``predict`` returns, see the table above; of several layers the labels of each.
    kind : str
        Whether probabilities are exact, bounds or estimates.
    probabilities : list of float, or dict by layer
        The probability of each label or arc of ``value``.
    log_prob : float
        log p(value | words, what is known); ``nan`` if what is known is impossible. Of a text log p(words).
    spans : list of (Span, float), or dict by layer
        Spans of ``value`` with their probabilities.
    alternatives : list of (value, float)
        The most probable values with their probabilities, best first.
    outcomes : list of dicts, or dict by layer; for a grammar a dict by span
        The probability of each label or head, by word, or of each span.
    subtrees : list of float
        The probability that all arcs below a word are those of ``value``.
    withheld : list of int, or dict by layer
        Tokens without an answer, since its probability is too low.
    entropy, evidence : float
        See `Want`.
    rules_probability : float
        The probability that the rules hold, if rules are given.
    """

    task: Task
    words: Sequence[Any] | None
    value: Any
    kind: str = "exact"
    probabilities: Any = None
    log_prob: float | None = None
    spans: Any = None
    alternatives: list[tuple[Any, float]] | None = None
    outcomes: Any = None
    subtrees: list[float] | None = None
    withheld: Any = None
    entropy: float | None = None
    evidence: float | None = None
    rules_probability: float | None = None

    def layers(self) -> "dict[str, Answer]":
        """Return the answer of each layer of labels; the name of a single layer is empty."""
        if not isinstance(self.value, dict):
            return {"": self}
        by_layer = ("value", "probabilities", "spans", "outcomes", "withheld")
        parts = {name: {key: (getattr(self, key) or {}).get(name) for key in by_layer} for name in self.value}
        return {name: Answer(self.task, self.words, kind=self.kind, **part) for name, part in parts.items()}

    def compared(self, gold: Sequence[str]) -> list[tuple[float, float]]:
        """Return the probabilities of the predicted and the gold label of each token; for one layer of labels."""
        rows = zip(self.outcomes, self.value, gold, strict=True)
        return [(p[label], p.get(right, 0.0)) for p, label, right in rows]

    @property
    def probability(self) -> float | None:
        """p(value | words, what is known); ``None`` if it is not wanted, or if what is known is impossible."""
        return None if self.log_prob is None or math.isnan(self.log_prob) else math.exp(min(self.log_prob, 0.0))

    def to_dict(self, place: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return plain data for JSON: the words and `result`.

        ``place`` has further fields of a sentence of raw text. Its ``places``, the characters at which tokens start and
        end, locate spans too.
        """
        plain = {} if self.words is None else {"words": [word_of(token) for token in self.words]}
        return {**plain, **(place or {}), **self.result(None if place is None else place.get("places"))}

    def result(self, places: Sequence[Sequence[int]] | None = None) -> dict[str, Any]:
        """Return plain data for JSON without the words."""
        if self.task == "score":
            return {"log_prob": None if self.log_prob is None else number(self.log_prob)}
        if self.task == "next":
            return {"next": ranked(self.value)}
        if self.task == "fill":
            return {"blanks": [ranked(words) for words in self.value], "kind": self.kind}
        plain = _plain(self.value)
        if self.probabilities is not None:
            plain["probabilities"] = self.probabilities
        if self.log_prob is not None:
            plain["probability"] = self.probability
        if self.rules_probability is not None:
            plain |= {"rules_probability": number(self.rules_probability), "kind": self.kind}
        if self.spans is not None:
            plain["spans"] = _each_layer(lambda row: [_plain_span(span, p, places) for span, p in row], self.spans)
        if self.subtrees is not None:
            plain["subtree_probabilities"] = self.subtrees
        if self.withheld is not None:
            plain["withheld"] = self.withheld
        if self.alternatives is not None:
            name = "labelings" if self.task == "tag" else "trees"
            plain[name] = [{**_plain(value), "probability": number(p)} for value, p in self.alternatives]
        return plain


def number(value: float) -> float | None:
    """Return a number for JSON, which has no infinity."""
    return float(value) if math.isfinite(value) else None


def to_json(plain: Any) -> str:
    """Return plain data as one line of JSON."""
    return json.dumps(plain, ensure_ascii=False)


def ranked(words: Iterable[tuple[Any, float]]) -> list[dict[str, Any]]:
    """Return words with their probabilities for JSON."""
    return [{"word": str(word), "p": number(p)} for word, p in words]


def word_of(token: Any) -> Any:
    """Return the word of a token: its first column or attribute."""
    return token if isinstance(token, str | int | None) or not len(token) else next(iter(token))


def main_task(cls: type) -> Task:
    """Return the task of a class of models: that of its ``predict``, or ``score``."""
    return "tag" if issubclass(cls, Tagger) else "parse" if issubclass(cls, TreeParser) else "score"


def ask(
    model: Any,
    X: Any,
    want: Want = PLAIN,
    task: Task | None = None,
    *,
    decoding: str | None = None,
    known: Any = None,
    rules: Any = None,
    min_probability: float | None = None,
) -> list[Answer]:
    """Return the answer of a model for each sentence.

    Parameters
    ----------
    model : Estimator
        A fitted model.
    X : list of sentences, Corpus or AttributeCorpus
        Sentences with ``None`` for blanks if words are filled in; starts of sentences for next words; a list for
        entropy and evidence.
    want : Want
        What answers have beside their values.
    task : {"tag", "parse", "score", "fill", "next"}, optional
        By default `main_task`.
    decoding : str, optional
        How values are chosen, see the model's ``predict``; by default as there. With ``want.topk`` and no other choice
        the value of a tagger or dependency parser is the first alternative.
    known : optional
        Evidence, as ``predict`` takes it: labels or heads by sentence and token; spans by sentence.
    rules : optional
        What the labels of whole sentences must satisfy, as ``predict`` of a tagger takes it; all that answers have is
        then given the rules.
    min_probability : float, optional
        Answers of a tagger that are less probable are withheld: words of such spans become ``O``, other tags ``_``.

    Examples
    --------
    >>> from trelliswork import HMM, bundled
    >>> from trelliswork.answers import Want, ask
    >>> train = bundled.load("train")
    >>> tagger = HMM().fit([s.words for s in train], [s.tags for s in train])
    >>> (answer,) = ask(tagger, [["They", "saw", "her", "."]], Want(marginals=True))
    >>> answer.value, [round(p, 2) for p in answer.probabilities]
    (['PRP', 'VBD', 'PRP', '.'], [1.0, 1.0, 0.91, 1.0])
    """
    task = task or main_task(type(model))
    if not len(X):
        return []
    if task == "tag" and isinstance(model, Tagger):
        given = {"known": known} if rules is None else {"known": known, "rules": rules}
        return _labels(model, X, want, decoding, given, min_probability)
    if rules is not None:
        raise ValueRangeError(f"rules are about the labels of taggers, which a {type(model).__name__} is not.")
    if task == "tag":
        return _states(model, X)
    if task == "parse":
        return (_trees if model.constituents else _arcs)(model, X, want, decoding, known)
    if task == "fill":
        filled = [(s, [list(best) for best in model.fill(s, want.n, unknown=want.unknown)]) for s in X]
        kinds = ["exact" if model._sums_blanks or len(best) == 1 else "estimate" for _, best in filled]
        return [Answer(task, s, best, kind) for (s, best), kind in zip(filled, kinds, strict=True)]
    if task == "next":
        return [Answer(task, s, list(model.predict_next(s, want.n, unknown=want.unknown))) for s in X]
    kind = model.kind
    log_p = zip(_sentences(X), model.log_prob(X).tolist(), strict=True)
    return [Answer(task, words, None, kind, log_prob=p) for words, p in log_p]


def by_layer(answers: Iterable[Answer]) -> dict[str, list[Answer]]:
    """Return the answers of a tagger by layer; the name of a single layer is empty."""
    layers: dict[str, list[Answer]] = {}
    for answer in answers:
        for name, one in answer.layers().items():
            layers.setdefault(name, []).append(one)
    return layers


def flat_labels(model: Any, X: Any, decoding: str | None = None, known: Any = None, rules: Any = None) -> Sequence[str]:
    """Return the labels of all tokens of all sentences: the fastest answer of a tagger with one layer of labels."""
    under = {} if rules is None else {"rules": rules}
    labels: Sequence[str] = model._predict_flat(X, decoding=decoding or "viterbi", known=known, **under)
    return labels


def layer_labels(model: Any) -> dict[str, Sequence[str]]:
    """Return the labels of a tagger by layer; the name of a single layer is empty."""
    labels: Any = model.labels_
    return labels if isinstance(labels, dict) else {"": labels}


def layers_with_spans(model: Any) -> list[str]:
    """Return the layers of a tagger whose labels encode spans."""
    return [name for name, labels in layer_labels(model).items() if detect_scheme(labels) is not None]


def _labels(
    model: Any, X: Any, want: Want, decoding: str | None, given: dict[str, Any], least: float | None
) -> list[Answer]:
    """Return the answers of a tagger, of one layer of labels or several, given what is known and rules."""
    layered, known, rules = isinstance(model, LayeredTagger), given["known"], given.get("rules")
    how: dict[str, Any] = given | ({} if decoding is None else {"decoding": decoding})
    alternatives = model.predict_topk(X, want.topk, **given) if want.topk else None
    if layered and alternatives is not None:
        names = list(enumerate(model.layers))
        alternatives = [
            [({name: [t[k] for t in best] for k, name in names}, p) for best, p in row] for row in alternatives
        ]
    if alternatives is not None and not layered and decoding in (None, "viterbi"):
        labels: ByLayer = {"": [best[0][0] for best in alternatives]}
    else:
        tagged = model.predict(X, **how)
        labels = {"": tagged}
        if layered:
            labels = {name: [[token[d] for token in row] for row in tagged] for d, name in enumerate(model.layers)}
    sentences = _sentences(X)
    if want == PLAIN and least is None and not layered and rules is None:
        return [Answer("tag", words, row) for words, row in zip(sentences, labels[""], strict=True)]
    encoded = layers_with_spans(model)
    rows: ByLayer = {}
    if want.marginals or want.outcomes or (least is not None and len(encoded) < len(labels)):
        rows = _by_layer(model, model.predict_marginals(X, **given))
    found: ByLayer = {}
    if encoded and (want.spans or least is not None):
        found = _by_layer(model, model.predict_spans(X, **how))
    log_p = _log_probs(model, X, labels if layered else labels[""], known, rules) if want.log_prob else None
    withheld: ByLayer | None = None
    if least is not None:
        labels, found, withheld = _confident(labels, rows, found, least)
    kind, entropies, evidence = _of_posteriors(model, X, want, known, rules)

    def by_sentence(table: ByLayer | None) -> list[Any] | None:
        if table is None or not layered:
            return None if table is None else table[""]
        return [dict(zip(table, rows, strict=True)) for rows in zip(*table.values(), strict=True)]

    chosen = None
    if want.marginals:
        chosen = {name: list(map(_chosen, rows[name], labels[name])) for name in labels}
    values: Any = by_sentence(labels)
    answers = [Answer("tag", words, value, kind) for words, value in zip(sentences, values, strict=True)]
    columns = {
        "probabilities": by_sentence(chosen), "log_prob": log_p, "alternatives": alternatives,
        "spans": by_sentence(found) if want.spans and encoded else None,
        "outcomes": by_sentence(rows) if want.outcomes else None,
        "withheld": by_sentence(withheld), "entropy": entropies, "evidence": evidence,
    }  # fmt: skip
    if rules is not None:
        p, upper = model._rules_hold(X, rules, known)
        kinds = ["upper" if bound and kind == "exact" else kind for bound in upper.tolist()]
        columns |= {"rules_probability": p.tolist(), "kind": kinds}
    return _filled(answers, columns)


def _by_layer(model: Any, found: Any) -> ByLayer:
    return found if isinstance(model, LayeredTagger) else {"": found}


def _chosen(row: Sequence[dict[str, float]], labels: Sequence[str]) -> list[float]:
    """Return the probabilities of labels; those of the best ones where labels are withheld."""
    return [float(p[label] if label in p else max(p.values())) for p, label in zip(row, labels, strict=True)]


def _confident(labels: ByLayer, rows: ByLayer, found: ByLayer, least: float) -> tuple[ByLayer, ByLayer, ByLayer]:
    """Return labels and spans without improbable ones, and the tokens whose labels are withheld."""
    given: ByLayer = {}
    withheld: ByLayer = {}
    for name, sentences in labels.items():
        given[name] = [list(row) for row in sentences]
        withheld[name] = [[] for _ in sentences]
        for n, own in enumerate(given[name]):
            if name not in found:
                withheld[name][n] = [t for t, label in enumerate(own) if rows[name][n][t][label] < least]
                for t in withheld[name][n]:
                    own[t] = WITHHELD
                continue
            for (_, start, stop), p in found[name][n]:
                if p < least:
                    withheld[name][n] += range(start, stop)
                    own[start:stop] = [OUTSIDE] * (stop - start)
    kept = {name: [[one for one in row if one[1] >= least] for row in found[name]] for name in found}
    return given, kept, withheld


def _log_probs(model: Any, X: Any, labels: Any, known: Any, rules: Any) -> list[float]:
    """Return log p(labeling | known labels, rules); ``nan`` where a lexicon excludes the known labels."""
    under = {} if rules is None else {"rules": rules}
    log_p = model.log_prob(X, labels, **under)
    if known is not None:
        evidence = model.log_prob(X, _complete(model, X, known), **under)
        possible = evidence > -np.inf
        log_p = np.where(possible, log_p - np.where(possible, evidence, 0), np.nan)
    result: list[float] = np.minimum(log_p, 0.0).tolist()
    return result


def _complete(model: Any, X: Any, known: Any) -> Any:
    """Return known labels of all layers."""
    if not isinstance(model, LayeredTagger):
        return known
    return {name: known.get(name) or [[None] * len(s) for s in _sentences(X)] for name in model.layers}


def _of_posteriors(
    model: Any, X: Any, want: Want, known: Any, rules: Any = None
) -> tuple[str, list[float] | None, list[float] | None]:
    """Return the kind of the distribution over the answers of each sentence, its entropy, and log p(known)."""
    kind, entropies, evidence = model.kind, [], []
    for n, sentence in enumerate(X if want.entropy or want.evidence else ()):
        given = None if known is None else _of_sentence(known, n)
        under = {} if rules is None else {"rules": _of_sentence(rules, n)}
        part = model.posterior(sentence, known=given, **under)
        if want.entropy:
            entropies.append(float(part.entropy()[0]))
        if want.evidence and known is not None:
            whole = model.posterior(sentence, **under)
            if isinstance(model, TreeParser) and not model.constituents:
                part = whole.condition(allowed=_allowed_arcs(known[n]))
            log_p = float(part.log_partition()[0]) - float(whole.log_partition()[0])
            one = isinstance(model, Tagger) and not isinstance(model, LayeredTagger)
            if one and model.log_prob([sentence], [given])[0] == -np.inf:  # a lexicon, which gives way to what is known
                log_p = -math.inf
            evidence.append(log_p)
        kind = kind if isinstance(model, TreeParser) else part.kind
    return kind, entropies or None, evidence or None


def _of_sentence(given: Any, n: int) -> Any:
    """Return what is known about a sentence, or its rules, which may be the same for all sentences; by layer."""
    if isinstance(given, Mapping):
        return {name: _of_sentence(own, n) for name, own in given.items()}
    return given[n] if isinstance(given, Sequence) and not isinstance(given, str) else given


def _states(model: Any, X: Any) -> list[Answer]:
    """Return the most probable hidden states of a language model, and the probabilities of all states."""
    answers = []
    for words, path, outcomes in zip(_sentences(X), model.predict(X), model.predict_marginals(X), strict=True):
        answers.append(Answer("tag", words, path, probabilities=_chosen(outcomes, path), outcomes=outcomes))
    return answers


def _arcs(model: Any, X: Any, want: Want, decoding: str | None, known: Any) -> list[Answer]:
    """Return the answers of a dependency parser."""
    how: dict[str, Any] = {"known": known} | ({} if decoding is None else {"decoding": decoding})
    alternatives = model.predict_topk(X, want.topk, known=known) if want.topk else None
    outcomes: Any = None
    if want.outcomes or want.marginals:
        outcomes = model.predict_marginals(X, known=known)
    if alternatives is not None and decoding in (None, "viterbi"):
        values = [best[0][0] for best in alternatives]
    else:
        values = model.predict(X, **how)
    chosen = [arc_probabilities(*pair) for pair in zip(values, outcomes, strict=True)] if want.marginals else None
    heads = [[head for head, _ in tree] for tree in values]
    log_p = model.log_prob(X, heads).tolist() if want.log_prob else None
    below = model._subtree_probabilities(X, heads) if want.subtrees else None
    kind, entropies, evidence = _of_posteriors(model, X, want, known)
    answers = [Answer("parse", words, tree, kind) for words, tree in zip(_sentences(X), values, strict=True)]
    columns = {
        "probabilities": chosen, "log_prob": log_p, "alternatives": alternatives,
        "outcomes": outcomes if want.outcomes or want.topk else None,  # with k trees: of all their arcs
        "subtrees": below, "entropy": entropies, "evidence": evidence,
    }  # fmt: skip
    return _filled(answers, columns)


def _filled(answers: list[Answer], columns: Mapping[str, Any]) -> list[Answer]:
    """Return answers with fields by sentence; ``None`` is a field that is not wanted."""
    for name, column in columns.items():
        if column is not None:
            for answer, value in zip(answers, column, strict=True):
                setattr(answer, name, value)
    return answers


def arc_probabilities(tree: Sequence[tuple[int, Any]], outcomes: Sequence[Mapping[int, float]]) -> list[float]:
    """Return the probability of each arc of a tree, from those of all heads."""
    return [float(p.get(head, 0.0)) for (head, _), p in zip(tree, outcomes, strict=True)]


def _allowed_arcs(known: Sequence[Any]) -> Any:
    """Return the arcs that known heads allow, as a tensor (1, n + 1, n + 1): axis 1 is the head, axis 2 the word."""
    import torch

    n = len(known)
    allowed = np.ones((1, n + 1, n + 1), bool)
    for word, given in enumerate(known, start=1):
        if given is not None:
            heads = (given,) if isinstance(given, int) else given
            allowed[0, :, word] = [head in heads for head in range(n + 1)]
    return torch.from_numpy(allowed)


def _trees(model: Any, X: Any, want: Want, decoding: str | None, known: Any) -> list[Answer]:
    """Return the answers of a grammar."""
    sentences = _sentences(X)
    trees = model.predict(sentences, decoding=decoding or "mbr", known=known)
    kind, entropies, evidence = _of_posteriors(model, sentences, want, known)
    answers = [Answer("parse", words, tree, kind) for words, tree in zip(sentences, trees, strict=True)]
    tables: Any = None
    spans: Any = None
    if want.marginals or want.outcomes:
        tables = model.predict_marginals(sentences, known=known)
        spans = [tree_probabilities(tree, table) for tree, table in zip(trees, tables, strict=True)]
    columns = {
        "spans": spans, "alternatives": model.predict_topk(sentences, want.topk, known=known) if want.topk else None,
        "outcomes": tables if want.outcomes else None, "entropy": entropies, "evidence": evidence,
    }  # fmt: skip
    return _filled(answers, columns)


def span_symbols(model: Any, words: Sequence[str], known: Any = None) -> dict[tuple[int, int], str]:
    """Return the most probable symbol of a grammar over each span (start, stop) of two words or more."""
    symbols = model.posterior(words, known=known).marginals()[0]
    best = symbols[..., : model.n_nonterminals].argmax(dim=2).tolist()
    return {(i, j + 1): f"N{best[i][j]}" for i in range(len(words)) for j in range(i + 1, len(words))}


def tree_probabilities(tree: Tree, table: Mapping[tuple[int, int], float]) -> Confident:
    """Return the constituents of two words or more of a tree, with the probabilities of their spans."""
    spans = tree_spans(tree)
    return [(Span(label, start, stop), float(table.get((start, stop), 0.0))) for start, stop, label in spans]


def _sentences(X: Any) -> Sequence[Any]:
    """Return the tokens of each sentence; ``None`` for sentences of ready attributes."""
    if isinstance(X, Corpus):
        return X.sentences(0)
    return [None] * len(X) if isinstance(X, AttributeCorpus) else X


def _each_layer(change: Callable[[Any], Any], given: Any) -> Any:
    return {name: change(own) for name, own in given.items()} if isinstance(given, dict) else change(given)


def _plain(value: Any) -> dict[str, Any]:
    """Return labels or a tree for JSON."""
    if isinstance(value, Tree):
        return {"tree": str(value)}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return {"heads": [head for head, _ in value], "labels": [label for _, label in value]}
    return {"labels": value}


def _plain_span(span: Span, p: float, places: Sequence[Sequence[int]] | None) -> dict[str, Any]:
    """Return a span for JSON: its tokens from 0, the last one excluded, and in raw text its characters."""
    plain: dict[str, Any] = {"type": span.type, "tokens": [span.start, span.stop], "probability": number(p)}
    return plain if places is None else plain | {"start": places[span.start][0], "end": places[span.stop - 1][1]}
