"""HMM language models with many states on Penn Treebank text (paper 4): perplexity by states and by rank."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trelliswork.data import read_text
from trelliswork.experiments.tables import Curve, Figure, Say, Table
from trelliswork.inference import lowrank
from trelliswork.inference.threads import get_num_threads
from trelliswork.learning.hmm_lm_training import LMStep
from trelliswork.learning.kernel_features import Approximation, softmax_error
from trelliswork.models import HMMLanguageModel

SOFTMAX = {128: 225.9, 256: 208.3, 512: 180.8, 1024: 172.7}  # validation, the authors' logs
RANKS = {(4096, 512): 507, (4096, 1024): 790, (4096, 2048): 1171}  # singular values > 1e-5, the authors' logs
METHODS: tuple[Approximation, ...] = ("positive", "orthogonal", "fourier", "nystroem", "taylor")
Words = list[list[str]]


@dataclass(frozen=True)
class Size:
    """A model to train: ``rank`` 0 is a dense softmax."""

    states: int
    rank: int = 0

    @property
    def name(self) -> str:
        """Such as ``kernel, 4096 states, R = 512``."""
        return f"kernel, {self.states} states, R = {self.rank}" if self.rank else f"softmax, {self.states} states"

    @classmethod
    def parse(cls, text: str) -> "Size":
        """``512`` or ``4096/512``."""
        states, _, rank = text.partition("/")
        return cls(int(states), int(rank or 0))


def kernel_hmm(
    folder: str | os.PathLike[str],
    *,
    sizes: Sequence[Size] = (Size(128), Size(1024, 128)),
    max_epochs: int = 10,
    seconds: float | None = None,
    n_sentences: int = 0,
    kneser_ney: bool = True,
    seed: int = 0,
    options: dict[str, Any] | None = None,
    say: Say = lambda _: None,
) -> Table:
    """Train models of several sizes and compare them.

    Parameters
    ----------
    folder : path
        Where ptb.train.txt, ptb.valid.txt and ptb.test.txt are.
    sizes : sequence of Size
    max_epochs, seconds : int, float
        Of each training.
    n_sentences : int
        The first so many for training; 0 is all.
    kneser_ney : bool
        Also the 5-gram baseline.
    options : dict, optional
        Other parameters of ``HMMLanguageModel``.
    """
    train, dev, test = (read_text(Path(folder) / f"ptb.{part}.txt").sentences(0) for part in ("train", "valid", "test"))
    train = train[: n_sentences or None]
    table = Table(
        "Penn Treebank text, perplexity per token (ends of sentences are tokens), validation and test",
        ["model", "valid", "paper valid", "test", "s per epoch", "minutes", "epochs", "MB", "sigma > 1e-5"],
        axes=("minutes", "validation perplexity"),
        notes=[
            "paper valid: the authors' training logs of the softmax HMM (LayerNorm after the block, 256 dimensions).",
            "sigma: singular values of the trained transition matrix. MB: parameters of the model.",
            "Published test perplexities, for the scale: KN5 141.2, Rank-HMM 126.4, AWD-LSTM 57.3.",
        ],
    )
    for size in sizes:
        _one(table, size, (train, dev, test), max_epochs, seconds, seed, options or {}, say)
    if kneser_ney:
        _baseline(table, train, dev, test, say)
    return table


def _one(
    table: Table,
    size: Size,
    parts: tuple[Words, Words, Words],
    max_epochs: int,
    seconds: float | None,
    seed: int,
    options: dict[str, Any],
    say: Say,
) -> None:
    train, dev, test = parts
    settings: dict[str, Any] = {"max_epochs": max_epochs, "max_seconds": seconds, "seed": seed} | options
    kind: Any = "kernel" if size.rank else "softmax"
    lm = HMMLanguageModel(size.states, parameterisation=kind, n_features=size.rank or 256, **settings)

    def tell(step: LMStep) -> None:
        say(
            f"{size.name}: epoch {step.progress:.2f}, {step.seconds:.0f} s, perplexity {step.perplexity:.1f}, "
            f"validation {step.dev_perplexity or np.nan:.1f}"
        )

    lm.fit(train, dev=dev, callback=tell)
    history, valid, tested = lm.report_.history, lm.report_.dev_perplexity, lm.perplexity(test)
    last = history[-1]
    per_epoch = last.seconds / last.progress
    rank = int((lm.transition_spectrum() > 1e-5).sum())
    megabytes = sum(p.numel() for p in lm.network_.parameters()) * 4 / 2**20
    paper = None if size.rank else SOFTMAX.get(size.states)
    row = [size.name, valid, paper, tested, per_epoch, last.seconds / 60, last.progress, megabytes, rank]
    table.rows.append(row)
    table.curves.append(
        Curve(size.name, [s.seconds / 60 for s in history], [s.dev_perplexity or np.nan for s in history])
    )
    note = f"{last.progress:g} epochs on {get_num_threads()} threads, {lm.report_.reason}"
    table.figures += [
        Figure(f"{size.name}: validation", paper, valid, "perplexity per token", last.seconds, note),
        Figure(f"{size.name}: test", None, tested, "perplexity per token", last.seconds, note),
        Figure(f"{size.name}: seconds per epoch", None, per_epoch, "s", last.seconds, note),
        Figure(
            f"{size.name}: singular values above 1e-5", RANKS.get((size.states, size.rank)), rank, "singular values"
        ),
    ]
    if size.rank and size.states <= 4096:
        apart = same_as_dense(lm, test[:50])
        table.figures.append(
            Figure(
                f"{size.name}: log evidence against the dense matrix it stands for", 0.0, apart, "relative difference"
            )
        )


def same_as_dense(lm: HMMLanguageModel, sentences: Words) -> float:
    """The largest relative difference of log evidences, in float64, when the low-rank matrix is written out."""
    from trelliswork.learning.hmm_lm_training import score_sentences
    from trelliswork.models.hmm_lm_text import number

    log_start, transition, log_emission = lm.tables()
    parts = [part.double() for part in transition.tensors()]
    exact = type(transition)(*parts)
    data = number(sentences, lm.vocabulary_)
    given = log_start.double(), log_emission.double()
    one = score_sentences(given[0], exact, given[1], data)
    other = score_sentences(given[0], lowrank.Dense(exact.dense()), given[1], data)
    return float(np.abs(one / other - 1).max())


def _baseline(table: Table, train: Words, dev: Words, test: Words, say: Say) -> None:
    from trelliswork.models.baselines import KneserNey

    say("Kneser-Ney, 5-grams")
    began = time.perf_counter()
    model = KneserNey(5).fit(train)
    n = [sum(len(sentence) + 1 for sentence in part) for part in (dev, test)]
    found = [float(np.exp(-model.log_evidence(part).sum() / k)) for part, k in zip((dev, test), n, strict=True)]
    took = time.perf_counter() - began
    table.rows.append(["Kneser-Ney, order 5", found[0], None, found[1], took, took / 60, 1, None, None])
    table.figures += [
        Figure("Kneser-Ney, order 5: validation", None, found[0], "perplexity per token", took),
        Figure("Kneser-Ney, order 5: test", 141.2, found[1], "perplexity per token", took, "Mikolov's KN5"),
    ]


def kernel_features(
    *,
    features: Sequence[int] = (16, 64, 256, 1024),
    n_states: int = 256,
    n_dims: int = 8,
    norm: float = 1.5,
    n_draws: int = 5,
    seed: int = 0,
    say: Say = lambda _: None,
) -> Table:
    """How far softmax rows of approximate exponential kernels are from the exact ones, by number of features.

    Parameters
    ----------
    features : sequence of int
    n_states, n_dims : int
        Random points: so many, in so many dimensions.
    norm : float
        Their length: the larger, the sharper the softmax, and the harder to approximate.
    n_draws : int
        Random features are drawn so often; the mean is told.
    """
    generator = torch.Generator().manual_seed(seed)
    u, v = (torch.randn(n_states, n_dims, generator=generator).double() for _ in range(2))
    u, v = (norm * x / x.norm(dim=1, keepdim=True) for x in (u, v))
    table = Table(
        f"Softmax over {n_states} points of length {norm:g} in {n_dims} dimensions: error of approximate kernels",
        ["method", "features", "distance", "worst row", "negative"],
        axes=("features", "total variation distance"),
        notes=[
            "distance: total variation of rows, mean; negative: share of entries below zero, which are set to zero.",
            "taylor has as many features as the largest full degree that fits.",
        ],
    )
    for method in METHODS:
        say(method)
        curve = Curve(method, [], [])
        for n in features:
            found = [softmax_error(u.numpy(), v.numpy(), method, n, seed + k) for k in range(n_draws)]
            distance, worst, negative = (
                float(np.mean([getattr(f, name) for f in found])) for name in ("distance", "worst", "negative")
            )
            table.rows.append([method, found[0].n_features, distance, worst, negative])
            curve.x.append(float(found[0].n_features))
            curve.y.append(distance)
            row = f"{method}, {found[0].n_features} features"
            table.figures.append(Figure(row, None, distance, "total variation distance"))
        table.curves.append(curve)
    return table
