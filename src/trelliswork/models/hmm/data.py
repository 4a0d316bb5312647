"""What the learning of hidden Markov models takes and gives: parameters, sequences, counts. Arrays only."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_scores, check_shape
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.chain.beam import BeamStatistics

Doubles = NDArray[np.float64]
Floats = NDArray[np.floating]


@dataclass(frozen=True)
class HMMParameters:
    """Log-probabilities of a categorical HMM, float64.

    Attributes
    ----------
    log_start : ndarray (S,)
    log_transition : ndarray (S, S)
        ``log_transition[i, j]``: i comes before j.
    log_end : ndarray (S,) or None
        With an end event, exp(log_transition).sum(1) + exp(log_end) = 1: a distribution over sequences of any length.
        None: the length is given.
    log_emission : ndarray (S, V)
    """

    log_start: Doubles
    log_transition: Doubles
    log_end: Doubles | None
    log_emission: Doubles

    def __post_init__(self) -> None:
        sizes = check_shape("log_start", np.shape(self.log_start), "S")
        for name, pattern in (
            ("log_start", "S"), ("log_transition", "S S"), ("log_end", "S"), ("log_emission", "S V"),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None:
                array = np.ascontiguousarray(value, np.float64)
                sizes = check_shape(name, array.shape, pattern, **sizes)
                check_scores(name, array)
                object.__setattr__(self, name, array)
        if min(sizes.values()) < 1:
            raise ShapeError(f"a model needs a state and a symbol, got S={sizes['S']} and V={sizes['V']}.")

    @property
    def n_states(self) -> int:
        """S."""
        return len(self.log_start)

    @property
    def n_symbols(self) -> int:
        """V."""
        return self.log_emission.shape[1]


@dataclass(frozen=True)
class Sequences:
    """Symbol sequences, end to end; what is known of their states.

    Attributes
    ----------
    offsets : ndarray of int64 (N+1,)
        Sequence n has tokens ``offsets[n]`` to ``offsets[n+1]``, at least one.
    symbols : ndarray of int32 (n_tokens,)
        0 to V-1; -1 for a symbol the model does not know.
    labels : ndarray of int32 (n_tokens,), optional
        The state of a token if it is known, else -1.
    weights : ndarray (N,), optional
        Positive; how often a sequence counts.
    extra_log_emission : ndarray (n_unknown, S), optional
        Scores of the states at the tokens with symbol -1, in their order; such tokens add no emission counts.
    """

    offsets: NDArray[np.int64]
    symbols: NDArray[np.int32]
    labels: NDArray[np.int32] | None = None
    weights: Floats | None = None
    extra_log_emission: Floats | None = None

    def __post_init__(self) -> None:
        lengths = np.diff(self.offsets)
        if len(self.offsets) < 2 or self.offsets[0] != 0 or self.offsets[-1] != len(self.symbols):
            raise ShapeError("offsets must begin with 0 and end with the number of tokens, one sequence at least.")
        if lengths.min() < 1:
            raise ValueRangeError(f"sequence {int(lengths.argmin())} is empty: leave it out.")
        if self.labels is not None:
            check_shape("labels", self.labels.shape, "n", n=len(self.symbols))
        if self.weights is not None:
            check_shape("weights", self.weights.shape, "N", N=len(lengths))
            if not (np.isfinite(self.weights).all() and self.weights.min() > 0):
                raise ValueRangeError("weights must be positive and finite: leave sequences of weight 0 out.")
        unknown = int(np.count_nonzero(self.symbols < 0))
        rows = 0 if self.extra_log_emission is None else len(self.extra_log_emission)
        if rows != unknown:
            raise ShapeError(f"extra_log_emission must have a row for each of {unknown} unknown symbols, got {rows}.")

    @property
    def n_sequences(self) -> int:
        """N."""
        return len(self.offsets) - 1

    @cached_property
    def sequence_weights(self) -> Doubles:
        """(N,); 1 unless given."""
        return np.ones(self.n_sequences) if self.weights is None else np.asarray(self.weights, np.float64)

    @cached_property
    def rows(self) -> NDArray[np.int32]:
        """(n_tokens,): the symbol, or -1 - k for the k-th unknown one."""
        rows = np.array(self.symbols, np.int32)
        rows[rows < 0] = -1 - np.arange(np.count_nonzero(rows < 0), dtype=np.int32)
        return rows

    @cached_property
    def labelled(self) -> NDArray[np.bool_]:
        """(N,): True if every state of the sequence is known."""
        if self.labels is None:
            return np.zeros(self.n_sequences, bool)
        return np.asarray(np.minimum.reduceat(self.labels, self.offsets[:-1]) >= 0)

    @cached_property
    def hidden(self) -> "SortedSequences":
        """The other sequences, longest first in memory too: those that advance together lie side by side."""
        which = np.flatnonzero(~self.labelled)
        return SortedSequences.select(self, which[np.argsort(-np.diff(self.offsets)[which], kind="stable")])

    def check(self, n_states: int, n_symbols: int) -> None:
        """Refuse symbols, labels and extra scores that do not fit a model."""
        for name, values, size in (("symbols", self.symbols, n_symbols), ("labels", self.labels, n_states)):
            if values is not None and (values.max() >= size or values.min() < -1):
                raise ValueRangeError(
                    f"{name} must lie between -1 (unknown) and {size - 1}, got {values.min()} to {values.max()}."
                )
        if self.extra_log_emission is not None:
            check_shape("extra_log_emission", self.extra_log_emission.shape, "n S", S=n_states)
            check_scores("extra_log_emission", self.extra_log_emission)


@dataclass
class Counts:
    """Expected counts, float64, each sequence times its weight.

    Attributes
    ----------
    start : ndarray (S,)
    transition : ndarray (S, S)
    end : ndarray (S,)
        How often a sequence ends in a state, whether or not the end is an event.
    by_symbol : ndarray (V, S)
        Emissions, one row a symbol: as they are summed. ``emission`` (S, V) is the same, transposed.
    log_evidence : ndarray (N,)
        log p of symbols and known states of each sequence, without its weight.
    total : float
        The weighted sum of the log evidence.
    beam : BeamStatistics, optional
        What the beams were like, if there were any; the log evidence is a lower bound then.
    """

    start: Doubles
    transition: Doubles
    end: Doubles
    by_symbol: Doubles
    log_evidence: Doubles
    total: float = 0.0
    beam: BeamStatistics | None = None

    @classmethod
    def zeros(cls, n_states: int, n_symbols: int, n_sequences: int) -> "Counts":
        """Nothing counted yet."""
        S = n_states
        return cls(np.zeros(S), np.zeros((S, S)), np.zeros(S), np.zeros((n_symbols, S)), np.zeros(n_sequences))

    @property
    def emission(self) -> Doubles:
        """(S, V)."""
        return self.by_symbol.T

    def add(self, other: "Counts") -> None:
        """Add the counts of others; the log evidence stays."""
        for name in ("start", "transition", "end", "by_symbol"):
            getattr(self, name).__iadd__(getattr(other, name))


@dataclass(frozen=True)
class SortedSequences:
    """Some sequences, end to end, ready for the kernels; ``which`` gives their numbers."""

    which: NDArray[np.int64]
    offsets: NDArray[np.int64]
    rows: NDArray[np.int32]
    labels: NDArray[np.int32]  # (0,) if none is known
    weights: Doubles

    @classmethod
    def select(cls, sequences: Sequences, which: NDArray[np.int64]) -> "SortedSequences":
        """The sequences ``which`` in that order."""
        lengths = np.diff(sequences.offsets)[which]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        tokens = np.repeat(sequences.offsets[which] - offsets[:-1], lengths) + np.arange(offsets[-1])
        labels = np.empty(0, np.int32) if sequences.labels is None else sequences.labels[tokens].astype(np.int32)
        if not (labels >= 0).any():
            labels = np.empty(0, np.int32)
        return cls(which, offsets, sequences.rows[tokens], labels, sequences.sequence_weights[which])
