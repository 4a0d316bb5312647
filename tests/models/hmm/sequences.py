"""Symbol sequences of the tests of E-steps and EM."""

import numpy as np

from trelliswork.models.hmm.data import Sequences
from trelliswork.models.hmm.updates import random_parameters


def sequences_of(lists, **known):
    offsets = np.concatenate([[0], np.cumsum([len(x) for x in lists])]).astype(np.int64)
    return Sequences(offsets, np.concatenate(lists).astype(np.int32), **known)


def random_sequences(n, length, n_symbols, seed=0, **known):
    rng = np.random.default_rng(seed)
    return sequences_of([rng.integers(0, n_symbols, rng.integers(1, length + 1)) for _ in range(n)], **known)


def drawn_from_a_model(n, length, n_states=3, n_symbols=8, seed=0):
    """Return sequences of a random model."""
    rng = np.random.default_rng(seed)
    p = random_parameters(n_states, n_symbols, seed=seed, concentration=0.2)
    lists = []
    for _ in range(n):
        y, x = rng.choice(n_states, p=np.exp(p.log_start)), []
        for _ in range(length):
            x.append(rng.choice(n_symbols, p=np.exp(p.log_emission[y])))
            y = rng.choice(n_states, p=np.exp(p.log_transition[y]))
        lists.append(np.array(x))
    return sequences_of(lists)
