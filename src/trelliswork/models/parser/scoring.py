"""Beliefs of arcs, minimum-risk trees and pruning, from sentences and weights."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.limits import check_sentences
from trelliswork.data.corpus import chosen_tokens
from trelliswork.errors import ImpossibleError, ValueRangeError
from trelliswork.inference.tree import NearlyProjective, match_marginals, with_crossings
from trelliswork.inference.tree.nearly import mixture
from trelliswork.inference.tree.passes import Passes
from trelliswork.inference.tree.second_order import Scores
from trelliswork.models.parser.data import Doubles, Gold, Integers, TreeKind, only_given
from trelliswork.models.parser.features import ParseTokens, SecondOrderFeatures, Weights
from trelliswork.models.parser.second_order import Candidates, Mask, Propagation, add_tree, keep

BATCH_ARCS = 200_000  # arcs that are scored at a time
TREE_COST, PAIR_COST = 30.0, 100.0  # operations per n^3, and per n^3 and iteration of order 2, measured
THRESHOLD = 1e-3  # of pruning: the least probability of an arc, relative to the best one into the same word
LEAST_SHARE = 1e-4  # of sentences with crossing arcs, for their cost
TREE_KINDS = ("arcs", "siblings", "grandparents")  # of factors that have a temperature, labels and tree aside
ARC_BYTES = 8 * 20  # scores, marginals and charts of each pair of words


def tree_kinds(second: bool) -> tuple[str, ...]:
    """Return the kinds of factors that have a temperature, labels aside."""
    return (*TREE_KINDS, "tree") if second else TREE_KINDS[:1]


def check_temperatures(plain: dict[str, float]) -> dict[str, float]:
    """Return the temperatures of a saved model; raise an error if they are damaged."""
    for name, value in plain.items():
        if name not in (*tree_kinds(True), "labels") or not (isinstance(value, float) and 0 < value < math.inf):
            raise ValueRangeError(f"temperatures must be positive numbers by kind of factor, got {name}={value!r}.")
    return dict(plain)


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
    messages of belief propagation to the tree factor; -inf for arcs that evidence or pruning excludes. In a mixture
    with ``sharp`` they are those of the part with temperatures. ``engine`` has the sums over trees with these scores.
    """

    sentences: Integers  # (B,) indices among the tokens
    lengths: Integers  # (B,)
    tree_scores: Doubles  # (B, n+1, n+1)
    arcs: Doubles  # (B, n+1, n+1)
    possible: Mask  # (B, n+1, n+1) arcs that evidence and pruning allow
    engine: Passes | NearlyProjective
    sharp: "Beliefs | None" = None  # at temperature 1, if ``arcs`` are a mixture with them: see ``tree_scores_of``


