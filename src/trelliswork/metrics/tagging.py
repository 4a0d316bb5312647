"""Evaluation of taggers: accuracies, spans as in the CoNLL evaluation, and the most frequent mistakes."""

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any, Literal, NamedTuple

from trelliswork.data.schemes import (
    Scheme,
    detect_scheme,
    file_scheme,
    labels_from_spans,
    lenient_spans,
    model_scheme,
    spans,
)
from trelliswork.errors import DataWarning, ShapeError, ValueRangeError
from trelliswork.metrics.calibration import ConfidenceReport, align, evaluate_confidence

N_MISTAKES = 20  # mistakes in a report
_N_SHOWN = 5  # mistakes in its summary

Sentences = Sequence[Sequence[str]]


class Score(NamedTuple):
    r"""Precision, recall and their harmonic mean, from counts.

    .. math:: P = \frac{correct}{predicted}, \qquad R = \frac{correct}{support}, \qquad F_1 = \frac{2 P R}{P + R}

    Undefined values, such as the precision of a label that was never predicted, are 0.

    Examples
    --------
    >>> score = Score(correct=1, predicted=2, support=4)
    >>> score.precision, score.recall, round(score.f1, 4)
    (0.5, 0.25, 0.3333)
    """

    correct: int  # in gold and prediction
    predicted: int  # in the prediction
    support: int  # in gold

    @property
    def precision(self) -> float:
        """Fraction of the predictions that are correct."""
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """Fraction of gold that was predicted."""
        return self.correct / self.support if self.support else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        return 2 * self.correct / (self.predicted + self.support) if self.correct else 0.0

    def to_dict(self) -> dict[str, float]:
        """Return the scores and the counts by name."""
        return {"precision": self.precision, "recall": self.recall, "f1": self.f1, **self._asdict()}


@dataclass(frozen=True, slots=True)
class Mistake:
    """Number of tokens with one gold label and another predicted label."""

    gold: str
    predicted: str
    count: int


