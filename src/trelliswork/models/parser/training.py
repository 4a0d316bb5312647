r"""How a parser learns the scores of arcs and pairs of arcs: conditional likelihood, averaged AdaGrad.

.. math:: \ell(w) = \sum_n \log Z_n(w; \text{known heads}) - \log Z_n(w)

With all heads known the first term is the score of a tree. Its gradient by the score of a part is the part's
probability given what is known, minus its probability. For second-order models log Z is Bethe's estimate and
probabilities are the beliefs of belief propagation.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trelliswork.learning.lbfgs import FitReport, Step
from trelliswork.models.parser.data import Gold
from trelliswork.models.parser.features import ParseTokens
from trelliswork.models.parser.first_order import ArcFeatures, ArcList, Doubles, Integers, TreeKind, Weights, only_given
from trelliswork.models.parser.kernels import parts as parsing_part_kernels
from trelliswork.models.parser.second_order import Candidates, PartList, Propagation, SecondOrderFeatures
from trelliswork.models.parser.updates import SparseAdaGrad

ACTIVE = 1e-3  # parts whose gradient is smaller move nothing
Callback = Callable[[Step, Any], bool | None]
Learned = tuple[Weights, ...]


@dataclass
class ParserStep(Step):
    """An epoch of a stage, as ``Step``; or, with a value of nan, what is going on before and after the stages."""

    stage: str = ""


class Trainer(Protocol):
    """One stage of training."""

    def step(self, sentences: Integers) -> float:
        """Learn from a mini-batch; returns its loss."""

    def end_epoch(self) -> None:
        """Take the epoch into the average."""

    def average(self) -> Learned:
        """The averaged weights."""


@dataclass
class FirstOrder:
    """Scores of arcs, exact sums over trees."""

    tokens: ParseTokens
    gold: Gold
    features: ArcFeatures
    kind: TreeKind
    rate: float
    active: float = ACTIVE

    def __post_init__(self) -> None:
        self._learner = SparseAdaGrad(np.zeros(1 << self.features.bits, np.float32), self.rate)

    def gradient(self, sentences: Integers, weights: NDArray[np.floating]) -> tuple[float, ArcList, Doubles]:
        """The loss of some sentences, and its negative gradient (A,) by the scores of the arcs that move."""
        tokens, kind, lengths = self.tokens, self.kind, self.tokens.lengths[sentences]
        log_arc = self.features.log_arcs(tokens, sentences, weights)
        log_z, marginals = kind.engine.expectations(kind.potentials(log_arc, lengths))
        heads = self.gold.rows(sentences, log_arc.shape[1] - 1)
        rows, words = np.nonzero(heads >= 0)
        loss = float(log_z.sum() - log_arc[rows, heads[rows, words], words + 1].sum())
        gradient = -marginals
        gradient[rows, heads[rows, words], words + 1] += 1
        partial = np.flatnonzero((heads >= 0).sum(axis=1) < lengths)
        if partial.size:
            given = only_given(log_arc[partial], heads[partial])
            log_known, expected = kind.engine.expectations(kind.potentials(given, lengths[partial]))
            some = np.isin(rows, partial)
            loss += float(log_arc[rows[some], heads[rows[some], words[some]], words[some] + 1].sum() - log_known.sum())
            gradient[partial] = expected - marginals[partial]
        rows, heads, words = np.nonzero(np.abs(gradient) > self.active)
        return loss, ArcList(sentences[rows], heads, words), gradient[rows, heads, words]

    def step(self, sentences: Integers) -> float:
        """Learn from a mini-batch; returns its loss."""
        loss, arcs, values = self.gradient(sentences, self._learner.weights)
        self._learner.step(*self.features.ids(self.tokens, arcs), values.astype(np.float32))
        return loss

    def end_epoch(self) -> None:
        """Take the epoch into the average."""
        self._learner.end_epoch()

    def average(self) -> Learned:
        """The averaged weights."""
        return (self._learner.average(),)


@dataclass(frozen=True)
class PrunedArcs:
    """The candidate arcs of all training sentences: found once, since the first-order model stays as it is."""

    ends: Integers
    heads: Integers
    modifiers: Integers

    def candidates(self, tokens: ParseTokens, sentences: Integers) -> Candidates:
        """The parts of some sentences."""
        sizes = self.ends[sentences + 1] - self.ends[sentences]
        ends = np.concatenate([[0], np.cumsum(sizes)])
        at = np.arange(ends[-1]) - np.repeat(ends[:-1], sizes) + np.repeat(self.ends[sentences], sizes)
        return Candidates.from_arcs(sentences, tokens.lengths[sentences], ends, self.heads[at], self.modifiers[at])


@dataclass
class SecondOrder:
    """Scores of arcs, siblings and grandparents together, by belief propagation."""

    tokens: ParseTokens
    gold: Gold
    features: SecondOrderFeatures
    propagation: Propagation
    arcs: PrunedArcs
    rate: float
    start: Weights
    active: float = ACTIVE

    def __post_init__(self) -> None:
        nothing = [np.zeros(1 << f.bits, np.float32) for f in (self.features.siblings, self.features.grandparents)]
        self._learners = [SparseAdaGrad(weights, self.rate) for weights in (self.start, *nothing)]

    def gradient(
        self, sentences: Integers, weights: tuple[Any, Any, Any]
    ) -> tuple[float, Candidates, tuple[Doubles, Doubles, Doubles]]:
        """Bethe's loss of some sentences, and its negative gradient by the scores of arcs, siblings, grandparents."""
        batch = self.arcs.candidates(self.tokens, sentences)
        scores = batch.scores(self.features, self.tokens, weights)
        found = self.propagation(batch.parts, scores)
        heads = self.gold.rows(sentences, int(batch.parts.n_words.max()))
        observed = self._tree(batch, heads)
        loss = found.log_partition.sum() - sum(s @ o for s, o in zip(scores, observed, strict=True))
        partial = np.flatnonzero((heads >= 0).sum(axis=1) < batch.parts.n_words)
        if partial.size:
            loss += self._constrain(batch, partial, heads[partial], scores, observed)
        beliefs = found.arcs, found.siblings, found.grandparents
        return float(loss), batch, tuple(o - b for o, b in zip(observed, beliefs, strict=True))  # type: ignore[return-value]

    def _tree(self, batch: Candidates, heads: Integers) -> tuple[Doubles, Doubles, Doubles]:
        """1 for each part of the gold trees."""
        kernels: Any = parsing_part_kernels
        on = heads[batch.rows, batch.arcs.modifiers - 1] == batch.arcs.heads
        siblings = np.empty(len(batch.siblings.heads))
        kernels.observed_siblings(on, batch.parts.sides, siblings)
        above = on[batch.parts.grandparent_upper] & on[batch.parts.grandparent_lower]
        return on.astype(np.float64), siblings, above.astype(np.float64)

    def _constrain(
        self,
        batch: Candidates,
        rows: Integers,
        heads: Integers,
        scores: tuple[Doubles, ...],
        observed: tuple[Doubles, ...],
    ) -> float:
        """Put expectations given the known heads in place of a tree; returns what this changes of the loss."""
        some = self.arcs.candidates(self.tokens, batch.sentences[rows])
        parts = batch.parts
        places = [_ranges(ptr, rows) for ptr in (parts.arc_ptr, parts.sibling_ptr, parts.grandparent_ptr)]
        own = [s[at] for s, at in zip(scores, places, strict=True)]
        before = sum(float(s @ o[at]) for s, o, at in zip(own, observed, places, strict=True))
        known = heads[some.rows, some.arcs.modifiers - 1]
        own[0] = np.where((known < 0) | (known == some.arcs.heads), own[0], -np.inf)
        found = self.propagation(some.parts, (own[0], own[1], own[2]))
        for o, at, belief in zip(observed, places, (found.arcs, found.siblings, found.grandparents), strict=True):
            o[at] = belief
        return before - float(found.log_partition.sum())

    def step(self, sentences: Integers) -> float:
        """Learn from a mini-batch; returns its loss."""
        a, s, g = (learner.weights for learner in self._learners)
        loss, batch, gradients = self.gradient(sentences, (a, s, g))
        features: tuple[Any, ...] = (self.features.arcs, self.features.siblings, self.features.grandparents)
        lists: tuple[ArcList | PartList, ...] = (batch.arcs, batch.siblings, batch.grandparents)
        for learner, one, parts, values in zip(self._learners, features, lists, gradients, strict=True):
            which = np.flatnonzero(np.abs(values) > self.active)
            ids, counts = one.ids(self.tokens, parts.take(which))
            learner.step(ids, counts, values[which].astype(np.float32))
        return loss

    def end_epoch(self) -> None:
        """Take the epoch into the average."""
        for learner in self._learners:
            learner.end_epoch()

    def average(self) -> Learned:
        """The averaged weights."""
        return tuple(learner.average() for learner in self._learners)


