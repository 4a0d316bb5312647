r"""Transitions between states in blocks: dense matrices, or products of two thin ones.

C blocks have k states each; a word comes from the states of one block. A *move* is a pair of blocks. `Dense` and
`LowRank` hold the matrices of some moves; for a model with one block that is the transition matrix. `Blocks` holds the
vectors of a model and computes the matrices of the moves that a batch needs:

.. math:: p(z' \mid z) = p(c' \mid z) \, \frac{\phi(u_z, v_{z'})}{\sum_{y \in c'} \phi(u_z, v_y)}

:math:`\phi` is :math:`\exp(u \cdot v + b)`, or the product of R nonnegative features. No sum runs over all states.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from trelliswork.compute import threads, torch_threads
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.lowrank.kernels import rows as kernels
from trelliswork.inference.lowrank.packing import Ints, Moves

LEAST_BLOCKS = 8  # per thread
ONE: Ints = np.zeros((1, 2), np.int64)  # the move of a model with one block


@dataclass
class Dense:
    """Matrices of moves, p(next state | state); rows sum to one, or to ``exp(log_scale)``."""

    matrix: Tensor  # (M, k, k), or (S, S) of one block
    log_scale: Tensor | None = None  # (M, k) log p(next block | state)
    width = 0  # rows are not compressed

    def __post_init__(self) -> None:
        if self.matrix.dim() not in (2, 3) or self.matrix.shape[-2] != self.matrix.shape[-1]:
            raise ShapeError(f"matrix must have shape (S, S) or (M, k, k), got {tuple(self.matrix.shape)}.")

    @property
    def n_states(self) -> int:
        """Number of states of a block."""
        return self.matrix.shape[-1]

    def push(self, rows: Tensor, which: Ints, pairs: Ints, compressed: Tensor, out: Tensor) -> None:
        """Compute out = the states (n, k) after the moves ``which`` (n,) from the states of ``rows`` (n, k)."""
        product(scaled_rows(rows, self.log_scale, which), self.matrix, which, out)

    def pull(self, message: Tensor, which: Ints, pairs: Ints, compressed: Tensor, out: Tensor) -> None:
        """Compute out = the messages (n, k) before the moves from those after."""
        back_product(message, self.matrix, which, out)
        if self.log_scale is not None:
            out *= self.log_scale[torch.from_numpy(which)].exp()

    def gradients(
        self, before: Tensor, message: Tensor, forward: Tensor, backward: Tensor, moves: Moves, which: Ints
    ) -> list[Tensor]:
        """Return the expected counts of moves, divided by the entries of the matrices."""
        given = outer(scaled_rows(before, self.log_scale, which), message, which, _stack(self.matrix).shape)
        return [given.reshape(self.matrix.shape)]

    def dense(self, pairs: Ints = ONE) -> Tensor:
        """Return the matrices (M, k, k) of the moves; that of one block without arguments."""
        matrix = _stack(self.matrix)
        return matrix if self.log_scale is None else matrix * self.log_scale.exp()[:, :, None]


@dataclass
class LowRank:
    """Matrices of moves as left right^T between the states of two blocks, with nonnegative factors."""

    left: Tensor  # (C, k, R), or (S, R) of one block
    right: Tensor  # (C, k, R), or (S, R) of one block
    log_scale: Tensor | None = None  # (M, k): factor of each row

    def __post_init__(self) -> None:
        if self.left.shape != self.right.shape or self.left.dim() not in (2, 3):
            raise ShapeError(
                f"left and right must have the same shape (S, R) or (C, k, R), got {tuple(self.left.shape)} and "
                f"{tuple(self.right.shape)}."
            )

    @property
    def n_states(self) -> int:
        """Number of states of a block."""
        return self.left.shape[-2]

    @property
    def width(self) -> int:
        """Length of a compressed row, R."""
        return self.left.shape[-1]

    def push(self, rows: Tensor, which: Ints, pairs: Ints, compressed: Tensor, out: Tensor) -> None:
        """Compute out = the states (n, k) after the moves, and the compressed rows (n, R) between the factors."""
        product(scaled_rows(rows, self.log_scale, which), self.left, pairs[which, 0], compressed)
        back_product(compressed, self.right, pairs[which, 1], out)

    def pull(self, message: Tensor, which: Ints, pairs: Ints, compressed: Tensor, out: Tensor) -> None:
        """Compute out = the messages (n, k) before the moves, and the compressed messages (n, R)."""
        product(message, self.right, pairs[which, 1], compressed)
        back_product(compressed, self.left, pairs[which, 0], out)
        if self.log_scale is not None:
            out *= self.log_scale[torch.from_numpy(which)].exp()

    def gradients(
        self, before: Tensor, message: Tensor, forward: Tensor, backward: Tensor, moves: Moves, which: Ints
    ) -> list[Tensor]:
        """Return the gradients of both factors, from rows of states and messages, compressed ones too."""
        shape = _stack(self.left).shape
        first, second = moves.pairs[which].T
        left = outer(scaled_rows(before, self.log_scale, which), backward, first, shape)
        return [left.reshape(self.left.shape), outer(message, forward, second, shape).reshape(self.left.shape)]

    def dense(self, pairs: Ints = ONE) -> Tensor:
        """Return the matrices (M, k, k) of the moves; that of one block without arguments."""
        matrix = torch.bmm(_stack(self.left)[pairs[:, 0]], _stack(self.right)[pairs[:, 1]].transpose(1, 2))
        return matrix if self.log_scale is None else matrix * self.log_scale.exp()[:, :, None]


Transition = Dense | LowRank


@dataclass
class Blocks:
    """Transitions of a whole model, by vectors of states."""

    left: Tensor  # (C, k, D) vectors u of states, or log features
    right: Tensor  # (C, k, D) vectors v of next states, or log features
    bias: Tensor | None = None  # (C, k) of next states
    log_leave: Tensor | None = None  # (C, k, C) log p(next block | state); None: one block
    features: bool = False  # whether vectors are log features

    @property
    def n_blocks(self) -> int:
        """Number of blocks, C."""
        return len(self.left)

    def between(self, pairs: Ints) -> Transition:
        """Return the transitions of some moves (M, 2), sorted; they can be differentiated."""
        first, second = torch.from_numpy(pairs[:, 0].copy()), torch.from_numpy(pairs[:, 1].copy())
        log_scale = None if self.log_leave is None else self.log_leave[first, :, second]
        if not self.features:
            bias = self.left.new_zeros(self.left.shape[:2]) if self.bias is None else self.bias
            return Dense(_Softmax.apply(self.left, self.right, bias, pairs), log_scale)
        right = self.right if self.bias is None else self.right + self.bias[:, :, None]
        # Each feature is shifted by its largest value on the right, each row by its largest on the left: nothing
        # overflows. d = 1 / (phi(u) . sum phi(v)) of paper 4, section on generalized softmax, for each block.
        shift = right.detach().amax(dim=(0, 1))
        right = torch.exp(right - shift)
        left = self.left + shift
        left = torch.exp(left - left.detach().amax(dim=2, keepdim=True))
        sums = left @ right.sum(dim=1).T  # (C, k, C)
        log_sums = torch.log(sums.clamp_min(torch.finfo(sums.dtype).tiny))[first, :, second]
        return LowRank(left, right, -log_sums if log_scale is None else log_scale - log_sums)


class _Softmax(torch.autograd.Function):
    """Softmax over the states of the block after, for each move: (M, k, k)."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, bias: Tensor, pairs: Ints) -> Tensor:
        k = left.shape[1]
        out = left.new_empty(len(pairs), k, k)

        def work(c: int, first: int, last: int) -> None:
            to = torch.from_numpy(pairs[first:last, 1].copy())
            vectors = right[to].transpose(1, 2)
            scores = torch.baddbmm(bias[to][:, None], left[c].expand(last - first, *left[c].shape), vectors)
            torch.softmax(scores, dim=2, out=out[first:last])

        _by_source(pairs, work)
        ctx.save_for_backward(left, right, out)
        ctx.pairs = pairs
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        left, right, out = ctx.saved_tensors
        pairs = ctx.pairs
        d_left, d_right = torch.zeros_like(left), left.new_empty(len(pairs), *right.shape[1:])
        d_bias = left.new_empty(len(pairs), left.shape[1])

        def work(c: int, first: int, last: int) -> None:
            p, g = out[first:last], grad[first:last]
            g = p * (g - (p * g).sum(dim=2, keepdim=True))
            d_left[c] = torch.bmm(g, right[torch.from_numpy(pairs[first:last, 1].copy())]).sum(dim=0)
            torch.bmm(g.transpose(1, 2), left[c].expand(last - first, *left[c].shape), out=d_right[first:last])
            torch.sum(g, dim=1, out=d_bias[first:last])

        _by_source(pairs, work)
        to = torch.from_numpy(pairs[:, 1].copy())
        sums = torch.zeros_like(right).index_add_(0, to, d_right)
        return d_left, sums, left.new_zeros(left.shape[:2]).index_add_(0, to, d_bias), None


