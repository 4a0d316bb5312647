"""Training of a PCFG: sentences to ids, EM or gradients."""

import os
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from trelliswork.data import Vocabulary
from trelliswork.data.files import shorten
from trelliswork.errors import DataError, ValueRangeError, extras_for
from trelliswork.learning import whole
from trelliswork.learning.checkpoint import fingerprint
from trelliswork.learning.distributed import one_process
from trelliswork.learning.report import Callback, FitReport
from trelliswork.learning.watch import Development
from trelliswork.models.base import watch_for
from trelliswork.models.pcfg.em import GrammarPriors, em
from trelliswork.models.pcfg.objective import (
    GrammarParameters,
    check_lengths,
    check_size,
    log_evidence,
    random_grammar,
    text_batches,
)


def checked(sentences: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    """Return the sentences after checking that each has a word."""
    for number, sentence in enumerate(sentences):
        if isinstance(sentence, str) or len(sentence) == 0:
            raise DataError(f"sentence {number} must be a list of words, at least one, got {shorten(sentence)}.")
    return sentences


def text_development(sentences: Sequence[Sequence[int]]) -> Development:
    """Return the metric on sentences of at least two words: mean log evidence per word."""
    longer = [s for s in sentences if len(s) > 1]
    if not longer:
        raise DataError("the development data have no sentence of at least two words.")

    def sums(parameters: Mapping[str, Any], first: int, last: int) -> tuple[float, float]:
        own = longer[first:last]
        log_p = log_evidence(GrammarParameters(**parameters), text_batches(own), len(own))
        return float(log_p.sum()), sum(map(len, own))

    return Development.of_shares("log evidence per word", len(longer), sums)


def learn(
    model: Any,
    sentences: Sequence[Sequence[str]],
    dev: Sequence[Sequence[str]] | None,
    words: Vocabulary,
    checkpoint: str | os.PathLike[str] | None,
    callback: Callback | None,
    max_minutes: float | None,
) -> tuple[GrammarParameters, FitReport]:
    """Return the parameters of a grammar with the parameters of an estimator, and the report."""
    if model.neural:
        one_process("a grammar by gradients")
        if model.n_restarts > 1 or model.right_bias:
            raise ValueRangeError("n_restarts and right_bias are for EM, without neural: try several seeds instead.")
    longest = np.inf if model.max_length is None else model.max_length
    ids = [words.ids(sentence) for sentence in sentences if 2 <= len(sentence) <= longest]
    if not whole.anywhere(bool(ids)):
        raise DataError("no sentences to learn from: expected at least two words and at most max_length.")
    held = None if dev is None else [words.ids(sentence) for sentence in dev]
    identity = model.n_preterminals is None
    sizes = model.n_nonterminals, len(words) if identity else model.n_preterminals or 0, len(words)

    check_size(*sizes, model.rank)
    for text, most in ((sentences, longest), (dev or [], np.inf)):
        check_lengths([len(s) if len(s) <= most else 0 for s in text], *sizes[:2], model.rank)

    def mark() -> str:
        # Limits are left out: a longer run may resume from a shorter one.
        plain = model._values("max_iter", "tol")
        texts = [ids] if held is None else [ids, held]
        words = [np.fromiter(chain.from_iterable(text), np.int64) for text in texts]
        lengths = [np.array([len(s) for s in text], np.int64) for text in texts]
        return fingerprint(plain, *chain.from_iterable(zip(words, lengths, strict=True)))

    watch = watch_for(model, None if held is None else text_development(held), checkpoint, mark, callback, max_minutes)
    # Words that are their own preterminals have no emissions to learn.
    priors = GrammarPriors(model.root_prior, model.rule_prior, 0.0 if identity else model.emission_prior)
    options: dict[str, Any] = {"priors": priors, "max_iter": model.max_iter, "tol": model.tol, "watch": watch}
    if not model.neural:
        seeds = np.random.SeedSequence(model.seed).spawn(model.n_restarts)

        def start(k: int) -> GrammarParameters:
            return random_grammar(*sizes, model.rank, seed=seeds[k], right_bias=model.right_bias, identity=identity)

        return em(start, text_batches(ids), n_starts=model.n_restarts, probe=model.probe, **options)
    with extras_for("a grammar trained by gradient"):
        from trelliswork.models.pcfg.gradient import train
        from trelliswork.models.pcfg.neural import GrammarModule

        module = GrammarModule(*sizes, model.rank, size=model.embedding_size, identity=identity, seed=model.seed)
        options |= {"learning_rate": model.learning_rate, "batch_size": model.batch_size, "seed": model.seed}
        return train(module, ids, **options)
