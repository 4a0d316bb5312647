"""Expectation maximisation for categorical hidden Markov models: maximum likelihood, MAP, variational Bayes, stepwise.

The E-step is ``hmm_counts.expected_counts``, the M-steps are in ``hmm_updates``; here is what goes round between them.
"""

import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from trelliswork.compute.checks import check_count
from trelliswork.errors import ConvergenceWarning, ValueRangeError
from trelliswork.inference.chain.beam import Beam, BeamStatistics
from trelliswork.models.hmm.beams import beam_counts
from trelliswork.models.hmm.data import Counts, HMMParameters, Sequences
from trelliswork.models.hmm.objective import expected_counts
from trelliswork.models.hmm.updates import (
    Posterior,
    Priors,
    check_normalised,
    foretold,
    log_prior,
    maximise,
    posterior,
    random_parameters,
)

__all__ = [
    "EMReport",
    "EMStep",
    "LikelihoodDecrease",
    "Posterior",
    "Priors",
    "em",
    "random_parameters",
    "restarts",
    "stepwise",
]

# How far rounding may lower an objective, by the precision of the E-step, as a fraction of |objective| + tokens.
SLACK = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-11}
STOPPED = "stopped by the caller"  # a report's reason


class LikelihoodDecrease(ArithmeticError):  # noqa: N818  (it names what happened)
    """The objective of EM fell, which it never does: a mistake in the E- or M-step, or a broken input."""


@dataclass
class EMStep:
    """How one iteration went.

    Attributes
    ----------
    iteration : int
        From 1.
    value : float
        Objective of the parameters that the iteration began with: log evidence plus log prior (without its constant),
        or the lower bound of variational Bayes.
    log_evidence : float
        Its first term.
    seconds : float
        Since the beginning.
    """

    iteration: int
    value: float
    log_evidence: float
    seconds: float


@dataclass
class EMReport:
    """How learning ended.

    Attributes
    ----------
    converged : bool
    reason : str
    value : float
        The last objective computed; the parameters returned are one M-step ahead, hence no worse.
    history : list of EMStep
    posterior : Posterior, optional
        Of variational Bayes.
    probes : list of float
        The objective each restart had reached when the best was chosen.
    beam : BeamStatistics, optional
        What the beams of the last E-step were like, if there were any.
    """

    converged: bool
    reason: str
    value: float
    history: list[EMStep] = field(default_factory=list)
    posterior: Posterior | None = None
    probes: list[float] = field(default_factory=list)
    beam: BeamStatistics | None = None

    @property
    def n_iter(self) -> int:
        """Iterations done."""
        return len(self.history)

    def settled(self, before: float, tol: float) -> bool:
        """Whether the value rose by less than ``tol`` of itself, which then is how learning ended; never if 0."""
        if not tol or before == -np.inf or self.value - before >= tol * abs(self.value):
            return False
        self.converged, self.reason = True, f"the objective rose by less than {tol:g} of its value"
        return True

    def run_out(self, max_iter: int, tol: float) -> None:
        """Learning ended with its iterations: a warning, unless that was asked for."""
        self.reason = f"{max_iter} iterations"
        if tol > 0:
            warnings.warn(
                f"EM stopped after {max_iter} iterations before reaching tol={tol:g}. Raise max_iter or loosen tol.",
                ConvergenceWarning,
                stacklevel=3,
            )


Parameters = TypeVar("Parameters")
Callback = Callable[[EMStep], bool | None]
EStep = Callable[[HMMParameters, Sequences], Counts]
Method = Literal["em", "vb"]


