"""Figure 6 of paper 0: lifted training on the Penn Treebank, bounds and estimates compared with exact models."""

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from experiments.machine import peak_memory, restart_peak_memory
from experiments.running import fit
from experiments.tables import Cell, Curve, Say, Table
from trelliswork.data.moments import Moments, count_moments
from trelliswork.errors import ValueRangeError
from trelliswork.inference.lifted import ChainCover, Star
from trelliswork.learning.report import Step
from trelliswork.models.mrf import MRFLanguageModel
from trelliswork.models.parameters import arranged

PARTS = (
    "k1", "chain", "weighted", "from-k1", "star", "no-unary", "full", "k3", "k4", "k1-rank100", "rank100", "pseudo",
    "lbl", "lbl100", "kn",
)  # fmt: skip
DEFAULT = ("k1", "chain", "weighted", "from-k1", "star", "full", "lbl", "kn")
COLUMNS = [
    "model", "per position", "per token", "star", "chain", "sentences", "kind", "perplexity", "estimate", "s.e.",
    "best s", "train s",
]  # fmt: skip
PAPER = "only slightly below the left-context LBL of K = 2"
Files = tuple[Path, Path]  # of training and validation
NEAR = 0.3  # nats per token: a larger distance from the log-bilinear model is reported


@dataclass(frozen=True)
class _Result:
    """Log-likelihood per token of the validation sentences, exact or a lower bound."""

    name: str
    rank: int | None  # None: full rank, or n-grams
    mean: float
    kind: str
    family: Literal["field", "log-bilinear", "n-grams"] = "field"


def mrf_ptb(
    folder: str | os.PathLike[str],
    *,
    parts: Sequence[str] = DEFAULT,
    rank: int = 30,
    l2: float = 2.5,
    max_iter: int | None = None,
    estimates: bool = True,
    quick: bool = False,
    save: str | os.PathLike[str] | None = None,
    seed: int = 0,
    say: Say = lambda _: None,
) -> Table:
    """Compare validation log-likelihoods on the Penn Treebank: bounds, estimates of the truth, exact models.

    Parts are models, of ``PARTS``: the exact one of order 1; order 2 by the chain cover with equal weights, with 0.8
    and 0.2, with these from the optimum of order 1, by the star cover with and without a unary, with full rank; orders
    3 and 4 with 0.8 of the weight on distance 1; orders 1 and 2 of rank 100; pseudo-likelihood; log-bilinear (and of
    rank 100) and Kneser-Ney. With ``estimates``, annealed importance sampling estimates the true log-likelihood of
    orders above 1. Quick: the 1,500 most frequent words, few iterations, a tenth of the validation text for estimates.
    Trained models are stored in the folder ``save``.
    """
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        raise ValueRangeError(f"parts must be among {', '.join(PARTS)}, got {unknown[0]!r}.")
    files = Path(folder) / "ptb.train.txt", Path(folder) / "ptb.valid.txt"
    max_words = 1500 if quick else None
    table = Table(
        "Penn Treebank, validation log-likelihood in nats",
        COLUMNS,
        notes=[
            "per position, per token: bound of the text in a circle (the paper's), counting K pads per sentence, or",
            "one sentence end. sentences: log tau(M) + log p(words | M), exact or a bound. estimate: the same by",
            "annealed importance sampling. Perplexity is per token of the sentences. star, chain: bounds of the circle",
            "per token by either cover, tightened at the learned scores; weights of the chains are optimized, too.",
            "best s: time from the start of training to the best validation bound.",
        ],
        axes=("seconds", "validation bound per token"),
    )
    runs: dict[str, tuple[str, dict[str, Any]]] = {
        "k1": (f"K=1, rank {rank}, exact", {"window": 1}),
        "k1-rank100": ("K=1, rank 100, exact", {"window": 1, "rank": 100}),
        "chain": (f"K=2, rank {rank}, chain cover", {"window": 2}),
        "weighted": (f"K=2, rank {rank}, chain cover .8/.2", {"window": 2, "cover_weights": (0.8, 0.2)}),
        "star": (f"K=2, rank {rank}, star cover", {"window": 2, "bound": "star"}),
        "no-unary": (f"K=2, rank {rank}, star cover, no unary", {"window": 2, "bound": "star", "unary": False}),
        "from-k1": (f"K=2, rank {rank}, chain cover .8/.2, from K=1", {"window": 2, "cover_weights": (0.8, 0.2)}),
        "k3": (f"K=3, rank {rank}, chain cover .8/.1/.1", {"window": 3, "cover_weights": (0.8, 0.1, 0.1)}),
        "k4": (f"K=4, rank {rank}, chain cover .8/.1/.05/.05", {"window": 4, "cover_weights": (0.8, 0.1, 0.05, 0.05)}),
        "rank100": ("K=2, rank 100, chain cover .8/.2", {"window": 2, "cover_weights": (0.8, 0.2), "rank": 100}),
        "full": ("K=2, full rank, chain cover", {"window": 2, "form": "full", "l2": 0.0, "tol": 0.0}),
        "pseudo": (f"K=2, rank {rank}, pseudo-likelihood", {"window": 2, "algorithm": "pseudo-likelihood", "l2": 0.0}),
    }
    restart_peak_memory()
    results: list[_Result] = []
    first: MRFLanguageModel | None = None  # of order 1, a start for others
    counts: dict[int, tuple[Moments, Moments]] = {}
    for part in [p for p in PARTS if p in parts]:
        if part not in runs:
            model, result = _baseline(part, table, files, rank, quick, say)
            results.append(result)
            if save is not None:
                model.save(Path(save) / part)
            continue
        name, options = runs[part]
        needed = {options["window"], 1} if part == "from-k1" and first is None else {options["window"]}
        for K in sorted(needed - set(counts)):
            started = time.perf_counter()
            moments = count_moments(files[0], K, max_words=max_words)
            counts[K] = moments, count_moments(files[1], K, vocabulary=moments.vocabulary)
            say(f"moments of K={K}: {time.perf_counter() - started:.1f} s, {moments.n_pairs:,} distinct pairs")
        shared: dict[str, Any] = {"rank": rank, "l2": l2, "seed": seed, "max_iter": max_iter or (15 if quick else 150)}
        if options.get("form") == "full":
            del shared["rank"]
        if "algorithm" in options:
            shared |= {"max_iter": 1 if quick else 5, "max_words": max_words}
        if part == "from-k1" and first is None:
            say(f"{name}: training K=1 as a start")
            first = MRFLanguageModel(**arranged(MRFLanguageModel, shared | {"window": 1}))
            fit(first, counts[1][0], dev=counts[1][1])
        model = MRFLanguageModel(**arranged(MRFLanguageModel, shared | options))
        start = first if part == "from-k1" else None
        results.append(_row(name, model, counts[model.window], files, table, estimates, quick, start, say))
        if part == "k1":
            first = model
        if save is not None:
            model.save(Path(save) / part)
    _judge(table, results)
    peak = peak_memory()
    if peak is not None:
        peak /= 2**30
        table.add("peak resident memory of the process", None, peak, "GB", None, "all parts together")
        table.notes.append(f"Peak resident memory of the process: {peak:.2f} GB.")
    return table


