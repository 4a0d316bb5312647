"""Inference within beams: allocate, choose a kernel, call it, mend in log space what it marked."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_possible, check_shape
from trelliswork.errors import ValueRangeError
from trelliswork.inference.chain.beam import FULL, Beam, BeamExpectations, BeamPaths, BeamSets, Rule
from trelliswork.inference.chain.beam.kernels import (
    log_space as beam_log_kernels,
)
from trelliswork.inference.chain.beam.kernels import (
    ranges as beam_range_kernels,
)
from trelliswork.inference.chain.beam.kernels import (
    viterbi as beam_max_kernels,
)
from trelliswork.inference.chain.beam.sparse import SparseChain
from trelliswork.inference.chain.layout import LIMIT, exp_transition, whole_vectors
from trelliswork.inference.chain.potentials import Floats, Integers, Potentials

BUFFER = 1 << 20  # states that a kernel may fill before it hands them over
compiled: Any = beam_range_kernels  # mypy cannot count starred arguments
compiled_log: Any = beam_log_kernels
compiled_max: Any = beam_max_kernels


def expectations(
    potentials: Potentials | SparseChain,
    beam: Beam,
    *,
    gold: NDArray[np.integer] | None = None,
    sets: BeamSets | None = None,
    counts: bool = False,
) -> BeamExpectations:
    """log Z, marginals and transition counts within beams.

    Parameters
    ----------
    potentials : Potentials or SparseChain
    beam : Beam
    gold : ndarray of int (B, T), optional
        States that are always kept, -1 where there is none.
    sets : BeamSets, optional
        Use these beams instead of choosing.
    counts : bool
        Sum the expected transitions.

    Notes
    -----
    Time O(|I| S) a position for dense transitions, O(entries of I) for sparse ones.
    """
    p = potentials
    B, T = p.log_unary.shape[:2]
    run = _Run(p, beam, _flat_gold(p, gold), sets, counts)
    pieces: dict[int, tuple[NDArray[np.int32], Floats]] = {}
    ranges = threads.cut(p.lengths * run.cost, least=threads.LEAST_WORK, most=4)

    def work(start: int, stop: int) -> None:
        slot = [start for start, _ in ranges].index(start)
        size = max(BUFFER, T * run.n_states)
        states, marginals = np.empty(size, np.int32), np.empty(size, p.log_unary.dtype)
        while start < stop:
            following, used = run.kernel(start, stop, run.counts[slot], states, marginals)
            pieces[start] = states[:used].copy(), marginals[:used].copy()
            start = following

    run.counts = np.zeros((len(ranges), *run.counts_shape))
    threads.run(work, ranges)
    order = sorted(pieces)
    states = np.concatenate([pieces[k][0] for k in order])
    marginals = np.concatenate([pieces[k][1] for k in order])
    exact = np.zeros(B, bool)
    unsafe = np.flatnonzero(np.isnan(run.log_z))
    if unsafe.size:
        states, marginals = run.mend(unsafe, states, marginals, exact)
    ptr = np.concatenate([[0], np.cumsum(run.sizes)])
    if isinstance(p, SparseChain):  # as reached: bring each position's into order
        order_of = np.lexsort((states, np.repeat(np.arange(len(run.sizes)), run.sizes)))
        states, marginals = states[order_of], marginals[order_of]
    found = run.counts.sum(axis=0) if counts else None
    return BeamExpectations(run.log_z, run.offsets, BeamSets(ptr, states), marginals, found, run.kept, exact)


class _Run:
    """What the kernels need for one batch, and what they fill."""

    def __init__(
        self, p: Potentials | SparseChain, beam: Beam, gold: NDArray[np.int32], sets: BeamSets | None, counts: bool
    ) -> None:
        self.p, self.beam, self.gold = p, beam, gold
        self.n_states = p.transitions.n_states if isinstance(p, SparseChain) else p.log_unary.shape[2]
        self.offsets = np.concatenate([[0], np.cumsum(p.lengths)])
        n = int(self.offsets[-1])
        none = BeamSets(np.empty(0, np.int64), np.empty(0, np.int32))
        self.given = none if sets is None else check_sets(sets, n, self.n_states)
        self.log_z, self.sizes, self.kept = np.full(len(p.lengths), np.nan), np.zeros(n, np.int64), np.zeros(n)
        dtype = p.log_unary.dtype
        limit = dtype.type(LIMIT[dtype])
        S, width = self.n_states, whole_vectors(p.log_unary.shape[2], dtype)
        self.cost = (min(S, 40) + 20) * (S if isinstance(p, Potentials) else 60)
        self.counts_shape: tuple[int, ...]
        self.counts = np.zeros(0)
        tail = (self.gold, *beam.rule, beam.refine, *self.given, limit)
        head = (p.lengths, self.offsets, p.log_unary)
        middle: tuple[Any, ...]
        self._arguments: tuple[Any, ...]
        if isinstance(p, SparseChain):
            self.counts_shape = (len(p.log_weights) if counts else 0,)
            middle = (p.transitions.emits, *scaled(p.log_start, p.log_end), *scaled_weights(p), width)
            self._kernel, self._arguments = compiled.sparse, (*head, *middle, *tail)
        else:
            self.counts_shape = (S if counts else 0, S)
            matrix, log_shift = p.log_pairwise.reshape(-1, S), 0.0
            if p.shared:
                matrix, log_shift = exp_rows(p)
            middle = (matrix, p.batch_step, p.time_step, not p.shared, log_shift, width)
            self._kernel, self._arguments = compiled.dense, (*head, *middle, *tail, not p.mixing)

    def kernel(
        self, start: int, stop: int, counts: Floats, states: NDArray[np.int32], marginals: Floats
    ) -> tuple[int, int]:
        """Run the kernel on a range; return where it stopped and how many states it filled."""
        found: tuple[int, int] = self._kernel(
            start, stop, *self._arguments, counts, self.log_z, self.sizes, self.kept, states, marginals
        )
        return found

    def mend(
        self, which: Integers, states: NDArray[np.int32], marginals: Floats, exact: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int32], Floats]:
        """Compute the sequences ``which`` in log space and put their beams among the others'."""
        total = np.add.reduceat(self.sizes, self.offsets[:-1])
        total[which] = 0
        bounds = np.cumsum(total)[:-1]
        parts, values = np.split(states, bounds), np.split(marginals, bounds)
        for b in which.tolist():
            begin, end = self.offsets[b], self.offsets[b + 1]
            found = log_space(
                log_arrays(self.p, b), self.gold[begin:end], self.beam.rule, self.beam.refine,
                None if not self.given.ptr.size else members(self.given, begin, end, self.n_states),
                1.0, self.counts[0].reshape(-1), np.empty(0),
            )  # fmt: skip
            self.log_z[b], exact[b], self.kept[begin:end] = found.log_z, found.exact, found.kept
            t, parts[b] = (x.astype(np.int32) for x in np.nonzero(found.member))
            values[b] = found.marginals[found.member].astype(marginals.dtype)
            self.sizes[begin:end] = np.bincount(t, minlength=end - begin)
        return np.concatenate(parts), np.concatenate(values)


