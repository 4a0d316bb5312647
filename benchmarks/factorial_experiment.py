"""POS tags and chunks of CoNLL-2000 jointly: one FactorialCRF against two CRFs on the same features.

Features see words only (the preset ``pos``: neighbours, affixes, shapes), never the tags of the file. Trained on the
first 200, 1,000 or all sentences of train.txt, judged on test.txt.

    python benchmarks/factorial_experiment.py DATA/conll2000 --sizes 200 1000 --engines bp
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from trelliswork import CRF, FactorialCRF, read_columns
from trelliswork.learning.metrics import evaluate_tagging

FEATURES = "pos"
ALL = 0  # a size: every sentence


@dataclass(frozen=True)
class Row:
    """What one model reached; rates lie between 0 and 1, times are seconds."""

    n_sentences: int
    model: str
    chunk_f1: float
    pos_accuracy: float
    joint_accuracy: float
    train_seconds: float
    tag_seconds: float
    n_iter: int


Columns = tuple[list[list[str]], list[list[str]], list[list[str]]]


def read(path: Path, n_sentences: int = ALL) -> Columns:
    """Words, tags and chunk labels."""
    corpus = read_columns(path)
    words, tags, chunks = (corpus.sentences(c)[: n_sentences or None] for c in range(3))
    return words, tags, chunks


def separate(train: Columns, test: Columns, l2: float) -> Row:
    """Two CRFs that know nothing of each other."""
    words, *labels = train
    began = time.perf_counter()
    models = [CRF(FEATURES, l2=l2).fit(words, y) for y in labels]
    trained = time.perf_counter()
    tags, chunks = (model.predict(test[0]) for model in models)
    n_iter = sum(model.report_.n_iter for model in models)
    return _row(len(words), "two CRFs", test, tags, chunks, trained - began, time.perf_counter() - trained, n_iter)


def joint(train: Columns, test: Columns, l2: float, engine: str) -> Row:
    """One factorial CRF."""
    words, tags, chunks = train
    began = time.perf_counter()
    model = FactorialCRF(("pos", "chunk"), FEATURES, l2=l2, engine=engine)  # type: ignore[arg-type]
    model.fit(words, {"pos": tags, "chunk": chunks})
    trained = time.perf_counter()
    found = model.predict_layers(test[0])
    times = trained - began, time.perf_counter() - trained
    name = f"FactorialCRF, {engine}"
    return _row(len(words), name, test, found["pos"], found["chunk"], *times, model.report_.n_iter)


def _row(
    n: int,
    name: str,
    test: Columns,
    tags: list[list[str]],
    chunks: list[list[str]],
    fit: float,
    tag: float,
    n_iter: int,
) -> Row:
    pos, chunk = evaluate_tagging(test[1], tags), evaluate_tagging(test[2], chunks)
    assert chunk.chunks is not None
    right = [
        g == p and h == q
        for one in zip(test[1], tags, test[2], chunks, strict=True)
        for g, p, h, q in zip(*one, strict=True)
    ]
    rates = chunk.chunks.f1, pos.accuracy, sum(right) / len(right)
    return Row(n, name, *rates, round(fit, 2), round(tag, 2), n_iter)


def experiment(
    folder: Path,
    sizes: Sequence[int] = (200, 1000, ALL),
    engines: Sequence[str] = ("bp", "structured_mean_field"),
    l2: float = 1.0,
) -> Iterator[Row]:
    """A row for the two CRFs and one for each engine, for each size."""
    test = read(folder / "test.txt")
    for size in sizes:
        train = read(folder / "train.txt", size)
        runs: list[Callable[[], Row]] = [lambda train=train: separate(train, test, l2)]
        runs += [lambda train=train, engine=engine: joint(train, test, l2, engine) for engine in engines]
        for run in runs:
            yield run()


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    lines = ["| sentences | model | chunk F1 | POS | joint | train s | tag s |", "|---|---|---|---|---|---|---|"]
    for r in rows:
        rates = " | ".join(f"{100 * x:.2f}" for x in (r.chunk_f1, r.pos_accuracy, r.joint_accuracy))
        lines.append(f"| {r.n_sentences:,} | {r.model} | {rates} | {r.train_seconds:.1f} | {r.tag_seconds:.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Run the experiment; rows appear as they are ready, the table at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where train.txt and test.txt of CoNLL-2000 are")
    parser.add_argument("--sizes", type=int, nargs="+", default=[200, 1000, ALL], help="sentences; 0: all")
    parser.add_argument("--engines", nargs="+", default=["bp", "structured_mean_field"])
    parser.add_argument("--l2", type=float, default=1.0)
    options = parser.parse_args()
    rows = []
    for row in experiment(options.folder, options.sizes, options.engines, options.l2):
        rows.append(row)
        print(json.dumps(asdict(row)), file=sys.stderr, flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
