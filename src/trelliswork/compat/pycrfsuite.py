"""The interface of python-crfsuite: ``from trelliswork.compat import pycrfsuite`` instead of ``import pycrfsuite``.

Objectives, attributes and answers are those of CRFsuite. Trained models are folders in our format; a `Tagger` also
opens files of CRFsuite.
"""

import sys
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trelliswork.errors import ConvergenceWarning, DataError, NotFittedError, TrellisworkError, ValueRangeError
from trelliswork.features.ready import Items, named
from trelliswork.integrations.convert import convert
from trelliswork.learning.report import Step
from trelliswork.metrics.tagging import evaluate_tagging
from trelliswork.models import load
from trelliswork.models.crf import CRF
from trelliswork.models.crf.single import SingleTagger

CRFSuiteError = TrellisworkError
CRFSUITE_VERSION = "0.12"
UNLIMITED = 2147483647
_COMMON = {"feature.minfreq": 0.0, "feature.possible_states": False, "feature.possible_transitions": False}
DEFAULTS: dict[str, dict[str, Any]] = {
    "lbfgs": {
        "c1": 0.0, "c2": 1.0, "max_iterations": UNLIMITED, "num_memories": 6, "epsilon": 1e-5, "period": 10,
        "delta": 1e-5, "linesearch": "MoreThuente", "max_linesearch": 20,
    },
    "l2sgd": {
        "c2": 1.0, "max_iterations": 1000, "period": 10, "delta": 1e-6, "calibration.eta": 0.1,
        "calibration.rate": 2.0, "calibration.samples": 1000, "calibration.candidates": 10,
        "calibration.max_trials": 20,
    },
    "ap": {"max_iterations": 100, "epsilon": 0.0},
}  # fmt: skip
ALIASES = {"averaged-perceptron": "ap"}
OURS = {"lbfgs": "lbfgs", "l2sgd": "sgd", "ap": "perceptron"}
HELP = {
    "feature.minfreq": "0 or 1; for more use CRF(min_count=...), which counts attributes.",
    "feature.possible_states": "Weights for all pairs of attribute and label.",
    "feature.possible_transitions": "Weights for all pairs of labels.",
    "c1": "L1 penalty.",
    "c2": "L2 penalty.",
    "max_iterations": "Maximum number of iterations or epochs.",
    "delta": "Training stops when the objective has decreased by less than this fraction over 10 iterations.",
}


class ItemSequence:
    """The attributes of the tokens of a sequence, converted once.

    A token is a list or set of names, or a dict. Its values are numbers or booleans, strings (``name:string``), or
    lists, sets and dicts, whose names follow that of the key and a colon.
    """

    def __init__(self, pyseq: Iterable[Any]) -> None:
        self._tokens = Items(pyseq)

    def items(self) -> list[dict[str, float]]:
        """Return the attributes of each token with their values."""
        return [dict(named(token, zeros=True)) for token in self._tokens]

    def __len__(self) -> int:
        return len(self._tokens)


def _tokens(xseq: Any) -> Items:
    return xseq._tokens if isinstance(xseq, ItemSequence) else Items(xseq)


@dataclass
class TrainLog:
    """What is known of a training, under the names that python-crfsuite's parser of logs has."""

    iterations: list[dict[str, Any]] = field(default_factory=list)
    featgen_num_features: int | None = None
    training_seconds: float | None = None

    @property
    def last_iteration(self) -> dict[str, Any] | None:
        """The last iteration: num, loss, error_norm, active_features, time; scores of the held-out part at the end."""
        return self.iterations[-1] if self.iterations else None


class LabelScore(NamedTuple):
    """Counts of a label in both, the predicted and the gold labels, and its precision, recall and F1."""

    match: int
    model: int
    ref: int
    precision: float
    recall: float
    f1: float


