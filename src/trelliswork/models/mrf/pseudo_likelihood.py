r"""Pseudo-likelihood of a Markov random field by stochastic gradients: the baseline that needs the text itself.

.. math:: \sum_i \log p(x_i \mid x_{i-K} \dots x_{i-1}, x_{i+1} \dots x_{i+K}), \qquad
    p \propto \exp\Big(\theta^0(x_i) + \sum_l U_{x_{i-l}} \cdot W^l_{x_i} + U_{x_i} \cdot W^l_{x_{i+l}}\Big)

over the words of the text, normalised over all words (Jernite, Rush and Sontag, 2015, section 3).
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trelliswork.errors import ValueRangeError
from trelliswork.learning.checkpoint import Checkpoint
from trelliswork.learning.lbfgs import FitReport, Step
from trelliswork.models.mrf.search import STOPPED

Ids = NDArray[np.int64]
PAD = 0
FIELDS = ("now", "best", "first", "second")  # of a run, in a checkpoint
PLAIN = ("n_steps", "value", "done", "best_dev", "best_at", "best_value", "seconds")


@dataclass
class Field:
    """Parameters in float32: unary (C,), U (C, D), W (K, C, D)."""

    unary: torch.Tensor
    left: torch.Tensor
    right: torch.Tensor

    def tensors(self) -> list[torch.Tensor]:
        """All of them."""
        return [self.unary, self.left, self.right]

    def copy(self) -> "Field":
        """A copy."""
        return Field(*(t.clone() for t in self.tensors()))


def padded_stream(ids: Ids, K: int) -> Ids:
    """A stream of words with -1 after each sentence as one with K pads around each sentence."""
    repeats = np.where(ids < 0, K, 1)
    return np.concatenate([np.zeros(K, np.int64), np.repeat(np.maximum(ids, PAD), repeats)])


def log_p_of_all(
    field: Field, text: torch.Tensor, places: torch.Tensor
) -> tuple[torch.Tensor, list[torch.Tensor], torch.Tensor]:
    """log p (n, C) of all words at some places, and what they were scored with: lefts (K of (n, D)), behind (n, D)."""
    K = len(field.right)
    lefts = [field.left[text[places - d]] for d in range(1, K + 1)]
    behind = sum((field.right[d - 1][text[places + d]] for d in range(1, K + 1)), torch.zeros_like(lefts[0]))
    scores = torch.addmm(field.unary, behind, field.left.T)
    for d in range(K):
        scores.addmm_(lefts[d], field.right[d].T)
    scores[:, PAD] = -torch.inf
    return torch.log_softmax(scores, 1), lefts, behind


def gradients(field: Field, text: torch.Tensor, places: torch.Tensor) -> tuple[float, Field]:
    """Sum of log p over some places of a padded text, and its gradient.

    Time O(n K C D), memory O(n C).
    """
    K, words = len(field.right), text[places]
    log_p, lefts, behind = log_p_of_all(field, text, places)
    rows = torch.arange(len(places))
    value = float(log_p[rows, words].double().sum())
    slope = log_p.exp_().neg_()
    slope[rows, words] += 1
    found = Field(slope.sum(0), slope.T @ behind, torch.empty_like(field.right))
    for d in range(K):
        found.right[d] = slope.T @ lefts[d]
        found.left.index_add_(0, text[places - d - 1], slope @ field.right[d])
    back = slope @ field.left
    for d in range(K):
        found.right[d].index_add_(0, text[places + d + 1], back)
    return value, found


def train(
    field: Field,
    text: Ids,
    *,
    dev: Ids | None = None,
    rate: float = 2e-3,
    batch_size: int = 512,
    epochs: int = 10,
    patience: int = 10,
    l2: float = 0.0,
    unary: bool = True,
    seed: int = 0,
    checkpoint: Checkpoint | None = None,
    callback: Callable[[Step], bool | None] | None = None,
) -> tuple[Field, FitReport]:
    """Adam over shuffled words; the rate falls linearly to a tenth. The epoch with the best development figure is kept.

    Parameters
    ----------
    field : Field
        Where to begin; left unchanged.
    text, dev : ndarray
        From ``padded_stream``. ``Step.dev`` is the mean log p of a word of ``dev``.
    rate, batch_size, epochs, seed
    patience : int
        With ``dev``: stop after so many tenths of epochs without a better figure, looked at after each epoch.
    l2 : float
        Penalty l2 / 2 |U, W|^2 for the text as a whole.
    unary : bool
        Whether the unary is learned; if not, it stays as it is.
    checkpoint : Checkpoint, optional
        Where an interrupted run goes on from: written at tenths of epochs, removed at the end unless the caller stops.
    callback : callable, optional
        Called ten times an epoch with a ``Step`` (``iteration`` in tenths of epochs); a true answer stops.
    """
    if rate <= 0 or min(batch_size, epochs, patience) < 1:
        raise ValueRangeError(
            f"rate, batch_size, epochs and patience must be positive, got {rate}, {batch_size}, {epochs}, {patience}."
        )
    began = time.perf_counter()
    stream, places = torch.from_numpy(text), torch.from_numpy(np.flatnonzero(text != PAD))
    rng = torch.Generator().manual_seed(seed)
    saved = None if checkpoint is None else checkpoint.read()
    run = _Run.begin(field) if saved is None else _Run.from_plain(*saved)
    began -= run.seconds
    per_epoch = -(-len(places) // batch_size)
    total, tenths = per_epoch * epochs, {round(per_epoch * k / 10) for k in range(1, 10)}
    report, stopped = FitReport(False, f"{epochs} epochs", run.best_value, run.history), False
    for epoch in range(epochs):
        order = places[torch.randperm(len(places), generator=rng)]
        if run.n_steps >= (epoch + 1) * per_epoch:
            continue  # done before the interruption
        for b in range(run.n_steps - epoch * per_epoch, per_epoch):
            batch = order[b * batch_size : (b + 1) * batch_size]
            gain, gradient = gradients(run.now, stream, batch)
            if not unary:
                gradient.unary.zero_()  # a step of nothing
            run.add(gain, len(batch))
            _adam(run, gradient, rate * (1 - 0.9 * run.n_steps / total), len(batch), l2 / len(places))
            if b + 1 in tenths:
                stopped = callback is not None and bool(callback(run.step(per_epoch, began)))
                run.keep(checkpoint, began, stopped)
            if stopped:
                break
        step = run.step(per_epoch, began)  # a last epoch may not be a whole one
        if dev is not None:
            step.dev = mean_log_p(run.now, dev)
        late = run.end_epoch(step) and not stopped and step.iteration - run.best_at >= patience
        report.value = run.best_value
        if late:
            report.converged, report.reason = True, "no better figure of the development data"
            break
        if stopped:
            report.reason = STOPPED
            break
        stopped = callback is not None and bool(callback(step))
        run.keep(checkpoint, began, stopped)
        if stopped:
            report.reason = STOPPED
            break
    if checkpoint is not None and not stopped:
        checkpoint.remove()
    return run.best, report


@dataclass
class _Run:
    """Where training stands: what is learned, Adam's means, the epoch so far, and the best epoch."""

    now: Field
    best: Field
    first: Field
    second: Field
    history: list[Step]
    n_steps: int = 0
    value: float = 0.0  # sum of log p in this epoch,
    done: int = 0  # of so many words
    best_dev: float = -np.inf
    best_at: int = 0
    best_value: float = 0.0
    seconds: float = 0.0

    @classmethod
    def begin(cls, field: Field) -> "_Run":
        first, second = (Field(*(torch.zeros_like(t) for t in field.tensors())) for _ in range(2))
        return cls(field.copy(), field, first, second, [])

    def add(self, gain: float, n: int) -> None:
        self.value, self.done, self.n_steps = self.value + gain, self.done + n, self.n_steps + 1

    def step(self, per_epoch: int, began: float) -> Step:
        tenths = max(1, round(10 * self.n_steps / per_epoch))
        mean = -self.value / self.done
        return Step(tenths, mean, float("nan"), 0, self.n_steps, time.perf_counter() - began)

    def end_epoch(self, step: Step) -> bool:
        """Take down how an epoch went; True if it was no better than another one."""
        self.history.append(step)
        self.value, self.done = 0.0, 0
        if step.dev is not None and step.dev <= self.best_dev:
            return True
        self.best, self.best_value, self.best_at = self.now.copy(), step.value, step.iteration
        self.best_dev = -np.inf if step.dev is None else step.dev
        return False

    def keep(self, checkpoint: Checkpoint | None, began: float, stopped: bool) -> None:
        """Write the checkpoint, if it is due or the last one."""
        if checkpoint is None or not (stopped or checkpoint.due()):
            return
        self.seconds = time.perf_counter() - began
        plain = {name: getattr(self, name) for name in PLAIN} | {"history": [asdict(step) for step in self.history]}
        arrays = {
            f"{name}.{k}": tensor.numpy() for name in FIELDS for k, tensor in enumerate(getattr(self, name).tensors())
        }
        checkpoint.write(plain, arrays)

    @classmethod
    def from_plain(cls, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> "_Run":
        now, best, first, second = (
            Field(*(torch.from_numpy(arrays[f"{name}.{k}"].copy()) for k in range(3))) for name in FIELDS
        )
        history = [Step(**step) for step in plain["history"]]
        return cls(now, best, first, second, history, **{name: plain[name] for name in PLAIN})


def mean_log_p(field: Field, text: Ids, batch_size: int = 512) -> float:
    """The mean log p of a word given its neighbours, of a padded text."""
    stream, places = torch.from_numpy(text), torch.from_numpy(np.flatnonzero(text != PAD))
    if not len(places):
        return 0.0
    total = 0.0
    for part in places.split(batch_size):
        log_p, _, _ = log_p_of_all(field, stream, part)
        total += float(log_p.gather(1, stream[part][:, None]).double().sum())
    return total / len(places)


def _adam(run: _Run, gradient: Field, rate: float, size: int, l2: float) -> None:
    """One step uphill (Kingma and Ba, 2015, algorithm 1)."""
    n = run.n_steps
    parts = (run.now.tensors(), gradient.tensors(), run.first.tensors(), run.second.tensors())
    for t, g, m, v in zip(*parts, strict=True):
        g /= size
        if l2 and t is not run.now.unary:
            g.add_(t, alpha=-l2)
        m.mul_(0.9).add_(g, alpha=0.1)
        v.mul_(0.999).addcmul_(g, g, value=0.001)
        spread = v.sqrt().div_((1 - 0.999**n) ** 0.5).add_(1e-8)
        t.addcdiv_(m, spread, value=rate / (1 - 0.9**n))
