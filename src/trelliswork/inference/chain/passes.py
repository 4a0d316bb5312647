"""log Z and expectations of chains: which kernel suits, what it fills, and what log space has to mend."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_shape
from trelliswork.inference.chain.kernels import (
    forward_backward as kernels,
)
from trelliswork.inference.chain.kernels import (
    log_space as log_kernels,
)
from trelliswork.inference.chain.kernels import (
    positions as position_kernels,
)
from trelliswork.inference.chain.layout import exp_transition, limit, padded_width, panels, run_all, transitions
from trelliswork.inference.chain.potentials import Floats, Integers, Potentials


class Expectations(NamedTuple):
    """What ``backward`` found; ``None`` where it was not asked for."""

    marginals: Floats | None  # (B, T, S)
    edges: Floats | None  # (B, T-1, S, S)
    counts: Floats | None  # (B, S, S) or, summed over sequences, (S, S)


@dataclass
class Forward:
    """The forward pass of a batch, kept for ``backward``.

    Attributes
    ----------
    log_z : ndarray (B,)
        float64; -inf for a sequence without any possible labelling.
    emission, alpha : ndarray (B, T, Sp)
        exp(log_unary - row maximum); p(y_t | potentials up to t). Rows padded to whole vectors, undefined where
        ``safe`` is False.
    scale : ndarray (B, T)
        The sums that alpha was divided by.
    safe : ndarray (B,)
        False for sequences that only log space can hold (underflow, impossible).
    """

    potentials: Potentials
    emission: Floats
    alpha: Floats
    scale: Floats
    log_z: NDArray[np.float64]
    safe: NDArray[np.bool_]


def log_partition(potentials: Potentials) -> NDArray[np.float64]:
    """log Z (B,) of each sequence."""
    return forward(potentials).log_z


def forward(potentials: Potentials) -> Forward:
    """Run the forward pass; paper 1, eqs. 8 and 9, with scaling."""
    p = potentials
    result = _allocate(p)
    threads.run(_forward_work(result), p.ranges)
    result.safe &= result.log_z > -np.inf
    if not p.mixing:
        threads.run(_backward_work(result, _Outputs.none(p)), p.ranges)  # marks what underflowed
    _repair_log_z(p, result.log_z, result.safe)
    return result


def backward(
    forward: Forward,
    *,
    weights: Floats | None = None,
    marginals: bool = True,
    edges: bool = False,
    counts: bool = False,
    total: bool = False,
) -> Expectations:
    """Run the backward pass and return the expectations asked for; paper 1, eqs. 17-21.

    Parameters
    ----------
    forward : Forward
        The forward pass of the same potentials.
    weights : ndarray (B,), optional
        Multiplies every expectation of a sequence: the gradient of a loss with respect to log Z.
    marginals, edges, counts : bool
        p(y_t = j); p(y_t = i, y_{t+1} = j); the latter summed over positions without ever being stored.
    total : bool
        Sum the counts over the sequences, in float64: (S, S) instead of (B, S, S).
    """
    out = _Outputs.allocate(forward.potentials, weights, marginals, edges, counts, total)
    threads.run(_backward_work(forward, out), forward.potentials.ranges)
    return _finish(forward.potentials, forward.safe, out)


def expectations(
    potentials: Potentials, *, marginals: bool = True, edges: bool = False, counts: bool = False
) -> tuple[NDArray[np.float64], Expectations]:
    """log Z (B,) and ``backward``'s expectations in one pass over each range of sequences, while it is in the cache."""
    p = potentials
    out = _Outputs.allocate(p, None, marginals, edges, counts, False)
    log_z, safe = np.empty(len(p.lengths)), np.ones(len(p.lengths), bool)
    if p.shared and not edges:
        transition, shift = exp_transition(p)
        strips, strips_t = panels(p, transition), panels(p, np.ascontiguousarray(transition.T))

        def work(start: int, stop: int) -> None:
            kernels.forward_backward(
                start, stop, p.order, p.lengths, p.log_unary, strips, strips_t, transition, shift, limit(p),
                out.weight, out.slot, log_z, safe, out.marginals, out.counts,
            )  # fmt: skip
    else:

        def work(start: int, stop: int) -> None:
            position_kernels.forward_backward(
                start, stop, p.order, p.lengths, p.log_unary, *transitions(p), padded_width(p), limit(p),
                out.weight, out.slot, log_z, safe, out.marginals, out.edges, out.counts,
            )  # fmt: skip

    threads.run(work, p.ranges)
    safe &= log_z > -np.inf
    _repair_log_z(p, log_z, safe)
    return log_z, _finish(p, safe, out)


