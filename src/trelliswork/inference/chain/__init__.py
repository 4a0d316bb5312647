r"""Linear chains: log partition functions, marginals, best and random labellings of arrays of log-potentials.

.. math:: p(y) = \frac1Z \exp\Big(\sum_t u_t(y_t) + \sum_t w_t(y_t, y_{t+1})\Big)

``chain_potentials`` checks the input once; every function here takes its result. Time O(T S^2) and memory O(T S)
a sequence, unless a function says otherwise. Threads: ``trelliswork.inference.threads``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ImpossibleError, ValueRangeError
from trelliswork.inference import threads
from trelliswork.inference.chain import kernels, log_kernels, max_kernels, position_kernels
from trelliswork.inference.chain.potentials import Floats, Integers, Potentials, chain_potentials, transition_steps
from trelliswork.inference.checks import check_shape
from trelliswork.inference.simd import VECTOR_BYTES

__all__ = [
    "Expectations",
    "Forward",
    "Potentials",
    "backward",
    "chain_potentials",
    "check_count",
    "check_possible",
    "expectations",
    "forward",
    "log_partition",
    "sample",
    "score",
    "topk",
    "transition_steps",
    "viterbi",
]

LIMIT = {np.dtype(np.float32): 1e25, np.dtype(np.float64): 1e280}  # tiny * LIMIT is far below the type's precision


class Expectations(NamedTuple):
    """What ``backward`` found; ``None`` where it was not asked for."""

    marginals: Floats | None  # (B, T, S)
    edges: Floats | None  # (B, T-1, S, S)
    counts: Floats | None  # (B, S, S) or, summed over sequences, (S, S)


@dataclass
class Forward:
    """The forward pass of a batch, kept for ``backward``.

    Attributes
    ----------
    log_z : ndarray (B,)
        float64; -inf for a sequence without any possible labelling.
    emission, alpha : ndarray (B, T, Sp)
        exp(log_unary - row maximum); p(y_t | potentials up to t). Rows padded to whole vectors, undefined where
        ``safe`` is False.
    scale : ndarray (B, T)
        The sums that alpha was divided by.
    safe : ndarray (B,)
        False for sequences that only log space can hold (underflow, impossible).
    """

    potentials: Potentials
    emission: Floats
    alpha: Floats
    scale: Floats
    log_z: NDArray[np.float64]
    safe: NDArray[np.bool_]


def log_partition(potentials: Potentials) -> NDArray[np.float64]:
    """log Z (B,) of each sequence."""
    return forward(potentials).log_z


def forward(potentials: Potentials) -> Forward:
    """Run the forward pass; paper 1, eqs. 8 and 9, with scaling."""
    p = potentials
    result = _allocate(p)
    threads.run(_forward_work(result), p.ranges)
    result.safe &= result.log_z > -np.inf
    if not p.mixing:
        threads.run(_backward_work(result, _Outputs.none(p)), p.ranges)  # marks what underflowed
    _repair_log_z(p, result.log_z, result.safe)
    return result


def backward(
    forward: Forward,
    *,
    weights: Floats | None = None,
    marginals: bool = True,
    edges: bool = False,
    counts: bool = False,
    total: bool = False,
) -> Expectations:
    """Run the backward pass and return the expectations asked for; paper 1, eqs. 17-21.

    Parameters
    ----------
    forward : Forward
        The forward pass of the same potentials.
    weights : ndarray (B,), optional
        Multiplies every expectation of a sequence: the gradient of a loss with respect to log Z.
    marginals, edges, counts : bool
        p(y_t = j); p(y_t = i, y_{t+1} = j); the latter summed over positions without ever being stored.
    total : bool
        Sum the counts over the sequences, in float64: (S, S) instead of (B, S, S).
    """
    out = _Outputs.allocate(forward.potentials, weights, marginals, edges, counts, total)
    threads.run(_backward_work(forward, out), forward.potentials.ranges)
    return _finish(forward.potentials, forward.safe, out)


def expectations(
    potentials: Potentials, *, marginals: bool = True, edges: bool = False, counts: bool = False
) -> tuple[NDArray[np.float64], Expectations]:
    """log Z (B,) and ``backward``'s expectations in one pass over each range of sequences, while it is in the cache."""
    p = potentials
    out = _Outputs.allocate(p, None, marginals, edges, counts, False)
    log_z, safe = np.empty(len(p.lengths)), np.ones(len(p.lengths), bool)
    if p.shared and not edges:
        transition, shift = _exp_transition(p)
        panels, panels_t = _panels(transition), _panels(np.ascontiguousarray(transition.T))

        def work(start: int, stop: int) -> None:
            kernels.forward_backward(
                start, stop, p.order, p.lengths, p.log_unary, panels, panels_t, transition, shift, _limit(p),
                out.weight, out.slot, log_z, safe, out.marginals, out.counts,
            )  # fmt: skip
    else:

        def work(start: int, stop: int) -> None:
            position_kernels.forward_backward(
                start, stop, p.order, p.lengths, p.log_unary, *_transitions(p), _padded(p), _limit(p),
                out.weight, out.slot, log_z, safe, out.marginals, out.edges, out.counts,
            )  # fmt: skip

    threads.run(work, p.ranges)
    safe &= log_z > -np.inf
    _repair_log_z(p, log_z, safe)
    return log_z, _finish(p, safe, out)


