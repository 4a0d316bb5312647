"""Temperatures of a parser: divisors of the scores of each kind of factor; ``calibration`` fits them."""

import math
from dataclasses import asdict, dataclass, fields

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ValueRangeError

TREE_KINDS = ("arcs", "siblings", "grandparents")


def tree_kinds(second: bool) -> tuple[str, ...]:
    """Return the kinds of factors that have a temperature, labels aside."""
    return (*TREE_KINDS, "tree") if second else TREE_KINDS[:1]


@dataclass(frozen=True)
class Temperatures:
    """Divisors of scores, by kind of factor."""

    arcs: float = 1.0
    siblings: float = 1.0
    grandparents: float = 1.0
    tree: float = 1.0  # of the scores that belief propagation sends to the tree factor in the end; order 2
    labels: float = 1.0

    @classmethod
    def from_dict(cls, plain: dict[str, float]) -> "Temperatures":
        """Build from plain data; kinds that are missing have temperature 1."""
        names = {field.name for field in fields(cls)}
        for name, value in plain.items():
            if name not in names or not (isinstance(value, float | int) and 0 < value < math.inf):
                raise ValueRangeError(f"temperatures must be positive numbers by kind of factor, got {name}={value!r}.")
        return cls(**{name: float(value) for name, value in plain.items()})

    def of(self, order: int, labeled: bool) -> dict[str, float]:
        """Return the temperatures that a parser of this order has, by name."""
        kinds = tree_kinds(order == 2) + (("labels",) if labeled else ())
        return {name: value for name, value in asdict(self).items() if name in kinds}


def tempered(probabilities: NDArray[np.float32], temperature: float) -> NDArray[np.float32]:
    """Return the probabilities (n, L) of softmax classifiers at another temperature."""
    if temperature == 1.0:
        return probabilities
    with np.errstate(divide="ignore"):
        values = np.log(probabilities) / np.float32(temperature)
    values -= values.max(axis=1, keepdims=True, initial=-np.inf)
    np.exp(values, out=values)
    return values / values.sum(axis=1, keepdims=True)
