r"""Pseudo-likelihood of a Markov random field by stochastic gradients: a baseline that needs the text itself.

.. math:: \sum_i \log p(x_i \mid x_{i-K} \dots x_{i-1}, x_{i+1} \dots x_{i+K}), \qquad
    p \propto \exp\Big(\theta^0(x_i) + \sum_l U_{x_{i-l}} \cdot W^l_{x_i} + U_{x_i} \cdot W^l_{x_{i+l}}\Big)

over the words of the text, normalized over all words (Jernite, Rush and Sontag, 2015, section 3).
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from trelliswork.learning.descent import descend
from trelliswork.learning.report import FitReport, Step
from trelliswork.learning.watch import Watch

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

    The field ends as the best one. ``text`` comes from ``padded_stream``. Iterations are epochs. The penalty is
    l2 * |U, W|^2 for the text as a whole; without ``unary`` that is left unchanged.
    """
    adam, named = torch.optim.Adam(field.tensors(), maximize=True), {str(k): t for k, t in enumerate(field.tensors())}
    run = _Epochs(
        field, adam, text, batch_size, max_iter, learning_rate, l2, unary, torch.Generator().manual_seed(seed)
    )
    found, report = descend(run, named, adam, watch, max_iter=max_iter)
    if watch.best_iteration:
        report.value = report.history[watch.best_iteration - 1].value
    for name, tensor in named.items():
        tensor.copy_(torch.from_numpy(found[name]))
    return report


@dataclass
class _Epochs:
    """Epochs of steps; each has its own order of the words, of a sequence of random orders."""

    field: Field
    adam: torch.optim.Adam
    text: Ids
    batch_size: int
    max_iter: int
    learning_rate: float
    l2: float
    unary: bool
    rng: torch.Generator
    drawn: int = 0  # orders

    def __call__(self, epoch: int) -> Step:
        """Run an epoch, counted from 1."""
        stream, places = torch.from_numpy(self.text), torch.from_numpy(np.flatnonzero(self.text != PAD))
        field, n = self.field, len(places)
        while self.drawn < epoch:  # orders of epochs before an interruption too
            order, self.drawn = torch.randperm(n, generator=self.rng), self.drawn + 1
        total, per_epoch = 0.0, -(-n // self.batch_size)
        for b, batch in enumerate(order.split(self.batch_size), start=(epoch - 1) * per_epoch + 1):
            gain, gradient = gradients(field, stream, places[batch])
            if not self.unary:
                gradient.unary.zero_()
            for tensor, slope in zip(field.tensors(), gradient.tensors(), strict=True):
                slope /= len(batch)
                if self.l2 and tensor is not field.unary:
                    slope.add_(tensor, alpha=-2 * self.l2 / n)
                tensor.grad = slope
            self.adam.param_groups[0]["lr"] = self.learning_rate * (1 - 0.9 * b / (per_epoch * self.max_iter))
            self.adam.step()
            total += gain
        return Step(epoch, -total / n, n_evaluations=epoch * per_epoch)


def mean_log_p(field: Field, text: Ids, batch_size: int = 512) -> float:
    """Return the mean log p of a word given its neighbors, of a padded text."""
    stream, places = torch.from_numpy(text), torch.from_numpy(np.flatnonzero(text != PAD))
    total = 0.0
    for part in places.split(batch_size):
        log_p, _, _ = log_p_of_all(field, stream, part)
        total += float(log_p.gather(1, stream[part][:, None]).double().sum())
    return total / len(places)
