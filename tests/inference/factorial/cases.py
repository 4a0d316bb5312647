"""Random small factorial chains for hypothesis: one to three layers, ragged lengths, some scores -inf."""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from tests.oracle.factorial import EnumeratedFactorial, enumerate_factorial
from trelliswork.inference.factorial import FactorialPotentials, factorial_potentials


class Case(NamedTuple):
    log_unary: list[np.ndarray]
    log_pairwise: list[np.ndarray]
    log_between: dict[tuple[int, int], np.ndarray]
    lengths: np.ndarray

    def potentials(self, dtype=np.float64) -> FactorialPotentials:
        between = {pair: table.astype(dtype) for pair, table in self.log_between.items()}
        unary, pairwise = ([a.astype(dtype) for a in arrays] for arrays in (self.log_unary, self.log_pairwise))
        return factorial_potentials(unary, pairwise, between, self.lengths)

    def enumerated(self) -> list[EnumeratedFactorial]:
        rows = [[u[b, :n] for u in self.log_unary] for b, n in enumerate(self.lengths)]
        return [enumerate_factorial(row, self.log_pairwise, self.log_between) for row in rows]


def random_case(rng, n_labels, B=4, T=3, scale=1.0, tie_scale=1.0) -> Case:
    D = len(n_labels)
    pairs = [(d, e) for d in range(D) for e in range(d + 1, D)]
    return Case(
        [rng.normal(size=(B, T, S)) * scale for S in n_labels],
        [rng.normal(size=(S, S)) * scale for S in n_labels],
        {(d, e): rng.normal(size=(n_labels[d], n_labels[e])) * tie_scale for d, e in pairs},
        rng.integers(1, T + 1, B),
    )


@st.composite
def cases(draw, impossible: bool = False, ties_impossible: bool = False, sizes=(1.0, 3.0), max_layers=3) -> Case:
    """Few labels, so that enumeration is fast; label 0 is always possible."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_labels = draw(st.lists(st.integers(1, 3), min_size=1, max_size=max_layers))
    T = 4 if np.prod(n_labels) <= 6 else 2
    case = random_case(rng, n_labels, draw(st.integers(1, 5)), T, draw(st.sampled_from(sizes)))
    if impossible:
        for array in (*case.log_unary, *case.log_pairwise):
            array[..., 1:][rng.random(array[..., 1:].shape) < 0.3] = -np.inf
    if ties_impossible:
        for table in case.log_between.values():
            table[:, 1:][rng.random(table[:, 1:].shape) < 0.3] = -np.inf
    return case
