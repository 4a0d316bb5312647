"""EM (inside-outside) for probabilistic grammars, dense or of low rank."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from trelliswork.errors import ValueRangeError
from trelliswork.learning import whole
from trelliswork.learning.checkpoint import Arrays
from trelliswork.learning.em import Update, run_em
from trelliswork.learning.report import FitReport
from trelliswork.learning.watch import Watch
from trelliswork.models.pcfg.objective import GrammarCounts, GrammarParameters, TextBatch, expected_counts, normalize


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