def _ranges(ptr: Integers, rows: Integers) -> Integers:
    """The places ``ptr[b]:ptr[b + 1]`` of the rows, one behind the other."""
    return np.concatenate([np.arange(ptr[b], ptr[b + 1]) for b in rows.tolist()])


@dataclass
class Watch:
    """What happens after each epoch, through all stages: measure, remember the best of the stage, tell the caller.

    ``converged`` and ``dev`` are those of the last stage: whether patience ended it, and the best figure.
    """

    callback: Callback | None
    patience: int
    history: list[Step] = field(default_factory=list)
    stopped: bool = False
    converged: bool = False
    dev: float | None = None
    reasons: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._began = time.perf_counter()

    def note(self, what: str) -> bool:
        """Tell the caller what is going on outside the stages; True if they want to stop, now or before."""
        before = self.stopped
        if self._tell(math.nan, 0, None, what, None) and not before:
            self.reasons.append(f"{what}: stopped by the caller")
        return self.stopped

    def _tell(self, value: float, active: int, dev: float | None, stage: str, weights: Any) -> bool:
        number, seconds = len(self.history), time.perf_counter() - self._began
        if not math.isnan(value):
            number += 1
        step = ParserStep(number, value, math.nan, active, number, seconds, dev, stage)
        if not math.isnan(value):
            self.history.append(step)
        if self.callback is not None and self.callback(step, weights):
            self.stopped = True
        return self.stopped

    def run(
        self,
        name: str,
        trainer: Trainer,
        n_sentences: int,
        *,
        epochs: int,
        batch_size: int,
        seed: tuple[int, ...],
        measure: Callable[[Learned], float] | None,
    ) -> Learned:
        """Train one stage; returns the averaged weights, those of the best epoch if there is something to measure."""
        best, best_epoch, kept = -math.inf, 0, trainer.average()
        self.converged = False
        reason = f"{epochs} epochs done"
        for epoch in range(1, epochs + 1):
            order = np.random.default_rng((*seed, epoch)).permutation(n_sentences)
            loss = sum(trainer.step(order[at : at + batch_size]) for at in range(0, n_sentences, batch_size))
            trainer.end_epoch()
            weights = trainer.average()
            dev = measure(weights) if measure is not None else None
            active = sum(int(np.count_nonzero(w)) for w in weights)
            if dev is None or dev > best:
                best, best_epoch, kept = -math.inf if dev is None else dev, epoch, weights
            if self._tell(loss, active, dev, name, weights):
                reason = "stopped by the caller"
                break
            if dev is not None and epoch - best_epoch >= self.patience:
                self.converged, reason = True, f"no better on the development data for {self.patience} epochs"
                break
        if measure is not None:
            self.dev = best
            reason += f", kept epoch {best_epoch} with UAS {best:.4f}"
        self.reasons.append(f"{name}: {reason}")
        return kept

    def report(self) -> FitReport:
        """How training ended."""
        value = self.history[-1].value if self.history else math.nan
        return FitReport(self.converged, "; ".join(self.reasons), value, self.history)
