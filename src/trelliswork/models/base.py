"""What all estimators share: scikit-learn's habits (without importing it), saving and loading."""

import inspect
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.storage import load_model, save_model
from trelliswork.errors import DataError, NotFittedError, ValueRangeError

Arrays = dict[str, NDArray[Any]]


class Estimator:
    """Base of all estimators.

    ``__init__`` stores its arguments under their names and does nothing else; what is learned ends in ``_``. Works with
    scikit-learn's ``clone``, ``Pipeline`` and ``GridSearchCV``; scikit-learn itself, slow to import, is not needed.
    """

    kind: ClassVar[str]
    learned: ClassVar[str] = "weights_"  # the attribute that a successful fit sets

    @classmethod
    def _parameters(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of ``__init__`` by name."""
        return {name: getattr(self, name) for name in self._parameters()}

    def set_params(self, **parameters: Any) -> Self:
        """Change arguments of ``__init__``; unknown names are an error."""
        known = self._parameters()
        for name, value in parameters.items():
            if name not in known:
                raise ValueRangeError(f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(known)}.")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        changed = {k: v for k, v in self.get_params().items() if v is not defaults[k].default}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in changed.items())})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=True))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, self.learned)

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} has learned nothing yet: call fit or load first.")

    def save(self, path: str | Path) -> None:
        """Write the model to a directory (``model.json``, ``weights.safetensors``), all or nothing."""
        self._check_fitted()
        plain, arrays = self._state()
        save_model(path, self.kind, plain, arrays)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model written by ``save``."""
        plain, arrays = load_model(path, cls.kind)
        try:
            return cls._from_state(plain, arrays)
        except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{path}: incomplete or damaged ({type(error).__name__}: {error}): train again.") from None

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        raise AssertionError("each estimator says what it consists of")

    @classmethod
    def _from_state(cls, plain: dict[str, Any], arrays: Arrays) -> Self:
        raise AssertionError("each estimator says how it is built again")


def check_finite(name: str, values: NDArray[np.floating]) -> None:
    """Refuse weights that are not finite."""
    if not np.isfinite(values).all():
        raise ValueRangeError(f"{name} holds numbers that are not finite: the file is damaged, train again.")
