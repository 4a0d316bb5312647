r"""Inference within beams in log space, float64, one sequence: slow, but correct for every input.

It repeats sequences that underflow in probability space. Dense transitions are sparse ones with all S x S entries.
Equation (1) is that of ``reference``.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.inference.chain.beam.kernels.records import Choice
from trelliswork.inference.chain.beam.kernels.select import BeamRows, Rule, choose
from trelliswork.inference.chain.beam.sparse import SparseChain
from trelliswork.inference.chain.potentials import Integers, Potentials, whole_vectors
from trelliswork.inference.semirings import Lattice, Recursions

Doubles = NDArray[np.float64]
Mask = NDArray[np.bool_]


class LogChain(NamedTuple):
    """One sequence; from state i, entries ``indptr[i]`` to ``indptr[i + 1]`` lead to ``targets``."""

    log_unary: Doubles  # (T, S) scores of states, with those of the ends
    indptr: Integers  # (S + 1,)
    targets: Integers  # (n_entries,)
    log_values: Doubles  # (1 or T-1, n_entries)

    def after(self, t: Any, states: Integers) -> tuple[Integers, Integers, Doubles]:
        """Return the entries from states of positions t: numbers of the states, of the entries, scores."""
        counts = np.diff(self.indptr)[states]
        source = np.repeat(np.arange(len(states)), counts)
        entry = np.arange(len(source)) + np.repeat(self.indptr[states] - np.cumsum(counts) + counts, counts)
        own: Any = 0 if len(self.log_values) == 1 else t if np.isscalar(t) else t[source]
        return source, entry, self.log_values[own, entry]


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


class Listed(NamedTuple):
    """The edges of one graph: those into node v are ``ptr[v]`` to ``ptr[v + 1]``, each a part."""

    ptr: Integers
    sources: Integers


def _edges(graph: Listed, b: int, v: int, sources: Integers, parts: Integers, pairs: Integers) -> int:
    first, n = graph.ptr[v], graph.ptr[v + 1] - graph.ptr[v]
    for k in range(n):
        sources[k], parts[k], pairs[k] = graph.sources[first + k], first + k, -1
    return n


GRAPHS = Recursions(_edges)


def log_space(chain: LogChain, choice: Choice, counts: Doubles) -> tuple[float, Mask, Doubles, Doubles, bool]:
    """Return log Z, beams and marginals (T, S), shares (T,) kept, and whether beams lost every path: then all are in.

    ``counts`` has one number per entry, and grows by the expected transitions; it may be empty.
    """
    kept, exact = np.full(len(chain.log_unary), np.nan), False
    member = _choose_all(chain, choice, kept)
    log_z, marginals = within(chain, 1.0, member, counts)
    if log_z == -np.inf:
        member, kept, exact = np.ones(member.shape, bool), np.ones(len(member)), True
        log_z, marginals = within(chain, 1.0, member, counts)
    return log_z, member, marginals, kept, exact


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
            source, entry, values = chain.after(t - 1, before)
            belief[t] += _log_sums(belief[t - 1, before][source] + values, chain.targets[entry], S)  # (1)
        member[t], kept[t] = _choose(belief[t], rule, gold[t])
        if not kept[t] > 0:
            return np.zeros((T, S), bool)
    log_beta = np.zeros(S)
    for t in range(T - 1, -1, -1) if choice.refine else ():
        member[t], kept[t] = _choose(belief[t] + log_beta, rule, gold[t])
        if t > 0:
            source, entry, values = chain.after(t - 1, np.arange(S))
            ahead = np.where(member[t], chain.log_unary[t] + log_beta, -np.inf)
            log_beta = _log_sums(values + ahead[chain.targets[entry]], source, S)
    return member


def within(chain: LogChain, weight: float, member: Mask, counts: Doubles) -> tuple[float, Doubles]:
    """Return log Z inside ``member`` (T, S) and the weighted marginals (T, S); add the transitions, see `log_space`.

    The states inside are the nodes of a graph from 1 on, in order, between a node before and one after all.
    """
    (T, S), (t, state), n = member.shape, np.nonzero(member), int(member.sum())
    n_first, n_last = int(member[0].sum()), int(member[-1].sum())
    source, entry, values = chain.after(t, state[: n - n_last])
    at = t[source] + 1, chain.targets[entry]
    target = np.where(member[at], np.cumsum(member).reshape(T, S)[at], 0)
    order = np.argsort(target, kind="stable")[np.count_nonzero(target == 0) :]
    source, entry, values, target = source[order], entry[order], values[order], target[order]
    own = chain.log_unary[member]
    scores = np.concatenate([own[:n_first], values + own[target - 1], np.zeros(n_last)])
    nodes = np.concatenate([np.arange(1, n_first + 1), target, np.full(n_last, n + 1)])
    sources = np.concatenate([np.zeros(n_first, np.int64), source + 1, np.arange(n - n_last, n) + 1])
    graph = Listed(np.searchsorted(nodes, np.arange(n + 3)), sources)
    lattice = Lattice(graph, np.array([n + 2]), max(1, int(np.diff(graph.ptr).max())), T + 2)
    log_z, parts, _ = GRAPHS.expectations(lattice, scores[None], np.empty(0))
    p, marginals = weight * parts[0], np.zeros((T, S))
    marginals[member] = np.bincount(nodes, p, n + 2)[1:-1]
    if len(counts):
        np.add.at(counts, entry, p[n_first : len(p) - n_last])
    return float(log_z[0]), marginals
