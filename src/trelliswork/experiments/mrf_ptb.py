"""Figure 6 of paper 0: lifted training on the Penn Treebank, bounds and estimates beside exact language models."""

import math
import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from trelliswork.data.moments import Moments, count_moments
from trelliswork.errors import ConvergenceWarning, ValueRangeError
from trelliswork.experiments.machine import peak_memory, restart_peak_memory
from trelliswork.experiments.tables import Cell, Curve, Figure, Say, Table
from trelliswork.models.mrf import MRFLanguageModel

PARTS = (
    "k1", "chain", "weighted", "from-k1", "star", "no-unary", "full", "k3", "k4", "k1-rank100", "rank100", "pseudo",
    "lbl", "lbl100", "kn",
)  # fmt: skip
DEFAULT = ("k1", "chain", "weighted", "from-k1", "star", "full", "lbl", "kn")
PAPER = "only slightly below the left-context LBL of K = 2"
NEAR = 0.3  # nats a token from the log-bilinear model that a bound is wanted to be within


@dataclass(frozen=True)
class _Result:
    """A model's log-likelihood a token of the validation sentences, exact or from below."""

    name: str
    rank: int | None  # None: full rank, or none
    mean: float
    kind: str
    family: Literal["field", "log-bilinear", "n-grams"] = "field"


def mrf_ptb(
    folder: str | os.PathLike[str],
    *,
    parts: Sequence[str] = DEFAULT,
    rank: int = 30,
    l2: float = 5.0,
    max_iter: int | None = None,
    estimates: bool = True,
    quick: bool = False,
    save: str | os.PathLike[str] | None = None,
    seed: int = 0,
    say: Say = lambda _: None,
) -> Table:
    """Validation log-likelihoods of the Penn Treebank: bounds, estimates of the truth, and exact models.

    Parameters
    ----------
    folder : path
        Where ptb.train.txt and ptb.valid.txt are.
    parts : sequence of str
        Which models, of ``PARTS``: the exact one of K = 1; K = 2 by the chain cover with equal weights, with 0.8 and
        0.2, with these from the optimum of K = 1, by the star cover with and without a unary, with full rank; K = 3 and
        4 with 0.8 of the weight on distance 1; K = 1 and 2 of rank 100; pseudo-likelihood; log-bilinear (and of rank
        100) and Kneser-Ney.
    rank, l2, max_iter
        Of the low-rank models; 150 iterations at most by default, 15 if quick.
    estimates : bool
        Whether to estimate the true log-likelihood of K = 2 models by annealed importance sampling.
    quick : bool
        The 1,500 most frequent words, few iterations, a tenth of the validation text for estimates.
    save : path, optional
        Folder to keep the trained models in.
    """
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        raise ValueRangeError(f"no part is called {unknown[0]!r}; there are {', '.join(PARTS)}.")
    train, valid = Path(folder) / "ptb.train.txt", Path(folder) / "ptb.valid.txt"
    max_words = 1500 if quick else None
    table = Table(
        "Penn Treebank, validation log-likelihood in nats",
        [
            "model",
            "a position",
            "a token",
            "star",
            "chain",
            "sentences",
            "kind",
            "perplexity",
            "estimate",
            "s.e.",
            "best s",
            "train s",
        ],
        notes=[
            "a position, a token: the bound of the text in a circle (the paper's), K pads a sentence counted, or one",
            "end of sentence. sentences: log tau(M) + log p(words | M), exact or bounded. estimate: that by annealed",
            "importance sampling. Perplexity is that of the sentences, a token. star, chain: the circle's bounds a",
            "token by either cover, tightened at the learned scores, the chain's weights optimised too. best s: when",
            "the best validation bound was reached, counted from the begin of training.",
        ],
        axes=("seconds", "validation bound a token"),
    )
    runs: dict[str, tuple[str, dict[str, Any]]] = {
        "k1": (f"K=1, rank {rank}, exact", {"K": 1}),
        "k1-rank100": ("K=1, rank 100, exact", {"K": 1, "rank": 100}),
        "chain": (f"K=2, rank {rank}, chain cover", {"K": 2}),
        "weighted": (f"K=2, rank {rank}, chain cover .8/.2", {"K": 2, "weights": (0.8, 0.2)}),
        "star": (f"K=2, rank {rank}, star cover", {"K": 2, "bound": "star"}),
        "no-unary": (f"K=2, rank {rank}, star cover, no unary", {"K": 2, "bound": "star", "unary": False}),
        "from-k1": (f"K=2, rank {rank}, chain cover .8/.2, from K=1", {"K": 2, "weights": (0.8, 0.2)}),
        "k3": (f"K=3, rank {rank}, chain cover .8/.1/.1", {"K": 3, "weights": (0.8, 0.1, 0.1)}),
        "k4": (f"K=4, rank {rank}, chain cover .8/.1/.05/.05", {"K": 4, "weights": (0.8, 0.1, 0.05, 0.05)}),
        "rank100": ("K=2, rank 100, chain cover .8/.2", {"K": 2, "weights": (0.8, 0.2), "rank": 100}),
        "full": ("K=2, full rank, chain cover", {"K": 2, "form": "full", "l2": 0.0, "tol": 0.0}),
        "pseudo": (f"K=2, rank {rank}, pseudo-likelihood", {"K": 2, "algorithm": "pseudo-likelihood", "l2": 0.0}),
    }
    restart_peak_memory()
    results: list[_Result] = []
    first: MRFLanguageModel | None = None  # of K = 1, for others to begin with
    counts: dict[int, tuple[Moments, Moments]] = {}
    for part in [p for p in PARTS if p in parts]:
        if part not in runs:
            results.append(_baseline(part, table, train, valid, rank, max_words, quick, save, say))
            continue
        name, options = runs[part]
        needed = {options["K"], 1} if part == "from-k1" and first is None else {options["K"]}
        for K in sorted(needed - set(counts)):
            began = time.perf_counter()
            moments = count_moments(train, K, max_words=max_words)
            counts[K] = moments, count_moments(valid, K, vocabulary=moments.vocabulary)
            say(f"moments of K={K}: {time.perf_counter() - began:.1f} s, {moments.n_pairs:,} distinct pairs")
        shared: dict[str, Any] = {"rank": rank, "l2": l2, "seed": seed, "max_iter": max_iter or (15 if quick else 150)}
        if options.get("form") == "full":
            del shared["rank"]
        if "algorithm" in options:
            del shared["max_iter"]
            shared |= {"epochs": 1 if quick else 5, "max_words": max_words}
        if part == "from-k1" and first is None:
            say(f"{name}: training K=1 to begin with")
            first = MRFLanguageModel(**(shared | {"K": 1}))
            _fit(first, counts[1], (train, valid), None, None)
        model = MRFLanguageModel(**(shared | options))
        start = first if part == "from-k1" else None
        found = _row(name, model, counts[model.K], (train, valid), table, estimates and model.K > 1, quick, start, say)
        results.append(found)
        if part == "k1":
            first = model
        if save is not None:
            model.save(Path(save) / part)
    _judge(table, results)
    _peak_memory(table)
    return table


