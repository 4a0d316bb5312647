"""What every chain engine takes: checked, contiguous log-potentials and the layout of their transitions."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_lengths, check_scores, check_shape
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.chain.kernels.forward_backward import ROWS

Floats = NDArray[np.floating]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Potentials:
    """Log-potentials of a ragged batch of chains.

    Attributes
    ----------
    log_unary : ndarray (B, T, S)
        C-contiguous float32 or float64; positions at or after ``lengths[b]`` are never read.
    log_pairwise : ndarray (n, S, S)
        Transition matrices; the one from t to t+1 of sequence b is ``b * batch_step + t * time_step``.
    lengths : ndarray (B,)
        Each between 1 and T.
    """

    log_unary: Floats
    log_pairwise: Floats
    batch_step: int
    time_step: int
    lengths: Integers

    @property
    def shared(self) -> bool:
        """True if one transition matrix serves all positions of all sequences."""
        return self.batch_step == 0 and self.time_step == 0

    @cached_property
    def order(self) -> Integers:
        """Sequences by falling length, those of equal length in their order: neighbours advance together."""
        if self.full:
            return np.arange(len(self.lengths))
        return np.argsort(-self.lengths, kind="stable")

    @cached_property
    def full(self) -> bool:
        """True if no sequence is padded."""
        return bool(self.lengths.min() == self.log_unary.shape[1])

    @cached_property
    def ranges(self) -> list[tuple[int, int]]:
        """Ranges of ``order``, whole groups of sequences that advance together, of about equal work."""
        costs = self.lengths[self.order] * self.log_unary.shape[2] ** 2
        return threads.cut(costs, multiple=ROWS, least=threads.LEAST_WORK)

    @cached_property
    def mixing(self) -> bool:
        """True if every transition is possible and their scores span a small range.

        Then any two labels are one likely step apart, and nothing that underflows at one position can matter at a
        later one: the probability-space recursion needs no check. With a span R, beta is at most exp(R) and c at least
        exp(-R) in ``kernels``, so that beta / c stays far below its limit.
        """
        low, high = float(self.log_pairwise.min()), float(self.log_pairwise.max())
        return low > -np.inf and high - low <= (25 if self.log_unary.dtype == np.float32 else 300)

    def take(self, which: NDArray[np.integer], dtype: type[np.floating] = np.float64) -> "Potentials":
        """The sequences ``which`` alone, in another precision."""
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

    Parameters
    ----------
    log_unary : array (B, T, S)
        ``log_unary[b, t, j]`` scores label j at position t; -inf forbids it.
    log_pairwise : array (S, S) or (B, T-1, S, S)
        ``log_pairwise[i, j]`` scores label i before label j; -inf forbids it. Axes B and T-1 may be 1: one matrix for
        all sequences, or one for all positions.
    lengths : array of int (B,), optional
        Number of positions of each sequence, 1 to T; all T by default.
    check_values : bool
        False if nan and +inf are known to be absent.
    """
    unary, pairwise = _floats("log_unary", log_unary), _floats("log_pairwise", log_pairwise)
    sizes = check_shape("log_unary", unary.shape, "B T S")
    B, T, S = sizes["B"], sizes["T"], sizes["S"]
    for letter, size in sizes.items():
        if size == 0:
            raise ShapeError(f"log_unary must have shape (B, T, S), got {unary.shape}: {letter} must be at least 1.")
    batch_step, time_step = transition_steps(pairwise.shape, B, T, S)
    if not pairwise.size:  # T = 1: no transitions, but the kernels want a matrix to hold
        pairwise = np.zeros((S, S), pairwise.dtype)
    checked = check_lengths(lengths, B, T)
    if check_values:
        valid = np.arange(T) < checked[:, None]
        check_scores("log_unary", unary, valid)
        check_scores("log_pairwise", pairwise, valid[:, 1:] if pairwise.shape[:-2] == (B, T - 1) else None)
    dtype = np.result_type(unary, pairwise)
    unary, pairwise = np.ascontiguousarray(unary, dtype), np.ascontiguousarray(pairwise, dtype)
    return Potentials(unary, pairwise.reshape(-1, S, S), batch_step, time_step, checked)


def transition_steps(shape: Sequence[int], B: int, T: int, S: int) -> tuple[int, int]:
    """``(batch_step, time_step)`` of transition scores with this shape; an error if it does not fit (B, T, S)."""
    if len(shape) != 4:
        check_shape("log_pairwise", shape, "S S", S=S)
        return 0, 0
    rows, steps = shape[:2]
    if tuple(shape[2:]) != (S, S) or rows not in (1, B) or steps not in (1, T - 1):
        wanted = f"(S, S)=({S}, {S}) or (B, T-1, S, S)=({B}, {T - 1}, {S}, {S})"
        raise ShapeError(f"log_pairwise must have shape {wanted}, got {tuple(shape)}.")
    return steps if rows > 1 else 0, 1 if steps > 1 else 0


def _floats(name: str, values: object) -> Floats:
    array = np.asarray(values)
    if array.dtype.kind in "iub":
        array = array.astype(np.float64)
    if array.dtype not in (np.float32, np.float64):
        raise ValueRangeError(f"{name} must be float32 or float64, got dtype {array.dtype}: convert it first.")
    return array
