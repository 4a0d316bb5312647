"""Chains (paper 1): taggers trained on labels, states induced from words by EM, and a CRF that chooses its labels."""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from experiments.running import fit, timed
from experiments.tables import Cell, Curve, Say, Table
from trelliswork.data import read_columns, read_conllu, read_text
from trelliswork.data.moments import count_moments
from trelliswork.data.tokenize import raw_sentences
from trelliswork.errors import ConvergenceWarning
from trelliswork.features.brown import BrownClusters
from trelliswork.features.vectors import WordVectors
from trelliswork.integrations.selection import Criterion, select
from trelliswork.learning.report import Step
from trelliswork.metrics.induction import evaluate_induction
from trelliswork.metrics.tagging import evaluate_tagging
from trelliswork.models import CRF, HMM

Split = tuple[list[list[str]], list[list[str]]]  # words, tags
RANDOM, PER_TOKEN = "random", " per token"  # ways to choose sentences
DATASETS = ("ud-en-ewt", "conll2000")
NAMES = {"conll2000": "CoNLL-2000 POS", "ud-en-ewt": "UD EWT XPOS"}
NOTE = "the paper is lecture notes without figures"
PUBLIC = {  # other taggers on the same split: all words, unseen words
    "ud-en-ewt": "NLTK's TnT with its best model of unknown words has 92.7 and 68.6",
    "conll2000": "a public first-order tagger with a suffix model has 96.96 and 82.37",
}
KINDS = ("words alone", "clusters", "vectors", "clusters and vectors")


def chain_tagging(
    folder: str | os.PathLike[str],
    *,
    datasets: Sequence[str] = DATASETS,
    l2: float = 1.0,
    max_iter: int = 100,
    n_sentences: int | None = None,
    say: Say = lambda _: None,
) -> Table:
    """Measure the accuracy of HMMs of order 1 and 2 and of a CRF on all words and on unseen words.

    The folder has ``ud-en-ewt`` and ``conll2000``. ``l2`` and ``max_iter`` are parameters of the CRF.
    """
    table = Table(
        "Parts of speech by chains: accuracy in percent on the test part, all words and words not seen in training",
        ["data", "model", "all", "unseen", "train s", "tokens/s"],
        notes=[f"{NAMES[data]}: {PUBLIC[data]}." for data in datasets],
    )
    makers: list[tuple[str, Callable[[], Any]]] = [
        ("HMM, order 1", lambda: HMM(order=1)),
        ("HMM, order 2", lambda: HMM(order=2)),
        ("CRF, preset pos", lambda: CRF("pos", l2=l2, max_iter=max_iter)),
    ]
    for data in datasets:
        train, test = (read_tagged(Path(folder) / data, part) for part in ("train", "test"))
        X, y = (column[:n_sentences] for column in train)
        known = {word for sentence in X for word in sentence}
        for name, make in makers:
            say(f"{NAMES[data]}: {name}")
            model = make()
            seconds = fit(model, X, y)
            predicted, took = timed(model.predict, test[0])
            speed = sum(map(len, test[0])) / took
            report = evaluate_tagging(test[1], predicted, words=test[0], known_words=known)
            rates = [100 * report.accuracy, 100 * (report.unknown_accuracy or 0.0)]
            table.rows.append([NAMES[data], name, *rates, seconds, speed])
            note = f"{NOTE}; {PUBLIC[data]}"
            for what, rate in zip(("all words", "unseen words"), rates, strict=True):
                table.add(f"{NAMES[data]}, {name}: {what}", None, rate, "%", seconds, note)
    return table


