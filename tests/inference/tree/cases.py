"""Random small batches of arc scores for Hypothesis: ragged lengths, small and huge scores, some of them -inf."""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from tests.oracle.trees import Enumerated, enumerate_trees


class Batch(NamedTuple):
    log_arc: np.ndarray  # (B, n+1, n+1)
    lengths: np.ndarray  # (B,)
    single_root: bool

    def enumerate(self, projective: bool) -> list[Enumerated]:
        return [
            enumerate_trees(self.log_arc[b, : n + 1, : n + 1], projective, self.single_root)
            for b, n in enumerate(self.lengths)
        ]


@st.composite
def batches(draw, possible: bool = False, max_words: int = 4, max_scale: float = 1e3) -> Batch:
    """Draw at most 9 sentences; ``possible``: at least one tree (projective, single root) is always possible."""
    B, n = draw(st.integers(1, 9)), draw(st.integers(1, max_words))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scales = [scale for scale in (0.0, 1.0, 30.0, 300.0, 1e3) if scale <= max_scale]
    log_arc = rng.normal(size=(B, n + 1, n + 1)) * draw(st.sampled_from(scales))
    lengths = rng.integers(1, n + 1, B)
    if draw(st.booleans()):
        log_arc[rng.random(log_arc.shape) < draw(st.sampled_from([0.2, 0.5]))] = -np.inf
    if possible:
        for b in range(B):
            root = rng.integers(1, lengths[b] + 1)
            log_arc[b, 0, root] = rng.normal()
            for d in range(1, n + 1):
                if d != root:
                    log_arc[b, d + (1 if d < root else -1), d] = rng.normal()
    for b in range(B):  # entries that are not arcs may have any value
        log_arc[b, lengths[b] + 1 :] = log_arc[b, :, lengths[b] + 1 :] = np.nan
        log_arc[b, :, 0] = np.inf
        np.fill_diagonal(log_arc[b], np.nan)
    return Batch(log_arc, lengths, draw(st.booleans()))