class Scored(NamedTuple):
    """Scores of a batch before inference, at temperature 1; candidates and scores are those of the second order."""

    sentences: Integers  # (B,) indices among the tokens
    lengths: Integers  # (B,)
    log_arc: Doubles  # (B, n+1, n+1) of the first order
    possible: Mask  # (B, n+1, n+1) arcs that evidence and pruning allow
    candidates: Candidates | None = None
    scores: Scores | None = None
    free: Doubles | None = None  # ``log_arc`` without evidence, if there is any


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
    """A model of trees: features, weights and the settings of inference.

    With a ``share``, trees are a mixture of projective trees and this share of all trees, with the same scores of arcs;
    belief propagation then has projective trees, and so has the choice of trees, before crossing arcs are added.
    Without, they are the trees of belief propagation.
    """

    features: SecondOrderFeatures
    propagation: Propagation
    weights: tuple[Weights, ...] = ()  # (2**bits,) of arcs; order 2: also of arcs, siblings, grandparents of its model
    temperatures: Mapping[str, float] = field(default_factory=dict)  # divisors of scores, by kind of factor; else 1
    sharp: float = 0.0  # share of the beliefs at temperature 1 in the probabilities of arcs; order 2
    share: float | None = None  # of all trees, if the others are projective

    @classmethod
    def of(cls, features: SecondOrderFeatures, kind: TreeKind, share: float | None) -> "TreeScorer":
        """Return a model without weights of trees of a kind; with a ``share`` they may cross."""
        return cls(features, Propagation(kind if share is None else replace(kind, projective=True)), share=share)

    @property
    def order(self) -> int:
        """1 or 2."""
        return 1 if len(self.weights) == 1 else 2

    def with_weights(self, more: Mapping[str, Any]) -> "TreeScorer":
        """Return the same model with the weights of one more stage, by kind of part."""
        return replace(self, weights=(*self.weights, *(more[part] for part in TREE_KINDS if part in more)))

    @property
    def kind(self) -> TreeKind:
        """Kind of the trees."""
        kind = self.propagation.kind
        return kind if self.share is None else replace(kind, projective=False)

    def temperature(self, kind: str) -> float:
        """Return the divisor of the scores of a kind of factor.

        "tree": of the scores that belief propagation sends to the tree factor in the end; of order 2.
        """
        return self.temperatures.get(kind, 1.0)

    def of_all_trees(self) -> "TreeScorer":
        """Return the model of sentences whose evidence excludes all projective trees."""
        return replace(self, share=None, propagation=replace(self.propagation, kind=self.kind))

    def batches(self, tokens: ParseTokens, some: Integers | None = None) -> Iterator[Integers]:
        """Yield the indices of (some) sentences of similar length that are computed together, without empty ones."""
        check_lengths(tokens.lengths, 0 if self.order == 1 else self.propagation.max_iter)
        order = np.argsort(tokens.lengths, kind="stable")
        if some is not None:
            order = order[np.isin(order, some)]
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

    def _first_order(self, tokens: ParseTokens, sentences: Integers) -> Doubles:
        """Return the arc scores (B, n+1, n+1) of the first-order model."""
        return self.features.arcs.log_arcs(tokens, sentences, self.weights[0])

    def _expectations(
        self, log_arc: Doubles, sentences: Integers, lengths: Integers, free: Doubles | None = None
    ) -> tuple[Passes | NearlyProjective, Doubles]:
        """Return the queries on first-order trees, and their marginals (B, n+1, n+1); ``free``: without evidence."""
        potentials, engine = self.kind.potentials(log_arc, lengths), self.kind.engine
        if self.share is None:
            log_z, marginals = engine.expectations(potentials)
            if not np.isfinite(log_z).all():
                raise NoTreeError(int(sentences[np.flatnonzero(~np.isfinite(log_z))[0]]))
            return engine, marginals
        mixed, marginals = mixture(potentials if free is None else self.kind.potentials(free, lengths), self.share)
        return mixed, marginals if free is None else mixed.expectations(potentials)[1]

    def beliefs(
        self, tokens: ParseTokens, sentences: Integers, allowed: list[frozenset[int] | None] | None = None
    ) -> Beliefs:
        """Return the arc probabilities of some sentences; ``allowed`` are the possible heads of all tokens."""
        return self.infer(self.scored(tokens, sentences, allowed))

    def scored(
        self, tokens: ParseTokens, sentences: Integers, allowed: list[frozenset[int] | None] | None = None
    ) -> Scored:
        """Return the scores of some sentences, the input of ``infer``."""
        lengths, log_arc = tokens.lengths[sentences], self._first_order(tokens, sentences)
        free = None if allowed is None else log_arc
        if allowed is not None:
            log_arc = log_arc.copy()
            rule_out(log_arc, tokens, sentences, allowed)
        if self.order == 1:
            return Scored(sentences, lengths, log_arc, log_arc > -np.inf, free=free)
        mask = self._kept(log_arc, sentences, lengths, free)
        candidates = Candidates.from_mask(sentences, lengths, mask)
        scores = candidates.scores(self.features, tokens, self.weights[1:])
        return Scored(sentences, lengths, log_arc, mask, candidates, scores)

    def _kept(self, log_arc: Doubles, sentences: Integers, lengths: Integers, free: Doubles | None = None) -> Mask:
        """Return the mask (B, n+1, n+1) of unpruned arcs, among them a tree of belief propagation."""
        _, marginals = self._expectations(log_arc, sentences, lengths, free)
        return keep(self.propagation.kind, log_arc, marginals, lengths, THRESHOLD)

    def infer(self, scored: Scored) -> Beliefs:
        """Return the arc probabilities of sentences from their scores, the temperatures and the share at 1."""
        beliefs = self._infer(scored)
        if not self.sharp:
            return beliefs
        sharp = self.at_temperature_1()._infer(scored)
        return replace(beliefs, arcs=(1 - self.sharp) * beliefs.arcs + self.sharp * sharp.arcs, sharp=sharp)

    def at_temperature_1(self) -> "TreeScorer":
        """Return the model without temperatures."""
        return replace(self, temperatures={}, sharp=0.0)

    def for_trees(self) -> "TreeScorer":
        """Return the model whose beliefs choose trees: without temperatures, and of a mixture the projective trees."""
        return replace(self.at_temperature_1(), share=None)

    def tree_scores_of(self, beliefs: Beliefs) -> Doubles:
        """Return arc scores (B, n+1, n+1) whose tree marginals are the probabilities of the arcs."""
        if beliefs.sharp is None:
            return beliefs.tree_scores
        start = self.kind.potentials(beliefs.tree_scores, beliefs.lengths)
        return match_marginals(beliefs.engine, start, beliefs.arcs)

    def _infer(self, scored: Scored) -> Beliefs:
        sentences, lengths, log_arc, mask, candidates, scores, free = scored
        if candidates is None or scores is None:
            log_arc = log_arc / self.temperature("arcs")
            free = None if free is None else free / self.temperature("arcs")
            engine, arcs = self._expectations(log_arc, sentences, lengths, free)
            return Beliefs(sentences, lengths, log_arc, arcs, mask, engine)
        divisors = map(self.temperature, TREE_KINDS)
        tempered = Scores(*(values / by for values, by in zip(scores, divisors, strict=True)))
        result = self.propagation(candidates.parts, tempered)
        tree_scores = candidates.dense(result.tree_scores, -np.inf)
        if self.temperature("tree") == 1 and self.share is None:
            arcs = candidates.dense(result.arcs, 0.0)
            return Beliefs(sentences, lengths, tree_scores, arcs, mask, self.kind.engine)
        tree_scores /= self.temperature("tree")
        engine, arcs = self._expectations(tree_scores, sentences, lengths)
        return Beliefs(sentences, lengths, tree_scores, arcs, mask, engine)

    def trees(self, tokens: ParseTokens, sentences: Integers) -> Integers:
        """Return the minimum-risk trees (B, n) of some sentences."""
        return self.heads(self.for_trees().infer(self.scored(tokens, sentences)))

    def heads(self, beliefs: Beliefs, gains: Doubles | None = None) -> Integers:
        """Return the trees (B, n) with the largest sum of gains; by default the expected number of correct arcs.

        In a mixture, they are projective, and then words move to heads by crossing arcs whose scores are better by more
        than the log odds of the shares.
        """
        kind = self.propagation.kind
        gains = np.where(beliefs.possible, beliefs.arcs if gains is None else gains, -np.inf)
        heads: Integers = kind.engine.best(kind.potentials(gains, beliefs.lengths))[0]
        if self.share is None:
            return heads
        share = min(max(self.share, LEAST_SHARE), 0.5)
        potentials = self.kind.potentials(beliefs.tree_scores, beliefs.lengths)
        return with_crossings(potentials, heads, math.log((1 - share) / share))