def pair_counts(forward: Forward, marginals: Floats, weights: Floats) -> NDArray[np.float64]:
    r"""Expected transitions (S, S) of a batch with shared transitions, weighted and summed, as one product of matrices.

    .. math:: A \circ \sum_t \alpha_{t-1}^\top (e_t \beta_t / c_t)

    What ``backward(forward, weights=weights, counts=True, total=True)`` counts, several times as fast where S is large,
    at the price of some copies of alpha.

    Parameters
    ----------
    forward : Forward
        After a ``backward``, which knows what is not safe.
    marginals : ndarray (B, T, S)
        Its marginals, weighted by ``weights`` (B,).
    """
    p = forward.potentials
    S = p.log_unary.shape[2]
    matrix, _ = exp_transition(p)
    before, here = forward.alpha[:, :-1, :S].copy(), forward.alpha[:, 1:, :S]
    later = (np.arange(1, marginals.shape[1]) < p.lengths[:, None]) & forward.safe[:, None]
    before[~later] = 0
    with np.errstate(all="ignore"):  # what lies beyond the end of a sequence is arbitrary
        ahead = marginals[:, 1:] / here
        ahead *= forward.emission[:, 1:, :S]
        ahead /= forward.scale[:, 1:, None]
    ahead[~(later[:, :, None] & (here > 0))] = 0
    counts = (before.reshape(-1, S).T @ ahead.reshape(-1, S)).astype(np.float64) * matrix[:S, :S]
    which = np.flatnonzero(~forward.safe)
    if which.size:
        found = expectations(p.take(which), counts=True)[1].counts
        assert found is not None
        counts += np.tensordot(weights[which].astype(np.float64), found, 1)
    return counts


@dataclass
class _Outputs:
    """Arrays that a backward pass fills; one with an empty axis 0 is not wanted."""

    weight: Floats  # (B,)
    slot: Integers  # (B,) which counts a sequence adds to
    marginals: Floats
    edges: Floats
    counts: Floats
    total: bool

    @classmethod
    def none(cls, p: Potentials) -> "_Outputs":
        return cls.allocate(p, None, False, False, False, False)

    @classmethod
    def allocate(
        cls, p: Potentials, weights: Floats | None, marginals: bool, edges: bool, counts: bool, total: bool
    ) -> "_Outputs":
        B, T, S = p.log_unary.shape
        dtype = p.log_unary.dtype
        weight = np.ones(B, dtype) if weights is None else np.ascontiguousarray(weights, dtype)
        check_shape("weights", weight.shape, "B", B=B)
        slot = np.arange(B)
        sums: Floats = np.zeros((B if counts else 0, S, S), dtype)
        if counts and total:
            # One sum a range of work, whatever the number of threads: the result does not depend on it.
            slot[p.order] = np.repeat(np.arange(len(p.ranges)), [stop - start for start, stop in p.ranges])
            sums = np.zeros((len(p.ranges), S, S))
        nodes = (np.empty if p.full else np.zeros)((B if marginals else 0, T, S), dtype)
        pairs = np.zeros((B, T - 1, S, S) if edges else (0, 0, S, S), dtype)
        return cls(weight, slot, nodes, pairs, sums, total)


def _allocate(p: Potentials) -> Forward:
    B, T = p.log_unary.shape[:2]
    dtype = p.log_unary.dtype
    return Forward(
        p,
        emission=np.empty((B, T, padded_width(p)), dtype),
        alpha=np.empty((B, T, padded_width(p)), dtype),
        scale=np.empty((B, T), dtype),
        log_z=np.empty(B),
        safe=np.ones(B, bool),
    )


