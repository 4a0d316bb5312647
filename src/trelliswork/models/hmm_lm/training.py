"""Training of HMM language models: AdamW over batches of sentences, the rate falling by a cosine, validation per epoch.

The random numbers of a batch depend on the seed, the epoch and the number of the batch alone; so a run that is resumed
from a checkpoint ends with the same parameters as one that was never interrupted.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.inference import lowrank
from trelliswork.learning.descent import descend
from trelliswork.learning.report import FitReport, Step
from trelliswork.learning.watch import Development, Watch
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
    s, lengths, started = settings, np.diff(sentences.offsets), time.perf_counter() - seconds
    parameters = {name: p for name, p in network.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(parameters.values(), lr=s.learning_rate, weight_decay=0.0, fused=True)
    epochs = torch.tensor(s.max_iter)  # in all; a part of checkpoints

    def update(which: Ints, done: float, share: float, seed: int) -> float:
        """Train on a batch, after so many epochs; return its negative log evidence."""
        optimizer.param_groups[0]["lr"] = s.learning_rate * schedule(done, share, int(epochs))
        optimizer.zero_grad(set_to_none=True)
        batch = sentences.select(which)
        evidence = batch_evidence(network, batch, state_dropout=s.state_dropout, dropout=s.dropout, seed=seed)
        (-evidence / batch.n_tokens).backward()
        torch.nn.utils.clip_grad_norm_(parameters.values(), CLIP)
        optimizer.step()
        return -float(evidence.detach())

    def epoch(number: int) -> Step:
        nats, parts, began = 0.0, batches(lengths, s.batch_tokens, s.seed, number - 1), time.perf_counter()
        for n, part in enumerate(parts):
            seed = int(np.random.SeedSequence([s.seed, number - 1, n]).generate_state(1)[0])
            nats += update(part, number - 1 + n / len(parts), 1 / len(parts), seed)
            if s.fit_time and number == 1 and n + 1 == min(TIMED, len(parts)):
                each = (time.perf_counter() - began) * len(parts) / (n + 1)
                epochs.fill_(epochs_until(watch, each, started, s.max_iter))
        rate = float(optimizer.param_groups[0]["lr"])
        n_tokens = number * sentences.n_tokens
        return Step(number, nats / sentences.n_tokens, log_evidence=-nats, learning_rate=rate, n_tokens=n_tokens)

    with torch_threads(network):
        found, report = descend(
            epoch,
            parameters | {"epochs": epochs},
            optimizer,
            watch,
            max_iter=s.max_iter,
            settled=lambda steps: f"{int(epochs)} epochs" if len(steps) >= int(epochs) else None,
            snapshot=lambda: {name: p.detach().numpy() for name, p in parameters.items()},
            seconds=seconds,
        )
    with torch.no_grad():
        for name, value in found.items():
            parameters[name].copy_(torch.from_numpy(value))
    return report


def schedule(done: float, share: float, epochs: int) -> float:
    """Return the factor of the learning rate after so many epochs, for a batch that is a share of one."""
    return min(1.0, (done + share) / WARM_UP) * (1 + math.cos(math.pi * done / epochs)) / 2


def epochs_until(watch: Watch, seconds: float, started: float, most: int) -> int:
    """Return the number of epochs, of so many seconds each and those of a validation, until the time limit."""
    assert watch.max_minutes is not None
    began = time.perf_counter()
    if watch.development is not None:
        watch.development.measure({})
    each = 1.05 * (seconds + time.perf_counter() - began)
    return max(1, min(most, int((60 * watch.max_minutes - (began - started)) / each)))
