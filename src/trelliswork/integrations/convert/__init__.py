"""Models of other tools as estimators with the same answers."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trelliswork.data.files import GZIP, shorten
from trelliswork.errors import DataError, ValueRangeError

if TYPE_CHECKING:
    from trelliswork.integrations.convert.crf_models import ForeignCRF
    from trelliswork.models.base import Estimator

KINDS = "a model of CRFsuite (binary), CRF++ (text, from crf_learn -t) or Wapiti, or an ARPA file"


def convert(
    source: Any,
    *,
    words: Sequence[Any] | None = None,
    labels: Sequence[str] | None = None,
) -> Estimator:
    """Return a model of another tool as an estimator that gives the same answers.

    Parameters
    ----------
    source : path, or object
        A file: a binary model of CRFsuite, a text model of CRF++ (``crf_learn -t``) or Wapiti (with patterns), all to
        `CRF`; or an ARPA file, plain or gzip, to `KneserNey`. An object, to `HMM`: a fitted ``CategoricalHMM`` of
        hmmlearn, or a ``DenseHMM`` of pomegranate whose distributions are ``Categorical``.
    words : sequence, optional
        Names of the symbols of an object, by id. Default: the numbers 0, 1, 2, ...
    labels : sequence of str, optional
        Names of the states of an object, by id. Default: ``#0``, ``#1``, ...

    Returns
    -------
    Estimator
        A fitted estimator, to predict with and to save.

    Raises
    ------
    DataError
        If the file is damaged or of no known kind.

    Examples
    --------
    >>> import hmmlearn.hmm, numpy as np
    >>> theirs = hmmlearn.hmm.CategoricalHMM(2)
    >>> theirs.startprob_, theirs.transmat_ = np.array([0.5, 0.5]), np.array([[0.1, 0.9], [0.9, 0.1]])
    >>> theirs.emissionprob_ = np.array([[0.8, 0.2], [0.2, 0.8]])
    >>> convert(theirs, words=["a", "b"]).predict([["a", "b", "a"]])
    [['#0', '#1', '#0']]
    """
    if not isinstance(source, str | os.PathLike):
        from trelliswork.integrations.convert.hmm import converted_hmm

        return converted_hmm(source, words=words, labels=labels)
    if words is not None or labels is not None:
        raise ValueRangeError("a file has names of words and labels: leave words and labels out.")
    path = Path(source)
    read = _reader(path)
    if read is None:
        from trelliswork.integrations.convert.arpa import read_arpa

        return read_arpa(path)
    from trelliswork.integrations.convert.crf import converted
    from trelliswork.models.crf import CRF

    model = read(path)
    learned, layout = converted(model)
    crf = CRF._from_learned(learned, f"converted from {model.tool}")
    crf.input_ = layout
    return crf


def _reader(path: Path) -> Callable[[Path], ForeignCRF] | None:
    """Return the function that reads a file, ``None`` for an ARPA file."""
    from trelliswork.integrations.convert import crf_models as kinds

    start = _start(path)
    if start.startswith(kinds.CRFSUITE):
        return kinds.read_crfsuite_model
    if start.startswith(kinds.WAPITI):
        return kinds.read_wapiti_model
    if start.startswith(kinds.CRFPP):
        return kinds.read_crfpp_model
    if b"\\data\\" in start:
        return None
    if start[:4] == b"d\0\0\0":  # the version of CRF++, 100
        raise DataError(f"{path}: a binary model of CRF++. Train it with crf_learn -t, and convert the text model.")
    raise DataError(f"{path}: expected {KINDS}, got a file that starts with {shorten(start[:20])}.")


def _start(path: Path) -> bytes:
    """Return the first bytes of a file, unpacked."""
    try:
        with path.open("rb") as file:
            start = file.read(4096)
        if start.startswith(GZIP):
            with gzip.open(path) as unpacked:
                start = unpacked.read(4096)
    except IsADirectoryError:
        raise DataError(f"{path}: expected {KINDS}, got a directory.") from None
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    return start
