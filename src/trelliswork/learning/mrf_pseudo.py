r"""Pseudo-likelihood of a Markov random field by stochastic gradients: the baseline that needs the text itself.

.. math:: \sum_i \log p(x_i \mid x_{i-K} \dots x_{i-1}, x_{i+1} \dots x_{i+K}), \qquad
    p \propto \exp\Big(\theta^0(x_i) + \sum_l U_{x_{i-l}} \cdot W^l_{x_i} + U_{x_i} \cdot W^l_{x_{i+l}}\Big)

over the words of the text, normalised over all words (Jernite, Rush and Sontag, 2015, section 3).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from trelliswork.errors import ValueRangeError
from trelliswork.learning.lbfgs import FitReport, Step

Ids = NDArray[np.int64]
PAD = 0


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
    seed: int = 0,
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
    now, best = field.copy(), field
    first = [torch.zeros_like(t) for t in now.tensors()]
    second = [torch.zeros_like(t) for t in now.tensors()]
    report, best_dev, n_steps = FitReport(False, f"{epochs} epochs", 0.0), -np.inf, 0
    per_epoch = -(-len(places) // batch_size)
    total = per_epoch * epochs
    stopped, best_at = False, 0
    for _ in range(epochs):
        order = places[torch.randperm(len(places), generator=rng)]
        value, done = 0.0, 0
        tenths = {round(per_epoch * k / 10) for k in range(1, 10)}
        for b in range(per_epoch):
            batch = order[b * batch_size : (b + 1) * batch_size]
            gain, gradient = gradients(now, stream, batch)
            value, done = value + gain, done + len(batch)
            n_steps += 1
            _adam(
                now, gradient, first, second, n_steps, rate * (1 - 0.9 * n_steps / total), len(batch), l2 / len(places)
            )
            if b + 1 in tenths and callback is not None:
                step = _step(per_epoch, n_steps, -value / done, began)
                stopped = bool(callback(step))
            if stopped:
                break
        step = _step(per_epoch, n_steps, -value / done, began)  # a last epoch may not be a whole one
        if dev is not None:
            step.dev = mean_log_p(now, dev)
        report.history.append(step)
        if dev is None or step.dev > best_dev:  # type: ignore[operator]
            best, best_dev, best_at = now.copy(), step.dev if step.dev is not None else -np.inf, step.iteration
            report.value = step.value
        elif not stopped and step.iteration - best_at >= patience:
            report.converged, report.reason = True, "no better figure of the development data"
            break
        if stopped or (callback is not None and callback(step)):
            report.reason = "stopped by the caller"
            break
    return best, report


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


def _step(per_epoch: int, n_steps: int, value: float, began: float) -> Step:
    seconds = time.perf_counter() - began
    return Step(max(1, round(10 * n_steps / per_epoch)), value, float("nan"), 0, n_steps, seconds)


def _adam(
    field: Field, gradient: Field, first: list[torch.Tensor], second: list[torch.Tensor], n: int, rate: float,
    size: int, l2: float,
) -> None:  # fmt: skip
    """One step uphill (Kingma and Ba, 2015, algorithm 1)."""
    for t, g, m, v in zip(field.tensors(), gradient.tensors(), first, second, strict=True):
        g /= size
        if l2 and t is not field.unary:
            g.add_(t, alpha=-l2)
        m.mul_(0.9).add_(g, alpha=0.1)
        v.mul_(0.999).addcmul_(g, g, value=0.001)
        spread = v.sqrt().div_((1 - 0.999**n) ** 0.5).add_(1e-8)
        t.addcdiv_(m, spread, value=rate / (1 - 0.9**n))
