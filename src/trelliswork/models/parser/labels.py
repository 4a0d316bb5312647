"""Labels of arcs given the tree: a log-linear classifier on features of the arc and its surroundings."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.data import Vocabulary
from trelliswork.learning.sgd import AveragedAdaGrad
from trelliswork.learning.watch import Development
from trelliswork.models.parser.data import Gold, Integers
from trelliswork.models.parser.features import ParseTokens
from trelliswork.models.parser.kernels.labels import arc_probabilities, train
from trelliswork.models.parser.kernels.records import AdaGrad, ArcList, Trees
from trelliswork.models.parser.scoring import Judge, TreeScorer
from trelliswork.models.parser.templates import FeatureSet

FEWER_BITS = 5  # there are fewer rows of weights, with one entry per label, than single weights
LABEL_COST = 5000  # multiplications that take as long as one arc


@dataclass(frozen=True)
class LabelModel:
    """Classifier of arc labels."""

    labels: Vocabulary
    weights: NDArray[np.float32]  # (rows, L)
    features: FeatureSet

    def best(self, tokens: ParseTokens, heads: Integers, offsets: NDArray[np.int64]) -> list[str]:
        """Return the most probable labels of the arcs into all words; ``heads`` are flat, complete trees."""
        return self.labels.strings(self.probabilities(tokens, heads, offsets).argmax(axis=1).tolist())

    def probabilities(
        self, tokens: ParseTokens, heads: Integers, offsets: NDArray[np.int64], temperature: float = 1.0
    ) -> NDArray[np.float32]:
        """Return p(label | tree) (n_tokens, L) of the arcs into all words; ``heads`` are flat, complete trees."""
        owners = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        arcs = ArcList(owners, heads, np.arange(len(heads)) - offsets[owners] + 1)
        return self.arc_probabilities(tokens, heads, offsets, arcs, temperature)

    def arc_probabilities(
        self, tokens: ParseTokens, heads: Integers, offsets: NDArray[np.int64], arcs: ArcList, temperature: float
    ) -> NDArray[np.float32]:
        """Return p(label | tree) (A, L) of arcs, sorted by sentence: each in the tree with its modifier moved to it."""
        values = np.empty((len(arcs.heads), len(self.labels)), np.float32)
        trees, shift = Trees(heads, offsets), _shift(self.weights)
        ranges = threads.cut(np.full(len(values), LABEL_COST), least=threads.LEAST_WORK)
        threads.run(arc_probabilities, ranges, arcs, trees, tokens.arrays, self.features, shift, self.weights, values)
        return tempered(values, temperature)


def _shift(weights: NDArray[np.float32]) -> np.uint64:
    """Return the number of bits to drop from a 64-bit key."""
    return np.uint64(64 - (len(weights).bit_length() - 1))


class LabelTrainer:
    """Training on gold trees, one arc after the other; steps are sequential, so there is one thread.

    Arcs with an unknown head or label are skipped. ``trees`` is the model whose trees get labels; ``seed`` is that of
    the order of the sentences.
    """

    def __init__(
        self, tokens: ParseTokens, gold: Gold, trees: TreeScorer, templates: FeatureSet, *, rate: float, seed: int
    ) -> None:
        self.labels = Vocabulary.from_sequences([[name for name in gold.labels or () if name is not None]])
        self._gold = numbers_of(self.labels, gold)
        self._tokens, self._given, self._features = tokens, Trees(gold.heads, gold.offsets), templates
        self._trees, self._rate, self._seed = trees, np.float32(rate), seed
        shape = 1 << max(trees.features.arcs.bits - FEWER_BITS, 4), len(self.labels)
        self.learner = AveragedAdaGrad(*(np.zeros(shape, np.float32) for _ in range(3)))

    def model(self, parameters: Mapping[str, Any]) -> LabelModel:
        """Return the classifier with these parameters."""
        return LabelModel(self.labels, parameters["weights"], self._features)

    def development(self, judge: Judge) -> Development | None:
        """Return the LAS of parameters on development data; ``None`` if that has no labels."""
        if judge.gold.labels is None:
            return None
        return Development("LAS", partial(self._las, judge, judge.heads(self._trees)))

    def _las(self, judge: Judge, heads: Integers, parameters: Mapping[str, Any]) -> float:
        names = self.model(parameters).best(judge.tokens, heads, judge.gold.offsets)
        return judge.gold.accuracy(heads, names)

    def epoch(self, number: int, progress: object = None) -> float:
        """Train epoch ``number``, counted from 1; return its loss."""
        order = np.random.default_rng((self._seed, 3, number)).permutation(len(self._tokens))
        learner = self.learner
        state = AdaGrad(learner.weights, learner.squares, learner.changes)
        last, loss = threads.call(
            train,
            order, self._given, self._gold, self._tokens.arrays, self._features, _shift(state.weights), state,
            self._rate, -1,
        )  # fmt: skip
        learner.steps = last + 1
        learner.end_epoch()
        return float(loss)

    def parameters(self) -> dict[str, NDArray[Any]]:
        """Return the averaged weights."""
        return {"weights": self.learner.average()}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the state between two epochs, for a checkpoint."""
        return self.learner.state()

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Continue from ``state``'s result."""
        self.learner.restore(arrays)


def numbers_of(labels: Vocabulary, gold: Gold) -> Integers:
    """Return the numbers of the gold labels of all words, -1 for those that are unknown or not among ``labels``."""
    return np.array([-1 if name is None else labels.index.get(name, -1) for name in gold.labels or ()], np.int64)


def tempered(probabilities: NDArray[np.float32], temperature: float) -> NDArray[np.float32]:
    """Return the probabilities (n, L) of softmax classifiers at another temperature."""
    if temperature == 1.0:
        return probabilities
    with np.errstate(divide="ignore"):
        values = np.log(probabilities) / np.float32(temperature)
    values -= values.max(axis=1, keepdims=True, initial=-np.inf)
    np.exp(values, out=values)
    return values / values.sum(axis=1, keepdims=True)