def _by_source(pairs: Ints, work: Any) -> None:
    """Call ``work(block, first, last)`` for the moves from each block, on the threads of the pool."""
    blocks, first = np.unique(pairs[:, 0], return_index=True)
    ends = [*first.tolist(), len(pairs)]
    if len(blocks) == 1:  # torch has threads for large products
        work(int(blocks[0]), 0, len(pairs))
        return

    def span(start: int, stop: int) -> None:
        with torch.no_grad():  # a setting of each thread
            for i in range(start, stop):
                work(int(blocks[i]), ends[i], ends[i + 1])

    torch_threads.run(span, threads.cut(np.diff(ends), least=LEAST_BLOCKS))


def _stack(matrix: Tensor) -> Tensor:
    return matrix if matrix.dim() == 3 else matrix[None]


def scaled_rows(rows: Tensor, log_scale: Tensor | None, which: Ints) -> Tensor:
    """Return rows (n, k) times the scale of their moves."""
    return rows if log_scale is None else rows * log_scale[torch.from_numpy(which)].exp()


def product(rows: Tensor, stack: Tensor, which: Ints, out: Tensor) -> None:
    """Compute out[b] = rows[b] @ stack[which[b]]."""
    stack = _stack(stack)
    if len(stack) == 1:
        torch.mm(rows, stack[0], out=out)
    else:
        kernels.through(rows.numpy(), stack.numpy(), which, out.numpy())