def chain_induction(
    folder: str | os.PathLike[str],
    *,
    n_states: int = 45,
    max_iter: int = 200,
    n_restarts: int = 5,
    n_sentences: int | None = None,
    seed: int = 0,
    say: Say = lambda _: None,
) -> Table:
    """Compare the states that EM finds in words alone with manual tags.

    The training part of UD English EWT is used without labels, for training and evaluation. The best of ``n_restarts``
    random starts after five iterations continues.
    """
    words, tags = (column[:n_sentences] for column in read_tagged(Path(folder), "train"))
    table = Table(
        f"{n_states} states induced from {len(words):,} sentences of UD English EWT, against XPOS tags",
        ["measure", "ours", "unit"],
        notes=["On the larger and more regular WSJ, EM with 45 to 50 states has a many-to-one accuracy of about 62 %."],
        axes=("iteration", "log evidence per token"),
    )
    n_tokens = sum(map(len, words))

    def show(step: Step) -> None:
        if step.iteration and step.iteration % 10 == 0:
            say(f"iteration {step.iteration}: log evidence {step.log_evidence or 0:,.1f}, {step.seconds:.0f} s")

    model = HMM(n_states, max_iter=max_iter, tol=1e-6, n_restarts=n_restarts, seed=seed, options={"dtype": "float32"})
    seconds = fit(model, words, callback=show)
    history = model.report_.history
    curve = Curve("EM")
    for step in history:
        curve.add(step.iteration, (step.log_evidence or 0.0) / n_tokens)
    table.curves.append(curve)
    report = evaluate_induction(tags, model.predict(words))
    measured: list[tuple[str, float, str]] = [
        ("log evidence", history[-1].log_evidence or 0.0, "nats"),
        ("many-to-one", 100 * report.many_to_one, "%"),
        ("one-to-one", 100 * report.one_to_one, "%"),
        ("V-measure", 100 * report.v_measure, "%"),
        ("variation of information", report.variation_of_information, "nats"),
    ]
    for what, value, unit in measured:
        table.rows.append([what, value, unit])
        note = f"{NOTE}; {len(history)} iterations, {n_restarts} starts"
        table.add(what, None, value, unit, seconds, note)
    return table


def read_tagged(folder: Path, part: str) -> Split:
    """Return words and tags of a part of CoNLL-2000 or of UD English EWT."""
    if folder.name == "conll2000":
        corpus = read_columns(folder / f"{part}.txt")
    else:
        corpus = read_conllu(folder / f"en_ewt-ud-{part}.conllu", columns=["form", "xpos"])
    return corpus.sentences(0), corpus.sentences(1)


def active_learning(
    folder: str | os.PathLike[str],
    *,
    target: float = 93.0,
    by: Sequence[str] = (RANDOM, "entropy", "expected-gain"),
    first: int = 100,
    growth: float = 1.2,
    l2: float = 0.1,
    max_iter: int = 60,
    n_sentences: int | None = None,
    n_seeds: int = 1,
    seed: int = 0,
    say: Say = lambda _: None,
) -> Table:
    """Count the labeled sentences and tokens of UD English EWT that a CRF needs for an XPOS accuracy on the test part.

    The pool is the training part, whose labels are hidden until a sentence is chosen. Each run starts with the same
    ``first`` random sentences; in each round the labeled set grows by the factor ``growth``, and the CRF continues from
    the weights of the round before. Numbers at the target are interpolated between rounds. With several seeds, from
    ``seed`` on, they are means over the runs, which start with different sentences.

    Parameters
    ----------
    by : list of str
        "random", or a criterion of `select`: "diverse entropy" is the greedy choice, "entropy per token" divides by the
        length of a sentence.
    """
    X, y = (column[:n_sentences] for column in read_tagged(Path(folder), "train"))
    test = read_tagged(Path(folder), "test")
    table = Table(
        f"Labels for an XPOS accuracy on UD English EWT, test part (pool of {len(X):,} sentences)",
        ["accuracy, %", "choice", "sentences", "tokens", "of random's sentences", "of random's tokens"],
        axes=("labeled sentences", "accuracy, %"),
    )
    settings = CRF("pos", l2=l2, max_iter=max_iter, tol=1e-3)
    runs: dict[str, list[tuple[Curve, list[int]]]] = {name: [] for name in by}
    for number in range(seed, seed + n_seeds):
        order = np.random.default_rng(number).permutation(len(X)).tolist()
        for name, own in runs.items():
            say(f"seed {number}, choice: {name}")
            own.append(_run(X, y, test, order, settings, name, target, first, growth, say))
    table.curves += [own[0][0] for own in runs.values()]
    for level in (target - 3, target - 2, target - 1, target):
        needed = {name: _mean([at_target(*run, level) for run in own]) for name, own in runs.items()}
        base = needed.get(RANDOM)
        for name, found in needed.items():
            cells: list[Cell] = [None] * 4
            if found is not None:
                cells[:2] = [round(found[0]), round(found[1])]
                cells[2:] = [None, None] if base is None else [found[0] / base[0], found[1] / base[1]]
            table.rows.append([level, name, *cells])
            for k, unit in enumerate(("sentences", "tokens")):
                table.add(f"{level:g} %, {name}: {unit}", None, None if found is None else found[k], unit)
    table.notes.append("Sentences that a model is uncertain about are longer than others: compare tokens too.")
    return table


def _mean(found: list[tuple[float, float] | None]) -> tuple[float, float] | None:
    """Return the mean numbers of sentences and tokens; ``None`` if a run does not have the target."""
    known = [one for one in found if one is not None]
    if len(known) < len(found):
        return None
    return sum(n for n, _ in known) / len(known), sum(n for _, n in known) / len(known)


