"""Distributions over binary bracketings: trees of spans with scores."""

from typing import Any, Self

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
from trelliswork.distributions.tree_base import TreeExpectations
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.span import autograd, brackets, torch_path

TREES = {"noun": "tree of sentence", "parts": "spans"}  # for error messages


class SpanTree(Distribution):
    r"""Binary trees over a sentence, scored by their spans.

    .. math:: p(y) \propto \exp\Big(\sum_{(i, j) \in y} s(i, j)\Big)

    Parameters
    ----------
    log_span : Tensor (B, n, n) or (B, n, n, L)
        ``log_span[b, i, j]`` is the score of the span from position i to j, both included, i <= j; -inf forbids it.
        With a fourth axis, spans have one of L labels, each with its own score. Entries below the diagonal are ignored.
    lengths : Tensor of int (B,), optional
        Length of each sentence, 1 to n; all n by default. The padding is ignored.
    allowed : Tensor of bool (B, n, n) or (B, n, n, L), optional
        Spans that a tree may have.
    backend : {"auto", "kernel", "torch"}
        ``auto`` uses compiled kernels for CPU tensors. ``torch`` computes log Z and marginals by torch operations on
        the tensors' device; best trees and samples are always computed on the CPU.

    Notes
    -----
    A tree has 2n - 1 spans: every single position, the whole sentence, and each longer span consists of two neighbors.
    Time O(n^3), memory O(n^2) per sentence, in log space and float64. Trees are charts (B, n, n): entry [i, j] is the
    label of the span (0 without labels), or -1 if the tree has no such span. ``log_partition``, ``marginals``,
    ``entropy``, ``log_prob`` and ``kl`` are differentiable. For grammars see ``GrammarTree``.

    Examples
    --------
    >>> import torch
    >>> round(SpanTree(torch.zeros(1, 5, 5)).log_partition().exp().item())  # the fourth Catalan number
    14
    """

    def __init__(self, log_span: Any, *, lengths: Any = None, allowed: Any = None, backend: str = "auto") -> None:
        scores = floats("log_span", log_span)
        if scores.ndim not in (3, 4) or 0 in scores.shape:
            raise ShapeError(
                f"log_span must have shape (B, n, n), or (B, n, n, L) with labels, got {tuple(scores.shape)}."
            )
        sizes = check_shape("log_span", scores.shape[:3], "B n n")
        B, n, device = sizes["B"], sizes["n"], scores.device
        self.backend = choose_backend(backend, device)
        counts = check_lengths(host(lengths), B, n)
        self.lengths = torch.as_tensor(counts, device=device)
        if not float(host(scores.detach()).max()) < np.inf:  # nan or inf is allowed where there is no span
            valid = span_mask(counts, n)
            check_scores("log_span", host(scores.detach()), valid)
            on_device = torch.as_tensor(valid, device=device)
            scores = torch.where(on_device if scores.ndim == 3 else on_device[..., None], scores, 0)
        if allowed is not None:
            pattern = "B n n L" if scores.ndim == 4 and torch.as_tensor(allowed).ndim == 4 else "B n n"
            mask = bool_mask("allowed", allowed, pattern, device, **dict(zip("BnnL", scores.shape, strict=False)))
            scores = scores.masked_fill(~(mask if mask.ndim == scores.ndim else mask[..., None]), -torch.inf)
        self.log_span = scores
        self._log_sum = scores if scores.ndim == 3 else sum_labels(scores)

    def __repr__(self) -> str:
        labels = f", L={self.log_span.shape[3]}" if self.labeled else ""
        return f"SpanTree(B={self.log_span.shape[0]}, n={self.log_span.shape[1]}{labels}, backend={self.backend!r})"

    @property
    def labeled(self) -> bool:
        """Return True if spans have labels."""
        return self.log_span.ndim == 4

    def log_partition(self) -> Tensor:
        """Return log Z (B,); -inf for a sentence without a possible tree. Its gradient is the marginals."""
        return self._log_z().to(self.log_span.dtype)

    def marginals(self) -> Tensor:
        """Return p(span in the tree) (B, n, n) or, with labels, (B, n, n, L); zero where there is no span."""
        return self._moments()[1]

    def expectations(self) -> TreeExpectations:
        """Return log Z (B,) and the marginals, from one pass."""
        log_z, marginals = self._moments()
        return TreeExpectations(log_z.to(marginals.dtype), marginals)

    def argmax(self) -> Structure:
        """Return the best tree (CKY): charts (B, n, n) and scores (B,)."""
        best = self.topk(1)
        return Structure(best.labels[:, 0], best.scores[:, 0])

    def topk(self, k: int) -> Structure:
        """Return the k best trees (B, k, n, n), all different, and scores (B, k); -1 and -inf if there are fewer."""
        check_count("k", k)
        scores = self.log_span.detach() if self.labeled else self.log_span.detach()[..., None]
        best = scores.topk(min(k, scores.shape[3]), dim=3)
        ranks, values = brackets.topk(autograd.doubles(best.values), self._counts(), k)
        B, _, n, _ = ranks.shape
        at = np.arange(B)[:, None, None, None], np.arange(n)[:, None], np.arange(n), ranks.clip(min=0)
        labels = np.where(ranks >= 0, host(best.indices)[at], -1)
        return Structure(self._tensor(labels), self._tensor(values).to(self.log_span.dtype))

    def mbr(self) -> Structure:
        """Return the tree with the most expected hits (spans, with labels if present), and that number (B,)."""
        with torch.no_grad():
            _, marginals = self._moments()
        hits = torch.where(torch.isneginf(self.log_span), -torch.inf, marginals.detach())
        return type(self)(hits, lengths=self.lengths, backend=self.backend).argmax()

    def sample(self, n: int = 1, *, generator: torch.Generator | None = None) -> Tensor:
        """Return n exact, independent trees (n, B, n_positions, n_positions); seed the ``generator`` to repeat them."""
        check_count("n", n)
        seeds = draw_seeds(n, self.lengths, generator)
        charts = self._tensor(brackets.sample(autograd.doubles(self._log_sum), self._counts(), seeds))
        if not self.labeled:
            return charts
        drawn = draw_labels(self.log_span.detach().double(), generator, charts.shape)
        return torch.where(charts >= 0, drawn, -1)

    def entropy(self) -> Tensor:
        """Return the entropy in nats (B,): log Z minus the expected score."""
        double = self._double()
        log_z, marginals = double._moments()
        check_possible(host(log_z.detach()), "no entropy", **TREES)
        return (log_z - expectation(marginals, double.log_span)).to(self.log_span.dtype)

    def log_prob(self, structure: Tensor) -> Tensor:
        """Return log p(y) (B,) of charts (B, n, n); -inf if they are not a binary tree."""
        log_z = self._log_z()
        check_possible(host(log_z.detach()), "no probabilities", **TREES)
        charts = self._check_charts(structure)
        _, good = brackets.read(host(charts), self._counts())
        inside = self._spans() & (charts >= 0)
        scores = self.log_span if self.labeled else self.log_span[..., None]
        score = scores.gather(3, charts.clamp(min=0)[..., None])[..., 0].double()
        score = score.masked_fill(~inside, 0).sum(dim=(1, 2))
        return (torch.where(self._tensor(good), score, -torch.inf) - log_z).to(self.log_span.dtype)

    def kl(self, other: Self) -> Tensor:
        """Return KL(self || other) in nats (B,); inf where ``other`` forbids what ``self`` allows."""
        same = type(self) is type(other) and self.log_span.shape == other.log_span.shape
        if not same or not torch.equal(self.lengths, other.lengths):
            raise ShapeError(f"kl needs two distributions over the same trees, got {self} and {other}.")
        p, q = self._double(), other._double()
        log_z, marginals = p._moments()
        log_z_other = q._log_z()
        for value in (log_z, log_z_other):
            check_possible(host(value.detach()), "no divergence", **TREES)
        score = expectation(marginals, p.log_span) - expectation(marginals, q.log_span)
        return (score - log_z + log_z_other).to(self.log_span.dtype)

    def condition(self, *, allowed: Any = None, labels: Any = None) -> Self:
        """Return the distribution given evidence; the difference of the log partitions is its log probability.

        Parameters
        ----------
        allowed : Tensor of bool (B, n, n) or (B, n, n, L), optional
            Spans that a tree may have.
        labels : Tensor of int (B, n, n), optional
            Known spans with their labels; -1 for unknown. A known span forbids those that cross it.
        """
        scores = self.log_span
        if labels is not None:
            charts = self._check_charts(labels)
            mask = self._tensor(compatible(host(charts), self._counts()))
            known = torch.where(self._spans(), charts, -1)
            if self.labeled:
                label = torch.arange(scores.shape[3], device=scores.device)
                mask = mask[..., None] & ((known[..., None] < 0) | (known[..., None] == label))
            scores = scores.masked_fill(~mask, -torch.inf)
        return type(self)(scores, lengths=self.lengths, allowed=allowed, backend=self.backend)

    def _log_z(self) -> Tensor:
        if self.backend == "torch":
            return torch_path.bracket_log_partition(self._log_sum, self.lengths)
        return autograd.bracket_log_partition(self._log_sum, self.lengths)

    def _moments(self) -> tuple[Tensor, Tensor]:
        """Return log Z (float64) and marginals; if gradients are needed, these can be differentiated again."""
        needs_graph = torch.is_grad_enabled() and self.log_span.requires_grad
        if needs_graph:
            log_z = self._log_z()
            (marginals,) = torch.autograd.grad(log_z.sum(), self.log_span, create_graph=True, materialize_grads=True)
            return log_z, marginals
        with torch.enable_grad():
            leaf = self.log_span.detach().requires_grad_()
            log_z = type(self)(leaf, lengths=self.lengths, backend=self.backend)._log_z()
            (marginals,) = torch.autograd.grad(log_z.sum(), leaf, materialize_grads=True)
        return log_z.detach(), marginals

    def _double(self) -> Self:
        if self.log_span.dtype == torch.float64:
            return self
        return type(self)(self.log_span.double(), lengths=self.lengths, backend=self.backend)

    def _tensor(self, values: Any) -> Tensor:
        return torch.from_numpy(values).to(self.log_span.device)

    def _counts(self) -> Any:
        return host(self.lengths)

    def _spans(self) -> Tensor:
        """Return True (B, n, n) for spans of each sentence."""
        return self._tensor(span_mask(self._counts(), self.log_span.shape[1]))

    def _check_charts(self, charts: Any) -> Tensor:
        n_labels = self.log_span.shape[3] if self.labeled else 1
        return check_charts(torch.as_tensor(charts).to(self.log_span.device), self._spans(), n_labels)


