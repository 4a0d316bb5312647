r"""Calibration: probabilities of a fitted model made to agree with how often its answers are correct.

A temperature divides all log-potentials of a model, so that the posterior is

.. math:: p_T(y \mid x) \propto p(y \mid x)^{1/T}

still one normalized distribution: marginals, best structures, samples and entropies agree with each other, and the most
probable structure is the same. It is fitted on held-out data by likelihood; for fully labeled sequences the loss is
convex in 1/T.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.display import plural
from trelliswork.errors import ValueRangeError

if TYPE_CHECKING:
    from trelliswork.models.base import Estimator

Model = TypeVar("Model", bound="Estimator")
COOLEST, HOTTEST = 0.05, 20.0  # temperatures
LEAST = 1e-12  # smallest probability in a log score


@dataclass(frozen=True)
class Calibration:
    """Result of `calibrate`, a part of the model.

    Attributes
    ----------
    temperatures : dict of str to float
        Temperatures by part of the model: "all", or those of the factors of a parser. Above 1 the model was
        overconfident.
    n_sentences : int
        Number of held-out sentences.
    span_thresholds : dict of str to float
        By layer: the probability from which ``decoding="mbr-span"`` includes a span.
    """

    temperatures: dict[str, float]
    n_sentences: int
    span_thresholds: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the temperatures and the size of the held-out data in a line."""
        named = [
            f"{value:.4f}" if name == "all" else f"{name} {value:.4f}" for name, value in self.temperatures.items()
        ]
        return f"temperature {', '.join(named)}, from {plural(self.n_sentences, 'sentences')}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any] | None) -> "Calibration | None":
        """Return the calibration of a saved model; ``None`` if it has none."""
        if plain is None:
            return None
        result = cls(**plain)
        values = [*result.temperatures.values(), *result.span_thresholds.values()]
        if not all(0 < t < math.inf for t in values):
            raise ValueRangeError("the calibration must have positive numbers.")
        return result


def calibrate(model: Model, X: Any, y: Any) -> Model:
    """Fit the confidence of a fitted model to held-out data; the model is changed and returned.

    The model gets one temperature (a parser one per type of factor), so that its posterior stays one distribution and
    all queries agree.

    Parameters
    ----------
    model : CRF, FactorialCRF, HMM, MRFTagger, DependencyParser or PCFG
        Fitted on other data. An earlier calibration is replaced, and ``fit`` removes it. ``save`` keeps it.
    X : as in ``fit``
        Held-out sentences, such as development data; not those of training.
    y : as in ``fit``
        Gold answers; for a PCFG gold trees (`Tree`). Labels that the model does not know are left out.

    Returns
    -------
    Estimator
        The model; ``calibration_`` has the result.

    Examples
    --------
    >>> from trelliswork import CRF
    >>> X, y = [["the", "dog"], ["a", "dog", "runs"]], [["D", "N"], ["D", "N", "V"]]
    >>> crf = calibrate(CRF("U:%x[0,0]", l2=0.1, scheme=None).fit(X, y), [["the", "dog", "runs"]], [["D", "N", "V"]])
    >>> crf.calibration_.temperatures["all"] < 1
    True
    """
    if not hasattr(model, "_calibrate_temperature"):
        raise ValueRangeError(
            f"a {type(model).__name__} has no marginals to calibrate: expected a tagger, a parser or a grammar."
        )
    model._check_fitted()
    if getattr(model, "_induced", False):
        raise ValueRangeError("induced states have no gold labels to calibrate with.")
    twin = object.__new__(type(model))  # so that other threads see the model as it was, or calibrated
    twin.__dict__ = model.__dict__ | {"calibration_": None}
    twin.calibration_ = Calibration(twin._calibrate_temperature(X, y), len(X))
    twin.calibration_ = replace(twin.calibration_, span_thresholds=twin._span_thresholds(X))
    model.__dict__ = twin.__dict__
    return model


def fit_temperature(loss: Callable[[float], float]) -> float:
    """Return the temperature T between 0.05 and 20 with the smallest ``loss(1 / T)``.

    ``loss`` takes the factor of the log-potentials; it is convex for exact models with complete answers, and then this
    is its minimum.
    """
    from scipy.optimize import minimize_scalar

    bounds = (math.log(1 / HOTTEST), math.log(1 / COOLEST))
    best = minimize_scalar(lambda log_b: loss(math.exp(log_b)), bounds=bounds, method="bounded",
                           options={"xatol": 1e-4})  # fmt: skip
    return math.exp(-float(best.x))


def temperature_of_sequences(
    log_z: Callable[[float], NDArray[np.float64]], log_z_known: Callable[[float], NDArray[np.float64]]
) -> float:
    """Return the temperature with the highest likelihood of known labels.

    ``log_z(b)`` and ``log_z_known(b)`` return log Z (n,) of sentences whose log-potentials are multiplied by b, of all
    labelings and of those that the gold labels allow. Sentences whose labels are impossible are left out.
    """
    at_one = log_z_known(1.0)
    possible = np.isfinite(at_one)
    informative = possible & (log_z(1.0) - at_one > 1e-9)
    if not informative.any():
        if possible.any():
            return 1.0  # the gold labels are certain
        raise ValueRangeError(
            "no sentence to calibrate with: the model gives the labels of each sentence probability 0."
        )
    return fit_temperature(lambda b: float((log_z(b) - log_z_known(b))[possible].sum()))


def observed(y: Iterable[Iterable[Any]], labels: Any) -> list[list[Any]]:
    """Return labels as evidence: ``None`` for those that the model does not know; it is an error if it knows none."""
    known = [[label if isinstance(label, str) and label in labels else None for label in row] for row in y]
    if not any(label is not None for row in known for label in row):
        raise ValueRangeError(
            f"y has no label that the model knows: expected labels such as {', '.join(list(labels)[:5])}."
        )
    return known
