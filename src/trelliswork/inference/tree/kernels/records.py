"""Argument records and constants shared by the kernels of dependency trees."""

from typing import Any, NamedTuple

# A derivative of log Z times the smallest normal number, some n^3 times, stays far below the last digit of 1.
LIMIT = 1e280


class Batch(NamedTuple):
    """Arc scores of a ragged batch; node 0 is the root."""

    order: Any  # (B,) sentence computed at each place of a range
    lengths: Any  # (B,) words per sentence
    log_arc: Any  # (B, n+1, n+1) head before word; the k best trees take (B, n+1, n+1, R), R sorted labels per arc
    single_root: Any  # bool: exactly one word depends on node 0
