"""First-order parsing: scores of all arcs by their features, exact sums over trees."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.inference.tree import Potentials, eisner, matrix_tree
from trelliswork.models.parser.features import ParseTokens
from trelliswork.models.parser.kernels import arcs as parsing_kernels
from trelliswork.models.parser.templates import Templates

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]
Weights = NDArray[np.float32]
compiled: Any = parsing_kernels
FEATURE_COST = 3000  # of the features of one arc, in multiplications


@dataclass(frozen=True)
class TreeKind:
    """Which trees there are; their engine."""

    projective: bool
    single_root: bool

    @property
    def engine(self) -> Any:
        """``inference.tree.eisner`` or ``matrix_tree``."""
        return eisner if self.projective else matrix_tree

    def potentials(self, log_arc: Doubles, lengths: Integers) -> Potentials:
        """Scores as the engine takes them."""
        return Potentials(log_arc, lengths, self.single_root)


def only_given(log_arc: Doubles, heads: Integers) -> Doubles:
    """Scores with -inf for the arcs into words whose heads (B, n) are known to be others."""
    found = log_arc.copy()
    rows, words = np.nonzero(heads >= 0)
    kept = log_arc[rows, heads[rows, words], words + 1]
    found[rows, :, words + 1] = -np.inf
    found[rows, heads[rows, words], words + 1] = kept
    return found


@dataclass(frozen=True)
class ArcList:
    """Arcs of a batch: the sentence (its number among the tokens), head and modifier of each; int64 (A,)."""

    owners: Integers
    heads: Integers
    modifiers: Integers

    def take(self, which: NDArray[np.integer]) -> "ArcList":
        """Some of them."""
        return ArcList(self.owners[which], self.heads[which], self.modifiers[which])

    def ranges(self) -> list[tuple[int, int]]:
        """Ranges for threads."""
        return threads.cut(np.full(len(self.heads), FEATURE_COST), least=threads.LEAST_WORK)


@dataclass(frozen=True)
class ArcFeatures:
    """The features of arcs, hashed to ``2**bits`` weights."""

    templates: Templates
    bits: int

    @property
    def shift(self) -> np.uint64:
        """What leaves the upper bits."""
        return np.uint64(64 - self.bits)

    def log_arcs(self, tokens: ParseTokens, sentences: Integers, weights: NDArray[np.floating]) -> Doubles:
        """Scores of all arcs (B, n+1, n+1) of the sentences with these numbers; 0 where there is no arc."""
        lengths = tokens.lengths[sentences]
        N = int(lengths.max()) + 1
        log_arc = np.zeros((len(sentences), N, N))
        threads.run(
            lambda start, stop: compiled.score_all(
                start, stop, sentences, tokens.codes, tokens.bits, tokens.starts, tokens.lengths, *self.templates,
                self.shift, weights, log_arc,
            ),
            threads.cut(lengths**2 * FEATURE_COST, least=threads.LEAST_WORK),
        )  # fmt: skip
        return log_arc

    def scores(self, tokens: ParseTokens, arcs: ArcList, weights: Weights) -> Doubles:
        """Scores (A,) of some arcs."""
        scores = np.empty(len(arcs.heads))
        threads.run(
            lambda start, stop: compiled.arc_scores(
                start, stop, arcs.owners, arcs.heads, arcs.modifiers, tokens.codes, tokens.bits, tokens.starts,
                *self.templates, self.shift, weights, scores,
            ),
            arcs.ranges(),
        )  # fmt: skip
        return scores

    def ids(self, tokens: ParseTokens, arcs: ArcList) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
        """Feature ids (A, most) and how many of each row are in use (A,)."""
        most = 2 * len(self.templates.keys) + compiled.N_BITS
        ids, counts = np.empty((len(arcs.heads), most), np.uint32), np.empty(len(arcs.heads), np.int32)
        threads.run(
            lambda start, stop: compiled.arc_ids(
                start, stop, arcs.owners, arcs.heads, arcs.modifiers, tokens.codes, tokens.bits, tokens.starts,
                *self.templates, self.shift, ids, counts,
            ),
            arcs.ranges(),
        )  # fmt: skip
        return ids, counts
