"""Compile the kernels of low-rank HMMs; see ``inference.warmup``."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch

from trelliswork.inference.lowrank import (
    Dense,
    LowRank,
    Transition,
    log_evidence,
    marginals,
    rank_space,
    sample_states,
    viterbi,
)


def tasks() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the name and the call of each compilation task."""
    for dtype in (torch.float32, torch.float64):
        half = torch.full((2, 2), 0.5, dtype=dtype)
        band = torch.full((2, 3), 0.25, dtype=dtype)
        kinds: tuple[Transition, ...] = (LowRank(half, half), LowRank(half / 2, half, band), Dense(half))
        for name, transition in zip(("low rank", "low rank and band", "dense"), kinds, strict=True):
            yield f"{name} hmm, {str(dtype).removeprefix('torch.')}", partial(_all, half.log(), transition)


def _all(log_emission: torch.Tensor, transition: Transition) -> object:
    words, offsets = np.array([0, 1, 1]), np.array([0, 3])
    leaf = log_emission.clone().requires_grad_()
    log_evidence(log_emission[0], transition, leaf, words, offsets).sum().backward()
    given = log_emission[0], transition, log_emission, words
    sample_states(*given, 1, np.random.default_rng(0))
    rank_space.score(*given, offsets, operators=np.array([1]))
    return marginals(*given, offsets), viterbi(*given, offsets)
