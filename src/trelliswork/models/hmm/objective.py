r"""The E-step of categorical hidden Markov models: expected counts of starts, transitions, ends and emissions.

.. math:: p(x, y) = p(y_1) \prod_t p(x_t \mid y_t) \prod_{t<T} p(y_{t+1} \mid y_t) \; p(\text{end} \mid y_T)

The counts are posterior marginals summed over positions (paper 1, section on EM). States may be known at some or all
tokens. The counts are computed by scaled forward-backward over chunks of sequences, and in log space for what
underflows. None of these stores S x S numbers per position.
"""

from dataclasses import asdict
from threading import Lock

import numpy as np
from numpy.typing import DTypeLike, NDArray

from trelliswork.compute import threads
from trelliswork.compute.memory import aligned_empty
from trelliswork.compute.padding import batches, pad
from trelliswork.compute.simd import VECTOR_BYTES
from trelliswork.data.corpus import chosen_tokens
from trelliswork.errors import ImpossibleError
from trelliswork.inference import chain
from trelliswork.inference.chain.beam import Beam, BeamStatistics, joined
from trelliswork.inference.chain.beam import passes as beam_passes
from trelliswork.inference.chain.kernels.forward_backward import group_size
from trelliswork.learning import whole
from trelliswork.models.hmm.data import (
    Counts,
    Doubles,
    Floats,
    HMMParameters,
    Sequences,
    chunks,
)
from trelliswork.models.hmm.kernels import expected_counts as kernels
from trelliswork.models.hmm.kernels.expected_counts import Observed, Tables
from trelliswork.models.hmm.kernels.tables import scale_symbols

__all__ = ["Counts", "HMMParameters", "Sequences", "expected_counts", "shared_counts"]

CHUNK_BYTES = 1 << 26  # size of the marginals in memory; alpha needs as much again
MOST_SLOTS = 16  # parts of a corpus for threads, at least; results do not depend on the number of threads
PART_BYTES = 1 << 20  # size of the marginals of one part, which are in the cache when they are added
LANE_STATES = 64  # maximum number of states with one sequence per lane
LANE_BYTES = 1 << 20  # maximum size of forward and backward variables of one group of lanes
LANE_WASTE = 1.3  # maximum length of the lanes in sequences of different lengths, relative to their tokens
BATCH_SCORES = 1 << 22  # scores of states in one batch within beams


def expected_counts(
    parameters: HMMParameters, sequences: Sequences, *, dtype: DTypeLike = np.float64, beam: Beam | None = None
) -> Counts:
    """Run one E-step of the Baum-Welch algorithm; a sequence of probability zero raises `ImpossibleError`.

    Parameters need not be normalized: any scores below +inf are valid. ``dtype`` is that of the recursions; sums over
    the corpus are float64. Sequences that underflow are recomputed more precisely. Time O(n_tokens S^2), memory
    O(S^2 + S V) and at most about 128 MB or that of the longest sequence, whatever the corpus. Scaling as in Rabiner
    (1989), eqs. 91-93.

    With a beam the chains are restricted to few states, |I|, at a position: O(n_tokens |I| S). Known states are always
    inside. The log evidence is then a lower bound, which EM may decrease.
    """
    kind = np.dtype(dtype)
    S, V = parameters.n_states, parameters.n_symbols
    counts = Counts.zeros(S, V, sequences.n_sequences)
    if sequences.labeled.any():
        _count_labeled(parameters, sequences, counts)
    if beam is None:
        _add_exact(parameters, sequences, kind, counts)
    else:
        _add_within_beams(parameters, sequences, kind, beam, counts)
    counts.total = float(counts.log_evidence.sum())
    return counts


def shared_counts(
    parameters: HMMParameters, sequences: Sequences, *, dtype: DTypeLike = np.float64, beam: Beam | None = None
) -> Counts:
    """Return the expected counts of the whole text; only the log evidence is that of these sequences."""
    counts = expected_counts(parameters, sequences, dtype=dtype, beam=beam)
    counts.start, counts.transition, counts.end, total = whole.summed(
        counts.start, counts.transition, counts.end, np.array([counts.total])
    )
    counts.total = float(total[0])
    (counts.by_symbol,) = whole.summed(counts.by_symbol)
    if beam is not None:
        parts = whole.of_parts(None if counts.beam is None else asdict(counts.beam))
        counts.beam = joined([BeamStatistics(**part) for part in parts if part is not None])
    return counts


