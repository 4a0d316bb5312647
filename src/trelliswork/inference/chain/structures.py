"""Structures of chains: the best labelling, the k best, random ones, and the score of a given one."""

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_count, check_possible, check_shape
from trelliswork.errors import ValueRangeError
from trelliswork.inference.chain.kernels import log_space as log_kernels
from trelliswork.inference.chain.kernels import viterbi as max_kernels
from trelliswork.inference.chain.layout import pad, panels, run_all, transitions
from trelliswork.inference.chain.passes import forward, log_forward
from trelliswork.inference.chain.potentials import Integers, Potentials


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
        filled = pad(p, p.log_pairwise[0], -np.inf)
        strips, into = panels(p, filled), np.ascontiguousarray(filled.T)

        def work(start: int, stop: int) -> None:
            max_kernels.viterbi(start, stop, p.order, p.lengths, p.log_unary, strips, into, labels, scores)

        threads.run(work, p.ranges)
    else:
        run_all(max_kernels.viterbi_positions, p, p.log_unary, *transitions(p), labels, scores)
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
    run_all(log_kernels.topk, p, p.log_unary, *transitions(p), labels, scores)
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
        log_alpha[which] = log_forward(p.take(which))[1]
    labels = np.full(uniforms.shape, -1, np.int64)
    double = _double(p)
    run_all(log_kernels.sample, double, *transitions(double), log_alpha, np.ascontiguousarray(uniforms), labels)
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
    run_all(log_kernels.score, p, p.log_unary, *transitions(p), np.ascontiguousarray(labels, np.int64), scores)
    return scores


def _double(p: Potentials) -> Potentials:
    return p if p.log_unary.dtype == np.float64 else p.take(np.arange(len(p.lengths)))