def _fit(
    model: MRFLanguageModel, counts: tuple[Moments, Moments], files: tuple[Path, Path], start: MRFLanguageModel | None,
    callback: Any,
) -> None:  # fmt: skip
    """Train; that iterations may end before the tolerance is reached is part of the experiment."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if model.algorithm == "lifted":
            model.fit(counts[0], dev=counts[1], start=start, callback=callback)
        else:
            model.fit(files[0], dev=files[1], callback=callback)


def _row(
    name: str,
    model: MRFLanguageModel,
    counts: tuple[Moments, Moments],
    files: tuple[Path, Path],
    table: Table,
    estimates: bool,
    quick: bool,
    start: MRFLanguageModel | None,
    say: Say,
) -> _Result:
    """Train, measure, and add a row, a curve and figures."""
    dev = counts[1]
    per_token = dev.n_positions / (dev.n_tokens + dev.n_sentences)
    curve = Curve(name, [], [])

    def watch(step: Any, parameters: Any) -> None:
        if step.dev is not None:
            curve.x.append(time.perf_counter() - began)
            curve.y.append(step.dev * per_token)
        if step.iteration % 10 == 0:
            told = "" if step.dev is None else f", validation {step.dev:.4f} a position"
            say(f"{name}: iteration {step.iteration}, {step.seconds:.0f} s, objective {step.value:.4f}{told}")

    began = time.perf_counter()
    lifted = model.algorithm == "lifted"
    _fit(model, counts, files, start, watch)
    seconds = time.perf_counter() - began
    best_at = curve.x[int(np.argmax(curve.y))] if lifted else None
    circle, token = model.moment_bound(dev)
    found = model.log_likelihood_bounds(files[1])
    mean = float(found.values.sum()) / (dev.n_tokens + dev.n_sentences)
    say(f"{name}: {circle:.4f} a position, {token:.4f} a token; sentences {mean:.4f} a token ({found.kind})")
    star, chain = (None, None) if model.K == 1 else _both_bounds(model, circle, per_token)
    if star is not None:
        say(f"{name}: tightened at the learned scores, a token: star {star:.4f}, chain {chain:.4f}")
    guess = None
    if estimates:
        text = _head(files[1], dev.n_sentences // 10 if quick else None)
        guess = model.estimate(text, n_samples=16 if quick else 32, n_steps=10 if quick else 50)
        say(f"{name}: estimate {guess.per_token:.4f} +- {guess.standard_error:.4f} a token")
    guessed = [None, None] if guess is None else [guess.per_token, guess.standard_error]
    shown = [_nats(value) for value in (circle, token, star, chain, mean)]
    table.rows.append([name, *shown, found.kind, math.exp(-mean), *map(_nats, guessed), best_at, seconds])
    if lifted:
        table.curves.append(curve)
        note = "from the begin of training; counting takes seconds. The paper's is 45 minutes on a GPU"
        table.figures.append(Figure(f"{name}: time of the best validation bound", 2700.0, best_at, "s", seconds, note))
    bound = "exact" if model.bound_ == "exact" else f"{model.bound_} bound"
    for what, value in ((f"circle, {bound}, a position", circle), (f"circle, {bound}, a token", token)):
        table.figures.append(Figure(f"{name}: {what}", PAPER, value, "nats", seconds, "figure 6 has no numbers"))
    for what, bound_value in (("star", star), ("chain", chain)):
        if bound_value is not None:
            row = f"{name}: circle, tightened {what} bound, a token"
            table.figures.append(Figure(row, None, bound_value, "nats", None, "at the learned scores"))
    table.figures.append(Figure(f"{name}: sentences, {found.kind}, a token", None, mean, "nats", seconds, ""))
    if guess is not None:
        note = f"annealed importance sampling, standard error {guess.standard_error:.4f}"
        table.figures.append(Figure(f"{name}: estimate, a token", None, guess.per_token, "nats", None, note))
    return _Result(name, None if model.form == "full" else model.rank, mean, found.kind)


def _judge(table: Table, results: list[_Result]) -> None:
    """Which row has the best bound, and how far it is from the log-bilinear model of the same rank."""
    fields = [r for r in results if r.family == "field"]
    log_bilinear = [r for r in results if r.family == "log-bilinear"]
    if not fields:
        return
    best = max(fields, key=lambda r: r.mean)
    table.notes.append(f"Best bound of sentences: {best.name}, {best.mean:.4f} nats a token ({best.kind}).")
    for other in log_bilinear:
        same = [r for r in fields if r.rank == other.rank]
        if not same:
            continue
        near = max(same, key=lambda r: r.mean)
        distance = near.mean - other.mean
        verdict = "above it" if distance >= 0 else f"within {NEAR}" if distance >= -NEAR else f"not within {NEAR}"
        table.notes.append(
            f"Of rank {other.rank} the best is {near.name}: {distance:+.4f} nats a token from the log-bilinear model "
            f"({other.mean:.4f}), {verdict}."
        )
        row = f"{near.name}: from the log-bilinear model of rank {other.rank}, a token"
        table.figures.append(Figure(row, PAPER, distance, "nats", None, f"best bound of this rank; {verdict}"))
    if best.rank not in [r.rank for r in log_bilinear]:
        table.notes.append("No log-bilinear model of the rank of the best bound was among the parts.")


def _peak_memory(table: Table) -> None:
    """The most memory that was resident, as a figure; not known on every system."""
    peak = peak_memory()
    if peak is None:
        return
    peak /= 2**30
    table.figures.append(Figure("peak resident memory of the process", None, peak, "GB", None, "all parts together"))
    table.notes.append(f"Peak resident memory of the process: {peak:.2f} GB.")


def _nats(value: float | None) -> Cell:
    """Four digits: hundredths of nats are what models differ by."""
    return None if value is None else f"{value:.4f}"


def _both_bounds(model: MRFLanguageModel, circle: float, per_token: float) -> tuple[float, float]:
    """The text's bounds a token by the star and by the chain cover at the learned scores."""
    field = model.field_
    data = circle + field.log_z_bound
    star = model.tighten("star", tol=1e-4, max_passes=60)
    # Single words' part of the learned cover is shared out among the chains.
    rho = np.concatenate([[max(0.0, 1 - field.weights.sum())], field.weights])
    weights = field.weights / field.weights.sum()
    excess = rho[:, None] * (field.unaries - field.log_unary)
    chains = field.log_unary + (excess[1:] + weights[:, None] * excess[0]) / weights[:, None]
    unaries = np.vstack([field.log_unary[None], chains])
    chain = model.tighten("chain", weights=weights, unaries=unaries, optimize_weights=True, max_iter=8)
    return (data - star.value) * per_token, (data - chain.value) * per_token


