"""Beams of a whole corpus in compressed rows: where kernels put them, choosing by probability, joining two."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.inference.chain.beam import BeamSets, Rule
from trelliswork.inference.chain.beam.kernels import posterior as beam_posterior_kernels
from trelliswork.inference.chain.layout import whole_vectors

compiled: Any = beam_posterior_kernels  # mypy cannot count starred arguments
NOTHING = BeamSets(np.empty(0, np.int64), np.empty(0, np.int32))


class Out(NamedTuple):
    """Where the kernels put beams: the states of token i and their weighted marginals at ptr[i]:ptr[i + 1]."""

    ptr: NDArray[np.int64]
    states: NDArray[np.int32]
    masses: NDArray[np.float32]

    @classmethod
    def none(cls) -> "Out":
        """Nowhere."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))


def choose(
    ptr: NDArray[np.int64],
    states: NDArray[np.int32],
    masses: NDArray[np.float32],
    forced: NDArray[np.int32],
    rule: Rule,
    n_states: int,
) -> tuple[BeamSets, NDArray[np.float64]]:
    """The states that a rule keeps by their probabilities, and the share of each token's mass that they have.

    Parameters
    ----------
    ptr, states, masses
        Token i has masses[ptr[i]:ptr[i + 1]] of the states beside them; no ``states``: all, 0 to S-1.
    forced : ndarray (n_tokens,)
        States that are always kept.
    """
    inside, kept, sizes = np.zeros(len(masses), bool), np.ones(len(forced)), np.zeros(len(forced), np.int64)
    width = whole_vectors(int(np.diff(ptr).max()), np.float32)
    threads.run(
        lambda start, stop: compiled.choose(
            start, stop, ptr, states, masses, forced, *rule, width, inside, kept, sizes
        ),
        threads.cut(np.diff(ptr), least=threads.LEAST_WORK),
    )
    chosen = np.flatnonzero(inside)
    found = states[chosen] if len(states) else (chosen % n_states).astype(np.int32)
    return BeamSets(np.concatenate([[0], np.cumsum(sizes)]), found), kept


def union(a: BeamSets, b: BeamSets, n_states: int) -> BeamSets:
    """The states of both, ascending."""
    keys = np.concatenate([np.repeat(np.arange(len(x.ptr) - 1) * n_states, np.diff(x.ptr)) + x.states for x in (a, b)])
    keys.sort(kind="stable")  # two rows in order: a merge
    position, states = np.divmod(keys[np.append(True, np.diff(keys) > 0)], n_states)
    ptr = np.concatenate([[0], np.cumsum(np.bincount(position, minlength=len(a.ptr) - 1))])
    return BeamSets(ptr, states.astype(np.int32))
