"""Training of HMM language models: AdamW over batches of sentences, the rate falling by a cosine, validation per epoch.

The random numbers of a batch depend on the seed, the epoch and the number of the batch alone; so a run that is resumed
from a checkpoint ends with the same parameters as one that was never interrupted.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.inference import lowrank
from trelliswork.learning import descent
from trelliswork.learning.checkpoint import Arrays
from trelliswork.learning.report import FitReport, Step
from trelliswork.learning.watch import Development, Saved, Watch
from trelliswork.models.hmm_lm.network import Network
from trelliswork.models.hmm_lm.objective import Sentences, batch_evidence

Ints = NDArray[np.int64]
POOL = 8  # batches whose sentences are sorted by length together: few thin steps, yet mixed lengths
WARM_UP = 0.15  # epochs in which the rate grows: the first steps of Adam are large, and would spoil a good start
SMALL_NETWORK = 1 << 25  # multiplications of the words' softmax
CLIP = 5.0  # norm of the gradient per token: only broken batches exceed it
TIMED = 10  # batches that are timed for the number of epochs that a time limit allows


@dataclass(frozen=True)
class TrainingSettings:
    """Training settings; most are parameters of `HMMLanguageModel` of the same names."""

    max_iter: int = 20
    batch_tokens: int = 2048
    learning_rate: float = 0.003
    state_dropout: float = 0.1
    dropout: float = 0.0
    seed: int = 0
    fit_time: bool = False  # whether there are as many epochs as the time limit allows, up to ``max_iter``


def text_development(network: Network, sentences: Sentences) -> Development:
    """Return the metric of a network: the mean log-probability per token of held-out sentences."""

    def measure(_: object) -> float:
        return float(log_evidences(network, sentences).sum()) / sentences.n_tokens if len(sentences) else 0.0

    return Development("log-probability per token", measure)


@dataclass
class _Position:
    """The position of a run: all that a checkpoint holds besides tensors."""

    epoch: int = 0
    epochs: int = 0  # in all
    seconds: float = 0.0
    tokens: int = 0


@contextmanager
def torch_threads(network: Network) -> Iterator[None]:
    """Let torch use as many threads as the package; one for a small network, which gains nothing from more."""
    before, shape = torch.get_num_threads(), network.shape
    small = shape.n_words * shape.n_states * shape.hidden < SMALL_NETWORK
    torch.set_num_threads(1 if small else threads.get_num_threads())
    try:
        yield
    finally:
        torch.set_num_threads(before)


def batches(lengths: Ints, batch_tokens: int, seed: int, epoch: int) -> list[Ints]:
    """Return the sentence numbers of each batch of an epoch: all sentences once, similar lengths together, shuffled."""
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(lengths))
    pool = np.cumsum(lengths[order]) // max(1, POOL * batch_tokens)
    order = order[np.lexsort((lengths[order], pool))]
    ends = np.cumsum(lengths[order])
    n = max(1, round(int(ends[-1]) / batch_tokens))
    cuts = np.unique(np.searchsorted(ends, ends[-1] * np.arange(1, n) / n) + 1)
    parts = [part for part in np.split(order, cuts) if len(part)]
    return [parts[k] for k in rng.permutation(len(parts))]


def log_evidences(network: Network, sentences: Sentences) -> NDArray[np.float64]:
    """Return log p(words) of each sentence (n,), by the whole network."""
    log_start, transition, log_emission, blocks = network.tables()
    return lowrank.score(log_start, transition, log_emission, sentences.words, sentences.offsets, blocks)


def train(
    network: Network, sentences: Sentences, settings: TrainingSettings, watch: Watch, *, seconds: float = 0.0
) -> FitReport:
    """Train a network in place; it ends with the best parameters (without development data: the last).

    The watch is called after each epoch, which counts as an iteration; ``seconds`` is the time that the initialization
    took.
    """
    with torch_threads(network):
        return _Trainer(network, sentences, settings, watch, seconds).run()


class _Trainer:
    def __init__(
        self, network: Network, sentences: Sentences, settings: TrainingSettings, watch: Watch, seconds: float
    ) -> None:
        self.network, self.sentences, self.settings, self.watch = network, sentences, settings, watch
        self.lengths = np.diff(sentences.offsets)
        self.parameters = {name: p for name, p in network.named_parameters() if p.requires_grad}
        self.optimizer = torch.optim.AdamW(
            self.parameters.values(), lr=settings.learning_rate, weight_decay=0.0, fused=True
        )
        self.report = FitReport(False, "", math.nan)
        self.at = _Position(epochs=settings.max_iter, seconds=seconds)
        saved = watch.resume()
        if saved is not None:
            self._restore(*saved)

    def run(self) -> FitReport:
        """Train epochs until there is a reason to stop."""
        self.started = time.perf_counter() - self.at.seconds
        at, report = self.at, self.report
        while not report.reason and at.epoch < at.epochs:
            nats, parts = 0.0, batches(self.lengths, self.settings.batch_tokens, self.settings.seed, at.epoch)
            began = time.perf_counter()
            for n, part in enumerate(parts):
                nats += self._step(part, n, len(parts))
                if self.settings.fit_time and at.epoch == 0 and n + 1 == min(TIMED, len(parts)):
                    self._fit_time((time.perf_counter() - began) * len(parts) / (n + 1))
            at.epoch, at.seconds = at.epoch + 1, time.perf_counter() - self.started
            self._validate(nats)
        report.converged = not self.watch.interrupted
        report.reason = report.reason or f"{at.epochs} epochs"
        best, report = self.watch.finish({}, report)
        with torch.no_grad():
            for name, value in best.items():
                self.parameters[name].copy_(torch.from_numpy(value))
        return report

    def _fit_time(self, seconds: float) -> None:
        """Choose the number of epochs, of so many seconds each and those of a validation."""
        assert self.watch.max_minutes is not None
        began = time.perf_counter()
        if self.watch.development is not None:
            self.watch.development.measure({})
        each = 1.05 * (seconds + time.perf_counter() - began)
        left = 60 * self.watch.max_minutes - (began - self.started)
        self.at.epochs = max(1, min(self.settings.max_iter, int(left / each)))

    def _step(self, which: Ints, n: int, n_batches: int) -> float:
        """Train on batch n of an epoch; return its negative log evidence."""
        s, at = self.settings, self.at
        done = at.epoch + n / n_batches
        rate = s.learning_rate * min(1.0, (done + 1 / n_batches) / WARM_UP)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * (1 + math.cos(math.pi * done / at.epochs)) / 2
        batch, n_tokens = self.sentences.select(which), int(self.lengths[which].sum())
        seed = int(np.random.SeedSequence([s.seed, at.epoch, n]).generate_state(1)[0])
        self.optimizer.zero_grad(set_to_none=True)
        evidence = batch_evidence(self.network, batch, state_dropout=s.state_dropout, dropout=s.dropout, seed=seed)
        (-evidence / n_tokens).backward()
        torch.nn.utils.clip_grad_norm_(self.parameters.values(), CLIP)
        self.optimizer.step()
        at.tokens += n_tokens
        return -float(evidence.detach())

    def _validate(self, nats: float) -> None:
        """Measure the parameters, decide whether to stop."""
        rate = float(self.optimizer.param_groups[0]["lr"])
        step = Step(self.report.n_iter + 1, nats / self.sentences.n_tokens, seconds=self.at.seconds)
        step.log_evidence, step.learning_rate, step.n_tokens = -nats, rate, self.at.tokens
        self.report.add(step)
        values = {name: p.detach().numpy() for name, p in self.parameters.items()}
        self.report.reason = self.watch.after(step, values, self._state) or ""

    def _state(self) -> Saved:
        return {"run": asdict(self.at), "history": self.report.steps()}, descent.state(self.parameters, self.optimizer)

    def _restore(self, plain: dict[str, Any], arrays: Arrays) -> None:
        self.at = _Position(**plain["run"])
        self.report.resume(plain["history"])
        descent.restore(self.parameters, self.optimizer, arrays)
