"""EM (inside-outside) for probabilistic grammars, dense or of low rank: pseudo-counts, restarts, checkpoints."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trelliswork.errors import ValueRangeError
from trelliswork.learning.checkpoint import Checkpoint
from trelliswork.models.hmm.em import STOPPED, EMReport, EMStep, LikelihoodDecrease, best_of
from trelliswork.models.pcfg.objective import (
    Doubles,
    GrammarCounts,
    GrammarParameters,
    TextBatch,
    expected_counts,
    normalise,
    random_grammar,
)

Callback = Callable[[EMStep], bool | None]
SLACK = 1e-11  # how far rounding may lower the objective, as a fraction of |objective| + tokens


@dataclass(frozen=True)
class GrammarPriors:
    """Pseudo-counts, added to every expected count: Dirichlet(1 + value). ``rules`` serves U, V and W too."""

    root: float = 0.0
    rules: float = 0.0
    emission: float = 0.0

    def check(self) -> None:
        """Refuse what is negative."""
        for name, value in vars(self).items():
            if not 0 <= value < np.inf:
                raise ValueRangeError(f"the pseudo-count {name} must be 0 or more, got {value}.")

    def of(self, name: str) -> float:
        """The pseudo-count of a parameter's entries."""
        return {"root": self.root, "emission": self.emission}.get(name, self.rules)


def log_prior(parameters: GrammarParameters, priors: GrammarPriors) -> float:
    """Log density of the parameters, without its constant."""
    total = 0.0
    for name, array in parameters.named().items():
        weight = priors.of(name.removeprefix("log_"))
        if weight > 0:
            total += weight * float(array.sum())
    return total


def maximise(counts: GrammarCounts, priors: GrammarPriors, before: GrammarParameters) -> GrammarParameters:
    """The M-step; what was never used, and has no prior, stays as it was before."""
    found: dict[str, Doubles | None] = dict.fromkeys(("rules", "up", "left", "right"))
    for name, array in counts.counts.items():
        found[name] = normalise(array + priors.of(name), 2 if name == "rules" else 1, before.named()[f"log_{name}"])
    return GrammarParameters(**{f"log_{name}": array for name, array in found.items()})  # type: ignore[arg-type]


def em(
    start: GrammarParameters,
    batches: Sequence[TextBatch],
    *,
    priors: GrammarPriors | None = None,
    max_iter: int = 100,
    tol: float = 1e-5,
    callback: Callback | None = None,
    checkpoint: Checkpoint | None = None,
    begun: EMReport | None = None,
) -> tuple[GrammarParameters, EMReport]:
    """Learn a grammar from sentences without trees.

    Parameters
    ----------
    start : GrammarParameters
        Zeros stay zero unless a prior lifts them.
    batches : sequence of TextBatch
    priors : GrammarPriors, optional
        None by default: maximum likelihood.
    max_iter, tol : int, float
        Iterations at most; the relative gain at which it stops (0: never).
    callback : callable, optional
        Called with each ``EMStep``; a true answer stops.
    checkpoint : Checkpoint, optional
        Written now and then; gone on from if there is one.
    begun : EMReport, optional
        Of iterations done before, which count.

    Notes
    -----
    Each iteration raises log evidence plus log prior, or it is an error. A low-rank grammar is a grammar whose rules
    have a hidden part r, which is counted like a symbol; so all factors have closed updates.
    """
    priors = priors or GrammarPriors()
    priors.check()
    parameters, report = start, EMReport(False, "", -np.inf)
    if begun is not None:
        report = EMReport(False, "", begun.value, list(begun.history), None, begun.probes)
    saved = checkpoint.read() if checkpoint is not None else None
    if saved is not None:
        plain, arrays = saved
        parameters = from_named(arrays)
        report.history = [EMStep(**step) for step in plain["history"]]
        report.value, report.probes = plain["value"], plain["probes"]
    began = time.perf_counter() - (report.history[-1].seconds if report.history else 0.0)
    n_tokens = sum(batch.n_tokens for batch in batches)
    for iteration in range(report.n_iter + 1, max_iter + 1):
        counts = expected_counts(parameters, batches)
        before, report.value = report.value, counts.log_evidence + log_prior(parameters, priors)
        if report.value < before - SLACK * (abs(before) + n_tokens):
            raise LikelihoodDecrease(
                f"the objective fell from {before!r} to {report.value!r} in iteration {iteration}, more than rounding "
                "explains. Please report this, with the data if you can."
            )
        parameters = maximise(counts, priors, parameters)
        report.history.append(EMStep(iteration, report.value, counts.log_evidence, time.perf_counter() - began))
        if callback is not None and callback(report.history[-1]):
            report.reason = STOPPED
            break
        if checkpoint is not None and checkpoint.due():
            checkpoint.write(_plain(report), parameters.named())
        if report.settled(before, tol):
            break
    else:
        report.run_out(max_iter, tol)
    if checkpoint is not None:
        if report.reason == STOPPED:
            checkpoint.write(_plain(report), parameters.named())
        else:
            checkpoint.remove()
    return parameters, report


def restarts(
    n_restarts: int,
    sizes: tuple[int, int, int],
    rank: int | None,
    batches: Sequence[TextBatch],
    *,
    seed: int = 0,
    probe: int = 10,
    max_iter: int = 100,
    tol: float = 1e-5,
    right_bias: float = 0.0,
    identity: bool = False,
    checkpoint: Checkpoint | None = None,
    **options: Any,
) -> tuple[GrammarParameters, EMReport]:
    """EM from random starts: ``probe`` iterations of each, then the best alone goes on.

    Parameters
    ----------
    sizes : (N, P, V)
    rank : int or None
    right_bias, identity
        Of `random_grammar`.
    options
        Of `em`.
    """
    starts = (
        random_grammar(*sizes, rank, seed=own, right_bias=right_bias, identity=identity)
        for own in np.random.SeedSequence(seed).spawn(n_restarts)
    )
    if n_restarts == 1 or (checkpoint is not None and checkpoint.read() is not None):
        return em(next(starts), batches, max_iter=max_iter, tol=tol, checkpoint=checkpoint, **options)
    best = best_of(em(start, batches, max_iter=min(probe, max_iter), tol=0, **options) for start in starts)
    if max_iter <= probe or best[1].reason == STOPPED:
        return best
    return em(best[0], batches, max_iter=max_iter, tol=tol, checkpoint=checkpoint, begun=best[1], **options)


def from_named(arrays: dict[str, Any]) -> GrammarParameters:
    """Parameters from what ``GrammarParameters.named`` gave."""
    names = ("log_root", "log_rules", "log_up", "log_left", "log_right", "log_emission")
    return GrammarParameters(**{name: arrays.get(name) for name in names})  # type: ignore[arg-type]


def _plain(report: EMReport) -> dict[str, Any]:
    return {"history": [vars(step) for step in report.history], "value": report.value, "probes": report.probes}
