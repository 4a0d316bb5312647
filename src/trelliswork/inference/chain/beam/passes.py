"""Inference within beams: allocate, call the kernels, repeat in log space the sequences that they marked as unsafe."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_possible, check_shape
from trelliswork.errors import ValueRangeError
from trelliswork.inference.chain.beam import FULL, Beam, BeamExpectations, BeamPaths, BeamSets
from trelliswork.inference.chain.beam.kernels import forward_backward, sparse
from trelliswork.inference.chain.beam.kernels import log_space as log_kernels
from trelliswork.inference.chain.beam.kernels import viterbi as viterbi_kernels
from trelliswork.inference.chain.beam.kernels.log_space import LogChain
from trelliswork.inference.chain.beam.kernels.records import Batch, Buffer, Choice, Entries, Matrices, Results, Safety
from trelliswork.inference.chain.beam.kernels.viterbi import Paths
from trelliswork.inference.chain.beam.sparse import SparseChain
from trelliswork.inference.chain.potentials import LIMIT, Floats, Integers, Potentials, exp_transition, whole_vectors

BUFFER = 1 << 20  # states that a kernel may fill before they are copied
NO_SETS = BeamSets(np.empty(0, np.int64), np.empty(0, np.int32))


def expectations(
    potentials: Potentials | SparseChain,
    beam: Beam,
    *,
    gold: NDArray[np.integer] | None = None,
    counts: bool = False,
) -> BeamExpectations:
    """Return log Z, marginals and transition counts within beams.

    Parameters
    ----------
    potentials : Potentials or SparseChain
    beam : Beam
    gold : ndarray of int (B, T), optional
        States that are always kept, -1 where there is none.
    counts : bool
        Whether to sum the expected transitions.

    Notes
    -----
    Time O(|I| S) per position for dense transitions, O(entries of I) for sparse ones.
    """
    p = potentials
    B, T = p.log_unary.shape[:2]
    run = _Run(p, beam, _flat_gold(p, gold), counts)
    pieces: dict[int, Buffer] = {}
    ranges = threads.cut(p.lengths * run.cost, least=threads.LEAST_WORK, most=4)

    def work(start: int, stop: int) -> None:
        slot = [start for start, _ in ranges].index(start)
        size = max(BUFFER, T * run.n_states)
        buffer = Buffer(np.empty(size, np.int32), np.empty(size, p.log_unary.dtype))
        while start < stop:
            following, used = run.kernel(start, stop, *run.inputs, run.counts[slot], run.results, buffer)
            pieces[start] = Buffer(buffer.states[:used].copy(), buffer.marginals[:used].copy())
            start = following

    run.counts = np.zeros((len(ranges), *run.counts_shape))
    threads.run(work, ranges)
    order = sorted(pieces)
    states = np.concatenate([pieces[k].states for k in order])
    marginals = np.concatenate([pieces[k].marginals for k in order])
    exact = np.zeros(B, bool)
    log_z, sizes, kept = run.results
    unsafe = np.flatnonzero(np.isnan(log_z))
    if unsafe.size:
        states, marginals = run.repeat_in_log_space(unsafe, states, marginals, exact)
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    if isinstance(p, SparseChain):  # in the order in which they were reached: sort those of each position
        order_of = np.lexsort((states, np.repeat(np.arange(len(sizes)), sizes)))
        states, marginals = states[order_of], marginals[order_of]
    total = run.counts.sum(axis=0) if counts else None
    return BeamExpectations(log_z, run.offsets, BeamSets(ptr, states), marginals, total, kept, exact)


class _Run:
    """Inputs and outputs of the kernels for one batch."""

    def __init__(self, p: Potentials | SparseChain, beam: Beam, gold: NDArray[np.int32], counts: bool) -> None:
        self.p, self.choice = p, Choice(gold, beam.rule, beam.refine)
        self.n_states = S = p.transitions.n_states if isinstance(p, SparseChain) else p.log_unary.shape[2]
        self.offsets = np.concatenate([[0], np.cumsum(p.lengths)])
        n = int(self.offsets[-1])
        self.results = Results(np.full(len(p.lengths), np.nan), np.zeros(n, np.int64), np.zeros(n))
        self.counts = np.zeros(0)
        self.cost = (min(S, 40) + 20) * (S if isinstance(p, Potentials) else 60)
        self.counts_shape: tuple[int, ...]
        self.inputs: tuple[Any, ...]
        batch = Batch(p.lengths, self.offsets, p.log_unary)
        limit = p.log_unary.dtype.type(LIMIT[p.log_unary.dtype])
        if isinstance(p, SparseChain):
            self.counts_shape = (len(p.log_weights) if counts else 0,)
            self.kernel, self.inputs = sparse.sparse, (batch, scaled_entries(p), self.choice, limit)
        else:
            self.counts_shape = (S if counts else 0, S)
            matrices, safety = _matrices(p, log=not p.shared), Safety(limit, not p.mixing)
            self.kernel, self.inputs = forward_backward.dense, (batch, matrices, self.choice, safety)

    def repeat_in_log_space(
        self, which: Integers, states: NDArray[np.int32], marginals: Floats, exact: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int32], Floats]:
        """Compute the sequences ``which`` in log space; return all beams and marginals with theirs inserted."""
        log_z, sizes, kept = self.results
        total = np.add.reduceat(sizes, self.offsets[:-1])
        total[which] = 0
        bounds = np.cumsum(total)[:-1]
        parts, values = np.split(states, bounds), np.split(marginals, bounds)
        for b in which.tolist():
            begin, end = self.offsets[b], self.offsets[b + 1]
            choice = self.choice._replace(gold=self.choice.gold[begin:end])
            result = log_space(log_chain(self.p, b), choice, None, 1.0, self.counts[0].reshape(-1), np.empty(0))
            log_z[b], exact[b], kept[begin:end] = result.log_z, result.exact, result.kept
            t, parts[b] = (x.astype(np.int32) for x in np.nonzero(result.member))
            values[b] = result.marginals[result.member].astype(marginals.dtype)
            sizes[begin:end] = np.bincount(t, minlength=end - begin)
        return np.concatenate(parts), np.concatenate(values)


class LogSpace(NamedTuple):
    """Result of one sequence in log space."""

    log_z: float
    member: NDArray[np.bool_]  # (T, S)
    marginals: NDArray[np.float64]  # (T, S)
    kept: NDArray[np.float64]  # (T,)
    exact: bool


def log_space(
    chain: LogChain,
    choice: Choice,
    member: NDArray[np.bool_] | None,
    weight: float,
    counts: NDArray[np.float64],
    edges: NDArray[np.float64],
) -> LogSpace:
    """Compute one sequence in log space within beams, or within ``member`` (T, S).

    All states are used if the beams lose every path. ``counts`` and ``edges`` grow as in the kernel ``masked``.
    """
    T, S = len(chain.log_unary), len(chain.emits)
    kept, exact = np.full(T, np.nan), False
    if member is None:
        member = np.zeros((T, S), bool)
        if not log_kernels.choose(chain, choice, member, kept):
            member[:], kept[:], exact = True, 1, True
    marginals = np.zeros((T, S))
    log_z = log_kernels.masked(chain, weight, member, marginals, counts, edges)
    if log_z == -np.inf and not exact:
        member, kept, exact = np.ones((T, S), bool), np.ones(T), True
        log_z = log_kernels.masked(chain, weight, member, marginals, counts, edges)
    return LogSpace(float(log_z), member, marginals, kept, exact)


def log_chain(p: Potentials | SparseChain, b: int) -> LogChain:
    """Return sequence b in float64 for the kernels in log space."""
    n = int(p.lengths[b])
    unary, L = p.log_unary[b, :n].astype(np.float64), p.log_unary.shape[2]
    if isinstance(p, SparseChain):
        s, values = p.transitions, p.log_weights.astype(np.float64)
        ends = p.log_start.astype(np.float64), p.log_end.astype(np.float64)
        return LogChain(unary, s.emits, *ends, s.indptr, s.targets, values, 0)
    first = b * p.batch_step
    matrices = p.log_pairwise[first : first + (n - 1) * p.time_step + 1 - p.time_step if n > 1 else first + 1]
    zeros, values = np.zeros(L), matrices.astype(np.float64).reshape(-1)
    return LogChain(
        unary, np.arange(L, dtype=np.int32), zeros, zeros, NO_SETS.ptr, NO_SETS.states, values, L * L * p.time_step
    )


def viterbi(potentials: Potentials | SparseChain, beam: Beam) -> BeamPaths:
    """Return the best labeling of each sequence within beams chosen from the scores of the best prefixes.

    The masses exp(score of the best prefix that ends in a state), normalized, take the place of the forward masses
    (paper 2, section 4.1). With ``refine`` the beams are those of ``expectations``, chosen by the words before and
    after: far fewer states for the same number of exact paths, at the price of two more passes.
    """
    p, rule = potentials, beam.rule
    sets = NO_SETS
    if beam.refine:
        sets, rule = expectations(p, beam).sets, FULL
        if isinstance(p, Potentials):
            member = members(sets, 0, len(sets.ptr) - 1, p.log_unary.shape[2])
            unary = np.full_like(p.log_unary, -np.inf)
            inside = np.arange(unary.shape[1]) < p.lengths[:, None]
            unary[inside] = np.where(member, p.log_unary[inside], -np.inf)
            p = replace(p, log_unary=unary)
    B, T = p.log_unary.shape[:2]
    paths = Paths(np.full((B, T), -1, np.int64), np.empty(B), np.zeros(B, np.int64), np.zeros(B, np.int64))
    batch = Batch(p.lengths, np.concatenate([[0], np.cumsum(p.lengths)]), p.log_unary)
    inputs: tuple[Any, ...]
    if isinstance(p, SparseChain):
        s, cost = p.transitions, 40 * 60
        entries = Entries(s.emits, p.log_start, p.log_end, 0.0, s.indptr, s.targets, p.log_weights, 0.0)
        kernel, inputs = viterbi_kernels.sparse, (batch, entries, sets)
    else:
        S = p.log_unary.shape[2]
        kernel, inputs, cost = viterbi_kernels.dense, (batch, _matrices(p, log=True)), min(S, 40) * S
    ranges = threads.cut(p.lengths * cost, least=threads.LEAST_WORK)
    threads.run(lambda start, stop: kernel(start, stop, *inputs, rule, paths), ranges)
    exact = paths.scores == -np.inf
    for b in np.flatnonzero(exact).tolist():
        kernel(b, b + 1, *inputs, FULL, paths)
    check_possible(paths.scores, "no labeling to decode")
    return BeamPaths(
        paths.labels, paths.scores, float(paths.sizes.sum() / p.lengths.sum()), int(paths.most.max()), exact
    )


def exp_rows(p: Potentials) -> tuple[Floats, float]:
    """Return exp(log_pairwise - shift) (S, whole vectors) of shared transitions, and the shift."""
    S = p.log_unary.shape[2]
    padded, shift = exp_transition(p)
    return np.ascontiguousarray(padded[:S, : whole_vectors(S, padded.dtype)]), shift


def scaled_entries(p: SparseChain) -> Entries:
    """Return the sparse transitions as probabilities, scaled so that the largest is 1."""
    shifts = [max(float(x.max()), -1e300) for x in (p.log_start, p.log_end)]
    start, end = (np.exp(x - x.dtype.type(shift)) for x, shift in zip((p.log_start, p.log_end), shifts, strict=True))
    shift = p.log_weights.max(initial=-np.inf)
    shift = shift if shift > -np.inf else p.log_weights.dtype.type(0)
    s = p.transitions
    return Entries(s.emits, start, end, sum(shifts), s.indptr, s.targets, np.exp(p.log_weights - shift), float(shift))


def members(sets: BeamSets, begin: int, end: int, n_states: int) -> NDArray[np.bool_]:
    """Return a mask (end - begin, S) of the states in the beams of these positions."""
    member = np.zeros((end - begin, n_states), bool)
    first, last = sets.ptr[begin], sets.ptr[end]
    member[np.repeat(np.arange(end - begin), np.diff(sets.ptr[begin : end + 1])), sets.states[first:last]] = True
    return member


def _matrices(p: Potentials, *, log: bool) -> Matrices:
    """Return the dense transitions: logarithms, or scaled probabilities if they are shared."""
    rows, shift = (p.log_pairwise.reshape(-1, p.log_unary.shape[2]), 0.0) if log else exp_rows(p)
    return Matrices(rows, p.batch_step, p.time_step, log, shift)


def _flat_gold(p: Potentials | SparseChain, gold: NDArray[np.integer] | None) -> NDArray[np.int32]:
    """Return the gold states (n_positions,) of all sequences, one after the other; empty without gold."""
    if gold is None:
        return np.empty(0, np.int32)
    B, T = p.log_unary.shape[:2]
    S = p.transitions.n_states if isinstance(p, SparseChain) else p.log_unary.shape[2]
    check_shape("gold", gold.shape, "B T", B=B, T=T)
    flat = np.ascontiguousarray(gold[np.arange(T) < p.lengths[:, None]], np.int32)
    if flat.min() < -1 or flat.max() >= S:
        raise ValueRangeError(f"gold must lie between -1 (none) and S-1={S - 1}, got {flat.min()} to {flat.max()}.")
    return flat
