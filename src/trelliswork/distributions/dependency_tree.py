"""Distributions over dependency trees, projective or not: queries on arc scores, with or without labels."""

from operator import attrgetter
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from trelliswork.compute.checks import check_lengths, check_shape
from trelliswork.distributions.factor_list import doubles as as_doubles
from trelliswork.distributions.tensors import (
    as_tensor,
    check_integers,
    floats,
    host,
)
from trelliswork.distributions.tree_base import PartTree
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.tensors import doubles, finite
from trelliswork.inference.tree import NearlyProjective, Potentials, arcs, check_arcs
from trelliswork.inference.tree.autograd import PROJECTIVE, SPANNING, Engine, log_partition
from trelliswork.inference.tree.passes import TREES
from trelliswork.inference.tree.potentials import are_trees


class DependencyTree(PartTree):
    """Base class of the dependency trees below; ``ProjectiveTree`` documents the parameters."""

    _axes = "B N N L"
    _nouns = TREES
    _engine: Engine | NearlyProjective
    projective: ClassVar[bool]

    def __init__(self, log_arc: Any, *, lengths: Any = None, single_root: bool = True) -> None:
        scores = floats("log_arc", log_arc)
        if scores.ndim not in (3, 4) or scores.shape[-1] == 0:
            raise ShapeError(
                f"log_arc must have shape (B, n+1, n+1), or (B, n+1, n+1, L) with labels, got {tuple(scores.shape)}."
            )
        B, n = check_arcs("log_arc", tuple(scores.shape[:3]))
        counts = check_lengths(host(lengths), B, n)
        self.single_root = bool(single_root)
        self._sizes = (B, n, 2) if scores.ndim == 4 else (B, n)
        self._set_scores("log_arc", scores, counts, lambda: arcs(counts, n))
        self._potentials = Potentials(doubles(self._log_sum), counts, self.single_root)

    log_arc = property(attrgetter("_scores"), doc="Scores of arcs, (B, n+1, n+1) or with labels (B, n+1, n+1, L).")

    def __repr__(self) -> str:
        B, N = self.log_arc.shape[:2]
        labels = f", L={self.log_arc.shape[3]}" if self.labeled else ""
        root = "single root" if self.single_root else "several roots"
        return f"{type(self).__name__}(B={B}, n={N - 1}{labels}, {root})"

    def _viterbi(self) -> tuple[Tensor, Tensor]:
        return super()._viterbi() if self.labeled else self._with_scores(*self._engine.best(self._potentials))

    def _search(self, scores: Any, k: int) -> tuple[Any, Any, Any]:
        return self._engine.topk(self._potentials, scores, k)

    def _sampled(self, seeds: Any) -> Any:
        return self._engine.sample(self._potentials, seeds)

    def _join(self, trees: Tensor, labels: Tensor) -> Tensor:
        return torch.stack([trees, labels.masked_fill(trees < 0, -1)], dim=-1)

    def _agreeing(self, known: Any) -> Tensor:
        heads, names = self._parts(known, lowest=-1)
        node = torch.arange(self.log_arc.shape[1], device=self._device)
        given = torch.nn.functional.pad(heads, (1, 0), value=-1)[:, None, :]
        fits = (given < 0) | (given == node[:, None])
        if names is None:
            return fits
        name = torch.nn.functional.pad(names, (1, 0), value=-1)[:, None, :, None]
        return fits[..., None] & ((name < 0) | (name == torch.arange(self.log_arc.shape[3], device=self._device)))

    def _named(self, value: Tensor, labels: Any) -> list[Any]:
        """Return a head, or a head and the name of a label, for each word."""
        rows = [row for row in value.tolist() if (row[0] if self.labeled else row) >= 0]
        return [(head, labels[k]) for head, k in rows] if self.labeled else rows

    @property
    def _options(self) -> dict[str, Any]:
        return {"lengths": self.lengths, "single_root": self.single_root}

    def _log_z(self) -> Tensor:
        assert isinstance(self._engine, Engine)
        return self._log_z_of(self._engine)

    def _log_z_of(self, engine: Engine) -> Tensor:
        if self._by_torch:
            return engine.torch_log_partition(self._log_sum, self.lengths, self.single_root)
        return log_partition(engine, self._log_sum, self.lengths, self._potentials)

    def _moments(self) -> tuple[Tensor, ...]:
        if self._by_torch or self._needs_graph:
            return super()._moments()
        value, marginals = self._engine.expectations(self._potentials)
        # NumPy, because torch would start its own threads, which then compete with ours.
        scores = self.log_arc.detach().numpy()
        if self.labeled:
            total = self._potentials.log_arc[..., None]
            marginals = marginals[..., None] * np.exp(scores - np.where(total > -np.inf, total, 0.0))
        return torch.from_numpy(value), torch.from_numpy(marginals.astype(scores.dtype, copy=False))

    def _score(self, structure: Any) -> Tensor:
        """Return the score (B,) of heads (B, n) or, with labels, (B, n, 2); -inf if they are not such a tree."""
        heads, labels = self._parts(structure, lowest=0)
        words = self._words()
        at = self._places(heads.masked_fill(~words, 0))
        if labels is not None:
            at = (*at, labels.masked_fill(~words, 0))
        score = self.log_arc[at].double().masked_fill(~words, 0).sum(dim=1)
        kind = {"projective": self.projective, "single_root": self.single_root}
        good = are_trees(host(heads), host(self.lengths), **kind)
        return torch.where(self._tensor(good), score, -torch.inf)

    def _is_alike(self, other: Self) -> bool:
        return super()._is_alike(other) and self.single_root == other.single_root

    def _places(self, heads: Tensor) -> tuple[Tensor, ...]:
        """Return indices of sentence, head (0 in the padding) and word of the arcs from heads (.., B, n)."""
        B, n = heads.shape[-2:]
        batch, word = torch.arange(B, device=self._device)[:, None], torch.arange(1, n + 1, device=self._device)
        return batch, heads.clamp(min=0), word

    def _words(self) -> Tensor:
        """Return words (B, n) that are not padding."""
        return self._inside(self.log_arc.shape[1] - 1)

    def _parts(self, structure: Any, lowest: int) -> tuple[Tensor, Tensor | None]:
        """Return checked heads (B, n) and, if arcs have labels, labels (B, n)."""
        given, words = as_tensor("heads", structure, self._device), self._words()
        shape, most = tuple(words.shape), self.lengths[:, None]
        if not self.labeled:
            return check_integers("heads", given, shape, lowest, most, words), None
        check_shape("heads and labels", given.shape, "B n K", B=shape[0], n=shape[1], K=2)
        labels = check_integers("labels", given[..., 1], shape, lowest, self.log_arc.shape[3] - 1, words)
        return check_integers("heads", given[..., 0], shape, lowest, most, words), labels