def viterbi(potentials: Potentials) -> tuple[Integers, NDArray[np.float64]]:
    """Best labelling of each sequence.

    Returns
    -------
    labels : ndarray (B, T)
        -1 in the padding. Of equally good labellings the one with the smaller last labels.
    scores : ndarray (B,)
        float64.
    """
    p = potentials
    labels, scores = np.full(p.log_unary.shape[:2], -1, np.int64), np.empty(len(p.lengths))
    if p.shared:
        padded = _pad(p, p.log_pairwise[0], -np.inf)
        panels, into = _panels(padded), np.ascontiguousarray(padded.T)

        def work(start: int, stop: int) -> None:
            max_kernels.viterbi(start, stop, p.order, p.lengths, p.log_unary, panels, into, labels, scores)

        threads.run(work, p.ranges)
    else:
        _run_all(max_kernels.viterbi_positions, p, p.log_unary, *_transitions(p), labels, scores)
    check_possible(scores, "no labelling to decode")
    return labels, scores


def topk(potentials: Potentials, k: int) -> tuple[Integers, NDArray[np.float64]]:
    """The k best labellings, all different, best first.

    Returns
    -------
    labels : ndarray (B, k, T)
        -1 in the padding and where a sequence has fewer than k possible labellings.
    scores : ndarray (B, k)
        -inf where there are fewer.

    Notes
    -----
    Time O(T S^2 k) at worst, memory O(T S k) a thread.
    """
    check_count("k", k)
    p = _double(potentials)
    B, T, _ = p.log_unary.shape
    labels = np.full((B, k, T), -1, np.int64)
    scores = np.full((B, k), -np.inf)
    _run_all(log_kernels.topk, p, p.log_unary, *_transitions(p), labels, scores)
    check_possible(scores[:, 0], "no labelling to decode")
    return labels, scores


def sample(potentials: Potentials, uniforms: NDArray[np.float64]) -> Integers:
    """Exact draws: labels (n, B, T), -1 in the padding, from ``uniforms`` (n, B, T) in [0, 1)."""
    p = potentials
    B, T, S = p.log_unary.shape
    check_shape("uniforms", uniforms.shape, "n B T", B=B, T=T)
    passed = forward(p)
    check_possible(passed.log_z, "nothing to sample")
    with np.errstate(divide="ignore", invalid="ignore"):
        log_alpha = np.log(passed.alpha[:, :, :S], dtype=np.float64, casting="unsafe")
    which = np.flatnonzero(~passed.safe)
    if which.size:
        log_alpha[which] = _log_forward(p.take(which))[1]
    labels = np.full(uniforms.shape, -1, np.int64)
    double = _double(p)
    _run_all(log_kernels.sample, double, *_transitions(double), log_alpha, np.ascontiguousarray(uniforms), labels)
    return labels


def score(potentials: Potentials, labels: Integers) -> NDArray[np.float64]:
    """Sum of the potentials along labels (B, T); what stands in the padding is not read."""
    p = potentials
    B, T, S = p.log_unary.shape
    check_shape("labels", labels.shape, "B T", B=B, T=T)
    bad = ((labels < 0) | (labels >= S)) & (np.arange(T) < p.lengths[:, None])
    if bad.any():
        b, t = (int(i) for i in np.argwhere(bad)[0])
        raise ValueRangeError(f"labels must lie between 0 and S-1={S - 1}, got {labels[b, t]} at ({b}, {t}).")
    scores = np.empty(B)
    _run_all(log_kernels.score, p, p.log_unary, *_transitions(p), np.ascontiguousarray(labels, np.int64), scores)
    return scores


