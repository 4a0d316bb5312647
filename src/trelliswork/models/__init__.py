"""Sentences to fitted estimators."""

from pathlib import Path

from trelliswork.errors import DataError
from trelliswork.models.base import Estimator
from trelliswork.models.crf import CRF
from trelliswork.models.factorial_crf import FactorialCRF
from trelliswork.models.hmm import HMM
from trelliswork.models.storage import load_model

__all__ = ["CRF", "HMM", "Estimator", "FactorialCRF", "load"]

_KINDS: dict[str, type[Estimator]] = {cls.kind: cls for cls in (CRF, FactorialCRF, HMM)}


def load(path: str | Path) -> Estimator:
    """Read a model directory and return the estimator of the right class."""
    kind = load_model(path)[0]["kind"]
    if kind not in _KINDS:
        raise DataError(f"{path}: a model of kind {kind!r}, which this version does not know.")
    return _KINDS[kind].load(path)
