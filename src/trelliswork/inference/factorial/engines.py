"""Engines of factorial chains by name, applied to groups of sequences on several threads."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_possible, check_shape
from trelliswork.compute.padding import mask
from trelliswork.errors import ValueRangeError
from trelliswork.inference.chain import Potentials
from trelliswork.inference.chain import score as chain_score
from trelliswork.inference.factorial import bp, mean_field, product
from trelliswork.inference.factorial.potentials import FactorialPotentials, Floats, Integers, Pair
from trelliswork.inference.factorial.sweeps import Options, Solution, Sums

Solve = Callable[..., Solution]
ENGINES: dict[str, tuple[Solve, str]] = {
    "exact": (product.solve, "exact"),
    "structured_mean_field": (mean_field.solve, mean_field.MeanField.kind),
    "bp": (bp.solve, bp.BeliefPropagation.kind),
}
MAX_DECODED = 5_000  # combinations of labels up to which every engine decodes exactly
GROUP = 64  # sequences per call of an engine: few enough for the cache, many enough to amortize the call


@dataclass
class Beliefs:
    """Result of an engine for a batch."""

    value: NDArray[np.float64]  # (B,) log Z, a bound or an estimate of it; -inf for an impossible sequence
    kind: str  # relation of the value to log Z: "exact", "lower" or "estimate"
    marginals: tuple[Floats, ...]  # (B, T, S_d) of each layer; 0 in the padding
    counts: tuple[NDArray[np.float64], ...] | None  # (S_d, S_d) expected transitions, summed over the batch
    between: dict[Pair, NDArray[np.float64]] | None  # (S_d, S_e) expected label pairs of tied layers, likewise
    n_iter: Integers  # (B,) number of sweeps
    residual: NDArray[np.float64]  # (B,) largest change of a marginal in the last sweep
    converged: bool  # True if the residual of every sequence is within the tolerance


def engine(name: str) -> Solve:
    """Return the function of an engine that processes a group."""
    if name not in ENGINES:
        raise ValueRangeError(f"engine must be one of {', '.join(map(repr, ENGINES))}, got {name!r}.")
    return ENGINES[name][0]


def infer(potentials: FactorialPotentials, name: str = "bp", *, counts: bool = False, **settings: Any) -> Beliefs:
    """Run an engine on a batch; with ``counts``, also return expected transitions and label pairs.

    The settings are those of `Options`. A sweep costs O(T (sum_d S_d^2 + sum of S_d S_e over tied layers)) per
    sequence; the exact engine costs O(T S_1 ... S_D (S_1 + ... + S_D)).
    """
    options, solve = Options(**settings), engine(name)
    p, B = potentials, len(potentials.lengths)
    value, n_iter, residual = np.empty(B), np.empty(B, np.int64), np.empty(B)
    marginals = tuple(np.zeros_like(unary) for unary in p.log_unary)

    def work(which: Integers) -> Sums | None:
        sums = Sums.zeros(p.tables) if counts else None
        solution = solve(p.take(which), options, sums)
        value[which], n_iter[which], residual[which] = solution.value, solution.n_iter, solution.residual
        for out, part in zip(marginals, solution.marginals, strict=True):
            out[which, : part.shape[1]] = part
        return sums

    total = Sums.zeros(p.tables)
    for part in _over_groups(p, work):
        if part is not None:
            total.add(part)
    return Beliefs(
        value,
        ENGINES[name][1],
        marginals,
        tuple(total.transitions) if counts else None,
        total.between if counts else None,
        n_iter,
        residual,
        bool((residual <= options.tolerance).all()),
    )


def layer_chains(potentials: FactorialPotentials, name: str = "bp", **settings: Any) -> list[Potentials]:
    """Return each layer as a chain: its scores plus the last messages of the other layers.

    The chain of a layer has the marginals of the engine (``infer``), and is the engine's distribution of the labels of
    this layer. The exact engine has no messages: those of belief propagation are used. The settings are those of
    `Options`.
    """
    p, options, solve = potentials, Options(**settings), engine("bp" if name == "exact" else name)
    scores = [np.zeros_like(unary) for unary in p.log_unary]

    def work(which: Integers) -> None:
        for out, part in zip(scores, solve(p.take(which), options).log_unary, strict=True):
            out[which, : part.shape[1]] = part

    _over_groups(p, work)
    return [p.tables.chain(d, unary, p.lengths) for d, unary in enumerate(scores)]


def _over_groups(p: FactorialPotentials, work: Callable[[Integers], Any]) -> list[Any]:
    """Return the results of ``work`` for groups of sequences by decreasing length, run on several threads."""
    order = np.argsort(-p.lengths, kind="stable")
    starts = range(0, len(order), GROUP)
    results: list[Any] = [None] * len(starts)

    def run(start: int, stop: int) -> None:
        for k in range(start, stop):
            results[k] = work(order[starts[k] : starts[k] + GROUP])

    threads.run(run, [(k, k + 1) for k in range(len(starts))])
    return results


def decode(
    potentials: FactorialPotentials, name: str = "bp", **settings: Any
) -> tuple[list[Integers], NDArray[np.float64]]:
    """Return labels (B, T) of each layer, -1 in the padding, and their score (B,).

    They are the best labeling by Viterbi on the product chain, if the engine is exact or there are at most 5,000
    combinations of labels. Otherwise no change of a single layer improves them: each layer starts with its best path
    given the messages of the others, and is then replaced by the best path for fixed labels of the others, layer by
    layer, as long as the score increases. The settings are those of `Options`.
    """
    p = potentials
    labels = [np.full(unary.shape[:2], -1, np.int64) for unary in p.log_unary]
    scores = np.empty(len(p.lengths))
    solve, options = engine(name), Options(**settings)
    if product.n_states(p.tables) <= (MAX_DECODED if p.rules is None else product.MAX_DENSE):
        name = "exact"

    def work(which: Integers) -> None:
        group = p.take(which)
        best, scores[which] = product.best(group) if name == "exact" else _climb(group, solve(group, options))
        for out, part in zip(labels, best, strict=True):
            out[which, : part.shape[1]] = part

    _over_groups(p, work)
    check_possible(scores, "no labeling to decode")
    return labels, scores


def _climb(p: FactorialPotentials, solution: Solution) -> tuple[list[Integers], NDArray[np.float64]]:
    """Start from the best path of each layer, then run coordinate ascent on the score of all layers."""
    tables = p.tables
    chains = [tables.chain(d, unary, p.lengths) for d, unary in enumerate(solution.log_unary)]
    labels = [p.asked(d).best_labels(own) for d, own in enumerate(chains)]
    scores = score(p, labels)
    for _ in range(20 if tables.ties else 0):
        before = scores
        for d, own in enumerate(p.log_unary):
            unary = own.copy()
            for e in tables.tied_to(d):
                table = tables.log_between[e, d] if e < d else tables.log_between[d, e].T
                unary += table[np.maximum(labels[e], 0)]
            labels[d] = p.asked(d).best_labels(tables.chain(d, unary, p.lengths))
        scores = score(p, labels)
        if not (scores > before + 1e-6 * np.abs(before)).any():
            break
    return labels, scores


def score(p: FactorialPotentials, labels: list[Integers]) -> NDArray[np.float64]:
    """Return the sum (B,) of the potentials along labels (B, T) of each layer; labels in the padding are ignored."""
    B, T = p.log_unary[0].shape[:2]
    inside, total, known = mask(p.lengths, T), np.zeros(B), []
    for d, (row, unary) in enumerate(zip(labels, p.log_unary, strict=True)):
        check_shape(f"labels[{d}]", row.shape, "B T", B=B, T=T)
        if row[inside].min() < 0 or row[inside].max() >= unary.shape[2]:
            raise ValueRangeError(f"labels[{d}] must be between 0 and S-1={unary.shape[2] - 1}.")
        known.append(np.where(inside, row, 0))
        total += chain_score(p.tables.chain(d, unary, p.lengths), known[d])
    for (d, e), table in p.tables.log_between.items():
        total += np.where(inside, table[known[d], known[e]], 0).sum(axis=1)
    return total