def _add_exact(parameters: HMMParameters, sequences: Sequences, dtype: np.dtype, counts: Counts) -> None:
    """Add the counts of the sequences with unknown states, in higher precision or log space where they underflow."""
    which, left = sequences.hidden
    for precision in sorted({dtype, np.dtype(np.float64)}, key=lambda d: d.itemsize):
        if len(which):
            safe = _scaled(parameters, precision, which, left, counts)
            which, left = which[~safe], left if not safe.any() else left.select(np.flatnonzero(~safe))
    for s in which.tolist():
        _add_alone(parameters, sequences, s, counts)
    impossible = np.flatnonzero(counts.log_evidence == -np.inf)
    if impossible.size:
        raise ImpossibleError(
            f"sequence {impossible[0]} has probability zero"
            + (f" (and {impossible.size - 1} more)" if impossible.size > 1 else "")
            + ": start from parameters without zeros, or check its known states."
        )


def _tables(parameters: HMMParameters, dtype: np.dtype) -> tuple[Tables, float]:
    """Return parameters as probabilities in one precision, and the logarithm of the scales of starts and ends."""
    p = parameters
    chains = chain.chain_potentials(np.zeros((1, 1, p.n_states), dtype), p.log_transition.astype(dtype))
    width = chains.row_width
    ends = np.zeros(p.n_states) if p.log_end is None else p.log_end
    (start, end), log_scales = _scaled_rows(np.stack([p.log_start, ends]), width, dtype)
    return Tables(start, end, *_emissions(p.log_emission, width, dtype), chains.transitions), float(log_scales.sum())


def _scaled_rows(log_rows: Floats, width: int, dtype: np.dtype) -> tuple[Floats, Doubles]:
    """Return exp(row - its maximum), padded with zeros, and the maxima; subnormal numbers become zero."""
    top = log_rows.max(axis=1)
    values = np.exp(log_rows - np.where(top > -np.inf, top, 0)[:, None])
    values[values < np.finfo(dtype).tiny] = 0
    out = np.zeros((len(values), width), dtype)
    out[:, : values.shape[1]] = values
    return out, np.where(np.isneginf(top), 0, top)  # an impossible row has scale 1: it is zero anyway