def span_mask(lengths: Any, n: int) -> Any:
    """Return True (B, n, n) for spans i..j of each sentence."""
    at = np.arange(n)
    return (at[:, None] <= at) & (at < lengths[:, None])[:, None, :]


def check_charts(charts: Tensor, spans: Tensor, n_labels: int) -> Tensor:
    """Return charts (B, n, n) as int64: labels from 0 to ``n_labels`` - 1 at spans, -1 for none."""
    B, n = spans.shape[:2]
    check_shape("chart", charts.shape, "B n n", B=B, n=n)
    if charts.is_floating_point() or charts.is_complex() or charts.dtype == torch.bool:
        raise ValueRangeError(f"charts must contain integers, got {charts.dtype}.")
    bad = ((charts < -1) | (charts >= n_labels)) & spans
    if bad.any():
        b, i, j = bad.nonzero()[0].tolist()
        raise ValueRangeError(
            f"charts must contain labels from 0 to {n_labels - 1}, or -1 for no span, got {int(charts[b, i, j])} at "
            f"({b}, {i}, {j})."
        )
    return charts.long()


def compatible(charts: Any, lengths: Any) -> Any:
    """Return True (B, n, n) for spans that cross no known span; a tree of such spans has all known spans."""
    mask = np.ones(charts.shape, bool)
    known = (charts >= 0) & span_mask(lengths, charts.shape[1])
    for b, i, j in np.argwhere(known).tolist():
        mask[b, i + 1 : j + 1, j + 1 :] = False
        mask[b, :i, i:j] = False
    return mask
