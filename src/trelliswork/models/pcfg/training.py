"""Training of a PCFG by EM (inside-outside), for dense and low-rank grammars; its development data and checkpoints."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from trelliswork.data.files import shorten
from trelliswork.errors import DataError
from trelliswork.learning import whole
from trelliswork.learning.checkpoint import Arrays, fingerprint
from trelliswork.learning.em import Update
from trelliswork.learning.watch import Development
from trelliswork.models.pcfg.objective import (
    Doubles,
    GrammarParameters,
    TextBatch,
    expected_counts,
    log_evidence,
    normalize,
    text_batches,
)


@dataclass(frozen=True)
class GrammarPriors:
    """Pseudo-counts, added to every expected count: Dirichlet(1 + value). ``rules`` serves U, V and W too."""

    root: float = 0.0
    rules: float = 0.0
    emission: float = 0.0

    def of(self, name: str) -> float:
        """Return the pseudo-count of the entries of a parameter."""
        return {"root": self.root, "emission": self.emission}.get(name, self.rules)


def log_prior(named: Mapping[str, Any], priors: GrammarPriors) -> Any:
    """Return the log density of parameters by name, arrays or tensors, without its constant."""
    weights = {name: priors.of(name.removeprefix("log_")) for name in named}
    return sum((weights[name] * values.sum() for name, values in named.items() if weights[name] > 0), start=0.0)


def maximize(counts: Mapping[str, Doubles], priors: GrammarPriors, before: GrammarParameters) -> GrammarParameters:
    """Return the result of the M-step; parameters without counts and prior are unchanged."""
    new = {}
    for name, old in before.named().items():
        key = name.removeprefix("log_")
        new[name] = normalize(counts[key] + priors.of(key), 2 if key == "rules" else 1, old)
    return GrammarParameters(**new)


@dataclass(frozen=True)
class GrammarUpdates:
    """E-step and M-step of a grammar on batches of sentences, for ``learning.em``.

    Each iteration raises log evidence plus log prior. A low-rank grammar is a grammar whose rules have a hidden part r,
    which is counted like a symbol; so all factors have closed updates.
    """

    batches: Sequence[TextBatch]
    priors: GrammarPriors
    tolerated: ClassVar[float] = 1e-11  # decrease that rounding explains, as a fraction of |objective| + tokens
    may_decrease: ClassVar[bool] = False

    @cached_property
    def n_tokens(self) -> float:
        """Tokens of the whole text."""
        return whole.total(float(sum(batch.n_tokens for batch in self.batches)))

    def update(self, parameters: GrammarParameters) -> Update:
        """Return the result of one iteration."""
        counts, log_evidence = expected_counts(parameters, self.batches)
        value = log_evidence + float(log_prior(parameters.named(), self.priors))
        return Update(maximize(counts, self.priors, parameters), value, log_evidence)

    def to_arrays(self, parameters: GrammarParameters) -> Arrays:
        """Return parameters as named arrays."""
        return dict(parameters.named())

    def from_arrays(self, arrays: Arrays) -> GrammarParameters:
        """Build parameters from named arrays."""
        return GrammarParameters(**arrays)


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


def training_mark(settings: dict[str, Any], *texts: Sequence[Sequence[int]] | None) -> str:
    """Return a text that differs for other settings or sentences, for checkpoints."""
    words = [np.fromiter(chain.from_iterable(text), np.int64) for text in texts if text is not None]
    lengths = [np.array([len(s) for s in text], np.int64) for text in texts if text is not None]
    return fingerprint(settings, *chain.from_iterable(zip(words, lengths, strict=True)))
