"""Compiled probabilities of segments of chains, in log space, float64.

A segment of a kind is a maximal run of positions whose labels have that kind and are joined, each to the next:
``joins[i, j]`` is True if label j, right after label i, continues the segment of i.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.inference.chain.kernels.log_space import _log_sum


class Passes(NamedTuple):
    """Chains with the results of both passes."""

    lengths: Any  # (B,)
    log_unary: Any  # (B, T, S)
    pairwise: Any  # Pairwise
    log_alpha: Any  # (B, T, S)
    log_beta: Any  # (B, T, S)
    log_z: Any  # (B,)


class Kinds(NamedTuple):
    """Labels that form segments: those of kind k are ``members[ptr[k]:ptr[k + 1]]``."""

    joins: Any  # (S, S)
    ptr: Any  # (n_kinds + 1,)
    members: Any  # (n,)


@helper(allocates=True)
def _matrix(pairwise, b, t):
    """Return the transition scores from t to t+1."""
    log_pairwise, batch_step, time_step = pairwise
    return log_pairwise[b * batch_step + t * time_step]


@kernel(allocates=True)
def backward(start, stop, lengths, log_unary, pairwise, log_beta):
    """Fill log_beta (B, T, S): log of the total score of all labels after a position."""
    S = log_unary.shape[2]
    ahead = np.empty(S)
    for b in range(start, stop):
        log_beta[b, lengths[b] - 1] = 0
        for t in range(lengths[b] - 2, -1, -1):
            scores = _matrix(pairwise, b, t)
            ahead[:] = log_unary[b, t + 1] + log_beta[b, t + 1]
            for i in range(S):
                log_beta[b, t, i] = _log_sum(scores[i] + ahead)


@helper(allocates=True)
def _starts(b, t, passes, joins, members, out):
    """Fill out (n,): scores of all labels up to t, where a segment starts with a member."""
    S = passes.log_unary.shape[2]
    for m in range(members.size):
        j = members[m]
        if t == 0:
            out[m] = passes.log_alpha[b, 0, j]
            continue
        scores, before = _matrix(passes.pairwise, b, t - 1), passes.log_alpha[b, t - 1]
        top = -np.inf
        for i in range(S):
            if not joins[i, j]:
                top = max(top, before[i] + scores[i, j])
        mass = 0.0
        if top > -np.inf:
            for i in range(S):
                if not joins[i, j]:
                    mass += math.exp(before[i] + scores[i, j] - top)
        out[m] = passes.log_unary[b, t, j] + top + math.log(mass) if mass > 0 else -np.inf


@helper(allocates=True)
def _extend(b, t, passes, joins, members, v, out):
    """Fill out (n,): the scores v of segments up to t-1, continued by a member at t."""
    scores = _matrix(passes.pairwise, b, t - 1)
    for m in range(members.size):
        j = members[m]
        top = -np.inf
        for k in range(members.size):
            if joins[members[k], j]:
                top = max(top, v[k] + scores[members[k], j])
        mass = 0.0
        if top > -np.inf:
            for k in range(members.size):
                if joins[members[k], j]:
                    mass += math.exp(v[k] + scores[members[k], j] - top)
        out[m] = passes.log_unary[b, t, j] + top + math.log(mass) if mass > 0 else -np.inf


@helper(allocates=True)
def _end(b, t, passes, joins, members, v):
    """Return the log-probability of segments with scores v whose last position is t."""
    if t == passes.lengths[b] - 1:
        return _log_sum(v) - passes.log_z[b]
    scores = _matrix(passes.pairwise, b, t)
    S = passes.log_unary.shape[2]
    top = -np.inf
    for m in range(members.size):
        if v[m] > -np.inf:
            for j in range(S):
                if not joins[members[m], j]:
                    ahead = passes.log_unary[b, t + 1, j] + passes.log_beta[b, t + 1, j]
                    top = max(top, v[m] + scores[members[m], j] + ahead)
    if top == -np.inf:
        return top
    mass = 0.0
    for m in range(members.size):
        if v[m] > -np.inf:
            for j in range(S):
                if not joins[members[m], j]:
                    ahead = passes.log_unary[b, t + 1, j] + passes.log_beta[b, t + 1, j]
                    mass += math.exp(v[m] + scores[members[m], j] + ahead - top)
    return top + math.log(mass) - passes.log_z[b]


@kernel(allocates=True)
def log_probabilities(start, stop, passes, kinds, rows, log_p):
    """Fill log_p (n,) of the segments ``rows`` (n, 4): sequence, kind, first position, one past the last."""
    for n in range(start, stop):
        b, kind, first, end = rows[n, 0], rows[n, 1], rows[n, 2], rows[n, 3]
        members = kinds.members[kinds.ptr[kind] : kinds.ptr[kind + 1]]
        v, longer = np.empty(members.size), np.empty(members.size)
        if passes.log_z[b] == -np.inf or members.size == 0:
            log_p[n] = -np.inf
            continue
        _starts(b, first, passes, kinds.joins, members, v)
        for t in range(first + 1, end):
            _extend(b, t, passes, kinds.joins, members, v, longer)
            v[:] = longer
        log_p[n] = _end(b, end - 1, passes, kinds.joins, members, v)


@helper(allocates=True)
def _likely(b, passes, kinds, log_least, at, rows, log_p):
    """Return the number of segments of a sequence with at least this log-probability; write them from ``at`` on."""
    n = 0
    widest = 0
    for kind in range(kinds.ptr.size - 1):
        widest = max(widest, kinds.ptr[kind + 1] - kinds.ptr[kind])
    first_scores, second_scores = np.empty(widest), np.empty(widest)
    for first in range(passes.lengths[b]):
        for kind in range(kinds.ptr.size - 1):
            members = kinds.members[kinds.ptr[kind] : kinds.ptr[kind + 1]]
            v, longer = first_scores[: members.size], second_scores[: members.size]
            for m in range(members.size):
                v[m] = passes.log_alpha[b, first, members[m]] + passes.log_beta[b, first, members[m]]
            if members.size == 0 or _log_sum(v) - passes.log_z[b] < log_least:
                continue
            _starts(b, first, passes, kinds.joins, members, v)
            for t in range(first, passes.lengths[b]):
                if t > first:
                    _extend(b, t, passes, kinds.joins, members, v, longer)
                    v[:] = longer
                for m in range(members.size):
                    longer[m] = v[m] + passes.log_beta[b, t, members[m]]
                rest = _log_sum(longer) - passes.log_z[b]  # of all segments that start here and reach t
                if rest == -np.inf or rest < log_least:
                    break
                p = _end(b, t, passes, kinds.joins, members, v)
                if p >= log_least and p > -np.inf:
                    if rows.shape[0] > 0:
                        rows[at + n, 0], rows[at + n, 1] = b, kind
                        rows[at + n, 2], rows[at + n, 3] = first, t + 1
                        log_p[at + n] = p
                    n += 1
    return n


@kernel(allocates=True)
def likely(start, stop, passes, kinds, log_least, offsets, rows, log_p):
    """Write the segments of sequence b from ``offsets[b]`` on; with empty ``rows``, their number to offsets[b + 1]."""
    for b in range(start, stop):
        if passes.log_z[b] == -np.inf:
            continue
        n = _likely(b, passes, kinds, log_least, offsets[b] if rows.shape[0] else 0, rows, log_p)
        if rows.shape[0] == 0:
            offsets[b + 1] = n
