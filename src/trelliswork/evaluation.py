"""Models compared with gold answers: `evaluate`, for every task. `trelliswork.metrics` computes the figures."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trelliswork.answers import PLAIN, Answer, Want, ask, layer_labels, word_of
from trelliswork.answers import by_layer as answers_by_layer
from trelliswork.data import Corpus, Tree
from trelliswork.data.trees import tree_spans
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.metrics.brackets import evaluate_brackets
from trelliswork.metrics.dependencies import ParseReport, evaluate_parsing
from trelliswork.metrics.induction import evaluate_induction
from trelliswork.metrics.tagging import TaggingReport, evaluate_tagging, gold_in_scheme_of, with_confidence
from trelliswork.models.factorial.data import FactorialReport, by_layer, joined
from trelliswork.models.parser.data import Columns, read_sentences, read_trees
from trelliswork.models.tasks import LayeredTagger, Tagger, TreeParser, accuracy


def evaluate(
    model: Any, X: Any, y: Any, *, decoding: str | None = None, rules: Any = None, max_length: int | None = None
) -> Any:
    """Compare the answers of a model with gold ones.

    Parameters
    ----------
    model : Tagger or TreeParser
        A fitted model.
    X : list of sentences, or Corpus
        Sentences as the model's ``predict`` takes them.
    y : list
        Gold answers as its ``fit`` takes them, complete: labels of each token, a dict of them by layer, or heads with
        or without labels; for a grammar the `Tree` of each sentence.
    decoding : str, optional
        How answers are chosen; by default as in ``predict``.
    rules : Rule or str, optional
        For a tagger: what the labels of a sentence must satisfy, as in ``predict``.
    max_length : int, optional
        For a grammar: maximum number of words; longer sentences are skipped.

    Returns
    -------
    TaggingReport, FactorialReport, InductionReport, ParseReport or BracketReport
        Figures with the confidence of answers, a ``summary()`` and a ``to_dict()``.

    Examples
    --------
    >>> from trelliswork import HMM, bundled, evaluate
    >>> train, test = bundled.load("train"), bundled.load("test")
    >>> tagger = HMM().fit([s.words for s in train], [s.tags for s in train])
    >>> round(evaluate(tagger, [s.words for s in test], [s.tags for s in test]).accuracy, 2)
    0.98
    """
    if rules is not None and not isinstance(model, Tagger):
        raise ValueRangeError("rules are about the labels of taggers: leave them out.")
    if isinstance(model, TreeParser) and model.constituents:
        return _brackets(model, X, y, decoding, max_length)
    if max_length is not None:
        raise ValueRangeError("max_length is for grammars: leave it out.")
    if isinstance(model, Tagger):
        return _labels(model, X, y, decoding, rules)
    if isinstance(model, TreeParser):
        return _arcs(model, X, y, decoding)
    raise ValueRangeError("a language model has no gold answers: use its perplexity.")


def _labels(model: Any, X: Any, y: Any, decoding: str | None, rules: Any) -> Any:
    """Compare the labels of a tagger, layer by layer if there are several, or its induced states."""
    layered, induced = isinstance(model, LayeredTagger), getattr(model, "_induced", False)
    gold: Any = dict(zip(model.layers, by_layer(y, model.layers), strict=True)) if layered else {"": y}
    want = PLAIN if induced else Want(outcomes=True, spans=True)
    answers = answers_by_layer(ask(model, X, want, decoding=decoding, rules=rules))
    predicted = {name: [answer.value for answer in answers.get(name, [])] for name in gold}
    for name in gold:
        if [len(row) for row in gold[name]] != [len(row) for row in predicted[name]]:
            raise ShapeError("y must have as many sentences and tokens as X.")
    if induced:
        return evaluate_induction(y, predicted[""])
    known, reports = model.known_words(), {}
    for name, labels in layer_labels(model).items():
        own = answers.get(name, [])
        words = [[word_of(token) for token in answer.words or ()] for answer in own] if known else None
        gold[name] = gold_in_scheme_of(labels, predicted[name], gold[name])
        reports[name] = tagging_report(own, gold[name], words, known or None)
    if not layered:
        return reports[""]
    n_tokens = sum(map(len, next(iter(gold.values()))))
    right = accuracy(joined([*predicted.values()]), joined([*gold.values()]))
    return FactorialReport(n_tokens, right, reports)


def tagging_report(
    answers: Sequence[Answer], gold: Sequence[Sequence[str]], words: Any = None, known_words: Any = None
) -> TaggingReport:
    """Compare labels and spans, and their probabilities, with gold labels of the same scheme."""
    predicted = [answer.value for answer in answers]
    p = [answer.compared(right) for answer, right in zip(answers, gold, strict=True)]
    spans = [[p for _, p in answer.spans] for answer in answers if answer.spans is not None]
    report = evaluate_tagging(gold, predicted, words=words, known_words=known_words)
    return with_confidence(report, gold, predicted, p, spans or None)


def _arcs(model: Any, X: Any, y: Any, decoding: str | None) -> ParseReport:
    """Compare trees: heads and labels, their probabilities, and the tags of a parser's own tagger."""
    trees = read_trees(y, read_sentences(X).offsets)
    split = Columns([], [], trees.offsets).sentences
    gold, names = split(trees.heads.tolist()), None if trees.labels is None else split(trees.labels)
    heads, predicted, p, of_gold, of_labels, of_tags = model._judged(X, gold, names, decoding or "mbr")
    labeled = names is not None and model.labels_ is not None
    report = evaluate_parsing(
        gold, heads, names if labeled else None, predicted if labeled else None, p, of_gold,
        of_labels if labeled and any(of_labels) else None,
    )  # fmt: skip
    if model.tagger is None:
        return report
    titles = getattr(model, "input_", {}).get("columns") or ("word", "tag", "second tag")
    tags = zip(titles[1:], zip(*(word for row in of_tags for word in row), strict=True), strict=False)
    known = {name: [right for right in column if right is not None] for name, column in tags}
    return replace(report, predicted_tag_accuracy={name: sum(k) / len(k) for name, k in known.items() if k})


def _brackets(model: Any, X: Any, y: Sequence[Tree], decoding: str | None, max_length: int | None) -> Any:
    """Compare the trees of a grammar with gold trees by their spans, see `evaluate_brackets`."""
    sentences = X.sentences(0) if isinstance(X, Corpus) else X
    if [len(words) for words in sentences] != [len(tree.leaves()) for tree in y]:
        raise ShapeError("y must have a tree for each sentence of X, with as many words.")
    few = [n for n, words in enumerate(sentences) if max_length is None or len(words) <= max_length]
    answers = ask(model, [sentences[n] for n in few], Want(outcomes=max_length is None), decoding=decoding)
    gold, predicted = ([_spans(tree) for tree in trees] for trees in ([y[n] for n in few], [a.value for a in answers]))
    tables = [answer.outcomes or {} for answer in answers] if max_length is None else None
    return evaluate_brackets([len(sentences[n]) for n in few], gold, predicted, probabilities=tables)


def _spans(tree: Tree) -> set[tuple[int, int]]:
    return {(start, stop) for start, stop, _ in tree_spans(tree)}
