"""Parameters of an HMM language model: a network over all states (paper 4), or free vectors of states in blocks.

Both give the same `Tables`. In a `StateNetwork` any state emits any word; the end of the sentence is a word. In a
`BlockNetwork` each word belongs to a block, a cluster of words, whose k states alone emit it; the end is a block of its
own, with k equal states that emit nothing else.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trelliswork.compute.limits import check_cost
from trelliswork.inference.lowrank import Blocks, Transition
from trelliswork.inference.lowrank.potentials import ONE
from trelliswork.models.hmm_lm.kernel_features import FeatureMap, log_features, random_projection

Projection = Literal["learned", "fixed"]
Ints = NDArray[np.int64]
EMISSION_STD = 1.0  # initial standard deviation of log p(word | state) over states
VECTOR_STD = 0.3  # initial standard deviation of the vectors of states in blocks
SUMMED = 256  # states whose words are summed at a time


@dataclass(frozen=True)
class NetworkShape:
    """Sizes and options of the parameters."""

    n_states: int
    n_words: int  # with the sentence end
    hidden: int = 256
    n_features: int = 0  # rank R of the kernel; 0 for a softmax over next states
    feature_map: FeatureMap = "exp"
    projection: Projection = "learned"  # directions of the features; random ones are fixed


class Tables(NamedTuple):
    """Probabilities of a model: C blocks of k states, V words and the sentence end."""

    log_start: Tensor  # (C, k) log p(first state)
    transition: Blocks | Transition  # of blocks, or of the states of one block
    log_emission: Tensor  # (V + 1, k) log p(word | state) for the states of the word's block
    blocks: Ints  # (V + 1,) block of each word


class Network(nn.Module):
    """Parameters of an HMM language model."""

    shape: NetworkShape
    clusters: Ints | None  # (n_words,) block of each word; None: one block

    @abstractmethod
    def tables(self) -> Tables:
        """Return the probabilities of the whole model."""

    @abstractmethod
    def start_with(self, words: Ints, offsets: Ints) -> None:
        """Initialize biases with the frequencies in a text."""

    def _directions(self, seed: int) -> None:
        """Draw the directions of the features."""
        D, R = self.shape.hidden, self.shape.n_features
        drawn = random_projection(D, R, torch.Generator().manual_seed(seed)) / math.sqrt(D)
        self.projection = nn.Parameter(drawn, requires_grad=self.shape.projection == "learned")

    def _features(self, vectors: Tensor) -> Tensor:
        """Return the log features (..., R) of vectors (..., D), divided by sqrt(D)."""
        root = math.sqrt(self.shape.hidden)
        return log_features(vectors / root, root * self.projection, self.shape.feature_map)


class _Block(nn.Module):
    """h = relu(L1 x), out = LayerNorm(relu(L2 h) + h); the norm comes last, which gains 20-60 points."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(size, size), nn.Linear(size, size), nn.LayerNorm(size)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.first(x))
        return self.norm(torch.relu(self.second(h)) + h)


