r"""Scoring in rank space: the recursion on R numbers, one R x R operator for each frequent word.

.. math:: L^\top \alpha_t \propto O_{x_t}^\top (L^\top \alpha_{t-1}), \qquad O_w = R^\top \mathrm{diag}(o_w)\, L

An operator costs O(S R^2) once and O(R^2) per word; a word without one costs two thin products, O(S R). So a word gets
an operator if it occurs often enough. (Yang, Liu and Tu, NAACL 2022, run the whole model in rank space; here it is only
a faster computation of the same numbers.)
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trelliswork.inference.lowrank import passes
from trelliswork.inference.lowrank.kernels.rows import apply_operators
from trelliswork.inference.lowrank.packing import Ints, Packed, groups
from trelliswork.inference.lowrank.potentials import LowRank, Transition, check, scaled, word_shifts

OPERATOR_BYTES = 1 << 29  # maximum size of all operators
SLOWER = 8  # time per multiplication of a vector-matrix product, relative to thin matrix products


def frequent(transition: Transition, words: Ints, n_words: int) -> Ints:
    """Return the words (k,) whose operators save time, most frequent first; none for a dense or banded matrix."""
    if not passes.fusible(transition):
        return np.empty(0, np.int64)
    S, R = transition.left.shape
    occurs = np.bincount(words, minlength=n_words)
    gain = occurs * (2.0 * S * R - SLOWER * R * R) - float(S) * R * R
    best = np.argsort(-gain, kind="stable")
    most = OPERATOR_BYTES // (R * R * transition.left.element_size())
    return best[:most][gain[best[:most]] > 0]


def score(
    log_start: Tensor,
    transition: Transition,
    log_emission: Tensor,
    words: Ints,
    offsets: Ints,
    *,
    operators: Ints | None = None,
) -> NDArray[np.float64]:
    """Return log p(words) of each sentence (B,); ``operators`` lists the words with one (``frequent`` by default)."""
    check(log_start, transition, log_emission, words, offsets)
    chosen = frequent(transition, words, len(log_emission)) if operators is None else operators
    if len(chosen) == 0 or not isinstance(transition, LowRank):
        return passes.score(log_start, transition, log_emission, words, offsets)
    emission, shift = scaled(log_emission)
    R = transition.width
    table = torch.empty(len(chosen), R, R, dtype=log_start.dtype)
    for k, w in enumerate(chosen.tolist()):
        torch.mm(transition.right.T, emission[w][:, None] * transition.left, out=table[k])
    number = np.full(len(log_emission), -1)
    number[chosen] = np.arange(len(chosen))
    ends = emission @ transition.right  # (W, R): evidence of a last word, given the compressed states
    log_z = np.empty(len(offsets) - 1)
    parts = groups(words, offsets)

    def work(k: int) -> None:
        log_z[parts[k].order] = _forward(parts[k], log_start.exp(), transition, emission, table, number, ends)

    passes.run_groups(parts, work)
    lost = np.flatnonzero(np.isneginf(log_z))
    log_z += word_shifts(shift, words, offsets)
    if lost.size:
        some = np.concatenate([words[offsets[n] : offsets[n + 1]] for n in lost])
        starts = np.concatenate([[0], np.cumsum(np.diff(offsets)[lost])])
        log_z[lost] = passes.score(log_start, transition, log_emission, some, starts)
    return log_z


def _forward(
    packed: Packed, start: Tensor, transition: LowRank, emission: Tensor, table: Tensor, number: Ints, ends: Tensor
) -> NDArray[np.float64]:
    """Return the log evidence (B,), in the packed order; compressed states are normalized at each word."""
    sizes = packed.sizes.tolist()
    log_z = np.zeros(packed.n_sentences)
    compressed = torch.empty(0)
    for t, n in enumerate(sizes):
        words = packed.words[packed.offsets[t] : packed.offsets[t + 1]]
        stay = sizes[t + 1] if t + 1 < len(sizes) else 0
        with np.errstate(divide="ignore"):
            if stay < n:  # sentences that end here
                rows = torch.from_numpy(words[stay:])
                if t == 0:
                    total = (emission[rows] * start).sum(dim=1)
                else:
                    total = (compressed[stay:n] * ends[rows]).sum(dim=1)
                log_z[stay:n] += np.log(total.double().numpy())
            if stay == 0:
                break
            if t == 0:
                compressed = (emission[torch.from_numpy(words[:stay])] * start) @ transition.left
            else:
                compressed = _step(compressed[:stay], words[:stay], transition, emission, table, number)
            total = compressed.sum(dim=1)
            log_z[:stay] += np.log(total.double().numpy())
        compressed = compressed / total.clamp(min=torch.finfo(total.dtype).tiny)[:, None]
    return log_z


def _step(
    compressed: Tensor, words: Ints, transition: LowRank, emission: Tensor, table: Tensor, number: Ints
) -> Tensor:
    """Return the compressed states after a word, through its operator or through the states."""
    out = torch.empty_like(compressed)
    which = number[words]
    fast, slow = np.flatnonzero(which >= 0), np.flatnonzero(which < 0)
    if fast.size:
        rows = torch.from_numpy(fast)
        moved = torch.empty(len(fast), compressed.shape[1], dtype=compressed.dtype)
        apply_operators(compressed[rows].numpy(), table.numpy(), which[fast], moved.numpy())
        out[rows] = moved
    if slow.size:
        rows = torch.from_numpy(slow)
        states = (compressed[rows] @ transition.right.T) * emission[torch.from_numpy(words[slow])]
        out[rows] = states @ transition.left
    return out
