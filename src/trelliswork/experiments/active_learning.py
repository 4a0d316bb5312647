"""Active learning, simulated: labels that a tagger needs if it chooses the sentences, against random choice."""

import os
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from trelliswork.errors import ConvergenceWarning
from trelliswork.experiments.chain_tagging import read_tagged
from trelliswork.experiments.tables import Cell, Curve, Say, Table
from trelliswork.models import CRF
from trelliswork.models.selection import Criterion, select

RANDOM, PER_TOKEN = "random", " per token"


def active_learning(
    folder: str | os.PathLike[str],
    *,
    target: float = 93.0,
    by: Sequence[str] = (RANDOM, "entropy", "diverse entropy"),
    first: int = 100,
    growth: float = 1.3,
    max_iter: int = 40,
    n_sentences: int | None = None,
    seed: int = 0,
    say: Say = lambda _: None,
) -> Table:
    """Count the labeled sentences and tokens of UD English EWT that a CRF needs for an XPOS accuracy on the test part.

    The pool is the training part, whose labels are hidden until a sentence is chosen. Each run starts with the same
    ``first`` random sentences; in each round the labeled set grows by the factor ``growth``, and the CRF continues from
    the weights of the round before. Numbers at the target are interpolated between rounds.

    Parameters
    ----------
    by : list of str
        "random", or a criterion of `select`: "diverse entropy" is the greedy choice, "entropy per token" divides by the
        length of a sentence.
    """
    X, y = (column[:n_sentences] for column in read_tagged(Path(folder), "train"))
    test = read_tagged(Path(folder), "test")
    order = np.random.default_rng(seed).permutation(len(X)).tolist()
    table = Table(
        f"Labels for {target:g} % XPOS accuracy on UD English EWT, test part (pool of {len(X):,} sentences)",
        ["choice", "sentences", "tokens", "of random's sentences", "of random's tokens", "rounds"],
        axes=("labeled sentences", "accuracy, %"),
    )
    needed: dict[str, tuple[float, float] | None] = {}
    for name in by:
        say(f"choice: {name}")
        curve, tokens = _run(X, y, test, order, name, target, first, growth, max_iter, say)
        table.curves.append(curve)
        needed[name] = at_target(curve, tokens, target)
    base = needed.get(RANDOM)
    for name, curve in zip(by, table.curves, strict=True):
        found = needed[name]
        cells: list[Cell] = [None] * 4
        if found is not None:
            cells[:2] = [round(found[0]), round(found[1])]
            cells[2:] = [None, None] if base is None else [found[0] / base[0], found[1] / base[1]]
        table.rows.append([name, *cells, len(curve.x)])
        table.add(f"{name}: sentences", None, None if found is None else found[0], "sentences")
        table.add(f"{name}: tokens", None, None if found is None else found[1], "tokens")
    table.notes.append("Sentences that a model is uncertain about are longer than others: compare tokens too.")
    return table


def _run(
    X: list[list[str]],
    y: list[list[str]],
    test: tuple[list[list[str]], list[list[str]]],
    order: list[int],
    name: str,
    target: float,
    first: int,
    growth: float,
    max_iter: int,
    say: Say,
) -> tuple[Curve, list[int]]:
    """Run one way to choose until the target or the end of the pool; return accuracies by sentences, and tokens."""
    labeled, rest = order[:first], order[first:]
    model: CRF | None = None
    curve, tokens = Curve(name), []
    while True:
        fresh = CRF("pos", max_iter=max_iter, tol=1e-3)
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            fresh.fit([X[k] for k in labeled], [y[k] for k in labeled], start=model)
        model = fresh
        accuracy = 100 * model.score(*test)
        tokens.append(sum(len(X[k]) for k in labeled))
        curve.add(len(labeled), accuracy)
        say(f"{len(labeled):,} sentences, {tokens[-1]:,} tokens: {accuracy:.2f} %")
        if accuracy >= target or not rest:
            return curve, tokens
        n = min(len(rest), max(1, round(len(labeled) * (growth - 1))))
        if name == RANDOM:
            chosen = rest[:n]
        else:
            criterion: Criterion = name.removeprefix("diverse ").removesuffix(PER_TOKEN)  # type: ignore[assignment]
            options = {"diverse": name.startswith("diverse "), "per_token": name.endswith(PER_TOKEN)}
            found = select(model, [X[k] for k in rest], n, by=criterion, **options)
            chosen = [rest[one.sentence] for one in found]
        taken = set(chosen)
        labeled = labeled + chosen
        rest = [k for k in rest if k not in taken]


def at_target(curve: Curve, tokens: Sequence[int], target: float) -> tuple[float, float] | None:
    """Return the numbers of sentences and tokens at which a curve first has the target; ``None`` if it never does.

    Between two rounds the accuracy is linear in the logarithm of the numbers.
    """
    for k, accuracy in enumerate(curve.y):
        if accuracy < target:
            continue
        if k == 0:
            return curve.x[0], float(tokens[0])
        share = (target - curve.y[k - 1]) / (accuracy - curve.y[k - 1])
        sizes = [(curve.x[k - 1], curve.x[k]), (tokens[k - 1], tokens[k])]
        sentences, words = (float(np.exp(np.log(a) + share * (np.log(b) - np.log(a)))) for a, b in sizes)
        return sentences, words
    return None