class ProjectiveTree(DependencyTree):
    r"""Projective dependency trees scored by their arcs: no two arcs cross when drawn above the sentence.

    .. math:: p(h) \propto \exp\Big(\sum_{d=1}^n s(h_d, d)\Big)

    Parameters
    ----------
    log_arc : Tensor (B, n+1, n+1) or (B, n+1, n+1, L)
        ``log_arc[b, h, d]`` is the score of the arc from head h to word d; node 0 is the root. -inf forbids an arc.
        With a fourth axis, arcs have one of L labels, each with its own score. The diagonal and column 0 are ignored.
    lengths : Tensor of int (B,), optional
        Number of words of each sentence, 1 to n; all n by default. The padding is ignored.
    single_root : bool
        True if exactly one word depends on node 0, False if any number may.

    Notes
    -----
    Eisner (1996, 2000). Time O(n^3), memory O(n^2) per sentence. float32 or float64, computed in float64; scores of any
    size. Trees are heads (B, n): ``heads[b, d - 1]`` is the head of word d, -1 in the padding; with labels they are
    pairs (B, n, 2) of head and label. ``log_partition``, ``marginals``, ``entropy``, ``log_prob`` and ``kl`` are
    differentiable. ``condition`` takes known heads, or heads and labels, -1 for unknown.

    Examples
    --------
    >>> import torch
    >>> trees = ProjectiveTree(torch.zeros(1, 4, 4), single_root=False)
    >>> round(trees.log_partition().exp().item())  # 12 projective trees over three words
    12
    >>> scores = torch.zeros(1, 4, 4)
    >>> scores[0, 0, 2] = scores[0, 2, 1] = scores[0, 2, 3] = 1.0
    >>> ProjectiveTree(scores).mode.tolist()
    [[2, 0, 2]]
    """

    _engine = PROJECTIVE
    projective = True


