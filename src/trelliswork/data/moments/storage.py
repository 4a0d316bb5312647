"""Directories of counts: ``moments.json`` and ``moments.safetensors``, written all or nothing."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import DataError

FORMAT = 1
PLAIN, ARRAYS = "moments.json", "moments.safetensors"


def save_arrays(path: str | Path, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Write a directory of counts; older counts in its place are replaced, anything else there is refused."""
    from safetensors.numpy import save_file

    path = Path(path)
    if path.exists() and not (path / PLAIN).is_file() and not (path.is_dir() and not any(path.iterdir())):
        raise DataError(f"{path}: there is something here that is not moments: choose another directory, or delete it.")
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        text = json.dumps({"kind": "moments", "format": FORMAT, **plain}, ensure_ascii=False)
        (fresh / PLAIN).write_text(text + "\n", encoding="utf-8")
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, fresh / ARRAYS)
        fresh.chmod(0o755)
        if path.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent))
            path.replace(old / "moments")
            fresh.replace(path)
            shutil.rmtree(old)
        else:
            fresh.replace(path)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def load_arrays(path: str | Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read a directory of counts."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = Path(path)
    if not (path / PLAIN).is_file():
        raise DataError(f"{path}: not moments: a directory written by 'trelliswork data count' is wanted.")
    try:
        plain = json.loads((path / PLAIN).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{path / PLAIN}: not valid JSON ({error}): the file is damaged, count again.") from None
    if not isinstance(plain, dict) or plain.get("kind") != "moments" or plain.get("format") != FORMAT:
        raise DataError(f"{path}: moments of format {FORMAT} wanted: count again with this version.")
    try:
        return plain, load_file(path / ARRAYS)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path / ARRAYS}: cannot be read ({error}): missing or damaged, count again.") from None