def em(
    start: HMMParameters | Posterior,
    sequences: Sequences,
    *,
    priors: Priors | None = None,
    method: Method = "em",
    max_iter: int = 100,
    tol: float = 1e-6,
    dtype: DTypeLike = np.float64,
    beam: Beam | None = None,
    callback: Callback | None = None,
    begun: EMReport | None = None,
) -> tuple[HMMParameters, EMReport]:
    """Learn an HMM from sequences whose states are unknown, or known here and there.

    Parameters
    ----------
    start : HMMParameters or Posterior
        Where to begin; has an end event or not, and so has the result. Zeros stay zero unless a prior lifts them. A
        posterior continues variational Bayes.
    sequences : Sequences
    priors : Priors, optional
        None by default: maximum likelihood. Variational Bayes needs them.
    method : {"em", "vb"}
    max_iter : int
    tol : float
        Stop when an iteration raises the objective by less than this fraction of it; 0 runs all iterations.
    dtype : float32 or float64
        Of the recursions in the E-step.
    beam : Beam, optional
        Sum over few states a position: the objective is then a lower bound of itself, and may fall, which ends EM.
    callback : callable, optional
        Called with each ``EMStep``; a true answer stops.
    begun : EMReport, optional
        Of iterations done before, which count: the result's report goes on from it.

    Returns
    -------
    parameters : HMMParameters
        For variational Bayes the posterior mean.
    report : EMReport

    Raises
    ------
    LikelihoodDecrease
        If the objective falls by more than rounding explains, though there is no beam.
    """
    began = time.perf_counter()
    priors = priors or Priors()
    check_count("max_iter", max_iter)
    if method not in ("em", "vb"):
        raise ValueRangeError(f"method must be 'em' or 'vb', got {method!r}.")
    if not tol >= 0:
        raise ValueRangeError(f"tol must not be negative, got {tol}.")
    S, V = np.shape(start.log_emission if isinstance(start, HMMParameters) else start.emission)
    priors.check(S, V, positive=method == "vb")
    e_step = _e_step(dtype, beam)
    state, prior = _first_state(start, sequences, priors, method, e_step)
    slack = SLACK[np.dtype(dtype)]
    n_tokens = float(np.diff(sequences.offsets) @ sequences.sequence_weights)
    report = EMReport(False, "", -np.inf)
    if begun is not None:
        report = EMReport(False, "", begun.value, list(begun.history), None, begun.probes)
        began -= begun.history[-1].seconds
    for iteration in range(report.n_iter + 1, max_iter + 1):
        if isinstance(state, Posterior):
            assert prior is not None
            counts = e_step(state.expected_log(), sequences)
            value = counts.total - state.divergence(prior)
            state = posterior(counts, priors, end=state.end is not None)
        else:
            counts = e_step(state, sequences)
            value = counts.total + log_prior(state, priors)
            state = maximise(counts, priors, state)
        before, report.value, report.beam = report.value, value, counts.beam
        step = EMStep(iteration, value, counts.total, time.perf_counter() - began)
        report.history.append(step)
        if beam is not None and value < before:
            report.reason = f"the objective within the beam {beam} fell from {before:.1f} to {value:.1f}"
            break
        if value < before - slack * (abs(before) + n_tokens):
            raise LikelihoodDecrease(
                f"the objective fell from {before!r} to {value!r} in iteration {iteration}; only "
                f"{slack * (abs(before) + n_tokens):g} could be rounding. Please report this, with the data if you can."
            )
        if callback is not None and callback(step):
            report.reason = STOPPED
            break
        if report.settled(before, tol):
            break
    else:
        report.run_out(max_iter, tol)
    if isinstance(state, Posterior):
        report.posterior = state
        return state.mean(), report
    return state, report


def restarts(
    n_restarts: int,
    n_states: int,
    n_symbols: int,
    sequences: Sequences,
    *,
    seed: int = 0,
    probe: int = 5,
    concentration: float = 1.0,
    mean_length: float | None = None,
    priors: Priors | None = None,
    method: Method = "em",
    max_iter: int = 100,
    tol: float = 1e-6,
    dtype: DTypeLike = np.float64,
    beam: Beam | None = None,
    callback: Callback | None = None,
) -> tuple[HMMParameters, EMReport]:
    """EM from several random starts: a few iterations of each, then the best alone goes on.

    The likelihood of the first iterations foretells the final one well; Tran et al. (2016) choose among five this way.

    Parameters
    ----------
    n_restarts, probe : int
        Random starts, and iterations before the best is chosen; these count towards ``max_iter``.
    seed, concentration, mean_length
        Of ``random_parameters``.
    callback : callable, optional
        Called with every step, also of the starts that are given up.
    """
    began = time.perf_counter()
    for name, count in (("n_restarts", n_restarts), ("probe", probe), ("max_iter", max_iter)):
        check_count(name, count)
    options: dict[str, Any] = {"priors": priors, "method": method, "dtype": dtype, "beam": beam, "callback": callback}
    starts = (
        random_parameters(n_states, n_symbols, seed=own, concentration=concentration, mean_length=mean_length)
        for own in np.random.SeedSequence(seed).spawn(n_restarts)
    )
    if n_restarts == 1:
        return em(next(starts), sequences, max_iter=max_iter, tol=tol, **options)
    best = best_of(em(start, sequences, max_iter=min(probe, max_iter), tol=0, **options) for start in starts)
    parameters, begun = best
    if max_iter <= probe or begun.reason == STOPPED:
        return best
    begun.history[-1].seconds = time.perf_counter() - began
    return em(begun.posterior or parameters, sequences, max_iter=max_iter, tol=tol, begun=begun, **options)


