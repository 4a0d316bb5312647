"""Strings to fields beside usaddress, probablepeople and python-crfsuite: ``python -m benchmarks.fields DATA``.

It prints a JSON line for each race; ``--record FILE`` also writes them to the records of benchmarks. DATA is a folder
with ``usaddress/train.xml``, ``probablepeople/person.xml`` and ``grobid/affiliation-address.train``; both packages and
python-crfsuite must be installed. Everything runs on one thread, in turns; the shortest time counts.

Training is from lists of attributes to a saved model. "Equal objective" ends ours at the first iteration whose
objective is within 1e-4 of the final one of python-crfsuite.
"""

import argparse
import importlib
import random
import tempfile
import time
from pathlib import Path

from benchmarks.declarations import Case, Contender
from benchmarks.harness import describe_processor
from benchmarks.records import Origin, entry, update
from benchmarks.rows import Row

FILES = {"usaddress": "usaddress/train.xml", "probablepeople": "probablepeople/person.xml"}
MODELS = {"usaddress": "usaddr.crfsuite", "probablepeople": "person_learned_settings.crfsuite"}
OURS = Contender("trelliswork", "", precision="float32")
EQUAL = "ours within 1e-4 of CRFsuite's final objective"
ROWS: list[tuple[Row, str]] = []


def race(name: str, peer: str, ours, theirs, *, repeat: int = 5, stop: str = "") -> None:
    """Print the shortest seconds of two runs, which take turns; a run may return its own time."""
    best = [float("inf")] * 2
    for _ in range(repeat):
        for k, run in enumerate((ours, theirs)):
            started = time.perf_counter()
            own = run()
            best[k] = min(best[k], own if isinstance(own, float) else time.perf_counter() - started)
    ROWS.append((Row("fields", name, peer, 1, best[0], best[1]), stop))
    print(ROWS[-1][0].to_json(), flush=True)


def training_races(name: str, X, y, *, repeat: int) -> None:
    """Train by the default parameters of python-crfsuite, each by its own stopping rule, and to an equal objective."""
    import pycrfsuite

    from trelliswork.compat import pycrfsuite as ours

    with tempfile.TemporaryDirectory() as folder:

        def training(module, **params):
            trainer = module.Trainer(verbose=False, params=params)
            for pair in zip(X, y, strict=True):
                trainer.append(*pair)
            started = time.perf_counter()
            trainer.train(f"{folder}/{module.__name__}")
            return time.perf_counter() - started, trainer.logparser

        theirs, (_, log) = training(pycrfsuite), training(ours)
        goal = theirs[1].last_iteration["loss"] * (1 + 1e-4)
        losses = [step["loss"] for step in log.iterations]
        n = next((k for k, loss in enumerate(losses, start=1) if loss <= goal), len(losses))
        times = iter([theirs[0]])

        def other():
            return next(times, None) or training(pycrfsuite)[0]

        race(
            f"{name}: train", "crfsuite", lambda: training(ours)[0], other, repeat=repeat, stop="own stopping rule each"
        )
        best = ROWS[-1][0].peer_seconds
        name = f"{name}: train, equal objective"
        race(name, "crfsuite", lambda: training(ours, max_iterations=n)[0], lambda: best, repeat=repeat, stop=EQUAL)


def grobid(path: Path) -> tuple[list[list[list[str]]], list[list[str]]]:
    """Return attributes and labels of a training file: each column of a token, of its neighbors, and two beyond."""
    X, y = [], []
    for block in path.read_text(encoding="utf-8").replace("\n \n", "\n\n").strip().split("\n\n"):
        rows = [line.split() for line in block.split("\n")]
        reach = [(c, r) for c in range(len(rows[0]) - 1) for r in range(-2 if c < 2 else -1, 3 if c < 2 else 2)]
        X.append([
            [f"{c}[{r}]={rows[t + r][c]}" for c, r in reach if 0 <= t + r < len(rows)] for t in range(len(rows))
        ])  # fmt: skip
        y.append([row[-1] for row in rows])
    return X, y


def races(name: str, data: Path) -> None:
    """Run the races beside one package."""
    import pycrfsuite

    from trelliswork.compat import pycrfsuite as ours
    from trelliswork.records import RecordParser, read_records

    package = importlib.import_module(name)
    examples = [e for e in read_records(data / FILES[name]) if e.text]
    texts = random.Random(0).choices([e.text for e in examples], k=1000)
    X, y = [], []
    for example in examples:
        tokens, at = package.tokenize(example.text), 0
        labels = []
        for token in tokens:
            at = example.text.index(token, at)
            labels.append(next((s.type for s in example.spans if s.start < at + len(token) and at < s.stop), "none"))
            at += len(token)
        X.append(package.tokens2features(tokens))
        y.append(labels)
    training_races(name, X, y, repeat=3)
    parser, parse = RecordParser().fit(examples), package.parse
    race(
        f"{name}: 1,000 strings, templates", name, lambda: parser.parse(texts), lambda: [parse(text) for text in texts]
    )
    model = str(next(Path(package.__file__).parent.glob(f"**/{MODELS[name]}")))
    tagger, original = ours.Tagger().open(model), pycrfsuite.Tagger()
    original.open(model)

    def with_function():
        return tagger.tag_all([package.tokens2features(package.tokenize(text)) for text in texts])

    race(f"{name}: 1,000 strings, a Python function", name, with_function, lambda: [parse(text) for text in texts])
    some = [package.tokens2features(package.tokenize(text)) for text in texts[:200]]
    race(
        f"{name}: 200 strings, one per call",
        "crfsuite",
        *((lambda t=t: [t.tag(s) for s in some]) for t in (tagger, original)),
    )


if __name__ == "__main__":
    from trelliswork.compute.threads import set_num_threads

    given = argparse.ArgumentParser(description="Strings to fields beside other packages.")
    given.add_argument("data", type=Path)
    given.add_argument("--record", type=Path, help="File of records to update.")
    options = given.parse_args()
    set_num_threads(1)
    for package_name in FILES:
        races(package_name, options.data)
    training_races("affiliation-address", *grobid(options.data / "grobid/affiliation-address.train"), repeat=1)
    if options.record is not None:
        origin = Origin(
            "python -m benchmarks.fields DATA", describe_processor(), time.strftime("%Y-%m-%d", time.gmtime())
        )
        entries = [
            entry(row, OURS, Contender(str(row.peer), "", precision="float64", one_thread=True),
                  Case(row.case, {}, stop=stop), origin)
            for row, stop in ROWS
        ]  # fmt: skip
        update(options.record, entries)
