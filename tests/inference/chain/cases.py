"""Random small chains for Hypothesis: ragged lengths, small and huge scores, some of them -inf."""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st


class Chain(NamedTuple):
    log_unary: np.ndarray  # (B, T, S)
    log_pairwise: np.ndarray  # (S, S) or (B or 1, T-1 or 1, S, S)
    lengths: np.ndarray  # (B,)


@st.composite
def chains(draw, dtype=np.float64, possible: bool = False, max_positions: int = 5) -> Chain:
    """Draw a batch of up to 6 sequences, 5 positions and 4 labels; with ``possible``, each has a possible labeling."""
    B = draw(st.integers(1, 6))
    T = draw(st.integers(1, max_positions))
    S = draw(st.integers(1, 4))
    layout = draw(st.sampled_from(["shared", "each", "by position", "by sequence"]))
    shape = {
        "shared": (S, S),
        "each": (B, T - 1, S, S),
        "by position": (1, T - 1, S, S),
        "by sequence": (B, min(1, T - 1), S, S),
    }[layout]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = draw(st.sampled_from([0.0, 1.0, 30.0, 1e4]))
    log_unary = rng.normal(size=(B, T, S)) * size
    log_pairwise = rng.normal(size=shape) * draw(st.sampled_from([0.0, 1.0, 30.0, 1e4]))
    if draw(st.booleans()):
        log_unary[rng.random(log_unary.shape) < 0.3] = -np.inf
        log_pairwise[rng.random(shape) < 0.3] = -np.inf
    if possible:
        log_unary[:, :, 0] = np.where(np.isneginf(log_unary[:, :, 0]), 0, log_unary[:, :, 0])
        log_pairwise[..., 0, 0] = np.where(np.isneginf(log_pairwise[..., 0, 0]), 0, log_pairwise[..., 0, 0])
    return Chain(log_unary.astype(dtype), log_pairwise.astype(dtype), rng.integers(1, T + 1, B))
