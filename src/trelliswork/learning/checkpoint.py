"""Checkpoints: the state of a training run in one file, so that a killed run goes on where it stood."""

import hashlib
import json
import os
import secrets
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import DataError

Arrays = dict[str, NDArray[Any]]


class Checkpoint:
    """A file that holds the state of one training run.

    Parameters
    ----------
    path : str or path
        Written whole or not at all; removed when training has ended.
    fingerprint : str
        Of data and settings (``fingerprint`` below): a file with another one is refused, not overwritten.
    every : float
        Seconds between two writings, at least.
    """

    def __init__(self, path: str | os.PathLike[str], fingerprint: str, *, every: float = 30.0) -> None:
        self.path, self.fingerprint, self.every = Path(path), fingerprint, every
        self._written = time.monotonic()
        if not self.path.resolve().parent.is_dir():
            raise DataError(f"{self.path}: its directory does not exist: the checkpoint could not be written.")

    def read(self) -> tuple[dict[str, Any], Arrays] | None:
        """Plain data and arrays of the last writing; ``None`` if there is no file."""
        from safetensors import SafetensorError, safe_open

        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, "numpy") as file:
                plain = json.loads((file.metadata() or {})["state"])
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError, KeyError, json.JSONDecodeError) as error:
            raise DataError(f"{self.path}: not a checkpoint, or damaged ({error}): delete it to begin anew.") from None
        if plain.get("fingerprint") != self.fingerprint:
            raise DataError(
                f"{self.path}: a checkpoint of other data or settings. Use those, delete the file, or name another."
            )
        return plain["state"], arrays

    def due(self) -> bool:
        """True if the last writing was long enough ago."""
        return time.monotonic() - self._written >= self.every

    def write(self, plain: dict[str, Any], arrays: Arrays) -> None:
        """Replace the file."""
        from safetensors.numpy import save_file

        text = json.dumps({"fingerprint": self.fingerprint, "state": plain})
        fresh = self.path.with_name(f".{self.path.name[:100]}.{secrets.token_hex(4)}.tmp")
        try:
            save_file({k: np.ascontiguousarray(v) for k, v in arrays.items()}, fresh, metadata={"state": text})
            fresh.replace(self.path)
        finally:
            fresh.unlink(missing_ok=True)
        self._written = time.monotonic()

    def remove(self) -> None:
        """Forget the run: it has ended."""
        self.path.unlink(missing_ok=True)


def fingerprint(settings: dict[str, Any], *arrays: NDArray[Any] | None) -> str:
    """A short text that differs when settings or arrays do."""
    digest = hashlib.blake2b(json.dumps(settings, sort_keys=True, default=str).encode(), digest_size=16)
    for array in arrays:
        if array is None:
            digest.update(b"none")
        else:
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
