"""Outputs of commands that read several files: one output per file, and in order if processes share the work."""

import codecs
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, TextIO

import typer

from trelliswork.cli.running import alone, current
from trelliswork.data.reading.inputs import Inputs, no_sentences, totals
from trelliswork.errors import DataError

BLOCK = 1 << 22  # bytes that a process sends at a time
Work = Callable[[Inputs, TextIO], int]  # writes the output of one file, or a part of it; returns its sentences


def collected(plain: list[Any]) -> list[Any]:
    """Return the items (JSON) of all processes, in order of rank, on rank 0; on others nothing."""
    import numpy as np

    group = current()
    if group.size == 1:
        return plain
    parts = [np.frombuffer(json.dumps(plain).encode() if to == 0 else b"", np.uint8) for to in range(group.size)]
    return [item for part in group.exchange(parts) if len(part) for item in json.loads(part.tobytes())]


def write_outputs(source: Inputs, out: str, work: Work, *, blank_lines: bool | None) -> None:
    """Write the output of each file: to standard output, to one file, or to a directory.

    ``--out DIR/`` has an output for each file, with its name without ``.gz``. In a group of processes each works on its
    share of the files, or of a file (see `shares` for ``blank_lines``), and rank 0 puts parts together.
    """
    targets = _targets([str(file) for file in source.files], out)
    if current().size > 1:
        n = _write_shared(source, out, targets, work, blank_lines)
    else:
        n = 0
        for file, target in zip(source.files, targets, strict=True):
            with _opened(target) as stream:
                n += work(Inputs((file,), allow_empty=len(targets) > 1), stream)
    if not n:
        raise no_sentences(source)


def _targets(files: list[str], out: str) -> list[str]:
    """Return the output of each file; raise an error if it is an input, or that of another file."""
    folder = Path(out)
    if out == "-" or (len(files) == 1 and not out.endswith(("/", os.sep))):
        targets = [out] * len(files)
    else:
        if "-" in files:
            raise typer.BadParameter("standard input has no name for a file in --out DIR/: name a file instead.")
        if folder.exists() and not folder.is_dir():
            raise DataError(f"{out}: expected a directory for the outputs of {len(files)} files, got a file.")
        targets = [str(folder / Path(file).name.removesuffix(".gz")) for file in files]
    inputs = {os.path.realpath(file): file for file in files if file != "-"}
    seen: dict[str, str] = {}
    for file, target in zip(files, targets, strict=True):
        if target == "-":
            continue
        if os.path.realpath(target) in inputs:
            raise DataError(f"{target}: the output would replace the input. Choose another --out.")
        if target in seen:
            raise DataError(f"{target}: would be the output of {seen[target]} and of {file}. Rename one.")
        seen[target] = file
    if seen and targets[0] != out:
        folder.mkdir(parents=True, exist_ok=True)
    return targets


def _write_shared(source: Inputs, out: str, targets: list[str], work: Work, blank_lines: bool | None) -> int:
    """Write the outputs of a group of processes; return the number of sentences of all."""
    of_file = dict(zip(map(str, source.files), targets, strict=True))
    own, n = source.own(blank_lines=blank_lines), 0
    with ExitStack() as stack:
        pieces: dict[str, IO[str]] = {}
        for part in own:
            target = of_file[str(part)]
            whole = getattr(part, "start", 0) == 0 and getattr(part, "stop", None) is None
            with alone(), ExitStack() as done:
                if whole and target not in (out, "-"):
                    stream: Any = done.enter_context(_opened(target))
                else:
                    if target not in pieces:
                        pieces[target] = stack.enter_context(
                            tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n")
                        )
                    stream = pieces[target]
                n += work(Inputs((part,), allow_empty=True), stream)
        written = {name for names in current().gather([of_file[str(part)] for part in own]) for name in names}
        shared = {name for names in current().gather(list(pieces)) for name in names}
        for target in dict.fromkeys(targets):
            if target in shared or target not in written:  # an empty file belongs to no process
                _put_together(target, pieces.get(target))
    return totals(n)[0]


def _put_together(target: str, piece: IO[str] | None) -> None:
    """Write the pieces of all processes, one after another, to a file or standard output of rank 0."""
    import numpy as np

    group, blocks = current(), _blocks(piece)
    if piece is not None:
        piece.flush()
    size = 0 if piece is None else piece.seek(0, os.SEEK_END)
    decode = codecs.getincrementaldecoder("utf-8")().decode
    with ExitStack() as stack:
        stream = stack.enter_context(_opened(target)) if group.rank == 0 else None
        for rank, n in enumerate(group.gather(size)):
            for _ in range(-(-n // BLOCK)):
                block = next(blocks) if rank == group.rank else b""
                sent = [np.frombuffer(block if to == 0 else b"", np.uint8) for to in range(group.size)]
                received = group.exchange(sent)
                if stream is not None:
                    stream.write(decode(received[rank].tobytes()))


def _blocks(piece: IO[Any] | None) -> Iterator[bytes]:
    """Yield the content of a temporary file."""
    if piece is not None:
        file = piece.buffer  # type: ignore[attr-defined]
        file.seek(0)
        while block := file.read(BLOCK):
            yield block


def _opened(target: str) -> Any:
    from trelliswork.data.files import atomic_write

    return atomic_write(target)
