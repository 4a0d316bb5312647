"""The common interface of all distributions over structures."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from operator import add, and_
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor
from torch.distributions.kl import register_kl

from trelliswork.compute.checks import check_count, check_possible
from trelliswork.compute.display import Displayed, Names
from trelliswork.compute.limits import check_cost
from trelliswork.distributions.tensors import ARRAYS, CPU, as_tensor, bool_mask, expectation, forbidden, host
from trelliswork.errors import ShapeError, ValueRangeError

Kind = Literal["exact", "lower", "upper", "estimate"]


class Best:
    """Structures, such as the best ones, and their log-probabilities; ``value, log_prob = best`` works, too.

    Attributes
    ----------
    value : Tensor
        Structures, of the event shape of the distribution after the axes of batch and rank; -1 where there is none.
    log_prob : Tensor
        log p(value), computed when it is first asked for; -inf where there is none.
    """

    def __init__(self, value: Tensor, log_prob: Callable[[], Tensor]) -> None:
        self.value, self._compute = value, log_prob

    @cached_property
    def log_prob(self) -> Tensor:  # noqa: D102, documented above
        return self._compute()

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.value, self.log_prob))

    def __repr__(self) -> str:
        return f"Best(value={self.value}, log_prob={self.log_prob})"


class Distribution(Displayed, torch.distributions.Distribution, ABC):
    """A batch of distributions over structures, p(y) = exp(score(y)) / Z, as torch distributions.

    ``batch_shape`` is (B,), ``event_shape`` that of a structure. Queries return tensors with the batch on axis 0, after
    the axes of ``sample_shape`` for ``sample``. There are no reparametrized samples and no enumeration.
    For tensors on other devices than the CPU, torch operations compute log Z and marginals there.
    """

    has_rsample = False
    has_enumerate_support = False
    arg_constraints: ClassVar[dict[str, Any]] = {}
    kind: Kind = "exact"
    names: Names | None = None  # words and labels, if a model has made it
    _nouns: ClassVar[Mapping[str, str]] = {}  # names of the structure and of its parts, for `check_possible`
    _alike: ClassVar[str] = "distributions over the same trees"  # what ``kl`` needs two of
    _axes: ClassVar[str]  # of the scores that evidence masks, for error messages
    _n_own: ClassVar[int] = 1  # number of inputs that belong to sequences; the others are shared
    _counting: ClassVar[Mapping[str, Any]] = {}  # options that leave only the scores
    lengths: Tensor
    _sizes: tuple[int, ...]  # B and the sizes of a structure
    _dtype: torch.dtype
    _device: torch.device
    _by_torch: bool  # whether torch operations compute log Z, as on other devices than the CPU

    @property
    def batch_shape(self) -> torch.Size:
        """The number of distributions, (B,)."""
        return torch.Size(self._sizes[:1])

    @property
    def event_shape(self) -> torch.Size:
        """The shape of a structure."""
        return torch.Size(self._sizes[1:])

    def log_partition(self) -> Tensor:
        """Return log Z (B,); -inf where nothing is possible. Its gradient is the marginals."""
        return self._log_z().to(self._dtype)

    def marginals(self) -> Tensor:
        """Return probabilities of the parts of a structure; zero in the padding and where nothing is possible."""
        marginals: Tensor = self._sums()[1]
        return marginals

    def argmax(self) -> Best:
        """Return the most probable structure of each sequence."""
        return self._best(self._viterbi()[0])

    @property
    def mode(self) -> Tensor:
        """The most probable structure of each sequence."""
        return self.argmax().value

    def mbr(self) -> Best:
        """Return the structure with the most expected hits (correct parts): minimum Bayes risk."""
        with torch.no_grad():
            log_z, marginals = self._sums()[:2]
        self._check_possible(log_z, "nothing to decode")
        scores, *others = self._inputs
        hits = torch.where(torch.isneginf(scores), -torch.inf, marginals)
        free = (forbidden(x, x).to(x) for x in others)  # 0, where they are possible
        return self._best(self._like(hits, *free, **self._counting)._viterbi()[0])

    def topk(self, k: int) -> Best:
        """Return the k most probable structures (B, k, ..), all different, best first; -1 if there are fewer."""
        check_count("k", k)
        values = self._ranked(k)[0]
        if missing := k - values.shape[1]:
            check_cost(f"a list of {k:,} structures", n_bytes=8.0 * values[:, 0].numel() * k)
            none = values.new_full((1,), -1).expand(len(values), missing, *values.shape[2:])
            values = torch.cat([values, none], dim=1)
        return self._best(values, ranks=True)

    def sample(self, sample_shape: int | Sequence[int] = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Return independent draws (sample_shape, B, ..); ``sample(n)`` is ``sample((n,))``.

        Seed the ``generator`` to repeat them. They are exact, unless the distribution has another ``kind``.
        """
        shape = tuple(sample_shape) if isinstance(sample_shape, Sequence) else (sample_shape,)
        for n in shape:
            check_count("n", n)
        draws = self._draw(math.prod(shape), generator)
        return draws.reshape(*shape, *draws.shape[1:])

    def entropy(self) -> Tensor:
        """Return the entropy in nats (B,), at least 0.

        It is log Z - E[score]. Rounding errors are about 1e-16 times the square of the expected size of the scores.
        """
        double = self._double()
        moments = double._moments()
        self._check_possible(moments[0], "no entropy")
        return (moments[0] - double._expected_score(moments)).clamp(min=0).to(self._dtype)

    def log_prob(self, value: Any) -> Tensor:
        """Return log p(value) (B,) of structures (B, ..), or with the axes that ``sample`` puts before them.

        It is -inf if they are impossible. The padding is ignored.
        """
        log_z = self._log_z()
        self._check_possible(log_z, "no probabilities")
        more = value.ndim - len(self._sizes) if isinstance(value, Tensor | np.ndarray) else 0
        if more <= 0:
            score = self._score(value)
        else:  # one after the other
            flat = value.reshape(-1, *value.shape[more:])
            score = torch.stack([self._score(one) for one in flat]).reshape(*value.shape[:more], -1)
        return (score - log_z).to(self._dtype)

    def kl(self, other: Self) -> Tensor:
        """Return KL(self || other) in nats (B,); inf where ``other`` forbids what ``self`` allows."""
        if not self._is_alike(other):
            raise ShapeError(f"kl needs two {self._alike}, got {self} and {other}.")
        p, q = self._double(), other._double()
        moments, log_z_other = p._moments_for(q), q._log_z()
        self._check_possible(moments[0], "no divergence")
        self._check_possible(log_z_other, "no divergence")
        score = p._expected_score(moments) - q._expected_score(moments)
        value = (score - moments[0] + log_z_other).clamp(min=0)
        # Probabilities may underflow, so it is the best structure that tells whether any has a forbidden part.
        return torch.where(p._forbidden_by(q)._viterbi()[1] > 0, torch.inf, value).to(self._dtype)

    def condition(self, *, known: Any = None, allowed: Any = None) -> Any:
        """Return the distribution given evidence; the difference of the log partitions is its log probability.

        Parameters
        ----------
        known : Tensor of int, optional
            Known parts, -1 for unknown, in the form that the class documents.
        allowed : Tensor of bool, optional
            Parts that a structure may have, of the shape of the scores; a last axis for labels may be missing.
        """
        masks = [] if allowed is None else [self._permitted(allowed)]
        masks += [] if known is None else [self._agreeing(known)]
        return self._masked(reduce(and_, masks)) if masks else self

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Self:
        """Return B copies of a batch of one."""
        (B,) = self.batch_shape
        if tuple(batch_shape) == (B,):
            return self
        if len(batch_shape) != 1 or B != 1:
            raise ShapeError(f"a batch of one can be expanded to (B,), got a batch of {B} and {tuple(batch_shape)}.")
        check_count("B", batch_shape[0])
        return self._copies(batch_shape[0])

    def named(self, value: Tensor) -> list[Any]:
        """Return structures (.., B, ..) with the names of labels, as nested lists, if a model made the distribution."""
        if self.names is None:
            raise ValueRangeError("labels have names only in distributions that the posterior of a model returned.")
        if value.ndim > 1 + len(self.event_shape):
            return [self.named(one) for one in value]
        return [self._named(one, self.names.labels) for one in value]

    # What a class provides: the scores, and queries about them.

    @property
    @abstractmethod
    def _inputs(self) -> tuple[Tensor, ...]:
        """The scores: ``_n_own`` with an axis for sequences, of which evidence masks the first, then shared ones."""

    @abstractmethod
    def _log_z(self) -> Tensor:
        """Return log Z (B,) in float64."""

    @abstractmethod
    def _moments(self) -> Any:
        """Return log Z (float64) and expectations; if gradients are needed, these can be differentiated again."""

    @abstractmethod
    def _ranked(self, k: int) -> tuple[Tensor, Tensor]:
        """Return at most k best structures (B, k, ..), -1 where there are fewer, and their scores (B, k)."""

    @abstractmethod
    def _draw(self, n: int, generator: torch.Generator | None) -> Tensor:
        """Return n draws (n, B, ..)."""

    @abstractmethod
    def _score(self, structure: Any) -> Tensor:
        """Return the score (B,) of checked structures in float64, differentiable."""

    @abstractmethod
    def _agreeing(self, known: Any) -> Tensor:
        """Return the mask of the parts that agree with known ones: the structures of these parts have the known."""

    # What follows from that; a class may know better.

    @property
    def _options(self) -> dict[str, Any]:
        """The other arguments of the constructor; tensors have an axis for sequences."""
        return {"lengths": self.lengths}

    def _like(self, *scores: Tensor, **changes: Any) -> Self:
        """Return the distribution with other scores, and other options."""
        new: Self = self._make(*scores, **(self._options | changes))
        new._by_torch = self._by_torch
        return new

    def _make(self, *scores: Tensor, **options: Any) -> Any:
        """Return a distribution of the class of those derived from this one."""
        make: Any = type(self)
        return make(*scores, **options)

    def _double(self) -> Self:
        """Return the same distribution in float64, for differences of large scores."""
        return self if self._dtype == torch.float64 else self._like(*(x.double() for x in self._inputs))

    def _copies(self, B: int) -> Self:
        """Return B copies of a batch of one."""
        own, shared = self._inputs[: self._n_own], self._inputs[self._n_own :]
        each = {name: x.expand(B, *x.shape[1:]) for name, x in self._options.items() if isinstance(x, Tensor)}
        return self._like(*(x.expand(B, *x.shape[1:]) for x in own), *shared, **each)

    def _masked(self, mask: Tensor) -> Any:
        """Return the distribution over the structures of the parts that a mask allows."""
        first, *others = self._inputs
        return self._like(first.masked_fill(~mask, -torch.inf), *others)

    def _permitted(self, allowed: Any) -> Tensor:
        """Return a checked mask of parts; a last axis for labels may be missing."""
        given, shape, axes = as_tensor("allowed", allowed, self._device), self._inputs[0].shape, self._axes.split()
        for_all = axes[-1] == "L" and given.ndim < len(shape)  # labels
        axes = axes[: len(shape) - for_all]
        mask = bool_mask("allowed", given, " ".join(axes), self._device, **dict(zip(axes, shape, strict=False)))
        return mask[..., None] if for_all else mask

    @property
    def _needs_graph(self) -> bool:
        """Return True if results are to be differentiated."""
        return torch.is_grad_enabled() and any(x.requires_grad for x in self._inputs)

    def _viterbi(self) -> tuple[Tensor, Tensor]:
        """Return the best structures (B, ..) and their scores (B,)."""
        values, scores = self._ranked(1)
        return values[:, 0], scores[:, 0]

    def _is_alike(self, other: Any) -> bool:
        """Return True if both distributions are over the same structures."""
        shapes = [[x.shape for x in d._inputs] if type(d) is type(self) else None for d in (self, other)]
        return shapes[0] == shapes[1] and torch.equal(self.lengths, other.lengths)

    def _expected_score(self, moments: Any) -> Tensor:
        """Return E[score] (B,) under given moments, whose expectations are those of the inputs; -inf counts as 0."""
        return reduce(add, map(expectation, moments[1:], self._inputs))

    def _sums(self) -> Any:
        """Return log Z (float64), marginals, and expectations without those that cost much memory."""
        return self._moments()

    def _moments_for(self, other: Self) -> Any:
        """Return moments that determine the expected scores of both distributions."""
        return self._moments()

    def _forbidden_by(self, other: Self) -> "Distribution":
        """Return the structures that are possible here, scored by the number of their parts that ``other`` forbids."""
        return self._like(*map(forbidden, self._inputs, other._inputs), **self._counting)

    def _named(self, value: Tensor, labels: Sequence[str]) -> list[Any]:
        """Return one structure with names: here the label of each position that is not padding."""
        return [labels[k] for k in value.tolist() if k >= 0]

    def _best(self, value: Tensor, ranks: bool = False) -> Best:
        """Return structures (B, ..), or with ``ranks`` (B, k, ..), and how to compute their log-probabilities."""
        if not ranks:
            return Best(value, lambda: self.log_prob(value))

        def log_prob() -> Tensor:
            missing = (value < 0).flatten(2).all(dim=2)  # then the best one stands in
            there = torch.where(missing.reshape(*missing.shape, *[1] * (value.ndim - 2)), value[:, :1], value)
            return self.log_prob(there.movedim(1, 0)).movedim(0, 1).masked_fill(missing, -torch.inf)

        return Best(value, log_prob)

    def _check_possible(self, log_values: Tensor, what: str) -> None:
        check_possible(host(log_values), what, **self._nouns)

    def _tensor(self, values: Any) -> Tensor:
        tensor = torch.from_numpy(values)
        return tensor if self._device == CPU else tensor.to(self._device)

    def _with_scores(self, values: Any, scores: Any) -> tuple[Tensor, Tensor]:
        return self._tensor(values), self._tensor(scores.astype(ARRAYS[self._dtype], copy=False))

    def _inside(self, n: int, first: int = 0) -> Tensor:
        """Return which of n positions (B, n), from the ``first`` on, are not padding."""
        return torch.arange(first, first + n, device=self._device) < self.lengths[:, None]


@register_kl(Distribution, Distribution)
def _kl(p: Distribution, q: Distribution) -> Tensor:
    return p.kl(q)
