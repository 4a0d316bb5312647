"""Checks of shapes and values of arrays at public entry points."""

import math
import reprlib
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ImpossibleError, ShapeError, ValueRangeError


def check_shape(name: str, shape: Sequence[int], pattern: str, **known: int) -> dict[str, int]:
    """Match a shape with a pattern such as ``"B T S"`` and return the sizes by letter.

    Parameters
    ----------
    name : str
        Name of the argument, for the message.
    shape : sequence of int
        Shape to check.
    pattern : str
        One word per axis: a letter (new, or to be compared with ``known``), or a letter minus a number: ``"T-1"``.
    **known : int
        Sizes fixed by earlier arguments.

    Examples
    --------
    >>> check_shape("log_unary", (2, 5, 3), "B T S")
    {'B': 2, 'T': 5, 'S': 3}
    >>> check_shape("log_pairwise", (3, 4), "S S", S=3)
    Traceback (most recent call last):
    trelliswork.errors.ShapeError: log_pairwise must have shape (S, S), got (3, 4): axis 1 should be S=3.
    """
    axes = _axes(pattern)
    sizes = dict(known)
    for (letter, less), size in zip(axes, shape, strict=False):
        if sizes.setdefault(letter, size + less) - less != size:
            break
    else:
        if len(axes) == len(shape):
            return sizes
    raise ShapeError(_wrong_shape(name, tuple(shape), pattern, known))


@cache
def _axes(pattern: str) -> list[tuple[str, int]]:
    """Return the letter of each axis of a pattern, and the number subtracted from it."""
    parts = [axis.partition("-") for axis in pattern.split()]
    return [(letter, int(less or 0)) for letter, _, less in parts]


def _wrong_shape(name: str, shape: tuple[int, ...], pattern: str, known: dict[str, int]) -> str:
    axes = pattern.split()
    message = f"{name} must have shape ({', '.join(axes)}{',' if len(axes) == 1 else ''}), got {shape}"
    if len(shape) != len(axes):
        return f"{message}: expected {len(axes)} axes, got {len(shape)}."
    sizes = dict(known)
    for axis, ((letter, less), size) in enumerate(zip(_axes(pattern), shape, strict=True)):
        want = sizes.setdefault(letter, size + less) - less
        if size != want:
            return f"{message}: axis {axis} should be {axes[axis]}={want}."
    return message


def as_array(name: str, values: object) -> NDArray[Any]:
    """Return values as an array; nested lists of different lengths raise an error."""
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError):
        got = f"{reprlib.repr(values)} ({type(values).__name__})"
        raise ShapeError(f"{name} must be an array, or lists nested to equal lengths, got {got}.") from None


def check_lengths(lengths: object, n_sequences: int, n_positions: int) -> NDArray[np.int64]:
    """Return lengths as an int64 array (B,), each between 1 and T; ``None`` stands for T everywhere."""
    if lengths is None:
        return np.full(n_sequences, n_positions, np.int64)
    array = as_array("lengths", lengths)
    check_shape("lengths", array.shape, "B", B=n_sequences)
    if array.dtype.kind not in "iu":
        raise ValueRangeError(f"lengths must be integers, got dtype {array.dtype}: convert them with .astype(int).")
    bad = np.flatnonzero((array < 1) | (array > n_positions))
    if bad.size:
        raise ValueRangeError(
            f"lengths must lie between 1 and T={n_positions}, got {array[bad[0]]} for sequence {bad[0]}: "
            "leave empty sequences out of the batch."
        )
    return array.astype(np.int64, copy=False)


def are_scores(scores: NDArray[np.floating]) -> bool:
    """Return whether log-potentials contain neither nan nor +inf."""
    # The maximum of an array with a nan is nan. For small arrays, the method ``max`` takes three times as long.
    return scores.size == 0 or scores.item(scores.argmax()) < math.inf


def check_scores(name: str, scores: NDArray[np.floating], valid: NDArray[np.bool_] | None = None) -> None:
    """Raise if log-potentials contain nan or +inf; -inf (impossible) is allowed.

    ``valid`` is an optional mask over the leading axes of ``scores``: padding, where it is False, is not checked.
    """
    if are_scores(scores):
        return
    bad = ~(scores < np.inf)
    if valid is not None:
        bad &= valid.reshape(valid.shape + (1,) * (scores.ndim - valid.ndim))
        if not bad.any():
            return
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    raise ValueRangeError(
        f"{name} must hold finite scores or -inf (impossible), got {scores[index]} at index {index}: "
        "look for a division by zero or a logarithm of a negative number upstream."
    )


def check_count(name: str, value: int) -> None:
    """Raise unless ``value`` is a positive whole number."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
        raise ValueRangeError(f"{name} must be a positive whole number, got {value!r}.")


def number_of_best(k: int, *factors: tuple[int, int]) -> int:
    """Return k, or the number of structures if there are fewer: at most the product of base ** power of the factors."""
    check_count("k", k)
    if sum(power * math.log(base) for base, power in factors if base > 0) > math.log(k) + 1:
        return k
    return max(1, min(k, math.prod(base**power for base, power in factors)))


def check_possible(
    log_values: NDArray[np.float64], what: str, *, noun: str = "labeling of sequence", parts: str = "transitions"
) -> None:
    """Raise if a sequence has no possible labeling: its log Z or best score is -inf.

    ``noun`` and ``parts`` name the structure and its parts in the message, such as "tree of sentence" and "arcs".
    """
    if log_values.size and log_values.item(log_values.argmin()) == -np.inf:
        bad = np.flatnonzero(log_values == -np.inf)
        raise ImpossibleError(
            f"{what}: every {noun} {bad[0]} has probability zero"
            + (f" (and of {bad.size - 1} more)" if bad.size > 1 else "")
            + f". Loosen the evidence or the forbidden {parts}, or leave it out of the batch."
        )
