"""Labels of several layers as users write them, as arrays for the learner; and how predictions are judged."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Vocabulary
from trelliswork.data.files import shorten
from trelliswork.data.schemes import Scheme
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference import factorial
from trelliswork.inference.chain import queries
from trelliswork.metrics.tagging import TaggingReport
from trelliswork.models.crf.data import allowed_by
from trelliswork.models.crf.layout import Allowed
from trelliswork.models.evidence import SentenceRules
from trelliswork.rules.chains import Ruled

Column = Sequence[Sequence[str]]
LayerLabels = Mapping[str, Column] | Sequence[Sequence[Sequence[str]]]
Joint = list[list[tuple[str, ...]]]


def by_layer(y: LayerLabels, layers: Sequence[str]) -> list[Column]:
    """The labels of each layer, from a mapping by name or from sentences of tuples."""
    if isinstance(y, Mapping):
        missing, extra = [n for n in layers if n not in y], [n for n in y if n not in layers]
        if missing or extra:
            raise ValueRangeError(
                f"y must have the labels of the layers {', '.join(layers)}"
                + (f"; {', '.join(missing)} missing" if missing else "")
                + (f"; {', '.join(map(str, extra))} not among them" if extra else "")
                + "."
            )
        columns = [y[name] for name in layers]
        for name, column in zip(layers, columns, strict=True):
            if len(column) != len(columns[0]):
                raise ShapeError(
                    f"all layers must have the same sentences, got {len(columns[0])} in {layers[0]} and {len(column)} "
                    f"in {name}."
                )
        return columns
    for n, sentence in enumerate(y):
        for t, token in enumerate(sentence):
            if isinstance(token, str) or len(token) != len(layers):
                raise ShapeError(
                    f"sentence {n}, token {t}: expected a tuple of {len(layers)} labels ({', '.join(layers)}), "
                    f"got {shorten(token)}. Or give a dict of labels by layer."
                )
    return [[[token[d] for token in sentence] for sentence in y] for d in range(len(layers))]


def joined(columns: Sequence[Column]) -> Joint:
    """Return sentences of tuples, one label per layer."""
    return [list(zip(*rows, strict=True)) for rows in zip(*columns, strict=True)]


@dataclass(frozen=True)
class LabelLayer:
    """The labels of one layer: names, scheme, and the transitions that the scheme allows."""

    name: str
    labels: Vocabulary
    scheme: Scheme | None

    @property
    def allowed(self) -> Allowed | None:
        """Allowed transitions; ``None`` without a scheme."""
        return allowed_by(self.labels, self.scheme)


@dataclass(frozen=True)
class LayerRules:
    """What answers queries about the chains of layers, such as rules, and about the chain of all combinations."""

    layers: tuple[Any, ...]  # `queries` for a layer without rules
    n_labels: tuple[int, ...]

    @cached_property
    def joint(self) -> Ruled:
        """The rules over combinations of labels."""
        return Ruled.of_layers([None if ask is queries else ask for ask in self.layers], self.n_labels)

    def taken(self, which: NDArray[np.int64]) -> "LayerRules":
        """Return the rules of some of the sequences, whose numbers messages name."""
        taken = LayerRules(tuple(a if a is queries else a.taken(which) for a in self.layers), self.n_labels)
        vars(taken)["joint"] = self.joint.taken(which)
        return taken


_layer_rules = lru_cache(maxsize=16)(LayerRules)


def with_rules(
    rules: SentenceRules, batches: Iterator[factorial.FactorialPotentials]
) -> Iterator[factorial.FactorialPotentials]:
    """Yield batches of sentences, in order, in parts that have the same rules."""
    for layers, numbers, part in rules.split(batches):
        own = _layer_rules(layers, tuple(part.tables.n_labels))
        yield part if all(ask is queries for ask in layers) else replace(part, rules=own.taken(numbers))


@dataclass(frozen=True)
class FactorialReport:
    """Accuracy of predictions, by layer and jointly.

    Attributes
    ----------
    n_tokens : int
    joint_accuracy : float
        Fraction of tokens whose labels are correct in every layer.
    layers : dict of str to TaggingReport
    """

    n_tokens: int
    joint_accuracy: float
    layers: dict[str, TaggingReport]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "n_tokens": self.n_tokens,
            "joint_accuracy": self.joint_accuracy,
            "layers": {name: report.to_dict() for name, report in self.layers.items()},
        }

    def summary(self) -> str:
        """Return a short text: joint accuracy, then the summary of each layer."""
        parts = [f"joint accuracy of {self.n_tokens:,} tokens: {self.joint_accuracy:.4f}"]
        parts += [f"layer {name}\n{report.summary()}" for name, report in self.layers.items()]
        return "\n\n".join(parts)
