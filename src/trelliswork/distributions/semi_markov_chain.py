"""Distributions over segmentations with labels: semi-Markov chains."""

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from trelliswork.compute.checks import check_lengths, check_shape
from trelliswork.distributions.path_structure import PathStructure
from trelliswork.distributions.tensors import check_integers, floats, host
from trelliswork.errors import ShapeError
from trelliswork.inference import segment
from trelliswork.inference.semirings import Integers, labels_of


class SemiMarkovChain(PathStructure):
    r"""Segmentations of sequences into labeled segments, scored by segments and by labels of neighboring segments.

    .. math:: p(y) \propto \exp\Big(\sum_k s(t_k, l_k, y_k) + \sum_k w(y_k, y_{k+1})\Big)

    Parameters
    ----------
    log_segment : Tensor (B, T, L, S)
        ``log_segment[b, t, l - 1, j]`` is the score of a segment of l positions, at most L, that starts at position t
        and has label j; -inf forbids it. Segments that would leave the sequence are ignored.
    log_pairwise : Tensor (S, S)
        ``log_pairwise[i, j]`` is the score of a segment with label i right before one with label j.
    lengths : Tensor of int (B,), optional
        Length of each sequence, 1 to T; all T by default. The padding is ignored.

    Notes
    -----
    Sarawagi and Cohen (2004). Time O(T S (L + S)), memory O(T S) per sequence, in log space and float64. A segmentation
    is labels (B, T): the label of a segment at its first position, -1 at its other positions and in the padding.
    ``condition`` takes labels (B, T) of segments that are known to start, -1 for unknown.

    Examples
    --------
    >>> import torch
    >>> chain = SemiMarkovChain(torch.zeros(1, 4, 3, 1), torch.zeros(1, 1))
    >>> round(chain.log_partition().exp().item())  # 4 positions in segments of at most 3
    7
    >>> longer = chain.condition(known=torch.tensor([[-1, 0, -1, -1]]))  # a segment starts at position 1
    >>> round(longer.log_partition().exp().item())
    4
    """

    _alike: ClassVar[str] = "segmentations of the same shape and lengths"
    _nouns: ClassVar[dict[str, str]] = {"noun": "segmentation of sequence", "parts": "segments"}
    _axes: ClassVar[str] = "B T L S"
    _recursions = segment.SEGMENTATIONS

    def __init__(self, log_segment: Any, log_pairwise: Any, *, lengths: Any = None) -> None:
        scores = floats("log_segment", log_segment)
        check_shape("log_segment", scores.shape, "B T L S")
        if 0 in scores.shape:
            raise ShapeError(f"log_segment must not be empty, got shape {tuple(scores.shape)}.")
        B, T, L, S = scores.shape
        counts = check_lengths(host(lengths), B, T)
        self.lengths = torch.as_tensor(counts, device=scores.device)
        self._set_scores("log_segment", scores, floats("log_pairwise", log_pairwise), lambda: self._inside(T))
        self._sizes = B, T
        self._lattice = segment.lattice(counts, T, L, S)

    log_segment = property(lambda self: self._scores, doc="Scores (B, T, L, S) of segments by start, length and label.")

    def __repr__(self) -> str:
        B, T, L, S = self._scores.shape
        return f"SemiMarkovChain(B={B}, T={T}, L={L}, S={S}, dtype={self._dtype})"

    def _agreeing(self, known: Any) -> Tensor:
        (B, T, L, S), device = self._scores.shape, self._device
        labels = check_integers("known", known, (B, T), -1, S - 1, self._inside(T))
        fits = (labels[..., None] < 0) | (labels[..., None] == torch.arange(S, device=device))
        starts = torch.nn.functional.pad((labels >= 0).long().cumsum(dim=1), (1, L))
        at = torch.arange(T, device=device)[:, None]
        within = starts[:, at + torch.arange(1, L + 1, device=device)] - starts[:, at + 1]
        return fits[:, :, None] & (within == 0)[..., None]  # no other segment is known to start inside

    def _named(self, value: Tensor, labels: Any) -> list[Any]:
        """Return the start of each segment and the name of its label."""
        return [(start, labels[k]) for start, k in enumerate(value.tolist()) if k >= 0]

    def _decode(self, paths: Integers) -> Integers:
        _, T, _, S = self._scores.shape
        return labels_of(paths, T, S, 2 * S)

    def _score(self, structure: Any) -> Tensor:
        """Return the score (B,) of labels (B, T); -inf if a segment is too long, or none starts at position 0."""
        B, T, L, S = self._scores.shape
        labels = check_integers("labels", structure, (B, T), -1, S - 1, self._inside(T))
        label = host(torch.where(self._inside(T), labels, -1))
        b, start = np.nonzero(label >= 0)
        ends = np.append(start[1:], 0)
        last = np.append(b[1:] != b[:-1], True) if len(b) else np.zeros(0, bool)
        lengths = np.where(last, host(self.lengths)[b], ends) - start
        good = (label[:, 0] >= 0) & (np.bincount(b, lengths > L, minlength=B) == 0)
        j, before = label[b, start], ~last
        segments = self._scores[tuple(map(torch.from_numpy, (b, start, lengths.clip(max=L) - 1, j)))].double()
        pairs = self._pairs[tuple(map(torch.from_numpy, (j[:-1][before[:-1]], j[1:][before[:-1]])))].double()
        rows = (self._tensor(b), segments), (self._tensor(b[before]), pairs)
        score = sum(torch.zeros(B, dtype=torch.float64, device=self._device).index_add(0, *row) for row in rows)
        return torch.where(self._tensor(good), score, -torch.inf)
