"""Result of every engine of factor graphs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["exact", "lower", "upper", "estimate"]


@dataclass(frozen=True)
class Result:
    """Value, beliefs and convergence, for B graphs of one shape.

    Parameters
    ----------
    log_z : ndarray (B,)
        log Z or its replacement, see ``kind``; -inf where the graph is known to be impossible; from max-product the
        score of ``assignment``.
    kind : {"exact", "lower", "upper", "estimate"}
        Whether ``log_z`` is log Z itself, a bound of it, or neither.
    marginals : ndarray (B, N)
        Beliefs of the variables, flat as in `Wiring`; zero where the graph is impossible.
    n_iter : ndarray of int (B,)
        Number of iterations.
    residual : ndarray (B,)
        Largest change of a message or belief in the last iteration.
    converged : ndarray of bool (B,)
        Whether the residual fell below the tolerance.
    compute_factor_marginals : callable
        Computes ``factor_marginals`` on first access.
    assignment : ndarray of int (B, V), optional
        Decoded states of max-product; -1 where nothing is possible.
    trace : ndarray, optional
        Value after each iteration, (n_iter,) or (B, n_iter), from engines with a bound.
    """

    log_z: NDArray[np.float64]
    kind: Kind
    marginals: NDArray[np.float64]
    n_iter: NDArray[np.int64]
    residual: NDArray[np.float64]
    converged: NDArray[np.bool_]
    compute_factor_marginals: Callable[[], tuple[NDArray[np.float64], ...]] = field(repr=False)
    assignment: NDArray[np.int64] | None = None
    trace: NDArray[np.float64] | None = field(default=None, repr=False)

    @cached_property
    def factor_marginals(self) -> tuple[NDArray[np.float64], ...]:
        """Return beliefs of the table factors over two or more variables: (B, F, s1, .., sk) for each group.

        For a decoded assignment they are 1 at its states.
        """
        return self.compute_factor_marginals()

    @property
    def impossible(self) -> NDArray[np.bool_]:
        """Return which graphs (B,) are known to give every assignment probability zero."""
        return self.log_z == -np.inf
