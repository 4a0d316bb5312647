"""The common interface of all distributions over structures."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor

Kind = Literal["exact", "lower", "upper", "estimate"]


class Structure(NamedTuple):
    """Structures and their scores: the best, the k best, or those of least risk."""

    labels: Tensor
    scores: Tensor


class Distribution(ABC):
    """A batch of distributions over structures, p(y) = exp(score(y)) / Z.

    Queries return tensors with the batch on axis 0 (after the number of draws for ``sample``).
    """

    kind: ClassVar[Kind] = "exact"

    @abstractmethod
    def log_partition(self) -> Tensor:
        """Return log Z (B,); -inf where nothing is possible. Its gradient is the marginals."""

    @abstractmethod
    def marginals(self) -> Tensor:
        """Return probabilities of the parts of a structure; zero where nothing is possible."""

    @abstractmethod
    def argmax(self) -> Structure:
        """Return the most probable structure of each sequence, and its score."""

    @abstractmethod
    def topk(self, k: int) -> Structure:
        """Return the k most probable structures, all different, best first."""

    @abstractmethod
    def sample(self, n: int = 1, *, generator: torch.Generator | None = None) -> Tensor:
        """Return n exact, independent draws."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """Return the entropy in nats (B,)."""

    @abstractmethod
    def log_prob(self, structure: Tensor) -> Tensor:
        """Return log p(y) (B,) of given structures."""

    @abstractmethod
    def kl(self, other: Self) -> Tensor:
        """Return KL(self || other) in nats (B,); inf where ``other`` forbids what ``self`` allows."""

    @abstractmethod
    def condition(self, *, allowed: Tensor | None = None, labels: Tensor | None = None) -> Self:
        """Return the distribution given evidence."""
