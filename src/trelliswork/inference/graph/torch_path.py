"""Belief propagation in torch operations, to differentiate through its iterations.

A model trained with a few iterations learns to work with a few iterations: losses on beliefs, and values before
convergence, need the derivative of the messages too. Memory O(iterations x size of the tables). Stoyanov and Eisner
(2012), Domke (2013).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from trelliswork.errors import ValueRangeError
from trelliswork.inference.graph.potentials import Wiring
from trelliswork.inference.tensors import exp, finite, log_sum, plus


class Unrolled(NamedTuple):
    """Bethe value (B,), beliefs of the variables (B, N), flat, and of each group of factors (B, F, s1, .., sk)."""

    log_z: Tensor
    marginals: Tensor
    factor_marginals: list[Tensor]


def unrolled_bp(
    wiring: Wiring, log_unary: Tensor, log_tables: Sequence[Tensor], *, n_iter: int, damping: float = 0.0
) -> Unrolled:
    """Return beliefs and the Bethe value after ``n_iter`` flooding iterations from uniform messages, differentiable.

    ``log_unary`` (B, N) and ``log_tables`` (1 or B, U, s1, .., sk) of each group replace those of ``wiring``, which has
    table factors only. ``damping`` is the fraction of the old (log) message in the new one.
    """
    if wiring.structured:
        raise ValueRangeError(
            f"unrolled iterations support table factors only, but the graph has a "
            f"{wiring.structured_name}. Train through the value of an engine instead."
        )
    B = len(log_unary)
    starts = [wiring.offsets[group.variables] for group in wiring.groups]  # (F, k)
    places = [
        [torch.from_numpy(start[:, k, None] + np.arange(size)) for k, size in enumerate(group.shape)]
        for start, group in zip(starts, wiring.groups, strict=True)
    ]
    tables = [t[:, torch.from_numpy(group.which)] for group, t in zip(wiring.groups, log_tables, strict=True)]
    messages = [[log_unary.new_zeros(B, *at.shape) for at in slots] for slots in places]
    for _ in range(n_iter):
        incoming = _incoming(log_unary, messages, places)
        messages = [
            [_damped(_outgoing(table, factor_in, k), old, damping) for k, old in enumerate(factor_old)]
            for table, factor_in, factor_old in zip(tables, incoming, messages, strict=True)
        ]
    return _finish(wiring, log_unary, tables, messages, places)


def _totals(log_unary: Tensor, messages: list[list[Tensor]], places: list[list[Tensor]]) -> tuple[Tensor, Tensor]:
    """Return the sum of the finite scores of each state (B, N), and the number of infinite ones."""
    total, n_zeros = finite(log_unary), torch.isneginf(log_unary).to(log_unary.dtype)
    for group, slots in zip(messages, places, strict=True):
        for message, at in zip(group, slots, strict=True):
            total = total.index_add(1, at.reshape(-1), finite(message).flatten(1))
            n_zeros = n_zeros.index_add(1, at.reshape(-1), torch.isneginf(message).to(total.dtype).flatten(1))
    return total, n_zeros


def _incoming(log_unary: Tensor, messages: list[list[Tensor]], places: list[list[Tensor]]) -> list[list[Tensor]]:
    """Return messages to factors: the sum of all other messages. Zeros are counted, not subtracted."""
    total, n_zeros = _totals(log_unary, messages, places)
    return [
        [
            torch.where(
                n_zeros[:, at] - torch.isneginf(message).to(total.dtype) > 0,
                -torch.inf,
                total[:, at] - finite(message),
            )
            for message, at in zip(group, slots, strict=True)
        ]
        for group, slots in zip(messages, places, strict=True)
    ]


def _scores(table: Tensor, incoming: list[Tensor], skip: int = -1) -> Tensor:
    """Return table plus the messages of all variables but one, (B, F, s1, .., sk)."""
    scores = table
    for k, message in enumerate(incoming):
        if k != skip:
            shape = [1] * len(incoming)
            shape[k] = message.shape[2]
            scores = scores + message.reshape(*message.shape[:2], *shape)
    return scores.expand(len(incoming[0]), *scores.shape[1:])


def _outgoing(table: Tensor, incoming: list[Tensor], to: int) -> Tensor:
    """Return the normalized log-message to one slot, (B, F, s)."""
    scores = _scores(table, incoming, to)
    message = log_sum(scores, tuple(k + 2 for k in range(len(incoming)) if k != to))
    return plus(message, -finite(log_sum(message, (2,)))[..., None])


def _damped(new: Tensor, old: Tensor, damping: float) -> Tensor:
    if damping == 0:
        return new
    mixed = (1 - damping) * finite(new) + damping * finite(old)
    return torch.where(torch.isneginf(new) | torch.isneginf(old), new, mixed)


def _finish(
    wiring: Wiring, log_unary: Tensor, tables: list[Tensor], messages: list[list[Tensor]], places: list[list[Tensor]]
) -> Unrolled:
    total, n_zeros = _totals(log_unary, messages, places)
    scores = torch.where(n_zeros > 0, -torch.inf, total)
    degree = np.zeros(wiring.n_variables, np.int64)
    for group in wiring.groups:
        degree += np.bincount(group.variables.ravel(), minlength=wiring.n_variables)
    owner = torch.from_numpy(np.repeat(np.arange(wiring.n_variables), wiring.n_states))
    log_zs = _log_sum_by(scores, owner)  # (B, V)
    possible = ~torch.isneginf(log_zs).any(dim=1)
    marginals = exp(plus(scores, -finite(log_zs)[:, owner]))
    log_z = ((1 - torch.from_numpy(degree)) * finite(log_zs)).sum(dim=1)
    beliefs = []
    for table, incoming in zip(tables, _incoming(log_unary, messages, places), strict=True):
        joint = _scores(table, incoming)
        log_zf = log_sum(joint, tuple(range(2, joint.ndim)))  # (B, F)
        possible = possible & ~torch.isneginf(log_zf).any(dim=1)
        log_z = log_z + finite(log_zf).sum(dim=1)
        beliefs.append(exp(plus(joint, -finite(log_zf).reshape(*log_zf.shape, *[1] * (joint.ndim - 2)))))
    marginals = torch.where(possible[:, None], marginals, 0)
    beliefs = [torch.where(possible.reshape(-1, *[1] * (b.ndim - 1)), b, 0) for b in beliefs]
    return Unrolled(torch.where(possible, log_z, -torch.inf), marginals, beliefs)


def _log_sum_by(scores: Tensor, owner: Tensor) -> Tensor:
    """Return log sum exp (B, V) over the states (B, N) of each owner (N,), sorted from 0 to V-1."""
    starts = np.flatnonzero(np.diff(owner.numpy(), prepend=-1))
    top = finite(torch.from_numpy(np.maximum.reduceat(scores.detach().numpy(), starts, axis=1)))
    sums = scores.new_zeros(len(scores), len(starts)).index_add(1, owner, exp(plus(scores, -top[:, owner])))
    positive = sums > 0
    return torch.where(positive, torch.where(positive, sums, 1).log() + top, -torch.inf)
