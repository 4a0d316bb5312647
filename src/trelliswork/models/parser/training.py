r"""Training of a parser in stages: taggers, first order, second order, labels.

Trees are trained by conditional likelihood with averaged AdaGrad:

.. math:: \ell(w) = \sum_n \log Z_n(w; \text{known heads}) - \log Z_n(w)

With all heads known the first term is the score of a tree. The gradient by the score of a part is the part's
probability given the known heads, minus its probability. For second-order models log Z is Bethe's estimate and
probabilities are the beliefs of belief propagation.

A model whose trees may have crossing arcs, but rarely have them, would lose accuracy if all crossing trees were rivals
of each tree. With K the known heads without those that no projective tree has, both orders maximize

.. math:: \log p_{proj}(K) + \log p_{all}(\text{known} \mid K)

that is, the objective of a projective model, and for each crossing arc its probability given the rest of the tree.
"""

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from trelliswork.data.corpus import chosen_tokens
from trelliswork.inference.tree.second_order import Scores
from trelliswork.learning.checkpoint import Arrays, with_prefix
from trelliswork.learning.report import STOPPED, FitReport, Step
from trelliswork.learning.sgd import SparseAdaGrad
from trelliswork.learning.watch import Development, Saved, Watch
from trelliswork.models.parser.data import UNKNOWN, Columns, Doubles, Gold, Integers, TreeKind, only_given
from trelliswork.models.parser.features import ParseTokens
from trelliswork.models.parser.kernels.parts import observed_siblings
from trelliswork.models.parser.kernels.records import ArcList
from trelliswork.models.parser.labels import LabelTrainer
from trelliswork.models.parser.scoring import TREE_KINDS, Judge, PrunedArcs, TreeScorer, prune
from trelliswork.models.parser.second_order import Candidates, Propagation
from trelliswork.models.parser.tags import Taggers, Tagging

TAGGER, FIRST, SECOND, LABELS = "tagger", "first order", "second order", "labels"
Progress = Callable[[float], None]  # takes the share of an epoch that is done
ANNOUNCE_SECONDS = 5.0  # between two reports within an epoch
MOSTLY = 0.5  # share of sentences with crossing arcs from which on projective trees have no part of their own
ACTIVE = 1e-3  # parts with a smaller gradient are left out of an update


@dataclass(frozen=True)
class ScoredArcs:
    """A mini-batch with scores of arcs, and exact sums over trees."""

    log_arc: Doubles  # (B, n+1, n+1)
    lengths: Integers
    single_root: bool

    def some(self, rows: Integers) -> "tuple[ScoredArcs, list[Any]]":
        """Return some of the sentences, and the places of their scores."""
        return ScoredArcs(self.log_arc[rows], self.lengths[rows], self.single_root), [rows]

    def of_trees(self, heads: Integers) -> tuple[float, list[Doubles]]:
        """Return the sum of the scores of trees (B, n), and 1 for each of their parts."""
        rows, words = np.nonzero(heads >= 0)
        at, on = (rows, heads[rows, words], words + 1), np.zeros_like(self.log_arc)
        on[at] = 1
        return float(self.log_arc[at].sum()), [on]

    def expectations(self, heads: Integers, projective: bool) -> tuple[float, list[Doubles]]:
        """Return the sum of log Z over the trees with the known heads (B, n), and the probabilities of their parts."""
        given = only_given(self.log_arc, heads) if (heads >= 0).any() else self.log_arc
        kind = TreeKind(projective, self.single_root)
        log_z, marginals = kind.engine.expectations(kind.potentials(given, self.lengths))
        return float(log_z.sum()), [marginals]


