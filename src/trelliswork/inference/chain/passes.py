"""Queries on chains: log Z, expectations, the best labelings, samples and scores.

Each function picks the kernel for its transitions. Sequences that underflow in probability space are recomputed in
double precision, and if that is not enough, in log space.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_possible, check_shape
from trelliswork.compute.padding import mask
from trelliswork.errors import ValueRangeError
from trelliswork.inference.chain import plain
from trelliswork.inference.chain.kernels import forward_backward, positions
from trelliswork.inference.chain.kernels import viterbi as viterbi_kernels
from trelliswork.inference.chain.kernels.records import Lattice, Outputs
from trelliswork.inference.chain.potentials import Floats, Integers, Potentials

_LEAST_VITERBI = 4 * threads.LEAST_WORK  # additions for which another thread pays off in Viterbi's algorithm


class Expectations(NamedTuple):
    """Results of ``backward``; ``None`` for those that were not requested."""

    marginals: Floats | None  # (B, T, S)
    edges: Floats | None  # (B, T-1, S, S)
    counts: Floats | None  # (B, S, S) or, summed over sequences, (S, S)


@dataclass
class Forward:
    """Forward pass of a batch, kept for ``backward``.

    Rows are padded to whole vectors, undefined if not ``safe``, and empty without shared transitions.
    """

    potentials: Potentials
    emission: Floats  # (B, T, Sp) exp(log_unary - row maximum)
    alpha: Floats  # (B, T, Sp) p(y_t | potentials up to t)
    scale: Floats  # (B, T) the sums that alpha was divided by
    log_z: NDArray[np.float64]  # (B,) -inf for a sequence without any possible labeling
    safe: NDArray[np.bool_]  # (B,) False for sequences that need log space (underflow, impossible)

    @cached_property
    def lattice(self) -> Lattice:
        """The arrays as the kernels take them; each sequence has its own place."""
        return Lattice(np.arange(len(self.log_z)), self.emission, self.alpha, self.scale)


def log_partition(potentials: Potentials) -> NDArray[np.float64]:
    """Return log Z (B,) of each sequence."""
    return forward(potentials).log_z


def forward(potentials: Potentials) -> Forward:
    """Run the forward pass; paper 1, eqs. 8 and 9, with scaling."""
    p = potentials
    (B, T), dtype = p.log_unary.shape[:2], p.log_unary.dtype
    width = p.row_width if p.shared else 0
    result = Forward(
        p,
        emission=np.empty((B, T, width), dtype),
        alpha=np.empty((B, T, width), dtype),
        scale=np.empty((B, T), dtype),
        log_z=np.empty(B),
        safe=np.ones(B, bool),
    )
    nothing = _outputs(p, None, marginals=False)
    if p.shared:
        threads.run(forward_backward.forward, p.ranges, p.chains, p.transitions, result.lattice, result.log_z)
    else:
        _by_position(p, result.log_z, result.safe, nothing)
    result.safe &= result.log_z > -np.inf
    if p.shared and not p.mixing:
        _run_backward(result, nothing)  # marks what underflowed
    _recompute_log_z(p, result.log_z, result.safe)
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
    """Run the backward pass and return the requested expectations; paper 1, eqs. 17-21.

    They are marginals p(y_t = j), edges p(y_t = i, y_{t+1} = j), and counts: the edges summed over positions without
    ever being stored, with ``total`` also over sequences, in float64: (S, S) instead of (B, S, S). ``weights`` (B,)
    multiply every expectation of a sequence: the gradient of a loss with respect to log Z.
    """
    out = _outputs(forward.potentials, weights, marginals, edges, counts, total)
    _run_backward(forward, out)
    return _finish(forward.potentials, forward.safe, out)


def expectations(
    potentials: Potentials,
    *,
    weights: Floats | None = None,
    marginals: bool = True,
    edges: bool = False,
    counts: bool = False,
) -> tuple[NDArray[np.float64], Expectations]:
    """Return log Z (B,) and the expectations of ``backward``.

    Both passes run over a range of sequences while it is in the cache, which is faster than one after the other.
    """
    p = potentials
    if not edges and weights is None and (length := p.length_if_short):
        of_one = _of_one_sentence(p, length, marginals, counts)
        if of_one is not None:
            return of_one
    out = _outputs(p, weights, marginals, edges, counts)
    log_z, safe = np.empty(len(p.lengths)), np.ones(len(p.lengths), bool)
    if p.shared and not edges:
        threads.run(forward_backward.forward_backward, p.ranges, p.chains, p.transitions, log_z, safe, out.arrays)
    else:
        _by_position(p, log_z, safe, out)
    safe &= log_z > -np.inf
    _recompute_log_z(p, log_z, safe)
    return log_z, _finish(p, safe, out)


def _of_one_sentence(
    p: Potentials, length: int, marginals: bool, counts: bool
) -> tuple[NDArray[np.float64], Expectations] | None:
    """Return ``expectations`` of a single short sequence with little besides the kernel; ``None`` if not safe."""
    (_, T, S), dtype = p.log_unary.shape, p.log_unary.dtype
    log_z, nodes, sums = np.empty(1), np.empty((int(marginals), T, S), dtype), np.empty((int(counts), S, S), dtype)
    if not forward_backward.one_sentence(length, p.log_unary, p.log_pairwise, log_z, nodes, sums):
        return None
    return log_z, Expectations(nodes if marginals else None, None, sums if counts else None)


def pair_counts(forward: Forward, marginals: Floats, weights: Floats) -> NDArray[np.float64]:
    r"""Return the expected transitions (S, S) of a batch with shared transitions, weighted and summed.

    .. math:: A \circ \sum_t \alpha_{t-1}^\top (e_t \beta_t / c_t)

    The counts of ``backward(forward, weights=weights, counts=True, total=True)`` as one matrix product: several times
    as fast for large S, at the cost of some copies of alpha. It takes the weighted marginals (B, T, S) of a
    ``backward``, which also marks unsafe sequences in ``forward``.
    """
    p = forward.potentials
    S = p.log_unary.shape[2]
    before, here = forward.alpha[:, :-1, :S].copy(), forward.alpha[:, 1:, :S]
    later = mask(p.lengths, marginals.shape[1])[:, 1:] & forward.safe[:, None]
    before[~later] = 0
    with np.errstate(all="ignore"):  # values beyond the end of a sequence are arbitrary
        ahead = marginals[:, 1:] / here
        ahead *= forward.emission[:, 1:, :S]
        ahead /= forward.scale[:, 1:, None]
    ahead[~(later[:, :, None] & (here > 0))] = 0
    counts = (before.reshape(-1, S).T @ ahead.reshape(-1, S)).astype(np.float64) * p.transitions.matrix[:S, :S]
    which = np.flatnonzero(~forward.safe)
    if which.size:
        own = expectations(p.take(which), counts=True)[1].counts
        assert own is not None
        counts += np.tensordot(weights[which].astype(np.float64), own, 1)
    return counts


def viterbi(potentials: Potentials) -> tuple[Integers, NDArray[np.float64]]:
    """Return the best labels (B, T) of each sequence, -1 in the padding, and scores (B,) in float64.

    Of equally good labelings it is the one with the smaller last labels.
    """
    p = potentials
    B, T, S = p.log_unary.shape
    labels, scores = np.empty((B, T), np.int64), np.empty(B)
    if length := p.length_if_short:
        if viterbi_kernels.one_sentence(length, p.log_unary, p.log_pairwise, labels, scores):
            return labels, scores
    elif p.shared:
        ranges = p.ranges if B * T * S * S >= _LEAST_VITERBI else [(0, B)]
        threads.run(viterbi_kernels.viterbi, ranges, p.chains, p.log_pairwise, labels, scores)
    else:
        _run(viterbi_kernels.viterbi_positions, p, p.log_unary, p.pairwise, labels, scores)
    check_possible(scores, "no labeling to decode")
    return labels, scores


def score(potentials: Potentials, labels: Integers) -> NDArray[np.float64]:
    """Return the sum of the potentials along labels (B, T); labels in the padding are ignored."""
    p = potentials
    B, T, S = p.log_unary.shape
    check_shape("labels", labels.shape, "B T", B=B, T=T)
    inside = mask(p.lengths, T)
    bad = ((labels < 0) | (labels >= S)) & inside
    if bad.any():
        b, t = (int(i) for i in np.argwhere(bad)[0])
        raise ValueRangeError(f"labels must be between 0 and S-1={S - 1}, got {labels[b, t]} at ({b}, {t}).")
    at, rows = np.where(inside, labels, 0), np.arange(B)[:, None]
    unary = np.where(inside, p.log_unary[rows, np.arange(T), at], 0)
    matrix = rows * p.batch_step + np.arange(T - 1) * p.time_step
    pairs = np.where(inside[:, 1:], p.log_pairwise[matrix, at[:, :-1], at[:, 1:]], 0)
    total: NDArray[np.float64] = unary.sum(axis=1, dtype=np.float64) + pairs.sum(axis=1, dtype=np.float64)
    return total


class _Outputs(NamedTuple):
    """Arrays that a backward pass fills; one with an empty axis 0 is left out."""

    arrays: Outputs
    edges: Floats
    total: bool


def _outputs(
    p: Potentials,
    weights: Floats | None,
    marginals: bool,
    edges: bool = False,
    counts: bool = False,
    total: bool = False,
) -> _Outputs:
    B, T, S = p.log_unary.shape
    dtype = p.log_unary.dtype
    weight = np.ones(B, dtype) if weights is None else np.ascontiguousarray(weights, dtype)
    check_shape("weights", weight.shape, "B", B=B)
    slot = np.arange(B)
    sums: Floats = np.zeros((B if counts else 0, S, S), dtype)
    if counts and total:
        # One sum per range of work, so that the result does not depend on the number of threads.
        slot[p.order] = np.repeat(np.arange(len(p.ranges)), [stop - start for start, stop in p.ranges])
        sums = np.zeros((len(p.ranges), S, S))
    make = np.empty if p.full else np.zeros
    nodes, pairs = make((B if marginals else 0, T, S), dtype), make((B, T - 1, S, S) if edges else (0, 0, S, S), dtype)
    return _Outputs(Outputs(weight, slot, nodes, sums), pairs, total)


def _run_backward(result: Forward, out: _Outputs) -> None:
    """Run the backward kernel for the transitions and outputs; it also marks the unsafe sequences."""
    p = result.potentials
    if p.shared and not len(out.edges):
        inputs = p.chains, p.transitions, result.lattice, result.safe, out.arrays
        threads.run(forward_backward.backward, p.ranges, *inputs)
    else:
        _by_position(p, np.empty(len(result.safe)), result.safe, out)


def _by_position(p: Potentials, log_z: NDArray[np.float64], safe: NDArray[np.bool_], out: _Outputs) -> None:
    """Run both passes with a matrix for each step."""
    inputs = p.chains, p.pairwise, log_z, safe, out.arrays, out.edges
    threads.run(positions.forward_backward, p.ranges, *inputs)


def _recompute_log_z(p: Potentials, log_z: NDArray[np.float64], safe: NDArray[np.bool_]) -> None:
    """Compute log Z of unsafe sequences in double precision, and in log space if still unsafe."""
    which = np.flatnonzero(~safe)
    if which.size:
        again = p.take(which)
        log_z[which] = log_partition(again) if p.log_unary.dtype == np.float32 else plain.log_partition(again)


def _finish(p: Potentials, safe: NDArray[np.bool_], out: _Outputs) -> Expectations:
    """Recompute the expectations of the unsafe sequences with more precision; sum the counts if ``out.total``."""
    which = np.flatnonzero(~safe)
    weight, slot, marginals, counts = out.arrays
    if which.size:
        again, edges = p.take(which), len(out.edges) > 0
        nodes: Any  # in double precision, which rarely underflows, or by the plain tier
        if p.log_unary.dtype == np.float32:
            nodes, pairs, sums = expectations(again, edges=edges, counts=len(counts) > 0)[1]
        else:
            _, nodes, pairs, sums = plain.expectations(again, edges=edges)
        by = weight[which].astype(np.float64)[:, None, None]
        if len(marginals):
            marginals[which] = by * nodes
        if len(out.edges):
            out.edges[which] = by[..., None] * pairs
        if len(counts) and out.total:
            np.add.at(counts, slot[which], by * sums)  # the kernels added nothing for these
        elif len(counts):
            counts[which] = by * sums
    return Expectations(
        marginals if len(marginals) else None,
        out.edges if len(out.edges) else None,
        (counts.sum(axis=0) if out.total else counts) if len(counts) else None,
    )


def _run(kernel: Any, p: Potentials, *arguments: object) -> None:
    """Run a kernel that processes the sequences in their own order."""
    costs = p.lengths * p.log_unary.shape[2] ** 2
    threads.run(kernel, threads.cut(costs, least=threads.LEAST_WORK), p.lengths, *arguments)