def stepwise(
    start: HMMParameters,
    batches: Iterable[Sequences],
    n_sequences: float,
    *,
    priors: Priors | None = None,
    power: float = 0.7,
    n_passes: int = 1,
    dtype: DTypeLike = np.float64,
    beam: Beam | None = None,
    callback: Callback | None = None,
) -> tuple[HMMParameters, EMReport]:
    r"""EM that updates the parameters after every batch of sequences.

    The statistics s are a running mean of each batch's expected counts, blown up to the size of the corpus:

    .. math:: s \leftarrow (1 - \eta_k) s + \eta_k \frac{N}{n_k} c_k, \qquad \eta_k = (k + 2)^{-\text{power}}

    (Cappé and Moulines, 2009; Liang and Klein, 2009). They begin with what the starting parameters foretell for as many
    states as the first batch has, so that a symbol it lacks does not become impossible. A pass over a large corpus gets
    about as far as several iterations of ``em``; the likelihood may fall now and then.

    Parameters
    ----------
    batches : iterable of Sequences
        Gone through ``n_passes`` times: a list, or something that reads a file anew each time.
    n_sequences : float
        N, the (weighted) number of sequences of the corpus; matters only relative to the priors.
    power : float
        Above 0.5, at most 1; small values forget faster.
    callback : callable, optional
        Called with an ``EMStep`` a batch: its log evidence, and as value the objective estimated from it.
    """
    began = time.perf_counter()
    priors = priors or Priors()
    priors.check(start.n_states, start.n_symbols)
    check_count("n_passes", n_passes)
    if not 0.5 < power <= 1:
        raise ValueRangeError(f"power must lie above 0.5 and at most at 1, got {power}: else steps do not settle.")
    check_normalised(start)
    e_step = _e_step(dtype, beam)
    parameters, sums = start, Counts.zeros(start.n_states, start.n_symbols, 0)
    report = EMReport(False, f"{n_passes} passes", -np.inf)
    for n in range(n_passes):
        done = report.n_iter
        for batch in batches:
            counts = e_step(parameters, batch)
            k, larger = report.n_iter, n_sequences / float(batch.sequence_weights.sum())
            if k == 0:
                sums.add(foretold(counts, parameters, larger))
            rate = (k + 2.0) ** -power
            for name in ("start", "transition", "end", "by_symbol"):
                total = getattr(sums, name)
                total *= 1 - rate
                total += rate * larger * getattr(counts, name)
            value = larger * counts.total + log_prior(parameters, priors)
            parameters = maximise(sums, priors, parameters)
            report.history.append(EMStep(k + 1, value, counts.total, time.perf_counter() - began))
            report.value, report.beam = value, counts.beam
            if callback is not None and callback(report.history[-1]):
                report.reason = STOPPED
                return parameters, report
        if report.n_iter == done:
            raise ValueRangeError(
                f"there are no batches in pass {n + 1}: give something that can be gone through again."
            )
    return parameters, report


def best_of(tries: Iterable[tuple[Parameters, EMReport]]) -> tuple[Parameters, EMReport]:
    """The try that got furthest, with the values of all as ``probes``; one that the caller stopped is the last."""
    best: tuple[Parameters, EMReport] | None = None
    probes = []
    for tried in tries:
        probes.append(tried[1].value)
        if best is None or tried[1].value > best[1].value:
            best = tried
        if tried[1].reason == STOPPED:
            best[1].reason = STOPPED
            break
    assert best is not None, "there is one try at least"
    best[1].probes = probes
    return best


def _e_step(dtype: DTypeLike, beam: Beam | None) -> EStep:
    """How counts are made: exactly, or within a beam."""
    if beam is None:
        return partial(expected_counts, dtype=dtype)
    return partial(beam_counts, beam=beam, dtype=dtype)


def _first_state(
    start: HMMParameters | Posterior, sequences: Sequences, priors: Priors, method: Method, e_step: EStep
) -> tuple[HMMParameters | Posterior, Posterior | None]:
    """What the iterations begin with, and the prior of variational Bayes in the form of a posterior."""
    if method == "em":
        if isinstance(start, Posterior):
            raise ValueRangeError("a posterior continues method='vb' only: start EM from its mean().")
        check_normalised(start)
        return start, None
    if isinstance(start, HMMParameters):
        check_normalised(start)
        counts = e_step(start, sequences)
        start = posterior(counts, priors, end=start.log_end is not None)
    S, V = start.emission.shape
    return start, posterior(Counts.zeros(S, V, 0), priors, end=start.end is not None)