@dataclass(frozen=True)
class ScoredParts:
    """A mini-batch with scores of parts, and Bethe's estimates of sums over trees."""

    batch: Candidates
    scores: Scores
    propagation: Propagation

    @property
    def lengths(self) -> Integers:
        """Number of words of each sentence."""
        return self.batch.parts.n_words

    def some(self, rows: Integers) -> "tuple[ScoredParts, list[Any]]":
        """Return some of the sentences, and the places of their scores."""
        if len(rows) == len(self.batch.sentences):
            return self, [slice(None)] * 3
        parts = self.batch.parts
        places = [chosen_tokens(ptr, rows)[0] for ptr in (parts.arc_ptr, parts.sibling_ptr, parts.grandparent_ptr)]
        scores = Scores(*(values[at] for values, at in zip(self.scores, places, strict=True)))
        return ScoredParts(self.batch.some(rows), scores, self.propagation), places

    def of_trees(self, heads: Integers) -> tuple[float, list[Doubles]]:
        """Return the sum of the scores of trees (B, n), and 1 for each of their parts."""
        batch = self.batch
        on = heads[batch.rows, batch.arcs.modifiers - 1] == batch.arcs.heads
        siblings = np.empty(len(batch.siblings.heads))
        observed_siblings(on, batch.parts.sides, siblings)
        above = on[batch.parts.grandparent_upper] & on[batch.parts.grandparent_lower]
        observed = [on.astype(np.float64), siblings, above.astype(np.float64)]
        return float(sum(s @ o for s, o in zip(self.scores, observed, strict=True))), observed

    def expectations(self, heads: Integers, projective: bool) -> tuple[float, list[Doubles]]:
        """Return the sum of log Z over the trees with the known heads (B, n), and the beliefs of their parts."""
        batch, known = self.batch, heads[self.batch.rows, self.batch.arcs.modifiers - 1]
        arcs = np.where((known < 0) | (known == batch.arcs.heads), self.scores.arcs, -np.inf)
        propagation = replace(self.propagation, kind=replace(self.propagation.kind, projective=projective))
        result = propagation(batch.parts, self.scores._replace(arcs=arcs))
        return float(result.log_partition.sum()), [result.arcs, result.siblings, result.grandparents]


@dataclass(frozen=True)
class Problem:
    """Training sentences as all stages take them."""

    tokens: ParseTokens
    given: Gold  # known heads and labels
    gold: Gold  # without heads that no tree of the kind has
    kind: TreeKind  # of the trees of ``gold``
    flat: Gold | None = None  # without heads that no projective tree has; None: all trees are alike
    crossing: float | None = None  # share of the sentences that no projective tree fits; None: all trees are alike

    @classmethod
    def of(cls, tokens: ParseTokens, given: Gold, kind: TreeKind) -> "Problem":
        """Find the heads that trees can have. If most sentences have crossing arcs, all trees are alike."""
        gold = given.possible(kind)
        if kind.projective:
            return cls(tokens, given, gold, kind)
        flat = gold.possible(replace(kind, projective=True))
        share = float((np.add.reduceat(gold.heads != flat.heads, gold.offsets[:-1]) > 0).mean())
        return cls(tokens, given, gold, kind, *((flat, share) if share < MOSTLY else ()))


