"""Input of the passes over grammars: log scores of a batch of sentences under one grammar."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Grammar:
    """Scores of a batch of sentences under one dense grammar, float64; -inf is impossible."""

    log_root: Doubles  # (N,)
    log_rules: Doubles  # (N, S, S)
    log_terminals: Doubles  # (B, n, P)
    log_symbols: Doubles | None  # (B, n, n, S) scores (evidence) of symbols over spans i..j, both ends included
    lengths: Integers  # (B,)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The sizes B, n, N, P."""
        B, n, P = self.log_terminals.shape
        return B, n, len(self.log_root), P

    def take(self, which: NDArray[np.integer]) -> "Grammar":
        """Return the scores of the sentences ``which``."""
        symbols = None if self.log_symbols is None else self.log_symbols[which]
        return Grammar(self.log_root, self.log_rules, self.log_terminals[which], symbols, self.lengths[which])


@dataclass(frozen=True)
class LowRankGrammar:
    """Scores of a batch of sentences under one low-rank grammar, float64; -inf is impossible.

    Symbols are N nonterminals, then P = S - N preterminals.
    """

    log_root: Doubles  # (N,)
    log_up: Doubles  # (N, R) log U: from the parent symbol to the rank
    log_left: Doubles  # (R, S) log V: from the rank to the left child
    log_right: Doubles  # (R, S) log W: from the rank to the right child
    log_terminals: Doubles  # (B, n, P)
    lengths: Integers  # (B,)

    @property
    def sizes(self) -> tuple[int, int, int, int, int]:
        """The sizes B, n, N, P, R."""
        B, n, P = self.log_terminals.shape
        return B, n, len(self.log_root), P, len(self.log_left)

    def take(self, which: NDArray[np.integer]) -> "LowRankGrammar":
        """Return the scores of the sentences ``which``."""
        shared = self.log_root, self.log_up, self.log_left, self.log_right
        return LowRankGrammar(*shared, self.log_terminals[which], self.lengths[which])

    def dense(self) -> Grammar:
        """Return the same grammar with explicit rules, (N, S, S)."""
        log_rules = dense_rules(self.log_up, self.log_left, self.log_right)
        return Grammar(self.log_root, log_rules, self.log_terminals, None, self.lengths)


def dense_rules(log_up: Doubles, log_left: Doubles, log_right: Doubles) -> Doubles:
    """Return the log rules (N, S, S) of the factors. Time O(N S^2 R)."""
    up_top, left_top, right_top = (finite(x.max(axis=1)) for x in (log_up.T, log_left, log_right))
    shifts = up_top + left_top + right_top  # by rank
    top = finite(shifts.max())
    up = np.exp(log_up - up_top + shifts - top)
    left, right = np.exp(log_left - left_top[:, None]), np.exp(log_right - right_top[:, None])
    with np.errstate(divide="ignore"):
        return np.log(np.einsum("ar,rx,ry->axy", up, left, right, optimize=True)) + top


def finite(values: Doubles) -> Doubles:
    """Replace -inf by 0, for shifts of scores that are all -inf."""
    return np.where(values > -np.inf, values, 0.0)
