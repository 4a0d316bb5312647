"""Log evidence of sentences as a torch function: its gradient is expected counts, in feature space for transitions."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from trelliswork.compute import threads
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.lowrank import memory
from trelliswork.inference.lowrank.fused import Fused
from trelliswork.inference.lowrank.operators import LowRank, Transition
from trelliswork.inference.lowrank.packing import Ints, Packed, groups, merge, pack
from trelliswork.inference.lowrank.sweep import Counts, Sweep, one_thread


def log_evidence(
    log_start: Tensor,
    transition: Transition,
    log_emission: Tensor,
    words: Ints,
    offsets: Ints,
    *,
    every: int | None = None,
) -> Tensor:
    r"""log p(words) of each sentence (B,) in float64, differentiable in all tensors.

    Parameters
    ----------
    log_start : Tensor (S,)
        log p(first state); -inf is impossible.
    transition : LowRank or Dense
        p(next state | state), not its logarithm.
    log_emission : Tensor (W, S)
        ``log_emission[w, z]`` is log p(w | z), for the words that occur; -inf is impossible.
    words : ndarray (N,)
        Rows of ``log_emission``; sentence n is ``words[offsets[n] : offsets[n + 1]]``.
    offsets : ndarray (B + 1,)
    every : int, optional
        Keep the states of every so many positions, to save memory.

    Notes
    -----
    Time O(N S R) of a low-rank transition, O(N S^2) of a dense one; memory O(N S). Gradients cannot be differentiated
    again. Paper 4, eqs. 8-10.
    """
    check(log_start, transition, log_emission, words, offsets)
    if every is not None and every < 1:
        raise ValueRangeError(f"every must be a positive whole number of positions, got {every}.")
    shape = type(transition)
    return _LogEvidence.apply(log_start, log_emission, words, offsets, every, shape, *transition.tensors())


def check(log_start: Tensor, transition: Transition, log_emission: Tensor, words: Ints, offsets: Ints) -> None:
    """Sizes and ids that fit each other."""
    S = transition.n_states
    if log_start.shape != (S,) or log_emission.dim() != 2 or log_emission.shape[1] != S:
        raise ShapeError(
            f"log_start must have shape (S,) and log_emission (W, S) with S={S} as the transition has, got "
            f"{tuple(log_start.shape)} and {tuple(log_emission.shape)}."
        )
    if len(words) != offsets[-1] or offsets[0] != 0:
        raise ShapeError(f"offsets must begin with 0 and end with the number of words {len(words)}, got {offsets}.")
    if len(words) and not (words.min() >= 0 and words.max() < len(log_emission)):
        raise ValueRangeError(
            f"words must be rows of log_emission, 0 to {len(log_emission) - 1}, got {words.min()} to {words.max()}."
        )


def scaled(log_emission: Tensor) -> tuple[Tensor, NDArray[np.float64]]:
    """Emissions divided by their largest for each word (W, S), and the logarithms of those (W,)."""
    shift = largest(log_emission)
    return torch.exp(log_emission - shift[:, None]), shift.double().numpy()


def largest(log_emission: Tensor) -> Tensor:
    """The largest logarithm of each word (W,); 0 for words that are impossible."""
    shift = log_emission.amax(dim=1)
    return torch.where(torch.isfinite(shift), shift, 0)


def run_groups(parts: Sequence[object], work: Callable[[int], None]) -> None:
    """Call ``work(k)`` for each group, on as many threads as are set."""

    def span(first: int, last: int) -> None:
        with torch.no_grad(), one_thread():
            for k in range(first, last):
                work(k)

    threads.run(span, [(k, k + 1) for k in range(len(parts))])


def fusible(transition: Transition) -> TypeGuard[LowRank]:
    """Whether ``Fused`` can do it."""
    return isinstance(transition, LowRank) and transition.band is None


def expectations(
    parts: list[Packed],
    start: Tensor,
    transition: Transition,
    emission: Tensor,
    weight: float,
    *,
    every: int | None = None,
) -> tuple[NDArray[np.float64], Counts]:
    """Forward and backward at once: log evidences in the callers' order, and weighted counts.

    ``emission`` (W, S) are probabilities up to a factor for each word, which the caller adds to the log evidences.
    """
    log_z = np.empty(sum(part.n_sentences for part in parts))
    total = _zeros(start, transition, emission)
    if every is None and fusible(transition):
        packed = merge(parts)
        fused = Fused(packed, start, transition, emission)
        log_z[packed.order] = fused.forward()
        fused.backward(np.full(packed.n_sentences, weight), total)
        parts = _lost(packed, log_z)
    sweeps = [Sweep(part, start, transition, emission, every=every) for part in parts]

    def work(k: int, own: Counts) -> None:
        log_z[parts[k].order] = sweeps[k].forward()
        sweeps[k].backward(np.full(parts[k].n_sentences, weight), own)

    _add_counts(sweeps, work, total)
    return log_z, total


def _lost(packed: Packed, log_z: NDArray[np.float64]) -> list[Packed]:
    """The sentences, in the callers' order, that are too improbable for ``Fused``: impossible perhaps."""
    lost = np.flatnonzero(np.isneginf(log_z[packed.order]))
    if lost.size == 0:
        return []
    rows = [packed.rows(b) for b in lost.tolist()]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    found = pack(packed.words[np.concatenate(rows)], offsets)
    return [replace(found, order=packed.order[lost][found.order])]


