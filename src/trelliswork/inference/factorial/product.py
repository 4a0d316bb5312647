"""The exact engine: one chain over all combinations of labels, its transitions applied layer by layer.

A state is one label of every layer: arrays of states have the axes (B, S_1, ..., S_D). Transitions factor over the
layers, so a step multiplies by one small matrix after the other, along the axis of each layer. A position costs
N (S_1 + ... + S_D) products for N = S_1 ... S_D states: 70,000 for the 1,035 combinations of 45 tags and 23 chunk
labels, where the matrix of the product chain would need a million. The recursions are those of
``chain.kernels.forward_backward``, with its argument about safety, in float64.
"""

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import number_of_best
from trelliswork.errors import ValueRangeError
from trelliswork.inference import chain
from trelliswork.inference.chain import queries
from trelliswork.inference.factorial.kernels.product import max_along
from trelliswork.inference.factorial.potentials import FactorialPotentials, Floats, Integers, Tables
from trelliswork.inference.factorial.sweeps import Options, Solution, Sums

MAX_STATES = 20_000  # of the product chain
MAX_DENSE = 3_000  # states of the product chain where its whole matrix is needed
LIMIT = 1e280  # of beta / c: times the smallest normal number, still far below the precision

Doubles = NDArray[np.float64]


def n_states(tables: Tables) -> int:
    """Return the number of states of the product chain."""
    return math.prod(tables.n_labels)


def solve(p: FactorialPotentials, options: Options, sums: Sums | None = None, weight: Floats | None = None) -> Solution:
    """Run exact inference on a batch; the options are ignored."""
    if n_states(p.tables) > MAX_STATES:
        raise ValueRangeError(
            f"{' x '.join(map(str, p.tables.n_labels))} labels have {n_states(p.tables):,} combinations, the exact "
            f"engine supports at most {MAX_STATES:,}: use engine='bp' or 'structured_mean_field'."
        )
    if p.rules is not None:
        return _under_rules(p)
    order = np.argsort(-p.lengths, kind="stable")
    passed = _Pass(p.take(order).double(), counts=sums is not None)
    log_z, safe = np.empty(len(order)), np.empty(len(order), bool)
    log_z[order], safe[order] = passed.log_z, passed.safe
    marginals = [np.zeros_like(u) for u in p.log_unary]
    for out, own in zip(marginals, passed.marginals, strict=True):
        out[order, : own.shape[1]] = own
    weights = np.ones(len(order)) if weight is None else weight.astype(np.float64)
    if sums is not None:
        _add(passed, weights[order], sums)
    for b in np.flatnonzero(~safe).tolist():
        log_z[b] = _dense(p, b, marginals, weights[b], sums)
    return Solution(log_z, marginals, np.ones(len(order), np.int64), np.zeros(len(order)), list(p.log_unary))


def _under_rules(p: FactorialPotentials) -> Solution:
    """Return exact sums over the labelings that satisfy the rules, with the whole matrix of each sequence."""
    log_z, marginals = np.empty(len(p.lengths)), [np.zeros_like(u) for u in p.log_unary]
    for b, T in enumerate(p.lengths.tolist()):
        (log_z[b],), found = p.rules.joint.label_marginals(product_chain(p, b))
        cube = found.reshape(T, *p.tables.n_labels)
        for d, out in enumerate(marginals):
            out[b, :T] = cube.sum(axis=tuple(k for k in range(1, cube.ndim) if k != d + 1))
    return Solution(log_z, marginals, np.ones(len(log_z), np.int64), np.zeros(len(log_z)), list(p.log_unary))


