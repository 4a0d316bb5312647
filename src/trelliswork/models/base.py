"""The base class of all estimators: parameters in scikit-learn's style, saving and loading."""

import inspect
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.display import Displayed, Names
from trelliswork.data.files import shorten
from trelliswork.data.storage import load_model, save_model
from trelliswork.errors import DataError, NotFittedError, ValueRangeError
from trelliswork.inference.chain.beam import BeamStatistics
from trelliswork.learning import whole
from trelliswork.learning.report import Callback, FitReport
from trelliswork.learning.watch import Development, Watch, open_checkpoint
from trelliswork.models.calibration import Calibration
from trelliswork.models.entrance import METHODS, checker
from trelliswork.models.examples import example_of, plain_sentence
from trelliswork.models.parameters import Declared, declared, documented_fit, unknown_parameter

Arrays = dict[str, NDArray[Any]]
_log = logging.getLogger("trelliswork.models")


@dataclass
class Table:
    """Rows of a description: key in JSON, title in text, names of the columns, rows."""

    key: str
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


@dataclass
class Description:
    """The content of a fitted model for people: a title, single facts, and tables."""

    title: str
    facts: dict[str, Any] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)


class Predictions(list[Any]):
    """A list of predictions, one per sentence, which NumPy sees as a row of objects and not as a table.

    So scikit-learn's ``cross_val_predict`` can put the predictions of several folds together.
    """

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        row = np.empty(len(self), object)
        for k, prediction in enumerate(self):
            row[k] = prediction
        return row


