"""The disk cache of compiled kernels.

Compiled code is stored in a per-user directory: ``TRELLISWORK_CACHE_DIR`` if it is set, else the platform's cache
folder. The directory of a kernel is named after a hash of its source file and of every file of this package which that
file imports, directly or not. So an edited kernel or shared helper is always compiled again, nothing else is, and
read-only installations work. Numba adds its own version and the CPU to the key.

With ``TRELLISWORK_CHECKED=1`` kernels raise an IndexError where they would read or write outside of an array, and are
kept apart from the others. They are slower; ``make checked`` runs the tests so.
"""

import hashlib
import os
import re
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import caching
from numba.core.runtime import rtsys

from trelliswork.compute.compilation import Kernel, announce

CHECKED = os.environ.get("TRELLISWORK_CHECKED", "0") not in ("", "0")
PACKAGE = Path(__file__).resolve().parents[1]
# These decide when and where kernels are compiled, not what: an edit compiles nothing again.
_UNHASHED = {PACKAGE / "compute" / name for name in ("kernel_cache.py", "compilation.py")}
_IMPORT = re.compile(
    rf"^\s*(?:from\s+({PACKAGE.name}[\w.]*)\s+import\s+(\([^)]*\)|[^\n]*)|import\s+({PACKAGE.name}[\w.]*))",
    re.MULTILINE,
)


@cache
def cache_directory() -> Path:
    """Return the directory of compiled kernels; a private temporary one if the usual place cannot be written."""
    chosen = os.environ.get("TRELLISWORK_CACHE_DIR")
    path = Path(chosen) if chosen else Path(caching.AppDirs(appname="trelliswork", appauthor=False).user_cache_dir)
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        path = _temporary_directory()
        print(
            f"{error.filename or chosen} cannot be written, so compiled kernels are kept in {path}. "
            "Set TRELLISWORK_CACHE_DIR to a directory that can.",
            file=sys.stderr,
        )
    return path / "kernels"


def _temporary_directory() -> Path:
    """Return a temporary directory that nobody else can write: compiled code is trusted when it is loaded."""
    if hasattr(os, "getuid"):
        path = Path(tempfile.gettempdir()) / f"trelliswork-{os.getuid()}"
        try:
            path.mkdir(mode=0o700, exist_ok=True)
            found = path.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077:
                return path
        except OSError:
            pass
    return Path(tempfile.mkdtemp(prefix="trelliswork-"))


@cache
def _source(file: Path) -> tuple[bytes, tuple[Path, ...]]:
    """Return the digest of a source file, and the files of this package that it imports."""
    content = file.read_bytes()
    files: dict[Path, None] = {}
    for module, names, plain in _IMPORT.findall(content.decode("utf-8")):
        wanted = [module or plain]
        wanted += [f"{module}.{name.split()[0]}" for name in names.strip("()").split(",") if module and name.split()]
        for dotted in wanted:
            path = PACKAGE.joinpath(*dotted.split(".")[1:])
            candidate = path.with_suffix(".py") if path != PACKAGE else path / "__init__.py"
            if candidate.is_file() and candidate not in _UNHASHED:
                files[candidate] = None
    return hashlib.sha256(content).digest(), tuple(files)


@cache
def source_hash(file: Path) -> str:
    """Return a hash of a source file and of all files of this package that it imports, directly or not."""
    todo, seen = [file], {file}
    while todo:
        for path in _source(todo.pop())[1]:
            if path not in seen:
                seen.add(path)
                todo.append(path)
    digest = hashlib.sha256(numba.__version__.encode() + b"checked" * CHECKED)
    for path in sorted(seen):
        name = path.relative_to(PACKAGE) if path.is_relative_to(PACKAGE) else path
        digest.update(str(name).encode() + _source(path)[0])
    return digest.hexdigest()[:16]


def _closed_over(function: Any) -> Iterator[tuple[str, Path]]:
    """Yield name and file of the compiled functions that a factory put into a kernel, and of those within them."""
    for cell in function.__closure__ or ():
        part = cell.cell_contents.py_func
        yield f"{part.__module__}.{part.__qualname__}", Path(part.__code__.co_filename).resolve()
        yield from _closed_over(part)


class _Locator(caching._CacheLocator):
    """Numba's hook for the place of cached code."""

    def __init__(self, function: Any) -> None:
        file = Path(function.__code__.co_filename).resolve()
        name = ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
        parts = [f"{part} {source_hash(path)}" for part, path in _closed_over(function) if path.is_file()]
        suffix = "-" + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16] if parts else ""
        self._path = cache_directory() / f"{name}-{source_hash(file)}{suffix}"
        self._line = function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        """Return the directory of the function's compiled code."""
        return str(self._path)

    def get_source_stamp(self) -> str:
        """Return a constant: the path has the hash of the sources."""
        return ""

    def get_disambiguator(self) -> str:
        """Return what tells functions of the same name apart."""
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> "_Locator":
        """Return the locator of a function."""
        return cls(py_func)


class _Implementation(caching.CompileResultCacheImpl):
    _locator_classes: list[Any] = [_Locator]  # noqa: RUF012, as in the base class


class KernelCache(caching.FunctionCache):
    """Numba's cache of one function, at our place; nothing is looked up before the function is first called."""

    _impl_class = _Implementation

    def __init__(self, function: Any) -> None:
        self._py_func = function
        self._ready = False
        self._started = 0.0

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled code for a signature, or None; then announce that it will be compiled.

        The base class refreshes the target, which imports all that code may be compiled from. Compiled code needs
        only the run-time library.
        """
        if not self._ready:
            super().__init__(self._py_func)
            self._ready = True
            if not all(path.is_file() for _, path in _closed_over(self._py_func)):
                self.disable()  # a part was typed in: no file tells its versions apart
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            stored = self._load_overload(sig, target_context)
            if stored is not None:
                return stored
        self._announce(sig, None)
        self._started = time.thread_time()
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store compiled code, and announce that it is compiled."""
        self._announce(sig, time.thread_time() - self._started)
        super().save_overload(sig, data)

    def _announce(self, sig: Any, seconds: float | None) -> None:
        announce(Kernel(f"{self._py_func.__module__}.{self._py_func.__name__}", str(sig), seconds))

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        """Return the key of a compiled function. What a factory closed over is in the path, and has no other name."""
        return sig, codegen.magic_tuple()
