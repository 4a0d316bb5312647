"""Distributions over binary bracketings: trees of spans with scores."""

from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trelliswork.compute.checks import check_lengths, check_shape
from trelliswork.distributions.tensors import check_integers, floats, host
from trelliswork.distributions.tree_base import PartTree
from trelliswork.errors import ShapeError
from trelliswork.inference.span import autograd, brackets, torch_path
from trelliswork.inference.tensors import doubles


class SpanTree(PartTree):
    r"""Binary trees over a sentence, scored by their spans.

    .. math:: p(y) \propto \exp\Big(\sum_{(i, j) \in y} s(i, j)\Big)

    Parameters
    ----------
    log_span : Tensor (B, n, n) or (B, n, n, L)
        ``log_span[b, i, j]`` is the score of the span from position i to j, both included, i <= j; -inf forbids it.
        With a fourth axis, spans have one of L labels, each with its own score. Entries below the diagonal are ignored.
    lengths : Tensor of int (B,), optional
        Length of each sentence, 1 to n; all n by default. The padding is ignored.

    Notes
    -----
    A tree has 2n - 1 spans: every single position, the whole sentence, and each longer span consists of two neighbors.
    Time O(n^3), memory O(n^2) per sentence, in log space and float64. Trees are charts (B, n, n): entry [i, j] is the
    label of the span (0 without labels), or -1 if the tree has no such span. ``log_partition``, ``marginals``,
    ``entropy``, ``log_prob`` and ``kl`` are differentiable. ``condition`` takes known spans with their labels, a chart
    with -1 for unknown; a known span forbids those that cross it. For grammars see ``GrammarTree``.

    Examples
    --------
    >>> import torch
    >>> round(SpanTree(torch.zeros(1, 5, 5)).log_partition().exp().item())  # the fourth Catalan number
    14
    """

    _axes = "B n n L"
    _nouns = brackets.TREES

    def __init__(self, log_span: Any, *, lengths: Any = None) -> None:
        scores = floats("log_span", log_span)
        if scores.ndim not in (3, 4) or 0 in scores.shape:
            raise ShapeError(
                f"log_span must have shape (B, n, n), or (B, n, n, L) with labels, got {tuple(scores.shape)}."
            )
        sizes = check_shape("log_span", scores.shape[:3], "B n n")
        counts = check_lengths(host(lengths), sizes["B"], sizes["n"])
        self._sizes = sizes["B"], sizes["n"], sizes["n"]
        self._set_scores("log_span", scores, counts, lambda: span_mask(counts, sizes["n"]))

    log_span = property(attrgetter("_scores"), doc="Scores of spans, (B, n, n) or with labels (B, n, n, L).")

    def __repr__(self) -> str:
        labels = f", L={self.log_span.shape[3]}" if self.labeled else ""
        return f"SpanTree(B={self.log_span.shape[0]}, n={self.log_span.shape[1]}{labels})"

    def _search(self, scores: Any, k: int) -> tuple[Any, Any, Any]:
        charts, values = brackets.topk(scores, host(self.lengths), k)
        return charts, charts, values

    def _sampled(self, seeds: Any) -> Any:
        return brackets.sample(doubles(self._log_sum), host(self.lengths), seeds)

    def _places(self, trees: Tensor) -> tuple[Tensor, ...]:
        B, n = trees.shape[-3:-1]
        batch, at = torch.arange(B, device=self._device), torch.arange(n, device=self._device)
        return batch[:, None, None], at[:, None], at

    def _join(self, trees: Tensor, labels: Tensor) -> Tensor:
        return torch.where(trees >= 0, labels, -1)

    def _agreeing(self, known: Any) -> Tensor:
        fits = compatible(self._check_charts(known), self.lengths, self.log_span.shape[3] if self.labeled else 1)
        return fits if self.labeled else fits[..., 0]

    def _named(self, value: Tensor, labels: Any) -> list[Any]:
        return named_spans(value, labels if self.labeled else None)

    def _log_z(self) -> Tensor:
        module = torch_path if self._by_torch else autograd
        return module.bracket_log_partition(self._log_sum, self.lengths)

    def _score(self, structure: Any) -> Tensor:
        """Return the score (B,) of charts (B, n, n); -inf if they are not a binary tree."""
        charts = self._check_charts(structure)
        _, good = brackets.read(host(charts), host(self.lengths))
        inside = span_mask_of(self.lengths, charts.shape[1]) & (charts >= 0)
        scores = self.log_span if self.labeled else self.log_span[..., None]
        score = scores.gather(3, charts.clamp(min=0)[..., None])[..., 0].double()
        score = score.masked_fill(~inside, 0).sum(dim=(1, 2))
        return torch.where(self._tensor(good), score, -torch.inf)

    def _check_charts(self, charts: Any) -> Tensor:
        return check_charts(charts, self.lengths, self.log_span.shape[1], self.log_span.shape[3] if self.labeled else 1)


def named_spans(chart: Tensor, labels: Any) -> list[Any]:
    """Return (start, stop, label), or (start, stop) without labels, of the spans of a chart, outer ones first."""
    spans = sorted((chart >= 0).nonzero().tolist(), key=lambda span: (span[0], -span[1]))
    return [(i, j + 1, labels[int(chart[i, j])]) if labels else (i, j + 1) for i, j in spans]


def span_mask(lengths: Any, n: int) -> Any:
    """Return True (B, n, n) for spans i..j of each sentence."""
    at = np.arange(n)
    return (at[:, None] <= at) & (at < lengths[:, None])[:, None, :]


def span_mask_of(lengths: Tensor, n: int) -> Tensor:
    """Return `span_mask` as a tensor on the device of the lengths."""
    return torch.from_numpy(span_mask(host(lengths), n)).to(lengths.device)


def check_charts(given: Any, lengths: Tensor, n: int, n_labels: int) -> Tensor:
    """Return charts (B, n, n) as int64: labels from 0 to ``n_labels`` - 1 at spans, -1 for none."""
    return check_integers("charts", given, (len(lengths), n, n), -1, n_labels - 1, span_mask_of(lengths, n))


def compatible(charts: Tensor, lengths: Tensor, n_labels: int) -> Tensor:
    """Return True (B, n, n, L) for labels over spans that agree with known spans, -1 for unknown, and cross none.

    A tree of such spans has all known spans.
    """
    known = torch.where(span_mask_of(lengths, charts.shape[1]), charts, -1)[..., None]
    mask = (known < 0) | (known == torch.arange(n_labels, device=lengths.device))
    for b, i, j, _ in (known >= 0).nonzero().tolist():
        mask[b, i + 1 : j + 1, j + 1 :] = False
        mask[b, :i, i:j] = False
    return mask