def _on_one_state(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a public method that sees one fitted state, even if another thread fits the estimator meanwhile.

    It runs on a second object with the same dictionary of attributes, which also keeps what the method caches. A fit
    replaces the dictionary as a whole (`_in_one_step`). What ``predict`` returns is one of `Predictions`, and what
    ``posterior`` returns has the words and the names of labels, for displays.
    """
    name, checked = method.__name__, checker(method)

    @wraps(method)
    def wrapped(self: Any, *args: Any, **options: Any) -> Any:
        state = object.__new__(type(self))
        state.__dict__ = self.__dict__
        checked(state, args, options)
        found = method(state, *args, **options)
        if name == "predict" and type(found) is list:
            return Predictions(found)
        if name == "posterior":
            found.names = Names(args[0] if args else options["sentence"], getattr(state, "_labels", None))
        return self if found is state else found

    return wrapped


def _in_one_step(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that trains a twin, and then takes over all its attributes in one assignment.

    ``fit`` starts from the parameters alone and keeps an example, the other methods from everything there is. After an
    error or Ctrl-C the estimator is what it was.
    """
    known, checked = [*inspect.signature(fit).parameters][1:], checker(fit)

    @wraps(fit)
    def wrapped(self: Any, *args: Any, **options: Any) -> Any:
        for name in options:
            if name in _FIT and name not in known:
                own = f"{type(self).__name__}.{fit.__name__}"
                raise ValueRangeError(f"{own} has no use for {name}: leave it out. It takes {', '.join(known)}.")
        kept = [*self._parameters(), *_SKLEARN] if fit.__name__ == "fit" else list(self.__dict__)
        twin = object.__new__(type(self))
        twin.__dict__ = {name: self.__dict__[name] for name in kept if name in self.__dict__}
        checked(twin, args, options)
        fit(twin, *args, **options)
        if fit.__name__ == "fit":
            given = dict(zip(known, args, strict=False)) | options
            twin.example_ = example_of(given["X"], given.get("y"))
        self.__dict__ = twin.__dict__
        return self

    if fit.__name__ == "fit":
        wrapped.__doc__ = documented_fit(fit)
    return wrapped


_SKLEARN = ("_metadata_request", "_parent_callback_ctx", "_skl_callbacks")  # what scikit-learn notes before a fit
_TRAINING = ("fit", "partial_fit")
_FIT = {"y", "dev", "start", "sample_weight", "checkpoint", "callback", "max_minutes"}  # of all estimators
_PLAIN = ("get_params", "set_params", "set_fit_request", "get_metadata_routing")  # of the parameters alone


class Estimator(Displayed):
    """Base of all estimators.

    ``__init__`` stores its arguments under their names and does nothing else; learned attributes end in ``_``. Works
    with scikit-learn's ``clone``, ``Pipeline``, ``GridSearchCV``, ``cross_val_predict`` and metadata routing;
    scikit-learn itself is not needed. Copies and pickles of a fitted estimator have what ``save`` writes.

    Attributes
    ----------
    report_ : FitReport
        Report of the training.
    input_ : dict
        Layout of the training file, if the model was trained on the command line.
    calibration_ : Calibration or None
        Result of `calibrate`.
    example_ : list or None
        A short sentence of the training data.
    """

    family: ClassVar[str]  # its kind in model.json and on the command line
    _title: ClassVar[str]  # on pages
    _fit_sets: ClassVar[str] = "weights_"  # the attribute that a successful fit sets
    _apart: ClassVar[tuple[str, ...]] = ()  # parameters that are no plain data: the state has them
    report_: FitReport
    input_: dict[str, Any]
    calibration_: Calibration | None = None
    example_: list[Any] | None = None
    _declared: ClassVar[dict[str, Declared]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, method in list(cls.__dict__.items()):
            public = name in METHODS or not name.startswith("_")
            if inspect.isfunction(method) and public and name not in _PLAIN:
                setattr(cls, name, (_in_one_step if name in _TRAINING else _on_one_state)(method))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name == "predict_proba" and hasattr(type(self), "predict_marginals"):
                raise AttributeError(
                    "there is no predict_proba, since sentences differ in length: use predict_marginals."
                )
            return object.__getattribute__(self, name)  # raises the error that says why

    @property
    def kind(self) -> str:
        """Whether the probabilities are "exact", bounds ("lower", "upper") or an "estimate"."""
        return "exact"

    @classmethod
    def _parameters(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments of ``__init__`` by name."""
        return {name: getattr(self, name) for name in self._parameters()}

    def set_params(self, **parameters: Any) -> Self:
        """Change arguments of ``__init__``, or single options as in ``options__tol=0.1``; others are an error."""
        known = self._parameters()
        for name, value in parameters.items():
            inner = name.removeprefix("options__")
            if inner != name and inner in declared(type(self)):
                setattr(self, "options", dict(getattr(self, "options", None) or {}) | {inner: value})  # noqa: B010
            elif name in known:
                setattr(self, name, value)
            else:
                raise ValueRangeError(unknown_parameter(type(self), name))
        return self

    def _values(self, *without: str) -> dict[str, Any]:
        """Return the values of all declared parameters, those in ``options`` too."""
        return {name: getattr(self, name) for name in declared(type(self)) if name not in without}

    def _check_parameters(self) -> None:
        """Raise `ValueRangeError` if a parameter has a wrong type or is out of its declared range."""
        known, options = declared(type(self)), getattr(self, "options", None)
        if options is not None and not isinstance(options, Mapping):
            raise ValueRangeError(f"options must be a dict of parameters by name, got {options!r}.")
        for name in options or ():
            if name not in known or known[name].shown:
                others = ", ".join(other for other, d in known.items() if not d.shown)
                raise ValueRangeError(f"{type(self).__name__} has no option {name!r}; it has {others}.")
        for name, declaration in known.items():
            declaration.check(getattr(self, name))

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        changed = {k: v for k, v in self.get_params().items() if v is not defaults[k].default}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in changed.items())})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=True))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, self._fit_sets)

    def set_fit_request(self, **requests: bool | str | None) -> Self:
        """Request metadata of ``fit``, such as ``sample_weight=True``, if scikit-learn routes it (see its user guide).

        The value is True (pass it), False (do not), None (an error if it is given) or another name for it.
        """
        routing = self.get_metadata_routing()
        for name, alias in requests.items():
            if name not in routing.fit.requests:
                known = ", ".join(routing.fit.requests)
                raise ValueRangeError(f"fit of {type(self).__name__} takes no {name!r}; it takes {known}.")
            routing.fit.add_request(param=name, alias=alias)
        self._metadata_request = routing
        return self

    def get_metadata_routing(self) -> Any:
        """Return what ``fit`` requests, as scikit-learn's metadata routing asks for it."""
        from sklearn.utils.metadata_routing import MetadataRequest

        routing, before = MetadataRequest(owner=self), getattr(self, "_metadata_request", None)
        for name, parameter in inspect.signature(self.fit).parameters.items():  # type: ignore[attr-defined]
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                alias = None if before is None else before.fit.requests[name]
                routing.fit.add_request(param=name, alias=alias)
        return routing

    def __getstate__(self) -> dict[str, Any]:
        """Return the parameters and, of a fitted estimator, what ``save`` writes."""
        state: dict[str, Any] = {"parameters": self.get_params()}
        if self.__sklearn_is_fitted__():
            plain, arrays = self._content()
            state |= {"plain": json.dumps(plain), "arrays": arrays}
        if hasattr(self, "_metadata_request"):
            state["requests"] = dict(self._metadata_request.fit.requests)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Build the estimator from ``__getstate__``'s result, with the checks of ``load``."""
        if "plain" in state:
            self.__dict__.update(type(self)._restored("a copy", json.loads(state["plain"]), state["arrays"]).__dict__)
        self.__dict__.update(state["parameters"])
        if "requests" in state:
            self.set_fit_request(**state["requests"])

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} is not fitted: call fit or load first.")

    @_on_one_state
    def save(self, path: str | Path) -> None:
        """Write the model to a directory: ``model.json`` and a safetensors file of weights.

        The directory is new, empty, or has an older model, which is replaced; one with other files is an error. A crash
        at any instant leaves the old or the new model. After that, the checkpoint of a finished training is deleted.
        In a group of processes, which all have the same model, rank 0 writes it.
        """
        self._check_fitted()
        if not whole.is_first():
            return
        plain, arrays = self._content()
        save_model(path, self.family, plain, arrays)
        _log.info("saved a model of kind %s in %s", self.family, path)
        report = getattr(self, "report_", None)
        if report is not None and report.checkpoint is not None:
            report.checkpoint.remove()

    def _content(self) -> tuple[dict[str, Any], Arrays]:
        """Return all that is saved: state, parameters, report, the layout of the training file, and the calibration."""
        plain, arrays = self._state()
        parameters = {name: value for name, value in self.get_params().items() if name not in self._apart}
        if (beam := parameters.get("beam")) is not None:
            parameters["beam"] = str(beam)
        plain |= {"parameters": parameters, "report": self.report_.to_dict()}
        plain |= {"input": getattr(self, "input_", {}), "example": self.example_}
        if self.calibration_ is not None:
            plain["calibration"] = self.calibration_.to_dict()
        return plain, arrays

    @classmethod
    def load(cls, path: str | Path, *, verify: bool = True, mapped: bool = False) -> Self:
        """Read a model written by ``save``.

        Parameters
        ----------
        path : path
            Directory of the model.
        verify : bool
            Whether to compare the checksums of the files, which takes about 0.1 seconds per gigabyte.
        mapped : bool
            Whether to map the file of weights into memory instead of reading it: processes on one machine that use the
            model share its pages.
        """
        return cls._restored(path, *load_model(path, cls.family, verify=verify, mapped=mapped))

    @classmethod
    def _restored(cls, path: str | Path, plain: dict[str, Any], arrays: Arrays) -> Self:
        """Build a fitted estimator from the content of a model directory."""
        try:
            model = cls(**dict.fromkeys(cls._apart), **plain["parameters"])
            model.report_ = FitReport.from_dict(plain["report"])
            if model.report_.beam is not None:
                model.report_.beam = BeamStatistics(**model.report_.beam)
            model._restore(plain, arrays)
            model._check_parameters()
            model.input_ = dict(plain["input"])
            model.example_ = plain_sentence(plain["example"])
            model.calibration_ = Calibration.from_dict(plain.get("calibration"))
            _log.info("loaded a model of kind %s from %s", cls.family, path)
        except (DataError, ImportError, OSError):
            raise
        except Exception as error:  # whatever a damaged description leads to
            text = f"{type(error).__name__}: {str(error)[:200]}"
            raise DataError(f"{path}: incomplete or damaged ({text}): train again.") from None
        return model

    @_on_one_state
    def freeze(self) -> Self:
        """Prepare a fitted model for many small calls: what they have in common is computed once, and kept.

        The parameters cannot be changed in place from then on; ``fit`` replaces them.
        """
        self._check_fitted()
        return self

    @_on_one_state
    def describe(self, n: int = 20, label: str | None = None) -> Description:
        """Return the content of the model for people.

        Parameters
        ----------
        n : int
            Number of rows per table.
        label : str, optional
            Only this label, state or symbol.
        """
        raise AssertionError("each estimator describes itself")

    @property
    def _temperature(self) -> float:
        """Temperature of all log-potentials."""
        return 1.0 if self.calibration_ is None else self.calibration_.temperatures.get("all", 1.0)

    def _divided(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Return weights at the temperature."""
        return weights if self._temperature == 1 else weights / self._temperature

    def _span_thresholds(self, X: Any) -> dict[str, float]:
        """Return the thresholds of decisions about spans by layer; none for models without spans."""
        return {}

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        """Return what is saved besides parameters and report: plain data for JSON, and arrays."""
        raise AssertionError("each estimator defines its state")

    def _restore(self, plain: dict[str, Any], arrays: Arrays) -> None:
        """Set the learned attributes of an estimator with parameters and report, from what is saved."""
        raise AssertionError("each estimator defines how it is rebuilt")


def watch_for(
    model: Any,
    development: Development | None,
    checkpoint: Any,
    mark: Callable[[], str],
    callback: Callback | None,
    max_minutes: float | None,
) -> Watch:
    """Return the watch of a fit with the patience of a model; ``mark`` identifies the run for a checkpoint."""
    limits = {"patience": model.patience, "max_minutes": max_minutes}
    return Watch(development, checkpoint=open_checkpoint(checkpoint, mark), callback=callback, **limits)


def check_finite(name: str, values: NDArray[np.floating]) -> None:
    """Raise an error if weights are not finite."""
    if not np.isfinite(values).all():
        raise ValueRangeError(f"{name} has values that are not finite: the file is damaged, train again.")


def check_label(label: str | None, labels: Iterable[str]) -> None:
    """Raise an error if a requested label does not exist."""
    if label is not None and label not in (names := list(labels)):
        raise ValueRangeError(f"the model has no label {shorten(label)}; it has {', '.join(names[:50])}.")
