r"""Calibration: probabilities of a fitted model made to agree with how often its answers are correct.

A temperature divides all log-potentials of a model, so that the posterior is

.. math:: p_T(y \mid x) \propto p(y \mid x)^{1/T}

still one normalized distribution: marginals, best structures, samples and entropies agree with each other, and the most
probable structure is the same. It is fitted on held-out data by likelihood; for fully labeled sequences the loss is
convex in 1/T.

Isotonic regression then maps the marginals of each label by an increasing function, and normalizes them again. It
changes marginals alone: ``posterior``, best structures and probabilities of spans keep those of the temperature.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.display import plural
from trelliswork.errors import ShapeError, ValueRangeError

if TYPE_CHECKING:
    from trelliswork.models.base import Estimator

Method = Literal["temperature", "isotonic"]
Model = TypeVar("Model", bound="Estimator")
Floats = NDArray[np.floating]
Map = list[list[float]]  # probabilities of the model, and calibrated ones; linear in between
COOLEST, HOTTEST = 0.05, 20.0  # temperatures
LEAST = 1e-12  # smallest probability in a log score
RARE = 50  # labels with fewer gold tokens share one map
SMALL = 1e-5  # smaller probabilities are left out of isotonic regression


@dataclass(frozen=True)
class Calibration:
    """Result of `calibrate`, a part of the model.

    Attributes
    ----------
    method : {"temperature", "isotonic"}
    temperatures : dict of str to float
        Temperatures by part of the model: "all", or those of the factors of a parser. Above 1 the model was
        overconfident.
    n_sentences : int
        Number of held-out sentences.
    span_thresholds : dict of str to float
        By layer: the probability from which ``decoding="mbr-span"`` includes a span.
    maps : dict of str to dict
        Isotonic maps by layer and label; the layer of a tagger with a single one is empty, and so is the label of the
        map that rare labels share.
    """

    method: str
    temperatures: dict[str, float]
    n_sentences: int
    span_thresholds: dict[str, float] = field(default_factory=dict)
    maps: dict[str, dict[str, Map]] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the temperatures and the size of the held-out data in a line."""
        named = [
            f"{value:.4f}" if name == "all" else f"{name} {value:.4f}" for name, value in self.temperatures.items()
        ]
        text = f"temperature {', '.join(named)}, from {plural(self.n_sentences, 'sentences')}"
        return text + (", and isotonic maps of marginals" if self.maps else "")

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
        if result.method not in get_args(Method) or not all(0 < t < math.inf for t in values):
            raise ValueRangeError("the calibration must have a known method and positive numbers.")
        for labels in result.maps.values():
            for xs, ys in labels.values():
                if len(xs) != len(ys) or any(a > b for row in (xs, ys) for a, b in pairwise(row)):
                    raise ValueRangeError("the maps of the calibration must increase.")
        return result

    def mapped(self, p: Floats, names: Sequence[str], layer: str = "") -> Floats:
        """Return marginals (..., S) of labels mapped and normalized again; unchanged without maps."""
        maps = self.maps.get(layer)
        if not maps:
            return p
        out = np.stack([_apply(maps.get(name, maps.get("")), p[..., j]) for j, name in enumerate(names)], axis=-1)
        total = out.sum(axis=-1, keepdims=True)
        return np.where(total > 0, out / np.where(total > 0, total, 1), p)

    def mapped_table(self, table: Mapping[Any, float], normalize: bool = True) -> dict[Any, float]:
        """Return answers with their probabilities (heads of a word, spans) mapped, and normalized if requested."""
        maps = self.maps.get("")
        if not maps or not table:
            return dict(table)
        p = _apply(maps[""], np.array(list(table.values()), np.float64))
        total = float(p.sum()) if normalize else 1.0
        return dict(zip(table, (p / total if total > 0 else p).tolist(), strict=True))


