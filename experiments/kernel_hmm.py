"""HMM language models with many states on Penn Treebank text (paper 4): perplexity by states and rank."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.machine import peak_memory, restart_peak_memory
from experiments.tables import Curve, Say, Table
from trelliswork.compute.threads import get_num_threads
from trelliswork.data import read_text
from trelliswork.errors import DataError, ValueRangeError
from trelliswork.inference import lowrank
from trelliswork.learning.report import Step
from trelliswork.models import HMMLanguageModel

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
LARGE = 4096  # number of states from which on the settings below are the defaults
OF_LARGE = {"state_dropout": 0.5, "batch_tokens": 4096}
Words = list[list[str]]


@dataclass(frozen=True)
class Size:
    """A model to train: ``rank`` 0 is a dense softmax."""

    states: int
    rank: int = 0

    @property
    def name(self) -> str:
        """Name in tables, such as ``kernel, 4096 states, R = 512``."""
        return f"kernel, {self.states} states, R = {self.rank}" if self.rank else f"softmax, {self.states} states"

    @classmethod
    def parse(cls, text: str) -> "Size":
        """Return the size of a text such as ``512`` or ``4096/512``."""
        states, _, rank = text.partition("/")
        try:
            return cls(int(states), int(rank or 0))
        except ValueError:
            raise ValueRangeError(f"a size must be states or states/rank, such as 4096/512, got {text!r}.") from None


def kernel_hmm(
    folder: str | os.PathLike[str],
    *,
    sizes: Sequence[Size | str] = (Size(128), Size(512), Size(1024, 256), Size(4096, 256)),
    max_iter: int = 2,
    max_minutes: float | None = None,
    n_sentences: int = 0,
    kneser_ney: bool = True,
    seed: int = 0,
    batch_tokens: int | None = None,
    learning_rate: float | None = None,
    state_dropout: float | None = None,
    keep: str | os.PathLike[str] | None = None,
    say: Say = lambda _: None,
) -> Table:
    """Train models of several sizes and measure their perplexity.

    The folder has ptb.train.txt, ptb.valid.txt and ptb.test.txt; ``n_sentences`` are used for training, 0 for all. The
    learning rate decreases to zero over ``max_iter`` epochs, so a limit on the number of epochs is better than one on
    the time. Options of `HMMLanguageModel` that are not ``None`` replace its defaults and those of ``OF_LARGE``. The
    folder ``keep`` is for trained models and checkpoints, from which the same call resumes.
    """
    chosen = [Size.parse(size) if isinstance(size, str) else size for size in sizes]
    train, dev, test = (read_text(Path(folder) / f"ptb.{part}.txt").sentences(0) for part in ("train", "valid", "test"))
    train = train[: n_sentences or None]
    table = Table(
        "Penn Treebank text, perplexity per token (sentence ends are tokens), validation and test",
        COLUMNS,
        axes=("minutes", "validation perplexity"),
        notes=[
            "paper valid: the authors' training logs of the softmax HMM (LayerNorm after the block, 256 dimensions).",
            "sigma: singular values of the transition matrix. MB: parameters; peak MB: process memory in training.",
            "dense: relative difference of the log evidence to that of the same matrix in dense form, in float64.",
            f"Defaults for models with {LARGE:,} states or more: "
            + ", ".join(f"{name} {value:g}" for name, value in OF_LARGE.items())
            + ".",
        ],
    )
    options = {"batch_tokens": batch_tokens, "learning_rate": learning_rate, "state_dropout": state_dropout}
    options = {name: value for name, value in options.items() if value is not None}
    for size in chosen:
        settings: dict[str, Any] = (OF_LARGE if size.states >= LARGE else {}) | options
        lm = HMMLanguageModel(
            size.states, n_blocks=1, rank=size.rank or None, max_iter=max_iter, seed=seed, **settings
        )  # fmt: skip
        restart_peak_memory()
        _one(table, size, trained(lm, size, train, dev, keep, say, max_minutes), test)
    if kneser_ney:
        _baseline(table, train, dev, test, say)
    table.rows += [[name, None, valid, None, tested, *[None] * 7] for name, valid, tested in PUBLISHED]
    return table


def trained(
    lm: HMMLanguageModel,
    size: Size,
    train: Words,
    dev: Words,
    keep: str | os.PathLike[str] | None,
    say: Say,
    max_minutes: float | None,
) -> HMMLanguageModel:
    """Return the trained model, from the folder ``keep`` if it is there."""
    checkpoint = file = None
    n_tokens = sum(len(s) + 1 for s in train)
    if keep is not None:
        file = Path(keep) / f"{size.states}-{size.rank}"
        checkpoint = file.with_suffix(".checkpoint")
        Path(keep).mkdir(parents=True, exist_ok=True)
        if file.exists() and not checkpoint.exists():
            say(f"{size.name}: from {file}")
            kept = HMMLanguageModel.load(file)
            if kept.get_params() != lm.get_params() or kept._n_tokens != n_tokens:
                raise DataError(
                    f"{file}: a model of other data or settings. Use those, delete it, or name another folder."
                )
            return kept

    def show(step: Step) -> None:
        if step.iteration:
            point = _point(step, n_tokens)
            say(
                f"{size.name}: epoch {point[1]:.2f}, {step.seconds:.0f} s, perplexity {np.exp(step.value):.1f}, "
                f"validation {point[2]:.1f}"
            )

    lm.fit(train, dev=dev, checkpoint=checkpoint, callback=show, max_minutes=max_minutes)
    lm.report_.details["curve"] = [_point(step, n_tokens) for step in lm.report_.history]  # saved with the model
    if file is not None:
        lm.save(file)
    return lm


def _point(step: Step, n_tokens: int) -> tuple[float, float, float]:
    """Return seconds, epochs and validation perplexity of an iteration."""
    return step.seconds, step.n_tokens / n_tokens, float(np.exp(-(step.dev or np.nan)))


def singular_values(lm: HMMLanguageModel) -> NDArray[np.float64]:
    """Return the singular values of the transition matrix, largest first: R for low rank, else S."""
    transition = lm._computed().transition
    if isinstance(transition, lowrank.LowRank):
        assert transition.log_scale is not None
        factors = transition.left[0].double() * transition.log_scale[0].double().exp()[:, None], transition.right[0]
        inner = [torch.linalg.qr(part.double())[1] for part in factors]
        return torch.linalg.svdvals(inner[0] @ inner[1].T).numpy()
    return np.linalg.svd(lm.transitions().astype(np.float64), compute_uv=False)


def _one(table: Table, size: Size, lm: HMMLanguageModel, test: Words) -> None:
    """Add the row, the curve and the figures of one model."""
    resident = peak_memory()  # before the dense matrices below
    points, tested = lm.report_.details["curve"], lm.perplexity(test)
    valid = None if lm.report_.dev is None else float(np.exp(-lm.report_.dev))
    seconds, epochs, _ = points[-1]
    per_epoch = seconds / epochs
    if len(points) > 1:  # the time before the first validation includes the initialization
        per_epoch = (seconds - points[0][0]) / (epochs - points[0][1])
    spectrum = singular_values(lm)
    rank, large = (int((spectrum > least).sum()) for least in (1e-5, 1e-2))
    apart = same_as_dense(lm, test[:50]) if size.rank and size.states <= 4096 else None
    peak = None if resident is None else resident / 2**20
    megabytes = sum(p.numel() for p in lm._network.parameters()) * 4 / 2**20
    paper = None if size.rank else SOFTMAX.get(size.states)
    took = [per_epoch, seconds / 60, epochs, megabytes, peak]
    table.rows.append([size.name, valid, paper, tested, None, *took, rank, apart])
    table.curves.append(Curve(size.name, [p[0] / 60 for p in points], [p[2] for p in points]))
    note = f"{epochs:g} epochs on {get_num_threads()} threads, {lm.report_.reason}"
    theirs = "" if paper is None else "; theirs 100 epochs on a GPU, batches of 4 sentences"
    table.add(f"{size.name}: validation", paper, valid, "perplexity per token", seconds, note + theirs)
    table.add(f"{size.name}: test", None, tested, "perplexity per token", seconds, note)
    table.add(f"{size.name}: seconds per epoch", None, per_epoch, "s", seconds, note)
    ranks = RANKS.get((size.states, size.rank))
    note = "of the trained transition matrix; theirs: the authors' logs of training on a GPU"
    table.add(f"{size.name}: singular values above 1e-5", ranks, rank, "singular values", seconds, note)
    table.add(f"{size.name}: singular values above 0.01", None, large, "singular values", seconds, "of the same")
    table.add(f"{size.name}: peak memory", None, peak, "MB", seconds, "memory of the process in training")
    if apart is not None:
        row = f"{size.name}: log evidence against the dense matrix it stands for"
        note = "two computations of the same number in float64: equal up to rounding"
        table.add(row, None, apart, "relative difference", None, note)


def same_as_dense(lm: HMMLanguageModel, sentences: Words) -> float:
    """Return the largest relative difference of log evidences to those of the dense matrix, in float64."""
    from trelliswork.models.hmm_lm.data import number

    log_start, transition, log_emission, _ = lm._computed()
    exact = lowrank.double(transition)
    data = number(sentences, lm._words)
    one, other = (
        lowrank.score(log_start.double(), matrix, log_emission.double(), data.words, data.offsets)
        for matrix in (exact, lowrank.Dense(exact.dense()))
    )
    return float(np.abs(one / other - 1).max())


def _baseline(table: Table, train: Words, dev: Words, test: Words, say: Say) -> None:
    from trelliswork.models import KneserNey

    say("Kneser-Ney, 5-grams")
    began = time.perf_counter()
    model = KneserNey(5).fit(train)
    valid, tested = model.perplexity(dev), model.perplexity(test)
    took = time.perf_counter() - began
    name, unit = "Kneser-Ney, order 5", "perplexity per token"
    table.rows.append([name, valid, None, tested, 141.2, took, took / 60, 1, *[None] * 4])
    table.add(f"{name}: validation", None, valid, unit, took, "a baseline")
    table.add(f"{name}: test", 141.2, tested, unit, took, "theirs: Mikolov's thesis, the same text; a baseline")
