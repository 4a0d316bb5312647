"""Beams chosen from posterior marginals: what follows a position has its say, so that far fewer states do."""

import numpy as np

from trelliswork.compute.jit import kernel
from trelliswork.inference.chain.beam.kernels.select import select


@kernel
def choose(start, stop, ptr, states, masses, forced, least, keep, ratio, width, inside, kept, sizes):
    """Mark in ``inside`` the states of positions ``start`` to ``stop`` that a rule keeps; ``kept`` gets their share
    and ``sizes`` their number.

    Position i has masses[ptr[i] : ptr[i + 1]] of the states beside them (empty ``states``: 0, 1, ...); forced[i], which
    is among them, is always kept. ``width``: whole vectors for the largest number of states.
    """
    row, work = np.zeros(width, masses.dtype), np.empty(width, masses.dtype)
    chosen, guess = np.empty(width, np.int32), np.full(1, 0.03, masses.dtype)
    for i in range(start, stop):
        first, n = ptr[i], ptr[i + 1] - ptr[i]
        mass, gold = 0.0, -1
        for k in range(n):
            row[k] = masses[first + k]
            mass += row[k]
            if states.size and states[first + k] == forced[i]:
                gold = k
        row[n:] = 0
        if not states.size:
            gold = forced[i]
        m = select(row, 0, n, width, mass, least, keep, ratio, gold, chosen, work, guess)
        share = 0.0
        for k in range(m):
            inside[first + chosen[k]] = True
            share += row[chosen[k]]
        kept[i], sizes[i] = min(1.0, share / mass), m
