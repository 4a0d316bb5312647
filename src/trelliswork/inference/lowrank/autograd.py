"""Log evidence of sentences as a torch function; its gradient is expected counts, in rank space for transitions."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from trelliswork.errors import ValueRangeError
from trelliswork.inference.lowrank.packing import Ints, groups
from trelliswork.inference.lowrank.passes import ForwardBackward
from trelliswork.inference.lowrank.potentials import Transition, check, largest, word_shifts


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

    ``log_start`` (S,) is log p(first state); ``transition`` holds p(next state | state), not its logarithm;
    ``log_emission[w, z]`` (W, S) is log p(w | z) for the words that occur; -inf is impossible. ``words`` (N,) are rows
    of ``log_emission``; sentence n is ``words[offsets[n] : offsets[n + 1]]``. With ``every``, the states of every
    ``every``-th position only are kept, to save memory.

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
        transition = kind(*(part.detach().contiguous() for part in parts))
        log_emission = log_emission.detach().contiguous()
        shift = largest(log_emission)
        ctx.both = ForwardBackward(
            groups(words, offsets), log_start.detach().exp(), transition, log_emission, shift, every=every
        )
        return torch.from_numpy(ctx.both.forward() + word_shifts(shift.double().numpy(), words, offsets))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        counts = ctx.both.backward(grad.numpy())
        return counts.start, counts.emission, None, None, None, None, *counts.transition
