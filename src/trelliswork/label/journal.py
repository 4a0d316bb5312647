"""Answers on the disk. An entry is appended and synced before its answer counts as saved; the start replays them.

The first line says which pool and task the entries are about. A line that a killed process left unfinished was never
acknowledged, and is cut off.
"""

import fcntl
import json
import os
from pathlib import Path
from threading import Lock
from typing import Any

from trelliswork.errors import DataError

Entry = dict[str, Any]


class Journal:
    """The entries of an output, open for one process at a time.

    Parameters
    ----------
    path : Path
        File of the journal; made if it is not there.
    head : dict
        What the entries are about; a journal with another one is refused.

    Attributes
    ----------
    entries : list of dict
        What the file had when it was opened, in order.
    """

    def __init__(self, path: Path, head: Entry) -> None:
        self.path, self._lock = path, Lock()
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise DataError(f"{path}: cannot be written: {error.strerror}.") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.entries = self._replay(head)
        except BlockingIOError:
            os.close(self._file)
            raise DataError(
                f"{path}: another server labels into this output. Open its page, stop it, or choose another --out."
            ) from None
        except BaseException:
            os.close(self._file)
            raise

    def _replay(self, head: Entry) -> list[Entry]:
        """Return the entries, and leave the end of the file where the next one begins."""
        with self.path.open("rb") as file:
            lines = file.read().split(b"\n")[:-1]  # the last one has no end: nothing, or unfinished
        entries: list[Entry] = []
        for number, line in enumerate(lines, start=1):
            try:
                entry = json.loads(line)
            except ValueError:
                raise DataError(
                    f"{self.path}:{number}: expected an entry in JSON. Restore or remove the file."
                ) from None
            entries.append(entry)
        self._end = sum(len(line) + 1 for line in lines)
        os.ftruncate(self._file, self._end)
        if not entries:
            self.append(head)
            self._sync_folder()
            return []
        if entries[0] != head:
            differing = ", ".join(name for name in head if entries[0].get(name) != head[name])
            raise DataError(f"{self.path}: the journal is of another {differing}. Choose another --out.")
        return entries[1:]

    def append(self, entry: Entry, *, durable: bool = True) -> None:
        """Write an entry; with ``durable`` it is on the disk when this returns."""
        line = json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            try:
                written = 0
                while written < len(line):
                    written += os.pwrite(self._file, line[written:], self._end + written)
                if durable:
                    os.fsync(self._file)
            except OSError as error:
                os.ftruncate(self._file, self._end)
                raise DataError(f"{self.path}: the answer could not be saved: {error.strerror}.") from None
            self._end += len(line)

    def close(self) -> None:
        """Let another process open the journal."""
        os.close(self._file)

    def _sync_folder(self) -> None:
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
