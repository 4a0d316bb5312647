"""Network that computes the probabilities of an HMM language model from state embeddings (paper 4)."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trelliswork.compute.limits import check_cost
from trelliswork.inference.lowrank import Dense, LowRank, Transition
from trelliswork.models.hmm_lm.kernel_features import FeatureMap, log_features, normalized_factors, random_projection

Projection = Literal["learned", "fixed", "redrawn"]
Ints = NDArray[np.int64]
EMISSION_STD = 1.0  # initial standard deviation of log p(word | state) over states
SUMMED = 256  # states whose words are summed at a time


@dataclass(frozen=True)
class NetworkShape:
    """Sizes and options of a network."""

    n_states: int
    n_words: int
    hidden: int = 256
    n_features: int = 0  # rank R of the kernel; 0 for a dense softmax over next states
    feature_map: FeatureMap = "exp"
    projection: Projection = "learned"  # directions of the features; random ones are fixed, or redrawn for each batch
    orthogonal: bool = True  # random directions, including the initial values of learned ones
    band: int = 0  # number of neighbors on each side with separate transition weights


@dataclass
class Drawn:
    """States (S',) and features (R',) that dropout keeps in one batch; ``None`` keeps all."""

    states: Tensor | None = None
    features: Tensor | None = None
    projection: Tensor | None = None  # redrawn directions

    def of(self, values: Tensor) -> Tensor:
        """Return the rows (S', ...) of the states that are kept."""
        return values if self.states is None else values[self.states]


class _Block(nn.Module):
    """h = relu(L1 x), out = LayerNorm(relu(L2 h) + h); the norm comes last, which gains 20-60 points."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(size, size), nn.Linear(size, size), nn.LayerNorm(size)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.first(x))
        return self.norm(torch.relu(self.second(h)) + h)


class StateNetwork(nn.Module):
    """p(first state), p(next state | state), p(word | state) from embeddings.

    Start, transition and emission each have a block, followed by a linear output layer. With features, states and next
    states each have a block, and log phi is the projection of the block's output, divided by sqrt(hidden). The learned
    projection is stored after this division, so that AdamW changes it as fast as the output layer of the dense model.
    Next states have a bias, as in the dense model (the norm in paper 4's exp(W v - |v|^2 / 2) would act as one, but
    LayerNorm makes it constant). With the cluster of each word, ``clusters`` (n_words,), only the c-th block of states
    emits the words of cluster c.
    """

    def __init__(self, shape: NetworkShape, seed: int = 0, clusters: Ints | None = None) -> None:
        super().__init__()
        self.shape = shape
        S, V, D, R = shape.n_states, shape.n_words, shape.hidden, shape.n_features
        pairs = S * R if R else S * S
        n_bytes = 16.0 * (4 * S * D + V * D + R * D + pairs)  # weights, gradient and two moments of Adam, in float32
        check_cost(f"a network of {S:,} states and {R:,} features", n_bytes=n_bytes)
        with torch.random.fork_rng(devices=[]):  # the layers use torch's global generator
            torch.manual_seed(seed)
            self.start_block, self.state_block, self.word_block = _Block(D), _Block(D), _Block(D)
            self.start_embedding = nn.Parameter(torch.empty(1, D))
            self.state_embedding = nn.Parameter(torch.empty(S, D))
            self.word_embedding = nn.Parameter(torch.empty(S, D))  # of states, for emission
            self.start_output = nn.Linear(D, S)
            self.word_output = nn.Linear(D, V)
            if R:
                self.next_block = _Block(D)
                self.next_embedding = nn.Parameter(torch.empty(S, D))
                self.next_bias = nn.Parameter(torch.zeros(S))  # frequency of a state after any other
            else:
                self.state_output = nn.Linear(D, S)
            if shape.band:
                self.band = nn.Parameter(torch.zeros(S, 2 * shape.band + 1))
            for parameter in self.parameters():
                if parameter.dim() > 1 and not (shape.band and parameter is self.band):
                    nn.init.xavier_uniform_(parameter)
        if R:
            generator = torch.Generator().manual_seed(seed)
            drawn = random_projection(D, R, generator, orthogonal=shape.orthogonal) / math.sqrt(D)
            self.projection = nn.Parameter(drawn, requires_grad=shape.projection == "learned")
        self.blocks: tuple[Tensor, Tensor] | None = None
        if clusters is not None:
            n_clusters = int(clusters.max()) + 1
            of_state = np.arange(S) * n_clusters // S
            self.blocks = torch.from_numpy(clusters.astype(np.int64)), torch.from_numpy(of_state)

    @torch.no_grad()
    def start_with(self, frequencies: NDArray[Any]) -> None:
        """Initialize emission with word frequencies (V,), varied randomly by state.

        Otherwise all states are alike during the first epoch.
        """
        odds = torch.as_tensor(frequencies, dtype=self.word_output.bias.dtype) + 1
        self.word_output.bias.copy_(torch.log(odds / odds.sum()))
        weight = self.word_output.weight
        weight.mul_(EMISSION_STD / (weight.std() * math.sqrt(self.shape.hidden)))

    def draw(self, state_dropout: float, feature_dropout: float, seed: int) -> Drawn:
        """Draw the states and features that one batch keeps; each block of states keeps its share, at least one."""
        generator = torch.Generator().manual_seed(seed)
        drawn = Drawn()
        S, R = self.shape.n_states, self.shape.n_features
        if state_dropout > 0:
            of_state = torch.zeros(S, dtype=torch.int64) if self.blocks is None else self.blocks[1]
            kept = []
            for c in range(int(of_state.max()) + 1):
                block = torch.nonzero(of_state == c)[:, 0]
                n = max(1, round(len(block) * (1 - state_dropout)))
                kept.append(block[torch.randperm(len(block), generator=generator)[:n]])
            drawn.states = torch.cat(kept).sort().values
        if R and feature_dropout > 0:
            n = max(1, round(R * (1 - feature_dropout)))
            drawn.features = torch.randperm(R, generator=generator)[:n].sort().values
        if R and self.shape.projection == "redrawn":
            drawn.projection = random_projection(self.shape.hidden, R, generator, orthogonal=self.shape.orthogonal)
        return drawn

    def log_start(self, drawn: Drawn) -> Tensor:
        """Return log p(first state) (S',) over the states that are kept."""
        scores = self.start_output(self.start_block(self.start_embedding))[0]
        return torch.log_softmax(drawn.of(scores), dim=0)

    def transition(self, drawn: Drawn) -> Transition:
        """Return p(next state | state) over the states that are kept; its rows sum to one."""
        if not self.shape.n_features:
            hidden = self.state_block(drawn.of(self.state_embedding))
            weight, bias = drawn.of(self.state_output.weight), drawn.of(self.state_output.bias)
            return Dense(torch.softmax(torch.addmm(bias, hidden, weight.T), dim=1))
        left, right = self.log_factors(drawn)
        if not self.shape.band:
            return LowRank(*normalized_factors(left, right))
        return self._banded(left, right, drawn.states)

    def log_factors(self, drawn: Drawn) -> tuple[Tensor, Tensor]:
        """Return log phi (S', R') of states and of next states, before rows are normalized."""
        hidden = self.state_block(drawn.of(self.state_embedding))
        after = self.next_block(drawn.of(self.next_embedding))
        root = math.sqrt(self.shape.hidden)
        directions = root * self.projection if drawn.projection is None else drawn.projection
        if drawn.features is not None:
            directions = directions[:, drawn.features]
        left, right = (log_features(x / root, directions, self.shape.feature_map) for x in (hidden, after))
        return left, right + drawn.of(self.next_bias)[:, None]

    def _banded(self, log_left: Tensor, log_right: Tensor, states: Tensor | None) -> LowRank:
        """Return the normalized sum of the row-normalized low-rank matrix and a learned band.

        Dropped states have zeros instead of being removed, so that neighbors remain neighbors.
        """
        S, K = self.shape.n_states, self.shape.band
        left, right = normalized_factors(log_left, log_right)
        band = torch.exp(self.band) / (2 * K + 1)
        target = torch.arange(S)[:, None] + torch.arange(-K, K + 1)[None]
        possible = (target >= 0) & (target < S)
        if states is not None:
            kept = torch.zeros(S, dtype=torch.bool)
            kept[states] = True
            possible &= kept[target.clamp(0, S - 1)]
            R = left.shape[1]
            never_reached = torch.full((S, R), 1.0 / R, dtype=left.dtype)
            left = never_reached.index_copy(0, states, left)
            right = torch.zeros(S, R, dtype=right.dtype).index_copy(0, states, right)
        band = torch.where(possible, band, 0)
        total = left @ right.sum(dim=0) + band.sum(dim=1)
        return LowRank(left / total[:, None], right, band / total[:, None])

    def spread(self, values: Tensor, drawn: Drawn, fill: float) -> Tensor:
        """With a band, expand values (..., S') of kept states to all states (..., S)."""
        if not self.shape.band or drawn.states is None:
            return values
        out = torch.full((*values.shape[:-1], self.shape.n_states), fill, dtype=values.dtype)
        return out.index_copy(-1, drawn.states, values)

    def emitting(self, drawn: Drawn) -> Tensor:
        """Return the emission vectors (S', hidden); log p(word | state) is a softmax of ``word_output`` of them."""
        return self.word_block(drawn.of(self.word_embedding))

    def log_emission(self, drawn: Drawn) -> Tensor:
        """Return log p(word | state) (V, S'), words first; -inf outside the block of a word's cluster."""
        hidden = self.emitting(drawn)
        scores = torch.addmm(self.word_output.bias[:, None], self.word_output.weight, hidden.T)
        if self.blocks is not None:
            of_word, of_state = self.blocks
            scores = scores.masked_fill(of_word[:, None] != drawn.of(of_state)[None], -math.inf)
        return scores - log_sums(scores)


def log_sums(log_p: Tensor) -> Tensor:
    """Return the logarithm of the sums of exp over words (S,) of values (V, S), summed in float64.

    In float32, as in ``torch.log_softmax``, sums over many thousand words are off by 1e-4.
    """
    parts = [torch.logsumexp(part.double(), dim=0) for part in log_p.split(SUMMED, dim=1)]
    return torch.cat(parts).to(log_p.dtype)