@dataclass
class _Outputs:
    """Arrays that a backward pass fills; one with an empty axis 0 is not wanted."""

    weight: Floats  # (B,)
    slot: Integers  # (B,) which counts a sequence adds to
    marginals: Floats
    edges: Floats
    counts: Floats
    total: bool

    @classmethod
    def none(cls, p: Potentials) -> "_Outputs":
        return cls.allocate(p, None, False, False, False, False)

    @classmethod
    def allocate(
        cls, p: Potentials, weights: Floats | None, marginals: bool, edges: bool, counts: bool, total: bool
    ) -> "_Outputs":
        B, T, S = p.log_unary.shape
        dtype = p.log_unary.dtype
        weight = np.ones(B, dtype) if weights is None else np.ascontiguousarray(weights, dtype)
        check_shape("weights", weight.shape, "B", B=B)
        slot = np.arange(B)
        sums: Floats = np.zeros((B if counts else 0, S, S), dtype)
        if counts and total:
            # One sum a range of work, whatever the number of threads: the result does not depend on it.
            slot[p.order] = np.repeat(np.arange(len(p.ranges)), [stop - start for start, stop in p.ranges])
            sums = np.zeros((len(p.ranges), S, S))
        full = p.lengths.min() == T  # without padding every marginal is written
        nodes = (np.empty if full else np.zeros)((B if marginals else 0, T, S), dtype)
        pairs = np.zeros((B, T - 1, S, S) if edges else (0, 0, S, S), dtype)
        return cls(weight, slot, nodes, pairs, sums, total)


def _allocate(p: Potentials) -> Forward:
    B, T = p.log_unary.shape[:2]
    dtype = p.log_unary.dtype
    return Forward(
        p,
        emission=np.empty((B, T, _padded(p)), dtype),
        alpha=np.empty((B, T, _padded(p)), dtype),
        scale=np.empty((B, T), dtype),
        log_z=np.empty(B),
        safe=np.ones(B, bool),
    )


def _forward_work(result: Forward) -> Callable[[int, int], None]:
    """The forward kernel that suits the transitions, over ranges of ``order``."""
    p = result.potentials
    out = (_limit(p), _everyone(p), result.emission, result.alpha, result.scale, result.log_z)
    if p.shared:
        transition, shift = _exp_transition(p)
        panels = _panels(transition)
        return lambda start, stop: kernels.forward(start, stop, p.order, p.lengths, p.log_unary, panels, shift, *out)
    return lambda start, stop: position_kernels.forward(
        start, stop, p.order, p.lengths, p.log_unary, *_transitions(p), *out
    )


def _backward_work(result: Forward, out: _Outputs) -> Callable[[int, int], None]:
    """The backward kernel that suits the transitions and outputs; it also marks the unsafe sequences."""
    p = result.potentials
    state = (_limit(p), out.weight, out.slot, _everyone(p), result.emission, result.alpha, result.scale, result.safe)
    if p.shared and not len(out.edges):
        transition, _ = _exp_transition(p)
        panels = _panels(np.ascontiguousarray(transition.T))
        return lambda start, stop: kernels.backward(
            start, stop, p.order, p.lengths, panels, transition, *state, out.marginals, out.counts
        )
    return lambda start, stop: position_kernels.backward(
        start, stop, p.order, p.lengths, *_transitions(p), *state, out.marginals, out.edges, out.counts
    )


def _repair_log_z(p: Potentials, log_z: NDArray[np.float64], safe: NDArray[np.bool_]) -> None:
    """Compute log Z of the unsafe sequences in log space."""
    which = np.flatnonzero(~safe)
    if which.size:
        log_z[which] = _log_forward(p.take(which))[0]


def _finish(p: Potentials, safe: NDArray[np.bool_], out: _Outputs) -> Expectations:
    """Compute what the unsafe sequences lack in log space; sum the counts if asked."""
    which = np.flatnonzero(~safe)
    edges, counts = len(out.edges) > 0, len(out.counts) > 0
    if which.size:
        nodes, pairs, sums = _log_expectations(p.take(which), edges=edges, counts=counts)
        by = out.weight[which].astype(np.float64)[:, None, None]
        if len(out.marginals):
            out.marginals[which] = by * nodes
        if edges:
            out.edges[which] = by[..., None] * pairs
        if counts and out.total:
            np.add.at(out.counts, out.slot[which], by * sums)  # the kernels added nothing for these
        elif counts:
            out.counts[which] = by * sums
    return Expectations(
        out.marginals if len(out.marginals) else None,
        out.edges if edges else None,
        (out.counts.sum(axis=0) if out.total else out.counts) if counts else None,
    )


