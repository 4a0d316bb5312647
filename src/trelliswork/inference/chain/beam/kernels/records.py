"""Records that the kernels of beams share: one argument for arrays that belong together."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.jit import helper


class BeamSets(NamedTuple):
    """Beams of all positions of a batch in compressed rows, sequence after sequence."""

    ptr: NDArray[np.int64]  # (n_positions + 1,)
    states: NDArray[np.int32]  # those of position i are ptr[i]:ptr[i+1], ascending


class Batch(NamedTuple):
    """Scores of a ragged batch of sequences."""

    lengths: Any  # (B,)
    offsets: Any  # (B + 1,) number of the first position of each sequence
    log_unary: Any  # (B, T, S), or (B, T, L) if states emit labels


class Choice(NamedTuple):
    """How beams are chosen."""

    gold: Any  # (n_positions,) states that are always kept, -1: none; or empty
    rule: Any  # ``select.Rule``
    refine: bool  # choose again by a backward pass


class Safety(NamedTuple):
    """When probability space is precise enough (see ``inference.chain.kernels.forward_backward``)."""

    limit: Any  # the largest beta / c
    check: bool  # False if nothing can underflow


class Sequence(NamedTuple):
    """One sequence: its scores at position t start at flat index ``at + t * stride`` of ``log_unary``."""

    number: int
    n_positions: int
    n_labels: int
    first: int  # number of its first position in the batch
    log_unary: Any
    at: int
    stride: int


class Results(NamedTuple):
    """Outputs of fixed size."""

    log_z: Any  # (B,)
    sizes: Any  # (n_positions,) of the beams
    kept: Any  # (n_positions,) share of the mass that was kept


class Buffer(NamedTuple):
    """Beams and marginals of some sequences, one after the other."""

    states: Any
    marginals: Any


@helper(allocates=True)
def copy_beams(sequence, used, s, results, buffer):
    """Copy the beams of a sequence from working memory to the outputs; return their number of states."""
    n, at = s.ptr[sequence.n_positions], sequence.first
    for t in range(sequence.n_positions):
        results.sizes[at + t] = s.ptr[t + 1] - s.ptr[t]
        results.kept[at + t] = s.kept[t]
    buffer.states[used : used + n] = s.states[:n]
    buffer.marginals[used : used + n] = s.alpha[:n]
    return n


@helper
def reverse_sets(sizes, used, s):
    """Replace the beams by those in ``s.spare``, which are stored from the last position and state to the first."""
    s.ptr[0] = 0
    for t in range(sizes.size):
        s.ptr[t + 1] = s.ptr[t] + sizes[t]
    for a in range(used):
        s.states[a] = s.spare[used - 1 - a]
