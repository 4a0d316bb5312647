"""Products of chains with automata that read their labels: again chains, over pairs of a state and an automaton state.

A pair (s, q) is state s of the chain after whose label the automaton is in q. The chain's transition from s to s' leads
from (s, q) to (s', step[q, label of s']), with its score, so that every labeling keeps its score, and those that the
automaton rejects have none. Pairs that no accepted labeling visits are left out.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.limits import check_cost
from trelliswork.inference.chain.automata import Automaton
from trelliswork.inference.chain.beam.sparse import SparseChain, SparseTransitions
from trelliswork.inference.chain.potentials import Integers, Potentials
from trelliswork.inference.chain.queries import Scores


class Pairs(NamedTuple):
    """The pairs of a product, and its transitions in compressed rows."""

    state: Integers  # (P,) of the chain
    automaton: Integers  # (P,)
    first: NDArray[np.bool_]  # (P,) whether a labeling may start there
    sources: Integers  # (E,) pairs
    targets: Integers  # (E,)
    entry: Integers  # (E,) transitions of the chain

    @classmethod
    def of(cls, automaton: Automaton, label_of: Integers, source: Integers, target: Integers) -> "Pairs":
        """Return the product of an automaton with the transitions of a chain, which are sorted by source."""
        step, live = automaton.step, automaton.live
        after = np.zeros(step.shape, bool)
        after[step, np.arange(step.shape[1])] = True
        valid = (after & live[:, None])[:, label_of]
        number = np.full(valid.shape, -1)
        number[valid] = np.arange(valid.sum())
        check_cost("the product of these rules with the labels", n_bytes=20.0 * len(valid) * len(source))
        q, entry = np.nonzero(valid[:, source])
        following = step[q, label_of[target[entry]]]
        kept = live[following]
        q, entry, following = q[kept], entry[kept], following[kept]
        reached, state = np.nonzero(valid)
        first = reached == step[0, label_of[state]]
        return cls(state, reached, first, number[q, source[entry]], number[following, target[entry]], entry)


def product(scores: Scores, automaton: Automaton) -> tuple[Scores, Integers | None]:
    """Return chains whose labelings are those that an automaton accepts, and the label of each state.

    ``None`` stands for states that emit labels themselves: those of sparse chains. Transitions by position need a dense
    table.
    """
    dtype = scores.log_unary.dtype
    none = dtype.type(-np.inf)
    if isinstance(scores, SparseChain):
        s = scores.transitions
        pairs = Pairs.of(automaton, *(x.astype(np.int64) for x in (s.emits, s.sources, s.targets)))
        start, end, label_of = scores.log_start[pairs.state], scores.log_end[pairs.state], s.emits
        weights = scores.log_weights[pairs.entry]
    else:
        label_of = np.arange(scores.log_unary.shape[2], dtype=np.int32)
        source, target = np.nonzero((scores.log_pairwise > -np.inf).any(axis=0))
        pairs = Pairs.of(automaton, label_of.astype(np.int64), source, target)
        start = end = np.zeros(len(pairs.state), dtype)
    start, end = np.where(pairs.first, start, none), np.where(automaton.final[pairs.automaton], end, none)
    if isinstance(scores, Potentials):
        source, target = source[pairs.entry], target[pairs.entry]
        if not scores.shared:
            return _by_position(scores, pairs, source, target, (start, end)), pairs.state
        weights = scores.log_pairwise[0, source, target]
    indptr = np.searchsorted(pairs.sources, np.arange(len(pairs.state) + 1))
    transitions = SparseTransitions(
        indptr,
        pairs.targets.astype(np.int32),
        label_of[pairs.state],
        scores.log_unary.shape[2],
        pairs.first & (start > none),
    )
    return SparseChain(scores.log_unary, transitions, weights, start, end, scores.lengths), None


def _by_position(p: Potentials, pairs: Pairs, source: Integers, target: Integers, ends: tuple) -> Potentials:
    """Return a product with a matrix for each position."""
    P, lengths = len(pairs.state), p.lengths
    check_cost("the product of these rules with transitions by position", n_bytes=8.0 * len(p.log_pairwise) * P * P)
    unary = np.take(p.log_unary, pairs.state, axis=2)
    unary[:, 0] += ends[0]
    unary[np.arange(len(unary)), lengths - 1] += ends[1]
    pairwise = np.full((len(p.log_pairwise), P, P), -np.inf, unary.dtype)
    pairwise[:, pairs.sources, pairs.targets] = p.log_pairwise[:, source, target]
    return Potentials(unary, pairwise, p.batch_step, p.time_step, lengths)
