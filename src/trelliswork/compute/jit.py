"""Compilation of kernels, and the disk cache of compiled code.

Compiled code is stored in a per-user directory: ``TRELLISWORK_CACHE_DIR`` if it is set, else the platform's cache
folder. The directory of a kernel is named after a hash of its source file and of every file of this package which that
file imports, directly or not. So an edited kernel or shared helper is always compiled again, nothing else is, and
read-only installations work. Numba adds its own version and the CPU to the key.
"""

import hashlib
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import caching

PACKAGE = Path(__file__).resolve().parents[1]
FASTMATH = {"reassoc", "contract"}  # never True: it would assume that infinities do not occur, and -inf is our zero
_IMPORT = re.compile(
    rf"^\s*(?:from\s+({PACKAGE.name}[\w.]*)\s+import\s+(\([^)]*\)|[^\n]*)|import\s+({PACKAGE.name}[\w.]*))",
    re.MULTILINE,
)


def kernel(function: Callable[..., Any] | None = None, /, *, fast: bool = False, **options: Any) -> Any:
    """Compile a function that Python code calls: cached on disk, without the interpreter lock.

    ``fast`` allows sums to be reordered and products to be fused (``FASTMATH``); other options are Numba's.
    """
    compiled = numba.njit(cache=True, nogil=True, fastmath=FASTMATH if fast else False, **options)
    return compiled if function is None else compiled(function)


def helper(function: Callable[..., Any] | None = None, /, *, fast: bool = False, **options: Any) -> Any:
    """Compile a function that only kernels call: its code is stored within theirs."""
    compiled = numba.njit(nogil=True, fastmath=FASTMATH if fast else False, **options)
    return compiled if function is None else compiled(function)


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
            if candidate.is_file():
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
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(seen):
        digest.update(str(path.relative_to(PACKAGE)).encode() + _source(path)[0])
    return digest.hexdigest()[:16]


class KernelLocator(caching._CacheLocator):
    """Numba's hook for the place of cached code: ours for functions of this package, Numba's own for all others."""

    def __init__(self, function: Any, file: Path) -> None:
        name = ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
        self._path = cache_directory() / f"{name}-{source_hash(file)}"
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
    def from_function(cls, py_func: Any, py_file: str) -> "KernelLocator | None":
        """Return a locator for a function of this package, else ``None``."""
        file = Path(py_file).resolve()
        if PACKAGE not in file.parents or not file.is_file():
            return None
        self = cls(py_func, file)
        try:
            self.ensure_cache_path()
        except OSError:
            return None
        return self


caching.CacheImpl._locator_classes.insert(0, KernelLocator)