def _log_forward(p: Potentials) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """log_z (B,) and log_alpha (B, T, S) in log space."""
    log_z, log_alpha = np.empty(len(p.lengths)), np.full(p.log_unary.shape, -np.inf)
    _run_all(log_kernels.forward, p, p.log_unary, *_transitions(p), log_alpha, log_z)
    return log_z, log_alpha


def _log_expectations(p: Potentials, edges: bool, counts: bool) -> tuple[Floats, Floats, Floats]:
    """Marginals, edge marginals and counts of each sequence in log space."""
    B, T, S = p.log_unary.shape
    log_z, log_alpha = _log_forward(p)
    nodes = np.zeros((B, T, S))
    pairs = np.zeros((B, T - 1, S, S) if edges else (0, 0, S, S))
    sums = np.zeros((B if counts else 0, S, S))
    _run_all(log_kernels.backward, p, p.log_unary, *_transitions(p), log_alpha, log_z, nodes, pairs, sums)
    return nodes, pairs, sums


def _everyone(p: Potentials) -> Integers:
    """Each sequence has a place of its own in the arrays of a forward pass."""
    return np.arange(len(p.lengths))


def _limit(p: Potentials) -> np.floating:
    dtype = p.log_unary.dtype
    return dtype.type(LIMIT[dtype])


def _transitions(p: Potentials) -> tuple[Floats, int, int]:
    return p.log_pairwise, p.batch_step, p.time_step


def _double(p: Potentials) -> Potentials:
    return p if p.log_unary.dtype == np.float64 else p.take(np.arange(len(p.lengths)))


def _run_all(kernel: Any, p: Potentials, *arguments: object) -> None:
    """Run a kernel that takes sequences in their own order."""
    costs = p.lengths * p.log_unary.shape[2] ** 2
    threads.run(
        lambda start, stop: kernel(start, stop, p.lengths, *arguments), threads.cut(costs, least=threads.LEAST_WORK)
    )


def _padded(p: Potentials) -> int:
    """S rounded up to whole strips of two vectors."""
    wide = 2 * VECTOR_BYTES // p.log_unary.dtype.itemsize
    return -(-p.log_unary.shape[2] // wide) * wide


def _pad(p: Potentials, matrix: Floats, value: float) -> Floats:
    """The matrix (S, S) filled up to (Sp, Sp)."""
    padded = np.full((_padded(p), _padded(p)), value, matrix.dtype)
    padded[: len(matrix), : len(matrix)] = matrix
    return padded


def _exp_transition(p: Potentials) -> tuple[Floats, float]:
    """exp(log_pairwise - shift) padded with zeros (Sp, Sp), and the shift, its maximum."""
    log_pairwise = p.log_pairwise[0]
    shift = log_pairwise.max()
    if not shift > -np.inf:
        shift = log_pairwise.dtype.type(0)
    return _pad(p, np.exp(log_pairwise - shift), 0), float(shift)


def _panels(padded: Floats) -> Floats:
    """Strips (Sp/2W, Sp, 2W) of a padded matrix, each contiguous, for the products of the kernels."""
    Sp = len(padded)
    wide = 2 * VECTOR_BYTES // padded.dtype.itemsize
    return np.ascontiguousarray(padded.reshape(Sp, Sp // wide, wide).swapaxes(0, 1))


def check_count(name: str, value: int) -> None:
    """Refuse what is not a positive whole number."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
        raise ValueRangeError(f"{name} must be a positive whole number, got {value!r}.")


def check_possible(log_values: NDArray[np.float64], what: str) -> None:
    """Refuse a batch in which a sequence has no possible labelling: log Z or best score -inf."""
    bad = np.flatnonzero(log_values == -np.inf)
    if bad.size:
        raise ImpossibleError(
            f"{what}: every labelling of sequence {bad[0]} has probability zero"
            + (f" (and of {bad.size - 1} more)" if bad.size > 1 else "")
            + ". Loosen the evidence or the forbidden transitions, or leave it out of the batch."
        )
