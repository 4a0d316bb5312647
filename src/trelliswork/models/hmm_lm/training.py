"""Training of HMM language models: AdamW over batches of sentences, validation several times per epoch.

The random numbers of a batch depend on the seed, the epoch and the number of the batch alone; so a run that is resumed
from a checkpoint ends with the same parameters as one that was never interrupted.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trelliswork.compute import threads
from trelliswork.inference import lowrank
from trelliswork.learning.checkpoint import Arrays
from trelliswork.learning.report import FitReport, Step
from trelliswork.learning.watch import Development, Saved, Watch
from trelliswork.models.hmm_lm.network import Drawn, StateNetwork
from trelliswork.models.hmm_lm.objective import Sentences, batch_evidence

Ints = NDArray[np.int64]
POOL = 8  # batches whose sentences are sorted by length together: few thin steps, yet mixed lengths
WARM_UP = 0.15  # epochs in which the rate grows: the first steps of Adam are large, and would spoil a good start
SMALL_NETWORK = 1 << 25  # multiplications of the words' softmax
SCORE_TOKENS = 20_000  # tokens that are scored at once


@dataclass(frozen=True)
class TrainingSettings:
    """Training settings; the parameters of `HMMLanguageModel` of the same names."""

    max_iter: int = 30
    batch_tokens: int = 4096
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    clip: float = 5.0
    schedule: Literal["plateau", "linear"] = "plateau"
    decay_patience: int = 4
    evaluations: int = 4
    state_dropout: float = 0.1
    feature_dropout: float = 0.0
    keep_every: int | None = None
    seed: int = 0


def text_development(network: StateNetwork, sentences: Sentences) -> Development:
    """Return the metric of the current parameters of a network: mean log evidence per token of held-out sentences."""

    def measure(_: object) -> float:
        return float(log_evidences(network, sentences).sum()) / sentences.n_tokens if len(sentences) else 0.0

    return Development("log evidence per token", measure)


@dataclass
class _Position:
    """The position of a run: all that a checkpoint holds besides tensors."""

    epoch: int = 0
    batch: int = 0
    best: float = -math.inf
    since_cut: int = 0
    rate: float = 0.0
    seconds: float = 0.0
    tokens: int = 0
    nats: float = 0.0
    counted: int = 0


@contextmanager
def torch_threads(network: StateNetwork) -> Iterator[None]:
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


@torch.no_grad()
def log_evidences(network: StateNetwork, sentences: Sentences) -> NDArray[np.float64]:
    """Return log p(words) of each sentence (n,), by the whole network."""
    drawn = Drawn()
    log_start, transition = network.log_start(drawn), network.transition(drawn)
    return score_sentences(log_start, transition, network.log_emission(drawn), sentences)


def score_sentences(
    log_start: Tensor, transition: lowrank.Transition, log_emission: Tensor, sentences: Sentences
) -> NDArray[np.float64]:
    """Return log p(words) of each sentence (n,); sentences of similar length are scored together."""
    lengths = np.diff(sentences.offsets)
    order = np.argsort(-lengths, kind="stable")
    log_p = np.empty(len(order))
    for part in np.split(order, np.flatnonzero(np.diff(np.cumsum(lengths[order]) // SCORE_TOKENS)) + 1):
        some = sentences.select(part)
        distinct, words = np.unique(some.words, return_inverse=True)
        rows = log_emission[torch.from_numpy(distinct)]
        log_p[part] = lowrank.score(log_start, transition, rows, words, some.offsets)
    return log_p


def train(
    network: StateNetwork, sentences: Sentences, settings: TrainingSettings, watch: Watch, *, seconds: float = 0.0
) -> FitReport:
    """Train a network in place; it ends with the best parameters (without development data: the last).

    The watch is called after each validation, which counts as an iteration; ``seconds`` is the time that the
    initialization took. An epoch costs O(N S R) for sums over states (12 multiply-adds per word, state and feature,
    6 S^2 if dense) and O(V S hidden) per batch for the softmax over words: large batches keep the second part small.
    """
    with torch_threads(network):
        return _Trainer(network, sentences, settings, watch, seconds).run()


class _Trainer:
    def __init__(
        self, network: StateNetwork, sentences: Sentences, settings: TrainingSettings, watch: Watch, seconds: float
    ) -> None:
        self.network, self.sentences, self.settings, self.watch = network, sentences, settings, watch
        self.lengths = np.diff(sentences.offsets)
        self.parameters = {name: p for name, p in network.named_parameters() if p.requires_grad}
        self.optimizer = torch.optim.AdamW(
            self.parameters.values(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
        )
        self.report = FitReport(False, "", math.nan)
        self.at = _Position(rate=settings.learning_rate, seconds=seconds)
        saved = watch.resume()
        if saved is not None:
            self._restore(*saved)

    def run(self) -> FitReport:
        """Train epochs until there is a reason to stop."""
        started = time.perf_counter() - self.at.seconds
        s, at, report = self.settings, self.at, self.report
        while not report.reason and at.epoch < s.max_iter:
            parts = batches(self.lengths, s.batch_tokens, s.seed, at.epoch)
            validate_after = {round((k + 1) * len(parts) / s.evaluations) for k in range(s.evaluations)}
            while at.batch < len(parts) and not report.reason:
                self._step(parts[at.batch], at.epoch + at.batch / len(parts), 1 / len(parts))
                at.batch += 1
                if at.batch in validate_after:
                    at.seconds = time.perf_counter() - started
                    self._validate()
            if not report.reason:
                at.epoch, at.batch = at.epoch + 1, 0
        report.converged = not self.watch.interrupted
        report.reason = report.reason or f"{s.max_iter} epochs"
        best, report = self.watch.finish({}, report)
        with torch.no_grad():
            for name, value in best.items():
                self.parameters[name].copy_(torch.from_numpy(value))
        return report

    def _step(self, which: Ints, done: float, more: float) -> None:
        """Train on one batch, after ``done`` epochs; it is the fraction ``more`` of an epoch."""
        s, at = self.settings, self.at
        rate = at.rate * min(1.0, (done + more) / WARM_UP)
        if s.schedule == "linear":
            rate *= 1 - done / s.max_iter
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        batch, n_tokens = self.sentences.select(which), int(self.lengths[which].sum())
        seed = int(np.random.SeedSequence([s.seed, at.epoch, at.batch]).generate_state(1)[0])
        drawn = self.network.draw(s.state_dropout, s.feature_dropout, seed)
        self.optimizer.zero_grad(set_to_none=True)
        evidence = batch_evidence(self.network, batch, drawn, every=s.keep_every)
        (-evidence / n_tokens).backward()
        at.nats -= float(evidence.detach())
        torch.nn.utils.clip_grad_norm_(self.parameters.values(), s.clip)
        self.optimizer.step()
        at.tokens += n_tokens
        at.counted += n_tokens

    def _validate(self) -> None:
        """Measure the parameters, lower the rate on a plateau, decide whether to stop."""
        s, at = self.settings, self.at
        rate = float(self.optimizer.param_groups[0]["lr"])
        step = Step(self.report.n_iter + 1, at.nats / at.counted, seconds=at.seconds)
        step.log_evidence, step.learning_rate, step.n_tokens = -at.nats, rate, at.tokens
        at.nats, at.counted = 0.0, 0
        self.report.add(step)
        values = {name: p.detach().numpy() for name, p in self.parameters.items()}
        # The plateau counter is part of the state that a checkpoint stores, so it is updated before.
        measured = self.watch.measure(step, values)
        if measured is not None:
            at.since_cut += 1
            if measured > at.best:
                at.best, at.since_cut = measured, 0
            elif s.schedule == "plateau" and at.since_cut > s.decay_patience:
                at.rate, at.since_cut = at.rate / 4, 0
        self.report.reason = self.watch.after(step, values, self._state) or ""

    def _state(self) -> Saved:
        plain = {"run": asdict(self.at), "history": self.report.steps()}
        arrays: Arrays = {}
        for name, p in self.parameters.items():
            arrays[f"now.{name}"] = p.detach().numpy()
            for key, value in self.optimizer.state[p].items():
                arrays[f"{key}.{name}"] = value.numpy()
        return plain, arrays

    def _restore(self, plain: dict[str, Any], arrays: Arrays) -> None:
        self.at = _Position(**plain["run"])
        self.report.resume(plain["history"])
        with torch.no_grad():
            for name, p in self.parameters.items():
                p.copy_(torch.from_numpy(arrays[f"now.{name}"].copy()))
                keys = ("step", "exp_avg", "exp_avg_sq")
                self.optimizer.state[p] = {k: torch.from_numpy(arrays[f"{k}.{name}"].copy()) for k in keys}
