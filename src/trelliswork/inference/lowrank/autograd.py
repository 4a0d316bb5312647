"""Log evidence of sentences as a torch function; its gradient is expected counts, in rank space for transitions."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from trelliswork.errors import ValueRangeError
from trelliswork.inference.lowrank.fused import Fused
from trelliswork.inference.lowrank.packing import Ints, groups, merge
from trelliswork.inference.lowrank.passes import add_counts, fusible, lost_sentences, run_groups, zero_counts
from trelliswork.inference.lowrank.potentials import Transition, check, largest, word_shifts
from trelliswork.inference.lowrank.sweep import Counts, Sweep


def log_evidence(
    log_start: Tensor,
    transition: Transition,
    log_emission: Tensor,
    words: Ints,
    offsets: Ints,
    *,
    every: int | None = None,
) -> Tensor:
    r"""Return log p(words) of each sentence (B,) in float64, differentiable with respect to all tensors.

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
        Keep the states of every ``every``-th position only, to save memory.

    Notes
    -----
    Time O(N S R) for a low-rank transition, O(N S^2) for a dense one; memory O(N S). Gradients cannot be differentiated
    again. Paper 4, eqs. 8-10.
    """
    check(log_start, transition, log_emission, words, offsets)
    if every is not None and every < 1:
        raise ValueRangeError(f"every must be a positive whole number of positions, got {every}.")
    kind = type(transition)
    return _LogEvidence.apply(log_start, log_emission, words, offsets, every, kind, *transition.tensors())


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
        ctx.fused, ctx.sweeps, remaining = None, [], groups(words, offsets)
        shift = largest(log_emission)
        if every is None and fusible(transition):
            packed = merge(remaining)
            ctx.fused = Fused(packed, start, transition, log_emission, shift)
            log_z[packed.order] = ctx.fused.forward()
            remaining = lost_sentences(packed, log_z)
        if remaining:
            emission = torch.exp(log_emission - shift[:, None])
            ctx.sweeps = [Sweep(part, start, transition, emission, every=every) for part in remaining]

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
        total = zero_counts(start, ctx.transition, log_emission)
        if ctx.fused is not None:
            ctx.fused.backward(weights[ctx.fused.packed.order], total)
        sweeps: list[Sweep] = ctx.sweeps

        def work(k: int, counts: Counts) -> None:
            sweeps[k].backward(weights[sweeps[k].packed.order], counts)

        add_counts(sweeps, work, total)
        return total.start, total.emission, None, None, None, None, *total.transition
