"""A trained Markov random field over words: scores, a cover that bounds them, and sentence lengths."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from trelliswork.errors import DataError
from trelliswork.inference.lifted import LowRankTable, SparseTable, Table, exact
from trelliswork.inference.lifted.exponentials import SMALL
from trelliswork.inference.lifted.sentences import cover_log_z, score_parts
from trelliswork.learning.checkpoint import with_prefix

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MRFField:
    """Learned scores, the cover that bounds them, and the lengths of training sentences.

    ``factors`` are ``left`` U (C, D), ``right`` W (K, C, D) and, for "URW", ``middle`` R (K, D, D) with W (C, D); for
    "full" the rows, columns and values of each distance's sparse table.
    """

    form: str  # "UW", "URW" or "full"
    log_unary: Array  # (C,) theta^0; zeros for a field without a unary
    factors: dict[str, NDArray[Any]]
    weights: Array  # (K,) rho of the distances in the cover that bounds the field
    unaries: Array  # (K + 1, C) of the cover, single words first; their weighted sum is theta^0
    log_z_bound: float  # bound of the cover: an upper bound of A / N for N -> infinity
    lengths: NDArray[np.int64]  # ``lengths[m]`` training sentences had m words

    @property
    def K(self) -> int:  # noqa: N802
        """Number of distances."""
        return len(self.weights)

    @property
    def n_words(self) -> int:
        """C: number of words, with the pad."""
        return len(self.log_unary)

    @cached_property
    def tables(self) -> list[Table]:
        """theta^l, one per distance."""
        if self.form == "full":
            shape = (self.n_words, self.n_words)
            return [
                SparseTable(csr_matrix(tuple(self.factors[f"{k}.{n}"] for n in ("values", "columns", "rows")), shape))
                for k in range(1, self.K + 1)
            ]
        left, right = self.factors["left"], self.factors["right"]
        if self.form == "URW":
            return [LowRankTable(np.ascontiguousarray(left @ r), right) for r in self.factors["middle"]]
        return [LowRankTable(left, right[k]) for k in range(self.K)]

    @property
    def has_unary(self) -> bool:
        """Whether words have scores of their own."""
        return bool(self.log_unary.any())

    @property
    def exact(self) -> bool:
        """Whether log Z of sentences is computed exactly rather than bounded."""
        return self.K == 1 or exact.fits(self.n_words, self.K)

    def log_z(self, max_length: int) -> Array:
        """Return log Z of sentences of 0, 1, ... words, exact or an upper bound, shape (max_length + 1,)."""
        if self.K == 1:  # one chain: no cover is needed
            return cover_log_z(np.ones(1), np.tile(self.log_unary, (2, 1)), self.tables, max_length)
        if self.exact:
            return exact.sentence_log_z(self.log_unary, self.tables, max_length)
        return cover_log_z(self.weights, self.unaries, self.tables, max_length)

    def log_likelihoods(self, sentences: list[NDArray[np.int64]], log_z: Array | None = None) -> Array:
        """Return log tau(M) + log p(words | M), or lower bounds of it, shape (n,)."""
        lengths = np.array([len(s) for s in sentences], np.int64)
        longest = int(lengths.max(initial=0))
        log_z = self.log_z(longest) if log_z is None else log_z
        scores = score_parts(self.log_unary, self.tables, sentences).sum(1)
        return scores - log_z[lengths] + self.log_tau(longest)[lengths]

    def log_tau(self, max_length: int) -> Array:
        """Return the log probabilities of the lengths 0, ..., ``max_length``.

        The counts, plus one sentence distributed geometrically with the same mean, so that no length is impossible.
        """
        n = self.lengths.sum()
        mean = float(self.lengths @ np.arange(len(self.lengths))) / n
        m = np.arange(max(max_length + 1, len(self.lengths)))
        smooth = np.log1p(-mean / (mean + 1)) + m * np.log(mean / (mean + 1))
        counts = np.zeros(len(m))
        counts[: len(self.lengths)] = self.lengths
        return np.log((counts + np.exp(smooth)) / (n + 1))[: max_length + 1]

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return plain data and arrays for a file."""
        names = ("log_unary", "weights", "unaries", "lengths")
        arrays = {name: getattr(self, name) for name in names}
        arrays |= {f"factor.{name}": array for name, array in self.factors.items()}
        return {"form": self.form, "log_z_bound": self.log_z_bound}, arrays

    @classmethod
    def from_state(cls, plain: dict[str, Any], arrays: dict[str, NDArray[Any]], n_words: int) -> "MRFField":
        """Build a field from ``state``'s result; inconsistent arrays are an error."""
        own = {name: array for name, array in arrays.items() if not name.startswith("factor.")}
        field = cls(factors=with_prefix(arrays, "factor."), form=plain["form"], log_z_bound=plain["log_z_bound"], **own)
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                raise DataError(f"{name} has values that are not finite: the file is damaged, train again.")
        fits = len(field.tables) == field.K and all(t.n_words == n_words for t in field.tables)
        if field.log_unary.shape != (n_words,) or field.unaries.shape != (field.K + 1, n_words) or not fits:
            raise DataError(f"the arrays do not fit a vocabulary of {n_words} words: the file is damaged, train again.")
        return field


def compact(array: Array, n_words: int) -> NDArray[Any]:
    """Return factors in the precision in which tables of this size are computed."""
    return np.ascontiguousarray(array, np.float64 if n_words <= SMALL else np.float32)
