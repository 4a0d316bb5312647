"""The one interface of all distributions over structures: whoever knows one can ask them all."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor

Kind = Literal["exact", "lower", "upper", "estimate"]


class Structure(NamedTuple):
    """Structures with a score each: the best, the k best, or those of least risk."""

    labels: Tensor
    scores: Tensor


class Distribution(ABC):
    """A batch of distributions over structures, p(y) = exp(score(y)) / Z.

    Queries return tensors with the batch on axis 0 (after the number of draws for ``sample``).
    """

    kind: ClassVar[Kind] = "exact"

    @abstractmethod
    def log_partition(self) -> Tensor:
        """log Z (B,); -inf where nothing is possible. Its gradient is the marginals."""

    @abstractmethod
    def marginals(self) -> Tensor:
        """Probabilities of the parts of a structure; zero where nothing is possible."""

    @abstractmethod
    def argmax(self) -> Structure:
        """The most probable structure of each sequence, and its score."""

    @abstractmethod
    def topk(self, k: int) -> Structure:
        """The k most probable structures, all different, best first."""

    @abstractmethod
    def sample(self, n: int = 1, *, generator: torch.Generator | None = None) -> Tensor:
        """n exact, independent draws."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """Entropy in nats (B,)."""

    @abstractmethod
    def log_prob(self, structure: Tensor) -> Tensor:
        """log p(y) (B,) of given structures."""

    @abstractmethod
    def kl(self, other: Self) -> Tensor:
        """KL(self || other) in nats (B,); inf where ``other`` forbids what ``self`` allows."""

    @abstractmethod
    def condition(self, *, allowed: Tensor | None = None, labels: Tensor | None = None) -> Self:
        """The distribution given evidence."""
