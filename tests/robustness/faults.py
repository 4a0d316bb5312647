"""File operations that fail: a layer between the program and the file system which ends the world at one of them."""

import errno
import io
import os
from contextlib import contextmanager
from pathlib import Path


class DeadError(BaseException):
    """The process was killed."""


class Faults:
    """Count the operations on files below a folder, and fail at the n-th one.

    ``how="crash"``: a write stops halfway, other operations do not happen, and nothing after that has any effect, as
    if the process was killed. ``how="full"``: the disk is full from then on: nothing can be created or written, but
    files can be deleted.
    """

    NAMES = ("open", "replace", "mkdir", "unlink", "rmdir", "fsync")
    DELETING = ("unlink", "rmdir")

    def __init__(self, folder, n, how="crash"):
        self.folder, self.n, self.how = str(folder), n, how
        self.count, self.failed = 0, False
        self.originals = {name: getattr(os, name) for name in self.NAMES}

    def due(self, name):
        """Count an operation; return whether it fails."""
        if self.how == "full" and name in self.DELETING:
            return False
        self.count += 1
        self.failed = self.failed or self.count == self.n
        return self.failed

    def error(self):
        return DeadError() if self.how == "crash" else OSError(errno.ENOSPC, "No space left on device")

    def wrapped(self, name):
        def operation(path, *args, **options):
            file = f"/proc/self/fd/{path}" if isinstance(path, int) else path
            if os.path.realpath(file).startswith(self.folder) and self.due(name):
                raise self.error()
            return self.originals[name](path, *args, **options)

        return operation

    @contextmanager
    def active(self, monkeypatch):
        """Put the layer in place."""
        opened, faults = io.open, self

        class Writer(io.BufferedWriter):
            def write(self, data):
                if faults.due("write"):
                    if faults.count == faults.n:
                        super().write(bytes(data)[: len(data) // 2])
                        super().flush()
                    raise faults.error()
                return super().write(data)

            def flush(self):
                if not (faults.failed and faults.how == "crash"):
                    super().flush()

        def open_file(path, mode="r", *args, **options):
            if mode != "xb" or not os.path.realpath(path).startswith(self.folder):
                return opened(path, mode, *args, **options)
            if self.due("create"):
                raise self.error()
            return Writer(io.FileIO(path, "x"))

        with monkeypatch.context() as patch:
            for name in self.NAMES:
                patch.setattr(os, name, self.wrapped(name))
            patch.setattr(io, "open", open_file)
            yield self


def names(folder: Path) -> list[str]:
    """Return the names in a folder, those of temporary files too; none if it does not exist."""
    return sorted(p.name for p in folder.iterdir()) if folder.exists() else []