def _add_counts(sweeps: list[Sweep], work: Callable[[int, Counts], None], total: Counts) -> None:
    """Add the counts of each group, ``work(k, counts)``, to the total, in the order of groups."""
    counts: list[Counts | None] = [None] * len(sweeps)

    def counted(k: int) -> None:
        s = sweeps[k]
        own = counts[k] = _zeros(s.start, s.transition, s.emission)
        work(k, own)

    run_groups(sweeps, counted)
    for own in counts:
        assert own is not None
        total.start += own.start
        total.emission += own.emission
        for mine, theirs in zip(total.transition, own.transition, strict=True):
            mine += theirs


def _zeros(start: Tensor, transition: Transition, emission: Tensor) -> Counts:
    first, words = (memory.zeros(*x.shape, dtype=x.dtype) for x in (start, emission))
    return Counts(first, words, transition.zeros())


def word_shifts(shift: NDArray[np.float64], words: Ints, offsets: Ints) -> NDArray[np.float64]:
    """What ``scaled`` took off, summed over each sentence."""
    return np.add.reduceat(shift[words], offsets[:-1])


class _LogEvidence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        log_start: Tensor,
        log_emission: Tensor,
        words: Ints,
        offsets: Ints,
        every: Any,
        kind: Any,
        *parts: Tensor,
    ) -> Tensor:
        words, offsets = np.asarray(words, np.int64), np.asarray(offsets, np.int64)
        ctx.transition = transition = kind(*(part.detach().contiguous() for part in parts))
        start, log_emission = log_start.detach().exp(), log_emission.detach().contiguous()
        log_z = np.empty(len(offsets) - 1)
        ctx.fused, ctx.sweeps, left = None, [], groups(words, offsets)
        shift = largest(log_emission)
        if every is None and fusible(transition):
            packed = merge(left)
            ctx.fused = Fused(packed, start, transition, log_emission, shift)
            log_z[packed.order] = ctx.fused.forward()
            left = _lost(packed, log_z)
        if left:
            emission = torch.exp(log_emission - shift[:, None])
            ctx.sweeps = [Sweep(part, start, transition, emission, every=every) for part in left]

        def work(k: int) -> None:
            log_z[ctx.sweeps[k].packed.order] = ctx.sweeps[k].forward()

        run_groups(ctx.sweeps, work)
        ctx.shapes = start, log_emission
        return torch.from_numpy(log_z + word_shifts(shift.double().numpy(), words, offsets))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        weights = grad.numpy()
        start, log_emission = ctx.shapes
        total = _zeros(start, ctx.transition, log_emission)
        if ctx.fused is not None:
            ctx.fused.backward(weights[ctx.fused.packed.order], total)
        sweeps: list[Sweep] = ctx.sweeps

        def work(k: int, own: Counts) -> None:
            sweeps[k].backward(weights[sweeps[k].packed.order], own)

        _add_counts(sweeps, work, total)
        return total.start, total.emission, None, None, None, None, *total.transition
