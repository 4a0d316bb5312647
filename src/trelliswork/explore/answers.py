"""Probabilities as JSON has them, and which labels of many are worth a row."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

MAX_LABELS = 24  # rows of a trellis
WORTH = 0.01  # a label that is nowhere more probable gets no row


def plain(value: float) -> float | None:
    """A number with six digits; None for what JSON does not have."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def evidence_answer(log_p: float, kind: str) -> dict[str, Any]:
    """How probable some evidence was; ``kind`` says whether that is exact."""
    return {"p": plain(min(1.0, math.exp(min(log_p, 0.0)))), "log_p": plain(min(log_p, 0.0)), "kind": kind}


Rows = Sequence[Mapping[Any, float]]


def layer_answer(
    name: str,
    labels: Sequence[str],
    now: tuple[Sequence[str], Rows],
    before: tuple[Sequence[str], Rows] | None,
    named: Collection[str] = (),
) -> dict[str, Any]:
    """One layer of labels: the path, and the probabilities of the labels that are worth a row.

    Parameters
    ----------
    name : str
    labels : list of str
        All of them; rows keep this order.
    now, before : (path, marginals)
        The best label of each token and p(label) for each, as dicts; ``before`` without evidence.
    named : collection of str
        Labels that the evidence names: they get a row in any case.
    """
    both = [now, *([] if before is None else [before])]
    highest = {label: max(row.get(label, 0.0) for _, rows in both for row in rows) for label in labels}
    must = set(named).union(*(path for path, _ in both))
    worth = sorted(labels, key=lambda label: (label not in must, -highest[label]))[: max(MAX_LABELS, len(must))]
    kept = {label for label in worth if label in must or highest[label] >= WORTH}
    shown = [label for label in labels if label in kept]

    def numbers(rows: Rows) -> list[list[float | None]]:
        return [[plain(row.get(label, 0.0)) for label in shown] for row in rows]

    return {
        "name": name,
        "labels": shown,
        "n_labels": len(labels),
        "path": list(now[0]),
        "marginals": numbers(now[1]),
        "before": None if before is None else {"path": list(before[0]), "marginals": numbers(before[1])},
    }
