"""Strings to fields beside usaddress and probablepeople: ``python -m benchmarks.fields DATA``.

It prints a JSON line for each race. DATA is a folder with ``usaddress/train.xml`` and ``probablepeople/person.xml``;
both packages and python-crfsuite must be installed. Everything runs on one thread, in turns; the shortest time counts.
"""

import importlib
import json
import random
import sys
import tempfile
import time
from pathlib import Path

FILES = {"usaddress": "usaddress/train.xml", "probablepeople": "probablepeople/person.xml"}
MODELS = {"usaddress": "usaddr.crfsuite", "probablepeople": "person_learned_settings.crfsuite"}


def race(name: str, ours, theirs, *, repeat: int = 5, **more) -> None:
    """Print the shortest seconds of two runs, which take turns; a run may return its own time."""
    best = [float("inf")] * 2
    for _ in range(repeat):
        for k, run in enumerate((ours, theirs)):
            started = time.perf_counter()
            own = run()
            best[k] = min(best[k], own if isinstance(own, float) else time.perf_counter() - started)
    row = {"race": name, "ours_seconds": round(best[0], 6), "theirs_seconds": round(best[1], 6)}
    print(json.dumps(row | {"factor": round(best[1] / best[0], 2)} | more), flush=True)


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
    with tempfile.TemporaryDirectory() as folder:

        def training(module):
            trainer = module.Trainer(verbose=False, params={"c2": 1.0, "delta": 1e-6})
            for pair in zip(X, y, strict=True):
                trainer.append(*pair)
            started = time.perf_counter()
            trainer.train(f"{folder}/{module.__name__}")
            return time.perf_counter() - started

        race(f"{name}: training", lambda: training(ours), lambda: training(pycrfsuite), repeat=3)
    parser, parse = RecordParser().fit(examples), package.parse
    race(f"{name}: 1,000 strings, templates", lambda: parser.parse(texts), lambda: [parse(text) for text in texts])
    model = str(next(Path(package.__file__).parent.glob(f"**/{MODELS[name]}")))
    tagger, original = ours.Tagger().open(model), pycrfsuite.Tagger()
    original.open(model)

    def with_function():
        return tagger.tag_all([package.tokens2features(package.tokenize(text)) for text in texts])

    race(f"{name}: 1,000 strings, a Python function", with_function, lambda: [parse(text) for text in texts])
    some = [package.tokens2features(package.tokenize(text)) for text in texts[:200]]
    race(f"{name}: 200 strings, one per call", *((lambda t=t: [t.tag(s) for s in some]) for t in (tagger, original)))


if __name__ == "__main__":
    from trelliswork.compute.threads import set_num_threads

    set_num_threads(1)
    for package_name in FILES:
        races(package_name, Path(sys.argv[1]))
