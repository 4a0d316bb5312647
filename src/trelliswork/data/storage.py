"""Directories of a JSON description and arrays: models, and counts of words. Old or new, never mixed, never half.

The arrays are in a file whose name has a hash of its content, such as ``weights-0123456789abcdef.safetensors``.
Saving writes a new file of arrays, then replaces the description (``model.json``), which names that file, by one
rename, then deletes the old arrays. At every instant the description belongs to complete arrays; a reader that finds
the file gone reads the description again. The description begins with the checksum of the rest of it.
"""

import errno
import hashlib
import json
import mmap
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork import __version__
from trelliswork.data.files import leftover_name, replacing, sync
from trelliswork.data.spooled import release
from trelliswork.errors import DataError

Arrays = dict[str, NDArray[Any]]
Chunks = list[bytes | memoryview]


class Layout(NamedTuple):
    """Files of a kind of directory, their format, and the words of its error messages."""

    name: str
    description: str
    arrays: str  # first part of the name
    remedy: str
    format: int

    @property
    def arrays_pattern(self) -> str:
        """Pattern of the names of files of arrays."""
        return rf"{self.arrays}-[0-9a-f]{{16}}\.safetensors"


MODEL = Layout("a model", "model.json", "weights", "train again", 1)
MOMENTS = Layout("moments", "moments.json", "moments", "count again with 'trelliswork data count'", 1)
HEAD = b'{"checksum": "'  # first bytes of a description; then the checksum of what follows `", `
TRIES = 20  # to read a directory that others replace at the same time
PIECE = 1 << 26  # bytes of an array that are written at a time
SPACE = 1 << 20  # free bytes needed to save anything


def save_model(
    path: str | Path, kind: str, description: dict[str, Any], arrays: Arrays, *, layout: Layout = MODEL
) -> None:
    """Write a directory with a description and arrays; a crash at any instant leaves the old or the new content.

    The directory, which may be a symbolic link, must be new, empty or of the same layout; DataError if it has any other
    file, or cannot be written. Processes that save to the same directory wait for each other.
    """
    folder = Path(os.path.realpath(path))
    chunks = _safetensors(arrays)
    name = f"{layout.arrays}-{_checksum(*chunks)[:16]}.safetensors"
    head = {"kind": kind, "format": layout.format, "trelliswork": __version__, **description}
    crc = reduce(lambda crc, piece: zlib.crc32(piece, crc), _pieces(chunks), 0)
    head["files"] = {name: {"bytes": sum(map(len, chunks)), "crc32": crc}}
    is_new = False
    try:
        if not folder.is_dir():
            check_content(path, layout)
            is_new = True
            folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            old = check_content(path, layout)
            rest = (json.dumps(head, ensure_ascii=False, default=_plain_number)[1:] + "\n").encode()
            _write(folder / name, chunks)
            unused = {name} - old
            try:
                _write(folder / layout.description, [HEAD, _checksum(rest).encode(), b'", ', rest])
                unused = old - {name, layout.description}
            finally:
                for one in unused:
                    with suppress(OSError):  # the next save tries again
                        (folder / one).unlink()
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        if is_new:
            with suppress(OSError):  # it is empty only if saving failed
                folder.rmdir()


def check_content(path: str | Path, layout: Layout = MODEL) -> set[str]:
    """Return the names of the files in a directory to save to; DataError if one of them is not ours."""
    folder = Path(os.path.realpath(path))
    if not os.fspath(path):
        raise DataError(f"expected a directory for {layout.name}, got an empty name. Choose a name.")
    if not folder.is_dir():
        if os.path.lexists(folder):
            raise DataError(f"{path}: expected a directory, got a file. Choose another name, or delete the file.")
        return set()
    present = {one.name for one in folder.iterdir()}
    what, known = f"not {layout.name}", set[str]()
    if layout.description in present:
        try:
            description = read_description(folder, layout=layout)
            known = {layout.description, _arrays_of(description, layout)[0]}
        except DataError as error:
            raise DataError(f"{path}: not replaced. {error} Choose another directory, or delete this one.") from None
        what = f"{layout.name}, with other files"
    ours = rf"{layout.arrays_pattern}|{re.escape(layout.description)}"
    pattern = re.compile(f"{layout.arrays_pattern}|{leftover_name(ours)}")
    for name in sorted(present - known):
        if pattern.fullmatch(name) is None:
            raise DataError(f"{path}: {what}: it contains {name!r}. Choose another directory, or move its files.")
    return present


