"""Model directories: ``model.json`` and ``weights.safetensors``, written all or nothing, read with suspicion."""

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork import __version__
from trelliswork.errors import DataError

FORMAT = 1
PLAIN, ARRAYS = "model.json", "weights.safetensors"


def save_model(path: str | Path, kind: str, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Write a model directory.

    It is written to a temporary sibling and renamed, so that a crash never leaves half a model; an older model in its
    place is replaced, any other directory or file is refused.
    """
    from safetensors.numpy import save_file

    path = Path(path)
    if path.exists() and not (path / PLAIN).is_file() and not (path.is_dir() and not any(path.iterdir())):
        raise DataError(f"{path}: there is something here that is not a model: choose another directory, or delete it.")
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        head = {"kind": kind, "format": FORMAT, "trelliswork": __version__, **plain}
        (fresh / PLAIN).write_text(json.dumps(head, ensure_ascii=False, default=_plain_number) + "\n", encoding="utf-8")
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, fresh / ARRAYS)
        fresh.chmod(0o777 & ~_umask())
        old = None
        if path.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent))
            path.replace(old / "model")
        fresh.replace(path)
        if old is not None:
            shutil.rmtree(old)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def load_model(path: str | Path, kind: str | None = None) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read a model directory; ``kind``, if given, must be the model's."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = Path(path)
    if not (path / PLAIN).is_file():
        raise DataError(f"{path}: not a model: a directory with {PLAIN} and {ARRAYS} is wanted.")
    try:
        plain = json.loads((path / PLAIN).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{path / PLAIN}: not valid JSON ({error}): the file is damaged, train again.") from None
    if not isinstance(plain, dict) or "kind" not in plain:
        raise DataError(f"{path / PLAIN}: this is not the description of a model.")
    if plain.get("format") != FORMAT:
        raise DataError(
            f"{path}: written in format {plain.get('format')} by trelliswork {plain.get('trelliswork')}, this is "
            f"{__version__}, which reads format {FORMAT}: use that version, or train again."
        )
    if kind is not None and plain["kind"] != kind:
        raise DataError(f"{path}: a model of kind {plain['kind']!r}, wanted {kind!r}.")
    try:
        arrays = load_file(path / ARRAYS)
    except (OSError, SafetensorError) as error:
        raise DataError(
            f"{path / ARRAYS}: cannot be read ({error}): the file is missing or damaged, train again."
        ) from None
    return plain, arrays


def _plain_number(value: object) -> object:
    """NumPy's numbers as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot be saved in {PLAIN}")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
