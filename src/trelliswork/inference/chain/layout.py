"""How potentials lie in memory for the kernels: padded rows, strips of matrices, and running over sequences."""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from trelliswork.compute import threads
from trelliswork.compute.simd import VECTOR_BYTES
from trelliswork.inference.chain.kernels.forward_backward import ROWS
from trelliswork.inference.chain.potentials import Floats, Potentials

# Numbers below the smallest normal one are lost; times LIMIT that is still far below the type's precision.
LIMIT = {np.dtype(np.float32): 1e25, np.dtype(np.float64): 1e280}


def limit(p: Potentials) -> np.floating:
    """The largest beta / c of a safe sequence (see ``kernels``)."""
    dtype = p.log_unary.dtype
    return dtype.type(LIMIT[dtype])


def transitions(p: Potentials) -> tuple[Floats, int, int]:
    """The transition matrices and their layout, as the kernels take them."""
    return p.log_pairwise, p.batch_step, p.time_step


def whole_vectors(n: int, dtype: DTypeLike) -> int:
    """N rounded up to whole vectors."""
    width = VECTOR_BYTES // np.dtype(dtype).itemsize
    return -(-n // width) * width


def padded_width(p: Potentials) -> int:
    """S rounded up to whole vectors, and to fours: the kernels take rows of transitions by fours."""
    return -(-whole_vectors(p.log_unary.shape[2], p.log_unary.dtype) // ROWS) * ROWS


def pad(p: Potentials, matrix: Floats, value: float) -> Floats:
    """The matrix (S, S) filled up to (Sp, Sp)."""
    padded = np.full((padded_width(p), padded_width(p)), value, matrix.dtype)
    padded[: len(matrix), : len(matrix)] = matrix
    return padded


def exp_transition(p: Potentials) -> tuple[Floats, float]:
    """exp(log_pairwise - shift) padded with zeros (Sp, Sp), and the shift, its maximum."""
    log_pairwise = p.log_pairwise[0]
    shift = log_pairwise.max()
    if not shift > -np.inf:
        shift = log_pairwise.dtype.type(0)
    return pad(p, np.exp(log_pairwise - shift), 0), float(shift)


def panels(p: Potentials, padded: Floats) -> Floats:
    """Strips (Sp/2W, S, 2W) of a padded matrix, each contiguous, for the products of the kernels; no padded rows.

    The right half of the last strip is empty if Sp is an odd number of vectors.
    """
    S, Sp = p.log_unary.shape[2], len(padded)
    wide = 2 * VECTOR_BYTES // padded.dtype.itemsize
    n_strips = -(-Sp // wide)
    strips = np.zeros((S, n_strips * wide), padded.dtype)
    strips[:, :Sp] = padded[:S]
    return np.ascontiguousarray(strips.reshape(S, n_strips, wide).swapaxes(0, 1))


def run_all(kernel: Any, p: Potentials, *arguments: object) -> None:
    """Run a kernel that takes sequences in their own order."""
    costs = p.lengths * p.log_unary.shape[2] ** 2
    threads.run(
        lambda start, stop: kernel(start, stop, p.lengths, *arguments), threads.cut(costs, least=threads.LEAST_WORK)
    )
