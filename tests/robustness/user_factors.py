"""Factors of a user that answer wrongly, in every engine: ``python -m tests.robustness.user_factors N SEED``.

Each attempt must end in a result or in an error of this package. Runs in a process of its own,
since what it looks for is a crash.
"""

import sys
import warnings

import numpy as np
import torch

from trelliswork import FactorGraph, TrellisworkError
from trelliswork.inference.graph.potentials import BestPropagation, Propagation

ENGINES = ("bp", "exact", "mean_field", "structured_mean_field", "trw", "gibbs", "max_product")
SHAPES = ("rows", "columns", "flat", "empty", "scalar", "nan", "inf", "text", "transposed", "float32", "none", "right")


class Faulty:
    """A factor that prefers equal states; one of its answers is spoiled."""

    n_graphs = 1

    def __init__(self, k: int, S: int, rng: np.random.Generator, spoiled: str, how: str) -> None:
        self.variables, self.n_states = np.arange(k), np.full(k, S)
        self.rng, self.spoiled, self.how = rng, spoiled, how

    def spoil(self, name: str, array: np.ndarray) -> object:
        if name != self.spoiled:
            return array
        wrong = {
            "rows": lambda: np.zeros((int(self.rng.choice([0, 7, 200_000])), *array.shape[1:])),
            "columns": lambda: array[..., : max(0, array.shape[-1] - 1)],
            "flat": array.ravel,
            "empty": lambda: np.zeros(0),
            "scalar": lambda: 0.5,
            "nan": lambda: np.full_like(array, np.nan, dtype=float),
            "inf": lambda: np.full_like(array, np.inf, dtype=float),
            "text": lambda: np.full(array.shape, "x"),
            "transposed": lambda: array.T,
            "float32": lambda: array.astype(np.float32),
            "none": lambda: None,
            "right": lambda: array,
        }
        return wrong[self.how]()

    def propagate(self, log_messages: np.ndarray) -> Propagation:
        rows = log_messages.reshape(len(log_messages), len(self.variables), -1)
        total = rows.sum(axis=1)
        value = np.logaddexp.reduce(total, axis=1)
        beliefs = np.tile(total - value[:, None], (1, len(self.variables)))
        out = np.stack([np.delete(rows, i, 1).sum(axis=1) for i in range(rows.shape[1])], 1).reshape(len(rows), -1)
        return Propagation(self.spoil("value", value), self.spoil("beliefs", beliefs), self.spoil("messages", out))

    def best(self, log_messages: np.ndarray) -> BestPropagation:
        rows = log_messages.reshape(len(log_messages), len(self.variables), -1)
        total = rows.sum(axis=1)
        out = np.stack([np.delete(rows, i, 1).sum(axis=1) for i in range(rows.shape[1])], 1).reshape(len(rows), -1)
        states = np.repeat(total.argmax(axis=1)[:, None], len(self.variables), axis=1)
        if self.spoiled == "states" and self.how == "right":
            states = states + 1000  # outside of the variable
        return BestPropagation(
            self.spoil("value", total.max(axis=1)), self.spoil("messages", out), self.spoil("states", states)
        )

    def score(self, assignment: np.ndarray) -> object:
        same = (assignment == assignment[:, :1]).all(axis=1)
        return self.spoil("score", np.where(same, 0.0, -np.inf))

    def table(self, max_size: int = 1_000_000) -> object:
        full = np.full(tuple(self.n_states), -np.inf)
        full[tuple(np.arange(self.n_states[0]) for _ in self.variables)] = 0.0
        return self.spoil("table", full[None])


def attempt(rng: np.random.Generator) -> str:
    """Make one attempt; return ``answer`` or ``error``."""
    k, S = int(rng.integers(2, 4)), int(rng.integers(2, 4))
    spoiled = str(rng.choice(["value", "beliefs", "messages", "score", "table", "states"]))
    how, engine = str(rng.choice(SHAPES)), str(rng.choice(ENGINES))
    factor = Faulty(k, S, rng, spoiled, how)
    log_unary = torch.from_numpy(rng.normal(size=(int(rng.integers(1, 3)), k * S)))
    try:
        graph = FactorGraph(
            [S] * k,
            structured=[factor],
            log_unary=log_unary,
            engine=engine,
            **({"n_samples": 50, "burn_in": 10} if engine == "gibbs" else {}),
        )
        log_z, marginals, best = graph.log_partition(), graph.marginals(), graph.argmax()
        assert engine == "gibbs" or not torch.isnan(log_z).any(), (spoiled, how, engine)
        assert torch.isfinite(torch.as_tensor(marginals)).all(), (spoiled, how, engine)
        assert (best.value < S).all(), (spoiled, how, engine)
    except TrellisworkError:
        return "error"
    return "answer"


def main(n: int, seed: int) -> None:
    """Make n attempts and print how many ended in what."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(seed)
    ends = [attempt(rng) for _ in range(n)]
    print(n, "attempts:", ends.count("answer"), "answers,", ends.count("error"), "errors")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
