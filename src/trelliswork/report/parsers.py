"""What a page shows of dependency parsers: a tree with the probabilities of its arcs, and how good the trees are."""

from typing import Any

from trelliswork.data import Corpus
from trelliswork.metrics.dependencies import ParseReport
from trelliswork.report.charts import calibration
from trelliswork.report.markup import percent
from trelliswork.report.page import side_by_side
from trelliswork.report.samples import JUDGED, SEARCHED, Sample, example
from trelliswork.report.tables import facts, table
from trelliswork.report.taggers import Section
from trelliswork.report.trees import dependency_tree

LABELS = 25  # of arcs that are listed


def tree_section(parser: Any, sample: Sample) -> list[Section]:
    """The tree of the sentence of which the parser is least sure."""
    some = _readable(parser, sample.full().first(SEARCHED))
    if not len(some):
        return []
    found = parser.parse(some.X)
    n = example([[p for _, _, p in arcs] for arcs in found])
    heads, labels, probabilities = (list(column) for column in zip(*found[n], strict=True))
    gold = None if some.gold is None or None in some.gold[n] else some.gold[n]
    one = some.take([n])
    tags = parser.tag(one.X)
    picture = dependency_tree(one.words()[0], heads, labels, probabilities, gold, tags[0] if tags else None)
    note = f"A sentence of the {sample.part} part, the least certain of its length among the first {len(some):,}."
    return [("A tree and its arcs", note, [picture])]


def judged_sections(parser: Any, sample: Sample) -> list[Section]:
    """Figures on sentences with whole gold trees."""
    from trelliswork.models.parser.data import pairs

    some = _readable(parser, sample.full().first(JUDGED))
    if some.gold is None or not len(some) or any(None in heads for heads in some.gold):
        return []
    labels = None if some.labels is None or any(None in row for row in some.labels) else some.labels
    return parsing_sections(parser.evaluate(some.X, pairs(some.gold, labels)), sample.part)


def parsing_sections(report: ParseReport, part: str = "test") -> list[Section]:
    """The figures of a report as tables, and its calibration."""
    rows = [
        ("sentences", report.n_sentences),
        ("words", report.n_words),
        ("UAS", percent(report.uas, 2)),
        ("LAS", percent(report.las, 2)),
        ("labels", percent(report.label_accuracy, 2)),
        ("roots", percent(report.root_accuracy, 2)),
        ("whole trees", percent(report.exact, 2)),
        ("whole trees with labels", percent(report.labeled_exact, 2)),
    ]
    lengths = [[row.words, row.n_sentences, row.uas, *([] if row.las is None else [row.las])]
               for row in report.by_length]  # fmt: skip
    headers = ["words", "sentences", "UAS", *(["LAS"] if report.las is not None else [])]
    figures = side_by_side(facts(rows), table(headers, lengths, title="By length"))
    labels = [[name, row.support, row.attached, row.score.f1] for name, row in report.by_label.items()]
    blocks = [
        calibration(report.calibration or (), title="Calibration", what="arcs"),
        table(["label", "count", "attached", "F1"], labels[:LABELS], title="By label"),
    ]
    note = f"Trees compared with the gold trees of the {part} part; every word counts, punctuation too."
    return [
        ("Figures", note, [figures]),
        ("Confidence, and the arcs of each label", "", [side_by_side(*blocks)] if any(blocks) else []),
    ]


def _readable(parser: Any, sample: Sample) -> Sample:
    """With words alone for a parser that tags by itself."""
    if parser.tagger is None or not isinstance(sample.X, Corpus):
        return sample
    return Sample(sample.part, Corpus(sample.X.columns[:1], sample.X.offsets), sample.gold, sample.labels)