def _run(
    X: list[list[str]],
    y: list[list[str]],
    test: tuple[list[list[str]], list[list[str]]],
    order: list[int],
    settings: CRF,
    name: str,
    target: float,
    first: int,
    growth: float,
    say: Say,
) -> tuple[Curve, list[int]]:
    """Run one way to choose until the target or the end of the pool; return accuracies by sentences, and tokens."""
    labeled, rest = order[:first], order[first:]
    model: CRF | None = None
    curve, tokens = Curve(name), []
    while True:
        fresh = CRF(**settings.get_params())
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
            options: dict[str, Any] = {"diverse": name.startswith("diverse "), "per_token": name.endswith(PER_TOKEN)}
            if criterion == "expected-gain":
                options["labeled"] = [X[k] for k in labeled]
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


def representations(
    folder: str | os.PathLike[str],
    *,
    sizes: Sequence[int] = (100, 300, 1000, 3000),
    n_clusters: int = 1000,
    n_words: int = 50_000,
    n_dims: int = 100,
    l2: float = 1.0,
    max_iter: int = 100,
    max_sentences: int | None = None,
    say: Say = lambda _: None,
) -> Table:
    """Measure a CRF trained on the first sentences of UD English EWT, without and with knowledge of raw text.

    The folder has ``ud-en-ewt`` and the raw text: ``wikitext-2``, ``ptb-lm`` and ``raw-text``.
    """
    folder = Path(folder)
    say("counting the raw text")
    counts, seconds = timed(lambda: count_moments(raw_text(folder, max_sentences), 1, max_words=n_words))
    table = Table(
        "UD EWT XPOS from few labeled sentences: accuracy in percent on the test part, all words and unseen words",
        ["sentences", "features", "all", "unseen", "train s"],
        notes=[
            f"Raw text: {counts.n_tokens:,} tokens; {n_clusters} clusters and {n_dims}-dimensional vectors of "
            f"{len(counts.vocabulary) - 2:,} words. Unseen words are those that the labeled sentences lack."
        ],
        axes=("labeled sentences", "accuracy on unseen words, %"),
    )
    say(f"{counts.n_tokens:,} tokens counted in {seconds:.0f} s; clusters")
    clusters, seconds = timed(lambda: BrownClusters(n_clusters).fit(counts))
    table.add("clusters: log-likelihood per token", None, clusters.objective_, "nats", seconds)
    say(f"clusters in {seconds:.0f} s; vectors")
    vectors, seconds = timed(lambda: WordVectors.from_counts(counts, n_dims))
    say(f"vectors in {seconds:.0f} s")
    X, y = read_tagged(folder / "ud-en-ewt", "train")
    X_test, y_test = read_tagged(folder / "ud-en-ewt", "test")
    curves = {kind: Curve(kind) for kind in KINDS}
    for size in sizes:
        known = {word for sentence in X[:size] for word in sentence}
        for kind in KINDS:
            given: dict[str, Any] = {"clusters": clusters} if "clusters" in kind else {}
            given |= {"vectors": vectors} if "vectors" in kind else {}
            say(f"{size} sentences: {kind}")
            model = CRF("pos", l2=l2, max_iter=max_iter, **given)
            seconds = fit(model, X[:size], y[:size])
            report = evaluate_tagging(y_test, model.predict(X_test), words=X_test, known_words=known)
            rates = 100 * report.accuracy, 100 * (report.unknown_accuracy or 0.0)
            table.rows.append([size, kind, *rates, seconds])
            curves[kind].add(size, rates[1])
            for what, rate in zip(("all words", "unseen words"), rates, strict=True):
                table.add(f"{size} sentences, {kind}: {what}", None, rate, "%", seconds)
    table.curves = list(curves.values())
    return table


def raw_text(folder: Path, max_sentences: int | None = None) -> Iterator[Sequence[str]]:
    """Yield the sentences of the raw text: two tokenized corpora, and running text that is tokenized here."""
    tokenized = [folder / "wikitext-2" / "wiki.train.tokens", folder / "ptb-lm" / "ptb.train.txt"]
    ready = (sentence for path in tokenized for sentence in read_text(path).sentences())
    raw = raw_sentences(sorted((folder / "raw-text").glob("*.txt.gz")))
    if max_sentences is None:
        return chain(ready, raw)
    return chain(islice(ready, max_sentences // 2), islice(raw, max_sentences - max_sentences // 2))
