"""Beams of a whole corpus in compressed rows: choice by probability, and the union of two."""

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.inference.chain.beam import BeamSets, Rule
from trelliswork.inference.chain.beam.kernels import select
from trelliswork.inference.chain.beam.kernels.select import BeamRows
from trelliswork.inference.chain.potentials import whole_vectors

NO_ROWS = BeamRows(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))


def choose(
    rows: BeamRows, forced: NDArray[np.int32], rule: Rule, n_states: int
) -> tuple[BeamSets, NDArray[np.float64]]:
    """Return the states that a rule keeps by their probabilities, and the share of each token's mass that they have.

    Without states in ``rows`` these are all, 0 to S-1; the states ``forced`` (n_tokens,) are always kept.
    """
    inside, kept, sizes = np.zeros(len(rows.masses), bool), np.ones(len(forced)), np.zeros(len(forced), np.int64)
    width = whole_vectors(int(np.diff(rows.ptr).max(initial=0)), np.float32)
    ranges = threads.cut(np.diff(rows.ptr), least=threads.LEAST_WORK)
    threads.run(select.choose, ranges, rows, forced, rule, width, inside, kept, sizes)
    chosen = np.flatnonzero(inside)
    states = rows.states[chosen] if len(rows.states) else (chosen % n_states).astype(np.int32)
    return BeamSets(np.concatenate([[0], np.cumsum(sizes)]), states), kept


def union(a: BeamSets, b: BeamSets, n_states: int) -> BeamSets:
    """Return the states of both, ascending."""
    keys = np.concatenate([np.repeat(np.arange(len(x.ptr) - 1) * n_states, np.diff(x.ptr)) + x.states for x in (a, b)])
    keys.sort(kind="stable")  # two sorted runs: a merge
    position, states = np.divmod(keys[np.diff(keys, prepend=-1) > 0], n_states)
    ptr = np.concatenate([[0], np.cumsum(np.bincount(position, minlength=len(a.ptr) - 1))])
    return BeamSets(ptr, states.astype(np.int32))
