"""What every engine of factor graphs returns."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["exact", "lower", "upper", "estimate"]


@dataclass(frozen=True)
class Result:
    """Value, beliefs and how they were reached, for B graphs of one shape.

    Parameters
    ----------
    log_z : ndarray (B,)
        log Z or what stands for it, as ``kind`` says; -inf where the graph is known to be impossible;
        from max-product the score of ``assignment``.
    kind : {"exact", "lower", "upper", "estimate"}
        What ``log_z`` is: log Z itself, a bound of it, or neither.
    marginals : ndarray (B, N)
        Beliefs of the single variables, flat as in `Wiring`; zero where the graph is impossible.
    n_iter : ndarray of int (B,)
        Iterations taken.
    residual : ndarray (B,)
        Largest change of a message or belief in the last iteration.
    converged : ndarray of bool (B,)
        Whether the residual came below the tolerance.
    compute_factor_marginals : callable
        Makes ``factor_marginals`` when they are first asked for.
    assignment : ndarray of int (B, V), optional
        The decoded states of max-product; -1 where nothing is possible.
    trace : ndarray, optional
        The value after each iteration, (n_iter,) or (B, n_iter), from engines with a bound.
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
        """Beliefs of the table factors over two and more variables: one array (B, F, s1, .., sk) for each group.

        Of a decoded assignment: 1 at its states.
        """
        return self.compute_factor_marginals()

    @property
    def impossible(self) -> NDArray[np.bool_]:
        """Graphs (B,) that are known to give every assignment probability zero."""
        return self.log_z == -np.inf
