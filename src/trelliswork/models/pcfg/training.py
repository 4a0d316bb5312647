"""Training of a PCFG: sentences to ids; EM (inside-outside) for dense and low-rank grammars, or gradients."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from trelliswork.data import Vocabulary
from trelliswork.data.files import shorten
from trelliswork.errors import DataError, ValueRangeError, extras_for
from trelliswork.learning import whole
from trelliswork.learning.checkpoint import Arrays, fingerprint
from trelliswork.learning.distributed import one_process
from trelliswork.learning.em import Update, run_em
from trelliswork.learning.report import Callback, FitReport
from trelliswork.learning.watch import Development, Watch
from trelliswork.models.base import watch_for
from trelliswork.models.pcfg.objective import (
    GrammarCounts,
    GrammarParameters,
    TextBatch,
    check_lengths,
    check_size,
    expected_counts,
    log_evidence,
    normalize,
    random_grammar,
    text_batches,
)


@dataclass(frozen=True)
class GrammarPriors:
    """Pseudo-counts, added to every expected count: Dirichlet(1 + value). ``rules`` serves U, V and W too."""

    root: float = 0.0
    rules: float = 0.0
    emission: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < np.inf:
                raise ValueRangeError(f"the pseudo-count {name} must be at least 0, got {value}.")

    def of(self, name: str) -> float:
        """Return the pseudo-count of the entries of a parameter."""
        return {"root": self.root, "emission": self.emission}.get(name, self.rules)


def log_prior(named: Mapping[str, Any], priors: GrammarPriors) -> Any:
    """Return the log density of parameters by name, arrays or tensors, without its constant."""
    weights = {name: priors.of(name.removeprefix("log_")) for name in named}
    return sum((weights[name] * values.sum() for name, values in named.items() if weights[name] > 0), start=0.0)


def maximize(counts: GrammarCounts, priors: GrammarPriors, before: GrammarParameters) -> GrammarParameters:
    """Return the result of the M-step; parameters without counts and prior are unchanged."""
    new = {}
    for name, old in before.named().items():
        key = name.removeprefix("log_")
        new[name] = normalize(counts.counts[key] + priors.of(key), 2 if key == "rules" else 1, old)
    return GrammarParameters(**new)


@dataclass(frozen=True)
class GrammarUpdates:
    """E-step and M-step of a grammar on batches of sentences, for ``learning.em``.

    Each iteration raises log evidence plus log prior. A low-rank grammar is a grammar whose rules have a hidden part r,
    which is counted like a symbol; so all factors have closed updates.
    """

    batches: Sequence[TextBatch]
    priors: GrammarPriors
    n_tokens: float  # of the whole text
    tolerated: ClassVar[float] = 1e-11  # decrease that rounding explains, as a fraction of |objective| + tokens
    may_decrease: ClassVar[bool] = False

    def update(self, parameters: GrammarParameters) -> Update:
        """Return the result of one iteration."""
        counts = expected_counts(parameters, self.batches)
        value = counts.log_evidence + float(log_prior(parameters.named(), self.priors))
        return Update(maximize(counts, self.priors, parameters), value, counts.log_evidence)

    def to_arrays(self, parameters: GrammarParameters) -> Arrays:
        """Return parameters as named arrays."""
        return dict(parameters.named())

    def from_arrays(self, arrays: Arrays) -> GrammarParameters:
        """Build parameters from named arrays."""
        return GrammarParameters(**arrays)


def em(
    start: GrammarParameters | Callable[[int], GrammarParameters],
    batches: Sequence[TextBatch],
    *,
    priors: GrammarPriors | None = None,
    max_iter: int = 100,
    tol: float = 1e-5,
    watch: Watch | None = None,
    n_starts: int = 1,
    probe: int = 1,
) -> tuple[GrammarParameters, FitReport]:
    """Train a grammar on sentences without trees, from given parameters; ``start(k)`` are those of start k.

    Zeros stay zero unless a prior adds to them. See ``run_em`` for the other arguments.
    """
    n_tokens = whole.total(float(sum(batch.n_tokens for batch in batches)))
    updates = GrammarUpdates(batches, priors or GrammarPriors(), n_tokens)
    options = {"max_iter": max_iter, "n_starts": n_starts, "probe": probe}
    return run_em(updates, start if callable(start) else lambda k: start, watch or Watch(), tol=tol, **options)


def checked(sentences: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    """Return the sentences after checking that each has a word."""
    for number, sentence in enumerate(sentences):
        if isinstance(sentence, str) or len(sentence) == 0:
            raise DataError(f"sentence {number} must be a list of words, at least one, got {shorten(sentence)}.")
    return sentences


def text_development(sentences: Sequence[Sequence[int]]) -> Development:
    """Return the metric on sentences of at least two words: mean log-probability per word."""
    longer = [s for s in sentences if len(s) > 1]
    if not longer:
        raise DataError("the development data have no sentence of at least two words.")

    def sums(parameters: Mapping[str, Any], first: int, last: int) -> tuple[float, float]:
        own = longer[first:last]
        log_p = log_evidence(GrammarParameters(**parameters), text_batches(own), len(own))
        return float(log_p.sum()), sum(map(len, own))

    return Development.of_shares("log-probability per word", len(longer), sums)


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