class StateNetwork(Network):
    """p(first state), p(next state | state), p(word | state) from embeddings of states.

    Start, transition and emission each have a block, followed by a linear output layer. With features, states and next
    states each have a block, and log phi is the projection of the block's output, divided by sqrt(hidden). The learned
    projection is stored after this division, so that AdamW changes it as fast as the output layer of the dense model.
    Next states have a bias, as in the dense model (the norm in paper 4's exp(W v - |v|^2 / 2) would act as one, but
    LayerNorm makes it constant). ``kept`` are the states (S',) that dropout keeps.
    """

    clusters = None

    def __init__(self, shape: NetworkShape, seed: int = 0) -> None:
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
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.xavier_uniform_(parameter)
        if R:
            self._directions(seed)

    @torch.no_grad()
    def start_with(self, words: Ints, offsets: Ints) -> None:
        """Initialize emission with word frequencies, varied randomly by state.

        Otherwise all states are alike during the first epoch.
        """
        odds = torch.from_numpy(np.bincount(words, minlength=self.shape.n_words) + 1.0)
        self.word_output.bias.copy_(torch.log(odds / odds.sum()))
        weight = self.word_output.weight
        weight.mul_(EMISSION_STD / (weight.std() * math.sqrt(self.shape.hidden)))

    def draw(self, dropout: float, seed: int) -> Tensor | None:
        """Draw the states that one batch keeps; ``None`` keeps all."""
        S = self.shape.n_states
        n = max(1, round(S * (1 - dropout)))
        if n == S:
            return None
        return torch.randperm(S, generator=torch.Generator().manual_seed(seed))[:n].sort().values

    def log_start(self, kept: Tensor | None = None) -> Tensor:
        """Return log p(first state) (S',)."""
        scores = self.start_output(self.start_block(self.start_embedding))[0]
        return torch.log_softmax(_of(scores, kept), dim=0)

    def transition(self, kept: Tensor | None = None) -> Transition:
        """Return p(next state | state)."""
        if self.shape.n_features:
            log_left, log_right = self.log_factors(kept)
            return Blocks(log_left[None], log_right[None], features=True).between(ONE)
        output = self.state_output
        left, right = self.state_block(_of(self.state_embedding, kept)), _of(output.weight, kept)
        return Blocks(left[None], right[None], _of(output.bias, kept)[None]).between(ONE)

    def log_factors(self, kept: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return log phi (S', R) of states and of next states, before rows are normalized."""
        hidden = self.state_block(_of(self.state_embedding, kept))
        after = self.next_block(_of(self.next_embedding, kept))
        return self._features(hidden), self._features(after) + _of(self.next_bias, kept)[:, None]

    def emitting(self, kept: Tensor | None = None) -> Tensor:
        """Return the emission vectors (S', hidden); log p(word | state) is a softmax of ``word_output`` of them."""
        return self.word_block(_of(self.word_embedding, kept))

    def log_emission(self) -> Tensor:
        """Return log p(word | state) (V, S), words first."""
        scores = torch.addmm(self.word_output.bias[:, None], self.word_output.weight, self.emitting().T)
        return scores - log_sums(scores)

    @torch.no_grad()
    def tables(self) -> Tables:
        """Return the probabilities of the whole model."""
        words = np.zeros(self.shape.n_words, np.int64)
        return Tables(self.log_start()[None], self.transition(), self.log_emission(), words)


class BlockNetwork(Network):
    r"""Free vectors of states in blocks: u, v, e of each state, w of each word, b of each block.

    .. math::
        p(c' \mid z) &\propto \exp(u_z \cdot b_{c'} + B_{c(z) c'}) \\
        p(z' \mid c', z) &\propto \exp(u_z \cdot v_{z'} + a_{z'}) \\
        p(w \mid z) &\propto \exp(e_z \cdot w_w + d_w)

    The softmax runs over blocks and the sentence end, over the states of a block, and over its words. The start of a
    sentence has a vector like u. With features, the second line has those of u and v instead.
    """

    clusters: Ints

    def __init__(self, shape: NetworkShape, clusters: Ints, seed: int = 0) -> None:
        super().__init__()
        self.shape, self.clusters = shape, clusters
        C, S, V, D = int(clusters.max()), shape.n_states, shape.n_words - 1, shape.hidden
        k = S // C
        check_cost(f"a network of {S:,} states", n_bytes=16.0 * D * (3 * S + V))  # as above
        generator = torch.Generator().manual_seed(seed)

        def vectors(*size: int) -> nn.Parameter:
            return nn.Parameter(VECTOR_STD * torch.randn(*size, D, generator=generator))

        self.left, self.right, self.emitting = vectors(C, k), vectors(C, k), vectors(C, k)
        self.words, self.blocks, self.start = vectors(V), vectors(C + 1), vectors(1)
        self.word_bias = nn.Parameter(torch.zeros(V))
        self.block_bias = nn.Parameter(torch.zeros(C + 1, C + 1))  # rows: blocks before, and the start
        self.next_bias = nn.Parameter(torch.zeros(C, k))
        if shape.n_features:
            self._directions(seed)
        # Words are sorted by block: the parameters of a block lie side by side.
        order = np.argsort(clusters[:-1], kind="stable")
        self._sizes = np.bincount(clusters[:-1], minlength=C).tolist()
        self.row = np.append(np.argsort(order), V)  # of each word, and of the end

    @torch.no_grad()
    def start_with(self, words: Ints, offsets: Ints) -> None:
        """Initialize biases with the log counts of words, and of pairs of blocks."""
        C = len(self.left)
        counts = np.bincount(words, minlength=self.shape.n_words)[:-1]
        self.word_bias[torch.from_numpy(self.row[:-1])] = torch.from_numpy(np.log(counts + 0.1)).float()
        after = self.clusters[words]
        before = np.roll(after, 1)
        before[offsets[:-1]] = C
        pairs = np.bincount(before * (C + 1) + after, minlength=(C + 1) ** 2).reshape(C + 1, C + 1).astype(float)
        pairs = pairs + 5 * pairs.sum(axis=0) / pairs.sum() + 1e-3  # backed by the frequencies of the blocks
        self.block_bias.copy_(torch.from_numpy(np.log(pairs / pairs.sum(axis=1, keepdims=True))))

    def draw(self, dropout: float, seed: int, noise: float = 0.0) -> "Kept":
        """Draw the states of each block that one batch keeps, and the numbers of their vectors that it sets to zero."""
        C, k, D = self.left.shape
        n = max(1, round(k * (1 - dropout)))
        generator = torch.Generator().manual_seed(seed)
        states = None
        if n < k:
            states = torch.rand(C, k, generator=generator).argsort(dim=1)[:, :n].sort(dim=1).values
            states = states + k * torch.arange(C)[:, None]
        masks = None
        if noise > 0:
            drawn = torch.rand(2, C, n, D, generator=generator, dtype=self.left.dtype)
            masks = (drawn >= noise) / (1 - noise)
        return Kept(states, masks)

    def log_start(self, kept: "Kept") -> Tensor:
        """Return log p(first state) (C + 1, k')."""
        to_block = torch.log_softmax(self.blocks @ self.start[0] + self.block_bias[-1], dim=0)
        right = kept.of(self.right)
        inside = torch.log_softmax(right @ self.start[0] + kept.of(self.next_bias), dim=1)
        ends = inside.new_full((1, inside.shape[1]), -math.log(inside.shape[1]))
        return torch.cat([inside, ends]) + to_block[:, None]

    def transition(self, kept: "Kept") -> Blocks:
        """Return p(next state | state)."""
        left, right, bias = kept.of(self.left), kept.of(self.right), kept.of(self.next_bias)
        left = left if kept.masks is None else left * kept.masks[0]
        leave = torch.log_softmax(left @ self.blocks.T + self.block_bias[:-1, None], dim=2)
        if self.shape.n_features:
            left, right = self._features(left), self._features(right)
        left, right, leave = (torch.cat([x, torch.zeros_like(x[:1])]) for x in (left, right, leave))  # the end
        return Blocks(left, right, torch.cat([bias, torch.zeros_like(bias[:1])]), leave, bool(self.shape.n_features))

    def log_emission(self, kept: "Kept") -> Tensor:
        """Return log p(word | state of its block) (V + 1, k'), words by block, the sentence end last."""
        emitting = kept.of(self.emitting)
        emitting = emitting if kept.masks is None else emitting * kept.masks[1]
        blocks = zip(self.words.split(self._sizes), self.word_bias.split(self._sizes), emitting.unbind(0), strict=True)
        parts = [torch.log_softmax(torch.addmm(bias[:, None], words, e.T), dim=0) for words, bias, e in blocks]
        return torch.cat([*parts, emitting.new_zeros(1, emitting.shape[1])])

    @torch.no_grad()
    def tables(self) -> Tables:
        """Return the probabilities of the whole model."""
        kept = Kept()
        emission = self.log_emission(kept)[torch.from_numpy(self.row)]
        return Tables(self.log_start(kept), self.transition(kept), emission, self.clusters)


@dataclass
class Kept:
    """What dropout keeps in one batch; ``None`` keeps all."""

    states: Tensor | None = None  # (C, k') numbers of states
    masks: Tensor | None = None  # (2, C, k', D) factors of u and e

    def of(self, values: Tensor) -> Tensor:
        """Return the rows (C, k', ...) of the states that are kept."""
        return values if self.states is None else values.flatten(0, 1)[self.states]


def _of(values: Tensor, kept: Tensor | None) -> Tensor:
    return values if kept is None else values[kept]


def log_sums(log_p: Tensor) -> Tensor:
    """Return the logarithm of the sums of exp over words (S,) of values (V, S), summed in float64.

    In float32, as in ``torch.log_softmax``, sums over many thousand words are off by 1e-4.
    """
    parts = [torch.logsumexp(part.double(), dim=0) for part in log_p.split(SUMMED, dim=1)]
    return torch.cat(parts).to(log_p.dtype)
