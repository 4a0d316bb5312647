"""Beliefs of arcs, minimum-risk trees and pruning, from sentences and weights."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trelliswork.compute.limits import check_sentences
from trelliswork.errors import ImpossibleError
from trelliswork.models.hmm.data import chosen_tokens
from trelliswork.models.parser.data import Gold
from trelliswork.models.parser.features import ParseTokens
from trelliswork.models.parser.first_order import Doubles, Integers, TreeKind, Weights, only_given
from trelliswork.models.parser.second_order import Candidates, Mask, Propagation, SecondOrderFeatures, add_tree, keep

BATCH_ARCS = 200_000  # arcs that are scored at a time
TREE_COST, PAIR_COST = 30.0, 100.0  # operations per n^3, and per n^3 and iteration of order 2, measured
ARC_BYTES = 8 * 20  # scores, marginals and charts of each pair of words


def check_lengths(lengths: Integers, n_iter: int = 0, at_once: int = 1) -> None:
    """Raise `LimitError` for sentences that take too much time or memory.

    ``n_iter`` is the number of iterations of belief propagation in second-order models, ``at_once`` the number of
    sentences that are padded to the same length.
    """
    n = lengths.astype(np.float64) + 1
    operations = (TREE_COST + PAIR_COST * n_iter) * n**3
    check_sentences(lengths, operations, ARC_BYTES * at_once * n**2)


class NoTreeError(ImpossibleError):
    """No tree of a sentence agrees with the known heads."""

    def __init__(self, sentence: int) -> None:
        super().__init__(f"sentence {sentence}: no tree agrees with the evidence: check the heads in known.")
        self.sentence = sentence  # its number, from 0


@dataclass(frozen=True)
class Beliefs:
    """Probabilities of the arcs of a batch: exact for first-order models, beliefs for second-order ones.

    ``tree_scores`` are the arc scores whose tree marginals are ``arcs``: those of a first-order model, or the final
    messages of belief propagation to the tree factor; -inf for arcs that evidence or pruning excludes.
    """

    sentences: Integers  # (B,) indices among the tokens
    lengths: Integers  # (B,)
    tree_scores: Doubles  # (B, n+1, n+1)
    arcs: Doubles  # (B, n+1, n+1)
    possible: Mask  # (B, n+1, n+1) arcs that evidence and pruning allow


@dataclass(frozen=True)
class PrunedArcs:
    """Candidate arcs of all training sentences, flat; computed once, since the first-order model no longer changes."""

    ends: Integers
    heads: Integers
    modifiers: Integers

    def candidates(self, tokens: ParseTokens, sentences: Integers) -> Candidates:
        """Return the parts of some sentences."""
        at, ends = chosen_tokens(self.ends, sentences)
        return Candidates.from_arcs(sentences, tokens.lengths[sentences], ends, self.heads[at], self.modifiers[at])


@dataclass(frozen=True)
class TreeScorer:
    """A model of trees: features, weights and the settings of inference."""

    features: SecondOrderFeatures
    propagation: Propagation
    threshold: float  # of pruning
    first: Weights  # (2**bits,) of the first-order model
    second: tuple[Weights, Weights, Weights] | None = None  # of arcs, siblings, grandparents of the second-order model

    @property
    def kind(self) -> TreeKind:
        """Kind of the trees."""
        return self.propagation.kind

    def batches(self, tokens: ParseTokens) -> Iterator[Integers]:
        """Yield the indices of sentences of similar length that are computed together; empty ones are left out."""
        check_lengths(tokens.lengths, 0 if self.second is None else self.propagation.max_iter)
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

    def _first_order(
        self, tokens: ParseTokens, sentences: Integers, allowed: list[frozenset[int] | None] | None = None
    ) -> tuple[Doubles, Doubles, Doubles]:
        """Return arc scores (B, n+1, n+1), log Z (B,) and marginals (B, n+1, n+1) of the first-order model."""
        log_arc = self.features.arcs.log_arcs(tokens, sentences, self.first)
        if allowed is not None:
            _rule_out(log_arc, tokens, sentences, allowed)
        return log_arc, *self.kind.engine.expectations(self.kind.potentials(log_arc, tokens.lengths[sentences]))

    def beliefs(
        self, tokens: ParseTokens, sentences: Integers, allowed: list[frozenset[int] | None] | None = None
    ) -> Beliefs:
        """Return the arc probabilities of some sentences; ``allowed`` are the possible heads of all tokens."""
        lengths = tokens.lengths[sentences]
        log_arc, log_z, marginals = self._first_order(tokens, sentences, allowed)
        if not np.isfinite(log_z).all():
            raise NoTreeError(int(sentences[np.flatnonzero(~np.isfinite(log_z))[0]]))
        if self.second is None:
            return Beliefs(sentences, lengths, log_arc, marginals, log_arc > -np.inf)
        mask = keep(self.kind, log_arc, marginals, lengths, self.threshold)
        candidates = Candidates.from_mask(sentences, lengths, mask)
        result = self.propagation(candidates.parts, candidates.scores(self.features, tokens, self.second))
        scores = candidates.dense(result.tree_scores, -np.inf)
        return Beliefs(sentences, lengths, scores, candidates.dense(result.arcs, 0.0), mask)

    def heads(self, beliefs: Beliefs) -> Integers:
        """Return the minimum-risk trees (B, n), with the largest expected number of correct arcs."""
        gains = np.where(beliefs.possible, beliefs.arcs, -np.inf)
        return self.kind.engine.best(self.kind.potentials(gains, beliefs.lengths))[0]

    def pruned(self, tokens: ParseTokens, gold: Gold) -> PrunedArcs:
        """Return candidate arcs of training sentences, among them the gold arcs and a tree that has all of these."""
        sizes = np.zeros(len(tokens) + 1, np.int64)
        kept: list[tuple[Integers, Integers, Integers]] = []
        for sentences in self.batches(tokens):
            lengths = tokens.lengths[sentences]
            log_arc, _, marginals = self._first_order(tokens, sentences)
            mask = keep(self.kind, log_arc, marginals, lengths, self.threshold)
            heads = gold.rows(sentences)
            partial = np.flatnonzero((heads >= 0).sum(axis=1) < lengths)
            if partial.size:
                given = self.kind.potentials(only_given(log_arc[partial], heads[partial]), lengths[partial])
                heads[partial] = self.kind.engine.best(given)[0]
            add_tree(mask, heads)
            rows, h, m = np.nonzero(mask)
            kept.append((sentences[rows], h, m))
            sizes[sentences + 1] = np.bincount(rows, minlength=len(sentences))
        nothing = np.zeros(0, np.int64)
        owners, h, m = (np.concatenate(column) for column in zip((nothing,) * 3, *kept, strict=True))
        order = np.argsort(owners, kind="stable")
        return PrunedArcs(np.cumsum(sizes), h[order], m[order])


def _rule_out(log_arc: Doubles, tokens: ParseTokens, sentences: Integers, allowed: list[frozenset[int] | None]) -> None:
    """Set the arcs that evidence forbids to -inf."""
    offsets = tokens.starts - 2 * np.arange(len(tokens))
    for row, b in enumerate(sentences.tolist()):
        for d, heads in enumerate(allowed[offsets[b] : offsets[b] + tokens.lengths[b]], start=1):
            if heads is not None:
                excluded = np.ones(log_arc.shape[1], bool)
                excluded[list(heads)] = False
                log_arc[row, excluded, d] = -np.inf
