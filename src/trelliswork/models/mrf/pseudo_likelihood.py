r"""Pseudo-likelihood of a Markov random field by stochastic gradients: a baseline that needs the text itself.

.. math:: \sum_i \log p(x_i \mid x_{i-K} \dots x_{i-1}, x_{i+1} \dots x_{i+K}), \qquad
    p \propto \exp\Big(\theta^0(x_i) + \sum_l U_{x_{i-l}} \cdot W^l_{x_i} + U_{x_i} \cdot W^l_{x_{i+l}}\Big)

over the words of the text, normalized over all words (Jernite, Rush and Sontag, 2015, section 3).

In a group of processes the batches are those of a single process: all ranks draw the same order of the words of all
ranks, and compute the gradient of their own words of a batch. It is summed over ranks in one message, and every rank
takes the same step.
"""

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trelliswork.compute.sharing import current
from trelliswork.learning.checkpoint import Arrays, with_prefix
from trelliswork.learning.distributed import sum_tensors
from trelliswork.learning.report import FitReport, Step
from trelliswork.learning.watch import Saved, Watch

Ids = NDArray[np.int64]
PAD = 0


@dataclass
class Field:
    """Parameters in float32: unary (C,), U (C, D), W (K, C, D)."""

    unary: torch.Tensor
    left: torch.Tensor
    right: torch.Tensor

    def tensors(self) -> list[torch.Tensor]:
        """Return all tensors."""
        return [self.unary, self.left, self.right]


def padded_stream(ids: Ids, K: int) -> Ids:
    """Return a stream of words with K pads around each sentence, from one with -1 after each sentence."""
    repeats = np.where(ids < 0, K, 1)
    return np.concatenate([np.zeros(K, np.int64), np.repeat(np.maximum(ids, PAD), repeats)])


def log_p_of_all(
    field: Field, text: torch.Tensor, places: torch.Tensor
) -> tuple[torch.Tensor, list[torch.Tensor], torch.Tensor]:
    """Return log p (n, C) of all words at some places, and the vectors of their contexts: K of (n, D), and (n, D)."""
    K = len(field.right)
    lefts = [field.left[text[places - d]] for d in range(1, K + 1)]
    behind = sum((field.right[d - 1][text[places + d]] for d in range(1, K + 1)), torch.zeros_like(lefts[0]))
    scores = torch.addmm(field.unary, behind, field.left.T)
    for d in range(K):
        scores.addmm_(lefts[d], field.right[d].T)
    scores[:, PAD] = -torch.inf
    return torch.log_softmax(scores, 1), lefts, behind


def gradients(field: Field, text: torch.Tensor, places: torch.Tensor) -> tuple[float, Field]:
    """Return the sum of log p over some places of a padded text, and its gradient.

    Time O(n K C D), memory O(n C).
    """
    K, words = len(field.right), text[places]
    log_p, lefts, behind = log_p_of_all(field, text, places)
    rows = torch.arange(len(places))
    value = float(log_p[rows, words].double().sum())
    slope = log_p.exp_().neg_()
    slope[rows, words] += 1
    gradient = Field(slope.sum(0), slope.T @ behind, torch.empty_like(field.right))
    for d in range(K):
        gradient.right[d] = slope.T @ lefts[d]
        gradient.left.index_add_(0, text[places - d - 1], slope @ field.right[d])
    back = slope @ field.left
    for d in range(K):
        gradient.right[d].index_add_(0, text[places + d + 1], back)
    return value, gradient


