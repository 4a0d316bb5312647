"""Labels of arcs, given the tree: a log-linear classifier that sees the arc and what hangs around it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.data import Vocabulary
from trelliswork.models.parser.features import ParseTokens
from trelliswork.models.parser.first_order import Integers
from trelliswork.models.parser.kernels import labels as parsing_label_kernels
from trelliswork.models.parser.templates import FeatureSet
from trelliswork.models.parser.updates import FORGET

compiled: Any = parsing_label_kernels
FEWER_BITS = 5  # rows of weights, one for each label, are fewer than single weights
LABEL_COST = 5000  # of one arc, in multiplications


@dataclass(frozen=True)
class LabelModel:
    """The classifier.

    Attributes
    ----------
    labels : Vocabulary
    weights : ndarray of float32 (rows, L)
    features : FeatureSet
    """

    labels: Vocabulary
    weights: NDArray[np.float32]
    features: FeatureSet

    def probabilities(self, tokens: ParseTokens, heads: Integers, offsets: NDArray[np.int64]) -> NDArray[np.float32]:
        """p(label | tree) (n_tokens, L) of the arcs into all words; ``heads`` are flat, whole trees."""
        found = np.empty((len(heads), len(self.labels)), np.float32)
        threads.run(
            lambda start, stop: compiled.probabilities(
                start, stop, heads, offsets, *_arguments(tokens, self.features, self.weights), self.weights, found
            ),
            threads.cut(tokens.lengths * LABEL_COST, least=threads.LEAST_WORK),
        )
        return found


def _arguments(tokens: ParseTokens, features: FeatureSet, weights: NDArray[np.float32]) -> tuple[Any, ...]:
    shift = np.uint64(64 - (len(weights).bit_length() - 1))
    return (
        tokens.codes, tokens.bits, tokens.starts, tokens.lengths, *features.label, *features.child, shift,
    )  # fmt: skip


def train_labels(
    tokens: ParseTokens,
    heads: Integers,
    names: list[str | None],
    offsets: NDArray[np.int64],
    features: FeatureSet,
    *,
    bits: int,
    rate: float,
    epochs: int,
    seed: int,
    note: Callable[[str], bool],
) -> LabelModel:
    """Learn labels on gold trees, one arc after the other.

    Arcs whose head (-1) or label (``None``) is unknown teach nothing. One thread: steps follow one another. ``note`` is
    told after each epoch, and may stop.
    """
    labels = Vocabulary.from_sequences([[name for name in names if name is not None]])
    numbers = {name: i for i, name in enumerate(labels)}
    gold = np.array([-1 if name is None else numbers[name] for name in names])
    weights = np.zeros((1 << max(bits - FEWER_BITS, 4), len(labels)), np.float32)
    squares, changes, mean = np.zeros_like(weights), np.zeros_like(weights), weights.copy()
    for epoch in range(1, epochs + 1):
        order = np.random.default_rng((seed, 3, epoch)).permutation(len(tokens))
        last, _ = compiled.train(
            order, heads, gold, offsets, *_arguments(tokens, features, weights), weights, squares, changes,
            np.float32(rate), -1,
        )  # fmt: skip
        share = np.float32((FORGET + 1) / (epoch + FORGET))
        here = weights - changes / np.float32(max(last + 1, 1))
        mean = ((1 - share) * mean + share * here).astype(np.float32)
        changes[:] = 0
        if note(f"labels, epoch {epoch} of {epochs}"):
            break
    return LabelModel(labels, mean, features)
