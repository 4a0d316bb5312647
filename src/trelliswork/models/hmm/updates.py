r"""M-steps of categorical hidden Markov models, priors, and random starts.

Every row of parameters is a distribution; c are the expected counts of an E-step, a the counts that a prior adds:

.. math:: \theta_k \propto c_k + a_k, \qquad
          \log \tilde\theta_k = \psi(c_k + a_k) - \psi\big(\textstyle\sum_{k'} c_{k'} + a_{k'}\big)

The first is the M-step of EM: with a Dirichlet prior of parameters a + 1 it climbs to a maximum a posteriori. The
second is the M-step of variational Bayes with a Dirichlet(a) prior (MacKay, 1997; Beal, 2003): the posterior of the
parameters is Dirichlet(c + a), and the E-step uses the weights :math:`\tilde\theta`, which sum to less than 1.
An end event is one of the outcomes of its state's transitions.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.models.hmm.data import Counts, Doubles, HMMParameters


@dataclass(frozen=True)
class Priors:
    """Numbers that are added to the expected counts, or arrays of the counts' shapes.

    For EM these are pseudo-counts, not negative: a Dirichlet prior of parameters ``1 + value``. For variational Bayes
    they are the Dirichlet parameters themselves, positive; below 1 they favor few outcomes (Johnson, 2007).
    """

    start: float | Doubles = 0.0  # (S,)
    transition: float | Doubles = 0.0  # (S, S)
    end: float | Doubles = 0.0  # (S,); not used without an end event
    emission: float | Doubles = 0.0  # (S, V)


@dataclass(frozen=True)
class Posterior:
    """Dirichlet parameters of each row of an HMM's parameters; shapes as in ``HMMParameters``."""

    start: Doubles
    transition: Doubles
    end: Doubles | None
    emission: Doubles

    def mean(self) -> HMMParameters:
        """Return the expected parameters."""
        return self._by_row(lambda row: np.log(row / row.sum(axis=-1, keepdims=True)))

    def expected_log(self) -> HMMParameters:
        """Return the expected log-parameters: weights of the E-step, not normalized."""
        from scipy.special import digamma

        return self._by_row(lambda row: digamma(row) - digamma(row.sum(axis=-1, keepdims=True)))

    def _by_row(self, log_of: Callable[[Doubles], Doubles]) -> HMMParameters:
        return _parameters([log_of(row) for row in _rows(self)], self.end is not None)

    def divergence(self, prior: "Posterior") -> float:
        """Return KL(self || prior), summed over all rows."""
        return sum(_dirichlet_divergence(a, b) for a, b in zip(_rows(self), _rows(prior), strict=True))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name, emissions as ``by_symbol`` (V, S): the layout decides how sums are rounded."""
        arrays = {"start": self.start, "transition": self.transition, "by_symbol": self.emission.T}
        return arrays if self.end is None else arrays | {"end": self.end}


def random_parameters(
    n_states: int,
    n_symbols: int,
    *,
    seed: int | np.random.SeedSequence = 0,
    concentration: float = 1.0,
    mean_length: float | None = None,
) -> HMMParameters:
    """Return rows drawn from Dirichlet distributions with all parameters equal to ``concentration``, without zeros.

    If ``mean_length`` is given, the end is an event of probability 1 / mean_length in every state.
    """
    rng = np.random.default_rng(seed)

    def draw(*shape: int) -> Doubles:
        values = rng.standard_gamma(concentration, shape)
        values = np.maximum(values, 1e-12 * values.sum(axis=-1, keepdims=True) + np.finfo(np.float64).tiny)
        return np.log(values / values.sum(axis=-1, keepdims=True))

    log_start, log_transition, log_emission = draw(n_states), draw(n_states, n_states), draw(n_states, n_symbols)
    if mean_length is None:
        return HMMParameters(log_start, log_transition, None, log_emission)
    log_end = np.full(n_states, -np.log(mean_length))
    return HMMParameters(log_start, log_transition + np.log1p(-1 / mean_length), log_end, log_emission)


def maximize(counts: Counts, priors: Priors, old: HMMParameters) -> HMMParameters:
    """Return normalized counts plus pseudo-counts (the M-step); a row of zeros keeps its old probabilities."""
    new = posterior(counts, priors, end=old.log_end is not None)

    rows = [_normalized(row, log_old) for row, log_old in zip(_rows(new), _rows(old), strict=True)]
    return _parameters(rows, old.log_end is not None)


def _normalized(row: Doubles, log_old: Doubles) -> Doubles:
    """Return log-frequencies in contiguous rows; emissions are counted symbol by symbol."""
    total, log_row = row.sum(axis=-1, keepdims=True), np.empty(row.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        np.log(np.divide(row, total, out=log_row), out=log_row)
    return log_row if (total > 0).all() else np.where(total > 0, log_row, log_old)


def posterior(counts: Counts, priors: Priors, *, end: bool) -> Posterior:
    """Return counts plus priors."""
    return Posterior(
        counts.start + priors.start,
        counts.transition + priors.transition,
        counts.end + priors.end if end else None,
        counts.emission + priors.emission if np.any(priors.emission) else counts.emission,
    )


def predicted_counts(counts: Counts, parameters: HMMParameters, scale: float) -> Counts:
    """Return the row sums of ``counts`` times ``scale``, distributed over the outcomes by the parameters."""
    p, leaving = parameters, counts.transition.sum(axis=1)
    end = np.zeros(p.n_states)
    if p.log_end is not None:
        leaving = leaving + counts.end
        end = scale * leaving * np.exp(p.log_end)
    return Counts(
        scale * counts.start.sum() * np.exp(p.log_start),
        scale * leaving[:, None] * np.exp(p.log_transition),
        end,
        scale * counts.by_symbol.sum(axis=0) * np.exp(p.log_emission.T),
        np.zeros(0),
    )


def log_prior(parameters: HMMParameters, priors: Priors) -> float:
    """Return the log density of the Dirichlet priors up to a constant: pseudo-counts times log-probabilities."""
    value = 0.0
    for name, log_theta in parameters.arrays().items():
        pseudo = getattr(priors, name.removeprefix("log_"))
        if np.any(pseudo):
            weight = np.broadcast_to(pseudo, log_theta.shape)
            value += float(np.multiply(weight, log_theta, out=np.zeros_like(log_theta), where=weight > 0).sum())
    return value


def _rows(of: HMMParameters | Posterior) -> list[Doubles]:
    """Return starts (S,), transitions with the end as the last outcome (S, S or S+1), emissions (S, V)."""
    start, transition, end, emission = (getattr(of, field.name) for field in fields(of))
    return [start, transition if end is None else np.column_stack([transition, end]), emission]


def _parameters(rows: list[Doubles], end: bool) -> HMMParameters:
    start, transition, emission = rows
    if not end:
        return HMMParameters(start, transition, None, emission)
    return HMMParameters(start, transition[:, :-1], transition[:, -1], emission)


def _dirichlet_divergence(a: Doubles, b: Doubles) -> float:
    """Return KL(Dirichlet(a) || Dirichlet(b)), summed over rows."""
    from scipy.special import digamma, gammaln

    total_a, total_b = a.sum(axis=-1), b.sum(axis=-1)
    value = (gammaln(total_a) - gammaln(total_b)).sum() + (gammaln(b) - gammaln(a)).sum()
    return float(value + ((a - b) * (digamma(a) - digamma(total_a)[..., None])).sum())
