"""EM for categorical hidden Markov models: maximum likelihood, MAP, variational Bayes, and stepwise EM.

The E-step is ``objective.expected_counts``, the M-steps are in ``updates``, and the iterations are run by
``learning.em``. In a group of processes the counts of an E-step are added up over all ranks, each of which then takes
the same M-step: the parameters are those of one process with all sequences, up to rounding.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from trelliswork.inference.chain.beam import Beam
from trelliswork.learning import whole
from trelliswork.learning.checkpoint import Arrays
from trelliswork.learning.em import Update, run_em
from trelliswork.learning.report import FitReport, Step
from trelliswork.learning.watch import Watch
from trelliswork.models.hmm.data import Counts, HMMParameters, Sequences
from trelliswork.models.hmm.objective import shared_counts
from trelliswork.models.hmm.updates import (
    Posterior,
    Priors,
    log_prior,
    maximize,
    posterior,
    predicted_counts,
)

# Decrease of an objective that rounding explains, by the precision of the E-step.
TOLERATED = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-11}

POWER = 0.7  # of the rates of stepwise EM, above 0.5 and at most 1; a smaller one forgets faster

Algorithm = Literal["em", "vb"]


def em(
    start: HMMParameters | Posterior | Callable[[int], HMMParameters],
    sequences: Sequences,
    *,
    priors: Priors | None = None,
    algorithm: Algorithm = "em",
    max_iter: int = 100,
    tol: float = 1e-6,
    dtype: DTypeLike = np.float64,
    beam: Beam | None = None,
    watch: Watch | None = None,
    n_starts: int = 1,
    probe: int = 1,
) -> tuple[HMMParameters, FitReport]:
    """Train an HMM on sequences whose states are unknown, or partly known.

    The result has an end event if the first parameters have one. Zeros stay zero unless a prior adds to them. Without
    priors this is maximum likelihood. Variational Bayes needs positive priors, continues a posterior if that is the
    start, returns the posterior mean and reports the `Posterior` in ``details["posterior"]``. With several starts,
    ``start(k)`` returns the first parameters of start k; see ``run_em``. The likelihood of the first iterations
    predicts the final one well; Tran et al. (2016) choose among five starts this way.

    The E-step runs in precision ``dtype``. Within a beam the objective is a lower bound, which may decrease; EM then
    ends. Without one, a decrease that rounding does not explain raises `LikelihoodDecrease`.
    """
    run = _Updates(sequences, priors or Priors(), algorithm, dtype, beam)

    def first(k: int) -> HMMParameters | Posterior:
        return run.first(start(k) if callable(start) else start)

    state, report = run_em(run, first, watch or Watch(), max_iter=max_iter, tol=tol, n_starts=n_starts, probe=probe)
    if isinstance(state, Posterior):
        report.details["posterior"] = state
        return state.mean(), report
    return state, report


@dataclass(frozen=True)
class Stepwise:
    r"""Stepwise EM between two batches: parameters, and the statistics that they come from.

    The statistics s are a running mean of each batch's expected counts, scaled to the size of the whole text:

    .. math:: s \leftarrow (1 - \eta_k) s + \eta_k \frac{N}{n_k} c_k, \qquad \eta_k = (k + 2)^{-0.7}

    (Cappé and Moulines, 2009; Liang and Klein, 2009). They start with the counts that the first parameters predict for
    the states of the first batch, so that a symbol it lacks does not become impossible. A pass over a large text
    achieves about as much as several iterations of ``em``; the likelihood may decrease at times.
    """

    parameters: HMMParameters
    n_tokens: float  # N, of the whole text; it matters only relative to the priors
    sums: Counts | None = None  # s
    n_batches: int = 0

    def after(
        self, batch: Sequences, priors: Priors, *, dtype: DTypeLike = np.float64, beam: Beam | None = None
    ) -> "tuple[Stepwise, Step]":
        """Return the state after one more batch, of which each process of a group has a part, and its log evidence."""
        counts, k = shared_counts(self.parameters, batch, dtype=dtype, beam=beam), self.n_batches
        scale, rate = self.n_tokens / max(1.0, float(counts.by_symbol.sum())), (k + 2.0) ** -POWER
        before = self.sums or predicted_counts(counts, self.parameters, scale)
        parts = {name: (1 - rate) * old + rate * scale * getattr(counts, name) for name, old in before.events().items()}
        sums = Counts(**parts, log_evidence=np.zeros(0))
        new = maximize(sums, priors, self.parameters)
        value = scale * counts.total + log_prior(self.parameters, priors)
        return Stepwise(new, self.n_tokens, sums, k + 1), Step(k + 1, value, log_evidence=counts.total)


def parameters_of(arrays: Mapping[str, Any]) -> HMMParameters:
    """Return the parameters that a watch measures or keeps; of variational Bayes the mean."""
    state = _from_arrays(arrays)
    return state.mean() if isinstance(state, Posterior) else state


class _Updates:
    """E-step and M-step for ``run_em``: of parameters, or of the posterior of variational Bayes."""

    def __init__(
        self, sequences: Sequences, priors: Priors, algorithm: Algorithm, dtype: DTypeLike, beam: Beam | None
    ) -> None:
        self.sequences, self.priors, self.algorithm = sequences, priors, algorithm
        self.may_decrease = beam is not None
        self.tolerated = TOLERATED[np.dtype(dtype)]
        self.n_tokens = whole.total(len(sequences.symbols))
        self._e_step = partial(shared_counts, dtype=dtype, beam=beam)

    def first(self, start: HMMParameters | Posterior) -> HMMParameters | Posterior:
        """Turn parameters into a posterior for variational Bayes."""
        if self.algorithm == "em" or isinstance(start, Posterior):
            return start
        return posterior(self._e_step(start, self.sequences), self.priors, end=start.log_end is not None)

    def update(self, state: HMMParameters | Posterior) -> Update:
        """Return the result of one iteration."""
        if isinstance(state, Posterior):
            (S, V), end = state.emission.shape, state.end is not None
            counts = self._e_step(state.expected_log(), self.sequences)
            value = counts.total - state.divergence(posterior(Counts.zeros(S, V, 0), self.priors, end=end))
            new: HMMParameters | Posterior = posterior(counts, self.priors, end=end)
        else:
            counts = self._e_step(state, self.sequences)
            value = counts.total + log_prior(state, self.priors)
            new = maximize(counts, self.priors, state)
        return Update(new, value, counts.total, counts.beam)

    def to_arrays(self, state: HMMParameters | Posterior) -> Arrays:
        """Return the state as named arrays."""
        return state.arrays()

    def from_arrays(self, arrays: Arrays) -> HMMParameters | Posterior:
        """Build the state from ``to_arrays``'s result."""
        return _from_arrays(arrays)


def _from_arrays(arrays: Mapping[str, Any]) -> HMMParameters | Posterior:
    if "by_symbol" in arrays:
        return Posterior(arrays["start"], arrays["transition"], arrays.get("end"), arrays["by_symbol"].T)
    return HMMParameters(arrays["log_start"], arrays["log_transition"], arrays.get("log_end"), arrays["log_emission"])
