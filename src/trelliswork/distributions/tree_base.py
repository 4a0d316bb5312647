"""Base of projective and non-projective dependency trees: queries on arc scores, with or without labels."""

from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from trelliswork.compute.checks import check_count, check_lengths, check_possible, check_scores, check_shape
from trelliswork.distributions.base import Distribution, Structure
from trelliswork.distributions.tensors import (
    bool_mask,
    choose_backend,
    draw_labels,
    draw_seeds,
    expectation,
    floats,
    host,
    sum_labels,
)
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.tree import Potentials, arcs, check_arcs
from trelliswork.inference.tree.autograd import Engine, arrays, log_partition
from trelliswork.inference.tree.passes import TREES


class TreeExpectations(NamedTuple):
    """log Z (B,) and the marginals of arcs (B, n+1, n+1), with labels (B, n+1, n+1, L)."""

    log_z: Tensor
    marginals: Tensor


class DependencyTree(Distribution):
    """Base class of ``ProjectiveTree`` and ``SpanningTree``, which document the parameters."""

    engine: ClassVar[Engine]
    projective: ClassVar[bool]
    noise: ClassVar[float] = 0.0  # marginals up to this may be rounding errors of zero

    def __init__(
        self,
        log_arc: Any,
        *,
        lengths: Any = None,
        single_root: bool = True,
        allowed: Any = None,
        forced: Any = None,
        backend: str = "auto",
    ) -> None:
        scores = floats("log_arc", log_arc)
        if scores.ndim not in (3, 4) or scores.shape[-1] == 0:
            raise ShapeError(
                f"log_arc must have shape (B, n+1, n+1), or (B, n+1, n+1, L) with labels, got {tuple(scores.shape)}."
            )
        B, n = check_arcs("log_arc", tuple(scores.shape[:3]))
        device = scores.device
        self.backend = choose_backend(backend, device)
        self.single_root = bool(single_root)
        counts = check_lengths(host(lengths), B, n)
        self.lengths = torch.as_tensor(counts, device=device)
        if not float(host(scores.detach()).max()) < np.inf:  # nan or inf is allowed in the padding
            valid = arcs(counts, n)
            check_scores("log_arc", host(scores.detach()), valid)
            on_device = torch.as_tensor(valid, device=device)
            scores = torch.where(on_device if scores.ndim == 3 else on_device[..., None], scores, 0)
        for mask in (self._allowed_mask(allowed, scores), self._forced_mask(forced, scores)):
            if mask is not None:
                scores = scores.masked_fill(~mask, -torch.inf)
        self.log_arc = scores
        self._log_sum = scores if scores.ndim == 3 else sum_labels(scores)  # (B, n+1, n+1)
        self._potentials = Potentials(arrays(self._log_sum), counts, self.single_root)

    def __repr__(self) -> str:
        B, N = self.log_arc.shape[:2]
        labels = f", L={self.log_arc.shape[3]}" if self.labeled else ""
        root = "single root" if self.single_root else "several roots"
        return f"{type(self).__name__}(B={B}, n={N - 1}{labels}, {root}, backend={self.backend!r})"

    @property
    def labeled(self) -> bool:
        """Return True if arcs have labels; structures are then pairs (head, label)."""
        return self.log_arc.ndim == 4

    def log_partition(self) -> Tensor:
        """Return log Z (B,); -inf for a sentence without a possible tree. Its gradient is the marginals."""
        return self._log_z().to(self.log_arc.dtype)

    def marginals(self) -> Tensor:
        """Return p(h -> d) (B, n+1, n+1) or (B, n+1, n+1, L); zero in the padding and for impossible sentences."""
        return self._moments()[1]

    def expectations(self) -> TreeExpectations:
        """Return log Z (B,) and the marginals, from one pass."""
        log_z, marginals = self._moments()
        return TreeExpectations(log_z.to(marginals.dtype), marginals)

    def argmax(self) -> Structure:
        """Return the best tree, heads (B, n) or, with labels, (B, n, 2), -1 in the padding; and its score (B,)."""
        if not self.labeled:
            heads, scores = self.engine.best(self._potentials)
            return Structure(self._tensor(heads), self._tensor(scores).to(self.log_arc.dtype))
        best = self.topk(1)
        return Structure(best.labels[:, 0], best.scores[:, 0])

    def topk(self, k: int) -> Structure:
        """Return the k best trees (B, k, n), all different, and their scores (B, k); -1 and -inf if there are fewer."""
        check_count("k", k)
        if not self.labeled:
            options = self._potentials.log_arc[..., None]
            heads, _, scores = self.engine.topk(self._potentials, options, k)
            return Structure(self._tensor(heads), self._tensor(scores).to(self.log_arc.dtype))
        best = self.log_arc.detach().topk(min(k, self.log_arc.shape[3]), dim=3)
        options, which = arrays(best.values), host(best.indices)
        heads, ranks, scores = self.engine.topk(self._potentials, options, k)
        B, _, n = heads.shape
        at = np.arange(B)[:, None, None], heads.clip(min=0), np.arange(1, n + 1)[None, None], ranks.clip(min=0)
        trees = np.stack([heads, np.where(heads >= 0, which[at], -1)], axis=3)
        return Structure(self._tensor(trees), self._tensor(scores).to(self.log_arc.dtype))

    def mbr(self) -> Structure:
        """Return the tree with the most expected hits (arcs, with labels if present), and that number (B,)."""
        with torch.no_grad():
            _, marginals = self._moments()
        labels = marginals.argmax(dim=3) if self.labeled else None
        hits = arrays(marginals.amax(dim=3) if self.labeled else marginals)
        hits = np.where(self._potentials.log_arc > -np.inf, hits, -np.inf)
        heads, scores = self.engine.best(Potentials(hits, self._potentials.lengths, self.single_root))
        tree = self._tensor(heads)
        if labels is not None:
            word = torch.arange(1, heads.shape[1] + 1, device=tree.device)
            batch = torch.arange(len(heads), device=tree.device)[:, None]
            tree = torch.stack([tree, labels[batch, tree.clamp(min=0), word].masked_fill(tree < 0, -1)], dim=2)
        return Structure(tree, self._tensor(scores).to(self.log_arc.dtype))

    def sample(self, n: int = 1, *, generator: torch.Generator | None = None) -> Tensor:
        """Return n exact, independent trees (n, B, n_words) of each sentence; seed the ``generator`` to repeat them."""
        check_count("n", n)
        B, N = self.log_arc.shape[:2]
        heads = self._tensor(self.engine.sample(self._potentials, draw_seeds(n, self.lengths, generator)))
        if not self.labeled:
            return heads
        batch = torch.arange(B, device=heads.device)[None, :, None]
        word = torch.arange(1, N, device=heads.device)
        scores = self.log_arc.detach().double()[batch, heads.clamp(min=0), word]  # (n, B, n_words, L)
        drawn = draw_labels(scores, generator, heads.shape)
        return torch.stack([heads, drawn.masked_fill(heads < 0, -1)], dim=3)

    def entropy(self) -> Tensor:
        """Return the entropy in nats (B,): log Z minus the expected score."""
        double = self._double()
        log_z, marginals = double._moments()
        check_possible(host(log_z.detach()), "no entropy", **TREES)
        return (log_z - expectation(marginals, double.log_arc)).to(self.log_arc.dtype)

    def log_prob(self, structure: Tensor) -> Tensor:
        """Return log p(y) (B,) of heads (B, n) or, with labels, (B, n, 2); -inf if they are not such a tree."""
        log_z = self._log_z()
        check_possible(host(log_z.detach()), "no probabilities", **TREES)
        heads, labels = self._parts(structure, lowest=0)
        words = self._words()
        word = torch.arange(1, self.log_arc.shape[1], device=heads.device).expand_as(heads)
        batch = torch.arange(len(heads), device=heads.device)[:, None].expand_as(heads)
        at: tuple[Tensor, ...] = (batch, heads.masked_fill(~words, 0), word)
        if labels is not None:
            at = (*at, labels.masked_fill(~words, 0))
        score = self.log_arc[at].double().masked_fill(~words, 0).sum(dim=1)
        score = torch.where(self._is_tree(heads), score, -torch.inf)
        return (score - log_z).to(self.log_arc.dtype)

    def kl(self, other: Self) -> Tensor:
        """Return KL(self || other) in nats (B,); inf where ``other`` forbids what ``self`` allows."""
        same = type(self) is type(other) and self.single_root == other.single_root
        if not same or self.log_arc.shape != other.log_arc.shape or not torch.equal(self.lengths, other.lengths):
            raise ShapeError(f"kl needs two distributions over the same trees, got {self} and {other}.")
        p, q = self._double(), other._double()
        log_z, marginals = p._moments()
        log_z_other = q._log_z()
        for value in (log_z, log_z_other):
            check_possible(host(value.detach()), "no divergence", **TREES)
        sure = torch.where(marginals > self.noise, marginals, 0)
        score = expectation(sure, p.log_arc) - expectation(sure, q.log_arc)
        return (score - log_z + log_z_other).to(self.log_arc.dtype)

    def condition(self, *, allowed: Any = None, labels: Any = None, forced: Any = None) -> Self:
        """Return the distribution given evidence; the difference of the log partitions is its log probability.

        Parameters
        ----------
        allowed : Tensor of bool (B, n+1, n+1) or, with labels, (B, n+1, n+1, L), optional
            Arcs that a tree may have.
        labels : Tensor of int (B, n) or, with labels, (B, n, 2), optional
            Known heads (and labels); -1 for unknown.
        forced : Tensor of bool (B, n+1, n+1), optional
            Arcs that a tree must have.
        """
        mask = self._allowed_mask(allowed, self.log_arc)
        if labels is not None:
            heads, names = self._parts(labels, lowest=-1)
            node = torch.arange(self.log_arc.shape[1], device=self.log_arc.device)
            known = torch.nn.functional.pad(heads, (1, 0), value=-1)[:, None, :]
            fits = (known < 0) | (known == node[:, None])
            if names is not None:
                name = torch.nn.functional.pad(names, (1, 0), value=-1)[:, None, :, None]
                label = torch.arange(self.log_arc.shape[3], device=self.log_arc.device)
                fits = fits[..., None] & ((name < 0) | (name == label))
            mask = fits if mask is None else mask & fits
        return type(self)(
            self.log_arc, lengths=self.lengths, single_root=self.single_root, allowed=mask, forced=forced,
            backend=self.backend,
        )  # fmt: skip

    def _log_z(self) -> Tensor:
        """Return log Z (B,) in float64."""
        if self.backend == "torch":
            return self.engine.torch_log_partition(self._log_sum, self.lengths, self.single_root)
        return log_partition(self.engine, self._log_sum, self.lengths, self._potentials)

    def _moments(self) -> tuple[Tensor, Tensor]:
        """Return log Z (float64) and marginals; if gradients are needed, these can be differentiated again."""
        needs_graph = torch.is_grad_enabled() and self.log_arc.requires_grad
        if self.backend == "kernel" and not needs_graph:
            value, marginals = self.engine.expectations(self._potentials)
            # NumPy, because torch would start its own threads, which then compete with ours.
            scores = self.log_arc.detach().numpy()
            if self.labeled:
                total = self._potentials.log_arc[..., None]
                marginals = marginals[..., None] * np.exp(scores - np.where(total > -np.inf, total, 0.0))
            return torch.from_numpy(value), torch.from_numpy(marginals.astype(scores.dtype, copy=False))
        if needs_graph:
            log_z = self._log_z()
            (gradient,) = torch.autograd.grad(log_z.sum(), self.log_arc, create_graph=True, materialize_grads=True)
            return log_z, gradient
        with torch.enable_grad():
            leaf = self.log_arc.detach().requires_grad_()
            log_z = type(self)(leaf, lengths=self.lengths, single_root=self.single_root, backend="torch")._log_z()
            (gradient,) = torch.autograd.grad(log_z.sum(), leaf, materialize_grads=True)
        return log_z.detach(), gradient

    def _double(self) -> Self:
        """Return the same distribution in float64, for differences of large scores."""
        if self.log_arc.dtype == torch.float64:
            return self
        return type(self)(
            self.log_arc.double(), lengths=self.lengths, single_root=self.single_root, backend=self.backend
        )

    def _tensor(self, values: Any) -> Tensor:
        return torch.from_numpy(values).to(self.log_arc.device)

    def _words(self) -> Tensor:
        """Return words (B, n) that are not padding."""
        return torch.arange(self.log_arc.shape[1] - 1, device=self.log_arc.device) < self.lengths[:, None]

    def _allowed_mask(self, allowed: Any, scores: Tensor) -> Tensor | None:
        if allowed is None:
            return None
        mask = torch.as_tensor(allowed, device=scores.device)
        if scores.ndim == 4 and mask.ndim == 3:
            mask = mask[..., None].expand(scores.shape)
        sizes = dict(zip("BNL", (*scores.shape[:2], *scores.shape[3:]), strict=False))
        return bool_mask("allowed", mask, "B N N L" if scores.ndim == 4 else "B N N", scores.device, **sizes)

    def _forced_mask(self, forced: Any, scores: Tensor) -> Tensor | None:
        """Return arcs that agree with the forced ones: a word with a forced arc has no other."""
        if forced is None:
            return None
        B, N = scores.shape[:2]
        mask = bool_mask("forced", forced, "B N N", scores.device, B=B, N=N)
        fits = mask | ~mask.any(dim=1, keepdim=True)
        fits = fits & (mask.sum(dim=1, keepdim=True) < 2)  # two heads for one word: no tree
        return fits if scores.ndim == 3 else fits[..., None]

    def _parts(self, structure: Any, lowest: int) -> tuple[Tensor, Tensor | None]:
        """Return checked heads (B, n) and, if arcs have labels, labels (B, n)."""
        given = torch.as_tensor(structure).to(self.log_arc.device)
        B, N = self.log_arc.shape[:2]
        if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
            raise ValueRangeError(f"heads must be integers, got {given.dtype}.")
        parts: list[tuple[Tensor, Any, str]]
        if self.labeled:
            check_shape("heads and labels", given.shape, "B n K", B=B, n=N - 1, K=2)
            parts = [
                (given[..., 0], self.lengths[:, None], "heads"),
                (given[..., 1], self.log_arc.shape[3] - 1, "labels"),
            ]
        else:
            check_shape("heads", given.shape, "B n", B=B, n=N - 1)
            parts = [(given, self.lengths[:, None], "heads")]
        for values, highest, name in parts:
            bad = ((values < lowest) | (values > highest)) & self._words()
            if bad.any():
                b, d = bad.nonzero()[0].tolist()
                top = int(self.lengths[b]) if name == "heads" else highest
                raise ValueRangeError(
                    f"{name} must be between {lowest} and {top}, got {int(values[b, d])} at ({b}, {d})."
                )
        return parts[0][0].long(), parts[1][0].long() if self.labeled else None

    def _is_tree(self, heads: Tensor) -> Tensor:
        """Return True (B,) where heads are a tree of this kind."""
        words = self._words()
        n = heads.shape[1]
        above = torch.nn.functional.pad(heads.masked_fill(~words, 0), (1, 0))  # (B, n+1), the root above itself
        far = above
        for _ in range(n.bit_length()):
            far = far.gather(1, far)
        good = (far == 0).all(dim=1)
        if self.single_root:
            good &= ((heads == 0) & words).sum(dim=1) == 1
        if self.projective:
            word = torch.arange(1, n + 1, device=heads.device)
            low, high = torch.minimum(heads, word), torch.maximum(heads, word)
            crossing = (
                (low[:, :, None] < low[:, None])
                & (low[:, None] < high[:, :, None])
                & (high[:, :, None] < high[:, None])
            )
            good &= ~(crossing & words[:, :, None] & words[:, None]).any(dim=2).any(dim=1)
        return good
