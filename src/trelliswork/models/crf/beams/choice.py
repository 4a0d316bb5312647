"""Beams of a whole corpus in compressed rows: choice by posterior probability, and the union of two."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.padding import pad, unpad
from trelliswork.inference import chain
from trelliswork.inference.chain.beam import Beam, BeamSets, Rule
from trelliswork.inference.chain.beam import passes as beam_passes
from trelliswork.inference.chain.beam.kernels import select
from trelliswork.inference.chain.beam.kernels.select import BeamRows
from trelliswork.inference.chain.potentials import whole_vectors
from trelliswork.models.crf.layout import Floats
from trelliswork.models.crf.weights import ChainWeights, Scorer

Chosen = tuple[BeamSets, NDArray[np.float64]]  # sets, and the share of each token's probability that they keep


def choose_all(scorer: Scorer, w: ChainWeights, gold: NDArray[np.int32], beam: Beam, n_states: int) -> Chosen:
    """Return the states that a beam keeps by their posterior probabilities; the gold states are always inside.

    The posterior is exact where transitions are dense; otherwise it is that within the beams of a forward pass.
    """
    parts, at = [], 0
    for p in scorer.potentials(w):
        own = gold[at : at + int(p.lengths.sum())]
        at += len(own)
        if isinstance(p, chain.Potentials):
            marginals = chain.expectations(p)[1].marginals
            assert marginals is not None
            parts.append(choose(all_states(unpad(marginals, p.lengths)), own, beam.rule, n_states))
        else:
            expected = beam_passes.expectations(p, beam, gold=pad(own, p.lengths))
            parts.append(choose(BeamRows(*expected.sets, expected.marginals), own, beam.rule, n_states))
    return joined(parts)


def all_states(masses: Floats) -> BeamRows:
    """Return rows with all states of each token and their masses (n_tokens, S)."""
    n, S = masses.shape
    return BeamRows(np.arange(n + 1) * S, np.empty(0, np.int32), masses.reshape(-1).astype(np.float32, copy=False))


def joined(parts: Sequence[Chosen]) -> Chosen:
    """Return the choices of batches, one after another."""
    sizes = np.concatenate([np.empty(0, np.int64), *(np.diff(sets.ptr) for sets, _ in parts)])
    states = np.concatenate([np.empty(0, np.int32), *(sets.states for sets, _ in parts)])
    kept = np.concatenate([np.empty(0), *(kept for _, kept in parts)])
    return BeamSets(np.concatenate([[0], np.cumsum(sizes)]), states), kept


def choose(rows: BeamRows, forced: NDArray[np.int32], rule: Rule, n_states: int) -> Chosen:
    """Return the states that a rule keeps by their probabilities.

    Without states in ``rows`` these are all, 0 to S-1; the states ``forced`` (n_tokens,) are always kept.
    """
    inside, kept, sizes = np.zeros(len(rows.masses), bool), np.ones(len(forced)), np.zeros(len(forced), np.int64)
    width = whole_vectors(int(np.diff(rows.ptr).max(initial=0)), np.float32)
    ranges = threads.cut(np.diff(rows.ptr), least=threads.LEAST_WORK)
    threads.run(select.choose, ranges, rows, forced, rule, width, inside, kept, sizes)
    chosen = np.flatnonzero(inside)
    states = rows.states[chosen] if len(rows.states) else (chosen % n_states).astype(np.int32)
    return BeamSets(np.concatenate([[0], np.cumsum(sizes)]), states), kept


def union(a: BeamSets, b: BeamSets, n_states: int) -> BeamSets:
    """Return the states of both, ascending."""
    keys = np.concatenate([np.repeat(np.arange(len(x.ptr) - 1) * n_states, np.diff(x.ptr)) + x.states for x in (a, b)])
    keys.sort(kind="stable")  # two sorted runs: a merge
    position, states = np.divmod(keys[np.diff(keys, prepend=-1) > 0], n_states)
    ptr = np.concatenate([[0], np.cumsum(np.bincount(position, minlength=len(a.ptr) - 1))])
    return BeamSets(ptr, states.astype(np.int32))
