"""Dependency parser of order 2 with default settings on UD English EWT with gold tags.

The function takes ``{"task": ..., "sentences": ...}``, the number of training sentences (0: all). Tasks: ``parse``, the
development part, words to heads and labels, by a parser that is trained before; ``train``, from sentences in memory.
Digests are processor time of the last call, of all threads, and accuracies on the development part.
"""

import time
from typing import Any

from benchmarks.contenders.crf import data_folder
from benchmarks.declarations import Params, Task


def read_ewt(split: str) -> tuple[list[list[tuple[str, ...]]], Any]:
    """Return words with UPOS and XPOS tags, and pairs of head and label."""
    from trelliswork.data.conllu import read_dependencies

    corpus, y = read_dependencies(data_folder() / "ud-en-ewt" / f"en_ewt-ud-{split}.conllu")
    columns = [corpus.sentences(k) for k in range(3)]
    return [list(zip(*rows, strict=True)) for rows in zip(*columns, strict=True)], y


def trelliswork(params: Params) -> Task:
    """Ours."""
    from trelliswork import DependencyParser

    (X, y), (unseen, gold) = read_ewt("train"), read_ewt("dev")
    n = params["sentences"] or len(y)
    X, y = X[:n], y[:n]

    def timed(work: Any) -> tuple[Any, float]:
        start = time.process_time()
        return work(), time.process_time() - start

    def accuracies(trees: Any) -> dict[str, float]:
        rows = [(a, b) for tree, given in zip(trees, gold, strict=True) for a, b in zip(tree, given, strict=True)]
        correct = {"UAS": sum(a[0] == b[0] for a, b in rows), "LAS": sum(a == b for a, b in rows)}
        return {name: round(100 * k / len(rows), 2) for name, k in correct.items()}

    if params["task"] == "train":
        return Task(
            lambda: timed(lambda: DependencyParser().fit(X, y)),
            lambda result: {"only_cpu_seconds": round(result[1], 2), **accuracies(result[0].predict(unseen))},
        )
    parser = DependencyParser().fit(X, y)
    return Task(
        lambda: timed(lambda: parser.predict(unseen)),
        lambda result: {"only_sentences_per_cpu_second": round(len(gold) / result[1]), **accuracies(result[0])},
    )
