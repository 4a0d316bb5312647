"""HMM language models with many states on Penn Treebank text (paper 4): perplexity by states and by rank."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trelliswork.compute.threads import get_num_threads
from trelliswork.data import read_text
from trelliswork.errors import DataError
from trelliswork.experiments.machine import peak_memory, restart_peak_memory
from trelliswork.experiments.tables import Curve, Figure, Say, Table
from trelliswork.inference import lowrank
from trelliswork.models import HMMLanguageModel
from trelliswork.models.hmm_lm.kernel_features import Approximation, softmax_error
from trelliswork.models.hmm_lm.training import LMStep

SOFTMAX = {128: 225.9, 256: 208.3, 512: 180.8, 1024: 172.7}  # validation, the authors' logs
RANKS = {(4096, 512): 507, (4096, 1024): 790, (4096, 2048): 1171}  # singular values > 1e-5, the authors' logs
PUBLISHED = [  # validation and test
    ("Rank-HMM (Yang et al. 2022)", 135.6, 126.4),
    ("AWD-LSTM (Merity et al. 2018)", 60.0, 57.3),
]
COLUMNS = [
    "model", "valid", "paper valid", "test", "paper test", "s per epoch", "minutes", "epochs", "MB", "peak MB",
    "sigma > 1e-5", "dense",
]  # fmt: skip
LARGE = 4096  # states, from where on a batch has these settings
OF_LARGE = {"state_dropout": 0.5, "batch_tokens": 4096}
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
    sizes: Sequence[Size | str] = (Size(128), Size(512), Size(1024, 256), Size(4096, 256)),
    max_epochs: int = 2,
    seconds: float | None = None,
    n_sentences: int = 0,
    kneser_ney: bool = True,
    seed: int = 0,
    options: dict[str, Any] | None = None,
    keep: str | os.PathLike[str] | None = None,
    say: Say = lambda _: None,
) -> Table:
    """Train models of several sizes and compare them.

    Parameters
    ----------
    folder : path
        Where ptb.train.txt, ptb.valid.txt and ptb.test.txt are.
    sizes : sequence of Size, or str for ``Size.parse``
    max_epochs, seconds : int, float
        Of each training, whose rate falls to zero over the epochs: better let it have them all than stop by the clock.
    n_sentences : int
        The first so many for training; 0 is all.
    kneser_ney : bool
        Also the 5-gram baseline.
    options : dict, optional
        Other parameters of ``HMMLanguageModel``, also in place of ``OF_LARGE``.
    keep : path, optional
        A folder for the trained models and for the states of unfinished runs: the same call goes on where it stood.
    """
    train, dev, test = (read_text(Path(folder) / f"ptb.{part}.txt").sentences(0) for part in ("train", "valid", "test"))
    train = train[: n_sentences or None]
    table = Table(
        "Penn Treebank text, perplexity per token (ends of sentences are tokens), validation and test",
        COLUMNS,
        axes=("minutes", "validation perplexity"),
        notes=[
            "paper valid: the authors' training logs of the softmax HMM (LayerNorm after the block, 256 dimensions).",
            "sigma: singular values of the transition matrix. MB: parameters; peak MB: of the process in training.",
            "dense: how far the log evidence is from that of the low-rank matrix written out, relative, in float64.",
            f"Models with {LARGE:,} states or more, unless told otherwise: "
            + ", ".join(f"{name} {value:g}" for name, value in OF_LARGE.items())
            + ".",
        ],
    )
    for size in [Size.parse(size) if isinstance(size, str) else size for size in sizes]:
        settings: dict[str, Any] = {
            "max_epochs": max_epochs,
            "max_seconds": seconds,
            "seed": seed,
            "schedule": "linear",
        }
        settings |= (OF_LARGE if size.states >= LARGE else {}) | (options or {})
        kind: Any = "kernel" if size.rank else "softmax"
        lm = HMMLanguageModel(size.states, parameterisation=kind, n_features=size.rank or 256, **settings)
        restart_peak_memory()
        _one(table, size, _trained(lm, size, train, dev, keep, say), test)
    if kneser_ney:
        _baseline(table, train, dev, test, say)
    table.rows += [[name, None, valid, None, tested, *[None] * 7] for name, valid, tested in PUBLISHED]
    return table


def _trained(
    lm: HMMLanguageModel, size: Size, train: Words, dev: Words, keep: str | os.PathLike[str] | None, say: Say
) -> HMMLanguageModel:
    """The model, trained now, or before and kept."""
    checkpoint = file = None
    if keep is not None:
        file = Path(keep) / f"{size.states}-{size.rank}"
        checkpoint = file.with_suffix(".checkpoint")
        Path(keep).mkdir(parents=True, exist_ok=True)
        if file.exists() and not checkpoint.exists():
            say(f"{size.name}: from {file}")
            found = HMMLanguageModel.load(file)
            if found.get_params() != lm.get_params() or found.n_tokens_ != sum(len(s) + 1 for s in train):
                raise DataError(
                    f"{file}: a model of other data or settings. Use those, delete it, or name another folder."
                )
            return found

    def tell(step: LMStep) -> None:
        say(
            f"{size.name}: epoch {step.progress:.2f}, {step.seconds:.0f} s, perplexity {step.perplexity:.1f}, "
            f"validation {step.dev_perplexity or np.nan:.1f}"
        )

    lm.fit(train, dev=dev, checkpoint=checkpoint, callback=tell)
    if file is not None:
        lm.save(file)
    return lm


def _one(table: Table, size: Size, lm: HMMLanguageModel, test: Words) -> None:
    """The row, the curve and the figures of one model."""
    resident = peak_memory()  # before the dense matrices below
    history, valid, tested = lm.report_.history, lm.report_.dev_perplexity, lm.perplexity(test)
    last = history[-1]
    per_epoch = last.seconds / last.progress
    if len(history) > 1:  # what came before the first validation has the start in it
        per_epoch = (last.seconds - history[0].seconds) / (last.progress - history[0].progress)
    spectrum = lm.transition_spectrum()
    rank, large = (int((spectrum > least).sum()) for least in (1e-5, 1e-2))
    apart = same_as_dense(lm, test[:50]) if size.rank and size.states <= 4096 else None
    peak = None if resident is None else resident / 2**20
    megabytes = sum(p.numel() for p in lm.network_.parameters()) * 4 / 2**20
    paper = None if size.rank else SOFTMAX.get(size.states)
    took = [per_epoch, last.seconds / 60, last.progress, megabytes, peak]
    table.rows.append([size.name, valid, paper, tested, None, *took, rank, apart])
    table.curves.append(
        Curve(size.name, [s.seconds / 60 for s in history], [s.dev_perplexity or np.nan for s in history])
    )
    note = f"{last.progress:g} epochs on {get_num_threads()} threads, {lm.report_.reason}"
    table.figures += [
        Figure(
            f"{size.name}: validation", paper, valid, "perplexity per token", last.seconds,
            note if paper is None else f"{note}; theirs 100 epochs on a GPU, batches of 4 sentences",
        ),
        Figure(f"{size.name}: test", None, tested, "perplexity per token", last.seconds, note),
        Figure(f"{size.name}: seconds per epoch", None, per_epoch, "s", last.seconds, note),
        Figure(
            f"{size.name}: singular values above 1e-5", RANKS.get((size.states, size.rank)), rank, "singular values",
            last.seconds, "of the trained transition matrix; theirs: the authors' logs of training on a GPU",
        ),
        Figure(f"{size.name}: singular values above 0.01", None, large, "singular values", last.seconds, "of the same"),
        Figure(f"{size.name}: peak memory", None, peak, "MB", last.seconds, "of the process in training"),
    ]  # fmt: skip
    if apart is not None:
        table.figures.append(
            Figure(
                f"{size.name}: log evidence against the dense matrix it stands for",
                None,
                apart,
                "relative difference",
                None,
                "two ways to compute one number, in float64: 0 but for rounding",
            )
        )


def same_as_dense(lm: HMMLanguageModel, sentences: Words) -> float:
    """The largest relative difference of log evidences, in float64, when the low-rank matrix is written out."""
    from trelliswork.models.hmm_lm.data import number
    from trelliswork.models.hmm_lm.training import score_sentences

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
    table.rows.append(["Kneser-Ney, order 5", found[0], None, found[1], 141.2, took, took / 60, 1, *[None] * 4])
    table.figures += [
        Figure("Kneser-Ney, order 5: validation", None, found[0], "perplexity per token", took, "a baseline"),
        Figure(
            "Kneser-Ney, order 5: test",
            141.2,
            found[1],
            "perplexity per token",
            took,
            "theirs: Mikolov's thesis, the same text; a baseline",
        ),
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
            note = f"mean of {n_draws} draws; the paper has no figures on this"
            table.figures.append(Figure(row, None, distance, "total variation distance", None, note))
        table.curves.append(curve)
    return table
