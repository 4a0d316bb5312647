"""The common interface of all distributions over structures."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor

from trelliswork.compute.checks import check_possible
from trelliswork.compute.display import Displayed, Names
from trelliswork.compute.limits import check_cost
from trelliswork.distributions.tensors import ARRAYS, CPU, host
from trelliswork.errors import ShapeError
from trelliswork.inference.tensors import entropy

Kind = Literal["exact", "lower", "upper", "estimate"]
LARGE = 1000.0  # expected size of scores up to which rounding errors of an entropy, about its square, are below 1e-9


class Structure(NamedTuple):
    """Structures and their scores: the best, the k best, or those of least risk."""

    labels: Tensor
    scores: Tensor


class Distribution(Displayed, ABC):
    """A batch of distributions over structures, p(y) = exp(score(y)) / Z.

    Queries return tensors with the batch on axis 0 (after the number of draws for ``sample``).
    """

    kind: ClassVar[Kind] = "exact"
    names: Names | None = None  # words and labels, if a model has made it

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


class LogLinear(Distribution):
    """Base of distributions whose score is a sum over parts: queries that need only log Z and expected parts."""

    nouns: ClassVar[Mapping[str, str]] = {}  # names of the structure and of its parts, for `check_possible`
    alike: ClassVar[str] = "distributions over the same trees"  # what ``kl`` needs two of
    backend: str
    lengths: Tensor
    _dtype: torch.dtype
    _device: torch.device

    def log_partition(self) -> Tensor:
        """Return log Z (B,); -inf where nothing is possible. Its gradient is the marginals."""
        return self._log_z().to(self._dtype)

    def marginals(self) -> Tensor:
        """Return probabilities of the parts of a structure; zero in the padding and where nothing is possible."""
        marginals: Tensor = self._moments()[1]
        return marginals

    def argmax(self) -> Structure:
        """Return the most probable structure of each sequence, and its score."""
        best = self.topk(1)
        return Structure(best.labels[:, 0], best.scores[:, 0])

    def entropy(self) -> Tensor:
        """Return the entropy in nats (B,), at least 0; its digits do not depend on the size of the scores."""
        double = self._double()
        moments = double._moments()
        self._check_possible(moments[0], "no entropy")
        large = double._expected_score(moments, sizes=True).max() >= LARGE
        value = double._chain_rule() if large else moments[0] - double._expected_score(moments)
        return value.clamp(min=0).to(self._dtype)

    def log_prob(self, structure: Tensor) -> Tensor:
        """Return log p(y) (B,) of given structures; -inf if they are impossible. The padding is ignored."""
        log_z = self._log_z()
        self._check_possible(log_z, "no probabilities")
        return (self._score(structure) - log_z).to(self._dtype)

    def kl(self, other: Self) -> Tensor:
        """Return KL(self || other) in nats (B,); inf where ``other`` forbids what ``self`` allows."""
        if not self._is_alike(other) or not torch.equal(self.lengths, other.lengths):
            raise ShapeError(f"kl needs two {self.alike}, got {self} and {other}.")
        p, q = self._double(), other._double()
        moments, log_z_other = p._moments_for(q), q._log_z()
        self._check_possible(moments[0], "no divergence")
        self._check_possible(log_z_other, "no divergence")
        score = p._expected_score(moments) - q._expected_score(moments)
        value = (score - moments[0] + log_z_other).clamp(min=0)
        # Probabilities may underflow, so it is the best structure that tells whether any has a forbidden part.
        return torch.where(p._forbidden_by(q).argmax().scores > 0, torch.inf, value).to(self._dtype)

    @abstractmethod
    def _log_z(self) -> Tensor:
        """Return log Z (B,) in float64."""

    @abstractmethod
    def _moments(self) -> Any:
        """Return log Z (float64) and expectations; if gradients are needed, these can be differentiated again."""

    def _moments_for(self, other: Self) -> Any:
        """Return moments that determine the expected scores of both distributions."""
        return self._moments()

    @abstractmethod
    def _expected_score(self, moments: Any, sizes: bool = False) -> Tensor:
        """Return E[score] (B,) under given moments, or the sum of E|score of a part|; -inf counts as 0."""

    @abstractmethod
    def _torch_log_z(self, beta: Any = 1) -> Tensor:
        """Return log Z (B,) by torch operations in float64; ``beta`` is an inverse temperature, see `log_sum`."""

    def _chain_rule(self) -> Tensor:
        """Return the entropy (B,) without differences of scores."""
        return entropy(self._torch_log_z)[1]

    @abstractmethod
    def _forbidden_by(self, other: Self) -> Distribution:
        """Return the structures that are possible here, scored by the number of their parts that ``other`` forbids."""

    @abstractmethod
    def _score(self, structure: Any) -> Tensor:
        """Return the score (B,) of checked structures in float64, differentiable."""

    @abstractmethod
    def _double(self) -> Self:
        """Return the same distribution in float64, for differences of large scores."""

    @abstractmethod
    def _is_alike(self, other: Self) -> bool:
        """Return True if both distributions are over the same structures."""

    def _check_possible(self, log_values: Tensor, what: str) -> None:
        check_possible(host(log_values.detach()), what, **self.nouns)

    def _tensor(self, values: Any) -> Tensor:
        tensor = torch.from_numpy(values)
        return tensor if self._device == CPU else tensor.to(self._device)

    def _structure(self, labels: Any, scores: Any) -> Structure:
        return Structure(self._tensor(labels), self._tensor(scores.astype(ARRAYS[self._dtype], copy=False)))

    @staticmethod
    def _filled(best: Structure, k: int) -> Structure:
        """Return the k best structures (B, k, ..) and scores (B, k); -1 and -inf for those that do not exist."""
        missing = k - best.scores.shape[1]
        if not missing:
            return best
        check_cost(f"a list of {k:,} structures", n_bytes=8.0 * best.labels[:, 0].numel() * k)
        rest = [best.labels.new_full((1,), -1), best.scores.new_full((1,), -torch.inf)]
        filled = [
            torch.cat([found, one.expand(len(found), missing, *found.shape[2:])], dim=1)
            for found, one in zip(best, rest, strict=True)
        ]
        return Structure(*filled)

    def _inside(self, n: int) -> Tensor:
        """Return the positions (B, n) that are not padding."""
        return torch.arange(n, device=self._device) < self.lengths[:, None]
