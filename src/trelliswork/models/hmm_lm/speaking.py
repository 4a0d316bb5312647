"""HMM language models as rules about words see them (`trelliswork.models.hmm.steering`), in float64."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trelliswork.inference import lowrank
from trelliswork.models.hmm.steering import Doubles, Speaker
from trelliswork.models.hmm_lm.network import Ints, Tables

MOST_PAIRS = 1 << 27  # of states whose transitions are kept as one matrix: 1 GB


@torch.no_grad()
def matrix_of(transition: lowrank.Blocks | lowrank.Transition) -> Tensor:
    """Return the transitions of all states, with blocks also those of the sentence end, as one matrix."""
    if not isinstance(transition, lowrank.Blocks):
        return transition.dense()[0]
    C, k = transition.left.shape[:2]
    pairs = np.indices((C, C)).reshape(2, -1).T
    matrices = transition.between(pairs).dense(pairs).reshape(C, C, k, k)
    return matrices.transpose(1, 2).reshape(C * k, C * k)


def spoken(emission: Tensor, blocks: Ints, states: Tensor) -> Tensor:
    """Return p(word) (V + 1,) from p(word | state) (V + 1, k) and p(state) (C, k)."""
    return emission @ states[0] if len(states) == 1 else (emission * states[torch.from_numpy(blocks)]).sum(dim=1)


class BlockSpeaker(Speaker):
    """An HMM with states in blocks: state z of block c is number c k + z.

    A step takes O(S R) with low rank, else O(S^2): beyond 11,000 states each step computes the transitions anew.
    """

    def __init__(self, tables: Tables, words: Sequence[str]) -> None:
        self.words, self._tables, self._shape = words, tables, tables.log_start.shape
        self.start = tables.log_start.double().exp().numpy().reshape(-1)
        self._blocks = torch.from_numpy(tables.blocks)

    @cached_property
    def _emission(self) -> Tensor:
        return self._tables.log_emission.double().exp()

    @cached_property
    def _moves(self) -> tuple[lowrank.Blocks | lowrank.Transition, tuple[int, ...]]:
        """The transitions, and the numbers of blocks, and of states of each, that they are made of."""
        transition, n = lowrank.double(self._tables.transition), len(self.start)
        if isinstance(transition, lowrank.Blocks) and not transition.features and n**2 <= MOST_PAIRS:
            return lowrank.Dense(matrix_of(transition)), (1, n)
        return transition, tuple(self._shape)

    def ahead(self, values: Doubles) -> Doubles:
        """Return the expected values (K, n) of the next state."""
        return self._moved(torch.from_numpy(values), back=True)

    def after(self, states: Doubles) -> Doubles:
        """Return p(next state) (K,) from p(state)."""
        return self._moved(torch.from_numpy(states)[:, None])[:, 0]

    @torch.no_grad()
    def _moved(self, values: Tensor, *, back: bool = False) -> Doubles:
        transition, shape = self._moves
        rows, every = values.reshape(*shape, -1).transpose(1, 2).contiguous(), np.arange(shape[0])
        moved = lowrank.moved(transition, rows, every, every, back=back)
        return moved.transpose(1, 2).reshape(values.shape).numpy()

    def emitted(self, which: NDArray[np.bool_]) -> Doubles:
        """Return the probability (K,) that a state emits one of some words (V + 1,)."""
        some = torch.from_numpy(which)
        sums = torch.zeros(self._shape, dtype=torch.float64)
        return sums.index_add(0, self._blocks[some], self._emission[some]).numpy().reshape(-1)

    def spoken(self, states: Doubles) -> Doubles:
        """Return p(word) (V + 1,) from p(state) (K,)."""
        rows = torch.from_numpy(states).reshape(self._shape)
        return spoken(self._emission, self._tables.blocks, rows).numpy()

    def spoken_by(self, state: int) -> Doubles:
        """Return p(word | state) (V + 1,)."""
        block, z = divmod(state, self._shape[1])
        return self._tables.log_emission[:, z].exp().double().numpy() * (self._tables.blocks == block)

    @torch.no_grad()
    def follow(self, rng: np.random.Generator, state: int) -> int:
        """Return a random next state: first its block, then the state in it."""
        transition, (block, z), after = self._tables.transition, divmod(state, self._shape[1]), 0
        if isinstance(transition, lowrank.Blocks):
            assert transition.log_leave is not None
            after = lowrank.draw(transition.log_leave[block, z].exp().numpy(), rng)
        row = torch.zeros(1, self._shape[1], dtype=self._tables.log_start.dtype)
        row[0, z] = 1
        odds = lowrank.step(transition, row, np.array([block]), np.array([after]))
        return after * self._shape[1] + lowrank.draw(odds[0].numpy(), rng)
