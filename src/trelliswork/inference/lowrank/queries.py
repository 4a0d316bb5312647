"""Questions about sentences: posterior states, the best states, samples, what comes next.

Words are rows of ``log_emission`` (W, S). A row need not be a word: a set of words has the logarithm of the sum of
their rows, an unknown word a row of zeros. So evidence of any kind is a row.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trelliswork.compute import threads
from trelliswork.errors import ImpossibleError
from trelliswork.inference.lowrank.autograd import check, fusible, run_groups, scaled, word_shifts
from trelliswork.inference.lowrank.fused import Fused
from trelliswork.inference.lowrank.kernels import rows as kernels
from trelliswork.inference.lowrank.operators import Transition
from trelliswork.inference.lowrank.packing import Ints, groups, pack
from trelliswork.inference.lowrank.sweep import Counts, Sweep, one_thread

compiled: Any = kernels
Floats = NDArray[np.floating]
MOST_TOKENS = 1 << 25  # states of so many tokens times S at once: 128 MB in float32


def score(
    log_start: Tensor, transition: Transition, log_emission: Tensor, words: Ints, offsets: Ints
) -> NDArray[np.float64]:
    """log p(words) of each sentence (B,); what underflows in float32 is computed again in float64."""
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
    """Log evidence (B,) and p(state | sentence) of each word (N, S), in the order of the words."""
    check(log_start, transition, log_emission, words, offsets)
    emission, shift = scaled(log_emission)
    start, S = log_start.exp(), transition.n_states
    log_z, found = np.empty(len(offsets) - 1), torch.empty(len(words), S, dtype=start.dtype)
    parts = groups(words, offsets)
    sweeps = [Sweep(p, start, transition, emission) for p in parts]

    def work(k: int) -> None:
        p = parts[k]
        own = torch.empty(len(p.words), S, dtype=start.dtype)
        counts = Counts(torch.zeros_like(start), torch.zeros_like(emission), transition.zeros())
        log_z[p.order] = sweeps[k].forward()
        sweeps[k].backward(np.ones(p.n_sentences), counts, own)
        for b, n in enumerate(p.order.tolist()):
            found[int(offsets[n]) : int(offsets[n + 1])] = own[torch.from_numpy(p.rows(b))]

    run_groups(sweeps, work)
    return log_z + word_shifts(shift, words, offsets), found.numpy()


def following(log_start: Tensor, transition: Transition, log_emission: Tensor, words: Ints) -> Tensor:
    """p(next state | words so far) (S,); of the first state if there are no words."""
    if len(words) == 0:
        return log_start.exp()
    check(log_start, transition, log_emission, words, np.array([0, len(words)]))
    emission, _ = scaled(log_emission)
    sweep = Sweep(pack(words, np.array([0, len(words)])), log_start.exp(), transition, emission)
    if np.isneginf(sweep.forward()[0]):
        raise ImpossibleError("these words have probability zero: nothing can follow them.")
    alpha = sweep.last_states()
    out = torch.empty_like(alpha)
    transition.push(alpha, torch.empty(1, transition.width, dtype=alpha.dtype), out)
    return out[0]


def viterbi(
    log_start: Tensor, transition: Transition, log_emission: Tensor, words: Ints, offsets: Ints
) -> tuple[Ints, NDArray[np.float64]]:
    """The most probable states of each word (N,), and log p(words, states) of each sentence (B,).

    Notes
    -----
    A maximum does not pass through the rank: time O(N S^2) plus O(S^2 R) once, memory O(S^2).
    """
    check(log_start, transition, log_emission, words, offsets)
    log_transition = transition.dense().log().numpy()
    scores, first = log_emission.numpy(), log_start.numpy()
    states, values = np.empty(len(words), np.int64), np.empty(len(offsets) - 1)

    def work(begin: int, end: int) -> None:
        for n in range(begin, end):
            a, b = int(offsets[n]), int(offsets[n + 1])
            states[a:b], values[n] = _best_states(first, log_transition, scores, words[a:b])

    threads.run(work, threads.cut(np.diff(offsets) * len(first) ** 2, least=threads.LEAST_WORK))
    return states, values


def _best_states(first: Floats, log_transition: Floats, scores: Floats, words: Ints) -> tuple[Ints, float]:
    S, T = len(first), len(words)
    back = np.empty((T, S), np.int32)
    score, best = (first + scores[words[0]]).astype(np.float64), np.empty(S)
    for t in range(1, T):
        compiled.best_before(score, log_transition, best, back[t])
        score = best + scores[words[t]]
    path = np.empty(T, np.int64)
    path[-1] = score.argmax()
    for t in range(T - 1, 0, -1):
        path[t - 1] = back[t, path[t]]
    if np.isneginf(score.max()):
        raise ImpossibleError("a sentence has probability zero: there are no best states.")
    return path, float(score.max())


def sample_states(
    log_start: Tensor, transition: Transition, log_emission: Tensor, words: Ints, n: int, rng: np.random.Generator
) -> Ints:
    """n samples from p(states | one sentence), (n, T): filtering forward, drawing backward. Time O(n T S R)."""
    check(log_start, transition, log_emission, words, np.array([0, len(words)]))
    emission, _ = scaled(log_emission)
    with one_thread(), torch.no_grad():
        sweep = Sweep(pack(words, np.array([0, len(words)])), log_start.exp(), transition, emission)
        if np.isneginf(sweep.forward()[0]):
            raise ImpossibleError("this sentence has probability zero: there are no states to draw.")
        alpha = sweep.states()
        found = np.empty((n, len(words)), np.int64)
        for k in range(n):
            odds = alpha[-1].numpy()
            for t in range(len(words) - 1, -1, -1):
                found[k, t] = draw(odds, rng)
                if t > 0:
                    odds = (alpha[t - 1] * transition.column(int(found[k, t]))).numpy()
    return found


def draw(odds: Floats, rng: np.random.Generator) -> int:
    """A number with probability proportional to ``odds``."""
    sums = np.cumsum(odds, dtype=np.float64)
    at = int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))
    while at >= len(odds) or odds[at] == 0:  # the very end, by rounding
        at -= 1
    return at
