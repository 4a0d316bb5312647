"""Evaluation of dependency parsers: attachment scores, roots, by length, by label, and calibration."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from trelliswork.compute.display import plural
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.metrics.calibration import ConfidenceReport, align, evaluate_confidence
from trelliswork.metrics.tagging import Score

LENGTHS = (10, 20, 30, 40)  # upper limits of the lengths of sentences; the last row has longer ones

Heads = Sequence[Sequence[int]]
Names = Sequence[Sequence[str]]


class LengthRow(NamedTuple):
    """Attachment scores of sentences of similar length."""

    words: str  # such as "11-20"
    n_sentences: int
    n_words: int
    uas: float
    las: float | None


class LabelRow(NamedTuple):
    """Arcs with one gold label."""

    support: int
    attached: float  # fraction with the correct head
    score: Score  # of arcs with correct head and label


@dataclass(frozen=True, slots=True)
class ParseReport:
    """Scores of a parser on sentences with gold trees; all words count, including punctuation.

    Attributes
    ----------
    n_sentences, n_words : int
    uas : float
        Unlabeled attachment score: the fraction of words with the correct head.
    las : float or None
        Labeled attachment score: the fraction of words with the correct head and label.
    label_accuracy : float or None
        The fraction of words with the correct label, regardless of the head.
    root_accuracy : float
        The fraction of gold roots that were predicted as roots.
    exact, labeled_exact : float
        The fraction of sentences without a wrong head (or label).
    by_length : tuple of LengthRow
    by_label : dict of str to LabelRow
    confidence : ConfidenceReport or None
        Predicted arcs by their probabilities: calibration, Brier score, log score and thresholds.
    label_confidence : ConfidenceReport or None
        Labels of the words with the correct head, by their probabilities given the tree.
    predicted_tag_accuracy : dict of str to float, or None
        The fraction of correct tags by column, of a parser that predicts them and ignores the given ones, which are
        the gold tags here; ``None`` if it uses the given tags.
    """

    n_sentences: int
    n_words: int
    uas: float
    las: float | None
    label_accuracy: float | None
    root_accuracy: float
    exact: float
    labeled_exact: float | None
    by_length: tuple[LengthRow, ...]
    by_label: dict[str, LabelRow]
    confidence: ConfidenceReport | None = None
    label_confidence: ConfidenceReport | None = None
    predicted_tag_accuracy: dict[str, float] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        plain = asdict(self)
        plain["by_length"] = [row._asdict() for row in self.by_length]
        plain["by_label"] = {
            name: {"support": row.support, "attached": row.attached, **row.score.to_dict()}
            for name, row in self.by_label.items()
        }
        for name in ("confidence", "label_confidence"):
            report = getattr(self, name)
            plain[name] = None if report is None else report.to_dict()
        return plain

    def summary(self) -> str:
        """Return the scores as text."""
        lines = [f"{plural(self.n_sentences, 'sentences')}, {plural(self.n_words, 'words')}", f"UAS   {self.uas:.4f}"]
        if self.las is not None:
            lines += [f"LAS   {self.las:.4f}", f"label {self.label_accuracy:.4f}"]
        lines += [f"root  {self.root_accuracy:.4f}", f"exact {self.exact:.4f}"]
        if self.predicted_tag_accuracy is not None:
            lines.append("tags are predicted by the parser, those of the input are ignored; accuracy")
            lines += [f"{name:5} {accuracy:.4f}" for name, accuracy in self.predicted_tag_accuracy.items()]
        n_columns = 3 if self.las is None else 4
        lengths: list[Sequence[str | float | None]] = [("words", "sentences", "UAS", "LAS")]
        lengths += [(row.words, row.n_sentences, row.uas, row.las) for row in self.by_length]
        parts = ["\n".join(lines), align([row[:n_columns] for row in lengths])]
        if self.by_label:
            rows = [
                (name, r.support, r.attached, r.score.precision, r.score.recall, r.score.f1)
                for name, r in self.by_label.items()
            ]
            parts.append(align([("label", "support", "attached", "precision", "recall", "F1"), *rows]))
        parts += [report.summary() for report in (self.confidence, self.label_confidence) if report is not None]
        return "\n\n".join(parts)


def evaluate_parsing(
    gold_heads: Heads,
    heads: Heads,
    gold_labels: Names | None = None,
    labels: Names | None = None,
    probabilities: Sequence[Sequence[float]] | None = None,
    gold_probabilities: Sequence[Sequence[float]] | None = None,
    label_probabilities: Sequence[Sequence[Sequence[float]]] | None = None,
) -> ParseReport:
    """Compare dependency trees with gold trees.

    Parameters
    ----------
    gold_heads, heads : lists of lists of int
        The head of each word, 0 for the root.
    gold_labels, labels : lists of lists of str, optional
        Labels of the arcs; both or none.
    probabilities : lists of lists of float, optional
        The probability of each predicted arc.
    gold_probabilities : lists of lists of float, optional
        The probability of each gold arc, for the log score; without them it is that of the question whether a predicted
        arc is correct.
    label_probabilities : lists of lists of (float, float), optional
        For each word the probabilities of its predicted and of its gold label, given the predicted tree.

    Examples
    --------
    >>> report = evaluate_parsing([[2, 0], [0]], [[2, 0], [0]], [["a", "r"], ["r"]], [["b", "r"], ["r"]])
    >>> report.uas, round(report.las, 4), report.root_accuracy
    (1.0, 0.6667, 1.0)
    """
    if (gold_labels is None) != (labels is None):
        raise ValueRangeError("gold_labels and labels must be given together, or neither.")
    columns: list[tuple[str, Sequence[Sequence[Any]] | None]] = [
        ("heads", heads), ("gold_labels", gold_labels), ("labels", labels), ("probabilities", probabilities),
        ("gold_probabilities", gold_probabilities),
    ]  # fmt: skip
    for name, rows in columns:
        if rows is not None and [len(row) for row in rows] != [len(row) for row in gold_heads]:
            raise ShapeError(f"{name} must have an entry for each word of gold_heads, got sentences of other lengths.")
    for name, gold in (("gold_heads", gold_heads), ("gold_labels", gold_labels or ())):
        for n, row in enumerate(gold):
            if None in row:
                raise ValueRangeError(f"{name}[{n}] must be known for each word, got None.")
    n_words = sum(map(len, gold_heads))
    if not n_words:
        raise ValueRangeError(f"gold_heads must have at least one word, got {len(gold_heads)} sentences without any.")
    attached = [[g == h for g, h in zip(*rows, strict=True)] for rows in zip(gold_heads, heads, strict=True)]
    both: list[list[bool]] | None = None
    label_accuracy = None
    if gold_labels is not None and labels is not None:
        same = [[g == p for g, p in zip(*rows, strict=True)] for rows in zip(gold_labels, labels, strict=True)]
        both = [[a and s for a, s in zip(*rows, strict=True)] for rows in zip(attached, same, strict=True)]
        label_accuracy = sum(map(sum, same)) / n_words
    roots = [
        a for row, right in zip(gold_heads, attached, strict=True) for g, a in zip(row, right, strict=True) if g == 0
    ]
    confidence = None
    if probabilities is not None:
        known = gold_probabilities if gold_probabilities is not None else [
            [p if right else 1 - p for p, right in zip(*rows, strict=True)]
            for rows in zip(probabilities, attached, strict=True)
        ]  # fmt: skip
        rows = [list(zip(*row, strict=True)) for row in zip(probabilities, attached, known, strict=True)]
        confidence = evaluate_confidence(rows, what="arcs")
    return ParseReport(
        n_sentences=len(gold_heads),
        n_words=n_words,
        uas=sum(map(sum, attached)) / n_words,
        las=None if both is None else sum(map(sum, both)) / n_words,
        label_accuracy=label_accuracy,
        root_accuracy=sum(roots) / len(roots) if roots else 0.0,
        exact=sum(map(all, attached)) / len(gold_heads),
        labeled_exact=None if both is None else sum(map(all, both)) / len(gold_heads),
        by_length=_by_length(attached, both),
        by_label={} if gold_labels is None or labels is None else _by_label(gold_labels, labels, attached, both or []),
        confidence=confidence,
        label_confidence=_label_confidence(attached, both, label_probabilities),
    )


def _label_confidence(
    attached: list[list[bool]],
    both: list[list[bool]] | None,
    probabilities: Sequence[Sequence[Sequence[float]]] | None,
) -> ConfidenceReport | None:
    """Judge the labels of words with the correct head."""
    if probabilities is None or both is None or not any(map(any, attached)):
        return None
    rows = [
        [(p, right, gold) for has_head, right, (p, gold) in zip(*row, strict=True) if has_head]
        for row in zip(attached, both, probabilities, strict=True)
    ]
    return evaluate_confidence(rows, what="labels")


def _by_length(attached: list[list[bool]], both: list[list[bool]] | None) -> tuple[LengthRow, ...]:
    rows = []
    for name, some in by_length([*map(len, attached)]):
        n_words = sum(len(attached[n]) for n in some)
        uas = sum(sum(attached[n]) for n in some) / n_words
        las = None if both is None else sum(sum(both[n]) for n in some) / n_words
        rows.append(LengthRow(name, len(some), n_words, uas, las))
    return tuple(rows)


def by_length(lengths: Sequence[int]) -> Iterator[tuple[str, list[int]]]:
    """Yield ranges of lengths, such as 11-20, with the numbers of the sentences that have them, if there are any."""
    for low, high in pairwise([0, *LENGTHS, 10**9]):
        if some := [n for n, length in enumerate(lengths) if low < length <= high]:
            yield f"{low + 1}-{high}" if high < 10**9 else f"{low + 1}-", some


def _by_label(gold: Names, labels: Names, attached: list[list[bool]], both: list[list[bool]]) -> dict[str, LabelRow]:
    support, predicted, right, correct = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for rows in zip(gold, labels, attached, both, strict=True):
        for g, p, a, b in zip(*rows, strict=True):
            support[g] += 1
            predicted[p] += 1
            right[g] += a
            correct[g] += b
    return {
        name: LabelRow(n, right[name] / n, Score(correct[name], predicted[name], n))
        for name, n in sorted(support.items(), key=lambda item: (-item[1], item[0]))
    }
