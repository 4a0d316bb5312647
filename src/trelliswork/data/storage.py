"""Directories of a JSON description and arrays: models, and counts of words. Written completely or not at all."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork import __version__
from trelliswork.data.files import replacing
from trelliswork.errors import DataError

Arrays = dict[str, NDArray[Any]]


class Layout(NamedTuple):
    """Files of a kind of directory, their format, and the words of its error messages."""

    name: str
    description: str
    arrays: str
    remedy: str
    format: int


MODEL = Layout("a model", "model.json", "weights.safetensors", "train again", 2)
MOMENTS = Layout("moments", "moments.json", "moments.safetensors", "count again with 'trelliswork data count'", 1)


def save_model(
    path: str | Path, kind: str, description: dict[str, Any], arrays: Arrays, *, layout: Layout = MODEL
) -> None:
    """Write a directory with a description and arrays.

    It is written to a temporary sibling and renamed, so that a crash never leaves half a directory. An older one of the
    same layout is replaced; any other file or directory is an error.
    """
    path = Path(path)
    if path.exists() and not (path / layout.description).is_file() and not (path.is_dir() and not any(path.iterdir())):
        raise DataError(f"{path}: exists and is not {layout.name}. Choose another directory, or delete it.")
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {"kind": kind, "format": layout.format, "trelliswork": __version__, **description}
    with replacing(path) as fresh:
        fresh.mkdir()
        text = json.dumps(head, ensure_ascii=False, default=_plain_number)
        (fresh / layout.description).write_text(text + "\n", encoding="utf-8")
        write_arrays(fresh / layout.arrays, arrays)


def load_model(path: str | Path, kind: str | None = None, *, layout: Layout = MODEL) -> tuple[dict[str, Any], Arrays]:
    """Read the description and the arrays of a directory; ``kind``, if given, must be the kind of the model."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    description, file = read_description(path, kind, layout=layout), Path(path) / layout.arrays
    try:
        return description, load_file(file)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{file}: missing or damaged ({error}): {layout.remedy}.") from None


def read_description(path: str | Path, kind: str | None = None, *, layout: Layout = MODEL) -> dict[str, Any]:
    """Read and check the description of a directory (of a model: ``model.json``) without its arrays.

    ``["kind"]`` is the kind of the model, which must be ``kind`` if given; the other keys depend on it.
    """
    path = Path(path)
    file = path / layout.description
    if not file.is_file():
        raise DataError(
            f"{path}: not {layout.name}. Expected a directory with {layout.description} and {layout.arrays}."
        )
    try:
        description = json.loads(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{file}: not valid JSON ({error}). The file is damaged: {layout.remedy}.") from None
    if not isinstance(description, dict) or "kind" not in description:
        raise DataError(f"{file}: not the description of {layout.name}: it has no entry 'kind'.")
    if description.get("format") != layout.format:
        raise DataError(
            f"{path}: written in format {description.get('format')} by trelliswork {description.get('trelliswork')}, "
            f"but trelliswork {__version__} reads format {layout.format}. Use that version, or {layout.remedy}."
        )
    if kind is not None and description["kind"] != kind:
        raise DataError(f"{path}: expected a model of kind {kind!r}, got one of kind {description['kind']!r}.")
    return description


def write_arrays(path: Path, arrays: Arrays, metadata: dict[str, str] | None = None) -> None:
    """Write arrays to a safetensors file."""
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path, metadata=metadata)


def _plain_number(value: object) -> object:
    """Return a NumPy number as a Python number."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot be saved as JSON")
