"""Training of a PCFG: sentences to ids, EM or gradients."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trelliswork.data import Vocabulary
from trelliswork.data.vocabulary import UNKNOWN
from trelliswork.errors import DataError, ValueRangeError
from trelliswork.learning.checkpoint import fingerprint
from trelliswork.learning.report import Callback, FitReport
from trelliswork.learning.watch import Watch, open_checkpoint
from trelliswork.models.pcfg.em import GrammarPriors, from_named, restarts
from trelliswork.models.pcfg.objective import GrammarParameters, log_evidence, text_batches


def check_combination(model: Any) -> None:
    """Raise an error for parameters that exclude each other."""
    if model.algorithm == "em":
        if model.parameterization == "neural":
            raise ValueRangeError("a neural grammar cannot be trained by EM: set algorithm='gradient'.")
        if model.curriculum is not None:
            raise ValueRangeError("curriculum needs algorithm='gradient': EM sums over all sentences each time.")
    elif model.n_restarts > 1 or model.right_bias:
        raise ValueRangeError("n_restarts and right_bias need algorithm='em': try several seeds instead.")


def priors_of(model: Any) -> GrammarPriors:
    """Return the pseudo-counts; words that are their own preterminals have no emissions to learn."""
    emission = 0.0 if model.n_preterminals is None else model.emission_prior
    return GrammarPriors(model.root_prior, model.rule_prior, emission)


def word_table(sentences: Sequence[Sequence[str]], min_count: int) -> Vocabulary:
    """Return the words, most frequent first, and one symbol for rare or unknown words."""
    return Vocabulary.from_sequences(sentences, min_count=min_count, unknown=UNKNOWN, default=UNKNOWN)


def listed_words(words: list[str]) -> Vocabulary:
    """Return the words of a saved model."""
    words = [UNKNOWN if word == "<unknown>" and UNKNOWN not in words else word for word in words]
    return Vocabulary(words, unknown=UNKNOWN, default=UNKNOWN)


def checked(sentences: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    """Return the sentences after checking that each has a word."""
    for number, sentence in enumerate(sentences):
        if isinstance(sentence, str) or len(sentence) == 0:
            raise DataError(f"sentence {number} must be a list of at least one word, got {sentence!r}.")
    return sentences


class TextDevelopment:
    """Metric on sentences of at least two words: mean log evidence per word."""

    metric = "log evidence per word"

    def __init__(self, sentences: Sequence[Sequence[int]]) -> None:
        self._sentences = [s for s in sentences if len(s) > 1]
        if not self._sentences:
            raise DataError("the development data have no sentence of at least two words.")
        self._batches = text_batches(self._sentences)

    def measure(self, parameters: Mapping[str, Any]) -> float:
        """Return the metric of a grammar given as named arrays."""
        log_p = log_evidence(from_named(dict(parameters)), self._batches, len(self._sentences))
        return float(log_p.sum()) / sum(map(len, self._sentences))


def learn(
    model: Any,
    sentences: Sequence[Sequence[str]],
    dev: Sequence[Sequence[str]] | None,
    words: Vocabulary,
    checkpoint: str | os.PathLike[str] | None,
    callback: Callback | None,
) -> tuple[GrammarParameters, FitReport]:
    """Return the parameters of a grammar with the parameters of an estimator, and the report."""
    longest = np.inf if model.max_length is None else model.max_length
    ids = [words.ids(sentence) for sentence in sentences if 2 <= len(sentence) <= longest]
    if not ids:
        raise DataError("no sentences to learn from: expected at least two words and at most max_length.")
    held = None if dev is None else [words.ids(sentence) for sentence in dev]
    identity = model.n_preterminals is None
    sizes = model.n_nonterminals, len(words) if identity else model.n_preterminals or 0, len(words)

    def mark() -> str:
        # Limits are left out: a longer run may resume from a shorter one.
        plain = {k: v for k, v in model.get_params().items() if k not in ("max_iter", "max_minutes", "tol")}
        texts = [ids] if held is None else [ids, held]
        arrays = [array for text in texts for array in (np.concatenate(text), np.array([len(s) for s in text]))]
        return fingerprint(plain, *arrays)

    watch = Watch(
        None if held is None else TextDevelopment(held),
        patience=model.patience,
        max_minutes=model.max_minutes,
        checkpoint=open_checkpoint(checkpoint, mark),
        callback=callback,
    )
    if model.algorithm == "em":
        return restarts(
            model.n_restarts,
            sizes,
            model.rank,
            text_batches(ids),
            seed=model.seed,
            probe=model.probe,
            max_iter=model.max_iter,
            tol=model.tol,
            priors=priors_of(model),
            right_bias=model.right_bias,
            identity=identity,
            watch=watch,
        )
    return _by_gradient(model, ids, sizes, watch)


def _by_gradient(
    model: Any, ids: list[list[int]], sizes: tuple[int, int, int], watch: Watch
) -> tuple[GrammarParameters, FitReport]:
    import torch

    from trelliswork.models.pcfg.gradient import AdamSettings, train
    from trelliswork.models.pcfg.neural import GrammarModule

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(model.seed)
        module = GrammarModule(
            *sizes,
            model.rank,
            neural=model.parameterization == "neural",
            size=model.embedding_size,
            identity=model.n_preterminals is None,
        )
    adam = AdamSettings(learning_rate=model.learning_rate, batch_size=model.batch_size, curriculum=model.curriculum)
    return train(
        module,
        ids,
        adam,
        priors=priors_of(model),
        max_iter=model.max_iter,
        tol=model.tol,
        watch=watch,
        seed=model.seed,
    )
