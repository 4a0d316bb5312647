"""Argument records of the compiled chain kernels: arrays that are passed together."""

from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper


class Chains(NamedTuple):
    """Sequences, and the order in which they are processed: longest first.

    The source of scores is an array (B, T, S) or a record with helpers ``row`` and ``fill``, see ``forward_backward``.
    """

    order: Any  # (n,) numbers of sequences
    lengths: Any  # (B,)
    scores: Any


class Transitions(NamedTuple):
    """One transition matrix for all steps, in probability space: P = exp(log_pairwise - log_shift)."""

    matrix: Any  # (Sp, Sp) P, padded with zeros
    panels: Any  # (Sp/2W, S, 2W) P cut into strips two vectors wide
    panels_t: Any  # the same of its transpose
    log_shift: Any  # float


class Pairwise(NamedTuple):
    """Transition scores: matrix ``b * batch_step + t * time_step`` is that from t to t+1 of sequence b."""

    log_pairwise: Any  # (n, S, S)
    batch_step: Any  # int
    time_step: Any  # int


class Lattice(NamedTuple):
    """Results of a forward pass; those of sequence b are at ``place[b]``."""

    place: Any  # (B,)
    emission: Any  # (n, T, Sp) e_t
    alpha: Any  # (n, T, Sp)
    scale: Any  # (n, T) c_t


@helper(allocates=True)
def make_lattice(place, n, T, Sp, like):
    """Allocate a ``Lattice`` in the precision of the array ``like``."""
    dtype = like.dtype
    return Lattice(place, np.empty((n, T, Sp), dtype), np.empty((n, T, Sp), dtype), np.empty((n, T), dtype))


class Outputs(NamedTuple):
    """Outputs of a backward pass, multiplied by ``weight``; one whose axis 0 is empty is left out.

    Sequences that are not safe add nothing to counts that they share with others.
    """

    weight: Any  # (B,)
    slot: Any  # (B,) index into ``counts``
    marginals: Any  # (B, T, S), or (n, S): the rows of the source
    counts: Any  # (n, S, S), added to