def _forward_work(result: Forward) -> Callable[[int, int], None]:
    """The forward kernel that suits the transitions, over ranges of ``order``."""
    p = result.potentials
    out = (_everyone(p), result.emission, result.alpha, result.scale, result.log_z)
    if p.shared:
        transition, shift = exp_transition(p)
        strips = panels(p, transition)
        return lambda start, stop: kernels.forward(start, stop, p.order, p.lengths, p.log_unary, strips, shift, *out)
    return lambda start, stop: position_kernels.forward(
        start, stop, p.order, p.lengths, p.log_unary, *transitions(p), *out
    )


def _backward_work(result: Forward, out: _Outputs) -> Callable[[int, int], None]:
    """The backward kernel that suits the transitions and outputs; it also marks the unsafe sequences."""
    p = result.potentials
    state = (limit(p), out.weight, out.slot, _everyone(p), result.emission, result.alpha, result.scale, result.safe)
    if p.shared and not len(out.edges):
        transition, _ = exp_transition(p)
        strips = panels(p, np.ascontiguousarray(transition.T))
        return lambda start, stop: kernels.backward(
            start, stop, p.order, p.lengths, strips, transition, *state, out.marginals, out.counts
        )
    return lambda start, stop: position_kernels.backward(
        start, stop, p.order, p.lengths, *transitions(p), *state, out.marginals, out.edges, out.counts
    )


def _repair_log_z(p: Potentials, log_z: NDArray[np.float64], safe: NDArray[np.bool_]) -> None:
    """Compute log Z of the unsafe sequences in double precision, and what is unsafe there in log space."""
    which = np.flatnonzero(~safe)
    if which.size:
        again = p.take(which)
        log_z[which] = log_partition(again) if p.log_unary.dtype == np.float32 else log_forward(again)[0]


def _finish(p: Potentials, safe: NDArray[np.bool_], out: _Outputs) -> Expectations:
    """Compute what the unsafe sequences lack, with more care; sum the counts if asked."""
    which = np.flatnonzero(~safe)
    edges, counts = len(out.edges) > 0, len(out.counts) > 0
    if which.size:
        careful = _double_expectations if p.log_unary.dtype == np.float32 else _log_expectations
        nodes, pairs, sums = careful(p.take(which), edges=edges, counts=counts)
        by = out.weight[which].astype(np.float64)[:, None, None]
        if len(out.marginals):
            out.marginals[which] = by * nodes
        if edges:
            out.edges[which] = by[..., None] * pairs
        if counts and out.total:
            np.add.at(out.counts, out.slot[which], by * sums)  # the kernels added nothing for these
        elif counts:
            out.counts[which] = by * sums
    return Expectations(
        out.marginals if len(out.marginals) else None,
        out.edges if edges else None,
        (out.counts.sum(axis=0) if out.total else out.counts) if counts else None,
    )


def log_forward(p: Potentials) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """log_z (B,) and log_alpha (B, T, S) in log space."""
    log_z, log_alpha = np.empty(len(p.lengths)), np.full(p.log_unary.shape, -np.inf)
    run_all(log_kernels.forward, p, p.log_unary, *transitions(p), log_alpha, log_z)
    return log_z, log_alpha


def _double_expectations(p: Potentials, edges: bool, counts: bool) -> tuple[Floats, Floats, Floats]:
    """The same as ``_log_expectations`` by the kernels for double precision, which seldom underflow."""
    S = p.log_unary.shape[2]
    _, found = expectations(p, edges=edges, counts=counts)
    assert found.marginals is not None
    pairs = np.zeros((0, 0, S, S)) if found.edges is None else found.edges
    return found.marginals, pairs, np.zeros((0, S, S)) if found.counts is None else found.counts


def _log_expectations(p: Potentials, edges: bool, counts: bool) -> tuple[Floats, Floats, Floats]:
    """Marginals, edge marginals and counts of each sequence in log space."""
    B, T, S = p.log_unary.shape
    log_z, log_alpha = log_forward(p)
    nodes = np.zeros((B, T, S))
    pairs = np.zeros((B, T - 1, S, S) if edges else (0, 0, S, S))
    sums = np.zeros((B if counts else 0, S, S))
    run_all(log_kernels.backward, p, p.log_unary, *transitions(p), log_alpha, log_z, nodes, pairs, sums)
    return nodes, pairs, sums


def _everyone(p: Potentials) -> Integers:
    """Each sequence has a place of its own in the arrays of a forward pass."""
    return np.arange(len(p.lengths))
