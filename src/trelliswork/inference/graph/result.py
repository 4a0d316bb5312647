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

    ``log_z`` is -inf where the graph is known to be impossible; ``kind`` is whether it is log Z itself, a bound of it,
    or neither. From max-product it is the score of ``assignment``.
    """

    log_z: NDArray[np.float64]  # (B,)
    kind: Kind
    marginals: NDArray[np.float64]  # (B, N) beliefs of the variables, flat as in `Wiring`; 0 where impossible
    n_iter: NDArray[np.int64]  # (B,) number of iterations
    residual: NDArray[np.float64]  # (B,) largest change of a message or belief in the last iteration
    converged: NDArray[np.bool_]  # (B,) whether the residual fell below the tolerance
    compute_factor_marginals: Callable[[], tuple[NDArray[np.float64], ...]] = field(repr=False)  # on first access
    assignment: NDArray[np.int64] | None = None  # (B, V) decoded by max-product; -1 where nothing is possible
    trace: NDArray[np.float64] | None = field(default=None, repr=False)  # bound after each iteration, (.., n_iter)
    log_messages: tuple[NDArray[np.float64], ...] = field(default=(), repr=False)  # to each structured factor, from bp

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