class SpanningTree(DependencyTree):
    r"""Dependency trees scored by their arcs, projective or not: spanning trees of a directed graph.

    .. math:: p(h) \propto \exp\Big(\sum_{d=1}^n s(h_d, d)\Big)

    Parameters and structures are those of `ProjectiveTree`.

    Notes
    -----
    log Z is the determinant of the Laplacian (matrix-tree theorem), computed by an elimination without subtractions, so
    that scores of any size are exact. Time O(n^3), memory O(n^2) per sentence. ``argmax`` is Chu-Liu-Edmonds, O(n^2);
    ``topk`` partitions the set of trees, O(k n^3). Marginals have errors of up to about 1e-12, also where an arc is
    impossible. float32 or float64, computed in float64.

    Examples
    --------
    >>> import torch
    >>> round(SpanningTree(torch.zeros(1, 4, 4), single_root=False).log_partition().exp().item())  # (n + 1) ** (n - 1)
    16
    >>> round(SpanningTree(torch.zeros(1, 4, 4)).log_partition().exp().item())  # n ** (n - 1) with a single root
    9
    """

    _engine: Engine | NearlyProjective = SPANNING
    projective = False


class NearlyProjectiveTree(SpanningTree):
    r"""Dependency trees scored by their arcs, where a tree with crossing arcs has a cost.

    .. math:: p(h) \propto \exp\Big(\sum_{d=1}^n s(h_d, d) - \gamma\, [h \text{ has crossing arcs}]\Big)

    It is a mixture of `ProjectiveTree` and `SpanningTree` with the same scores: with the cost 0 the latter, with a
    large cost nearly the former. Other parameters and structures are those of `ProjectiveTree`.

    Parameters
    ----------
    crossing_cost : float or array (B,)
        :math:`\gamma` of each sentence, finite and at least 0. It has no gradient.

    Notes
    -----
    :math:`Z = (1 - e^{-\gamma}) Z_{proj} + e^{-\gamma} Z_{all}`; all queries are exact, and take the time of both kinds
    of trees.

    Examples
    --------
    >>> import math, torch
    >>> trees = NearlyProjectiveTree(torch.zeros(1, 5, 5), math.log(2))  # of 64 trees with a single root, 34 cross
    >>> round(trees.log_partition().exp().item(), 3)
    47.0
    """

    _counting: ClassVar[dict[str, Any]] = {"crossing_cost": 0.0}
    _engine: NearlyProjective

    def __init__(self, log_arc: Any, crossing_cost: Any = 0.0, **options: Any) -> None:
        super().__init__(log_arc, **options)
        B = len(self.log_arc)
        cost = as_doubles("crossing_cost", crossing_cost).detach().numpy()
        if cost.ndim and cost.shape != (B,):
            raise ShapeError(f"crossing_cost must be a number or have shape ({B},), got shape {cost.shape}.")
        if not ((cost >= 0) & (cost < np.inf)).all():
            raise ValueRangeError(f"crossing_cost must be finite and at least 0, got {crossing_cost!r}.")
        self._engine = NearlyProjective(np.broadcast_to(cost, (B,)).copy())

    @property
    def crossing_cost(self) -> Tensor:
        """Cost of crossing arcs (B,) of each sentence."""
        return self._tensor(self._engine.cost)

    def crossing_probability(self) -> Tensor:
        """Return p(the tree has crossing arcs) (B,)."""
        return self._crossing(self._log_z()).to(self._dtype)

    @property
    def _options(self) -> dict[str, Any]:
        return super()._options | {"crossing_cost": self.crossing_cost}

    def _log_z(self) -> Tensor:
        return self._mixed(self._log_z_of(PROJECTIVE), self._log_z_of(SPANNING))

    def _mixed(self, few: Tensor, many: Tensor) -> Tensor:
        """Return log Z (B,) from those of projective and of all trees."""
        flat, every = torch.log(-torch.expm1(-self.crossing_cost)) + few, finite(many) - self.crossing_cost
        both = torch.where(torch.isneginf(flat), every, torch.logaddexp(finite(flat), every))
        return torch.where(torch.isneginf(many), many, both)

    def _moments(self) -> tuple[Tensor, ...]:
        log_z, marginals = super()._moments()
        return log_z, marginals, self._crossing(log_z)

    def _crossing(self, log_z: Tensor) -> Tensor:
        """Return p(crossing arcs) (B,), 0 where no tree is possible."""
        nothing = torch.isneginf(log_z)
        flat = (self._log_z_of(PROJECTIVE) - log_z.masked_fill(nothing, 0)).clamp(max=0)
        return (-torch.expm1(flat)).masked_fill(nothing, 0)

    def _expected_score(self, moments: tuple[Tensor, ...]) -> Tensor:
        return super()._expected_score(moments) - self.crossing_cost * moments[2]

    def _score(self, structure: Any) -> Tensor:
        heads = self._parts(structure, lowest=0)[0]
        penalties = self._engine.penalties(host(heads), host(self.lengths))
        return super()._score(structure) - self._tensor(penalties)