class _Pass:
    """Forward-backward of a batch, longest first; sequences that are not ``safe`` have arbitrary results."""

    def __init__(self, p: FactorialPotentials, counts: bool) -> None:
        S, (B, T) = p.tables.n_labels, p.log_unary[0].shape[:2]
        tops = [max(float(m.max()), -1e300) for m in p.tables.log_pairwise]
        matrices = [np.exp(m - top) for m, top in zip(p.tables.log_pairwise, tops, strict=True)]
        log_ties = _log_ties(p.tables)
        top = float(log_ties.max())
        shift = top if top > -np.inf else 0.0
        ties = np.exp(log_ties - shift)
        self.log_z = (p.lengths - 1) * sum(tops) + p.lengths * shift
        self.safe = np.ones(B, bool)
        self.marginals = [np.zeros((B, T, n)) for n in S]
        self.states = np.zeros((B, *S) if counts else 0)  # expected states, summed over positions
        self.steps = [np.zeros((B, n, n) if counts else 0) for n in S]  # and transitions of a layer
        emissions: list[Doubles] = []
        alphas: list[Doubles] = []
        scales: list[Doubles] = []
        for t in range(T):
            n = int((p.lengths > t).sum())
            emissions.append(self._emission(p, t, n, ties))
            prior = emissions[t] if t == 0 else _step(alphas[-1][:n], matrices) * emissions[t]
            c = _total(prior)
            self.safe[:n] &= c * LIMIT >= 1  # a smaller number has lost its digits
            scales.append(np.where(self.safe[:n], c, 1))
            alphas.append(prior / _rows(scales[t], prior))
            self.log_z[:n] += np.log(scales[t])
        transposed = [m.T for m in matrices]
        beta = np.ones((0, *S))
        for t in range(T - 1, -1, -1):
            n = len(alphas[t])
            beta = np.concatenate([beta, np.ones((n - len(beta), *S))])
            posterior = alphas[t] * beta
            mass = _total(posterior)  # 1 except for rounding
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                posterior /= _rows(mass, posterior)
                beta /= _rows(mass * scales[t], beta)
            self.safe[:n] &= (mass > 0) & (beta.reshape(n, -1).max(axis=1) <= LIMIT)
            for rows in (posterior, beta):
                rows[~self.safe[:n]] = 0
            for d in range(len(S)):
                self.marginals[d][:n, t] = posterior.sum(axis=tuple(k for k in range(1, len(S) + 1) if k != d + 1))
            if counts:
                self.states[:n] += posterior
            if t == 0:
                break
            beta *= emissions[t]
            for d in range(len(S) if counts else 0):
                before = _step(alphas[t - 1][:n], matrices, d)
                pairs = np.matmul(_along(before, d), _along(beta, d).swapaxes(1, 2))
                self.steps[d][:n] += pairs.reshape(n, -1, *pairs.shape[1:]).sum(axis=1)
            beta = _step(beta, transposed)
        for sums, matrix in zip(self.steps if counts else [], matrices, strict=False):
            sums *= matrix

    def _emission(self, p: FactorialPotentials, t: int, n: int, ties: Doubles) -> Doubles:
        """Return exp(unary - shift) of a position times the ties (n, S_1, ..., S_D); add the shifts to log Z."""
        rows: list[Floats] = []
        for unary in p.log_unary:
            top = unary[:n, t].max(axis=1)
            self.safe[:n] &= top > -np.inf
            top[top == -np.inf] = 0
            rows.append(np.exp(unary[:n, t] - top[:, None]))
            self.log_z[:n] += top
        return reduce(np.multiply, _spread(rows), ties)


def _spread(rows: Sequence[Floats]) -> list[Floats]:
    """Return rows (n, S_d) of each layer with the axes (n, S_1, ..., S_D), where those of the other layers are 1."""
    D = len(rows)
    return [row.reshape(len(row), *(-1 if e == d else 1 for e in range(D))) for d, row in enumerate(rows)]


def _rows(values: Doubles, like: Doubles) -> Doubles:
    """Return values (n,) with as many axes as ``like``."""
    return values.reshape(-1, *(1,) * (like.ndim - 1))


def _total(x: Doubles) -> Doubles:
    total: Doubles = x.reshape(len(x), -1).sum(axis=1)
    return total


def _along(x: Doubles, d: int) -> Doubles:
    """Return states (n, S_1, ..., S_D) as matrices (k, S_d, r)."""
    n, S = len(x), x.shape[1:]
    if d == len(S) - 1 and d:
        return x.reshape(n, -1, S[d]).swapaxes(1, 2)
    return x.reshape(n * math.prod(S[:d]), S[d], -1)


def _step(x: Doubles, matrices: list[Doubles], without: int = -1) -> Doubles:
    """Multiply states by the matrices of all layers except ``without``."""
    for d, matrix in enumerate(matrices):
        if d != without:
            product = np.matmul(matrix.T, _along(x, d))
            x = (product.swapaxes(1, 2) if d == len(matrices) - 1 and d else product).reshape(x.shape)
    return x


def _log_ties(tables: Tables) -> Doubles:
    """Return the scores (S_1, ..., S_D) of label combinations."""
    S = tables.n_labels
    out = np.zeros(S)
    for (d, e), table in tables.log_between.items():
        out += table.reshape([n if k in (d, e) else 1 for k, n in enumerate(S)])
    return out


def _add(passed: _Pass, weight: Doubles, sums: Sums) -> None:
    """Add the weighted counts of the safe sequences."""
    weight = weight * passed.safe
    cube = np.tensordot(weight, passed.states, 1)
    for (d, e), counts in sums.between.items():
        counts += cube.sum(axis=tuple(k for k in range(cube.ndim) if k not in (d, e)))
    for counts, steps in zip(sums.transitions, passed.steps, strict=True):
        counts += np.tensordot(weight, steps, 1)


