"""Network of an `HMMLanguageModel`: shape, initialization, training, and restoring from a file."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trelliswork.data import Vocabulary
from trelliswork.errors import DataError, ValueRangeError
from trelliswork.features.brown import brown_clusters
from trelliswork.learning.checkpoint import fingerprint
from trelliswork.learning.report import Callback, FitReport
from trelliswork.models.base import Arrays, check_finite, watch_for
from trelliswork.models.hmm_lm.data import cluster_numbers
from trelliswork.models.hmm_lm.network import NetworkShape, StateNetwork
from trelliswork.models.hmm_lm.objective import Sentences
from trelliswork.models.hmm_lm.start import cluster_start, em_start
from trelliswork.models.hmm_lm.training import TrainingSettings, text_development, train


def can_cluster(model: Any) -> bool:
    """Return whether states may be initialized as clusters of tokens."""
    redrawn = model.parameterization == "kernel" and model.projection == "redrawn"
    return model.clusters is None and not model.em_iterations and not redrawn


def first_states(model: Any) -> str:
    """Return the initialization, by default the one that works: kernels learn slowly if all states are alike."""
    if model.initialization is not None:
        return str(model.initialization)
    return "clusters" if model.parameterization == "kernel" and can_cluster(model) else "words"


def network_shape(model: Any, n_words: int) -> NetworkShape:
    """Return the checked shape of the network."""
    kernel = model.parameterization == "kernel"
    if model.band and not kernel:
        raise ValueRangeError(f"band needs parameterization='kernel': dense rows need none, got {model.band}.")
    if model.em_iterations and (kernel or model.clusters is not None):
        raise ValueRangeError("em_iterations need a dense model without clusters: set it to 0.")
    if model.initialization == "clusters" and not can_cluster(model):
        raise ValueRangeError(
            "initialization='clusters' cannot be combined with clusters, em_iterations or projection='redrawn': use "
            "initialization='words'."
        )
    rank = model.n_features if kernel else 0
    options = model.feature_map, model.projection, model.orthogonal, model.band
    return NetworkShape(model.n_states, n_words, model.hidden, rank, *options)


def fit_network(
    model: Any,
    words: Vocabulary,
    data: Sentences,
    dev: Sentences | None,
    checkpoint: str | Path | None,
    callback: Callback | None,
) -> tuple[StateNetwork, FitReport]:
    """Train a network from its initialization, or resume from a checkpoint."""
    shape = network_shape(model, len(words) + 1)
    clusters = _clusters(model, words, data)
    if clusters is not None and int(clusters.max()) + 1 > shape.n_states:
        raise ValueRangeError(
            f"{int(clusters.max()) + 1} clusters of words (one for the sentence end) need at least as many states, got "
            f"{shape.n_states}: raise n_states or lower clusters."
        )
    network = StateNetwork(shape, model.seed, clusters)
    network.start_with(np.bincount(data.words, minlength=shape.n_words))
    settings = TrainingSettings(**{name: getattr(model, name) for name in TrainingSettings.__dataclass_fields__})

    def mark() -> str:
        known = asdict(settings) | asdict(shape) | {"start": first_states(model)}
        known |= {"em": [model.em_iterations, model.em_smoothing], "patience": model.patience}
        if settings.schedule == "plateau":
            known.pop("max_iter")  # a longer run may resume from a shorter one; a linear schedule depends on it
        held = (None, None) if dev is None else (dev.words, dev.offsets)
        return fingerprint(known, data.words, data.offsets, *held, clusters)

    development = None if dev is None else text_development(network, dev)
    watch = watch_for(model, development, checkpoint, mark, callback)
    started = time.perf_counter()
    if not watch.resumes():
        if model.em_iterations:
            watch.announce("EM")
            em_start(network, data, n_iter=model.em_iterations, smoothing=model.em_smoothing, seed=model.seed)
        elif first_states(model) == "clusters":
            watch.announce("clustering tokens")
            cluster_start(network, data, seed=model.seed)
    return network, train(network, data, settings, watch, seconds=time.perf_counter() - started)


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


def _clusters(model: Any, words: Vocabulary, data: Sentences) -> "np.ndarray | None":
    """Return the clusters (V + 1,) of words; the sentence end has its own cluster, the last."""
    if model.clusters is None:
        return None
    if isinstance(model.clusters, dict):
        return cluster_numbers(words, model.clusters)
    inside = data.words != len(words)
    ends = data.offsets - np.arange(len(data.offsets))  # without sentence ends
    numbers = brown_clusters(data.words[inside], ends, len(words), model.clusters)
    return np.append(numbers, numbers.max() + 1)
