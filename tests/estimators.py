"""Estimators from settings that tests share."""

from typing import Any

from trelliswork.models.parameters import arranged


def made(cls: Any, *first: Any, options: Any = None, **values: Any) -> Any:
    """Return an estimator with values of its parameters, wherever they are declared."""
    return cls(*first, **arranged(cls, values | (options or {})))
