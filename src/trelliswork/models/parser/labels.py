"""Labels of arcs given the tree: a log-linear classifier on features of the arc and its surroundings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.data import Vocabulary
from trelliswork.learning.watch import Development
from trelliswork.models.parser.data import Gold
from trelliswork.models.parser.features import ParseTokens
from trelliswork.models.parser.first_order import Integers
from trelliswork.models.parser.kernels.labels import probabilities, train
from trelliswork.models.parser.kernels.records import AdaGrad, Trees
from trelliswork.models.parser.templates import FeatureSet
from trelliswork.models.parser.updates import FORGET

FEWER_BITS = 5  # there are fewer rows of weights, with one entry per label, than single weights
LABEL_COST = 5000  # multiplications that take as long as one arc


@dataclass(frozen=True)
class LabelModel:
    """Classifier of arc labels."""

    labels: Vocabulary
    weights: NDArray[np.float32]  # (rows, L)
    features: FeatureSet

    def probabilities(self, tokens: ParseTokens, heads: Integers, offsets: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return p(label | tree) (n_tokens, L) of the arcs into all words; ``heads`` are flat, complete trees."""
        values = np.empty((len(heads), len(self.labels)), np.float32)
        trees, shift = Trees(heads, offsets), _shift(self.weights)
        ranges = threads.cut(tokens.lengths * LABEL_COST, least=threads.LEAST_WORK)
        threads.run(probabilities, ranges, trees, tokens.arrays, self.features, shift, self.weights, values)
        return values


def _shift(weights: NDArray[np.float32]) -> np.uint64:
    """Return the number of bits to drop from a 64-bit key."""
    return np.uint64(64 - (len(weights).bit_length() - 1))


class LabelTrainer:
    """Training on gold trees, one arc after the other; steps are sequential, so there is one thread.

    Arcs with an unknown head or label are skipped. ``bits`` are those of the hashed features of arcs; ``seed`` is that
    of the order of the sentences.
    """

    def __init__(
        self, tokens: ParseTokens, gold: Gold, features: FeatureSet, *, bits: int, rate: float, seed: int
    ) -> None:
        assert gold.labels is not None
        self.labels = Vocabulary.from_sequences([[name for name in gold.labels if name is not None]])
        numbers = {name: i for i, name in enumerate(self.labels)}
        self._gold = np.array([-1 if name is None else numbers[name] for name in gold.labels])
        self._tokens, self._trees, self._features = tokens, Trees(gold.heads, gold.offsets), features
        self._rate, self._seed, self._epochs = np.float32(rate), seed, 0
        shape = 1 << max(bits - FEWER_BITS, 4), len(self.labels)
        self._state = AdaGrad(*(np.zeros(shape, np.float32) for _ in AdaGrad._fields))
        self._mean = np.zeros(shape, np.float32)

    def model(self, parameters: Mapping[str, Any]) -> LabelModel:
        """Return the classifier with these parameters."""
        return LabelModel(self.labels, parameters["weights"], self._features)

    def development(self, tokens: ParseTokens, gold: Gold, heads: Integers) -> Development:
        """Return the LAS on development data, whose predicted trees are given as flat ``heads``."""

        def measure(parameters: Mapping[str, Any]) -> float:
            best = self.model(parameters).probabilities(tokens, heads, gold.offsets).argmax(axis=1)
            return las(heads, [self.labels[j] for j in best.tolist()], gold)

        return Development("LAS", measure)

    def epoch(self, number: int) -> float:
        """Train epoch ``number``, counted from 1; return its loss."""
        weights, _, changes = self._state
        order = np.random.default_rng((self._seed, 3, number)).permutation(len(self._tokens))
        last, loss = threads.call(
            train,
            order, self._trees, self._gold, self._tokens.arrays, self._features, _shift(weights), self._state,
            self._rate, -1,
        )  # fmt: skip
        self._epochs += 1
        share = np.float32((FORGET + 1) / (self._epochs + FORGET))
        mean = weights - changes / np.float32(max(last + 1, 1))
        self._mean = ((1 - share) * self._mean + share * mean).astype(np.float32)
        changes[:] = 0
        return float(loss)

    def parameters(self) -> dict[str, NDArray[Any]]:
        """Return the averaged weights."""
        return {"weights": self._mean}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the state between two epochs, for a checkpoint."""
        weights, squares, _ = self._state
        return {"weights": weights, "squares": squares, "mean": self._mean, "epochs": np.array([self._epochs])}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Continue from ``state``'s result."""
        weights, squares = np.array(arrays["weights"]), np.array(arrays["squares"])
        self._state = AdaGrad(weights, squares, np.zeros_like(weights))
        self._mean, self._epochs = arrays["mean"], int(arrays["epochs"][0])


def las(heads: Integers, names: Sequence[str | None], gold: Gold) -> float:
    """Return the fraction of the words with a known head and label that get both; all flat."""
    assert gold.labels is not None
    rows = zip(heads.tolist(), names, gold.heads.tolist(), gold.labels, strict=True)
    known = [(head, name) == (h, label) for head, name, h, label in rows if h >= 0 and label is not None]
    return sum(known) / max(len(known), 1)
