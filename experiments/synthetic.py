"""Synthetic sequences for beams: hidden Markov models as in Pal, Sutton and McCallum (2006), section 4.1."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class SyntheticHMM(NamedTuple):
    """A hidden Markov model drawn at random, and sequences drawn from it."""

    log_start: NDArray[np.float64]  # (S,)
    log_transition: NDArray[np.float64]  # (S, S)
    log_emission: NDArray[np.float64]  # (S, V): -inf where a state never emits a symbol
    states: NDArray[np.int64]  # (n_sequences, length)
    symbols: NDArray[np.int64]  # (n_sequences, length)

    def log_unary(self, dtype: type[np.floating] = np.float64) -> NDArray[np.floating]:
        """Return the scores of the states (n_sequences, length, S), including the start."""
        scores = self.log_emission.T[self.symbols].astype(dtype)
        scores[:, 0] += self.log_start.astype(dtype)
        return scores


def synthetic_hmm(
    n_sequences: int,
    rng: np.random.Generator,
    *,
    n_states: int = 100,
    n_symbols: int = 100,
    length: int = 75,
    transition: float = 0.1,
    n_sharp: int = 10,
    share_sharp: float = 0.75,
    flat: float = 1e4,
) -> SyntheticHMM:
    """Draw a model and sequences.

    Rows of the transition matrix have a Dirichlet(``transition``) distribution. A fraction ``share_sharp`` of the
    states emits ``n_sharp`` symbols only, with Dirichlet(1) probabilities; the others emit all symbols with
    Dirichlet(``flat``) probabilities, which are nearly equal. The paper gives neither the number of symbols nor the
    distribution of the first state, which is uniform here.
    """
    S, V = n_states, n_symbols
    matrix = _dirichlet(rng, transition, (S, S))
    emission = _dirichlet(rng, flat, (S, V))
    for j in np.flatnonzero(rng.random(S) < share_sharp):
        emission[j] = 0
        emission[j, rng.choice(V, min(n_sharp, V), replace=False)] = rng.dirichlet(np.ones(min(n_sharp, V)))
    states = np.empty((n_sequences, length), np.int64)
    states[:, 0] = rng.integers(0, S, n_sequences)
    steps = matrix.cumsum(axis=1)
    for t in range(1, length):
        states[:, t] = _draw(steps[states[:, t - 1]], rng)
    symbols = _draw(emission.cumsum(axis=1)[states.reshape(-1)], rng).reshape(states.shape)
    with np.errstate(divide="ignore"):
        return SyntheticHMM(np.full(S, -np.log(S)), np.log(matrix), np.log(emission), states, symbols)


def _dirichlet(rng: np.random.Generator, concentration: float, shape: tuple[int, int]) -> NDArray[np.float64]:
    drawn = rng.gamma(concentration, size=shape)
    result: NDArray[np.float64] = drawn / drawn.sum(axis=1, keepdims=True)
    return result


def _draw(cumulative: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw one index per row by its cumulative probabilities; an index of probability zero is never drawn."""
    at = rng.random(len(cumulative)) * cumulative[:, -1]
    result: NDArray[np.int64] = (cumulative <= at[:, None]).sum(axis=1)
    return result
