"""A trained MRF tagger: its storage, and its potentials as chains. Given the words, tags are a chain of order K."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Vocabulary
from trelliswork.data.vocabulary import strings
from trelliswork.errors import DataError
from trelliswork.features.knowledge import Knowledge
from trelliswork.models.base import Arrays, check_finite
from trelliswork.models.hmm.decoding import StateChain
from trelliswork.models.mrf_tagger.features import TaggerFeatures

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Learned:
    """Labels, features and weights."""

    labels: Vocabulary  # T tags; the pad, number T in arrays, is not listed
    features: TaggerFeatures
    phi: Floats  # (K, T + 1, T + 1) scores of pairs of tags
    weights: list[Floats]  # (features, T + 1) of the features of words at each of L offsets
    lexicon: NDArray[np.bool_]  # (C, T) tags of each word in the training data
    bound: float  # lower bound on the log-likelihood per position
    cover: Floats  # (K, L) weights of the parts of the bound

    @cached_property
    def chain(self) -> StateChain:
        """The chain of the tags of a sentence."""
        return tag_chain(self.phi)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return plain data and arrays to save."""
        knowledge, arrays = self.features.knowledge.state()
        names = {name: getattr(self.features, name).items for name in ("words", "own", "neighbor")}
        plain = {"knowledge": knowledge, "labels": self.labels.items, "bound": self.bound, **names}
        arrays |= {"phi": self.phi, "lexicon": self.lexicon, "cover": self.cover}
        arrays |= {f"weights.{k}": u for k, u in enumerate(self.weights)}
        return plain | {"frequent": sorted(self.features.frequent)}, arrays

    @classmethod
    def from_state(cls, plain: dict[str, Any], arrays: Arrays) -> Learned:
        """Build a tagger from ``state``'s result; parts that do not match are an error."""
        labels, words, own, neighbor = (
            Vocabulary(strings(plain[name])) for name in ("labels", "words", "own", "neighbor")
        )
        knowledge = Knowledge.from_state(plain["knowledge"], arrays)
        features = TaggerFeatures(words, set(strings(plain["frequent"])), own, neighbor, knowledge)
        phi, cover, lexicon, T = arrays["phi"], arrays["cover"], arrays["lexicon"], len(labels) + 1
        weights = [arrays[f"weights.{k}"] for k in range(cover.shape[1])]
        sizes = [len(features.own_names()), *[len(neighbor)] * (len(weights) - 1)]
        fits = phi.shape == (len(cover), T, T) and lexicon.shape == (len(words), T - 1)
        if not fits or [u.shape for u in weights] != [(n, T) for n in sizes]:
            raise DataError("the weights do not match model.json: they belong to different models.")
        for array in (phi, *weights):
            check_finite("an array of weights", array)
        return cls(labels, features, phi, weights, lexicon, plain["bound"], cover)


def tag_chain(phi: Floats) -> StateChain:
    """Return the chain of the tags of a sentence between pads.

    ``phi`` (K, T + 1, T + 1) scores pairs of tags at distances 1 to K; the last tag is the pad.
    """
    K, pad = len(phi), phi.shape[1] - 1
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
    return StateChain(table, None)


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