@dataclass(frozen=True, slots=True)
class TaggingReport:
    """Result of ``evaluate_tagging``; rates are between 0 and 1.

    Attributes
    ----------
    n_sentences, n_tokens : int
    accuracy : float
        Fraction of tokens with the correct label.
    sentence_accuracy : float
        Fraction of sentences without a mistake; an empty sentence has none.
    n_known, n_unknown : int or None
        Number of tokens with a known and with an unknown word; None if the known words were not given.
    known_accuracy, unknown_accuracy : float or None
        Accuracy of these tokens; None if there are none.
    labels : dict of str to Score
        Scores per token for each label in gold or prediction, in alphabetical order.
    scheme : {"bio", "bioes"} or None
        Scheme by which labels were read as spans; None if they were not.
    chunks : Score or None
        All spans together (micro average): a predicted span is correct if gold has one with the same ends and type.
    chunks_by_type : dict of str to Score, or None
        Spans of each type, in alphabetical order.
    confusion : tuple of Mistake
        The most frequent mistakes, most frequent first, at most ``N_MISTAKES`` of them.
    confidence, span_confidence : ConfidenceReport or None
        Probabilities of labels and of spans, if ``with_confidence`` has added them.
    """

    n_sentences: int
    n_tokens: int
    accuracy: float
    sentence_accuracy: float
    n_known: int | None
    n_unknown: int | None
    known_accuracy: float | None
    unknown_accuracy: float | None
    labels: dict[str, Score]
    scheme: Scheme | None
    chunks: Score | None
    chunks_by_type: dict[str, Score] | None
    confusion: tuple[Mistake, ...]
    confidence: ConfidenceReport | None = None
    span_confidence: ConfidenceReport | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; the keys are the names of the attributes."""
        plain = asdict(self)
        plain["confusion"] = list(plain["confusion"])
        plain["labels"] = {label: score.to_dict() for label, score in self.labels.items()}
        if self.chunks is not None and self.chunks_by_type is not None:
            plain["chunks"] = self.chunks.to_dict()
            plain["chunks_by_type"] = {type_: score.to_dict() for type_, score in self.chunks_by_type.items()}
        for name in ("confidence", "span_confidence"):
            report = getattr(self, name)
            plain[name] = None if report is None else report.to_dict()
        return plain

    def accuracies(self) -> list[tuple[str, int, float | None]]:
        """Return what is counted, how often it occurs, and how much of it is correct."""
        counted = [("tokens", self.n_tokens, self.accuracy), ("sentences", self.n_sentences, self.sentence_accuracy)]
        known = [("known words", self.n_known, self.known_accuracy)]
        known += [("unknown words", self.n_unknown, self.unknown_accuracy)]
        return counted + [(name, n, rate) for name, n, rate in known if n is not None]

    def summary(self) -> str:
        """Return accuracies, spans if there are any, and the most frequent mistakes as text."""
        parts = [align([("", "count", "accuracy"), *self.accuracies()])]
        if self.chunks is not None and self.chunks_by_type is not None:
            scores = {"all": self.chunks, **self.chunks_by_type}
            rows = [(name, s.support, s.precision, s.recall, s.f1) for name, s in scores.items()]
            parts.append(align([("spans", "count", "precision", "recall", "F1"), *rows]))
        if self.confusion:
            mistakes = [(f"{m.gold} as {m.predicted}", m.count) for m in self.confusion[:_N_SHOWN]]
            parts.append(align([("mistakes", "count"), *mistakes]))
        parts += [report.summary() for report in (self.confidence, self.span_confidence) if report is not None]
        return "\n\n".join(parts)


def evaluate_tagging(
    gold: Sentences,
    predicted: Sentences,
    *,
    words: Sentences | None = None,
    known_words: Iterable[str] | None = None,
    scheme: Scheme | Literal["auto"] | None = "auto",
) -> TaggingReport:
    """Compare predicted labels with gold ones.

    Parameters
    ----------
    gold, predicted : sequences of sequences of str
        The labels of each sentence.
    words : sequence of sequences of str, optional
        The words of each sentence, needed with ``known_words``.
    known_words : iterable of str, optional
        The words seen in training, for separate accuracies of known and unknown words.
    scheme : {"auto", "bio", "bioes"} or None
        Scheme by which labels are read as spans. "auto" detects it from all labels, gold and predicted; if one of them
        fits no scheme, or with None, no spans are read.

    Returns
    -------
    TaggingReport

    Raises
    ------
    ShapeError
        If gold, predicted and words differ in the number of sentences, or in a sentence's length.
    ValueRangeError
        If there is no token, or a label does not fit the given scheme.

    Notes
    -----
    Labels of tokens are compared as they are: `gold_in_scheme_of` converts gold in another scheme.
    Spans are read and counted as in the CoNLL evaluation script ``conlleval`` (Tjong Kim Sang and Buchholz, 2000),
    ill-formed labels included. Time is linear in the number of tokens.

    Examples
    --------
    >>> gold = [["B-NP", "I-NP", "B-VP"], ["B-NP", "B-VP"]]
    >>> predicted = [["B-NP", "I-NP", "B-VP"], ["B-NP", "I-NP"]]
    >>> report = evaluate_tagging(gold, predicted)
    >>> report.accuracy, report.sentence_accuracy, report.chunks
    (0.8, 0.5, Score(correct=2, predicted=3, support=4))
    >>> print(report.summary())
               count  accuracy
    tokens         5    0.8000
    sentences      2    0.5000
    <BLANKLINE>
    spans  count  precision  recall      F1
    all        4     0.6667  0.5000  0.5714
    NP         2     0.5000  0.5000  0.5000
    VP         2     1.0000  0.5000  0.6667
    <BLANKLINE>
    mistakes      count
    B-VP as I-NP      1
    """
    _check_same_shape("predicted", predicted, gold)
    pairs = Counter(zip(chain.from_iterable(gold), chain.from_iterable(predicted), strict=True))
    n_tokens = pairs.total()
    if not n_tokens:
        raise ValueRangeError(f"gold must have at least one label, got {len(gold)} sentences without any.")
    correct = sum(n for (g, p), n in pairs.items() if g == p)
    n_known, n_unknown, known_accuracy, unknown_accuracy = _by_known_words(gold, predicted, words, known_words)
    if scheme == "auto":
        scheme = model_scheme(file_scheme(chain(gold, predicted)))
    elif scheme is not None:
        spans([*dict.fromkeys(chain.from_iterable(pairs))], scheme)  # checks the labels
    chunks_by_type = None if scheme is None else _score_chunks(gold, predicted)
    mistakes = sorted((-n, g, p) for (g, p), n in pairs.items() if g != p)  # most frequent first, then alphabetical
    return TaggingReport(
        n_sentences=len(gold),
        n_tokens=n_tokens,
        accuracy=correct / n_tokens,
        sentence_accuracy=sum(list(g) == list(p) for g, p in zip(gold, predicted, strict=True)) / len(gold),
        n_known=n_known,
        n_unknown=n_unknown,
        known_accuracy=known_accuracy,
        unknown_accuracy=unknown_accuracy,
        labels=_score_labels(pairs),
        scheme=scheme,
        chunks=None
        if chunks_by_type is None
        else Score(*map(sum, zip((0, 0, 0), *chunks_by_type.values(), strict=True))),
        chunks_by_type=chunks_by_type,
        confusion=tuple(Mistake(g, p, -minus) for minus, g, p in mistakes[:N_MISTAKES]),
    )


def with_confidence(
    report: TaggingReport,
    gold: Sentences,
    predicted: Sentences,
    probabilities: Sequence[Sequence[tuple[float, float]]],
    span_probabilities: Sequence[Sequence[float]] | None = None,
) -> TaggingReport:
    """Return a report with the confidence of its answers.

    Parameters
    ----------
    report : TaggingReport
        Of the same labels.
    gold, predicted : as in ``evaluate_tagging``
    probabilities : list of lists of (float, float)
        For each token the probabilities of the predicted and of the gold label.
    span_probabilities : list of lists of float, optional
        The probability of each predicted span, from left to right.
    """
    tokens = [
        [(p, label == g, right) for label, g, (p, right) in zip(*rows, strict=True)]
        for rows in zip(predicted, gold, probabilities, strict=True)
    ]
    found = None
    if span_probabilities is not None and report.scheme is not None and any(map(len, span_probabilities)):
        rows = []
        for own, labels, ps in zip(gold, predicted, span_probabilities, strict=True):
            right = set(lenient_spans(own))
            pairs = zip(lenient_spans(labels), ps, strict=True)
            rows.append([(p, span in right, p if span in right else 1 - p) for span, p in pairs])
        found = evaluate_confidence(rows, what="spans", support=[len(lenient_spans(own)) for own in gold])
    return replace(report, confidence=evaluate_confidence(tokens), span_confidence=found)


def gold_in_scheme_of(labels: Iterable[str], predicted: Sentences, gold: Sentences) -> Sentences:
    """Return gold labels in the scheme of a tagger (IOB1, BIO or BIOES), with a warning if they have another one.

    ``labels`` are all labels of the tagger. Predictions in IOB1 are compared as they are, since ill-formed BIO may look
    like it; the warning says so.
    """
    ours, theirs = detect_scheme(labels), file_scheme(gold)
    mine = "iob1" if ours == "bio" and file_scheme(predicted) == "iob1" else ours
    if ours is None or theirs is None or mine == theirs:
        return gold
    about = f"the predictions have {str(mine).upper()} labels, and gold has {theirs.upper()}"
    if mine == "iob1":
        warnings.warn(f"{about}: labels of tokens differ even where spans agree.", DataWarning, stacklevel=2)
        return gold
    warnings.warn(f"{about}, which was converted to {ours.upper()} to compare labels.", DataWarning, stacklevel=2)
    return [labels_from_spans(lenient_spans(sentence), len(sentence), ours) for sentence in gold]


def _check_same_shape(name: str, sentences: Sentences, gold: Sentences) -> None:
    for what, given in (("gold", gold), (name, sentences)):
        if isinstance(given, str) or any(isinstance(sentence, str) for sentence in given):
            raise ShapeError(f"{what} must be a list of sentences, each a list of strings: wrap it in a list.")
    if len(sentences) != len(gold):
        raise ShapeError(f"{name} must have as many sentences as gold, got {len(sentences)} and {len(gold)}.")
    for n, (ours, theirs) in enumerate(zip(sentences, gold, strict=True)):
        if len(ours) != len(theirs):
            raise ShapeError(f"{name}[{n}] must be as long as gold[{n}], got {len(ours)} and {len(theirs)} tokens.")


def _by_known_words(
    gold: Sentences, predicted: Sentences, words: Sentences | None, known_words: Iterable[str] | None
) -> tuple[int | None, int | None, float | None, float | None]:
    """Return the numbers of known and unknown tokens, and their accuracies."""
    if words is not None:
        _check_same_shape("words", words, gold)
    if known_words is None:
        return None, None, None, None
    if words is None:
        raise ValueRangeError("known_words needs words, got None: pass the words of each sentence as words=.")
    known = frozenset(known_words)
    tokens = zip(*(chain.from_iterable(x) for x in (words, gold, predicted)), strict=True)
    counts = Counter((word in known, g == p) for word, g, p in tokens)
    n_known, n_unknown = (counts[is_known, True] + counts[is_known, False] for is_known in (True, False))
    known_accuracy = counts[True, True] / n_known if n_known else None
    return n_known, n_unknown, known_accuracy, counts[False, True] / n_unknown if n_unknown else None


def _score_labels(pairs: Counter[tuple[str, str]]) -> dict[str, Score]:
    predicted, support = Counter[str](), Counter[str]()
    for (g, p), n in pairs.items():
        support[g] += n
        predicted[p] += n
    return {x: Score(pairs[x, x], predicted[x], support[x]) for x in sorted({*support, *predicted})}


def _score_chunks(gold: Sentences, predicted: Sentences) -> dict[str, Score]:
    correct, n_predicted, support = Counter[str](), Counter[str](), Counter[str]()
    for g, p in zip(gold, predicted, strict=True):
        gold_spans, predicted_spans = lenient_spans(g), lenient_spans(p)
        support.update(span.type for span in gold_spans)
        n_predicted.update(span.type for span in predicted_spans)
        correct.update(span.type for span in set(gold_spans).intersection(predicted_spans))
    return {x: Score(correct[x], n_predicted[x], support[x]) for x in sorted({*support, *n_predicted})}
