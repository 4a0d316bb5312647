"""Network of an `HMMLanguageModel`: its initialization, and restoring from a file."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch

from trelliswork.data import Vocabulary
from trelliswork.errors import DataError, ValueRangeError
from trelliswork.features.brown import brown_clusters
from trelliswork.learning.checkpoint import fingerprint
from trelliswork.learning.watch import Watch
from trelliswork.models.base import Arrays, check_finite
from trelliswork.models.hmm_lm.network import NetworkShape, StateNetwork
from trelliswork.models.hmm_lm.objective import Sentences
from trelliswork.models.hmm_lm.start import cluster_start, em_start
from trelliswork.models.hmm_lm.training import Ints, TrainingSettings


@dataclass(frozen=True)
class Start:
    """Initial probabilities of states."""

    states: Literal["words", "clusters"]  # of words with noise, or of clusters of tokens
    em_iterations: int = 0  # instead of them
    em_smoothing: float = 0.1


def word_clusters(n_blocks: int | None, words: Vocabulary, data: Sentences) -> Ints | None:
    """Return the clusters (V + 1,) of words; the sentence end has its own cluster, the last."""
    if n_blocks is None:
        return None
    inside = data.words != len(words)
    ends = data.offsets - np.arange(len(data.offsets))  # without sentence ends
    numbers = brown_clusters(data.words[inside], ends, len(words), n_blocks)
    return np.append(numbers, numbers.max() + 1)


def new_network(shape: NetworkShape, clusters: Ints | None, data: Sentences, seed: int) -> StateNetwork:
    """Return a network with random states and the frequencies of words."""
    if clusters is not None and int(clusters.max()) + 1 > shape.n_states:
        raise ValueRangeError(
            f"{int(clusters.max()) + 1} clusters of words (one for the sentence end) need at least as many states, got "
            f"{shape.n_states}: raise n_states or lower n_blocks."
        )
    network = StateNetwork(shape, seed, clusters)
    network.start_with(np.bincount(data.words, minlength=shape.n_words))
    return network


def start_network(network: StateNetwork, data: Sentences, start: Start, seed: int, watch: Watch) -> None:
    """Give states their first probabilities."""
    if start.em_iterations:
        watch.announce("EM")
        em_start(network, data, n_iter=start.em_iterations, smoothing=start.em_smoothing, seed=seed)
    elif start.states == "clusters":
        watch.announce("clustering tokens")
        cluster_start(network, data, seed=seed)


def training_mark(settings: TrainingSettings, shape: NetworkShape, start: Start, patience: int, *arrays: Any) -> str:
    """Return a text that differs for other settings or data, for checkpoints."""
    known = asdict(settings) | asdict(shape) | asdict(start) | {"patience": patience}
    if settings.schedule == "plateau":
        known.pop("max_iter")  # a longer run may resume from a shorter one; a linear schedule depends on it
    return fingerprint(known, *arrays)


def restored_network(shape: dict[str, Any], arrays: Arrays, n_words: int) -> StateNetwork:
    """Return the network of a saved model from its shape and arrays."""
    network = StateNetwork(NetworkShape(**shape), 0, arrays.get("clusters"))
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
    if network.shape.n_words != n_words:
        raise DataError("the weights do not match model.json: they belong to different models.")
    network.load_state_dict(state)
    return network