def calibrate(model: Model, X: Any, y: Any, *, method: Method = "temperature") -> Model:
    """Fit the confidence of a fitted model to held-out data; the model is changed and returned.

    Parameters
    ----------
    model : CRF, FactorialCRF, HMM, MRFTagger, DependencyParser or PCFG
        Fitted on other data. An earlier calibration is replaced, and ``fit`` removes it. ``save`` keeps it.
    X : as in ``fit``
        Held-out sentences, such as development data; not those of training.
    y : as in ``fit``
        Gold answers; for a PCFG gold trees (`Tree`). Labels that the model does not know are left out.
    method : {"temperature", "isotonic"}
        One temperature for the whole model (a parser has one per type of factor), so that the posterior stays one
        distribution and all queries agree. "isotonic" also maps the marginals of each label; it affects
        ``predict_marginals`` alone, and needs some thousand tokens.

    Returns
    -------
    Estimator
        The model; ``calibration_`` has the result.

    Examples
    --------
    >>> from trelliswork import CRF
    >>> X, y = [["the", "dog"], ["a", "dog", "runs"]], [["D", "N"], ["D", "N", "V"]]
    >>> crf = calibrate(CRF("U:%x[0,0]", l2=0.1, scheme=None).fit(X, y), [["the", "dog", "runs"]], [["D", "N", "V"]])
    >>> crf.calibration_.method, crf.calibration_.temperatures["all"] < 1
    ('temperature', True)
    """
    if method not in get_args(Method):
        raise ValueRangeError(f"method must be 'temperature' or 'isotonic', got {method!r}.")
    if not hasattr(model, "_calibrate_temperature"):
        raise ValueRangeError(
            f"a {type(model).__name__} has no marginals to calibrate: expected a tagger, a parser or a grammar."
        )
    model._check_fitted()
    if getattr(model, "induced_", False):
        raise ValueRangeError("induced states have no gold labels to calibrate with.")
    twin = object.__new__(type(model))  # so that other threads see the model as it was, or calibrated
    twin.__dict__ = model.__dict__ | {"calibration_": None}
    twin.calibration_ = Calibration(method, twin._calibrate_temperature(X, y), len(X))
    twin.calibration_ = replace(twin.calibration_, span_thresholds=twin._span_thresholds(X))
    if method == "isotonic":
        maps = {layer: _maps(events) for layer, events in twin._calibration_events(X, y).items()}
        twin.calibration_ = replace(twin.calibration_, maps=maps)
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


def label_events(
    marginals: Sequence[Sequence[Mapping[str, float]]], y: Sequence[Sequence[Any]]
) -> dict[str, tuple[Floats, Floats]]:
    """Return the probabilities of each label, and whether it is the gold one; those of rare labels together as ''."""
    if [len(row) for row in marginals] != [len(row) for row in y]:
        raise ShapeError("y must have as many sentences and tokens as X.")
    pairs = [(p, g) for ps, gs in zip(marginals, y, strict=True) for p, g in zip(ps, gs, strict=True) if g is not None]
    if not pairs:
        raise ShapeError("y has no labels to calibrate with.")
    names = list(pairs[0][0])
    p = np.array([list(row.values()) for row, _ in pairs])
    hits = np.array([[g == name for name in names] for _, g in pairs])
    events: dict[str, tuple[Floats, Floats]] = {"": (p.reshape(-1), hits.reshape(-1))}
    for j, name in enumerate(names):
        if hits[:, j].sum() >= RARE:
            events[name] = (p[:, j], hits[:, j])
    return events


def _maps(events: Mapping[str, tuple[Floats, Floats]]) -> dict[str, Map]:
    return {name: isotonic_map(p, hits) for name, (p, hits) in events.items()}


def isotonic_map(p: Floats, hits: Floats) -> Map:
    """Return the increasing map of probabilities p (n,) that fits ``hits`` (n,) best: knots, and values at them.

    Neighboring answers with equal values form a block; its value is the fraction of hits, with one more answer at the
    model's own probability. 0 and 1 stay what they are.
    """
    from scipy.optimize import isotonic_regression

    p, hits = np.asarray(p, np.float64), np.asarray(hits, np.float64)
    keep = p > SMALL
    order = np.argsort(p[keep], kind="stable")
    p, hits = p[keep][order], hits[keep][order]
    if not len(p):
        return [[0.0, 1.0], [0.0, 1.0]]
    blocks = isotonic_regression(hits).blocks
    sizes = np.diff(blocks)
    stated, right = (np.add.reduceat(values, blocks[:-1]) for values in (p, hits))
    xs = stated / sizes
    ys = np.maximum.accumulate((right + xs) / (sizes + 1))
    return [[0.0, *xs.tolist(), 1.0], [0.0, *np.minimum(ys, 1.0).tolist(), 1.0]]


def _apply(known: Map | None, p: Floats) -> Floats:
    if known is None:
        return p
    return np.asarray(np.interp(p, known[0], known[1])).astype(p.dtype)
