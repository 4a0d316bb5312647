r"""Inference within beams in log space, float64, one sequence: slow, but correct for every input.

It repeats sequences that underflow in probability space. Dense transitions are sparse ones with all S x S entries.
Equations (1) to (3) are those of ``reference``.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.inference.chain.beam.kernels.records import Choice
from trelliswork.inference.chain.beam.kernels.select import BeamRows, Rule, choose
from trelliswork.inference.chain.beam.sparse import SparseChain
from trelliswork.inference.chain.potentials import Integers, Potentials, whole_vectors

Doubles = NDArray[np.float64]
Mask = NDArray[np.bool_]


class LogChain(NamedTuple):
    """One sequence; from state i, entries ``indptr[i]`` to ``indptr[i + 1]`` lead to ``targets``."""

    log_unary: Doubles  # (T, S) scores of states, with those of the ends
    indptr: Integers  # (S + 1,)
    targets: Integers  # (n_entries,)
    log_values: Doubles  # (1 or T-1, n_entries)

    def into(self, t: int, before: Integers) -> tuple[Integers, Integers, Doubles]:
        """Return the entries from states ``before`` into position t: numbers of the states, of the entries, scores."""
        counts = np.diff(self.indptr)[before]
        source = np.repeat(np.arange(len(before)), counts)
        entry = np.arange(len(source)) + np.repeat(self.indptr[before] - np.cumsum(counts) + counts, counts)
        return source, entry, self.log_values[t - 1 if len(self.log_values) > 1 else 0, entry]


class LogSpace(NamedTuple):
    """Result of one sequence in log space."""

    log_z: float
    member: Mask  # (T, S)
    marginals: Doubles  # (T, S)
    kept: Doubles  # (T,)
    exact: bool


def log_chain(p: Potentials | SparseChain, b: int) -> LogChain:
    """Return sequence b in float64."""
    n = int(p.lengths[b])
    unary = p.log_unary[b, :n].astype(np.float64)
    if isinstance(p, SparseChain):
        s = p.transitions
        unary = unary[:, s.emits]
        unary[0] += p.log_start
        unary[-1] += p.log_end
        return LogChain(unary, s.indptr, s.targets.astype(np.int64), p.log_weights[None].astype(np.float64))
    S = unary.shape[1]
    matrices = p.log_pairwise[b * p.batch_step + np.arange(max(n - 1, 1) if p.time_step else 1)]
    targets = np.tile(np.arange(S), S)
    return LogChain(unary, np.arange(S + 1) * S, targets, matrices.reshape(-1, S * S).astype(np.float64))


def log_space(
    chain: LogChain, choice: Choice, member: Mask | None, weight: float, counts: Doubles, edges: Doubles
) -> LogSpace:
    """Compute one sequence in log space within beams, or within ``member`` (T, S).

    All states are used if the beams lose every path. ``counts`` has one number per entry, and grows by the weighted
    expected transitions; ``edges`` (T-1, n_entries) flat takes those of each position. Either may be empty.
    """
    kept, exact = np.full(len(chain.log_unary), np.nan), False
    member = _choose_all(chain, choice, kept) if member is None else member
    log_z, marginals = _within(chain, weight, member, counts, edges)
    if log_z == -np.inf:
        member, kept, exact = np.ones(member.shape, bool), np.ones(len(member)), True
        log_z, marginals = _within(chain, weight, member, counts, edges)
    return LogSpace(log_z, member, marginals, kept, exact)


def _log_sums(values: Doubles, at: Integers, n: int) -> Doubles:
    """Return the log of the sum of exp(values) (n,) for each number in ``at``."""
    tops = np.full(n, -np.inf)
    np.maximum.at(tops, at, values)
    tops = np.where(tops > -np.inf, tops, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.bincount(at, np.exp(values - tops[at]), n)) + tops


def _choose(scores: Doubles, rule: Rule, forced: int) -> tuple[Mask, float]:
    """Return the beam (S,) of log masses, and the share that it keeps: nan if there is none."""
    inside, top = np.zeros(len(scores), bool), scores.max()
    if not top > -np.inf:
        return inside, np.nan
    if rule.keep >= 1:
        inside = scores > -np.inf
        inside[forced] |= forced >= 0
        return inside, 1.0
    share, rows = np.empty(1), BeamRows(np.array([0, len(scores)]), np.empty(0, np.int32), np.exp(scores - top))
    width = whole_vectors(len(scores), np.float64)
    choose(0, 1, rows, np.array([forced], np.int32), rule, width, inside, share, np.empty(1, np.int64))
    return inside, float(share[0])


def _choose_all(chain: LogChain, choice: Choice, kept: Doubles) -> Mask:
    """Return the beams (T, S) and fill the shares (T,) that they keep; a beam that loses every path is empty."""
    (T, S), rule = chain.log_unary.shape, choice.rule
    gold = choice.gold if len(choice.gold) else np.full(T, -1)
    belief, member = chain.log_unary.copy(), np.zeros((T, S), bool)
    for t in range(T):
        if t > 0:
            before = np.flatnonzero(member[t - 1])
            source, entry, values = chain.into(t, before)
            belief[t] += _log_sums(belief[t - 1, before][source] + values, chain.targets[entry], S)  # (1)
        member[t], kept[t] = _choose(belief[t], rule, gold[t])
        if not kept[t] > 0:
            return np.zeros((T, S), bool)
    log_beta = np.zeros(S)
    for t in range(T - 1, -1, -1) if choice.refine else ():
        member[t], kept[t] = _choose(belief[t] + log_beta, rule, gold[t])
        if t > 0:
            source, entry, values = chain.into(t, np.arange(S))
            ahead = np.where(member[t], chain.log_unary[t] + log_beta, -np.inf)
            log_beta = _log_sums(values + ahead[chain.targets[entry]], source, S)
    return member


def _within(chain: LogChain, weight: float, member: Mask, counts: Doubles, edges: Doubles) -> tuple[float, Doubles]:
    """Return log Z inside the sets and the weighted marginals (T, S); add the transitions, see `log_space`."""
    unary, (T, S) = chain.log_unary, member.shape
    sets, place, marginals = [np.flatnonzero(row) for row in member], np.empty(S, np.int64), np.zeros((T, S))
    log_alpha, steps = [unary[0, sets[0]]], []
    for t in range(1, T):
        source, entry, values = chain.into(t, sets[t - 1])
        inside = member[t, chain.targets[entry]]
        place[sets[t]] = np.arange(len(sets[t]))
        source, entry, values = source[inside], entry[inside], values[inside]
        steps.append((source, place[chain.targets[entry]], entry, values))
        sums = _log_sums(log_alpha[-1][source] + values, steps[-1][1], len(sets[t]))
        log_alpha.append(unary[t, sets[t]] + sums)
    log_z = float(np.logaddexp.reduce(log_alpha[-1], initial=-np.inf))
    log_beta = np.zeros(len(sets[-1]))
    for t in range(T - 1, -1, -1) if log_z > -np.inf else ():
        marginals[t, sets[t]] = weight * np.exp(log_alpha[t] + log_beta - log_z)
        if t > 0:
            source, target, entry, values = steps[t - 1]
            ahead = values + (unary[t, sets[t]] + log_beta)[target]
            p = weight * np.exp(log_alpha[t - 1][source] + ahead - log_z)
            if len(counts):
                counts[entry] += p
            if len(edges):
                edges[(t - 1) * len(chain.targets) + entry] = p
            log_beta = _log_sums(ahead, source, len(sets[t - 1]))
    return log_z, marginals
