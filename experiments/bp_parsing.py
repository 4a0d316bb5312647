"""Dependency parsing of UD English EWT by belief propagation (paper 3): first against second order, gold tags."""

import os
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from experiments.running import timed
from experiments.tables import Curve, Say, Table
from trelliswork import evaluate
from trelliswork.data.conllu import read_dependencies
from trelliswork.learning.report import Step
from trelliswork.models import DependencyParser
from trelliswork.models.parser.training import FIRST, SECOND

NOTE = "UD English EWT, gold tags, punctuation counted; the paper gives no figure for this treebank"


def bp_parsing(
    folder: str | os.PathLike[str],
    *,
    orders: Sequence[int] = (1, 2),
    n_sentences: int = 0,
    seed: int = 0,
    say: Say = lambda _: None,
    **settings: Any,
) -> Table:
    """UAS and LAS on the test part, training time and speed, of parsers of the first and second order.

    The folder has the files ``en_ewt-ud-train.conllu`` and ``-test`` (or other treebanks with names that end so);
    ``n_sentences`` are used for training, 0 for all. ``settings`` are those of ``DependencyParser``.
    """
    train, test = (read_dependencies(_file(folder, part)) for part in ("train", "test"))
    n = n_sentences or None
    X, y = _sentences(train[0])[:n], train[1][:n]
    table = Table(
        "UD English EWT, gold tags, punctuation counted: test part",
        ["order", "UAS", "LAS", "root", "exact", "calibration error", "train s", "sentences/s"],
        axes=("epoch", "loss a word"),
    )
    found: list[float] = []  # UAS
    n_words, unseen = sum(map(len, y)), _sentences(test[0])
    for order in orders:
        curve = Curve(f"order {order}")

        def tell(step: Step, order: int = order, curve: Curve = curve) -> None:
            if step.stage in (FIRST, SECOND):
                say(f"order {order}, epoch {step.iteration}: loss {step.value:.1f}, {step.seconds:.0f} s")
                curve.add(step.iteration, step.value / n_words)

        parser = DependencyParser(order, seed=seed, **settings)
        _, trained = timed(partial(parser.fit, X, y, callback=tell))
        parser.predict(unseen[:1])
        speed = len(unseen) / timed(parser.predict, unseen)[1]
        report = evaluate(parser, unseen, test[1])
        assert report.las is not None
        figures = [100 * report.uas, 100 * report.las, 100 * report.root_accuracy, 100 * report.exact]
        table.rows.append([order, *figures, report.confidence.calibration_error.value, trained, speed])
        table.curves.append(curve)
        found.append(report.uas)
        for name, value in zip(("UAS", "LAS"), figures, strict=False):
            table.add(f"order {order}: {name}", None, value, "%", trained, NOTE)
        table.add(f"order {order}: training", None, trained, "s", trained, f"labels included; {NOTE}")
        table.add(f"order {order}: parsing", None, speed, "sentences/s", None, f"labels included; {NOTE}")
    if len(orders) > 1:
        table.notes.append(
            f"Gain of order {orders[-1]} over order {orders[0]}: {100 * (found[-1] - found[0]):+.2f} UAS."
        )
    return table


def _sentences(corpus: Any) -> list[list[tuple[str, ...]]]:
    """Tuples of all columns."""
    rows = list(zip(*corpus.columns, strict=True))
    return [rows[a:b] for a, b in pairwise(corpus.offsets.tolist())]


def _file(folder: str | os.PathLike[str], part: str) -> Path:
    found = sorted(Path(folder).glob(f"*-ud-{part}.conllu"))
    return found[0] if found else Path(folder) / f"en_ewt-ud-{part}.conllu"  # the reader says that it is missing
