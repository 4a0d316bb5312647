"""Taggers under rules, and the same taggers without: addresses whose fields occur once, entities with limits.

Each function takes ``{"task": ..., "data": ..., "n_iter": ...}``. The models are trained before the timing, with few
iterations: speed does not depend on more. Task ``train`` times the training itself.
"""

import warnings
from collections import Counter
from functools import reduce
from itertools import groupby, pairwise, product
from operator import and_
from typing import Any, NamedTuple

from benchmarks.contenders.crf import data_folder
from benchmarks.declarations import Params, Task


class Problem(NamedTuple):
    """Parameters of a CRF, sentences and labels to train on, sentences to tag, and rules learned from the labels."""

    parameters: dict[str, Any]
    X: Any
    y: Any
    others: Any
    rules: Any


def trelliswork(params: Params) -> Task:
    """Answer under the rules."""
    return _task(params, ruled=True)


def plain(params: Params) -> Task:
    """Answer without them; instead of the probability of the rules, all marginals."""
    return _task(params, ruled=False)


def _task(params: Params, ruled: bool) -> Task:
    from trelliswork import CRF

    problem = {"addresses": addresses, "sentences": entities}[params["data"]]()
    under: dict[str, Any] = {"rules": problem.rules} if ruled else {}
    model = CRF(**problem.parameters, max_iter=params["n_iter"])
    if params["task"] == "train":
        kept = {"rules": reduce(and_, problem.rules.parts[: params["n_rules"]])} if ruled else {}
        return Task(lambda: _fit(model, problem, **kept))
    _fit(model, problem)
    X = problem.others[: params.get("n")]
    if params["task"] == "probability" and ruled:
        return Task(lambda: model.rules_probability(X, problem.rules))
    call: Any = {
        "tag": model.predict, "marginals": model.predict_marginals, "probability": model.predict_marginals,
        "best": lambda X, **given: model.predict_topk(X, 5, **given),
    }[params["task"]]  # fmt: skip
    return Task(lambda: call(X, **under))


def _fit(model: Any, problem: Problem, **given: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few iterations; a label of the data that breaks BIO
        model.fit(problem.X, problem.y, **given)


def addresses() -> Problem:
    """Every field that is contiguous in all training strings occurs at most once."""
    from trelliswork.records import read_records
    from trelliswork.rules import AtMostOnce

    X, y = tagged(read_records(data_folder() / "records" / "usaddress" / "train.xml"))
    runs = [Counter(label for label, _ in groupby(row)) for row in y]
    several = {label for own in runs for label, n in own.items() if n > 1}
    once = sorted({label for own in runs for label in own} - several)
    return Problem({"features": "records", "scheme": None, "l2": 0.05}, X[::2], y[::2], X, AtMostOnce(*once))


def tagged(examples: Any) -> tuple[list[list[str]], list[list[str]]]:
    """Return the words of records, separated by blanks, and the field of each, ``O`` for none."""
    X, y = [], []
    for example in examples:
        ends = [0]
        for word in example.text.split(" "):
            ends.append(ends[-1] + len(word) + 1)
        words = [(a, b - 1) for a, b in pairwise(ends) if b - 1 > a]
        X.append([example.text[a:b] for a, b in words])
        y.append([next((s.type for s in example.spans if s.start < b and a < s.stop), "O") for a, b in words])
    return X, y


def entities() -> Problem:
    """No entity is longer than those of training, and types that never touch there do not."""
    from trelliswork import read_columns

    train, test = (read_columns(data_folder() / "conll2002" / f"esp.{part}") for part in ("train", "testb"))
    X, y = train.sentences(0), [list(row) for row in train.sentences(-1)]
    return Problem({"features": "ner", "l2": 0.1}, X[:3000], y[:3000], test.sentences(0), limits(y))


def limits(y: Any) -> Any:
    """Return the rules of entities that all labels satisfy."""
    from trelliswork.data.schemes import spans
    from trelliswork.rules import Length, Pattern

    lengths: Counter[str] = Counter()
    touching = set()
    for row in y:
        found = spans(row)
        touching |= {(a.type, b.type) for a, b in pairwise(found) if a.stop == b.start}
        for span in found:
            lengths[span.type] = max(lengths[span.type], span.stop - span.start)
    rules: list[Any] = [Length(name, maximum=n) for name, n in sorted(lengths.items())]
    rules += [~Pattern(f".* {a} {b} .*") for a, b in product(sorted(lengths), repeat=2) if (a, b) not in touching]
    return reduce(and_, rules)
