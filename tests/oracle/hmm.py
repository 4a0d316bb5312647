"""Hidden Markov models by enumeration of all state paths: the ground truth of the tests."""

from itertools import pairwise, product

import numpy as np


def enumerate_counts(log_start, log_transition, log_end, log_emission, sequences, labels=None):
    """Return expected counts (start, transition, end, emission) and log evidence (N,) of lists of symbol lists.

    ``labels[n][t]`` is the known state or -1.
    """
    S, V = log_emission.shape
    start, transition, end, emission = np.zeros(S), np.zeros((S, S)), np.zeros(S), np.zeros((S, V))
    log_evidence = np.empty(len(sequences))
    for n, x in enumerate(sequences):
        paths = [
            path
            for path in product(range(S), repeat=len(x))
            if labels is None or all(y in (-1, state) for y, state in zip(labels[n], path, strict=True))
        ]
        scores = np.array([joint(log_start, log_transition, log_end, log_emission, x, path) for path in paths])
        top = scores.max()
        log_evidence[n] = -np.inf if top == -np.inf else top + np.log(np.exp(scores - top).sum())
        if log_evidence[n] == -np.inf:
            continue
        for path, p in zip(paths, np.exp(scores - log_evidence[n]), strict=True):
            start[path[0]] += p
            end[path[-1]] += p
            for i, j in pairwise(path):
                transition[i, j] += p
            for state, symbol in zip(path, x, strict=True):
                emission[state, symbol] += p
    return start, transition, end, emission, log_evidence


def joint(log_start, log_transition, log_end, log_emission, x, path) -> float:
    """Return log p(symbols, path)."""
    score = log_start[path[0]] + sum(log_emission[y, v] for y, v in zip(path, x, strict=True))
    score += sum(log_transition[i, j] for i, j in pairwise(path))
    return score if log_end is None else score + log_end[path[-1]]
