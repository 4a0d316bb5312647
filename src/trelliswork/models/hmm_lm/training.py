"""Training of HMM language models: AdamW over batches of sentences, validation several times an epoch.

What is random in a batch follows from the seed, the epoch and the batch's number alone; so a run that goes on from a
checkpoint ends with the same numbers as one that was never interrupted.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trelliswork.compute import threads
from trelliswork.errors import ValueRangeError
from trelliswork.inference import lowrank
from trelliswork.learning.checkpoint import Arrays, Checkpoint
from trelliswork.models.hmm_lm.network import Drawn, StateNetwork
from trelliswork.models.hmm_lm.objective import Sentences, batch_evidence

Ints = NDArray[np.int64]
POOL = 8  # batches whose sentences are sorted by length together: few thin steps, yet mixed lengths
WARM_UP = 0.15  # epochs in which the rate grows: the first steps of Adam are large, and would spoil a good start
SMALL_NETWORK = 1 << 25  # multiplications of the words' softmax
SCORE_TOKENS = 20_000  # scored at once


@dataclass(frozen=True)
class TrainingSettings:
    """How to train.

    Attributes
    ----------
    max_epochs : int
    batch_tokens : int
        Words of a batch, ends of sentences among them.
    learning_rate, weight_decay, clip : float
        Of AdamW; ``clip`` bounds the norm of the gradient of the loss per token.
    schedule : {"plateau", "linear"}
        Divide the rate by 4 after ``patience`` validations without gain; or let it fall to zero over ``max_epochs``.
    patience : int
    stop_after : int
        Validations without gain after which training ends.
    evaluations : int
        Validations an epoch.
    state_dropout, feature_dropout : float
    every : int, optional
        Of ``lowrank.log_evidence``: keep fewer states.
    max_seconds : float, optional
        Stop then.
    seed : int
    """

    max_epochs: int = 30
    batch_tokens: int = 4096
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    clip: float = 5.0
    schedule: Literal["plateau", "linear"] = "plateau"
    patience: int = 4
    stop_after: int = 12
    evaluations: int = 4
    state_dropout: float = 0.1
    feature_dropout: float = 0.0
    every: int | None = None
    max_seconds: float | None = None
    seed: int = 0

    def check(self) -> None:
        """Refuse what cannot be."""
        for name in ("max_epochs", "batch_tokens", "patience", "stop_after", "evaluations"):
            if getattr(self, name) < 1:
                raise ValueRangeError(f"{name} must be a positive whole number, got {getattr(self, name)!r}.")
        for name in ("learning_rate", "clip"):
            if not getattr(self, name) > 0:
                raise ValueRangeError(f"{name} must be above 0, got {getattr(self, name)!r}.")
        for name in ("state_dropout", "feature_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueRangeError(f"{name} must lie in [0, 1), got {getattr(self, name)!r}.")
        if self.schedule not in ("plateau", "linear"):
            raise ValueRangeError(f"schedule must be 'plateau' or 'linear', got {self.schedule!r}.")


@dataclass
class LMStep:
    """How training stands after a validation.

    Attributes
    ----------
    epoch : int
        From 1.
    progress : float
        Epochs done.
    perplexity : float
        Of training batches since the last validation, with dropout.
    dev_perplexity : float or None
    learning_rate, seconds : float
    tokens : int
        Words learned from so far.
    """

    epoch: int
    progress: float
    perplexity: float
    dev_perplexity: float | None
    learning_rate: float
    seconds: float
    tokens: int


@dataclass
class LMReport:
    """How training ended.

    Attributes
    ----------
    reason : str
    converged : bool
        Whether it ended by itself: no gain any more, or all epochs done.
    dev_perplexity : float or None
        Of the parameters that were kept, the best ones.
    history : list of LMStep
    """

    reason: str = ""
    converged: bool = False
    dev_perplexity: float | None = None
    history: list[LMStep] = field(default_factory=list)


Callback = Callable[[LMStep], bool | None]


@dataclass
class _Run:
    """Where a run stands: all that a checkpoint holds besides tensors."""

    epoch: int = 0
    batch: int = 0
    best: float = math.inf
    since_best: int = 0
    since_cut: int = 0
    rate: float = 0.0
    seconds: float = 0.0
    tokens: int = 0
    nats: float = 0.0
    counted: int = 0


@contextmanager
def torch_threads(network: StateNetwork) -> Iterator[None]:
    """Inside, torch uses as many threads as the package does; one for a small network, which gains nothing by more."""
    before, shape = torch.get_num_threads(), network.shape
    small = shape.n_words * shape.n_states * shape.hidden < SMALL_NETWORK
    torch.set_num_threads(1 if small else threads.get_num_threads())
    try:
        yield
    finally:
        torch.set_num_threads(before)


def batches(sentences: Sentences, batch_tokens: int, seed: int, epoch: int) -> list[Ints]:
    """Numbers of the sentences of each batch of one epoch: all sentences once, like lengths together, shuffled."""
    rng = np.random.default_rng([seed, epoch])
    lengths = np.diff(sentences.offsets)
    order = rng.permutation(len(lengths))
    pool = np.cumsum(lengths[order]) // max(1, POOL * batch_tokens)
    order = order[np.lexsort((lengths[order], pool))]
    ends = np.cumsum(lengths[order])
    n = max(1, round(int(ends[-1]) / batch_tokens))
    cuts = np.unique(np.searchsorted(ends, ends[-1] * np.arange(1, n) / n) + 1)
    found = [part for part in np.split(order, cuts) if len(part)]
    return [found[k] for k in rng.permutation(len(found))]


@torch.no_grad()
def log_evidences(network: StateNetwork, sentences: Sentences) -> NDArray[np.float64]:
    """log p(words) of each sentence (n,), by the whole network."""
    drawn = Drawn()
    log_start, transition = network.log_start(drawn), network.transition(drawn)
    return score_sentences(log_start, transition, network.log_emission(drawn), sentences)


def score_sentences(
    log_start: Tensor, transition: lowrank.Transition, log_emission: Tensor, sentences: Sentences
) -> NDArray[np.float64]:
    """log p(words) of each sentence (n,); like lengths are scored together."""
    lengths = np.diff(sentences.offsets)
    order = np.argsort(-lengths, kind="stable")
    found = np.empty(len(order))
    for part in np.split(order, np.flatnonzero(np.diff(np.cumsum(lengths[order]) // SCORE_TOKENS)) + 1):
        some = sentences.select(part)
        distinct, words = np.unique(some.words, return_inverse=True)
        rows = log_emission[torch.from_numpy(distinct)]
        found[part] = lowrank.score(log_start, transition, rows, words, some.offsets)
    return found


def perplexity(log_evidence: float, n_tokens: int) -> float:
    """exp of the mean negative log evidence of a token."""
    return math.exp(min(700.0, -log_evidence / n_tokens))


def train(
    network: StateNetwork,
    sentences: Sentences,
    dev: Sentences | None,
    settings: TrainingSettings,
    *,
    checkpoint: Checkpoint | None = None,
    callback: Callback | None = None,
    spent: float = 0.0,
) -> LMReport:
    """Train a network in place; it ends with the parameters of the best validation (without ``dev``: the last).

    Parameters
    ----------
    network : StateNetwork
    sentences, dev : Sentences
    settings : TrainingSettings
    checkpoint : Checkpoint, optional
        Written after validations; if its file is there, the run goes on from it.
    callback : callable, optional
        Called with each ``LMStep``; a true answer stops.
    spent : float
        Seconds that a start has taken: they count.

    Notes
    -----
    An epoch costs O(N S R) for sums over states (12 multiply-adds a word, state and feature, 6 S^2 if dense) and
    O(V S hidden) a batch for the words' softmax: large batches keep the second part small.
    """
    settings.check()
    with torch_threads(network):
        return _Trainer(network, sentences, dev, settings, checkpoint, callback, spent).run()


class _Trainer:
    def __init__(
        self,
        network: StateNetwork,
        sentences: Sentences,
        dev: Sentences | None,
        settings: TrainingSettings,
        checkpoint: Checkpoint | None,
        callback: Callback | None,
        spent: float,
    ) -> None:
        self.network, self.sentences, self.dev, self.settings = network, sentences, dev, settings
        self.checkpoint, self.callback = checkpoint, callback
        self.parameters = {name: p for name, p in network.named_parameters() if p.requires_grad}
        self.optimiser = torch.optim.AdamW(
            self.parameters.values(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
        )
        self.report, self.at = LMReport(), _Run(rate=settings.learning_rate, seconds=spent)
        self.best: dict[str, Tensor] = {}
        found = checkpoint.read() if checkpoint is not None else None
        if found is not None:
            self._restore(*found)

    def run(self) -> LMReport:
        """Epochs until there is a reason to stop."""
        began = time.perf_counter() - self.at.seconds
        s, at = self.settings, self.at
        while not self.report.reason and at.epoch < s.max_epochs:
            parts = batches(self.sentences, s.batch_tokens, s.seed, at.epoch)
            validate_after = {round((k + 1) * len(parts) / s.evaluations) for k in range(s.evaluations)}
            while at.batch < len(parts) and not self.report.reason:
                self._step(parts[at.batch], at.epoch + at.batch / len(parts), 1 / len(parts))
                at.batch += 1
                if at.batch in validate_after:
                    at.seconds = time.perf_counter() - began
                    self._validate(at.batch / len(parts))
            if not self.report.reason:
                at.epoch, at.batch = at.epoch + 1, 0
        if not self.report.reason:
            self.report.reason, self.report.converged = f"all {s.max_epochs} epochs done", True
        if self.best:
            with torch.no_grad():
                for name, value in self.best.items():
                    self.parameters[name].copy_(value)
            self.report.dev_perplexity = at.best
        if self.checkpoint is not None and self.report.converged:
            self.checkpoint.remove()
        return self.report

    def _step(self, which: Ints, done: float, more: float) -> None:
        """Learn from one batch, after ``done`` epochs; it is ``more`` of one."""
        s, at = self.settings, self.at
        rate = at.rate * min(1.0, (done + more) / WARM_UP)
        if s.schedule == "linear":
            rate *= 1 - done / s.max_epochs
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        batch = self.sentences.select(which)
        seed = int(np.random.SeedSequence([s.seed, at.epoch, at.batch]).generate_state(1)[0])
        drawn = self.network.draw(s.state_dropout, s.feature_dropout, seed)
        evidence = batch_evidence(self.network, batch, drawn, every=s.every)
        self.optimiser.zero_grad(set_to_none=True)
        (-evidence / batch.n_tokens).backward()
        torch.nn.utils.clip_grad_norm_(self.parameters.values(), s.clip)
        self.optimiser.step()
        at.tokens += batch.n_tokens
        at.nats -= float(evidence.detach())
        at.counted += batch.n_tokens

    def _validate(self, part: float) -> None:
        """Judge the parameters, remember the best, lower the rate, decide whether to stop."""
        s, at = self.settings, self.at
        found = None
        if self.dev is not None:
            found = perplexity(float(log_evidences(self.network, self.dev).sum()), self.dev.n_tokens)
            at.since_best, at.since_cut = at.since_best + 1, at.since_cut + 1
            if found < at.best:
                at.best, at.since_best, at.since_cut = found, 0, 0
                self.best = {name: p.detach().clone() for name, p in self.parameters.items()}
            elif s.schedule == "plateau" and at.since_cut > s.patience:
                at.rate, at.since_cut = at.rate / 4, 0
        rate = self.optimiser.param_groups[0]["lr"]
        step = LMStep(
            at.epoch + 1, at.epoch + part, perplexity(-at.nats, at.counted), found, rate, at.seconds, at.tokens
        )
        at.nats, at.counted = 0.0, 0
        self.report.history.append(step)
        if self.dev is not None and at.since_best >= s.stop_after:
            self.report.reason = f"no gain in {s.stop_after} validations"
            self.report.converged = True
        elif s.max_seconds is not None and at.seconds >= s.max_seconds:
            self.report.reason = f"stopped after {s.max_seconds:g} seconds"
        stopped = self.callback is not None and self.callback(step)
        if self.checkpoint is not None and (stopped or self.report.reason or self.checkpoint.due()):
            self.checkpoint.write(*self._state())
        if stopped and not self.report.reason:
            self.report.reason = "stopped by the caller"

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        plain = {"run": asdict(self.at), "history": [asdict(step) for step in self.report.history]}
        arrays: Arrays = {}
        for name, p in self.parameters.items():
            arrays[f"now.{name}"] = p.detach().numpy()
            for key, value in self.optimiser.state[p].items():
                arrays[f"{key}.{name}"] = value.numpy()
        return plain, arrays | {f"best.{name}": value.numpy() for name, value in self.best.items()}

    def _restore(self, plain: dict[str, Any], arrays: Arrays) -> None:
        self.at = _Run(**plain["run"])
        self.report.history = [LMStep(**step) for step in plain["history"]]
        with torch.no_grad():
            for name, p in self.parameters.items():
                p.copy_(torch.from_numpy(arrays[f"now.{name}"].copy()))
                keys = ("step", "exp_avg", "exp_avg_sq")
                self.optimiser.state[p] = {k: torch.from_numpy(arrays[f"{k}.{name}"].copy()) for k in keys}
        self.best = {
            name.removeprefix("best."): torch.from_numpy(value.copy())
            for name, value in arrays.items()
            if name.startswith("best.")
        }
