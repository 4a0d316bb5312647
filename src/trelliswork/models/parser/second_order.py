"""Second-order parsing: the arcs that pruning left, consecutive siblings and grandparents, by belief propagation."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.inference.tree.second_order import Parts, SecondOrderResult, infer, parts
from trelliswork.models.parser.features import ParseTokens
from trelliswork.models.parser.first_order import ArcFeatures, ArcList, Doubles, Integers, TreeKind, Weights
from trelliswork.models.parser.kernels import parts as parsing_part_kernels
from trelliswork.models.parser.templates import Templates

compiled: Any = parsing_part_kernels
Mask = NDArray[np.bool_]
PART_COST = 800  # of the features of one part, in multiplications


@dataclass(frozen=True)
class PartList:
    """Siblings or grandparents of a batch: sentence, head, modifier, the third word (-1: none) and a side of each."""

    owners: Integers
    heads: Integers
    modifiers: Integers
    others: Integers
    sides: Integers

    def take(self, which: NDArray[np.integer]) -> "PartList":
        """Some of them."""
        rows = (self.owners, self.heads, self.modifiers, self.others, self.sides)
        return PartList(*(row[which] for row in rows))

    def columns(self) -> tuple[Integers, Integers, Integers, Integers, Integers]:
        """As the kernels take them."""
        return self.owners, self.heads, self.modifiers, self.others, self.sides

    def ranges(self) -> list[tuple[int, int]]:
        """Ranges for threads."""
        return threads.cut(np.full(len(self.heads), PART_COST), least=threads.LEAST_WORK)


@dataclass(frozen=True)
class PartFeatures:
    """The features of siblings or of grandparents, hashed to ``2**bits`` weights."""

    templates: Templates
    bits: int

    def scores(self, tokens: ParseTokens, parts: PartList, weights: Weights) -> Doubles:
        """Scores (P,)."""
        scores, shift = np.empty(len(parts.heads)), np.uint64(64 - self.bits)
        threads.run(
            lambda start, stop: compiled.part_scores(
                start, stop, *parts.columns(), tokens.codes, tokens.starts, *self.templates, shift, weights, scores
            ),
            parts.ranges(),
        )
        return scores

    def ids(self, tokens: ParseTokens, parts: PartList) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
        """Feature ids (P, most) and how many of each row are in use (P,)."""
        P, shift = len(parts.heads), np.uint64(64 - self.bits)
        ids, counts = np.empty((P, 2 * len(self.templates.keys)), np.uint32), np.empty(P, np.int32)
        threads.run(
            lambda start, stop: compiled.part_ids(
                start, stop, *parts.columns(), tokens.codes, tokens.starts, *self.templates, shift, ids, counts
            ),
            parts.ranges(),
        )
        return ids, counts


@dataclass(frozen=True)
class SecondOrderFeatures:
    """All features of a second-order model, in the order of its weights."""

    arcs: ArcFeatures
    siblings: PartFeatures
    grandparents: PartFeatures


@dataclass(frozen=True)
class Candidates:
    """The parts of a batch that pruning left.

    Attributes
    ----------
    sentences : ndarray (B,)
        Their numbers among the tokens.
    parts : Parts
    arcs : ArcList
    siblings, grandparents : PartList
    rows : ndarray (A,)
        The place of each arc's sentence in the batch.
    """

    sentences: Integers
    parts: Parts
    arcs: ArcList
    siblings: PartList
    grandparents: PartList
    rows: Integers

    @classmethod
    def from_mask(cls, sentences: Integers, lengths: Integers, mask: Mask) -> "Candidates":
        """All parts made of the arcs in the mask (B, n+1, n+1)."""
        rows, heads, modifiers = np.nonzero(mask)
        ends = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(sentences)))])
        return cls.from_arcs(sentences, lengths, ends, heads, modifiers)

    @classmethod
    def from_arcs(
        cls, sentences: Integers, lengths: Integers, ends: Integers, heads: Integers, modifiers: Integers
    ) -> "Candidates":
        """All parts made of the arcs of each sentence, ``ends[b]`` to ``ends[b + 1]``, by head, then modifier."""
        rows = np.repeat(np.arange(len(sentences)), np.diff(ends))
        found = parts(lengths, ends, heads, modifiers)
        owner = sentences[rows]
        first, then = found.sibling_previous, found.sibling_next
        # A part without children belongs to a sentence all the same.
        owners = sentences[np.repeat(np.arange(len(sentences)), np.diff(found.sibling_ptr))]
        siblings = PartList(
            owners,
            found.sibling_heads.astype(np.int64),
            np.where(then >= 0, modifiers[then], -1),
            np.where(first >= 0, modifiers[first], -1),
            (found.sibling_sides > 0).astype(np.int64),
        )
        up, low = found.grandparent_upper, found.grandparent_lower
        g, h, m = heads[up], modifiers[up], modifiers[low]
        grandparents = PartList(owner[up], h, m, g, (g < h) + 2 * (h < m) + 4 * (g < m))
        return cls(sentences, found, ArcList(owner, heads, modifiers), siblings, grandparents, rows)

    def scores(
        self, features: SecondOrderFeatures, tokens: ParseTokens, weights: tuple[Weights, Weights, Weights]
    ) -> tuple[Doubles, Doubles, Doubles]:
        """Scores of arcs (A,), siblings (S,) and grandparents (G,)."""
        return (
            features.arcs.scores(tokens, self.arcs, weights[0]),
            features.siblings.scores(tokens, self.siblings, weights[1]),
            features.grandparents.scores(tokens, self.grandparents, weights[2]),
        )

    def dense(self, values: Doubles, rest: float) -> Doubles:
        """Values of arcs (A,) as a matrix (B, n+1, n+1), ``rest`` elsewhere."""
        N = int(self.parts.n_words.max()) + 1
        found = np.full((len(self.sentences), N, N), rest)
        found[self.rows, self.arcs.heads, self.arcs.modifiers] = values
        return found


@dataclass(frozen=True)
class Propagation:
    """How belief propagation runs; the defaults of a parser stand here."""

    kind: TreeKind
    max_iter: int = 5
    tree_every: int = 2
    tolerance: float = 1e-3
    damping: float = 0.0

    def __call__(self, parts: Parts, scores: tuple[Doubles, Doubles, Doubles]) -> SecondOrderResult:
        """Beliefs of all parts."""
        return infer(
            parts,
            *scores,
            projective=self.kind.projective,
            single_root=self.kind.single_root,
            max_iter=self.max_iter,
            tree_every=self.tree_every,
            tolerance=self.tolerance,
            damping=self.damping,
        )


def keep(kind: TreeKind, log_arc: Doubles, marginals: Doubles, lengths: Integers, threshold: float) -> Mask:
    """Pruning (B, n+1, n+1): arcs of at least ``threshold`` times the probability of the likeliest into their word.

    The arcs of the best tree stay too, so that there always is one.
    """
    N = log_arc.shape[1]
    top = marginals.max(axis=1, keepdims=True)
    words = np.arange(N) <= lengths[:, None]
    mask = (marginals >= threshold * top) & (marginals > 0) & words[:, None, :]
    mask[:, :, 0] = False
    heads, _ = kind.engine.best(kind.potentials(log_arc, lengths))
    add_tree(mask, heads)
    return mask


def add_tree(mask: Mask, heads: Integers) -> None:
    """Set the arcs of trees (B, n), -1 for none, in a mask (B, n+1, n+1)."""
    rows, words = np.nonzero(heads >= 0)
    mask[rows, heads[rows, words], words + 1] = True
