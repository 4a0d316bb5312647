"""Write a factor of your own: all variables take the same state.

    python examples/own_factor.py

A structured factor answers messages with its own sums. Here a sum over S^k assignments becomes a sum over S states.
Three members are optional: ``weigh`` passes messages in probability space, ``parameters`` and ``log_value`` give the
scores of the factor a gradient, so that they can be learned.
"""

import numpy as np
import torch

from trelliswork import FactorGraph
from trelliswork.distributions import BestPropagation, Propagation


class AllEqual:
    """log f(x) = scores[s] if every variable is in state s, else -inf."""

    n_graphs = 1

    def __init__(self, variables: list[int], scores: torch.Tensor) -> None:
        self.variables, self.parameters = np.array(variables), (scores,)
        self.scores = scores.detach().numpy()
        self.n_states = np.full(len(variables), len(scores))

    def weigh(self, messages: np.ndarray) -> np.ndarray:
        """Return messages for messages in probability space: products instead of sums."""
        rows = messages.reshape(len(messages), len(self.variables), len(self.scores))
        others = [np.delete(rows, i, axis=1).prod(axis=1) for i in range(rows.shape[1])]
        return (np.exp(self.scores) * np.stack(others, axis=1)).reshape(messages.shape)

    def log_value(self, log_messages: torch.Tensor) -> torch.Tensor:
        """Return the value of ``propagate``, differentiable in the scores."""
        rows = log_messages.reshape(len(log_messages), len(self.variables), len(self.scores))
        return (self.parameters[0] + rows.sum(dim=1)).logsumexp(dim=1)

    def _rows(self, log_messages: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return messages (B, k, S) and the score of each common state (B, S)."""
        rows = log_messages.reshape(len(log_messages), len(self.variables), len(self.scores))
        return rows, self.scores + rows.sum(axis=1)

    def _without_own(self, rows: np.ndarray) -> np.ndarray:
        """Return the sum of the other variables' messages, never by subtraction: a message may be -inf."""
        others = [np.delete(rows, i, axis=1).sum(axis=1) for i in range(rows.shape[1])]
        return (self.scores + np.stack(others, axis=1)).reshape(len(rows), -1)

    def propagate(self, log_messages: np.ndarray) -> Propagation:
        """Return value, beliefs and messages: sum-product."""
        rows, total = self._rows(log_messages)
        value = np.logaddexp.reduce(total, axis=1)
        beliefs = np.tile(total - value[:, None], (1, len(self.variables)))
        return Propagation(value, beliefs, self._without_own(rows))

    def best(self, log_messages: np.ndarray) -> BestPropagation:
        """Return value, messages and the best states: max-product."""
        rows, total = self._rows(log_messages)
        states = np.repeat(total.argmax(axis=1)[:, None], len(self.variables), axis=1)
        return BestPropagation(total.max(axis=1), self._without_own(rows), states)

    def score(self, assignment: np.ndarray) -> np.ndarray:
        """Return log f of states (B, k)."""
        same = (assignment == assignment[:, :1]).all(axis=1)
        return np.where(same, self.scores[assignment[:, 0]], -np.inf)

    def table(self, max_size: int = 1_000_000) -> np.ndarray:
        """Return the dense table (1, S, .., S)."""
        full = np.full(tuple(self.n_states), -np.inf)
        full[tuple(np.arange(len(self.scores)) for _ in self.variables)] = self.scores
        return full[None]


def main() -> None:
    """Print marginals with two engines, then learn the scores of the factor from one assignment."""
    log_unary = torch.tensor([1.0, 0.0, 0.5, 0.0, 0.2, 0.0, 0.0, 2.0, 0.0], dtype=torch.float64)
    scores = torch.tensor([0.0, 0.1, 0.2], dtype=torch.float64, requires_grad=True)
    for engine in ("bp", "exact"):
        graph = FactorGraph([3, 3, 3], structured=[AllEqual([0, 1, 2], scores)], log_unary=log_unary, engine=engine)
        log_z = graph.infer().log_z[0]
        print(engine, [round(float(p), 4) for p in graph.marginals()[0, 0]], round(float(log_z), 4))
    for step in range(3):
        graph = FactorGraph([3, 3, 3], structured=[AllEqual([0, 1, 2], scores)], log_unary=log_unary)
        log_prob = graph.log_prob(torch.tensor([2, 2, 2])).sum()
        (gradient,) = torch.autograd.grad(log_prob, [scores])
        print(step, round(log_prob.item(), 4), [round(g, 4) for g in gradient.tolist()])
        with torch.no_grad():
            scores += gradient


if __name__ == "__main__":
    main()