def _row(
    name: str, model: MRFLanguageModel, counts: tuple[Moments, Moments], files: Files, table: Table, estimates: bool,
    quick: bool, start: MRFLanguageModel | None, say: Say,
) -> _Result:  # fmt: skip
    """Train and evaluate a model; add a row, a curve and figures."""
    dev = counts[1]
    per_token = dev.n_positions / (dev.n_tokens + dev.n_sentences)
    curve = Curve(name)

    def watch(step: Step) -> None:
        if not step.iteration:
            return
        if step.dev is not None:
            curve.add(time.perf_counter() - started, step.dev * per_token)
        if step.iteration % 10 == 0:
            dev_text = "" if step.dev is None else f", validation {step.dev:.4f} per position"
            say(f"{name}: iteration {step.iteration}, {step.seconds:.0f} s, objective {step.value:.4f}{dev_text}")

    started = time.perf_counter()
    lifted = model.algorithm == "lifted"
    if lifted:
        seconds = fit(model, counts[0], dev=counts[1], start=start, callback=watch)
    else:
        seconds = fit(model, files[0], dev=files[1], callback=watch)
    best_at = curve.x[int(np.argmax(curve.y))] if lifted else None
    circle = circle_bound(model, dev)
    token = circle * per_token
    mean = float(model.log_prob(files[1]).sum()) / (dev.n_tokens + dev.n_sentences)
    say(f"{name}: {circle:.4f} per position, {token:.4f} per token; sentences {mean:.4f} per token ({model.kind})")
    star, chain = (None, None) if model.window == 1 else _both_bounds(model, circle, per_token)
    if star is not None:
        say(f"{name}: tightened at the learned scores, per token: star {star:.4f}, chain {chain:.4f}")
    estimate = None
    if estimates and model.window > 1:
        lines = [line.split() for line in files[1].read_text(encoding="utf-8").splitlines() if line.split()]
        text = lines[: dev.n_sentences // 10 if quick else None]
        estimate = model.estimate(text, n_samples=16 if quick else 32, n_steps=10 if quick else 50)
        say(f"{name}: estimate {estimate.per_token:.4f} +- {estimate.standard_error:.4f} per token")
    estimated = [None, None] if estimate is None else [estimate.per_token, estimate.standard_error]
    shown = [_nats(value) for value in (circle, token, star, chain, mean)]
    table.rows.append([name, *shown, model.kind, math.exp(-mean), *map(_nats, estimated), best_at, seconds])
    if lifted:
        table.curves.append(curve)
        note = "from the start of training; counting takes seconds. The paper's is 45 minutes on a GPU"
        table.add(f"{name}: time of the best validation bound", 2700.0, best_at, "s", seconds, note)
    bound = "exact" if model._bound_kind == "exact" else f"{model._bound_kind} bound"
    for what, value in ((f"circle, {bound}, per position", circle), (f"circle, {bound}, per token", token)):
        table.add(f"{name}: {what}", PAPER, value, "nats", seconds, "figure 6 has no numbers")
    for what, bound_value in (("star", star), ("chain", chain)):
        if bound_value is not None:
            row = f"{name}: circle, tightened {what} bound, per token"
            table.add(row, None, bound_value, "nats", None, "at the learned scores")
    table.add(f"{name}: sentences, {model.kind}, per token", None, mean, "nats", seconds)
    if estimate is not None:
        note = f"annealed importance sampling, standard error {estimate.standard_error:.4f}"
        table.add(f"{name}: estimate, per token", None, estimate.per_token, "nats", None, note)
    return _Result(name, None if model.form == "full" else model.rank, mean, model.kind)


def _judge(table: Table, results: list[_Result]) -> None:
    """Add notes about the best bound, and its distance from the log-bilinear model of the same rank."""
    fields = [r for r in results if r.family == "field"]
    log_bilinear = [r for r in results if r.family == "log-bilinear"]
    if not fields:
        return
    best = max(fields, key=lambda r: r.mean)
    table.notes.append(f"Best bound of sentences: {best.name}, {best.mean:.4f} nats per token ({best.kind}).")
    for other in log_bilinear:
        same = [r for r in fields if r.rank == other.rank]
        if not same:
            continue
        near = max(same, key=lambda r: r.mean)
        distance = near.mean - other.mean
        verdict = "above it" if distance >= 0 else f"within {NEAR}" if distance >= -NEAR else f"not within {NEAR}"
        table.notes.append(
            f"Of rank {other.rank} the best is {near.name}: {distance:+.4f} nats per token from the log-bilinear model "
            f"({other.mean:.4f}), {verdict}."
        )
        row = f"{near.name}: from the log-bilinear model of rank {other.rank}, per token"
        table.add(row, PAPER, distance, "nats", None, f"best bound of this rank; {verdict}")
    if best.rank not in [r.rank for r in log_bilinear]:
        table.notes.append("The parts have no log-bilinear model of the rank of the best bound.")


def _nats(value: float | None) -> Cell:
    """Return text with four digits: models differ by hundredths of nats."""
    return None if value is None else f"{value:.4f}"


def circle_bound(model: MRFLanguageModel, moments: Moments) -> float:
    """Return the lower bound of a text's log-likelihood in an endless circle, in nats per position, pads included."""
    field = model._field
    value = float(moments.unary @ field.log_unary)
    for table, pairs in zip(field.tables, moments.pairs, strict=True):
        matrix = pairs.tocoo()
        value += float(matrix.data @ table.pairs(matrix.row.astype(np.int64), matrix.col.astype(np.int64)))
    return value / moments.n_positions - field.log_z_bound


def _both_bounds(model: MRFLanguageModel, circle: float, per_token: float) -> tuple[float, float]:
    """Return the bounds of the text per token by the star and by the chain cover, at the learned scores."""
    field = model._field
    data = circle + field.log_z_bound
    star = Star(field.log_unary, field.tables).tighten(tol=1e-4, max_passes=60)
    # The part of single words in the learned cover is distributed over the chains.
    rho = np.concatenate([[max(0.0, 1 - field.weights.sum())], field.weights])
    weights = field.weights / field.weights.sum()
    excess = rho[:, None] * (field.unaries - field.log_unary)
    chains = field.log_unary + (excess[1:] + weights[:, None] * excess[0]) / weights[:, None]
    unaries = np.vstack([field.log_unary[None], chains])
    cover = ChainCover(field.log_unary, field.tables)
    chain = cover.tighten(weights=weights, unaries=unaries, optimize_weights=True, max_iter=8)
    return (data - star.value) * per_token, (data - chain.value) * per_token


def _baseline(part: str, table: Table, files: Files, rank: int, quick: bool, say: Say) -> tuple[Any, _Result]:
    """Train and evaluate a model with exact normalization, for comparison; return it with its result."""
    from trelliswork.models import KneserNey, LogBilinear

    size = {"kn": None, "lbl": rank, "lbl100": 100}[part]
    name = "Kneser-Ney, order 5" if size is None else f"left-context log-bilinear, K=2, rank {size}"
    say(f"training {name}")
    max_words = 1500 if quick else None
    model: Any
    if size is None:
        model = KneserNey(5, max_words=max_words)
        seconds = fit(model, files[0])
    else:
        model = LogBilinear(2, rank=size, max_words=max_words, max_iter=1 if quick else 20)
        seconds = fit(model, files[0], dev=files[1], max_minutes=15.0)
    mean = model.score(files[1])
    table.rows.append([name, *[None] * 4, _nats(mean), "exact", math.exp(-mean), None, None, None, seconds])
    table.add(f"{name}: per token", None, mean, "nats", seconds, "exact")
    say(f"{name}: {mean:.4f} per token, {seconds:.0f} s")
    return model, _Result(name, size, mean, "exact", "n-grams" if size is None else "log-bilinear")