class LogSpace(NamedTuple):
    """What log space found for one sequence."""

    log_z: float
    member: NDArray[np.bool_]  # (T, S)
    marginals: NDArray[np.float64]  # (T, S)
    kept: NDArray[np.float64]  # (T,)
    exact: bool


def log_space(
    arrays: tuple[Any, ...],
    gold: NDArray[np.int32],
    rule: Rule,
    refine: bool,
    member: NDArray[np.bool_] | None,
    weight: float,
    counts: NDArray[np.float64],
    edges: NDArray[np.float64],
) -> LogSpace:
    """One sequence (``log_arrays``) in log space; with all states if its beams lose every path."""
    T, S = arrays[0], len(arrays[4])
    kept, exact = np.full(T, np.nan), False
    if member is None:
        member = np.zeros((T, S), bool)
        if not compiled_log.choose(*arrays, gold, 0, *rule, refine, member, kept):
            member[:], kept[:], exact = True, 1, True
    marginals = np.zeros((T, S))
    log_z = compiled_log.masked(*arrays, weight, member, marginals, counts, edges)
    if log_z == -np.inf and not exact:
        member, exact = np.ones((T, S), bool), True
        kept = np.ones(T)
        log_z = compiled_log.masked(*arrays, weight, member, marginals, counts, edges)
    return LogSpace(float(log_z), member, marginals, kept, exact)


