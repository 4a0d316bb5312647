"""Weights to answers: beliefs of arcs, minimum-risk trees, and trees as a distribution."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ImpossibleError
from trelliswork.features.parsing import ParseTokens
from trelliswork.models.parser_first import ArcFeatures, Doubles, Integers, TreeKind, Weights
from trelliswork.models.parser_input import Gold
from trelliswork.models.parser_second import Candidates, Mask, Propagation, SecondOrderFeatures, add_tree, keep
from trelliswork.models.parser_training import PrunedArcs, _given

BATCH_ARCS = 200_000  # scores of so many arcs at a time
SETTLED, MOST_ROUNDS = 1e-4, 200  # of ``tree_scores``
LEAST, SMALLEST = -50.0, 1e-30


@dataclass(frozen=True)
class Beliefs:
    """What the model thinks of the arcs of a batch.

    Attributes
    ----------
    sentences : ndarray (B,)
        Their numbers among the tokens.
    lengths : ndarray (B,)
    log_arc : ndarray (B, n+1, n+1)
        First-order scores; -inf for what evidence rules out.
    arcs : ndarray (B, n+1, n+1)
        Probabilities of arcs: exact for first-order models, beliefs for second-order ones.
    possible : ndarray of bool (B, n+1, n+1)
        Arcs that evidence and pruning left.
    """

    sentences: Integers
    lengths: Integers
    log_arc: Doubles
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
            raise ImpossibleError(f"sentence {wrong}: no tree agrees with what is known: check the heads in known.")
        if self.second is None:
            return Beliefs(sentences, lengths, log_arc, marginals, log_arc > -np.inf)
        mask = keep(self.kind, log_arc, marginals, lengths, self.threshold)
        found = Candidates.from_mask(sentences, lengths, mask)
        beliefs = self.propagation(found.parts, found.scores(self.features, tokens, self.second))
        return Beliefs(sentences, lengths, log_arc, found.dense(beliefs.arcs, 0.0), mask)

    def heads(self, beliefs: Beliefs) -> Integers:
        """Minimum-risk trees (B, n): those with most expected right arcs."""
        hits = np.where(beliefs.possible, beliefs.arcs, -np.inf)
        return self.kind.engine.best(self.kind.potentials(hits, beliefs.lengths))[0]

    def tree_scores(self, beliefs: Beliefs) -> Doubles:
        """Arc scores (B, n+1, n+1) of a distribution over trees with these beliefs as its marginals.

        For first-order models the scores themselves. For second-order models those of the tree factor when belief
        propagation has settled, found again from the beliefs.
        """
        if self.second is None:
            return beliefs.log_arc
        rows = [
            _match(
                self.kind, beliefs.arcs[row : row + 1], beliefs.possible[row : row + 1], beliefs.lengths[row : row + 1]
            )
            for row in range(len(beliefs.lengths))
        ]
        return np.concatenate(rows)

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
                given = self.kind.potentials(_given(log_arc[partial], heads[partial]), lengths[partial])
                heads[partial] = self.kind.engine.best(given)[0]
            add_tree(mask, heads)
            rows, h, m = np.nonzero(mask)
            found.append((sentences[rows], h, m))
            sizes[sentences + 1] = np.bincount(rows, minlength=len(sentences))
        owners, h, m = (np.concatenate(column) for column in zip(*found, strict=True))
        order = np.argsort(owners, kind="stable")
        return PrunedArcs(np.cumsum(sizes), h[order], m[order])


def _match(kind: TreeKind, beliefs: Doubles, possible: Mask, lengths: Integers) -> Doubles:
    """Scores of arcs (1, n+1, n+1) under which a sentence's marginals are its beliefs b.

    The maximum of the concave b . s - log Z(s), along log b - log marginals; a step that went too far is cut.
    """
    held = possible & (beliefs > 0)
    log_b = np.log(np.where(held, beliefs, 1.0))
    scores = np.where(held, log_b, np.where(possible, LEAST, -np.inf))
    kept, direction, step, best = scores, np.zeros_like(scores), 1.0, -np.inf
    for _ in range(MOST_ROUNDS):
        log_z, marginals = kind.engine.expectations(kind.potentials(scores, lengths))
        value = float((np.where(held, scores, 0.0) * beliefs).sum() - log_z[0])
        if value >= best:
            kept, best, step = scores, value, min(2 * step, 1.0)
            if np.abs(marginals - beliefs).max() < SETTLED:
                break
            direction = np.where(held, log_b - np.log(np.maximum(marginals, SMALLEST)), 0.0)
        else:
            step /= 4
        scores = kept + step * direction
    return kept


def _rule_out(log_arc: Doubles, tokens: ParseTokens, sentences: Integers, allowed: list[frozenset[int] | None]) -> None:
    """Set the arcs that evidence forbids to -inf."""
    offsets = tokens.starts - 2 * np.arange(len(tokens))
    for row, b in enumerate(sentences.tolist()):
        for d, heads in enumerate(allowed[offsets[b] : offsets[b] + tokens.lengths[b]], start=1):
            if heads is not None:
                out: NDArray[np.bool_] = np.ones(log_arc.shape[1], bool)
                out[list(heads)] = False
                log_arc[row, out, d] = -np.inf
