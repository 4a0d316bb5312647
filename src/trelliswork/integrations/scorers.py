"""Scorers for scikit-learn: ``GridSearchCV(CRF(), ..., scoring=chunk_f1_scorer)``.

Each takes an estimator, sentences and gold answers, and returns a number: larger is better.
"""

from collections.abc import Sequence
from typing import Any

from trelliswork.errors import ValueRangeError


def accuracy_scorer(estimator: Any, X: Any, y: Sequence[Sequence[str]]) -> float:
    """Return the fraction of tokens with the correct label."""
    from trelliswork.metrics.tagging import evaluate_tagging

    return float(evaluate_tagging(y, estimator.predict(X), scheme=None).accuracy)


def chunk_f1_scorer(estimator: Any, X: Any, y: Sequence[Sequence[str]]) -> float:
    """Return F1 of chunks: a chunk is correct if its type, start and end are. The scheme is detected."""
    from trelliswork.metrics.tagging import evaluate_tagging

    chunks = evaluate_tagging(y, estimator.predict(X)).chunks
    if chunks is None:
        raise ValueRangeError("F1 of chunks needs labels with a scheme, such as B-NP, I-NP and O; got plain tags.")
    return float(chunks.f1)


def las_scorer(estimator: Any, X: Any, y: Sequence[Sequence[Any]]) -> float:
    """Return the labeled attachment score: the fraction of words with the correct head and arc label."""
    report = _attachment(estimator, X, y)
    if report.las is None:
        raise ValueRangeError("LAS needs arc labels: y must have (head, label) for each word.")
    return float(report.las)


def uas_scorer(estimator: Any, X: Any, y: Sequence[Sequence[Any]]) -> float:
    """Return the unlabeled attachment score: the fraction of words with the correct head."""
    return float(_attachment(estimator, X, y).uas)


def _attachment(estimator: Any, X: Any, y: Sequence[Sequence[Any]]) -> Any:
    """Return the comparison of predicted trees with gold ones, words with their heads or (head, label)."""
    from trelliswork.metrics.dependencies import evaluate_parsing

    pairs = [[_pair(word) for word in sentence] for sentence in y]
    found = [[_pair(word) for word in sentence] for sentence in estimator.predict(X)]
    sides = [[[[word[k] for word in s] for s in trees] for k in range(2)] for trees in (pairs, found)]
    (gold_heads, gold_labels), (heads, labels) = sides
    named = all(label is not None for sentence in gold_labels for label in sentence)
    names: Any = [gold_labels, labels] if named else []
    return evaluate_parsing(gold_heads, heads, *names)


def _pair(word: Any) -> tuple[int, Any]:
    return (word, None) if isinstance(word, int) else (word[0], word[1])
