"""Log evidence of a batch under a network of states, with a hand-written gradient of the emission.

The softmax over the vocabulary costs V S' D per batch, more than all other computations of a small batch. Its gradient
is expected minus predicted counts: with the counts C (W, S') of states at the words of the batch, and their sums c,

    d hidden = C^T E_w - c * (P^T E),   d E = -P (c * hidden), and C hidden added to the rows of the batch's words,

so that P (V, S') is the only matrix as large as the vocabulary.

In a group of processes each rank has its own sentences of the batch, and a share of the words: it computes the rows of
P of these words, and their predicted counts, for the sentences of all ranks. Ranks exchange three numbers per state.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from trelliswork.inference import lowrank
from trelliswork.inference.lowrank.potentials import word_shifts
from trelliswork.models.hmm.data import chosen_tokens
from trelliswork.models.hmm_lm.network import Drawn, StateNetwork

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Sentences:
    """Word numbers of sentences, with sentence ends; sentence n is ``words[offsets[n]:offsets[n+1]]``."""

    words: Ints
    offsets: Ints

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_tokens(self) -> int:
        """Number of words, with sentence ends."""
        return len(self.words)

    def select(self, which: Ints) -> "Sentences":
        """Return a subset of the sentences."""
        tokens, offsets = chosen_tokens(self.offsets, which)
        return Sentences(self.words[tokens], offsets)


def batch_evidence(network: StateNetwork, batch: Sentences, drawn: Drawn, *, every: int | None = None) -> Tensor:
    """Return the sum of log evidences (a scalar), differentiable in the network's parameters."""
    log_start = network.spread(network.log_start(drawn), drawn, -torch.inf)
    transition = network.transition(drawn)
    distinct, words = np.unique(batch.words, return_inverse=True)
    rows = torch.from_numpy(distinct)
    if network.blocks is not None or network.shape.band:
        log_emission = network.spread(network.log_emission(drawn)[rows], drawn, -torch.inf)
        log_evidence = lowrank.log_evidence(log_start, transition, log_emission, words, batch.offsets, every=every)
        return log_evidence.sum()
    hidden, output = network.emitting(drawn), network.word_output
    arguments = words, batch.offsets, rows, every, type(transition)
    return _Evidence.apply(log_start, hidden, output.weight, output.bias, arguments, *transition.tensors())


def word_odds(hidden: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return unnormalized p(word | state) (V, S'), its sums (S',), and the maxima subtracted from the scores (S',)."""
    odds = torch.addmm(bias[:, None], weight, hidden.T)
    largest = odds.amax(dim=0)
    odds.sub_(largest).exp_()
    return odds, odds.sum(dim=0), largest


def minus_predicted(odds: Tensor, sums: Tensor, counts: Tensor, hidden: Tensor, weight: Tensor) -> list[Tensor]:
    """Return minus the predicted counts in the gradients of hidden, weight and bias, for state ``counts`` (S',)."""
    share = counts / sums
    return [-share[:, None] * (odds.T @ weight), -(odds @ (share[:, None] * hidden)), -(odds @ share)]


class WithGradients(torch.autograd.Function):
    """A scalar function whose forward pass computes its gradients, as ``ctx.gradients``."""

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Return the gradients times that of the value."""
        return tuple(None if g is None else g.mul_(float(grad)) for g in ctx.gradients)


class _Evidence(WithGradients):
    @staticmethod
    def forward(
        ctx: Any, log_start: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor, arguments: Any, *parts: Tensor
    ) -> Tensor:
        words, offsets, rows, every, kind = arguments
        odds, sums, _ = word_odds(hidden, weight, bias)
        emission = odds[rows] / sums
        log_z, d_start, seen, *d_transition = _expected(log_start.exp(), kind(*parts), emission, words, offsets, every)
        d_hidden, d_weight, d_bias = minus_predicted(odds, sums, seen.sum(dim=0), hidden, weight)
        d_hidden += seen.T @ weight[rows]
        d_weight.index_add_(0, rows, seen @ hidden)
        d_bias.index_add_(0, rows, seen.sum(dim=1))
        ctx.gradients = d_start, d_hidden, d_weight, d_bias, None, *d_transition
        return torch.tensor(log_z, dtype=torch.float64)


def _expected(
    start: Tensor, transition: lowrank.Transition, emission: Tensor, words: Ints, offsets: Ints, every: int | None
) -> tuple[Any, ...]:
    """Return the log evidence, and counts: of the start, of states at the rows of ``emission``, of the transition."""
    largest = emission.amax(dim=1, keepdim=True)
    emission /= largest
    groups = lowrank.groups(words, offsets)
    log_z, counts = lowrank.expectations(groups, start, transition, emission, 1.0, every=every)
    log_z = log_z + word_shifts(np.log(largest[:, 0].double().numpy()), words, offsets)
    return float(log_z.sum()), counts.start, counts.emission, *counts.transition
