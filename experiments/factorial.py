"""Joint POS tags and chunks of CoNLL-2000 (paper 3): one factorial CRF against two CRFs with the same features."""

import os
from collections.abc import Sequence
from pathlib import Path

from experiments.running import timed
from experiments.tables import Say, Table
from trelliswork.data import read_columns
from trelliswork.metrics.tagging import evaluate_tagging
from trelliswork.models import CRF, FactorialCRF

FEATURES = "pos"  # neighbors, affixes and shapes of words; never the tags of the file
ALL = 0  # size of the whole training part
Columns = tuple[list[list[str]], list[list[str]], list[list[str]]]


def factorial(
    folder: str | os.PathLike[str],
    *,
    sizes: Sequence[int] = (200, 1000, ALL),
    engines: Sequence[str] = ("bp",),
    l2: float = 1.0,
    say: Say = lambda _: None,
) -> Table:
    """Measure chunk F1, POS accuracy and joint accuracy of two CRFs and of joint models, by training size.

    The folder has train.txt and test.txt of CoNLL-2000. Sizes are numbers of training sentences, from the first; 0 is
    all. Engines are those of the factorial CRF: "bp", "structured_mean_field", "exact".
    """
    table = Table(
        "CoNLL-2000, parts of speech and chunks from words alone, in percent on the test part",
        ["sentences", "model", "chunk F1", "POS", "joint", "train s", "tag s", "iterations"],
        notes=[f"Preset {FEATURES}, L2 {l2:g}; joint: tokens with both labels correct."],
    )
    test = _read(Path(folder) / "test.txt", ALL)
    for size in sizes:
        words, tags, chunks = _read(Path(folder) / "train.txt", size)
        say(f"{len(words):,} sentences: two CRFs")
        models = [timed(CRF(FEATURES, l2=l2).fit, words, y) for y in (tags, chunks)]
        answers = [timed(model.predict, test[0]) for model, _ in models]
        times = [sum(seconds for _, seconds in runs) for runs in (models, answers)]
        rates = _rates(test, *(labels for labels, _ in answers))
        _add(table, len(words), "two CRFs", rates, times, sum(model.report_.n_iter for model, _ in models))
        for engine in engines:
            say(f"{len(words):,} sentences: {engine}")
            joint = FactorialCRF(("pos", "chunk"), features=FEATURES, l2=l2, engine=engine)  # type: ignore[arg-type]
            _, trained = timed(joint.fit, words, {"pos": tags, "chunk": chunks})
            layers, tagged = timed(joint._predict_layers, test[0])
            rates = _rates(test, layers["pos"], layers["chunk"])
            _add(table, len(words), f"factorial CRF, {engine}", rates, [trained, tagged], joint.report_.n_iter)
    return table


def _add(table: Table, size: int, model: str, rates: list[float], times: list[float], n_iter: int) -> None:
    """Add a row and its figures; the paper has none for this data."""
    table.rows.append([size, model, *rates, *times, n_iter])
    for what, rate in zip(("chunk F1", "POS", "joint"), rates, strict=True):
        note = "the paper has no figure for this data"
        table.add(f"{size} sentences, {model}: {what}", None, rate, "%", times[0], note)


def _read(path: Path, n_sentences: int) -> Columns:
    """Return words, tags and chunk labels."""
    corpus = read_columns(path)
    words, tags, chunks = (corpus.sentences(c)[: n_sentences or None] for c in range(3))
    return words, tags, chunks


def _rates(test: Columns, tags: list[list[str]], chunks: list[list[str]]) -> list[float]:
    """Return chunk F1, POS accuracy and joint accuracy in percent."""
    pos, chunk = evaluate_tagging(test[1], tags), evaluate_tagging(test[2], chunks)
    assert chunk.chunks is not None
    right = [
        g == p and h == q
        for one in zip(test[1], tags, test[2], chunks, strict=True)
        for g, p, h, q in zip(*one, strict=True)
    ]
    return [100 * chunk.chunks.f1, 100 * pos.accuracy, 100 * sum(right) / len(right)]
