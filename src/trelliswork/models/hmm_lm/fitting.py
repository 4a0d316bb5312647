"""From the parameters of ``HMMLanguageModel`` to a trained network."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from trelliswork.compute.checks import check_count
from trelliswork.data import Vocabulary
from trelliswork.errors import DataError, ValueRangeError
from trelliswork.features.brown import brown_clusters
from trelliswork.learning.checkpoint import Checkpoint, fingerprint
from trelliswork.models.base import Arrays, check_finite
from trelliswork.models.hmm_lm.data import cluster_numbers
from trelliswork.models.hmm_lm.kernel_features import FeatureMap
from trelliswork.models.hmm_lm.network import NetworkShape, Projection, StateNetwork
from trelliswork.models.hmm_lm.objective import Sentences
from trelliswork.models.hmm_lm.start import cluster_start, em_start
from trelliswork.models.hmm_lm.training import Callback, LMReport, TrainingSettings, train


def training_settings(model: Any) -> TrainingSettings:
    """How the model wants to be trained."""
    given = {name: getattr(model, name) for name in set(TrainingSettings.__dataclass_fields__) - {"every"}}
    return TrainingSettings(every=model.keep_every, **given)


def can_cluster(model: Any) -> bool:
    """Whether states may begin as clusters of tokens."""
    redrawn = model.parameterisation == "kernel" and model.projection == "redrawn"
    return model.clusters is None and not model.em_iterations and not redrawn


def first_states(model: Any) -> str:
    """``"words"`` or ``"clusters"``, as wished, or what serves: kernels learn slowly if all states are alike."""
    if model.start is not None:
        return str(model.start)
    return "clusters" if model.parameterisation == "kernel" and can_cluster(model) else "words"


def network_shape(model: Any, n_words: int) -> NetworkShape:
    """Sizes and kinds, checked."""
    for name in ("n_states", "hidden", "min_count"):
        check_count(name, getattr(model, name))
    kernel = model.parameterisation == "kernel"
    if model.parameterisation not in ("softmax", "kernel"):
        raise ValueRangeError(f"parameterisation must be 'softmax' or 'kernel', got {model.parameterisation!r}.")
    if kernel:
        check_count("n_features", model.n_features)
    for name, kinds in (("feature_map", FeatureMap), ("projection", Projection)):
        if getattr(model, name) not in get_args(kinds):
            wanted = ", ".join(get_args(kinds))
            raise ValueRangeError(f"{name} must be one of {wanted}, got {getattr(model, name)!r}.")
    if model.band < 0 or (model.band and not kernel):
        raise ValueRangeError(f"band must be 0, or positive with a kernel: dense rows need none, got {model.band}.")
    if model.em_iterations and (kernel or model.clusters is not None):
        raise ValueRangeError("em_iterations are for dense models without clusters: set them to 0.")
    if model.start not in (None, "words", "clusters"):
        raise ValueRangeError(f"start must be 'words' or 'clusters', got {model.start!r}.")
    if model.start == "clusters" and not can_cluster(model):
        raise ValueRangeError(
            "start='clusters' guesses the states of all words: not with blocks of clusters, EM, or directions that are "
            "redrawn; take start='words'."
        )
    if model.keep_every is not None:
        check_count("keep_every", model.keep_every)
    return NetworkShape(
        model.n_states,
        n_words,
        model.hidden,
        model.n_features if kernel else 0,
        model.feature_map,
        model.projection,
        model.orthogonal,
        model.band,
    )


def fit_network(
    model: Any,
    words: Vocabulary,
    data: Sentences,
    dev: Sentences | None,
    checkpoint: str | Path | None,
    callback: Callback | None,
) -> tuple[StateNetwork, LMReport]:
    """Train a network from the start, or from where a checkpoint stands."""
    shape = network_shape(model, len(words) + 1)
    clusters = _clusters(model, words, data)
    if clusters is not None and int(clusters.max()) + 1 > shape.n_states:
        raise ValueRangeError(
            f"there are {int(clusters.max()) + 1} clusters of words (one for the end of a sentence) but only "
            f"{shape.n_states} states: raise n_states or lower clusters."
        )
    network = StateNetwork(shape, model.seed, clusters)
    network.begin_with(np.bincount(data.words, minlength=shape.n_words))
    settings, file = training_settings(model), None
    if checkpoint is not None:
        known = (
            asdict(settings)
            | asdict(shape)
            | {"em": [model.em_iterations, model.em_smoothing], "start": first_states(model)}
        )
        known.pop("max_seconds")  # a run that was stopped by the clock may go on
        held = (None, None) if dev is None else (dev.words, dev.offsets)
        file = Checkpoint(checkpoint, fingerprint(known, data.words, data.offsets, *held, clusters))
    began = time.perf_counter()
    if file is None or not file.path.exists():
        if model.em_iterations:
            em_start(network, data, n_iter=model.em_iterations, smoothing=model.em_smoothing, seed=model.seed)
        elif first_states(model) == "clusters":
            cluster_start(network, data, seed=model.seed)
    spent = time.perf_counter() - began
    return network, train(network, data, dev, settings, checkpoint=file, callback=callback, spent=spent)


def restored_network(shape: dict[str, Any], arrays: Arrays, n_words: int) -> StateNetwork:
    """The network of a saved model, from its shape and arrays."""
    network = StateNetwork(NetworkShape(**shape), 0, arrays.get("clusters"))
    state = {}
    for name, value in network.state_dict().items():
        array = arrays.get(f"network.{name}")
        if array is None or array.shape != tuple(value.shape):
            found = "nothing" if array is None else f"shape {array.shape}"
            raise DataError(
                f"weights.safetensors does not fit model.json: {name} should have shape "
                f"{tuple(value.shape)}, got {found}."
            )
        check_finite(name, array)
        state[name] = torch.from_numpy(array.copy())
    if network.shape.n_words != n_words:
        raise DataError("weights.safetensors does not fit model.json: they belong to different models.")
    network.load_state_dict(state)
    return network


def _clusters(model: Any, words: Vocabulary, data: Sentences) -> "np.ndarray | None":
    """Clusters (V + 1,) of words; the end of a sentence has one of its own, the last."""
    if model.clusters is None:
        return None
    if isinstance(model.clusters, dict):
        return cluster_numbers(words, model.clusters)
    check_count("clusters", model.clusters)
    inside = data.words != len(words)
    ends = data.offsets - np.arange(len(data.offsets))  # without the ends of sentences
    found = brown_clusters(data.words[inside], ends, len(words), model.clusters)
    return np.append(found, found.max() + 1)
