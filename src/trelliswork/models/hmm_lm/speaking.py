"""HMM language models as rules about words see them (`trelliswork.models.hmm.steering`), in float64."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trelliswork.inference import lowrank
from trelliswork.models.hmm.steering import Doubles, Speaker
from trelliswork.models.hmm_lm.network import Tables

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


class BlockSpeaker(Speaker):
    """An HMM with states in blocks: state z of block c is number c k + z.

    A step takes O(S R) with low rank, else O(S^2): beyond 11,000 states each step computes the transitions anew.
    """

    def __init__(self, tables: Tables, words: Sequence[str]) -> None:
        self.words, self._shape = words, tables.log_start.shape
        self.start = tables.log_start.double().exp().numpy().reshape(-1)
        self._transition = lowrank.double(tables.transition)
        self._moved_shape: tuple[int, ...] = self._shape
        n, is_blocks = len(self.start), isinstance(tables.transition, lowrank.Blocks)
        if is_blocks and not tables.transition.features and n**2 <= MOST_PAIRS:  # type: ignore[union-attr]
            self._transition, self._moved_shape = lowrank.Dense(matrix_of(self._transition)), (1, n)
        self._emission, self._blocks = tables.log_emission.double().exp(), torch.from_numpy(tables.blocks)
        self._every = np.arange(self._moved_shape[0])

    def ahead(self, values: Doubles) -> Doubles:
        """Return the expected values (K, n) of the next state."""
        rows = torch.from_numpy(values).reshape(*self._moved_shape, -1).transpose(1, 2).contiguous()
        return self._moved(rows, back=True).transpose(1, 2).reshape(values.shape).numpy()

    def after(self, states: Doubles) -> Doubles:
        """Return p(next state) (K,) from p(state)."""
        return self._moved(torch.from_numpy(states).reshape(self._moved_shape)).numpy().reshape(-1)

    def emitted(self, which: NDArray[np.bool_]) -> Doubles:
        """Return the probability (K,) that a state emits one of some words (V + 1,)."""
        some = torch.from_numpy(which)
        sums = torch.zeros(self._shape, dtype=torch.float64)
        return sums.index_add(0, self._blocks[some], self._emission[some]).numpy().reshape(-1)

    def spoken(self, states: Doubles) -> Doubles:
        """Return p(word) (V + 1,) from p(state) (K,)."""
        rows = torch.from_numpy(states).reshape(self._shape)
        return (self._emission * rows[self._blocks]).sum(dim=1).numpy()

    @torch.no_grad()
    def _moved(self, rows: Tensor, *, back: bool = False) -> Tensor:
        return lowrank.moved(self._transition, rows, self._every, self._every, back=back)
