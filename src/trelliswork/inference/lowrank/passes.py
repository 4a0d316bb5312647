"""Passes over sentences: log evidence, expected counts, posterior and best states, samples, next states.

Words are rows of ``log_emission`` (W, S). A row may also represent other evidence: for a set of words, the logarithm of
the sum of their emissions; for an unknown word, zeros.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trelliswork.compute import threads, torch_threads
from trelliswork.errors import ImpossibleError
from trelliswork.inference.lowrank import memory
from trelliswork.inference.lowrank.fused import Fused
from trelliswork.inference.lowrank.kernels.rows import best_before
from trelliswork.inference.lowrank.packing import Ints, Packed, groups, merge, pack
from trelliswork.inference.lowrank.potentials import LowRank, Transition, check, scaled, word_shifts
from trelliswork.inference.lowrank.sweep import Counts, Sweep

Floats = NDArray[np.floating]


def run_groups(parts: Sequence[object], work: Callable[[int], None]) -> None:
    """Call ``work(k)`` for each group, on the threads of the pool."""

    def span(first: int, last: int) -> None:
        with torch.no_grad():  # a setting of each thread
            for k in range(first, last):
                work(k)

    torch_threads.run(span, [(k, k + 1) for k in range(len(parts))])


def fusible(transition: Transition) -> TypeGuard[LowRank]:
    """Return whether ``Fused`` supports the transition."""
    return isinstance(transition, LowRank) and transition.band is None


def expectations(
    parts: list[Packed],
    start: Tensor,
    transition: Transition,
    emission: Tensor,
    weight: float,
    *,
    every: int | None = None,
) -> tuple[NDArray[np.float64], Counts]:
    """Return log evidences in the caller's order, and weighted expected counts.

    ``emission`` (W, S) are probabilities up to a factor per word, which the caller adds to the log evidences.
    """
    log_z = np.empty(sum(part.n_sentences for part in parts))
    total = zero_counts(start, transition, emission)
    if every is None and fusible(transition):
        packed = merge(parts)
        fused = Fused(packed, start, transition, emission)
        log_z[packed.order] = fused.forward()
        fused.backward(np.full(packed.n_sentences, weight), total)
        parts = lost_sentences(packed, log_z)
    sweeps = [Sweep(part, start, transition, emission, every=every) for part in parts]

    def work(k: int, counts: Counts) -> None:
        log_z[parts[k].order] = sweeps[k].forward()
        sweeps[k].backward(np.full(parts[k].n_sentences, weight), counts)

    add_counts(sweeps, work, total)
    return log_z, total


def lost_sentences(packed: Packed, log_z: NDArray[np.float64]) -> list[Packed]:
    """Return a group of the sentences that ``Fused`` has lost (log_z, in the caller's order, is -inf); [] if none."""
    lost = np.flatnonzero(np.isneginf(log_z[packed.order]))
    if lost.size == 0:
        return []
    rows = [packed.rows(b) for b in lost.tolist()]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    part = pack(packed.words[np.concatenate(rows)], offsets)
    return [replace(part, order=packed.order[lost][part.order])]


def add_counts(sweeps: list[Sweep], work: Callable[[int, Counts], None], total: Counts) -> None:
    """Add the counts that ``work(k, counts)`` computes for each group to ``total``, in the order of groups."""
    parts = [zero_counts(s.start, s.transition, s.emission) for s in sweeps]
    run_groups(sweeps, lambda k: work(k, parts[k]))
    for part in parts:
        total.start += part.start
        total.emission += part.emission
        for mine, theirs in zip(total.transition, part.transition, strict=True):
            mine += theirs


def zero_counts(start: Tensor, transition: Transition, emission: Tensor) -> Counts:
    """Return counts of zero."""
    first, words = (memory.zeros(*x.shape, dtype=x.dtype) for x in (start, emission))
    return Counts(first, words, transition.zeros())


def score(
    log_start: Tensor, transition: Transition, log_emission: Tensor, words: Ints, offsets: Ints
) -> NDArray[np.float64]:
    """Return log p(words) of each sentence (B,); sentences that underflow in float32 are recomputed in float64."""
    check(log_start, transition, log_emission, words, offsets)
    emission, shift = scaled(log_emission)
    log_z = np.empty(len(offsets) - 1)
    if fusible(transition):
        packed = pack(words, offsets)
        log_z[packed.order] = Fused(packed, log_start.exp(), transition, emission, keep=False).forward()
    else:
        parts = groups(words, offsets)
        sweeps = [Sweep(p, log_start.exp(), transition, emission, every=len(p.sizes) + 1) for p in parts]

        def work(k: int) -> None:
            log_z[parts[k].order] = sweeps[k].forward()

        run_groups(sweeps, work)
    lost = np.flatnonzero(np.isneginf(log_z))
    if lost.size:
        double = type(transition)(*(part.double() for part in transition.tensors()))
        part = pack(words, offsets, lost)
        sweep = Sweep(
            part, log_start.double().exp(), double, torch.exp(log_emission.double() - torch.from_numpy(shift)[:, None])
        )
        log_z[part.order] = sweep.forward()
    return log_z + word_shifts(shift, words, offsets)


def marginals(
    log_start: Tensor, transition: Transition, log_emission: Tensor, words: Ints, offsets: Ints
) -> tuple[NDArray[np.float64], Floats]:
    """Return the log evidence (B,) and p(state | sentence) of each word (N, S), in the order of the words."""
    check(log_start, transition, log_emission, words, offsets)
    emission, shift = scaled(log_emission)
    start, S = log_start.exp(), transition.n_states
    log_z, posterior = np.empty(len(offsets) - 1), torch.empty(len(words), S, dtype=start.dtype)
    parts = groups(words, offsets)
    sweeps = [Sweep(p, start, transition, emission) for p in parts]

    def work(k: int) -> None:
        p = parts[k]
        own = torch.empty(len(p.words), S, dtype=start.dtype)
        counts = zero_counts(start, transition, emission)
        log_z[p.order] = sweeps[k].forward()
        sweeps[k].backward(np.ones(p.n_sentences), counts, own)
        for b, n in enumerate(p.order.tolist()):
            posterior[int(offsets[n]) : int(offsets[n + 1])] = own[torch.from_numpy(p.rows(b))]

    run_groups(sweeps, work)
    return log_z + word_shifts(shift, words, offsets), posterior.numpy()


def following(log_start: Tensor, transition: Transition, log_emission: Tensor, words: Ints) -> Tensor:
    """Return p(next state | words so far) (S,); p(first state) if there are no words."""
    if len(words) == 0:
        return log_start.exp()
    check(log_start, transition, log_emission, words, np.array([0, len(words)]))
    emission, _ = scaled(log_emission)
    sweep = Sweep(pack(words, np.array([0, len(words)])), log_start.exp(), transition, emission)
    if np.isneginf(sweep.forward()[0]):
        raise ImpossibleError("these words have probability zero, so no state can follow them.")
    alpha = sweep.last_states()
    out = torch.empty_like(alpha)
    transition.push(alpha, torch.empty(1, transition.width, dtype=alpha.dtype), out)
    return out[0]


def viterbi(
    log_start: Tensor, transition: Transition, log_emission: Tensor, words: Ints, offsets: Ints
) -> tuple[Ints, NDArray[np.float64]]:
    """Return the most probable states of each sentence (N,), and log p(words, states) (B,).

    Notes
    -----
    Maximization does not factor through the rank: time O(N S^2 + S^2 R), memory O(S^2).
    """
    check(log_start, transition, log_emission, words, offsets)
    log_transition = transition.dense().log().numpy()
    scores, first = log_emission.numpy(), log_start.numpy()
    states, values = np.empty(len(words), np.int64), np.empty(len(offsets) - 1)

    def work(start: int, stop: int) -> None:
        for n in range(start, stop):
            a, b = int(offsets[n]), int(offsets[n + 1])
            states[a:b], values[n] = _best_states(first, log_transition, scores, words[a:b])

    threads.run(work, threads.cut(np.diff(offsets) * len(first) ** 2, least=threads.LEAST_WORK))
    return states, values


def _best_states(first: Floats, log_transition: Floats, scores: Floats, words: Ints) -> tuple[Ints, float]:
    S, T = len(first), len(words)
    back = np.empty((T, S), np.int32)
    score, best = (first + scores[words[0]]).astype(np.float64), np.empty(S)
    for t in range(1, T):
        best_before(score, log_transition, best, back[t])
        score = best + scores[words[t]]
    path = np.empty(T, np.int64)
    path[-1] = score.argmax()
    for t in range(T - 1, 0, -1):
        path[t - 1] = back[t, path[t]]
    if np.isneginf(score.max()):
        raise ImpossibleError("a sentence has probability zero, so it has no best states.")
    return path, float(score.max())


def sample_states(
    log_start: Tensor, transition: Transition, log_emission: Tensor, words: Ints, n: int, rng: np.random.Generator
) -> Ints:
    """Draw n samples (n, T) from p(states | one sentence) by forward filtering, backward sampling. Time O(n T S R)."""
    check(log_start, transition, log_emission, words, np.array([0, len(words)]))
    emission, _ = scaled(log_emission)
    with torch_threads.one_thread(), torch.no_grad():
        sweep = Sweep(pack(words, np.array([0, len(words)])), log_start.exp(), transition, emission)
        if np.isneginf(sweep.forward()[0]):
            raise ImpossibleError("this sentence has probability zero, so it has no states to sample.")
        alpha = sweep.states()
        states = np.empty((n, len(words)), np.int64)
        for k in range(n):
            odds = alpha[-1].numpy()
            for t in range(len(words) - 1, -1, -1):
                states[k, t] = draw(odds, rng)
                if t > 0:
                    odds = (alpha[t - 1] * transition.column(int(states[k, t]))).numpy()
    return states


def draw(odds: Floats, rng: np.random.Generator) -> int:
    """Draw an index with probability proportional to ``odds``."""
    sums = np.cumsum(odds, dtype=np.float64)
    at = int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))
    while at >= len(odds) or odds[at] == 0:  # rounding at the upper end
        at -= 1
    return at
