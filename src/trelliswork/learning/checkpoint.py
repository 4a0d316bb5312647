"""Checkpoints: the state of a training run in one file, from which an interrupted run is resumed."""

import hashlib
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.files import remove_leftovers
from trelliswork.data.storage import write_arrays
from trelliswork.errors import DataError

Arrays = dict[str, NDArray[Any]]


class Checkpoint:
    """A file with the state of one training run, written completely or not at all; removed when the model is saved.

    A file with another ``fingerprint`` of data and settings is an error, and not overwritten. ``every`` is the minimum
    number of seconds between two writes.
    """

    def __init__(self, path: str | os.PathLike[str], fingerprint: str, *, every: float = 30.0) -> None:
        self.path, self.fingerprint, self.every = Path(path), fingerprint, every
        self._written = time.monotonic()
        if not self.path.resolve().parent.is_dir():
            raise DataError(f"{self.path}: the checkpoint cannot be written: its directory does not exist. Create it.")

    def read(self) -> tuple[dict[str, Any], Arrays] | None:
        """Return the plain data and the arrays written last; ``None`` if there is no file."""
        from safetensors import SafetensorError, safe_open

        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, "numpy") as file:
                metadata = file.metadata() or {}
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            plain = json.loads(metadata["state"])
        except (OSError, SafetensorError, KeyError, json.JSONDecodeError) as error:
            raise DataError(f"{self.path}: not a checkpoint, or damaged ({error}): delete it to start over.") from None
        if metadata.get("checksum") != _checksum(metadata["state"], arrays):
            raise DataError(f"{self.path}: damaged: its checksum is wrong. Delete it to start over.")
        if not isinstance(plain, dict) or plain.get("fingerprint") != self.fingerprint or "state" not in plain:
            raise DataError(
                f"{self.path}: a checkpoint of other data or settings. Use those, delete the file, or name another."
            )
        return plain["state"], arrays

    def due(self) -> bool:
        """Return whether the last write was at least ``every`` seconds ago."""
        return time.monotonic() - self._written >= self.every

    def write(self, plain: dict[str, Any], arrays: Arrays) -> None:
        """Replace the file."""
        text = json.dumps({"fingerprint": self.fingerprint, "state": plain})
        write_arrays(self.path, arrays, {"state": text, "checksum": _checksum(text, arrays)})
        remove_leftovers(self.path)
        self._written = time.monotonic()

    def remove(self) -> None:
        """Delete the file if it belongs to this run: its model has been saved."""
        from safetensors import SafetensorError, safe_open

        with suppress(OSError, SafetensorError, KeyError, json.JSONDecodeError):  # there is none, or not ours
            with safe_open(self.path, "numpy") as file:
                plain = json.loads((file.metadata() or {})["state"])
            if plain["fingerprint"] == self.fingerprint:
                self.path.unlink(missing_ok=True)
        remove_leftovers(self.path)


def _checksum(state: str, arrays: Arrays) -> str:
    names = sorted(arrays)
    return fingerprint({"state": state, "names": names}, *(arrays[name] for name in names))


def with_prefix(arrays: Arrays, prefix: str) -> Arrays:
    """Return the arrays whose names start with a prefix, by their names without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def fingerprint(settings: dict[str, Any], *arrays: NDArray[Any] | None) -> str:
    """Return a short text that differs when settings or arrays do."""
    digest = hashlib.blake2b(json.dumps(settings, sort_keys=True, default=str).encode(), digest_size=16)
    for array in arrays:
        if array is None:
            digest.update(b"none")
        else:
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
