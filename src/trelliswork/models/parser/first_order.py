"""First-order parsing: scores of all arcs from their features, exact sums over trees."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.inference.tree import Potentials, eisner, matrix_tree
from trelliswork.inference.tree.passes import Passes
from trelliswork.models.parser.features import ParseTokens
from trelliswork.models.parser.kernels.arcs import arc_ids, arc_scores, score_all
from trelliswork.models.parser.kernels.records import ArcList, PartList
from trelliswork.models.parser.templates import N_BITS, Templates

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]
Weights = NDArray[np.float32]


@dataclass(frozen=True)
class TreeKind:
    """Kind of trees, and the passes over them."""

    projective: bool
    single_root: bool

    @property
    def engine(self) -> Passes:
        """``inference.tree.eisner`` or ``matrix_tree``."""
        return eisner if self.projective else matrix_tree

    def potentials(self, log_arc: Doubles, lengths: Integers) -> Potentials:
        """Return scores as input of the engine."""
        return Potentials(log_arc, lengths, self.single_root)


def only_given(log_arc: Doubles, heads: Integers) -> Doubles:
    """Return scores with -inf for the arcs that contradict the known heads (B, n)."""
    allowed = log_arc.copy()
    rows, words = np.nonzero(heads >= 0)
    kept = log_arc[rows, heads[rows, words], words + 1]
    allowed[rows, :, words + 1] = -np.inf
    allowed[rows, heads[rows, words], words + 1] = kept
    return allowed


@dataclass(frozen=True)
class Features:
    """Features of one kind of parts, hashed to ``2**bits`` weights."""

    templates: Templates
    bits: int
    score_kernel: ClassVar[Any]
    id_kernel: ClassVar[Any]
    cost: ClassVar[int]  # multiplications that take as long as the features of one part
    n_more: ClassVar[int] = 0  # ids per part at most, besides two for each template

    @property
    def shift(self) -> np.uint64:
        """Number of bits to drop from a 64-bit key."""
        return np.uint64(64 - self.bits)

    def scores(self, tokens: ParseTokens, parts: ArcList | PartList, weights: Weights) -> Doubles:
        """Return the scores (P,) of a list of parts."""
        scores = np.empty(len(parts.heads))
        self._run(self.score_kernel, parts, tokens, weights, scores)
        return scores

    def ids(self, tokens: ParseTokens, parts: ArcList | PartList) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
        """Return feature ids (P, most) and the number in use of each row (P,)."""
        P, most = len(parts.heads), 2 * len(self.templates.keys) + self.n_more
        ids, counts = np.empty((P, most), np.uint32), np.empty(P, np.int32)
        self._run(self.id_kernel, parts, tokens, ids, counts)
        return ids, counts

    def _run(self, kernel: Any, parts: ArcList | PartList, tokens: ParseTokens, *arrays: Any) -> None:
        ranges = threads.cut(np.full(len(parts.heads), self.cost), least=threads.LEAST_WORK)
        threads.run(kernel, ranges, parts, tokens.arrays, self.templates, self.shift, *arrays)


class ArcFeatures(Features):
    """Features of arcs."""

    score_kernel, id_kernel = staticmethod(arc_scores), staticmethod(arc_ids)
    cost = 3000
    n_more = N_BITS

    def log_arcs(self, tokens: ParseTokens, sentences: Integers, weights: NDArray[np.floating]) -> Doubles:
        """Return the scores of all arcs (B, n+1, n+1) of the given sentences; 0 where there is no arc."""
        lengths = tokens.lengths[sentences]
        N = int(lengths.max()) + 1
        log_arc = np.zeros((len(sentences), N, N))
        ranges = threads.cut(lengths**2 * self.cost, least=threads.LEAST_WORK)
        threads.run(score_all, ranges, sentences, tokens.arrays, self.templates, self.shift, weights, log_arc)
        return log_arc
