"""How an HMM shall learn: its parameters, checked."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from trelliswork.compute.checks import check_count
from trelliswork.errors import ValueRangeError
from trelliswork.inference.chain.beam import Beam, chosen_beam
from trelliswork.models.hmm import trigrams
from trelliswork.models.hmm.em import Priors

Method = Literal["em", "vb", "stepwise"]
Unknown = Literal["suffix", "symbol"]


@dataclass(frozen=True)
class HMMSettings:
    """How to learn; the parameters of ``HMM`` of the same names."""

    n_states: int | None
    order: int
    unknown: Unknown
    interpolation: trigrams.Method
    start_prior: float
    transition_prior: float
    emission_prior: float
    end: bool
    min_count: int
    method: Method
    max_iter: int
    tol: float
    n_restarts: int
    probe: int
    batch_size: int
    seed: int
    dtype: str
    beam: Beam | str | None

    def check(self) -> None:
        """Refuse what cannot be meant."""
        for name, choices in (
            ("order", (1, 2, 3)),
            ("unknown", ("suffix", "symbol")),
            ("interpolation", ("kneser-ney", "deleted")),
            ("method", ("em", "vb", "stepwise")),
            ("dtype", ("float32", "float64")),
        ):
            if getattr(self, name) not in choices:
                wanted = " or ".join(map(repr, choices))
                raise ValueRangeError(f"{name} must be {wanted}, got {getattr(self, name)!r}.")
        for name in ("start_prior", "transition_prior", "emission_prior", "tol"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ValueRangeError(f"{name} must be 0 or more and finite, got {getattr(self, name)}.")
        for name in ("min_count", "max_iter", "n_restarts", "probe", "batch_size"):
            check_count(name, getattr(self, name))
        if self.n_states is not None:
            check_count("n_states", self.n_states)
        if self.seed < 0:
            raise ValueRangeError(f"seed must be 0 or more, got {self.seed}.")
        chosen_beam(self.beam, 1)  # refuses what cannot be read
        if self.method == "stepwise" and self.n_restarts > 1:
            raise ValueRangeError("stepwise EM has one start: leave n_restarts out.")

    @property
    def priors(self) -> Priors:
        """As EM takes them."""
        return Priors(self.start_prior, self.transition_prior, self.transition_prior, self.emission_prior)
