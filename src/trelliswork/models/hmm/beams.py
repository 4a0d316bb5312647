"""E-step of hidden Markov models within beams: for many states, few of which matter at a position."""

import numpy as np
from numpy.typing import DTypeLike

from trelliswork.errors import ImpossibleError
from trelliswork.inference import chain
from trelliswork.inference.chain.beam import Beam, BeamStatistics, joined, passes
from trelliswork.models.hmm.data import Counts, HMMParameters, Sequences
from trelliswork.models.hmm.objective import count_labeled, log_unary

BATCH_SCORES = 1 << 22  # scores of states in one batch


def beam_counts(
    parameters: HMMParameters, sequences: Sequences, beam: Beam, *, dtype: DTypeLike = np.float64
) -> Counts:
    """Return the counts of ``expected_counts`` for the chains restricted to beams.

    The log evidence is a lower bound, which EM may decrease. Known states are always inside.

    Notes
    -----
    Time O(n_tokens |I| S).
    """
    S, V = parameters.n_states, parameters.n_symbols
    sequences.check(S, V)
    counts = Counts.zeros(S, V, sequences.n_sequences)
    if sequences.labeled.any():
        count_labeled(parameters, sequences, counts)
    statistics: list[BeamStatistics] = []
    hidden, lengths = np.flatnonzero(~sequences.labeled), np.diff(sequences.offsets)
    # Expected transitions are summed over a batch, so all its sequences must have the same weight.
    for weight in np.unique(sequences.sequence_weights[hidden]):
        of_weight = hidden[sequences.sequence_weights[hidden] == weight]
        order = of_weight[np.argsort(-lengths[of_weight], kind="stable")]
        while len(order):
            n = max(1, BATCH_SCORES // (S * int(lengths[order[0]])))
            statistics.append(_add(parameters, sequences, order[:n], float(weight), beam, np.dtype(dtype), counts))
            order = order[n:]
    counts.beam = joined(statistics)
    counts.total = float(sequences.sequence_weights @ counts.log_evidence)
    return counts


def _add(
    parameters: HMMParameters,
    sequences: Sequences,
    which: np.ndarray,
    weight: float,
    beam: Beam,
    dtype: np.dtype,
    counts: Counts,
) -> BeamStatistics:
    """Add the counts of some sequences with the same weight."""
    S, lengths = parameters.n_states, np.diff(sequences.offsets)[which]
    unary = np.zeros((len(which), lengths.max(), S), dtype)
    for b, s in enumerate(which):
        unary[b, : lengths[b]] = log_unary(parameters, sequences, sequences.offsets[s], sequences.offsets[s + 1])
    unary[:, 0] += parameters.log_start.astype(dtype)
    if parameters.log_end is not None:
        unary[np.arange(len(which)), lengths - 1] += parameters.log_end.astype(dtype)
    transition = parameters.log_transition.astype(dtype)
    p = chain.chain_potentials(unary, transition, lengths, check_values=False)
    expected = passes.expectations(p, beam, counts=True)
    if (expected.log_z == -np.inf).any():
        n = int(which[np.flatnonzero(expected.log_z == -np.inf)[0]])
        raise ImpossibleError(
            f"sequence {n} has probability zero: start from parameters without zeros, or look at its known states."
        )
    assert expected.counts is not None
    counts.transition += weight * expected.counts
    counts.log_evidence[which] = expected.log_z
    masses = weight * expected.marginals.astype(np.float64)
    position, states = np.repeat(np.arange(len(expected.kept)), expected.sizes), expected.sets.states
    token = np.concatenate([np.arange(sequences.offsets[s], sequences.offsets[s + 1]) for s in which])[position]
    symbol = sequences.symbols[token].astype(np.int64)
    known = symbol >= 0
    V = counts.by_symbol.shape[0]
    flat = np.bincount(symbol[known] * S + states[known], masses[known], minlength=V * S)
    counts.by_symbol += flat.reshape(V, S)
    for at, total in ((expected.offsets[:-1], counts.start), (expected.offsets[1:] - 1, counts.end)):
        chosen = np.isin(position, at)
        total += np.bincount(states[chosen], masses[chosen], minlength=S)
    return expected.statistics