def log_arrays(p: Potentials | SparseChain, b: int) -> tuple[Any, ...]:
    """Sequence b as ``beam_log_kernels`` take it, in float64."""
    n = int(p.lengths[b])
    L = p.log_unary.shape[2]
    scores = (n, p.log_unary[b, :n].astype(np.float64).reshape(-1), 0, L)
    if isinstance(p, SparseChain):
        ends = p.log_start.astype(np.float64), p.log_end.astype(np.float64)
        weights = p.log_weights.astype(np.float64)
        return *scores, p.transitions.emits, *ends, p.transitions.indptr, p.transitions.targets, weights, 0, 0
    first = b * p.batch_step
    matrices = p.log_pairwise[first : first + (n - 1) * p.time_step + 1 - p.time_step if n > 1 else first + 1]
    nothing = np.zeros(L)
    flat = matrices.astype(np.float64).reshape(-1)
    none = np.empty(0, np.int64), np.empty(0, np.int32)
    return *scores, np.arange(L, dtype=np.int32), nothing, nothing, *none, flat, 0, L * L * p.time_step


def viterbi(potentials: Potentials | SparseChain, beam: Beam) -> BeamPaths:
    """Best labelling of each sequence within beams chosen from the scores of the best prefixes.

    The masses exp(score of the best prefix that ends in a state), normalised, take the place of the forward masses
    (paper 2, section 4.1). With ``refine`` the beams are those of ``expectations``, chosen by what comes before and
    what follows: far fewer states for as many exact paths, at the price of two more passes.
    """
    p, rule = potentials, beam.rule
    given = BeamSets(np.empty(0, np.int64), np.empty(0, np.int32))
    if beam.refine:
        given, rule = expectations(p, beam).sets, FULL
        if isinstance(p, Potentials):
            member = members(given, 0, len(given.ptr) - 1, p.log_unary.shape[2])
            unary = np.full_like(p.log_unary, -np.inf)
            inside = np.arange(unary.shape[1]) < p.lengths[:, None]
            unary[inside] = np.where(member, p.log_unary[inside], -np.inf)
            p = replace(p, log_unary=unary)
    B, T = p.log_unary.shape[:2]
    labels, scores = np.full((B, T), -1, np.int64), np.empty(B)
    sizes, most = np.zeros(B, np.int64), np.zeros(B, np.int64)
    out = (labels, scores, sizes, most)
    arrays: tuple[Any, ...]
    if isinstance(p, SparseChain):
        s = p.transitions
        offsets = np.cumsum(p.lengths) - p.lengths
        sets = (*given, offsets)
        arrays = (p.lengths, p.log_unary, s.emits, p.log_start, p.log_end, s.indptr, s.targets, p.log_weights, *sets)
        kernel = compiled_max.sparse
        cost = 40 * 60
    else:
        S = p.log_unary.shape[2]
        matrix = p.log_pairwise.reshape(-1, S)
        arrays = (
            p.lengths, p.log_unary, matrix, p.batch_step, p.time_step, whole_vectors(S, p.log_unary.dtype),
        )  # fmt: skip
        kernel = compiled_max.dense
        cost = min(S, 40) * S
    ranges = threads.cut(p.lengths * cost, least=threads.LEAST_WORK)
    threads.run(lambda start, stop: kernel(start, stop, *arrays, *rule, *out), ranges)
    exact = scores == -np.inf
    for b in np.flatnonzero(exact).tolist():
        kernel(b, b + 1, *arrays, *FULL, *out)
    check_possible(scores, "no labelling to decode")
    return BeamPaths(labels, scores, float(sizes.sum() / p.lengths.sum()), int(most.max()), exact)