def _emissions(log_emission: Doubles, width: int, dtype: np.dtype) -> tuple[Floats, Doubles]:
    """Return the table (V + 1, width) of emissions, the last row zero, and its log-scales."""
    (S, n), lanes = log_emission.shape, VECTOR_BYTES // 8
    table, log_table = aligned_empty(n + 1, width, dtype=dtype), np.empty(n)
    table[n] = 0
    whole = n // lanes * lanes
    at_once = max(1, 200_000 // S // lanes) * lanes

    def work(start: int, stop: int) -> None:
        scale_symbols(start, stop, log_emission, table, log_table)

    threads.run(work, [(a, min(a + at_once, whole)) for a in range(0, whole, at_once)])
    table[whole:n], log_table[whole:] = _scaled_rows(log_emission[:, whole:].T, width, dtype)
    return table, log_table


def _scaled(
    parameters: HMMParameters, dtype: np.dtype, which: NDArray[np.int64], data: Sequences, counts: Counts
) -> NDArray[np.bool_]:
    """Add the counts of all sequences that are safe in this precision; return which are (M,).

    ``data`` are the sequences with the indices ``which``, longest first.
    """
    (tables, log_ends), n = _tables(parameters, dtype), len(which)
    log_evidence, safe = np.zeros(n), np.ones(n, bool)
    labels = np.empty(0, np.int32) if data.labels is None else data.labels
    observed = Observed(data.offsets, data.symbols, labels, np.ones(n, dtype))
    for a, b in chunks(data.offsets, CHUNK_BYTES // tables.emission[0].nbytes):
        _add_range(tables, observed, (a, b), log_evidence, safe, counts)
    log_evidence += log_ends
    counts.log_evidence[which] = log_evidence
    return safe


def _add_range(
    tables: Tables,
    observed: Observed,
    which: tuple[int, int],
    log_evidence: Doubles,
    safe: NDArray[np.bool_],
    counts: Counts,
) -> None:
    """Add the counts of a range of sequences, of which threads take parts.

    The marginals of a part stay in the cache until they are added. Parts are added in their order, whichever thread
    ends first, so that results do not depend on the number of threads.
    """
    first, offsets, S = which[0], observed.offsets, len(counts.start)
    width, dtype = tables.emission.shape[1], tables.emission.dtype
    lengths, n_lanes = np.diff(offsets[first : which[1] + 1]), 2 * VECTOR_BYTES // dtype.itemsize
    in_lanes = _fits_lanes(lengths, n_lanes, S, dtype.itemsize)
    run, group = (kernels.by_lane, n_lanes) if in_lanes else (kernels.by_row, group_size(width))
    n_parts = max(MOST_SLOTS, int(lengths.sum()) * width * dtype.itemsize // PART_BYTES)
    ranges = threads.cut(lengths * S * S, multiple=group, least=threads.LEAST_WORK, most=n_parts)
    numbers = {start: k for k, (start, _) in enumerate(ranges)}
    spare: list[tuple[Floats, Doubles]] = []
    done: dict[int, tuple[int, int, Floats, Floats, Doubles]] = {}
    lock, n_added = Lock(), 0

    def work(start: int, stop: int) -> None:
        nonlocal n_added
        k, start, stop = numbers[start], first + start, first + stop
        origin, n_tokens = int(offsets[start]), int(offsets[stop] - offsets[start])
        try:
            memory, transition = spare.pop()
        except IndexError:
            memory, transition = aligned_empty(0, dtype=dtype), np.empty((S, S))
        if memory.size < (n_tokens + 1) * width:
            memory = aligned_empty((n_tokens + 1) * width, dtype=dtype)
        marginals = memory[: (n_tokens + 1) * width].reshape(n_tokens + 1, width)
        transition[:] = 0
        run(start, stop, observed, tables, marginals, origin, transition, log_evidence, safe)
        with lock:
            done[k] = start, stop, memory, marginals, transition
            while n_added in done:
                start, stop, memory, marginals, transition = done.pop(n_added)
                kernels.add_marginals(start, stop, observed, marginals, counts.start, counts.end, counts.by_symbol)
                counts.transition += transition
                spare.append((memory, transition))
                n_added += 1

    threads.run(work, ranges)


def _fits_lanes(lengths: NDArray[np.int64], n_lanes: int, n_states: int, itemsize: int) -> bool:
    """Return whether one sequence per lane is faster: few states, and enough sequences of similar lengths."""
    space = 2 * int(lengths[0]) * n_states * n_lanes * itemsize
    even = lengths[::n_lanes].sum() * n_lanes <= LANE_WASTE * lengths.sum()
    return bool(n_states <= LANE_STATES and space <= LANE_BYTES and even)


def _add_alone(parameters: HMMParameters, sequences: Sequences, s: int, counts: Counts) -> None:
    """Add the counts of one sequence that underflows, as a chain of its own; an impossible one adds nothing."""
    tokens = slice(*sequences.offsets[s : s + 2].tolist())
    unary = _log_unary(parameters, sequences, tokens)
    unary[0] += parameters.log_start
    if parameters.log_end is not None:
        unary[-1] += parameters.log_end
    potentials = chain.chain_potentials(unary[None], parameters.log_transition)
    log_z, expected = chain.expectations(potentials, counts=True)
    counts.log_evidence[s] = log_z[0]
    assert expected.marginals is not None
    assert expected.counts is not None
    marginals = np.asarray(expected.marginals[0], np.float64)
    counts.transition += expected.counts[0]
    counts.start += marginals[0]
    counts.end += marginals[-1]
    kernels.add_emissions(sequences.symbols[tokens], marginals, counts.by_symbol)


def _log_unary(parameters: HMMParameters, sequences: Sequences, tokens: slice | NDArray[np.int64]) -> Doubles:
    """Return the emission scores (n, S) of some tokens; -inf for all states but the known one."""
    unary = parameters.log_emission.T[sequences.symbols[tokens]]
    if sequences.labels is not None:
        labels = sequences.labels[tokens]
        unary[(labels >= 0)[:, None] & (labels[:, None] != np.arange(parameters.n_states))] = -np.inf
    return unary


def _count_labeled(parameters: HMMParameters, sequences: Sequences, counts: Counts) -> None:
    """Add plain counts of the sequences whose states are all known, and their joint log-probability."""
    p, S, V = parameters, parameters.n_states, parameters.n_symbols
    which = np.flatnonzero(sequences.labeled)
    own = sequences.select(which)
    assert own.labels is not None
    y, x = own.labels.astype(np.int64), own.symbols
    first, last = own.offsets[:-1], own.offsets[1:] - 1
    inner = np.ones(len(y), bool)
    inner[last] = False
    before = np.flatnonzero(inner)
    counts.start += np.bincount(y[first], minlength=S)
    counts.end += np.bincount(y[last], minlength=S)
    counts.transition += np.bincount(y[before] * S + y[before + 1], minlength=S * S).reshape(S, S)
    counts.by_symbol += np.bincount(x * np.int64(S) + y, minlength=V * S).reshape(V, S)
    score = p.log_emission[y, x]
    score[before] += p.log_transition[y[before], y[before + 1]]
    score[first] += p.log_start[y[first]]
    if p.log_end is not None:
        score[last] += p.log_end[y[last]]
    counts.log_evidence[which] = np.add.reduceat(score, first)


def _add_within_beams(
    parameters: HMMParameters, sequences: Sequences, dtype: np.dtype, beam: Beam, counts: Counts
) -> None:
    """Add the counts of the sequences with unknown states within beams."""
    order, lengths = sequences.hidden[0], np.diff(sequences.offsets)  # longest first
    counts.beam = joined(
        [
            _add_batch(parameters, sequences, order[first:last], dtype, beam, counts)
            for first, last in batches(lengths[order], BATCH_SCORES // parameters.n_states)
        ]
    )


def _add_batch(
    parameters: HMMParameters,
    sequences: Sequences,
    which: NDArray[np.int64],
    dtype: np.dtype,
    beam: Beam,
    counts: Counts,
) -> BeamStatistics:
    """Add the counts of some sequences."""
    S, lengths = parameters.n_states, np.diff(sequences.offsets)[which]
    tokens, _ = chosen_tokens(sequences.offsets, which)
    unary = pad(_log_unary(parameters, sequences, tokens), lengths, dtype=dtype)
    unary[:, 0] += parameters.log_start.astype(dtype)
    if parameters.log_end is not None:
        unary[np.arange(len(which)), lengths - 1] += parameters.log_end.astype(dtype)
    transition = parameters.log_transition.astype(dtype)
    p = chain.chain_potentials(unary, transition, lengths, check_values=False)
    expected = beam_passes.expectations(p, beam, counts=True)
    if (expected.log_z == -np.inf).any():
        n = int(which[np.flatnonzero(expected.log_z == -np.inf)[0]])
        raise ImpossibleError(
            f"sequence {n} has probability zero: start from parameters without zeros, or look at its known states."
        )
    assert expected.counts is not None
    counts.transition += expected.counts
    counts.log_evidence[which] = expected.log_z
    masses = expected.marginals.astype(np.float64)
    position, states = np.repeat(np.arange(len(expected.kept)), expected.sizes), expected.sets.states
    symbols = sequences.symbols[tokens[position]].astype(np.int64)
    counts.by_symbol += np.bincount(symbols * S + states, masses, counts.by_symbol.size).reshape(-1, S)
    for at, total in ((expected.offsets[:-1], counts.start), (expected.offsets[1:] - 1, counts.end)):
        chosen = np.isin(position, at)
        total += np.bincount(states[chosen], masses[chosen], minlength=S)
    return expected.statistics
