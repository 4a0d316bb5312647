"""Second-order parsing: unpruned arcs, consecutive siblings and grandparents, by belief propagation."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.corpus import chosen_tokens
from trelliswork.inference.tree.second_order import Parts, Scores, SecondOrderResult, infer, parts
from trelliswork.models.parser.data import Doubles, Integers, TreeKind
from trelliswork.models.parser.features import ParseTokens, SecondOrderFeatures, Weights
from trelliswork.models.parser.kernels.records import ArcList, PartList

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Candidates:
    """Unpruned parts of a batch."""

    sentences: Integers  # (B,) numbers among the tokens
    parts: Parts
    arcs: ArcList
    siblings: PartList
    grandparents: PartList
    rows: Integers  # (A,) position of each arc's sentence in the batch

    @classmethod
    def from_mask(cls, sentences: Integers, lengths: Integers, mask: Mask) -> "Candidates":
        """List all parts of the arcs in the mask (B, n+1, n+1)."""
        rows, heads, modifiers = np.nonzero(mask)
        ends = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(sentences)))])
        return cls.from_arcs(sentences, lengths, ends, heads, modifiers)

    @classmethod
    def from_arcs(
        cls, sentences: Integers, lengths: Integers, ends: Integers, heads: Integers, modifiers: Integers
    ) -> "Candidates":
        """List all parts of the arcs ``ends[b]`` to ``ends[b + 1]`` of each sentence, sorted by head, then modifier."""
        rows = np.repeat(np.arange(len(sentences)), np.diff(ends))
        listed = parts(lengths, ends, heads, modifiers)
        owner = sentences[rows]
        first, then = listed.sibling_previous, listed.sibling_next
        # From the offsets, since a part without children has no arc that belongs to a sentence.
        owners = sentences[np.repeat(np.arange(len(sentences)), np.diff(listed.sibling_ptr))]
        siblings = PartList(
            owners,
            listed.sibling_heads.astype(np.int64),
            np.where(then >= 0, modifiers[then], -1),
            np.where(first >= 0, modifiers[first], -1),
            (listed.sibling_sides > 0).astype(np.int64),
        )
        up, low = listed.grandparent_upper, listed.grandparent_lower
        g, h, m = heads[up], modifiers[up], modifiers[low]
        grandparents = PartList(owner[up], h, m, g, (g < h) + 2 * (h < m) + 4 * (g < m))
        return cls(sentences, listed, ArcList(owner, heads, modifiers), siblings, grandparents, rows)

    def some(self, rows: Integers) -> "Candidates":
        """List the parts of some of the sentences, by their positions in the batch."""
        at, ends = chosen_tokens(self.parts.arc_ptr, rows)
        lengths, arcs = self.parts.n_words[rows], self.arcs
        return Candidates.from_arcs(self.sentences[rows], lengths, ends, arcs.heads[at], arcs.modifiers[at])

    @property
    def lists(self) -> tuple[ArcList | PartList, ...]:
        """Arcs, siblings and grandparents."""
        return self.arcs, self.siblings, self.grandparents

    def scores(self, features: SecondOrderFeatures, tokens: ParseTokens, weights: Sequence[Weights]) -> Scores:
        """Return the scores of all parts."""
        given = zip(features, self.lists, weights, strict=True)
        return Scores(*(one.scores(tokens, parts, own) for one, parts, own in given))

    def dense(self, values: Doubles, rest: float) -> Doubles:
        """Return values of arcs (A,) as a matrix (B, n+1, n+1), ``rest`` elsewhere."""
        N = int(self.parts.n_words.max()) + 1
        matrix = np.full((len(self.sentences), N, N), rest)
        matrix[self.rows, self.arcs.heads, self.arcs.modifiers] = values
        return matrix


@dataclass(frozen=True)
class Propagation:
    """Settings of belief propagation; the defaults are those of the parser."""

    kind: TreeKind
    max_iter: int = 5
    tree_every: int = 2
    tolerance: float = 1e-3

    def __call__(self, parts: Parts, scores: Scores) -> SecondOrderResult:
        """Compute the beliefs of all parts."""
        options = vars(self.kind) | {name: value for name, value in vars(self).items() if name != "kind"}
        return infer(parts, *scores, **options)


def keep(kind: TreeKind, log_arc: Doubles, marginals: Doubles, lengths: Integers, threshold: float) -> Mask:
    """Return the mask of unpruned arcs (B, n+1, n+1).

    An arc is kept if it has at least ``threshold`` times the probability of the most probable arc into its word. The
    arcs of the best tree are kept too, so that some tree is always possible.
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
    """Add the arcs of trees (B, n), -1 for unknown heads, to a mask (B, n+1, n+1)."""
    rows, words = np.nonzero(heads >= 0)
    mask[rows, heads[rows, words], words + 1] = True
