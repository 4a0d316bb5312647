"""Inference within beams: allocate, call the kernels, repeat in log space the sequences that they marked as unsafe."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_possible, check_shape
from trelliswork.compute.padding import mask, unpad
from trelliswork.errors import ValueRangeError
from trelliswork.inference.chain.beam import FULL, Beam, BeamExpectations, BeamPaths, BeamSets
from trelliswork.inference.chain.beam.kernels import viterbi as viterbi_kernels
from trelliswork.inference.chain.beam.kernels.dense import Matrices, dense
from trelliswork.inference.chain.beam.kernels.records import Batch, Buffer, Choice, Results, Safety
from trelliswork.inference.chain.beam.kernels.sparse import Entries, sparse
from trelliswork.inference.chain.beam.kernels.viterbi import Paths
from trelliswork.inference.chain.beam.log_space import log_chain, log_space
from trelliswork.inference.chain.beam.sparse import SparseChain
from trelliswork.inference.chain.potentials import LIMIT, Floats, Potentials, whole_vectors

BUFFER = 1 << 20  # states that a kernel may fill before they are copied
NO_SETS = BeamSets(np.empty(0, np.int64), np.empty(0, np.int32))


def expectations(
    potentials: Potentials | SparseChain, beam: Beam, *, gold: NDArray[np.integer] | None = None, counts: bool = False
) -> BeamExpectations:
    """Return log Z, marginals and, if ``counts``, the expected transitions within beams.

    States ``gold`` (B, T) are always kept; -1 where there is none. Time O(|I| S) per position for dense transitions,
    O(entries of I) for sparse ones.
    """
    p, choice = potentials, Choice(_flat_gold(potentials, gold), beam.rule, beam.refine)
    (B, T), dtype, S = p.log_unary.shape[:2], p.log_unary.dtype, _n_states(p)
    offsets = np.concatenate([[0], np.cumsum(p.lengths)])
    n = int(offsets[-1])
    batch, limit = Batch(p.lengths, offsets, p.log_unary), dtype.type(LIMIT[dtype])
    kernel: Any
    inputs: tuple[Any, ...]
    counts_shape: tuple[int, ...]
    if isinstance(p, SparseChain):
        kernel, inputs, cost = sparse, (batch, scaled_entries(p), choice, Safety(limit, True)), 60
        counts_shape = (len(p.log_weights) if counts else 0,)
    else:
        matrices, safety = _matrices(p, log=not p.shared), Safety(limit, not p.mixing)
        kernel, inputs, cost = dense, (batch, matrices, choice, safety), S
        counts_shape = (S if counts else 0, S)
    ranges = threads.cut(p.lengths * (min(S, 40) + 20) * cost, least=threads.LEAST_WORK, most=4)
    sums = np.zeros((len(ranges), *counts_shape))
    log_z, sizes, kept = np.full(B, np.nan), np.zeros(n, np.int64), np.zeros(n)
    results = Results(log_z, sizes, kept)
    pieces: dict[int, Buffer] = {}

    def work(start: int, stop: int) -> None:
        slot = [start for start, _ in ranges].index(start)
        size = max(BUFFER, T * S)
        buffer = Buffer(np.empty(size, np.int32), np.empty(size, dtype))
        while start < stop:
            following, used = kernel(start, stop, *inputs, sums[slot], results, buffer)
            pieces[start] = Buffer(buffer.states[:used].copy(), buffer.marginals[:used].copy())
            start = following

    threads.run(work, ranges)
    states, marginals = (np.concatenate([pieces[k][part] for k in sorted(pieces)]) for part in (0, 1))
    exact, unsafe = np.zeros(B, bool), np.flatnonzero(np.isnan(log_z))
    if unsafe.size:
        total = np.add.reduceat(sizes, offsets[:-1])
        total[unsafe] = 0
        bounds = np.cumsum(total)[:-1]
        parts, values = np.split(states, bounds), np.split(marginals, bounds)
        for b in unsafe.tolist():
            begin, end = offsets[b], offsets[b + 1]
            own = choice._replace(gold=choice.gold[begin:end])
            log_z[b], member, p_in, kept[begin:end], exact[b] = log_space(log_chain(p, b), own, sums[0].reshape(-1))
            parts[b], values[b] = np.nonzero(member)[1].astype(np.int32), p_in[member].astype(dtype)
            sizes[begin:end] = member.sum(axis=1)
        states, marginals = np.concatenate(parts), np.concatenate(values)
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    if isinstance(p, SparseChain):  # in the order in which they were reached: sort those of each position
        order = np.lexsort((states, np.repeat(np.arange(n), sizes)))
        states, marginals = states[order], marginals[order]
    summed = sums.sum(axis=0) if counts else None
    return BeamExpectations(log_z, offsets, BeamSets(ptr, states), marginals, summed, kept, exact)


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
            unary, inside = np.full_like(p.log_unary, -np.inf), mask(p.lengths, p.log_unary.shape[1])
            unary[inside] = np.where(member, p.log_unary[inside], -np.inf)
            p = replace(p, log_unary=unary)
    B, T = p.log_unary.shape[:2]
    paths = Paths(np.full((B, T), -1, np.int64), np.empty(B), np.zeros(B, np.int64), np.zeros(B, np.int64))
    batch = Batch(p.lengths, np.concatenate([[0], np.cumsum(p.lengths)]), p.log_unary)
    inputs: tuple[Any, ...]
    if isinstance(p, SparseChain):
        s, cost = p.transitions, 40 * 60
        entries = Entries(s.emits, p.log_start, p.log_end, 0.0, s.indptr, s.targets, p.log_weights, 0.0)  # type: ignore[call-arg]  # helpers are no fields
        kernel, inputs = viterbi_kernels.sparse, (batch, entries, sets)
    else:
        S = p.log_unary.shape[2]
        kernel, inputs, cost = viterbi_kernels.dense, (batch, _matrices(p, log=True)), min(S, 40) * S
    ranges = threads.cut(p.lengths * cost, least=threads.LEAST_WORK)
    threads.run(kernel, ranges, *inputs, rule, paths)
    exact = paths.scores == -np.inf
    for b in np.flatnonzero(exact).tolist():
        kernel(b, b + 1, *inputs, FULL, paths)
    check_possible(paths.scores, "no labeling to decode")
    return BeamPaths(
        paths.labels, paths.scores, float(paths.sizes.sum() / p.lengths.sum()), int(paths.most.max()), exact
    )


def exp_rows(p: Potentials) -> tuple[Floats, float]:
    """Return exp(log_pairwise - shift) (S, whole vectors) of shared transitions, and the shift."""
    S, (matrix, _, _, shift) = p.log_unary.shape[2], p.transitions
    return np.ascontiguousarray(matrix[:S, : whole_vectors(S, matrix.dtype)]), shift


def scaled_entries(p: SparseChain) -> Entries:
    """Return the sparse transitions as probabilities, scaled so that the largest is 1."""
    shifts = [max(float(x.max()), -1e300) for x in (p.log_start, p.log_end)]
    start, end = (np.exp(x - x.dtype.type(shift)) for x, shift in zip((p.log_start, p.log_end), shifts, strict=True))
    shift = p.log_weights.max(initial=-np.inf)
    shift = shift if shift > -np.inf else p.log_weights.dtype.type(0)
    s = p.transitions
    return Entries(s.emits, start, end, sum(shifts), s.indptr, s.targets, np.exp(p.log_weights - shift), float(shift))  # type: ignore[call-arg]  # helpers are no fields


def members(sets: BeamSets, begin: int, end: int, n_states: int) -> NDArray[np.bool_]:
    """Return a mask (end - begin, S) of the states in the beams of these positions."""
    member = np.zeros((end - begin, n_states), bool)
    first, last = sets.ptr[begin], sets.ptr[end]
    member[np.repeat(np.arange(end - begin), np.diff(sets.ptr[begin : end + 1])), sets.states[first:last]] = True
    return member


def _matrices(p: Potentials, *, log: bool) -> Matrices:
    """Return the dense transitions: logarithms, or scaled probabilities if they are shared."""
    rows, shift = (p.log_pairwise.reshape(-1, p.log_unary.shape[2]), 0.0) if log else exp_rows(p)
    return Matrices(rows, p.batch_step, p.time_step, log, shift)  # type: ignore[call-arg]  # helpers are no fields


def _n_states(p: Potentials | SparseChain) -> int:
    return p.transitions.n_states if isinstance(p, SparseChain) else p.log_unary.shape[2]


def _flat_gold(p: Potentials | SparseChain, gold: NDArray[np.integer] | None) -> NDArray[np.int32]:
    """Return the gold states (n_positions,) of all sequences, one after the other; empty without gold."""
    if gold is None:
        return np.empty(0, np.int32)
    (B, T), S = p.log_unary.shape[:2], _n_states(p)
    check_shape("gold", gold.shape, "B T", B=B, T=T)
    flat = np.ascontiguousarray(unpad(gold, p.lengths), np.int32)
    if flat.min() < -1 or flat.max() >= S:
        raise ValueRangeError(f"gold must lie between -1 (none) and S-1={S - 1}, got {flat.min()} to {flat.max()}.")
    return flat