def check_target(path: str | Path, layout: Layout = MODEL) -> None:
    """Raise DataError unless a directory can be saved to: its content, permissions, and free space.

    The space needed is estimated by that of the files that will be replaced.
    """
    try:
        present = check_content(path, layout)
        folder = place = Path(os.path.realpath(path))
        while not place.exists():
            place = place.parent
        if not place.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{place} is not a directory")
        if not os.access(place, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, f"no permission to write to {place}")
        needed = max(SPACE, sum((folder / name).stat().st_size for name in present))
        free = shutil.disk_usage(place).free
        if free < needed:
            raise OSError(errno.ENOSPC, f"the disk has {free:,} bytes left, about {needed:,} are needed")
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: str | Path, error: OSError) -> DataError:
    return DataError(f"{path}: cannot be saved: {error.strerror or error}. What was there is unchanged.")


def load_model(
    path: str | Path,
    kind: str | None = None,
    *,
    layout: Layout = MODEL,
    verify: bool = True,
    mapped: bool | str = False,
) -> tuple[dict[str, Any], Arrays]:
    """Read the description and the arrays of a directory; ``kind``, if given, must be the kind of the model.

    The checksums of both files are compared unless ``verify`` is false. With ``mapped``
    the arrays are pages of the file, which processes share until one of them changes a page; the change is its own.
    If ``mapped`` names a copy of the file of arrays that has its checksum, they are pages of the copy.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    description_file = Path(path) / layout.description
    for _ in range(TRIES):
        version = _version(description_file)
        description = read_description(path, kind, layout=layout, verify=verify)
        name, crc = _arrays_of(description, layout)
        file = Path(path) / name
        try:
            if isinstance(mapped, str):
                with suppress(OSError, ValueError):  # no copy, or an empty one
                    if _is_whole(Path(mapped), crc):
                        return description, map_arrays(Path(mapped))
            if verify and not _is_whole(file, crc):
                raise DataError(f"{file}: damaged: its checksum is wrong. Copy it again, or {layout.remedy}.")
            return description, map_arrays(file) if mapped is True else load_file(file)
        except FileNotFoundError:
            if _version(description_file) == version:
                break
        except DataError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, SafetensorError) as error:
            raise DataError(f"{file}: damaged ({error}): {layout.remedy}.") from None
    raise DataError(f"{file}: missing, although {layout.description} names it. Copy it again, or {layout.remedy}.")


def arrays_file(path: str | Path, layout: Layout = MODEL) -> Path:
    """Return the file of arrays that the description of a directory names."""
    return Path(path) / _arrays_of(read_description(path, layout=layout), layout)[0]


def read_description(
    path: str | Path, kind: str | None = None, *, layout: Layout = MODEL, verify: bool = True
) -> dict[str, Any]:
    """Read and check the description of a directory (of a model: ``model.json``) without its arrays.

    ``["kind"]`` is the kind of the model, which must be ``kind`` if given; the other keys depend on it.
    """
    path = Path(path)
    file = path / layout.description
    if not file.is_file():
        raise DataError(f"{path}: not {layout.name}. Expected a directory with {layout.description}.")
    data = file.read_bytes()
    try:
        description = json.loads(data.decode())
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, a number of 5,000 digits, or too many brackets
        raise DataError(f"{file}: not valid JSON ({error}). The file is damaged: {layout.remedy}.") from None
    for key in ("kind", "trelliswork"):
        if not isinstance(description, dict) or not isinstance(description.get(key), str):
            raise DataError(f"{file}: not the description of {layout.name}: it has no entry {key!r}.")
    written = description.get("format")
    if written != layout.format:
        raise DataError(
            f"{path}: written in format {written} by trelliswork {description.get('trelliswork')}, but trelliswork "
            f"{__version__} reads format {layout.format}. Use that version, or {layout.remedy}."
        )
    if verify:
        start = len(HEAD) + 64
        if data[: start + 3] != HEAD + _checksum(data[start + 3 :]).encode() + b'", ':
            raise DataError(
                f"{file}: damaged or edited: its checksum is wrong. Copy it again, or {layout.remedy}; "
                "verify=False loads it as it is."
            )
    if kind is not None and description["kind"] != kind:
        raise DataError(f"{path}: expected a model of kind {kind!r}, got one of kind {description['kind']!r}.")
    return description


def map_arrays(path: Path) -> Arrays:
    """Map a safetensors file that ``save_model`` has written: arrays that share the memory of the file's pages."""
    with path.open("rb") as file:
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    start = 8 + int.from_bytes(pages[:8], "little")
    header = json.loads(pages[8:start])
    header.pop("__metadata__", None)
    arrays = {}
    for name, entry in header.items():
        kind, (first, last) = entry["dtype"], entry["data_offsets"]
        dtype = np.dtype(bool) if kind == "BOOL" else np.dtype(f"<{kind[0].lower()}{int(kind[1:]) // 8}")
        array = np.frombuffer(pages, dtype, (last - first) // dtype.itemsize, start + first).reshape(entry["shape"])
        arrays[name] = array if array.flags.aligned else array.copy()
    return arrays


def write_arrays(path: Path, arrays: Arrays, metadata: dict[str, str] | None = None) -> None:
    """Write arrays to a safetensors file, completely or not at all."""
    _write(path, _safetensors(arrays, metadata))


def _write(path: Path, chunks: Chunks) -> None:
    """Write a file completely or not at all."""
    with replacing(path) as fresh, fresh.open("xb") as file:
        for piece in _pieces(chunks):
            file.write(piece)
        sync(file)


def _safetensors(arrays: Arrays, metadata: dict[str, str] | None = None) -> Chunks:
    """Return the content of a safetensors file; arrays are not copied, so that a large model needs no more memory.

    The library's own function would copy them, and write files that only their owner can read.
    """
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))  # each is aligned
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    chunks: Chunks = []
    end = 0
    for name in names:
        array = np.ascontiguousarray(arrays[name])
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        assert array.dtype.kind in "fiub", f"{name} has the type {array.dtype}"
        kind = "BOOL" if array.dtype == bool else f"{array.dtype.kind.upper()}{8 * array.itemsize}"
        start, end = end, end + array.nbytes
        header[name] = {"dtype": kind, "shape": arrays[name].shape, "data_offsets": (start, end)}
        chunks.append(array.reshape(-1).view(np.uint8).data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little"), text, *chunks]


def _pieces(chunks: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Yield the chunks in pieces; those of a mapped file do not stay in memory."""
    for chunk in chunks:
        for start in range(0, len(chunk), PIECE):
            yield chunk[start : start + PIECE]
            release(chunk)


def _checksum(*chunks: bytes | memoryview) -> str:
    digest = hashlib.blake2b(digest_size=32)
    for piece in _pieces(chunks):
        digest.update(piece)
    return digest.hexdigest()


def _arrays_of(description: dict[str, Any], layout: Layout) -> tuple[str, int]:
    """Return the name of the file of arrays, and its checksum."""
    try:
        ((name, entry),) = description["files"].items()
        crc = entry["crc32"]
    except (KeyError, TypeError, ValueError, AttributeError):
        name, crc = "", None
    if re.fullmatch(layout.arrays_pattern, name) is None or type(crc) is not int:
        raise DataError(f"{layout.description} names no file of arrays: {layout.remedy}.")
    return name, crc


def _is_whole(file: Path, crc: int) -> bool:
    """Return whether a file has its checksum: CRC-32, which takes a fifth of the time of a hash."""
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        return zlib.crc32(pages) == crc


def _version(file: Path) -> tuple[int, int] | None:
    """Return numbers that change when a file is replaced; ``None`` if there is none."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other writers of a directory out; without effect where directories cannot be locked."""
    try:
        import fcntl
    except ImportError:  # not on this operating system
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # not on this file system
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _plain_number(value: object) -> object:
    """Return a NumPy number as a Python number."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot be saved as JSON")