def back_product(rows: Tensor, stack: Tensor, which: Ints, out: Tensor) -> None:
    """Compute out[b] = stack[which[b]] @ rows[b]."""
    stack = _stack(stack)
    if len(stack) == 1:
        torch.mm(rows, stack[0].T, out=out)
    else:
        kernels.back(rows.numpy(), stack.numpy(), which, out.numpy())


def outer(rows: Tensor, others: Tensor, which: Ints, shape: torch.Size) -> Tensor:
    """Return the sums of rows[b]^T others[b] over the rows with the same ``which`` (M, ...)."""
    out = rows.new_zeros(shape)
    if len(out) == 1:
        torch.mm(rows.T, others, out=out[0])
        return out
    order = np.argsort(which, kind="stable")
    rows, others = rows[torch.from_numpy(order)], others[torch.from_numpy(order)]
    found, first = np.unique(which[order], return_index=True)
    ends = [*first.tolist(), len(order)]

    def span(start: int, stop: int) -> None:
        with torch.no_grad():
            for i in range(start, stop):
                a, b = ends[i], ends[i + 1]
                torch.mm(rows[a:b].T, others[a:b], out=out[int(found[i])])

    torch_threads.run(span, threads.cut(np.diff(ends), least=LEAST_BLOCKS))
    return out


def check(
    log_start: Tensor, transition: Transition, log_emission: Tensor, words: Ints, offsets: Ints, moves: Moves
) -> None:
    """Raise if shapes or word ids do not fit each other."""
    S = transition.n_states
    if log_start.shape[-1:] != (S,) or log_emission.dim() != 2 or log_emission.shape[1] != S:
        raise ShapeError(
            f"log_start must have shape (S,) and log_emission (W, S) with the transition's S={S}, got "
            f"{tuple(log_start.shape)} and {tuple(log_emission.shape)}."
        )
    if len(words) != offsets[-1] or offsets[0] != 0:
        raise ShapeError(f"offsets must start with 0 and end with the number of words {len(words)}, got {offsets}.")
    if len(words) and not (words.min() >= 0 and words.max() < len(log_emission)):
        raise ValueRangeError(
            f"words must be rows of log_emission, 0 to {len(log_emission) - 1}, got {words.min()} to {words.max()}."
        )
    if len(moves.blocks) != len(log_emission) or len(moves.into) != len(words):
        raise ShapeError("moves must have a block for each row of log_emission, and a move into each word.")


def scaled(log_emission: Tensor) -> tuple[Tensor, NDArray[np.float64]]:
    """Return the emissions of each word divided by their maximum (W, S), and the logarithms of the maxima (W,)."""
    shift = log_emission.amax(dim=1)
    shift = torch.where(torch.isfinite(shift), shift, 0)  # of impossible words
    return torch.exp(log_emission - shift[:, None]), shift.double().numpy()


def word_shifts(shift: NDArray[np.float64], words: Ints, offsets: Ints) -> NDArray[np.float64]:
    """Return the sum of the shifts (W,) of ``scaled`` over the words of each sentence (B,)."""
    return np.add.reduceat(shift[words], offsets[:-1])
