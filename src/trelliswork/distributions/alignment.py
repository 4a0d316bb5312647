"""Distributions over monotone alignments of two sequences, with those of connectionist temporal classification."""

from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from trelliswork.compute.checks import check_lengths, check_shape
from trelliswork.distributions.path_structure import PathStructure
from trelliswork.distributions.tensors import as_tensor, check_integers, floats, host
from trelliswork.errors import ShapeError
from trelliswork.inference import alignment
from trelliswork.inference.alignment import DELETE, INSERT, MATCH
from trelliswork.inference.semirings import Integers


class Alignment(PathStructure):
    r"""Monotone alignments of two sequences, scored by moves and by neighboring moves.

    .. math:: p(y) \propto \exp\Big(\sum_k s(i_k, j_k, y_k) + \sum_k w(y_k, y_{k+1})\Big)

    A move is 0, *match* (the next items of both sequences are aligned), 1, *delete* (the next item of the first one is
    aligned with nothing), or 2, *insert* (the next item of the second one is). After move k, i items of the first
    sequence and j of the second are used up.

    Parameters
    ----------
    log_moves : Tensor (B, N+1, M+1, 3)
        ``log_moves[b, i, j, m]`` is the score of move m if i and j items are used up after it; -inf forbids it. So
        ``log_moves[b, i, j, 0]`` aligns item i - 1 with item j - 1. Moves from outside are ignored.
    log_pairwise : Tensor (3, 3), optional
        ``log_pairwise[m, k]`` is the score of move m right before move k, for gaps that cost more to open than to
        extend; 0 by default.
    lengths : Tensor of int (B, 2), optional
        Lengths of both sequences, 1 to N and 1 to M; all N and M by default. The padding is ignored.

    Notes
    -----
    Needleman and Wunsch (1970), Gotoh (1982). Time and memory O(N M) per pair, in log space and float64. An alignment
    is its moves (B, N+M), -1 beyond the last one. ``condition`` takes known partners (B, N): the item of the second
    sequence with which each item of the first is aligned, -1 for unknown.

    Examples
    --------
    >>> import torch
    >>> round(Alignment(torch.zeros(1, 3, 3, 3)).log_partition().exp().item())  # of two items with two: Delannoy
    13
    >>> same = torch.eye(3)[[0, 2]][:, [0, 1, 2]]  # "ac" and "abc"
    >>> Alignment.from_gaps(2 * same[None], gap=-1.0).mode.tolist()
    [[0, 2, 0, -1, -1]]
    """

    _alike: ClassVar[str] = "alignments of the same shape and lengths"
    _nouns: ClassVar[dict[str, str]] = {"noun": "alignment of pair", "parts": "moves"}
    _axes: ClassVar[str] = "B n m K"
    _recursions = alignment.ALIGNMENTS

    def __init__(self, log_moves: Any, log_pairwise: Any = None, *, lengths: Any = None) -> None:
        scores = floats("log_moves", log_moves)
        check_shape("log_moves", scores.shape, "B n m K", K=3)
        B, N, M = len(scores), scores.shape[1] - 1, scores.shape[2] - 1
        if min(B, N, M) < 1:
            raise ShapeError(f"log_moves must have shape (B, N+1, M+1, 3) with N, M > 0, got {tuple(scores.shape)}.")
        device = scores.device
        pairs = torch.zeros(3, 3, device=device).to(scores) if log_pairwise is None else log_pairwise
        given = torch.tensor([N, M]).expand(B, 2) if lengths is None else as_tensor("lengths", lengths)
        check_shape("lengths", given.shape, "B K", B=B, K=2)
        counts = [check_lengths(host(given[:, side]), B, most) for side, most in enumerate((N, M))]
        self.lengths = torch.stack([torch.as_tensor(x, device=device) for x in counts], dim=1)
        self._set_scores("log_moves", scores, floats("log_pairwise", pairs), lambda: self._from_inside(N + 1, M + 1))
        self._sizes = B, N + M
        self._lattice = alignment.lattice(host(self.lengths), M)

    @classmethod
    def from_gaps(cls, log_match: Any, *, gap: float = 0.0, opening: float = 0.0, lengths: Any = None) -> Self:
        """Return alignments with scores of matches (B, N, M), of every gap, and of the first gap in a row."""
        match = floats("log_match", log_match)
        check_shape("log_match", match.shape, "B N M")
        matches = torch.nn.functional.pad(match, (1, 0, 1, 0))
        gaps = torch.full_like(matches, gap)
        moves, pairs = torch.stack([matches, gaps, gaps], dim=3), match.new_zeros(3, 3)
        pairs[:, 1:] = opening * (1 - torch.eye(3)[:, 1:].to(match))
        moves[:, 1, 0, DELETE] += opening
        moves[:, 0, 1, INSERT] += opening
        return cls(moves, pairs, lengths=lengths)

    @classmethod
    def ctc(
        cls,
        log_probs: Any,
        targets: Any,
        *,
        input_lengths: Any = None,
        target_lengths: Any = None,
        blank: int = 0,
    ) -> Self:
        """Return the alignments of connectionist temporal classification; minus log Z is its loss.

        Parameters
        ----------
        log_probs : Tensor (B, T, C)
            Log-probabilities of C symbols at each frame (``torch.nn.CTCLoss`` has time first).
        targets : Tensor of int (B, U)
            Symbols without blanks.
        input_lengths, target_lengths : Tensor of int (B,), optional
            Frames and symbols of each sequence; a target may have none.
        blank : int
            The symbol that stands for no symbol.

        Notes
        -----
        Graves et al. (2006). Frames are aligned with the target with blanks before, between and behind its symbols:
        a match emits the next of these, a delete repeats the last one, an insert leaves out a blank.
        """
        scores = floats("log_probs", log_probs)
        B, T, C = check_shape("log_probs", scores.shape, "B T C").values()
        device, symbols = scores.device, as_tensor("targets", targets, scores.device)
        U = check_shape("targets", symbols.shape, "B U", B=B)["U"]
        counts = torch.as_tensor(check_lengths(host(input_lengths), B, T), device=device)
        full = torch.full((B,), U, device=device)
        sizes = full if target_lengths is None else as_tensor("target_lengths", target_lengths, device)
        sizes = check_integers("target_lengths", sizes[:, None], (B, 1), 0, U)[:, 0]
        known = torch.arange(U, device=device) < sizes[:, None]
        symbols = check_integers("targets", symbols, (B, U), 0, C - 1, known).masked_fill(~known, blank)
        with_blanks = torch.full((B, 2 * U + 1), blank, dtype=torch.int64, device=device)
        with_blanks[:, 1::2] = symbols
        emit = scores.gather(2, with_blanks[:, None].expand(B, T, -1))
        optional = torch.zeros(B, 2 * U + 1, dtype=torch.bool, device=device)  # blanks that may be left out
        optional[:, 2:-1:2] = symbols[:, 1:] != symbols[:, :-1]
        optional[:, 0] = True
        optional.scatter_(1, 2 * sizes[:, None], True)
        never = torch.nn.functional.pad(emit, (1, 0, 1, 0), value=-torch.inf)
        skip = torch.nn.functional.pad(optional, (1, 0)).to(scores).log()[:, None].expand(never.shape)
        pairs = scores.new_zeros(3, 3)
        pairs[INSERT, DELETE] = -torch.inf  # what is left out is not repeated
        lengths = torch.stack([counts, 2 * sizes + 1], dim=1)
        return cls(torch.stack([never, never, skip], dim=3), pairs, lengths=lengths)

    def _from_inside(self, n: int, m: int) -> Tensor:
        """Return the mask (B, n, m, 3) of the moves to cells from other cells."""
        rows, columns = (torch.arange(size, device=self._device) for size in (n, m))
        inside = (rows <= self.lengths[:, :1])[:, :, None] & (columns <= self.lengths[:, 1:])[:, None]
        step = torch.ones(n, m, 3, dtype=torch.bool, device=self._device)
        step[0, :, :INSERT], step[:, 0, MATCH], step[:, 0, INSERT] = False, False, False
        return inside[..., None] & step

    log_moves = property(lambda self: self._scores, doc="Scores (B, N+1, M+1, 3) of moves to cells.")

    def __repr__(self) -> str:
        B, n, m, _ = self._scores.shape
        return f"Alignment(B={B}, N={n - 1}, M={m - 1}, dtype={self._dtype})"

    def _agreeing(self, known: Any) -> Tensor:
        (B, n, m, _), device = self._scores.shape, self._device
        inside = torch.arange(n - 1, device=device) < self.lengths[:, :1]
        items = check_integers("known", known, (B, n - 1), -1, m - 2, inside).masked_fill(~inside, -1)
        match = items[..., None] == torch.arange(m - 1, device=device)  # (B, N, M)
        row, column = match.any(dim=2), match.any(dim=1)
        mask = torch.ones(self._scores.shape, dtype=torch.bool, device=device)
        mask[:, 1:, 1:, MATCH] = match | ~(row[:, :, None] | column[:, None])
        mask[:, 1:, :, DELETE] = ~row[:, :, None]
        mask[:, :, 1:, INSERT] = ~column[:, None]
        return mask

    def _decode(self, paths: Integers) -> Integers:
        return alignment.moves_of(paths, sum(self._scores.shape[1:3]) - 2)

    def _score(self, structure: Any) -> Tensor:
        """Return the score (B,) of moves (B, N+M); -inf if they do not use up both sequences."""
        B, n, m, _ = self._scores.shape
        moves = check_integers("moves", structure, (B, n + m - 2), -1, 2)
        used = moves >= 0
        i = (used & (moves != INSERT)).cumsum(dim=1)
        j = (used & (moves != DELETE)).cumsum(dim=1)
        good = (torch.stack([i[:, -1], j[:, -1]], dim=1) == self.lengths).all(dim=1)
        good &= (used[:, :-1] | ~used[:, 1:]).all(dim=1)  # no gaps
        batch = torch.arange(B, device=self._device)[:, None]
        steps = self._scores[batch, i.clamp(max=n - 1), j.clamp(max=m - 1), moves.clamp(min=0)].double()
        pairs = self._pairs[moves[:, :-1].clamp(min=0), moves[:, 1:].clamp(min=0)].double()
        score = steps.masked_fill(~used, 0).sum(dim=1) + pairs.masked_fill(~used[:, 1:], 0).sum(dim=1)
        return torch.where(good, score, -torch.inf)
