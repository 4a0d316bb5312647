r"""Pseudo-likelihood of a Markov random field by stochastic gradients: a baseline that needs the text itself.

.. math:: \sum_i \log p(x_i \mid x_{i-K} \dots x_{i-1}, x_{i+1} \dots x_{i+K}), \qquad
    p \propto \exp\Big(\theta^0(x_i) + \sum_l U_{x_{i-l}} \cdot W^l_{x_i} + U_{x_i} \cdot W^l_{x_{i+l}}\Big)

over the words of the text, normalized over all words (Jernite, Rush and Sontag, 2015, section 3).
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from trelliswork.learning.descent import descend
from trelliswork.learning.report import FitReport, Step
from trelliswork.learning.watch import Watch

Ids = NDArray[np.int64]
PAD = 0


class Field(NamedTuple):
    """Parameters in float32."""

    unary: torch.Tensor  # (C,)
    left: torch.Tensor  # U (C, D)
    right: torch.Tensor  # W (K, C, D)


def padded_stream(ids: Ids, K: int) -> Ids:
    """Return a stream of words with K pads around each sentence, from one with -1 after each sentence."""
    repeats = np.where(ids < 0, K, 1)
    return np.concatenate([np.zeros(K, np.int64), np.repeat(np.maximum(ids, PAD), repeats)])


def log_likelihoods(field: Field, text: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return log p (n,) of the words at some places of a padded text. Time O(n K C D), memory O(n C)."""
    distances = range(1, len(field.right) + 1)
    behind = torch.stack([field.right[d - 1][text[places + d]] for d in distances]).sum(0)
    scores = torch.addmm(field.unary, behind, field.left.T)
    for d in distances:
        scores = torch.addmm(scores, field.left[text[places - d]], field.right[d - 1].T)
    return scores.gather(1, text[places][:, None])[:, 0] - scores[:, PAD + 1 :].logsumexp(1)


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
    stream, places = torch.from_numpy(text), torch.from_numpy(np.flatnonzero(text != PAD))
    learned = {name: x.requires_grad_() for name, x in field._asdict().items() if unary or name != "unary"}
    adam, rng = torch.optim.Adam(learned.values()), torch.Generator().manual_seed(seed)
    n, per_epoch = len(places), -(-len(places) // batch_size)
    orders = ((k, torch.randperm(n, generator=rng)) for k in range(1, max_iter + 1))

    def epoch(number: int) -> Step:
        order, total = next(order for k, order in orders if k == number), 0.0  # those before an interruption too
        for b, batch in enumerate(order.split(batch_size), start=(number - 1) * per_epoch + 1):
            log_p = log_likelihoods(field, stream, places[batch])
            adam.zero_grad()
            (l2 / n * (field.left.square().sum() + field.right.square().sum()) - log_p.mean()).backward()
            adam.param_groups[0]["lr"] = learning_rate * (1 - 0.9 * b / (per_epoch * max_iter))
            adam.step()
            total += float(log_p.detach().double().sum())
        return Step(number, -total / n, n_evaluations=number * per_epoch)

    found, report = descend(epoch, learned, adam, watch, max_iter=max_iter)
    if watch.best_iteration:
        report.value = report.history[watch.best_iteration - 1].value
    for name, tensor in learned.items():
        tensor.requires_grad_(False).copy_(torch.from_numpy(found[name]))
    return report


@torch.no_grad()
def mean_log_p(field: Field, text: Ids, batch_size: int = 512) -> float:
    """Return the mean log p of a word given its neighbors, of a padded text."""
    stream, places = torch.from_numpy(text), torch.from_numpy(np.flatnonzero(text != PAD))
    total = sum(float(log_likelihoods(field, stream, part).double().sum()) for part in places.split(batch_size))
    return total / len(places)
