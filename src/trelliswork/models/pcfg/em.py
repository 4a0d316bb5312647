"""EM (inside-outside) for probabilistic grammars, dense or of low rank."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trelliswork.errors import ValueRangeError
from trelliswork.learning import whole
from trelliswork.learning.checkpoint import Arrays
from trelliswork.learning.em import Update, run_em
from trelliswork.learning.report import FitReport
from trelliswork.learning.watch import Watch
from trelliswork.models.pcfg.objective import (
    GrammarCounts,
    GrammarParameters,
    TextBatch,
    normalize,
    random_grammar,
    shared_counts,
)

TOLERATED = 1e-11  # decrease of the objective that rounding explains, as a fraction of |objective| + tokens


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


def log_prior(parameters: GrammarParameters, priors: GrammarPriors) -> float:
    """Return the log density of the parameters, without its constant."""
    total = 0.0
    for name, array in parameters.named().items():
        weight = priors.of(name.removeprefix("log_"))
        if weight > 0:
            total += weight * float(array.sum())
    return total


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
    which is counted like a symbol; so all factors have closed updates. In a group of processes the batches are those
    of this rank, and expected counts are added up over all ranks.
    """

    batches: Sequence[TextBatch]
    priors: GrammarPriors
    n_tokens: float  # of all ranks
    tolerated: float = TOLERATED
    may_decrease: bool = False

    def update(self, parameters: GrammarParameters) -> Update:
        """Return the result of one iteration."""
        counts = shared_counts(parameters, self.batches)
        value = counts.log_evidence + log_prior(parameters, self.priors)
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


def restarts(
    n_restarts: int,
    sizes: tuple[int, int, int],
    rank: int | None,
    batches: Sequence[TextBatch],
    *,
    seed: int = 0,
    probe: int = 10,
    right_bias: float = 0.0,
    identity: bool = False,
    **options: Any,
) -> tuple[GrammarParameters, FitReport]:
    """Run ``em`` from random grammars with N, P, V = ``sizes``: ``probe`` iterations of each, then the best alone."""
    seeds = np.random.SeedSequence(seed).spawn(n_restarts)

    def start(k: int) -> GrammarParameters:
        return random_grammar(*sizes, rank, seed=seeds[k], right_bias=right_bias, identity=identity)

    return em(start, batches, n_starts=n_restarts, probe=probe, **options)