@dataclass
class TreeTrainer:
    """Common part of both orders: mini-batches of sentences in random order, and one learner per kind of part."""

    problem: Problem
    trees: TreeScorer  # the model after the stage before
    rate: float
    batch_size: int = 32
    seed: tuple[int, ...] = (0,)
    active: float = ACTIVE
    learners: dict[str, SparseAdaGrad] = field(default_factory=dict, init=False)

    def gradient(self, sentences: Integers, weights: Sequence[Any]) -> tuple[float, Sequence[Any], Sequence[Doubles]]:
        """Return the loss of some sentences, and parts of each kind with its negative gradient by their scores."""
        raise AssertionError("each order defines its parts")

    def objective(self, scored: ScoredArcs | ScoredParts, sentences: Integers, gradients: Sequence[Doubles]) -> float:
        """Return the loss of a mini-batch, and add up its negative gradient by the scores."""
        problem = self.problem
        rivals = problem.kind.projective or problem.flat is not None
        every = problem.gold.rows(sentences)
        known = every if problem.flat is None else problem.flat.rows(sentences)
        rows = np.arange(len(sentences))
        crossing = np.flatnonzero((known != every).any(axis=1))
        loss = 0.0
        for sign, heads, some, projective in (
            (-1, np.full_like(every, UNKNOWN), rows, rivals),
            (1, known, rows, rivals),
            (-1, known[crossing], crossing, False),
            (1, every[crossing], crossing, False),
        ):
            complete = (heads >= 0).sum(axis=1) == scored.lengths[some]
            for which, known_completely in ((complete, True), (~complete, False)):
                if which.any():
                    own, places = scored.some(some[which])
                    trees = heads[which]
                    value, counts = own.of_trees(trees) if known_completely else own.expectations(trees, projective)
                    loss -= sign * value
                    for gradient, at, count in zip(gradients, places, counts, strict=True):
                        gradient[at] += sign * count
        return loss

    def epoch(self, number: int, progress: Progress = lambda share: None) -> float:
        """Train epoch ``number``, counted from 1; return its loss."""
        n, total = len(self.problem.tokens), 0.0
        order = np.random.default_rng((*self.seed, number)).permutation(n)
        for at in range(0, n, self.batch_size):
            learners = list(self.learners.values())
            loss, *kinds = self.gradient(order[at : at + self.batch_size], [one.weights for one in learners])
            for learner, features, parts, values in zip(learners, self.trees.features, *kinds, strict=False):
                which = np.flatnonzero(np.abs(values) > self.active)
                some = type(parts)(*(column[which] for column in parts))
                learner.step(*features.ids(self.problem.tokens, some), values[which].astype(np.float32))
            total += loss
            progress(at / n)
        for learner in self.learners.values():
            learner.end_epoch()
        return total

    def parameters(self) -> Arrays:
        """Return the averaged weights by kind of part."""
        return {name: learner.average() for name, learner in self.learners.items()}

    def development(self, judge: Judge) -> Development | None:
        """Return the UAS of parameters on development data."""
        return Development("UAS", lambda more: judge.uas(self.trees.with_weights(more)))

    def state(self) -> Arrays:
        """Return the state between two epochs."""
        states = {name: learner.state() for name, learner in self.learners.items()}
        return {f"{name}.{key}": array for name, state in states.items() for key, array in state.items()}

    def restore(self, arrays: Arrays) -> None:
        """Continue from ``state``'s result."""
        for name, learner in self.learners.items():
            learner.restore(with_prefix(arrays, f"{name}."))


@dataclass
class FirstOrder(TreeTrainer):
    """Scores of arcs, with exact sums over trees."""

    def __post_init__(self) -> None:
        self.learners["arcs"] = SparseAdaGrad(np.zeros(1 << self.trees.features.arcs.bits, np.float32), self.rate)

    def gradient(self, sentences: Integers, weights: Sequence[Any]) -> tuple[float, Sequence[Any], Sequence[Doubles]]:
        """Return the loss of some sentences, and the arcs whose scores change it with its negative gradient."""
        tokens = self.problem.tokens
        log_arc = self.trees.features.arcs.log_arcs(tokens, sentences, weights[0])
        scored = ScoredArcs(log_arc, tokens.lengths[sentences], self.problem.kind.single_root)
        gradient = np.zeros_like(log_arc)
        loss = self.objective(scored, sentences, [gradient])
        rows, heads, words = np.nonzero(np.abs(gradient) > self.active)
        return loss, [ArcList(sentences[rows], heads, words)], [gradient[rows, heads, words]]


