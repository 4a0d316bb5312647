"""Log evidence of a batch, with a hand-written gradient of the emission of a `StateNetwork`.

The softmax over the vocabulary costs V S' D per batch, more than all other computations of a small batch. Its gradient
is expected minus predicted counts: with the counts C (W, S') of states at the words of the batch, and their sums c,

    d hidden = C^T E_w - c * (P^T E),   d E = -P (c * hidden), and C hidden added to the rows of the batch's words,

so that P (V, S') is the only matrix as large as the vocabulary. With blocks that softmax is small.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from trelliswork.data.corpus import chosen_tokens
from trelliswork.inference import lowrank
from trelliswork.inference.lowrank.packing import one_block
from trelliswork.inference.lowrank.potentials import word_shifts
from trelliswork.inference.lowrank.sweep import ForwardBackward
from trelliswork.models.hmm_lm.network import BlockNetwork, Network, StateNetwork

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


def batch_evidence(
    network: Network, batch: Sentences, *, state_dropout: float = 0.0, dropout: float = 0.0, seed: int = 0
) -> Tensor:
    """Return the sum of log evidences (a scalar), differentiable in the network's parameters."""
    distinct, words = np.unique(batch.words, return_inverse=True)
    if isinstance(network, BlockNetwork):
        kept = network.draw(state_dropout, seed, dropout)
        needed = lowrank.moves(words, batch.offsets, network.clusters[distinct])
        rows = network.log_emission(kept)[torch.from_numpy(network.row[distinct])]
        between = network.transition(kept).between(needed.pairs)
        return lowrank.log_evidence(network.log_start(kept), between, rows, words, batch.offsets, needed).sum()
    assert isinstance(network, StateNetwork)
    states, rows = network.draw(state_dropout, seed), torch.from_numpy(distinct)
    transition, output = network.transition(states), network.word_output
    parts = [getattr(transition, field.name) for field in fields(transition)]
    arguments = words, batch.offsets, rows, type(transition)
    return _Evidence.apply(
        network.log_start(states), network.emitting(states), output.weight, output.bias, arguments, *parts
    )


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


class _Evidence(torch.autograd.Function):
    """The log evidence, with gradients that the forward pass computes."""

    @staticmethod
    def forward(
        ctx: Any, log_start: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor, arguments: Any, *parts: Any
    ) -> Tensor:
        words, offsets, rows, kind = arguments
        odds, sums, _ = word_odds(hidden, weight, bias)
        emission = odds[rows] / sums
        largest = emission.amax(dim=1, keepdim=True)
        emission /= largest
        one = one_block(len(rows), len(words))
        both = ForwardBackward(log_start.exp(), kind(*parts), emission, words, offsets, one)
        log_z = both.forward() + word_shifts(np.log(largest[:, 0].double().numpy()), words, offsets)
        counts = both.counts(both.backward(np.ones(len(log_z))))
        seen = counts.emission
        d_hidden, d_weight, d_bias = minus_predicted(odds, sums, seen.sum(dim=0), hidden, weight)
        d_hidden += seen.T @ weight[rows]
        d_weight.index_add_(0, rows, seen @ hidden)
        d_bias.index_add_(0, rows, seen.sum(dim=1))
        ctx.gradients = counts.start, d_hidden, d_weight, d_bias, None, *counts.transition, counts.scale
        return torch.tensor(float(log_z.sum()), dtype=torch.float64)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        return tuple(None if g is None else g.mul_(float(grad)) for g in ctx.gradients)