class Trainer:
    """Trains a CRF from sequences that are appended one by one."""

    def __init__(
        self, algorithm: str | None = None, params: Mapping[str, Any] | None = None, verbose: bool = True
    ) -> None:
        self.verbose = verbose
        self.logparser: TrainLog | None = None
        self._data: list[tuple[Items, list[str], int]] = []
        self.select("lbfgs" if algorithm is None else algorithm)
        self.set_params(params or {})

    def select(self, algorithm: str, type: str = "crf1d") -> None:
        """Choose "lbfgs", "l2sgd" or "ap" (averaged perceptron) with its default parameters."""
        name = ALIASES.get(algorithm.lower(), algorithm.lower())
        if name not in DEFAULTS or type != "crf1d":
            raise ValueRangeError(
                f"algorithm must be lbfgs, l2sgd or ap, and type crf1d, got {algorithm!r} and {type!r}. Passive "
                "aggressive (pa) and AROW are not here: use ap."
            )
        self._algorithm, self._params = name, _COMMON | DEFAULTS[name]

    def params(self) -> list[str]:
        """Return the names of the parameters of the algorithm."""
        return list(self._params)

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Set several parameters, see ``set``."""
        for name, value in params.items():
            self.set(name, value)

    def get_params(self) -> dict[str, Any]:
        """Return all parameters."""
        return dict(self._params)

    def get(self, name: str) -> Any:
        """Return a parameter."""
        return self._params[self._known(name)]

    def set(self, name: str, value: Any) -> None:
        """Set a parameter; what our training does not have is an error."""
        default = (_COMMON | DEFAULTS[self._algorithm])[self._known(name)]
        if isinstance(default, bool) and isinstance(value, str):
            value = value.lower() in ("1", "true", "yes")
        try:
            value = type(default)(value)
        except (TypeError, ValueError):
            raise ValueRangeError(f"{name} must be a {type(default).__name__}, got {value!r}.") from None
        if name == "feature.minfreq" and value > 1:
            raise ValueRangeError("feature.minfreq must be 0 or 1: use trelliswork.CRF(None, min_count=...) for more.")
        if name not in HELP and value != default:
            raise ValueRangeError(f"{name} is always {default} here, got {value!r}: leave it out.")
        self._params[name] = value

    def help(self, name: str) -> str:
        """Return what a parameter means."""
        return HELP.get(self._known(name), f"Always {self._params[name]} here.")

    def _known(self, name: str) -> str:
        if name not in self._params:
            raise ValueRangeError(f"{self._algorithm} has the parameters {', '.join(self._params)}, got {name!r}.")
        return name

    def append(self, xseq: Any, yseq: Sequence[str], group: int = 0) -> None:
        """Add a sequence of tokens and its labels; ``group`` is the part that ``train(holdout=...)`` names."""
        tokens, labels = _tokens(xseq), [str(label) for label in yseq]
        if len(tokens) != len(labels):
            raise ValueRangeError(f"xseq and yseq must be of the same length, got {len(tokens)} and {len(labels)}.")
        self._data.append((tokens, labels, group))

    def clear(self) -> None:
        """Remove all sequences."""
        self._data.clear()

    def train(self, model: str | Path, holdout: int = -1) -> None:
        """Train, and save the model in the folder ``model``; the part ``holdout`` is only compared with at the end."""
        self._trained(holdout).save(model)

    def _trained(self, holdout: int = -1) -> CRF:
        X, y = ([row[k] for row in self._data if row[2] != holdout] for k in range(2))
        if not X:
            raise DataError("there is nothing to train on: append sequences first.")
        self.logparser = log = TrainLog()

        def announce(step: Step) -> None:
            log.iterations.append({
                "num": step.iteration, "loss": step.value, "error_norm": step.gradient_norm, "scores": {},
                "active_features": step.n_active, "time": step.seconds - sum(row["time"] for row in log.iterations),
            })  # fmt: skip
            self.on_iteration(log, log.iterations[-1])

        with warnings.catch_warnings():  # max_iterations is the usual end of a training there
            warnings.simplefilter("ignore", ConvergenceWarning)
            crf = self._crf().fit(X, y, callback=announce)  # type: ignore[arg-type]
        log.featgen_num_features, log.training_seconds = len(crf._learned.weights), crf.report_.seconds
        held = [row for row in self._data if row[2] == holdout]
        if held and log.iterations:
            log.iterations[-1] |= _compared(crf, *([row[k] for row in held] for k in range(2)))
        self.on_optimization_end(log)
        self.on_end(log)
        return crf

    def _crf(self) -> CRF:
        given = self._params
        states, transitions = given["feature.possible_states"], given["feature.possible_transitions"]
        name = {(True, True): "all", (True, False): "all-states", (False, True): "all-transitions"}
        return CRF(
            None,
            scheme=None,
            algorithm=OURS[self._algorithm],  # type: ignore[arg-type]
            l1=given.get("c1", 0.0),
            l2=given.get("c2", 0.0),
            max_iter=min(given["max_iterations"], 10_000),
            tol=given.get("delta", 0.0),
            options={"feature_set": name.get((states, transitions), "observed")},
        )

    def on_iteration(self, log: TrainLog, info: dict[str, Any]) -> None:
        """Show an iteration; made to be overridden."""
        self.message(f"{info['num']:>4}  loss {info['loss']:<14.6f}  active features {info['active_features']:,}\n")

    def on_optimization_end(self, log: TrainLog) -> None:
        """Show how the held-out part was labeled; made to be overridden."""
        if log.last_iteration and "item_accuracy_float" in log.last_iteration:
            self.message(f"held-out accuracy {log.last_iteration['item_accuracy_float']:.4f}\n")

    def on_end(self, log: TrainLog) -> None:
        """Say how long training took; made to be overridden."""
        self.message(f"{log.featgen_num_features:,} features, {log.training_seconds or 0:.1f} s\n")

    def message(self, message: str) -> None:
        """Print to the standard error stream if ``verbose``."""
        if self.verbose:
            print(message, end="", file=sys.stderr)


def _compared(crf: CRF, X: Any, y: Any) -> dict[str, Any]:
    """Return the scores of the labels of a held-out part."""
    report = evaluate_tagging(y, crf.predict(X), scheme=None)
    scores = {name: LabelScore(*row, row.precision, row.recall, row.f1) for name, row in report.labels.items()}
    means = [sum(getattr(row, name) for row in scores.values()) / len(scores) for name in ("precision", "recall", "f1")]
    rates = {"item_accuracy_float": report.accuracy, "instance_accuracy_float": report.sentence_accuracy}
    return {"scores": scores} | rates | dict(zip(("avg_precision", "avg_recall", "avg_f1"), means, strict=True))


@dataclass
class ParsedDump:
    """The contents of a model: weights by names, and names with their numbers."""

    transitions: dict[tuple[str, str], float]
    state_features: dict[tuple[str, str], float]
    labels: dict[str, str]
    attributes: dict[str, str]
    header: dict[str, str] = field(default_factory=dict)


class Tagger:
    """Labels sequences by a trained model."""

    def __init__(self) -> None:
        self._crf: CRF | None = None
        self._single: SingleTagger | None = None  # for one sequence, where it is faster
        self._sequence: Items | None = None
        self._rows: list[dict[str, float]] | None = None  # p(label) of the tokens of the sequence

    @classmethod
    def of(cls, crf: CRF) -> "Tagger":
        """Return a tagger that asks a fitted `CRF`."""
        self = cls()
        self._crf = crf.freeze()
        self._single = SingleTagger.of(crf)
        return self

    def open(self, name: str | Path) -> "Tagger":
        """Open a model: a folder that was saved here, or a file of CRFsuite."""
        model: Any = load(name) if Path(name).is_dir() else convert(name)
        if not isinstance(model, CRF):
            raise DataError(f"{name}: expected a CRF, got {type(model).__name__}.")
        self.__dict__ = vars(Tagger.of(model))
        return self

    def open_inmemory(self, value: bytes) -> "Tagger":
        """Open a model of CRFsuite from the bytes of its file."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model.crfsuite"
            file.write_bytes(value)
            return self.open(file)

    def close(self) -> None:
        """Forget the model."""
        self.__init__()  # type: ignore[misc]

    def __enter__(self) -> "Tagger":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def labels(self) -> list[str]:
        """Return the labels of the model."""
        return list(self._model.labels_)

    def set(self, xseq: Any) -> None:
        """Choose the sequence that ``tag``, ``probability`` and ``marginal`` are about."""
        self._sequence, self._rows = _tokens(xseq), None

    def tag(self, xseq: Any = None) -> list[str]:
        """Return the most probable labels of a sequence, by default of the one that was set."""
        if xseq is not None:
            self.set(xseq)
        tokens = self._chosen
        labels = self._single.tag(tokens) if self._single is not None and tokens else None
        return (self._model.predict([tokens])[0] if tokens else []) if labels is None else labels

    def tag_all(self, X: Iterable[Any]) -> list[list[str]]:
        """Return the most probable labels of many sequences, faster than one by one."""
        return self._model.predict([_tokens(xseq) for xseq in X])

    def marginals(self, X: Iterable[Any]) -> list[list[dict[str, float]]]:
        """Return the probability of each label of each token of many sequences."""
        return self._model.predict_marginals([_tokens(xseq) for xseq in X])

    def probability(self, yseq: Sequence[str]) -> float:
        """Return the probability of the labels ``yseq`` of the sequence that was set."""
        return float(np.exp(self._model.log_prob([self._chosen], [list(yseq)])[0]))

    def marginal(self, y: str, pos: int) -> float:
        """Return the probability of the label ``y`` at the token ``pos`` of the sequence that was set."""
        if self._rows is None:
            (self._rows,) = self._model.predict_marginals([self._chosen])
        if y not in self._model.labels_:
            raise ValueRangeError(f"y must be one of the labels {', '.join(self._model.labels_)}, got {y!r}.")
        return self._rows[pos][y]

    def info(self) -> ParsedDump:
        """Return all weights that are not 0."""
        crf, n = self._model, len(self._model._learned.weights)
        state = {(a, label): w for a, label, w in crf.top_features(n) if w}
        names = dict.fromkeys(a for a, _ in state)
        names_of, weights = crf.labels_, crf.transitions()
        pairs = {(names_of[i], names_of[j]): float(weights[i, j]) for i, j in np.argwhere(weights)}
        labels, attributes = ({name: str(k) for k, name in enumerate(of)} for of in (crf.labels_, names))
        header = {"num_features": str(len(state) + len(pairs)), "num_labels": str(len(labels))}
        return ParsedDump(pairs, state, labels, attributes, header)

    def dump(self, filename: str | Path | None = None) -> None:
        """Write labels and weights as text, to a file or to standard output."""
        info = self.info()
        rows = [f"(label) {name}" for name in info.labels]
        rows += [f"(transition) {a} --> {b}: {w:.6f}" for (a, b), w in info.transitions.items()]
        rows += [f"(state) {a} --> {label}: {w:.6f}" for (a, label), w in info.state_features.items()]
        text = "".join(f"{row}\n" for row in rows)
        if filename is None:
            print(text, end="")
        else:
            Path(filename).write_text(text, encoding="utf-8")

    @property
    def _model(self) -> CRF:
        if self._crf is None:
            raise NotFittedError("the tagger has no model: open one first.")
        return self._crf

    @property
    def _chosen(self) -> Items:
        if self._sequence is None:
            raise NotFittedError("the tagger has no sequence: call set or tag first.")
        return self._sequence