def _head(path: Path, n: int | None) -> list[list[str]]:
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.split()]
    return lines[:n]


def _baseline(
    part: str, table: Table, train: Path, valid: Path, rank: int, max_words: int | None, quick: bool,
    save: str | os.PathLike[str] | None, say: Say,
) -> _Result:  # fmt: skip
    """A language model with exact normalisation, to compare with."""
    from trelliswork.models.baselines import KneserNey, LogBilinear

    began = time.perf_counter()
    size = {"kn": None, "lbl": rank, "lbl100": 100}[part]
    name = "Kneser-Ney, order 5" if size is None else f"left-context log-bilinear, K=2, rank {size}"
    say(f"training {name}")
    model: Any
    if size is None:
        model = KneserNey(5, max_words=max_words).fit(train)
    else:
        n = 1 if quick else 20
        model = LogBilinear(2, size, max_words=max_words, max_iter=n, max_seconds=900.0).fit(train, dev=valid)
    seconds = time.perf_counter() - began
    perplexity = model.perplexity(valid)
    mean = -math.log(perplexity)
    table.rows.append([name, None, None, None, None, _nats(mean), "exact", perplexity, None, None, None, seconds])
    table.figures.append(Figure(f"{name}: a token", None, mean, "nats", seconds, "exact"))
    if save is not None:
        model.save(Path(save) / part)
    say(f"{name}: {mean:.4f} a token, {seconds:.0f} s")
    return _Result(name, size, mean, "exact", "n-grams" if size is None else "log-bilinear")