def prune(scorer: TreeScorer, tokens: ParseTokens, gold: Gold, more: Gold) -> PrunedArcs:
    """Return candidate arcs of training sentences, among them the gold arcs and a tree that has all of these.

    The arcs of ``more`` are candidates too.
    """
    kind, sizes = scorer.propagation.kind, np.zeros(len(tokens) + 1, np.int64)
    kept: list[tuple[Integers, Integers, Integers]] = []
    for sentences in scorer.batches(tokens):
        lengths, log_arc = tokens.lengths[sentences], scorer._first_order(tokens, sentences)
        mask = scorer._kept(log_arc, sentences, lengths)
        heads = gold.rows(sentences)
        partial = np.flatnonzero((heads >= 0).sum(axis=1) < lengths)
        if partial.size:
            given = kind.potentials(only_given(log_arc[partial], heads[partial]), lengths[partial])
            heads[partial] = kind.engine.best(given)[0]
        add_tree(mask, heads)
        add_tree(mask, more.rows(sentences))
        rows, h, m = np.nonzero(mask)
        kept.append((sentences[rows], h, m))
        sizes[sentences + 1] = np.bincount(rows, minlength=len(sentences))
    owners, h, m = (np.concatenate(column) for column in zip(*kept, strict=True))
    order = np.argsort(owners, kind="stable")
    return PrunedArcs(np.cumsum(sizes), h[order], m[order])


def rule_out(log_arc: Doubles, tokens: ParseTokens, sentences: Integers, allowed: list[frozenset[int] | None]) -> None:
    """Set the arcs that evidence forbids to -inf."""
    offsets = tokens.starts - 2 * np.arange(len(tokens))
    for row, b in enumerate(sentences.tolist()):
        for d, heads in enumerate(allowed[offsets[b] : offsets[b] + tokens.lengths[b]], start=1):
            if heads is not None:
                excluded = np.ones(log_arc.shape[1], bool)
                excluded[list(heads)] = False
                log_arc[row, excluded, d] = -np.inf


def flat_heads(scorer: TreeScorer, tokens: ParseTokens, offsets: Integers) -> Integers:
    """Return the heads of all words in minimum-risk trees, flat."""
    heads = np.zeros(int(offsets[-1]), np.int64)
    for sentences in scorer.batches(tokens):
        rows = scorer.trees(tokens, sentences)
        for row, b in enumerate(sentences.tolist()):
            heads[offsets[b] : offsets[b + 1]] = rows[row, : tokens.lengths[b]]
    return heads


class Judge(NamedTuple):
    """Development data: coded sentences with gold trees."""

    tokens: ParseTokens
    gold: Gold

    def heads(self, trees: TreeScorer) -> Integers:
        """Return the minimum-risk trees of a model, flat."""
        return flat_heads(trees, self.tokens, self.gold.offsets)

    def uas(self, trees: TreeScorer) -> float:
        """Return the UAS of the minimum-risk trees of a model."""
        return self.gold.accuracy(self.heads(trees))
