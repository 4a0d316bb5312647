"""Potentials of an MRF tagger as chains: given the words, tags are a chain of order K."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trelliswork.models.hmm.decoding import FirstOrder, HigherOrder, StateChain

Floats = NDArray[np.float64]


def tag_chain(phi: Floats) -> StateChain:
    """Return the chain of the tags of a sentence between pads.

    ``phi`` (K, T + 1, T + 1) scores pairs of tags at distances 1 to K; the last tag is the pad.
    """
    K, pad = len(phi), phi.shape[1] - 1
    if K == 1:
        return FirstOrder(phi[0, pad, :pad].copy(), phi[0, :pad, :pad].copy(), phi[0, :pad, pad].copy())
    table = np.zeros((pad + 1,) * (K + 1))  # [tag at distance K, ..., tag before, tag]
    for k in range(1, K + 1):
        shape = [1] * (K + 1)
        shape[K - k] = shape[K] = pad + 1
        table += phi[k - 1].reshape(shape)
    # In the last axis the pad is the end: K pads follow, pad n at n places further from each tag.
    end = np.zeros((pad + 1,) * K)
    for back in range(1, K + 1):  # distance of a tag from the end
        shape = [1] * K
        shape[K - back] = pad + 1
        end += phi[back - 1 :, :, pad].sum(axis=0).reshape(shape)
    table[..., pad] = end
    table[(pad,) * (K + 1)] = -np.inf  # no sentence is empty
    return HigherOrder(table, None, True)


def emission_rows(
    scores: list[Floats], ids: NDArray[np.int64], offsets: NDArray[np.int64], places: list[int]
) -> Floats:
    """Return the scores of tags by the words around them (n_tokens, T).

    ``scores`` (n_types, T) are those of each type of word at each of the L ``places``; type 0 is the pad. ``ids``
    (n_tokens,) are the types of the tokens, ``offsets`` (n_sentences + 1,) the bounds of sentences.
    """
    sentence = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    start, end = offsets[:-1][sentence], offsets[1:][sentence]
    rows = np.zeros((len(ids), scores[0].shape[1]))
    at = np.arange(len(ids))
    for table, place in zip(scores, places, strict=True):
        there = at + place
        inside = (there >= start) & (there < end)
        rows += table[np.where(inside, ids[np.clip(there, 0, len(ids) - 1)], 0)]
    return rows
