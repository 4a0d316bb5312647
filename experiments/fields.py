"""Fields of real records in folds: accuracy, probabilities, and what a threshold accepts (beside the papers)."""

import os
from pathlib import Path

import numpy as np

from experiments.tables import Say, Table
from trelliswork.metrics.calibration import calibration_error, reliability
from trelliswork.metrics.tagging import Score
from trelliswork.records import RecordParser, RecordReport, read_records

FILES = {
    "usaddress": "usaddress/train.xml",
    "probablepeople": "probablepeople/person.xml",
    "anystyle": "anystyle/core.xml",
}
TARGET = 0.99  # precision of accepted records


def fields(
    folder: str | os.PathLike[str], *, n_folds: int = 5, n_sentences: int | None = None, say: Say = lambda _: None
) -> Table:
    """Train parsers with ``rules="once"`` on all folds but two, calibrate on one of these, and test on the other.

    The threshold for accepted records comes from the fold that calibrates. ``n_sentences`` limits the records.
    """
    names = ["records right", "field F1", "field error", "record error", "accepted", "accepted right"]
    table = Table(f"Records in {n_folds} folds, in percent; calibration errors of fields and records", ["data", *names])
    for name, file in FILES.items():
        say(name)
        examples = [e for e in read_records(Path(folder) / file) if e.text][:n_sentences]
        parts = [examples[k::n_folds] for k in range(n_folds)]
        reports, accepted = list[RecordReport](), list[tuple[int, int]]()
        for k in range(n_folds):
            dev = parts[(k + 1) % n_folds]
            train = [e for j in range(2, n_folds) for e in parts[(k + j) % n_folds]]
            parser = RecordParser(rules="once").fit(train).calibrate(dev)
            threshold = parser.evaluate(dev).record_confidence.at_precision(TARGET).threshold
            reports.append(parser.evaluate(parts[k]))
            p, right, *_ = reports[-1].record_confidence.answers
            taken = p >= (2.0 if threshold is None else threshold.value)
            accepted.append((int(taken.sum()), int(right[taken].sum())))
        n, (n_taken, n_right) = sum(r.n_records for r in reports), np.sum(accepted, axis=0)
        found = Score(*np.sum([(r.fields.correct, r.fields.predicted, r.fields.support) for r in reports], axis=0))
        errors = [
            calibration_error(reliability(*(np.concatenate([c.answers[k] for c in own]) for k in (0, 1))))
            for own in ([r.confidence for r in reports], [r.record_confidence for r in reports])
        ]
        right_records = sum(r.accuracy * r.n_records for r in reports)
        rates = 100 * right_records / n, 100 * found.f1, *errors, 100 * n_taken / n, 100 * n_right / max(n_taken, 1)
        table.rows.append([name, *map(float, rates)])
        for measure, rate in zip(names, rates, strict=True):
            table.add(f"{name}: {measure}", None, float(rate), "" if "error" in measure else "%")
    return table
