"""Sections about parsers: a tree with its probabilities, and comparisons with gold trees."""

from collections.abc import Mapping, Sequence
from typing import Any

from trelliswork.answers import Want, ask
from trelliswork.data import Corpus
from trelliswork.evaluation import evaluate
from trelliswork.metrics.brackets import BracketReport
from trelliswork.metrics.dependencies import ParseReport
from trelliswork.report.charts import calibration
from trelliswork.report.page import Section, percent, side_by_side
from trelliswork.report.samples import READABLE, SEARCHED, Sample, example
from trelliswork.report.structures import constituent_tree, dependency_tree
from trelliswork.report.tables import bars, facts, table
from trelliswork.report.taggers import confidence_tables, example_note

LABELS = 25  # arc labels that are listed


def tree_section(parser: Any, sample: Sample) -> list[Section]:
    """Return the tree of an example with the probabilities of its arcs or spans, beside the gold tree."""
    return _constituents(parser, sample) if parser.constituents else _dependencies(parser, sample)


def _dependencies(parser: Any, sample: Sample) -> list[Section]:
    some = _input(parser, sample.full().first(SEARCHED))
    if not len(some):
        return []
    answers = ask(parser, some.X, Want(marginals=True))
    n = example([answer.probabilities for answer in answers])
    heads, labels = (list(column) for column in zip(*answers[n].value, strict=True))
    gold = None if some.gold is None else _heads(some.gold[n])
    one = some.take([n])
    tags = next(iter(parser.tag(one.X)), None)
    picture = dependency_tree(one.words()[0], heads, labels, answers[n].probabilities, gold, tags)
    return [("A tree and its arcs", example_note(sample, some), [picture])]


def _constituents(grammar: Any, sample: Sample) -> list[Section]:
    low, high = READABLE
    lengths = sample.lengths()
    long_enough = [n for n, size in enumerate(lengths) if size > 1]
    if not long_enough:
        return []
    n = min(long_enough, key=lambda n: (not low <= lengths[n] <= high, abs(lengths[n] - high)))
    words = sample.words()[n]
    (answer,) = ask(grammar, [words], Want(outcomes=True))
    pictures = [constituent_tree(answer.value, answer.outcomes, title="Predicted tree")]
    if sample.gold is not None:
        pictures.append(constituent_tree(sample.gold[n], title="Gold tree"))
    note = f"The tree with the largest expected number of correct spans, for a sentence of the {sample.part} data."
    return [("A tree and its spans", note, pictures)]


def compared_sections(parser: Any, sample: Sample) -> list[Section]:
    """Return the results of a dependency parser on sentences with complete gold trees."""
    some = _input(parser, sample.full())
    heads = [_heads(row) for row in some.gold or ()]
    if not heads or None in heads:
        return []
    labeled = all(isinstance(word, tuple) and word[1] is not None for row in some.gold for word in row)
    return dependency_sections(evaluate(parser, some.X, some.gold if labeled else heads), sample.part)


def _heads(gold: Sequence[Any]) -> list[int] | None:
    """Return the heads of a gold tree of heads, or of pairs of head and label; ``None`` if one is unknown."""
    heads = [word[0] if isinstance(word, tuple) else word for word in gold]
    return None if None in heads else heads


def dependency_sections(report: ParseReport, part: str = "test") -> list[Section]:
    """Return the results of a report as tables, and its calibration."""
    rows = [
        ("sentences", report.n_sentences),
        ("words", report.n_words),
        ("UAS", percent(report.uas, 2)),
        ("LAS", percent(report.las, 2)),
        ("labels", percent(report.label_accuracy, 2)),
        ("roots", percent(report.root_accuracy, 2)),
        ("complete trees", percent(report.exact, 2)),
        ("complete labeled trees", percent(report.labeled_exact, 2)),
    ]
    tags = report.predicted_tag_accuracy
    rows += [(f"predicted {name}", percent(accuracy, 2)) for name, accuracy in (tags or {}).items()]
    lengths = [[row.words, row.n_sentences, row.uas, *([] if row.las is None else [row.las])]
               for row in report.by_length]  # fmt: skip
    headers = ["words", "sentences", "UAS", *(["LAS"] if report.las is not None else [])]
    labels = [[name, row.support, row.attached, row.score.f1] for name, row in report.by_label.items()]
    note = f"Predicted trees compared with the gold trees of the {part} data; punctuation counts."
    note += "" if tags is None else " Tags are predicted by the parser, those of the data are ignored."
    listed = table(["label", "count", "attached", "F1"], labels[:LABELS], title="By label")
    details = [listed]
    if report.confidence is not None:
        diagram = calibration(report.confidence.bins, title="Calibration", what="arcs")
        details.insert(0, side_by_side(diagram, confidence_tables(report.confidence)))
    return [
        ("Results", note, [side_by_side(facts(rows), table(headers, lengths, title="By length"))]),
        ("Confidence, and results by label", "", details),
    ]


def bracket_sections(reports: Mapping[str, BracketReport], perplexity: float) -> list[Section]:
    """Return the results of a grammar, and those of simple trees."""
    rows = [
        [name, r.n_sentences, *(percent(rate, 2) for rate in (r.sentence_f1, r.f1, r.precision, r.recall))]
        for name, r in reports.items()
    ]
    headers = ["sentences", "count", "F1 per sentence", "F1 of all brackets", "precision", "recall"]
    longest = list(reports.values())[-1]
    trees = [
        ("this grammar", 100 * longest.sentence_f1),
        ("left-branching trees", 100 * longest.left_f1),
        ("right-branching trees", 100 * longest.right_f1),
        ("the best binary trees", 100 * longest.best_f1),
    ]
    found: list[Section] = []
    if longest.confidence is not None:
        diagram = calibration(longest.confidence.bins, title="Calibration", what="brackets")
        tables = [side_by_side(diagram, confidence_tables(longest.confidence))]
        found.append(("Confidence", "Predicted brackets, for sentences of all lengths.", tables))
    return [
        ("Results", f"Unlabeled brackets; perplexity {perplexity:.2f} per word.", [table(headers, rows)]),
        ("Comparison with simple trees", "F1 per sentence, for sentences of all lengths.",
         [bars(trees, headers=("trees", "F1"), digits=2)]),
        *found,
    ]  # fmt: skip


def _input(parser: Any, sample: Sample) -> Sample:
    """Return sentences with words alone if the parser has a tagger."""
    if parser.tagger is None or not isinstance(sample.X, Corpus):
        return sample
    return Sample(sample.part, Corpus(sample.X.columns[:1], sample.X.offsets), sample.gold)
