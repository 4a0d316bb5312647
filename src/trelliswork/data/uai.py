r"""UAI files: factor graphs as plain text, the format of the inference competitions.

A file consists of words separated by white space or line ends: ``MARKOV``; the number of variables; the number of
states of each; the number of factors; for each factor its number of variables and the variables; then for each factor
the size of its table, and the entries, the state of the last variable changing fastest. Entries are factors, not
logarithms: 0 is impossible. A ``BAYES`` file has the same layout (tables are conditional probabilities, and their
product is the joint distribution), so it is read in the same way.
"""

import math
import os
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.files import fields_of, open_text, shorten, source_name, whole_number
from trelliswork.errors import DataError

T = TypeVar("T")
_KINDS = ("MARKOV", "BAYES")
MAX_AXES = 32  # variables of a factor
MAX_FREE = 1_000_000  # states of a variable without a factor


@dataclass(frozen=True)
class UaiGraph:
    """A factor graph as arrays: p(x) is proportional to the product of the factors.

    Attributes
    ----------
    n_states : ndarray (V,)
        Number of states of each variable.
    scopes : list of ndarray (k,)
        The variables of each factor, counted from 0; k may be 0 (a constant).
    log_tables : list of ndarray (s1, .., sk)
        The logarithm of each factor, axes in the order of its scope; -inf is impossible.
    """

    n_states: NDArray[np.int64]
    scopes: list[NDArray[np.int64]]
    log_tables: list[NDArray[np.float64]]


class _Words:
    """The words of a file one after another; messages name the line of the word read last."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.source = source_name(path)
        with open_text(path) as file:
            lines = [fields_of(line) for line in file]
        self.words, self.ends = list(chain.from_iterable(lines)), list(accumulate(map(len, lines)))
        self.at = 0

    def where(self, index: int) -> str:
        """Return file and line of a word; beyond the end the last line."""
        return f"{self.source}:{max(1, min(bisect_right(self.ends, index) + 1, len(self.ends)))}"

    def take(self, n: int, what: str, read: Callable[[str], T | None], expected: str) -> list[T]:
        """Read the next n words; ``read`` returns ``None`` for one that is not as ``expected``."""
        values = []
        for at, word in enumerate(self.words[self.at : self.at + n], start=self.at):
            if (value := read(word)) is None:
                raise DataError(f"{self.where(at)}: expected {what}, {expected}, got {shorten(word)}.")
            values.append(value)
        if len(values) < n:
            raise DataError(f"{self.where(len(self.words))}: expected {what}, but the file ends here. Is it truncated?")
        self.at += n
        return values

    def integer(self, what: str, least: int = 0, below: int | None = None) -> int:
        """Read the next word as an integer, least <= number < below."""

        def read(word: str) -> int | None:
            number = whole_number(word)
            return None if number is None or number < least or (below is not None and number >= below) else number

        limits = f"from {least}" if below is None else f"from {least} to {below - 1}"
        return self.take(1, what, read, f"an integer {limits}")[0]


def _factor(word: str) -> float | None:
    """Return a finite number, 0 or more; ``None`` for any other word."""
    try:
        number = float(word)
    except ValueError:
        return None
    return number if 0 <= number < math.inf and "_" not in word else None


def read_uai(path: str | os.PathLike[str]) -> UaiGraph:
    """Read a factor graph from a UAI file, ``MARKOV`` or ``BAYES``.

    Parameters
    ----------
    path : str or path
        A plain or gzip file; ``-`` is the standard input.

    Raises
    ------
    DataError
        If a word is not as expected, a factor names a variable twice, the size of a table does not match its
        variables, or the file is truncated, too long or cannot be read (see `open_text`).

    Notes
    -----
    Time and memory are linear in the size of the file. A factor may have up to 32 variables; inference engines have
    their own limits.
    """
    words = _Words(path)
    kind = words.words[0] if words.words else ""
    if kind.upper() not in _KINDS:
        raise DataError(
            f"{words.where(0)}: expected MARKOV (or BAYES) at the start, got {shorten(kind)}. Is it a UAI file?"
        )
    words.at = 1
    n_variables = words.integer("the number of variables")
    n_states = [words.integer(f"the number of states of variable {v}", least=1) for v in range(n_variables)]
    first = words.at - n_variables
    n_factors = words.integer("the number of factors")
    scopes = []
    for f in range(n_factors):
        size = words.integer(f"the number of variables of factor {f}", below=min(n_variables, MAX_AXES) + 1)
        start = words.at
        scope = [words.integer(f"a variable of factor {f}", below=n_variables) for _ in range(size)]
        if len(set(scope)) < size:
            raise DataError(f"{words.where(start)}: factor {f} names a variable twice: {shorten(str(scope))}.")
        scopes.append(scope)
    for v in set(range(n_variables)).difference(*scopes):  # the tables of the others are in the file
        if n_states[v] > MAX_FREE:
            raise DataError(
                f"{words.where(first + v)}: variable {v} has {n_states[v]:,} states but no factor: expected at most "
                f"{MAX_FREE:,}. Are the numbers of states right?"
            )
    log_tables = []
    for f, scope in enumerate(scopes):
        shape = tuple(n_states[v] for v in scope)
        n, size = words.integer(f"the number of entries of factor {f}"), math.prod(shape)
        if n != size:
            raise DataError(
                f"{words.where(words.at - 1)}: factor {f} over variables {shorten(str(scope))} must have "
                f"{size if size < 10**18 else 'more than 10^18'} entries by their numbers of states, got {n}."
            )
        expected = "finite and 0 or more since they are factors, not logarithms"
        table = words.take(n, f"{n} numbers for the table of factor {f}", _factor, expected)
        with np.errstate(divide="ignore"):  # 0 is -inf, impossible
            log_tables.append(np.log(np.array(table)).reshape(shape))
    if words.at < len(words.words):
        raise DataError(
            f"{words.where(words.at)}: expected the end of the file after the last number, got "
            f"{shorten(words.words[words.at])}. Are the counts at its start right?"
        )
    return UaiGraph(np.array(n_states, np.int64), [np.array(scope, np.int64) for scope in scopes], log_tables)
