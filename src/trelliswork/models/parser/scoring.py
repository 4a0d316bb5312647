"""Weights to answers: beliefs of arcs, minimum-risk trees, and trees as a distribution."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ImpossibleError
from trelliswork.models.parser.data import Gold
from trelliswork.models.parser.features import ParseTokens
from trelliswork.models.parser.first_order import ArcFeatures, Doubles, Integers, TreeKind, Weights, only_given
from trelliswork.models.parser.second_order import Candidates, Mask, Propagation, SecondOrderFeatures, add_tree, keep
from trelliswork.models.parser.training import PrunedArcs

BATCH_ARCS = 200_000  # scores of so many arcs at a time


class NoTreeError(ImpossibleError):
    """No tree of a sentence agrees with what is known of its heads."""

    def __init__(self, sentence: int) -> None:
        super().__init__(f"sentence {sentence}: no tree agrees with what is known: check the heads in known.")
        self.sentence = sentence  # its number, from 0


@dataclass(frozen=True)
class Beliefs:
    """What the model thinks of the arcs of a batch.

    Attributes
    ----------
    sentences : ndarray (B,)
        Their numbers among the tokens.
    lengths : ndarray (B,)
    tree_scores : ndarray (B, n+1, n+1)
        Scores of arcs alone under which the marginals of trees are ``arcs``: those of first-order models, or what
        belief propagation told the tree factor in the end; -inf for what evidence or pruning ruled out.
    arcs : ndarray (B, n+1, n+1)
        Probabilities of arcs: exact for first-order models, beliefs for second-order ones.
    possible : ndarray of bool (B, n+1, n+1)
        Arcs that evidence and pruning left.
    """

    sentences: Integers
    lengths: Integers
    tree_scores: Doubles
    arcs: Doubles
    possible: Mask


@dataclass(frozen=True)
class TreeScorer:
    """Everything that turns sentences into probabilities of arcs.

    Attributes
    ----------
    features : SecondOrderFeatures
    propagation : Propagation
    threshold : float
        Of pruning.
    first : ndarray (2**bits,)
        Weights of the first-order model.
    second : three arrays or None
        Weights of arcs, siblings and grandparents of the second-order model.
    """

    features: SecondOrderFeatures
    propagation: Propagation
    threshold: float
    first: Weights
    second: tuple[Weights, Weights, Weights] | None = None

    @property
    def kind(self) -> TreeKind:
        """Which trees there are."""
        return self.propagation.kind

    @property
    def arc_features(self) -> ArcFeatures:
        """Those of arcs."""
        return self.features.arcs

    def batches(self, tokens: ParseTokens) -> Iterator[Integers]:
        """Numbers of sentences of about one length, empty ones left out, that are computed together."""
        order = np.argsort(tokens.lengths, kind="stable")
        order = order[tokens.lengths[order] > 0]
        at = 0
        while at < len(order):
            size = max(1, BATCH_ARCS // int(tokens.lengths[order[at]] + 1) ** 2)
            while (
                size > 1 and size * int(tokens.lengths[order[min(at + size, len(order)) - 1]] + 1) ** 2 > 2 * BATCH_ARCS
            ):
                size //= 2
            yield order[at : at + size]
            at += size

    def beliefs(
        self, tokens: ParseTokens, sentences: Integers, allowed: list[frozenset[int] | None] | None = None
    ) -> Beliefs:
        """Probabilities of the arcs of some sentences; ``allowed`` heads of all tokens, if something is known."""
        lengths = tokens.lengths[sentences]
        log_arc = self.arc_features.log_arcs(tokens, sentences, self.first)
        if allowed is not None:
            _rule_out(log_arc, tokens, sentences, allowed)
        log_z, marginals = self.kind.engine.expectations(self.kind.potentials(log_arc, lengths))
        if not np.isfinite(log_z).all():
            wrong = int(sentences[np.flatnonzero(~np.isfinite(log_z))[0]])
            raise NoTreeError(wrong)
        if self.second is None:
            return Beliefs(sentences, lengths, log_arc, marginals, log_arc > -np.inf)
        mask = keep(self.kind, log_arc, marginals, lengths, self.threshold)
        found = Candidates.from_mask(sentences, lengths, mask)
        beliefs = self.propagation(found.parts, found.scores(self.features, tokens, self.second))
        scores = found.dense(beliefs.tree_scores, -np.inf)
        return Beliefs(sentences, lengths, scores, found.dense(beliefs.arcs, 0.0), mask)

    def heads(self, beliefs: Beliefs) -> Integers:
        """Minimum-risk trees (B, n): those with most expected right arcs."""
        hits = np.where(beliefs.possible, beliefs.arcs, -np.inf)
        return self.kind.engine.best(self.kind.potentials(hits, beliefs.lengths))[0]

    def pruned(self, tokens: ParseTokens, gold: Gold) -> PrunedArcs:
        """Candidate arcs of training sentences; the gold arcs are among them, and a tree that has all of these."""
        sizes = np.zeros(len(tokens) + 1, np.int64)
        found: list[tuple[Integers, Integers, Integers]] = []
        for sentences in self.batches(tokens):
            lengths = tokens.lengths[sentences]
            log_arc = self.arc_features.log_arcs(tokens, sentences, self.first)
            _, marginals = self.kind.engine.expectations(self.kind.potentials(log_arc, lengths))
            mask = keep(self.kind, log_arc, marginals, lengths, self.threshold)
            heads = gold.rows(sentences, log_arc.shape[1] - 1)
            partial = np.flatnonzero((heads >= 0).sum(axis=1) < lengths)
            if partial.size:
                given = self.kind.potentials(only_given(log_arc[partial], heads[partial]), lengths[partial])
                heads[partial] = self.kind.engine.best(given)[0]
            add_tree(mask, heads)
            rows, h, m = np.nonzero(mask)
            found.append((sentences[rows], h, m))
            sizes[sentences + 1] = np.bincount(rows, minlength=len(sentences))
        owners, h, m = (np.concatenate(column) for column in zip(*found, strict=True))
        order = np.argsort(owners, kind="stable")
        return PrunedArcs(np.cumsum(sizes), h[order], m[order])


def _rule_out(log_arc: Doubles, tokens: ParseTokens, sentences: Integers, allowed: list[frozenset[int] | None]) -> None:
    """Set the arcs that evidence forbids to -inf."""
    offsets = tokens.starts - 2 * np.arange(len(tokens))
    for row, b in enumerate(sentences.tolist()):
        for d, heads in enumerate(allowed[offsets[b] : offsets[b] + tokens.lengths[b]], start=1):
            if heads is not None:
                out: NDArray[np.bool_] = np.ones(log_arc.shape[1], bool)
                out[list(heads)] = False
                log_arc[row, out, d] = -np.inf