@dataclass
class SecondOrder(TreeTrainer):
    """Scores of arcs, siblings and grandparents together, by belief propagation."""

    def __post_init__(self) -> None:
        zeros = np.zeros(1 << self.trees.features.siblings.bits, np.float32)
        for name, weights in zip(TREE_KINDS, (self.trees.weights[0], zeros, zeros), strict=True):
            self.learners[name] = SparseAdaGrad(weights, self.rate)

    @cached_property
    def arcs(self) -> PrunedArcs:
        """The arcs that the first order keeps."""
        problem = self.problem
        return prune(self.trees, problem.tokens, problem.flat or problem.gold, problem.gold)

    def gradient(self, sentences: Integers, weights: Sequence[Any]) -> tuple[float, Sequence[Any], Sequence[Doubles]]:
        """Return the loss of some sentences, and all parts of each kind with its negative gradient by their scores."""
        batch = self.arcs.candidates(self.problem.tokens, sentences)
        scores = batch.scores(self.trees.features, self.problem.tokens, weights)
        gradients = [np.zeros_like(values) for values in scores]
        loss = self.objective(ScoredParts(batch, scores, self.trees.propagation), sentences, gradients)
        return loss, batch.lists, gradients


class Stages:
    """Stages of one training run under a watch; resumes within the stage that its checkpoint was written in.

    After an interruption, by the caller or the time limit, the rest is cut short: taggers stop, the second order is
    left to the caller, and the other stages train one epoch, so that there is a complete model. The checkpoint keeps
    the state of the interruption. In the ``report``, ``value`` is the loss of the trees in their last epoch,
    ``converged`` that of the last stage that was measured, ``dev`` that of the last one that the model keeps.
    """

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.report = FitReport(False, "", math.nan)
        self._reasons: list[str] = []
        self._choice: list[str] = []  # why the first order is kept
        self._late: str | None = None  # why taggers stop
        self._finished: dict[str, Arrays] = {}  # results by stage
        self._resumed: tuple[str, Arrays] | None = None  # the stage of the checkpoint, and its state
        seconds, saved = 0.0, watch.resume()
        if saved is not None:
            plain, arrays = saved
            self.report = FitReport.from_dict(plain["report"])
            self.report.history = [Step(**step) for step in plain["history"]]
            self._reasons, seconds = plain["reasons"], plain["seconds"]
            self._finished = {name: with_prefix(arrays, f"{name}/") for name in plain["finished"]}
            self._resumed = plain["stage"], with_prefix(arrays, f"{plain['stage']}/")
        self._started = time.perf_counter() - seconds

    @property
    def seconds(self) -> float:
        """Training time, including the time before the checkpoint."""
        return time.perf_counter() - self._started

    def _state(self, stage: str, current: Arrays) -> Saved:
        plain = {
            "stage": stage,
            "finished": list(self._finished),
            "reasons": self._reasons,
            "seconds": self.seconds,
            "report": self.report.to_dict(),
            "history": self.report.steps(),
        }
        groups = (self._finished | {stage: current}).items()
        return plain, {f"{name}/{key}": array for name, group in groups for key, array in group.items()}

    def train_taggers(self, tagging: Tagging) -> tuple[Taggers | None, Columns]:
        """Return the taggers, if any, and the tagged sentences; a run that is interrupted here starts again."""
        if tagging.kind is None:
            return None, tagging.columns
        if TAGGER in self._finished:
            arrays = self._finished[TAGGER]
            plain = json.loads(arrays["plain"].tobytes())
            return Taggers.from_state(plain["taggers"], arrays), replace(tagging.columns, tags=plain["tags"])
        taggers, columns = tagging.run(self._announce)
        if self.watch.interrupted:
            self._reasons.append(f"{TAGGER}: {self._late or STOPPED}")
        elif self.watch.checkpoint is not None:
            described, arrays = taggers.state()
            text = json.dumps({"taggers": described, "tags": columns.tags}, default=lambda number: number.item())
            self._finished[TAGGER] = arrays | {"plain": np.frombuffer(text.encode(), np.uint8)}
        return taggers, columns

    def _announce(self, text: str) -> bool:
        """Tell the callback about taggers; return whether training is to stop."""
        self._late = self._late or self.watch.time_is_up(self.seconds)
        self.watch.interrupted = self.watch.interrupted or self._late is not None
        return self.watch.announce(text, self.seconds)

    def train(self, stage: str, trainer: TreeTrainer | LabelTrainer, max_iter: int, judge: Judge | None) -> Arrays:
        """Return the averaged parameters of a stage; those of the best epoch if there is development data."""
        if stage in self._finished:
            return self._finished[stage]
        watch, report = self.watch, self.report
        development = None if judge is None else trainer.development(judge)
        if watch.interrupted:
            watch.checkpoint = None  # it has the state of the interruption
        if self._resumed is not None and self._resumed[0] == stage:
            trainer.restore(self._resumed[1])
            watch.stage, watch.development = stage, development  # resume has restored the best parameters
        else:
            watch.start_stage(stage, development)
        self._resumed = None
        before = sum(step.stage != stage for step in report.history)
        epoch, parameters = len(report.history) - before, trainer.parameters()
        reason: str | None = None
        if development is not None and epoch and before + epoch - watch.best_iteration >= watch.patience:
            reason = f"no better {development.metric} on the development data for {watch.patience} iterations"
        while reason is None and epoch < max_iter:
            epoch += 1
            self._due = time.perf_counter() + ANNOUNCE_SECONDS
            loss = trainer.epoch(epoch, partial(self._progress, f"{stage}, epoch {epoch}"))
            parameters = trainer.parameters()
            n_active = sum(int(np.count_nonzero(one)) for one in parameters.values())
            step = Step(before + epoch, loss, math.nan, n_active, before + epoch, self.seconds, stage=stage)
            report.add(step)
            reason = watch.after(step, parameters, lambda: self._state(stage, trainer.state()))
            if reason is None and watch.interrupted:
                reason = STOPPED
        text = reason or f"{epoch} epochs"
        if development is not None:
            parameters = watch.best_parameters
            report.metric, report.dev = development.metric, watch.best
            report.converged = reason is not None and not watch.interrupted
            text += f", kept epoch {watch.best_iteration - before} with {report.metric} {watch.best:.4f}"
        self._reasons.append(f"{stage}: {text}")
        self._finished[stage] = parameters
        return parameters

    def _progress(self, name: str, share: float) -> None:
        """Announce the progress of an epoch now and then; an interruption takes effect after it."""
        if time.perf_counter() >= self._due:
            self.watch.announce(f"{name}: {share:.0%}", self.seconds)
            self._due = time.perf_counter() + ANNOUNCE_SECONDS

    def better(self, first: TreeScorer, both: TreeScorer, judge: Judge | None) -> TreeScorer:
        """Return the model of both orders; that of the first one if the second lowers UAS on development data."""
        if judge is None:
            return both
        uas = judge.uas(first), judge.uas(both)
        if uas[1] >= uas[0]:
            return both
        change = f"from {uas[0]:.4f} to {uas[1]:.4f}"
        self._choice = [f"kept the {FIRST}, since the {SECOND} lowers UAS on the development data {change}"]
        return first

    def finish(self, trees: TreeScorer) -> FitReport:
        """Return the report of training that ends with this model of trees."""
        self.watch.start_stage("", None)  # each stage has returned its own best parameters
        _, report = self.watch.finish({}, self.report)
        kept = report.details["kept_stage"] = FIRST if trees.order == 1 else SECOND
        report.reason = "; ".join(self._reasons + self._choice)
        report.value = next(step.value for step in reversed(report.history) if step.stage == kept)
        own = [(step.stage, step.dev) for step in report.history if step.stage in (kept, LABELS)]
        measured = [(stage, dev) for stage, dev in own if dev is not None]
        report.dev = max((dev for stage, dev in measured if stage == measured[-1][0]), default=None)
        return report
