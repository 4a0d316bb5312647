"""Passes over many sentences of words: log evidence, its gradient as a torch function, and scores.

Words are rows of ``log_emission`` (W, k), the log-probabilities of a word given the k states of its block. Without
``blocks`` (W,) there is one block, of all states.
"""

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from trelliswork.inference.lowrank.packing import Ints, Moves, moves, one_block
from trelliswork.inference.lowrank.potentials import ONE, Blocks, Transition, check, scaled, word_shifts
from trelliswork.inference.lowrank.sweep import ForwardBackward

SCORE_TOKENS = 20_000  # words that are scored at once
SCORE_NUMBERS = 1 << 27  # at most, in the matrices of their moves


def log_evidence(
    log_start: Tensor,
    transition: Transition,
    log_emission: Tensor,
    words: Ints,
    offsets: Ints,
    moves: Moves | None = None,
) -> Tensor:
    r"""Return log p(words) of each sentence (B,) in float64, differentiable with respect to all tensors.

    Parameters
    ----------
    log_start : Tensor (S,), or (C, k)
        log p(first state).
    transition : Dense or LowRank
        p(next state | state), not its logarithm, for the ``moves``.
    log_emission : Tensor (W, S), or (W, k)
        ``log_emission[w, z]`` is log p(w | z) for the words that occur; -inf is impossible.
    words : ndarray (N,)
        Rows of ``log_emission``; sentence n is ``words[offsets[n] : offsets[n + 1]]``.
    moves : Moves, optional
        Blocks of words and pairs of blocks, by the function ``moves``; without it there is one block.

    Notes
    -----
    Time O(N k R) for low-rank transitions, O(N k^2) for dense ones; memory O(N k). Gradients cannot be differentiated
    again. Paper 4, eqs. 8-10.
    """
    words, offsets = np.asarray(words, np.int64), np.asarray(offsets, np.int64)
    moves = one_block(len(log_emission), len(words)) if moves is None else moves
    check(log_start, transition, log_emission, words, offsets, moves)
    parts = [getattr(transition, field.name) for field in fields(transition)]
    return _LogEvidence.apply(log_start, log_emission, words, offsets, moves, type(transition), *parts)


class _LogEvidence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        log_start: Tensor,
        log_emission: Tensor,
        words: Ints,
        offsets: Ints,
        moves: Any,
        kind: Any,
        *parts: Any,
    ) -> Tensor:
        transition = kind(*(None if part is None else part.detach().contiguous() for part in parts))
        emission, shift = scaled(log_emission.detach())
        ctx.both = ForwardBackward(log_start.detach().exp(), transition, emission, words, offsets, moves)
        return torch.from_numpy(ctx.both.forward() + word_shifts(shift, words, offsets))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        counts = ctx.both.counts(ctx.both.backward(grad.numpy()))
        return counts.start, counts.emission, None, None, None, None, *counts.transition, counts.scale


@torch.no_grad()
def score(
    log_start: Tensor,
    transition: Transition | Blocks,
    log_emission: Tensor,
    words: Ints,
    offsets: Ints,
    blocks: Ints | None = None,
) -> NDArray[np.float64]:
    """Return log p(words) of each sentence (B,); sentences that underflow in float32 are recomputed in float64."""
    log_z = np.empty(len(offsets) - 1)
    for which, both, shifts in _batches(log_start, transition, log_emission, words, offsets, blocks):
        log_z[which] = both.forward() + shifts
    lost = np.flatnonzero(np.isneginf(log_z))
    if lost.size and log_emission.dtype != torch.float64:
        exact = log_start.double(), double(transition), log_emission.double()
        log_z[lost] = score(*exact, *_chosen(words, offsets, lost), blocks)
    return log_z


@torch.no_grad()
def posteriors(
    log_start: Tensor,
    transition: Transition | Blocks,
    log_emission: Tensor,
    words: Ints,
    offsets: Ints,
    blocks: Ints | None = None,
) -> Iterator[tuple[Ints, Tensor]]:
    """Yield the indices (n,) of some words, and p(state | sentence) over the states of their blocks (n, k)."""
    for which, both, _ in _batches(log_start, transition, log_emission, words, offsets, blocks):
        both.forward()
        at = np.concatenate([np.arange(offsets[n], offsets[n + 1]) for n in which])
        yield at, both.backward(np.ones(len(which)))


def _batches(
    log_start: Tensor,
    transition: Transition | Blocks,
    log_emission: Tensor,
    words: Ints,
    offsets: Ints,
    blocks: Ints | None,
) -> Iterator[tuple[Ints, ForwardBackward, NDArray[np.float64]]]:
    """Yield numbers of sentences of similar length, their passes, and the sums of the shifts of their words."""
    lengths = np.diff(offsets)
    order = np.argsort(-lengths, kind="stable")
    k = log_emission.shape[1]
    many = isinstance(transition, Blocks) and transition.n_blocks > 1
    most = max(1, min(SCORE_TOKENS, SCORE_NUMBERS // k**2)) if many else SCORE_TOKENS
    whole = transition.between(ONE) if isinstance(transition, Blocks) and not many else None
    for which in np.split(order, np.flatnonzero(np.diff(np.cumsum(lengths[order]) // most)) + 1):
        if not len(which):
            continue
        some, starts = _chosen(words, offsets, which)
        distinct, some = np.unique(some, return_inverse=True)
        rows = log_emission[torch.from_numpy(distinct)]
        if isinstance(transition, Blocks) and whole is None:
            assert blocks is not None
            needed = moves(some, starts, blocks[distinct])
            given: Transition = transition.between(needed.pairs)
        else:
            needed = one_block(len(distinct), len(some))
            given = transition if whole is None else whole  # type: ignore[assignment]
        check(log_start, given, rows, some, starts, needed)
        emission, shift = scaled(rows)
        both = ForwardBackward(log_start.exp(), given, emission, some, starts, needed)
        yield which, both, word_shifts(shift, some, starts)


def _chosen(words: Ints, offsets: Ints, which: Ints) -> tuple[Ints, Ints]:
    """Return the words and offsets of some sentences."""
    parts = [words[offsets[n] : offsets[n + 1]] for n in which]
    return np.concatenate(parts), np.concatenate([[0], np.cumsum([len(part) for part in parts])])


def double(transition: Any) -> Any:
    """Return the transition in float64."""
    tensors = {name: value.double() for name, value in vars(transition).items() if isinstance(value, Tensor)}
    return replace(transition, **tensors)