def _dense(p: FactorialPotentials, b: int, marginals: list[Floats], weight: float, sums: Sums | None) -> float:
    """Compute one sequence with the whole matrix: return log Z, fill marginals, add counts."""
    S, tables, T = p.tables.n_labels, p.tables, int(p.lengths[b])
    log_z, found = chain.expectations(product_chain(p, b), counts=True)
    assert found.marginals is not None
    assert found.counts is not None
    labels = np.unravel_index(np.arange(n_states(tables)), S)
    hits = [np.eye(n)[row] for n, row in zip(S, labels, strict=True)]
    for d, hit in enumerate(hits):
        marginals[d][b, :T] = found.marginals[0] @ hit
        if sums is not None:
            sums.transitions[d] += weight * (hit.T @ found.counts[0] @ hit)
    for (d, e), counts in ({} if sums is None else sums.between).items():
        counts += weight * (hits[d].T * found.marginals[0].sum(axis=0)) @ hits[e]
    return float(log_z[0])


def product_chain(p: FactorialPotentials, b: int) -> chain.Potentials:
    """Return the product chain of one sequence with its whole matrix; the last layer varies fastest."""
    T = p.lengths[b]
    if n_states(p.tables) > MAX_DENSE:
        raise ValueRangeError(
            f"the k best labelings, and exact inference where scores underflow, support at most {MAX_DENSE:,} "
            f"combinations of labels, got {n_states(p.tables):,}: use the best labeling, or engine='bp'."
        )
    rows = _spread([u[b, :T].astype(np.float64) for u in p.log_unary])
    unary = reduce(np.add, rows, _log_ties(p.tables)).reshape(1, T, -1)
    pairwise = reduce(
        lambda a, m: (a[:, None, :, None] + m[None, :, None]).reshape(len(a) * len(m), -1),
        (m.astype(np.float64) for m in p.tables.log_pairwise),
    )
    return chain.chain_potentials(unary, pairwise, check_values=False)


def best(p: FactorialPotentials) -> tuple[list[Integers], Doubles]:
    """Return the best labels (B, T) of each layer, -1 in the padding, and their scores (B,)."""
    order, rules, given = np.argsort(-p.lengths, kind="stable"), p.rules, p
    p, S = p.take(order).double(), p.tables.n_labels
    (B, T), log_ties, matrices = p.log_unary[0].shape[:2], _log_ties(p.tables), p.tables.log_pairwise
    deltas: list[Doubles] = []
    for t in range(T):
        n = int((p.lengths > t).sum())
        delta = reduce(np.add, _spread([u[:n, t] for u in p.log_unary]), log_ties)
        deltas.append(delta if t == 0 else delta + _max_step(deltas[-1][:n], matrices))
    labels, scores = [np.full((B, T), -1, np.int64) for _ in S], np.empty(B)
    for t in range(T - 1, -1, -1):
        n, ahead = len(deltas[t]), 0 if t == T - 1 else len(deltas[t + 1])
        into = [m.T[row[order[:ahead], t + 1]] for m, row in zip(matrices, labels, strict=True)] if ahead else []
        if ahead:
            deltas[t][:ahead] = reduce(np.add, _spread(into), deltas[t][:ahead])
        flat = deltas[t].reshape(n, -1)
        state = flat.argmax(axis=1)
        scores[order[ahead:n]] = flat[np.arange(ahead, n), state[ahead:]]
        for row, own in zip(labels, np.unravel_index(state, S), strict=True):
            row[order[:n], t] = own
    if rules is not None:
        states = np.ravel_multi_index([np.maximum(row, 0) for row in labels], S)
        for b in np.flatnonzero(rules.joint.broken(states, given.lengths).any(axis=1)).tolist():
            whole = product_chain(given, b)
            path = rules.joint.taken(np.array([b])).best_labels(whole)
            scores[b] = chain.score(whole, path)[0]
            for row, own in zip(labels, np.unravel_index(path[0], S), strict=True):
                row[b, : len(own)] = own
    return labels, scores


def _max_step(x: Doubles, matrices: tuple[Floats, ...]) -> Doubles:
    """Return the maxima over the states of the position before, like ``_step``."""
    for d, matrix in enumerate(matrices):
        own = x.reshape(-1, len(matrix), math.prod(x.shape[d + 2 :]))
        out = np.empty_like(own)
        max_along(own, matrix, out)
        x = out.reshape(x.shape)
    return x


def topk(p: FactorialPotentials, k: int) -> tuple[list[Integers], Doubles]:
    """Return labels (B, k, T) of each layer of the k best labelings, and their log-probabilities (B, k); exact.

    Labels are -1 in the padding and where a sequence has fewer labelings, whose log-probabilities are -inf.
    """
    S, (B, T) = p.tables.n_labels, p.log_unary[0].shape[:2]
    k = number_of_best(k, (n_states(p.tables), T))
    labels, log_p = [np.full((B, k, T), -1, np.int64) for _ in S], np.full((B, k), -np.inf)
    for b, length in enumerate(p.lengths.tolist()):
        ask: Any = queries if p.rules is None else p.rules.joint.taken(np.array([b]))
        ((states, own_p),) = ask.best_labelings(product_chain(p, b), k)
        log_p[b, : len(states)] = own_p
        for row, own in zip(labels, np.unravel_index(states, S), strict=True):
            row[b, : len(states), :length] = own
    return labels, log_p
