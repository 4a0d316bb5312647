r"""Reference implementation of alignments: one pair of sequences, NumPy, generic in the semiring.

With :math:`s(i, j, m)` = ``log_moves[i, j, m]``, the score of arriving at cell (i, j) by move m (0 match, 1 delete, 2
insert), :math:`w` = ``log_pairwise`` the scores of moves in a row, and :math:`c - m` the cell that move m leaves:

.. math::
    \alpha_c(m) &= s(c, m) + \begin{cases} 0 & c - m = (0, 0)\\
    \textstyle\bigoplus_k \alpha_{c - m}(k) + w(k, m) & \text{otherwise} \end{cases} & (1)\\
    \log Z &= \textstyle\bigoplus_m \alpha_{(n, m)}(m) & (2)

This is Gotoh's (1982) recursion for gaps. The compiled recursions are tested against it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Array = NDArray[np.float64]
STEPS = ((1, 1), (1, 0), (0, 1))  # of both sequences, by move


def forward(log_moves: Array, log_pairwise: Array, add: Callable[..., Any] = logsumexp) -> float:
    """Return log Z from scores (n+1, m+1, 3) and (3, 3). ``add=np.max`` gives the best score."""
    n, m = log_moves.shape[0] - 1, log_moves.shape[1] - 1
    alpha = np.full((n + 1, m + 1, 3), -np.inf)
    for i in range(n + 1):
        for j in range(m + 1):
            for move, (down, right) in enumerate(STEPS):
                if i >= down and j >= right:
                    first = i == down and j == right
                    ways = 0.0 if first else add(alpha[i - down, j - right] + log_pairwise[:, move])
                    alpha[i, j, move] = log_moves[i, j, move] + ways  # (1)
    return float(add(alpha[n, m]))  # (2)