def exp_rows(p: Potentials) -> tuple[Floats, float]:
    """exp(log_pairwise - shift) (S, whole vectors) of shared transitions, and the shift."""
    S = p.log_unary.shape[2]
    padded, shift = exp_transition(p)
    return np.ascontiguousarray(padded[:S, : whole_vectors(S, padded.dtype)]), shift


def scaled(log_start: Floats, log_end: Floats) -> tuple[Floats, Floats, float]:
    """Masses of first and last states, the largest 1 in each, and the logarithm of what was taken out."""
    shifts = [max(float(x.max()), -1e300) for x in (log_start, log_end)]
    return (
        np.exp(log_start - log_start.dtype.type(shifts[0])),
        np.exp(log_end - log_end.dtype.type(shifts[1])),
        sum(shifts),
    )


def scaled_weights(p: SparseChain) -> tuple[Integers, NDArray[np.int32], Floats, float]:
    """Indices, exp(log_weights - shift) and the shift."""
    shift = p.log_weights.max(initial=-np.inf)
    shift = shift if shift > -np.inf else p.log_weights.dtype.type(0)
    return p.transitions.indptr, p.transitions.targets, np.exp(p.log_weights - shift), float(shift)


def check_sets(sets: BeamSets, n_positions: int, n_states: int) -> BeamSets:
    """Sets in the types of the kernels; refuse what does not fit."""
    ptr, states = np.ascontiguousarray(sets.ptr, np.int64), np.ascontiguousarray(sets.states, np.int32)
    check_shape("ptr of the sets", ptr.shape, "n", n=n_positions + 1)
    if ptr[0] != 0 or ptr[-1] != len(states) or (np.diff(ptr) < 1).any():
        raise ValueRangeError("ptr of the sets must rise from 0 to the number of states: no beam may be empty.")
    if states.min() < 0 or states.max() >= n_states or (np.diff(ptr) > n_states).any():
        raise ValueRangeError(f"states of the sets must be different and between 0 and S-1={n_states - 1}.")
    return BeamSets(ptr, states)


def members(sets: BeamSets, begin: int, end: int, n_states: int) -> NDArray[np.bool_]:
    """(end - begin, S): which states the beams of these positions hold."""
    member = np.zeros((end - begin, n_states), bool)
    first, last = sets.ptr[begin], sets.ptr[end]
    member[np.repeat(np.arange(end - begin), np.diff(sets.ptr[begin : end + 1])), sets.states[first:last]] = True
    return member


def _flat_gold(p: Potentials | SparseChain, gold: NDArray[np.integer] | None) -> NDArray[np.int32]:
    """Gold states (n_positions,) of all sequences, one after the other; empty without gold."""
    if gold is None:
        return np.empty(0, np.int32)
    B, T = p.log_unary.shape[:2]
    S = p.transitions.n_states if isinstance(p, SparseChain) else p.log_unary.shape[2]
    check_shape("gold", gold.shape, "B T", B=B, T=T)
    flat = np.ascontiguousarray(gold[np.arange(T) < p.lengths[:, None]], np.int32)
    if flat.min() < -1 or flat.max() >= S:
        raise ValueRangeError(f"gold must lie between -1 (none) and S-1={S - 1}, got {flat.min()} to {flat.max()}.")
    return flat
