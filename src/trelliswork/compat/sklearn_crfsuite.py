"""The interface of sklearn-crfsuite: ``from trelliswork.compat import sklearn_crfsuite`` instead of its import."""

import inspect
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Self

from trelliswork.compat.pycrfsuite import Tagger, Trainer
from trelliswork.errors import NotFittedError, ValueRangeError

NAMES = {  # of parameters: there, and in CRFsuite
    "min_freq": "feature.minfreq", "all_possible_states": "feature.possible_states",
    "all_possible_transitions": "feature.possible_transitions", "c1": "c1", "c2": "c2", "epsilon": "epsilon",
    "max_iterations": "max_iterations", "num_memories": "num_memories", "period": "period", "delta": "delta",
    "linesearch": "linesearch", "max_linesearch": "max_linesearch",
}  # fmt: skip


class CRF:
    """A linear-chain CRF with the parameters and results of ``sklearn_crfsuite.CRF``.

    Parameters
    ----------
    algorithm : {"lbfgs", "l2sgd", "ap"}
    c1, c2, max_iterations, delta, min_freq, all_possible_states, all_possible_transitions, ... : optional
        As in CRFsuite, see ``pycrfsuite.Trainer``.
    verbose : bool
    model_filename : str, optional
        A folder for the trained model.
    """

    def __init__(
        self, algorithm: str = "lbfgs", *, min_freq: float | None = None, all_possible_states: bool | None = None,
        all_possible_transitions: bool | None = None, c1: float | None = None, c2: float | None = None,
        max_iterations: int | None = None, num_memories: int | None = None, epsilon: float | None = None,
        period: int | None = None, delta: float | None = None, linesearch: str | None = None,
        max_linesearch: int | None = None, verbose: bool = False, model_filename: str | None = None,
    ) -> None:  # fmt: skip
        given = locals()
        for name in self._names():
            setattr(self, name, given[name])

    @classmethod
    def _names(cls) -> list[str]:
        return [*inspect.signature(cls.__init__).parameters][1:]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all parameters."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters."""
        for name, value in params.items():
            if name not in self._names():
                raise ValueRangeError(f"CRF has the parameters {', '.join(self._names())}, got {name!r}.")
            setattr(self, name, value)
        return self

    def fit(self, X: Any, y: Any, X_dev: Any = None, y_dev: Any = None) -> Self:
        """Train; ``X_dev`` and ``y_dev`` are compared with at the end, see ``training_log_``."""
        given = {NAMES[name]: value for name, value in self.get_params().items() if name in NAMES and value is not None}
        trainer = Trainer(self.algorithm, given, self.verbose)  # type: ignore[attr-defined]
        for group, (sequences, labels) in enumerate(((X, y), (X_dev or [], y_dev or []))):
            if len(sequences) != len(labels):
                raise ValueRangeError(f"X and y must have as many sequences, got {len(sequences)} and {len(labels)}.")
            for xseq, yseq in zip(sequences, labels, strict=True):
                trainer.append(xseq, yseq, group)
        crf = trainer._trained(holdout=1)
        if self.model_filename is not None:  # type: ignore[attr-defined]
            crf.save(self.model_filename)  # type: ignore[attr-defined]
        self._tagger, self.training_log_ = Tagger.of(crf), trainer.logparser
        return self

    def predict(self, X: Any) -> list[list[str]]:
        """Return the labels of each sequence."""
        return self.tagger_.tag_all(X)

    def predict_single(self, xseq: Any) -> list[str]:
        """Return the labels of one sequence."""
        return self.tagger_.tag(xseq)

    def predict_marginals(self, X: Any) -> list[list[dict[str, float]]]:
        """Return p(label) of each token of each sequence."""
        return self.tagger_.marginals(X)

    def predict_marginals_single(self, xseq: Any) -> list[dict[str, float]]:
        """Return p(label) of each token of one sequence."""
        return self.predict_marginals([xseq])[0]

    def score(self, X: Any, y: Sequence[Sequence[str]]) -> float:
        """Return the token accuracy."""
        return metrics.flat_accuracy_score(y, self.predict(X))

    @property
    def tagger_(self) -> Tagger:
        """The tagger of the trained model."""
        if not hasattr(self, "_tagger"):
            raise NotFittedError("this CRF is not fitted: call fit first.")
        return self._tagger

    @property
    def classes_(self) -> list[str]:
        """Labels that the model can assign."""
        return self.tagger_.labels()

    @property
    def state_features_(self) -> dict[tuple[str, str], float]:
        """Weights of pairs of attribute and label."""
        return self.tagger_.info().state_features

    @property
    def transition_features_(self) -> dict[tuple[str, str], float]:
        """Weights of pairs of labels."""
        return self.tagger_.info().transitions

    @property
    def attributes_(self) -> list[str]:
        """Attributes with a weight."""
        return list(self.tagger_.info().attributes)

    @property
    def num_attributes_(self) -> int:
        """Number of attributes with a weight."""
        return len(self.attributes_)


def _flat(score: str) -> Any:
    """Return a score of scikit-learn over the labels of all tokens."""

    def flat(y_true: Any, y_pred: Any, **options: Any) -> Any:
        import sklearn.metrics

        rows = [[label for row in rows for label in row] for rows in (y_true, y_pred)]
        return getattr(sklearn.metrics, score)(*rows, **options)

    flat.__name__, flat.__doc__ = f"flat_{score}", f"Return scikit-learn's {score} of the labels of all tokens."
    return flat


def _sequence_accuracy(y_true: Any, y_pred: Any) -> float:
    """Return the fraction of sequences whose labels are all correct."""
    pairs = list(zip(y_true, y_pred, strict=True))
    return sum(list(a) == list(b) for a, b in pairs) / len(pairs) if pairs else 0.0


metrics = SimpleNamespace(
    **{f"flat_{name}": _flat(name) for name in (
        "accuracy_score", "precision_score", "recall_score", "f1_score", "fbeta_score", "classification_report",
    )},
    sequence_accuracy_score=_sequence_accuracy,
)  # fmt: skip
