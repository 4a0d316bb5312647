"""First-order parsing: scores of all arcs from their features, exact sums over trees."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.inference.tree import Potentials, eisner, matrix_tree
from trelliswork.inference.tree.passes import Passes
from trelliswork.models.parser.features import ParseTokens
from trelliswork.models.parser.kernels.arcs import arc_ids, arc_scores, score_all
from trelliswork.models.parser.kernels.records import ArcList
from trelliswork.models.parser.templates import N_BITS, Templates

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]
Weights = NDArray[np.float32]
FEATURE_COST = 3000  # multiplications that take as long as the features of one arc


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
class ArcFeatures:
    """Features of arcs, hashed to ``2**bits`` weights."""

    templates: Templates
    bits: int

    @property
    def shift(self) -> np.uint64:
        """Number of bits to drop from a 64-bit key."""
        return np.uint64(64 - self.bits)

    def log_arcs(self, tokens: ParseTokens, sentences: Integers, weights: NDArray[np.floating]) -> Doubles:
        """Return the scores of all arcs (B, n+1, n+1) of the given sentences; 0 where there is no arc."""
        lengths = tokens.lengths[sentences]
        N = int(lengths.max()) + 1
        log_arc = np.zeros((len(sentences), N, N))
        threads.run(
            lambda start, stop: score_all(
                start, stop, sentences, tokens.arrays, self.templates, self.shift, weights, log_arc
            ),
            threads.cut(lengths**2 * FEATURE_COST, least=threads.LEAST_WORK),
        )
        return log_arc

    def scores(self, tokens: ParseTokens, arcs: ArcList, weights: Weights) -> Doubles:
        """Return the scores (A,) of a list of arcs."""
        scores = np.empty(len(arcs.heads))
        threads.run(
            lambda start, stop: arc_scores(
                start, stop, arcs, tokens.arrays, self.templates, self.shift, weights, scores
            ),
            _ranges(arcs),
        )
        return scores

    def ids(self, tokens: ParseTokens, arcs: ArcList) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
        """Return feature ids (A, most) and the number in use of each row (A,)."""
        most = 2 * len(self.templates.keys) + N_BITS
        ids, counts = np.empty((len(arcs.heads), most), np.uint32), np.empty(len(arcs.heads), np.int32)
        threads.run(
            lambda start, stop: arc_ids(start, stop, arcs, tokens.arrays, self.templates, self.shift, ids, counts),
            _ranges(arcs),
        )
        return ids, counts


def _ranges(arcs: ArcList) -> list[tuple[int, int]]:
    return threads.cut(np.full(len(arcs.heads), FEATURE_COST), least=threads.LEAST_WORK)
