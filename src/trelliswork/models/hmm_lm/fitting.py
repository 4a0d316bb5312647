"""The recipe of an `HMMLanguageModel`: blocks, initialization and settings by size, and restoring from a file."""

import math
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from trelliswork.data import Vocabulary
from trelliswork.errors import DataError, ValueRangeError
from trelliswork.features.brown import brown_clusters
from trelliswork.learning.checkpoint import fingerprint
from trelliswork.learning.watch import Watch
from trelliswork.models.base import Arrays, check_finite
from trelliswork.models.hmm_lm.network import BlockNetwork, Ints, Network, NetworkShape, StateNetwork
from trelliswork.models.hmm_lm.objective import Sentences
from trelliswork.models.hmm_lm.start import cluster_start
from trelliswork.models.hmm_lm.training import TrainingSettings

FEW_STATES = 1024  # below, one block of all states is fast enough
TOKENS = 15e6  # of all epochs together, if there is no time limit
EPOCHS = 5, 40  # minimum and maximum number of epochs
LONG = 20  # epochs from which on vectors need more dropout
SENTENCE = 22  # tokens; a batch of 256 sentences


def n_blocks_of(n_blocks: int | None, n_states: int, rank: int | None, n_words: int) -> int:
    """Return the number of blocks: 128 for 2^14 and 2^15 states, one for few states or a rank over all of them."""
    if n_blocks is None:
        if n_states < FEW_STATES or rank is not None:
            return 1
        most = min(2 ** math.ceil((math.log2(n_states) - 1) / 2), max(1, n_words // 2))
        return max(c for c in range(1, most + 1) if n_states % c == 0)
    if n_states % n_blocks:
        raise ValueRangeError(f"n_states must be a multiple of n_blocks, got {n_states} states in {n_blocks} blocks.")
    if n_blocks > n_words:
        raise ValueRangeError(f"n_blocks must be at most the number of words, {n_words}, got {n_blocks}.")
    return n_blocks


def word_clusters(n_blocks: int, words: Vocabulary, data: Sentences) -> Ints:
    """Return the clusters (V + 1,) of all words; the sentence end is its own cluster, the last."""
    inside = data.words != len(words)
    ends = data.offsets - np.arange(len(data.offsets))  # without sentence ends
    clusters = brown_clusters(data.words[inside], ends, len(words), n_blocks)
    for empty in np.flatnonzero(np.bincount(clusters, minlength=n_blocks) == 0):
        clusters[np.flatnonzero(clusters == np.bincount(clusters).argmax())[-1]] = empty
    return np.append(clusters, n_blocks)


def new_network(shape: NetworkShape, clusters: Ints | None, data: Sentences, seed: int) -> Network:
    """Return parameters with random vectors and the frequencies of words."""
    network = StateNetwork(shape, seed) if clusters is None else BlockNetwork(shape, clusters, seed)
    network.start_with(data.words, data.offsets)
    return network


def start_network(network: Network, data: Sentences, seed: int, watch: Watch) -> None:
    """Give the states of a kernel their first probabilities: it learns slowly if all states are alike."""
    if isinstance(network, StateNetwork) and network.shape.n_features:
        watch.announce("clustering tokens")
        cluster_start(network, data, seed=seed)


def settings_for(given: dict[str, Any], n_tokens: int, *, blocked: bool, timed: bool) -> TrainingSettings:
    """Return the settings; ``None`` among the given ones is replaced by the value for the size of the text."""
    few, many = EPOCHS
    epochs = given["max_iter"]
    if epochs is None:
        epochs = many if timed else max(few, min(many, round(TOKENS / n_tokens)))
    if blocked:
        chosen = TrainingSettings(epochs, 256 * SENTENCE, 0.014, 0.5, 0.15 if epochs >= LONG else 0.1)
    else:
        chosen = TrainingSettings(20)
    values = {name: value for name, value in given.items() if value is not None}
    return replace(chosen, **values, fit_time=timed and given["max_iter"] is None)


def training_mark(settings: TrainingSettings, shape: NetworkShape, patience: int, *arrays: Any) -> str:
    """Return a text that differs for other settings or data, for checkpoints."""
    return fingerprint(asdict(settings) | asdict(shape) | {"patience": patience}, *arrays)


def restored_network(shape: dict[str, Any], arrays: Arrays, n_words: int) -> Network:
    """Return the network of a saved model from its shape and arrays."""
    known, clusters = NetworkShape(**shape), arrays.get("clusters")
    if known.n_words != n_words or (clusters is not None and not _fits(clusters, known)):
        raise DataError("the weights do not match model.json: they belong to different models.")
    network = StateNetwork(known) if clusters is None else BlockNetwork(known, clusters.astype(np.int64))
    state = {}
    for name, value in network.state_dict().items():
        array = arrays.get(f"network.{name}")
        if array is None or array.shape != tuple(value.shape):
            got = "nothing" if array is None else f"shape {array.shape}"
            raise DataError(
                f"the weights do not match model.json: {name} should have shape {tuple(value.shape)}, got {got}."
            )
        check_finite(name, array)
        state[name] = torch.from_numpy(array.copy())
    network.load_state_dict(state)
    return network


def _fits(clusters: Any, shape: NetworkShape) -> bool:
    """Return whether clusters of words are those of a model with blocks: none is empty, the last is the end's."""
    if clusters.shape != (shape.n_words,) or clusters.min() < 0 or clusters[-1] != clusters.max():
        return False
    sizes = np.bincount(clusters[:-1].astype(np.int64), minlength=int(clusters[-1]))
    return len(sizes) == clusters[-1] and bool((sizes > 0).all()) and shape.n_states % len(sizes) == 0
