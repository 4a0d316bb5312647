"""Evaluation of constituent trees by their spans, with left- and right-branching trees as baselines."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trelliswork.compute.display import plural
from trelliswork.errors import DataError, ShapeError
from trelliswork.metrics.calibration import ConfidenceReport, evaluate_confidence

Spans = Collection[tuple[int, int]]  # (start, stop), stop excluded


@dataclass(frozen=True)
class BracketReport:
    """Scores of unlabeled brackets, from 0 to 1.

    Attributes
    ----------
    n_sentences : int
        Number of sentences of two or more words.
    sentence_f1 : float
        Mean of the F1 of each sentence, as most papers on grammar induction report it.
    precision, recall, f1 : float
        Of all brackets of the corpus together.
    left_f1, right_f1 : float
        ``sentence_f1`` of left- and right-branching trees of the same sentences.
    left_corpus_f1, right_corpus_f1 : float
        ``f1`` of these trees.
    best_f1 : float
        Maximum ``sentence_f1`` of binary trees, since gold trees are not binary.
    confidence : ConfidenceReport or None
        Predicted brackets by their probabilities.
    """

    n_sentences: int
    sentence_f1: float
    precision: float
    recall: float
    f1: float
    left_f1: float
    right_f1: float
    left_corpus_f1: float
    right_corpus_f1: float
    best_f1: float
    confidence: ConfidenceReport | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self) | {"confidence": None if self.confidence is None else self.confidence.to_dict()}

    def summary(self) -> str:
        """Return the scores as text."""
        scores = (
            f"{plural(self.n_sentences, 'sentences')} of two or more words\n"
            f"F1 {100 * self.sentence_f1:.2f} per sentence; left-branching {100 * self.left_f1:.2f}, right-branching "
            f"{100 * self.right_f1:.2f}, best binary trees {100 * self.best_f1:.2f}\n"
            f"F1 {100 * self.f1:.2f} of all brackets (precision {100 * self.precision:.2f}, recall "
            f"{100 * self.recall:.2f}); left-branching {100 * self.left_corpus_f1:.2f}, right-branching "
            f"{100 * self.right_corpus_f1:.2f}"
        )
        return scores if self.confidence is None else f"{scores}\n\n{self.confidence.summary()}"


def left_branching(n: int) -> set[tuple[int, int]]:
    """Return the spans of more than one word of the tree (((a b) c) d) over n words."""
    return {(0, j) for j in range(2, n + 1)}


def right_branching(n: int) -> set[tuple[int, int]]:
    """Return the spans of more than one word of the tree (a (b (c d))) over n words."""
    return {(i, n) for i in range(n - 1)}


def evaluate_brackets(
    lengths: Sequence[int],
    gold: Sequence[Spans],
    predicted: Sequence[Spans],
    *,
    probabilities: Sequence[Mapping[tuple[int, int], float]] | None = None,
) -> BracketReport:
    """Compare trees by their spans.

    Trivial spans are ignored: single words and the whole sentence. A span that occurs several times in a tree (unary
    chains) counts once. In the mean over sentences, a sentence without other gold spans counts as 1 if none is
    predicted and as 0 otherwise (Kim, Dyer and Rush, 2019); sentences of one word are left out.

    Parameters
    ----------
    lengths : sequence of int
        Number of words of each sentence.
    gold, predicted : sequence of collections of (start, stop)
        Words from ``start``, counted from 0, to before ``stop``.
    probabilities : sequence of dict of (start, stop) to float, optional
        Probabilities of spans in each sentence, for the confidence of predicted brackets; a span that is missing has 0.

    Examples
    --------
    >>> report = evaluate_brackets([4], [{(0, 2), (2, 4)}], [{(0, 4), (1, 4), (2, 4)}])
    >>> report.precision, report.recall, report.left_f1, report.right_f1
    (0.5, 0.5, 0.5, 0.5)
    """
    if not len(lengths) == len(gold) == len(predicted):
        raise ShapeError(
            f"lengths, gold and predicted must be of the same sentences, got {len(lengths)}, {len(gold)} and "
            f"{len(predicted)} of them."
        )
    if probabilities is not None and len(probabilities) != len(lengths):
        raise ShapeError(f"probabilities must have an entry for each sentence, got {len(probabilities)}.")
    sums = {name: _Sum() for name in ("predicted", "left", "right", "best")}
    answers: list[list[tuple[float, bool, float]]] = []
    for k, (n, gold_spans, predicted_spans) in enumerate(zip(lengths, gold, predicted, strict=True)):
        if n < 2:
            continue
        expected = _proper(gold_spans, n)
        trees = {"predicted": predicted_spans, "left": left_branching(n), "right": right_branching(n)}
        for name, spans in trees.items():
            proper = _proper(spans, n)
            sums[name].add(len(expected & proper), len(expected), len(proper))
        sums["best"].add(len(expected), len(expected), n - 2)  # a binary tree has n - 2 proper spans
        if probabilities is not None:
            judged = [
                (probabilities[k].get(span, 0.0), span in expected) for span in sorted(_proper(predicted_spans, n))
            ]
            answers.append([(p, hit, p if hit else 1 - p) for p, hit in judged])
    total = sums["predicted"]
    if not total.n:
        raise DataError("expected at least one sentence of two or more words, got none.")
    return BracketReport(
        total.n,
        total.mean,
        total.precision,
        total.recall,
        total.f1,
        sums["left"].mean,
        sums["right"].mean,
        sums["left"].f1,
        sums["right"].f1,
        sums["best"].mean,
        evaluate_confidence(answers, what="brackets") if any(answers) else None,
    )


@dataclass
class _Sum:
    """Running sums over sentences."""

    n: int = 0
    correct: int = 0
    support: int = 0
    predicted: int = 0
    total: float = 0.0

    def add(self, correct: int, support: int, predicted: int) -> None:
        """Add the number of correct, gold and predicted spans of a sentence."""
        self.n += 1
        self.correct += correct
        self.support += support
        self.predicted += predicted
        self.total += 2 * correct / (support + predicted) if support + predicted else 1.0

    @property
    def mean(self) -> float:
        return self.total / self.n

    @property
    def precision(self) -> float:
        return self.correct / self.predicted if self.predicted else 1.0

    @property
    def recall(self) -> float:
        return self.correct / self.support if self.support else 1.0

    @property
    def f1(self) -> float:
        both = self.predicted + self.support
        return 2 * self.correct / both if both else 1.0


def _proper(spans: Spans, n: int) -> set[tuple[int, int]]:
    """Return the spans that are neither single words nor the whole sentence."""
    for i, j in spans:
        if not 0 <= i < j <= n:
            raise DataError(f"a span must be within the {n} words of its sentence, got ({i}, {j}).")
    return {(i, j) for i, j in spans if j - i > 1 and (i, j) != (0, n)}
