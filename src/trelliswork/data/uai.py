r"""UAI files: factor graphs as plain text, the format of the inference competitions, and their evidence files.

A file consists of words separated by white space or line ends: ``MARKOV``; the number of variables; the number of
states of each; the number of factors; for each factor its number of variables and the variables; then for each factor
the size of its table, and the entries, the state of the last variable changing fastest. Entries are factors, not
logarithms: 0 is impossible. A ``BAYES`` file has the same layout (tables are conditional probabilities, and their
product is the joint distribution), so it is read in the same way.
"""

import math
import os
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.files import fields_of, open_text, shorten, source_name, whole_number
from trelliswork.errors import DataError

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
        self.words: list[str] = []
        counts = []
        with open_text(path) as file:
            for line in file:
                fields = fields_of(line)
                self.words += fields
                counts.append(len(fields))
        self.ends = list(accumulate(counts))
        self.at = 0

    def where(self, index: int) -> str:
        """Return file and line of a word; beyond the end the last line."""
        return f"{self.source}:{max(1, min(bisect_right(self.ends, index) + 1, len(self.ends)))}"

    def integer(self, what: str, least: int = 0, below: int | None = None) -> int:
        """Read the next word as an integer, least <= number < below."""
        if self.at >= len(self.words):
            raise DataError(f"{self.where(self.at)}: expected {what}, but the file ends here. Is it truncated?")
        word = self.words[self.at]
        number = whole_number(word)
        if number is None or number < least or (below is not None and number >= below):
            limits = f"from {least}" if below is None else f"from {least} to {below - 1}"
            raise DataError(f"{self.where(self.at)}: expected {what}, an integer {limits}, got {shorten(word)}.")
        self.at += 1
        return number

    def numbers(self, n: int, what: str) -> NDArray[np.float64]:
        """Read the next n words as finite numbers, none of them negative."""
        words = self.words[self.at : self.at + n]
        if len(words) < n:
            raise DataError(
                f"{self.where(len(self.words))}: expected {n} numbers for {what}, but the file ends after "
                f"{len(words)}. Is it truncated?"
            )
        try:
            values = np.fromiter(map(float, words), np.float64, n)
        except ValueError:
            values = np.full(n, np.nan)
        if n and not (values.min() >= 0 and values.max() < np.inf and "_" not in "".join(words)):
            at = next(i for i, word in enumerate(words) if not _usable(word))
            raise DataError(
                f"{self.where(self.at + at)}: expected a finite number, 0 or more, in {what}, got "
                f"{shorten(words[at])}. Tables contain factors, not their logarithms."
            )
        self.at += n
        return values

    def finish(self) -> None:
        """Raise DataError if there are words left."""
        if self.at < len(self.words):
            raise DataError(
                f"{self.where(self.at)}: expected the end of the file after the last number, got "
                f"{shorten(self.words[self.at])}. Are the counts at its start right?"
            )


def _usable(word: str) -> bool:
    """Return whether a word is a finite number, 0 or more."""
    try:
        return 0 <= float(word) < math.inf and "_" not in word
    except ValueError:
        return False


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
        n, expected = words.integer(f"the number of entries of factor {f}"), math.prod(shape)
        if n != expected:
            raise DataError(
                f"{words.where(words.at - 1)}: factor {f} over variables {shorten(str(scope))} must have "
                f"{expected if expected < 10**18 else 'more than 10^18'} entries by their numbers of states, got {n}."
            )
        with np.errstate(divide="ignore"):  # 0 is -inf, impossible
            log_tables.append(np.log(words.numbers(n, f"the table of factor {f}")).reshape(shape))
    words.finish()
    return UaiGraph(np.array(n_states, np.int64), [np.array(scope, np.int64) for scope in scopes], log_tables)


def read_uai_evidence(path: str | os.PathLike[str], n_states: Iterable[int] | None = None) -> list[dict[int, int]]:
    """Read a UAI evidence file: states by variable, for each set of evidence.

    Current files have one set, ``n v1 x1 .. vn xn``; older ones start with the number of sets. A file that can be read
    as one set is. The numbers of states of the graph, if given, serve to check variables and states.
    """
    words = _Words(path)
    known = None if n_states is None else [int(n) for n in n_states]
    if not words.words:
        raise DataError(
            f"{words.source}: expected a number of variables, but the file is empty. Write 0 for no evidence."
        )
    n = words.integer("the number of variables with evidence")
    one = len(words.words) == 1 + 2 * n
    sets = []
    for _ in range(1 if one else n):
        size = n if one else words.integer("the number of variables with evidence")
        evidence: dict[int, int] = {}
        for _ in range(size):
            v = words.integer("a variable", below=None if known is None else len(known))
            state = words.integer(f"a state of variable {v}", below=None if known is None else known[v])
            if evidence.setdefault(v, state) != state:
                raise DataError(f"{words.where(words.at - 1)}: variable {v} has two states: {evidence[v]} and {state}.")
        sets.append(evidence)
    words.finish()
    return sets
