"""Input of every chain engine: checked, contiguous log-potentials, and their layout in memory for the kernels."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import DTypeLike, NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import are_scores, check_lengths, check_scores, check_shape
from trelliswork.compute.padding import mask
from trelliswork.compute.simd import VECTOR_BYTES
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.chain.kernels.forward_backward import LIMIT_32, LIMIT_64, ROWS, group_size, lay_transitions
from trelliswork.inference.chain.kernels.records import Chains, Pairwise, Transitions

Floats = NDArray[np.floating]
Integers = NDArray[np.int64]
# The largest beta / c of a safe sequence (see ``kernels.forward_backward``).
LIMIT = {np.dtype(np.float32): LIMIT_32, np.dtype(np.float64): LIMIT_64}
PAGE = 4096  # bytes


@dataclass(eq=False)
class Potentials:
    """Log-potentials of a ragged batch of chains; not to be changed.

    The transition matrix from t to t+1 of sequence b is number ``b * batch_step + t * time_step``.
    """

    log_unary: Floats  # (B, T, S) float32 or float64; positions at or after lengths[b] are never read
    log_pairwise: Floats  # (n, S, S)
    batch_step: int
    time_step: int
    given_lengths: Integers | None  # None for T everywhere

    @cached_property
    def lengths(self) -> Integers:
        """Lengths (B,), each between 1 and T."""
        return check_lengths(self.given_lengths, *self.log_unary.shape[:2])

    @property
    def shared(self) -> bool:
        """True if one transition matrix is used at all positions of all sequences."""
        return self.batch_step == 0 and self.time_step == 0

    @cached_property
    def order(self) -> Integers:
        """Sequences by decreasing length, those of equal length in their order: neighbors advance together."""
        if self.full:
            return np.arange(len(self.lengths))
        return np.argsort(-self.lengths, kind="stable")

    @cached_property
    def full(self) -> bool:
        """True if no sequence is padded."""
        return self.given_lengths is None or bool(self.given_lengths.min() == self.log_unary.shape[1])

    @property
    def row_width(self) -> int:
        """Numbers in a row of the kernels' arrays."""
        return row_width(self.log_unary.shape[2], self.log_unary.dtype)

    @cached_property
    def ranges(self) -> list[tuple[int, int]]:
        """Ranges of ``order`` of about equal work: whole groups of sequences that advance together."""
        costs = self.lengths[self.order] * self.log_unary.shape[2] ** 2
        return threads.cut(costs, multiple=group_size(self.row_width), least=threads.LEAST_WORK)

    @cached_property
    def mixing(self) -> bool:
        """True if every transition is possible and their scores span a small range.

        Then any two labels are one likely step apart, and nothing that underflows at one position can matter at a
        later one: the probability-space recursion needs no check. With a span R, beta is at most exp(R) and c at least
        exp(-R) in ``kernels.forward_backward``, so that beta / c stays far below its limit.
        """
        low, high = float(self.log_pairwise.min()), float(self.log_pairwise.max())
        return low > -np.inf and high - low <= (25 if self.log_unary.dtype == np.float32 else 300)

    @cached_property
    def chains(self) -> Chains:
        """The sequences as the kernels take them."""
        return Chains(self.order, self.lengths, self.log_unary)

    @cached_property
    def pairwise(self) -> Pairwise:
        """The transition scores as the kernels take them."""
        return Pairwise(self.log_pairwise, int(self.batch_step), int(self.time_step))

    @cached_property
    def transitions(self) -> Transitions:
        """The shared transition matrix in probability space, as the kernels take it."""
        S, Sp, dtype = self.log_unary.shape[2], self.row_width, self.log_unary.dtype
        wide = 2 * VECTOR_BYTES // dtype.itemsize
        strips = (-(-Sp // wide), S, wide)
        matrix, panels, panels_t = np.empty((Sp, Sp), dtype), np.empty(strips, dtype), np.empty(strips, dtype)
        weights = np.empty(whole_vectors(S * S, dtype), dtype)
        return Transitions(
            matrix, panels, panels_t, lay_transitions(self.log_pairwise, weights, matrix, panels, panels_t)
        )

    @property
    def length_if_short(self) -> int | None:
        """The length of a single short sequence with one transition matrix; None for other potentials.

        There, preparations take longer than they save.
        """
        B, T, S = self.log_unary.shape
        if self.time_step or B > 1 or T * S**2 >= threads.LEAST_WORK:
            return None
        return T if self.given_lengths is None else int(self.given_lengths[0])

    def take(self, which: NDArray[np.integer], dtype: type[np.floating] = np.float64) -> "Potentials":
        """Return the potentials of the sequences ``which`` in another precision."""
        pairwise, batch_step = self.log_pairwise, self.batch_step
        if batch_step:
            pairwise = pairwise.reshape(-1, batch_step, *pairwise.shape[1:])[which].reshape(-1, *pairwise.shape[1:])
        return Potentials(
            self.log_unary[which].astype(dtype, copy=False),
            pairwise.astype(dtype, copy=False),
            batch_step,
            self.time_step,
            self.lengths[which],
        )


def chain_potentials(
    log_unary: object, log_pairwise: object, lengths: object = None, *, check_values: bool = True
) -> Potentials:
    """Check log-potentials and lay them out for the kernels; the arrays themselves are left unchanged.

    ``log_unary[b, t, j]`` (B, T, S) scores label j at position t, ``log_pairwise[i, j]`` label i before label j: (S, S)
    or (B, T-1, S, S), where axes B and T-1 may be 1: one matrix for all sequences, or one for all positions. -inf
    forbids. ``lengths`` (B,), 1 to T, are all T by default. Without ``check_values``, nan and +inf are known to be
    absent.
    """
    unary, pairwise = _floats("log_unary", log_unary), _floats("log_pairwise", log_pairwise)
    B, T, S = sizes(unary.shape)
    batch_step, time_step = transition_steps(pairwise.shape, B, T, S)
    if not pairwise.size:  # T = 1: no transitions, but the kernels need a matrix
        pairwise = np.zeros((S, S), pairwise.dtype)
    checked = None if lengths is None else check_lengths(lengths, B, T)
    if check_values and not (are_scores(unary) and are_scores(pairwise)):
        valid = None if checked is None else mask(checked, T)
        check_scores("log_unary", unary, valid)
        check_scores(
            "log_pairwise", pairwise, valid[:, 1:] if valid is not None and pairwise.shape[:-2] == (B, T - 1) else None
        )
    if unary.dtype != pairwise.dtype:
        unary, pairwise = unary.astype(np.float64), pairwise.astype(np.float64)
    unary, pairwise = np.ascontiguousarray(unary), np.ascontiguousarray(pairwise)
    return Potentials(unary, pairwise.reshape(-1, S, S), batch_step, time_step, checked)


def sizes(shape: Sequence[int]) -> tuple[int, int, int]:
    """Return B, T and S of log-potentials with this shape; raise if it is another one, or empty."""
    if len(shape) != 3 or 0 in shape:
        for letter, size in check_shape("log_unary", shape, "B T S").items():
            if size == 0:
                expected = f"log_unary must have shape (B, T, S), got {tuple(shape)}"
                raise ShapeError(f"{expected}: {letter} must be at least 1.")
    B, T, S = shape
    return B, T, S


def transition_steps(shape: Sequence[int], B: int, T: int, S: int) -> tuple[int, int]:
    """Return ``(batch_step, time_step)`` of transition scores with this shape; raise if it does not fit (B, T, S)."""
    if shape == (S, S):
        return 0, 0
    if len(shape) != 4:
        check_shape("log_pairwise", shape, "S S", S=S)
    rows, steps = shape[:2]
    if tuple(shape[2:]) != (S, S) or rows not in (1, B) or steps not in (1, T - 1):
        expected = f"(S, S)=({S}, {S}) or (B, T-1, S, S)=({B}, {T - 1}, {S}, {S})"
        raise ShapeError(f"log_pairwise must have shape {expected}, got {tuple(shape)}.")
    return steps if rows > 1 else 0, 1 if steps > 1 else 0


def _floats(name: str, values: object) -> Floats:
    array = np.asarray(values)
    if array.dtype in LIMIT:
        return array
    if array.dtype.kind in "iub":
        return array.astype(np.float64)
    raise ValueRangeError(f"{name} must be float32 or float64, got dtype {array.dtype}: convert it first.")


def whole_vectors(n: int, dtype: DTypeLike) -> int:
    """Return n rounded up to whole vectors."""
    width = VECTOR_BYTES // np.dtype(dtype).itemsize
    return -(-n // width) * width


def row_width(n_states: int, dtype: DTypeLike) -> int:
    """Return S rounded up to whole vectors and to a multiple of four: the kernels take four rows at a time.

    Rows of whole pages would all map to the same cache lines, so they get one vector more.
    """
    width = -(-whole_vectors(n_states, dtype) // ROWS) * ROWS
    whole_pages = width * np.dtype(dtype).itemsize % PAGE == 0
    return width + max(ROWS, whole_vectors(1, dtype)) if whole_pages else width
