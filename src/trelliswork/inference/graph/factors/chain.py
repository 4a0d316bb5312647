"""A linear chain of variables: one table for each step."""

from typing import Any

import numpy as np

from trelliswork.errors import ShapeError
from trelliswork.inference.graph.factors.common import integers
from trelliswork.inference.graph.potentials import Tables


class ChainFactor(Tables):
    r"""A linear chain: :math:`\log f(x) = \sum_t w_t(x_t, x_{t+1})`, as one table factor per step.

    Parameters
    ----------
    variables : array of int (T,)
        In the order of the chain, T >= 2; all with S states.
    log_pairwise : array (S, S), (T-1, S, S) or (B, T-1, S, S)
        ``log_pairwise[i, j]``: i comes before j; -inf forbids the pair.

    Notes
    -----
    Messages go along the chain step by step: in a graph with cycles and long chains use ``schedule="sequential"``,
    which passes them from end to end in one iteration, of time O(T S^2).
    """

    def __init__(self, variables: Any, log_pairwise: Any) -> None:
        chain = integers("variables", variables, 2)
        T = len(chain)
        tables = np.asarray(log_pairwise, np.float64)
        if tables.ndim not in (2, 3, 4) or tables.shape[-1] != tables.shape[-2]:
            raise ShapeError(f"log_pairwise must have shape (S, S), (T-1, S, S) or (B, T-1, S, S), got {tables.shape}.")
        tables = tables.reshape((1,) * (4 - tables.ndim) + tables.shape)
        if tables.shape[1] not in (1, T - 1):
            raise ShapeError(f"log_pairwise has {tables.shape[1]} steps, but {T} variables have T-1={T - 1}.")
        which = np.arange(T - 1) if tables.shape[1] > 1 else np.zeros(T - 1, np.int64)
        super().__init__(np.stack([chain[:-1], chain[1:]], axis=1), which, np.array(tables, order="C"))