def train(
    field: Field,
    text: Ids,
    watch: Watch,
    *,
    learning_rate: float = 2e-3,
    batch_size: int = 512,
    max_iter: int = 10,
    l2: float = 0.0,
    unary: bool = True,
    seed: int = 0,
) -> FitReport:
    """Train a field in place by Adam over shuffled words; the rate decreases linearly to a tenth.

    The field ends as the best one. ``text`` comes from ``padded_stream``. The watch is called ten times per epoch,
    which are the iterations, and measures at the end of each of ``max_iter`` epochs. The penalty is l2 * |U, W|^2 for
    the text as a whole; without ``unary`` that is left unchanged.
    """
    stream, places = torch.from_numpy(text), torch.from_numpy(np.flatnonzero(text != PAD))
    first, n_places = current().place(len(places))
    rng = torch.Generator().manual_seed(seed)
    run, report, reason = _Run(field), FitReport(False, f"{max_iter} epochs", np.nan), None
    saved = watch.resume()
    if saved is not None:
        run.restore(report, *saved)
    started = time.perf_counter() - run.seconds
    per_epoch = -(-n_places // batch_size)
    total, tenths = per_epoch * max_iter, {round(per_epoch * k / 10) for k in range(1, 10)}
    for epoch in range(max_iter):
        order = torch.randperm(n_places, generator=rng).numpy()
        for b in range(run.n_steps - epoch * per_epoch, per_epoch):  # empty for epochs before the interruption
            batch = order[b * batch_size : (b + 1) * batch_size]
            own = places[torch.from_numpy(current().own(batch, first, len(places)))]
            gain, gradient = gradients(field, stream, own)
            gain = current().total(gain)
            sum_tensors(gradient.tensors())
            if not unary:
                gradient.unary.zero_()
            rate = learning_rate * (1 - 0.9 * (run.n_steps + 1) / total)
            run.step(gradient, gain, len(batch), rate, l2 / n_places)
            complete = b + 1 == per_epoch
            if not complete and b + 1 not in tenths:
                continue
            run.seconds = time.perf_counter() - started
            step = run.report(per_epoch)
            if complete:
                report.add(step)
                run.value, run.done = 0.0, 0
            reason = watch.after(step, run.parameters(), partial(run.state, report), measure=complete)
            if reason is not None:
                break
        if reason is not None:
            report.reason, report.converged = reason, not watch.interrupted
            if not complete:
                _keep_partial_epoch(step, run, report, watch)
            break
    best, _ = watch.finish({}, report)
    if watch.best_iteration:
        report.value = next(step.value for step in report.history if step.iteration == watch.best_iteration)
        for tensor, value in zip(field.tensors(), best.values(), strict=True):
            tensor.copy_(torch.from_numpy(value))
    return report


def _keep_partial_epoch(step: Step, run: "_Run", report: FitReport, watch: Watch) -> None:
    """Measure an epoch that was interrupted, for the result of this run; the checkpoint does not contain this."""
    report.add(step)
    measured = watch.measure(step, run.parameters())
    if measured is not None and measured > watch.best:
        watch.best, watch.best_iteration = measured, step.iteration
        watch.best_parameters = {name: value.copy() for name, value in run.parameters().items()}


class _Run:
    """State of training: the field, Adam, and sums over the current epoch."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self.adam = torch.optim.Adam(field.tensors(), maximize=True)
        self.n_steps = self.done = 0
        self.value = self.seconds = 0.0  # sum of log p of ``done`` words; time so far

    def step(self, gradient: Field, gain: float, n: int, rate: float, l2: float) -> None:
        """Take a step of Adam on the mean over a batch of n words."""
        self.value, self.done, self.n_steps = self.value + gain, self.done + n, self.n_steps + 1
        for tensor, slope in zip(self.field.tensors(), gradient.tensors(), strict=True):
            slope /= n
            if l2 and tensor is not self.field.unary:
                slope.add_(tensor, alpha=-2 * l2)
            tensor.grad = slope
        self.adam.param_groups[0]["lr"] = rate
        self.adam.step()

    def report(self, per_epoch: int) -> Step:
        """Return a step about the current epoch so far; iterations are tenths of epochs."""
        iteration = max(1, round(10 * self.n_steps / per_epoch))
        return Step(iteration, -self.value / self.done, n_evaluations=self.n_steps, seconds=self.seconds)

    def parameters(self) -> Arrays:
        """Return the field as arrays."""
        return {str(k): tensor.numpy() for k, tensor in enumerate(self.field.tensors())}

    def state(self, report: FitReport) -> Saved:
        """Return all that ``restore`` needs."""
        plain = {name: getattr(self, name) for name in ("n_steps", "done", "value", "seconds")}
        arrays = {f"field.{k}": value for k, value in self.parameters().items()}
        for k, tensor in enumerate(self.field.tensors()):
            arrays |= {f"adam.{k}.{name}": value.numpy() for name, value in self.adam.state[tensor].items()}
        return plain | {"history": report.steps()}, arrays

    def restore(self, report: FitReport, plain: dict[str, Any], arrays: Arrays) -> None:
        """Continue from a checkpoint."""
        report.resume(plain["history"])
        for name in ("n_steps", "done", "value", "seconds"):
            setattr(self, name, plain[name])
        for k, tensor in enumerate(self.field.tensors()):
            tensor.copy_(torch.from_numpy(arrays[f"field.{k}"]))
            own = with_prefix(arrays, f"adam.{k}.")
            self.adam.state[tensor] = {name: torch.from_numpy(array.copy()) for name, array in own.items()}


def mean_log_p(field: Field, text: Ids, batch_size: int = 512) -> float:
    """Return the mean log p of a word given its neighbors, of a padded text that all ranks have: each takes a share."""
    stream, places = torch.from_numpy(text), torch.from_numpy(np.flatnonzero(text != PAD))
    places = places[slice(*current().share(len(places)))]
    total = 0.0
    for part in places.split(batch_size):
        log_p, _, _ = log_p_of_all(field, stream, part)
        total += float(log_p.gather(1, stream[part][:, None]).double().sum())
    return current().ratio(total, len(places))
