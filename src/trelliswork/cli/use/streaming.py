"""Files as answers: ``tag`` and ``parse`` write while they read, in bounded memory, one output for each file."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer

from trelliswork.cli.inputs import AWAITED, say_what_is_awaited
from trelliswork.cli.running import alone, current
from trelliswork.cli.use.output import OBJECTS, Form, Objects
from trelliswork.data.reading import naming_lines
from trelliswork.data.reading.inputs import Inputs, no_sentences, totals
from trelliswork.errors import DataError

if TYPE_CHECKING:
    from trelliswork.data.files import Excerpt, Readable

Read = Callable[["Excerpt"], "tuple[Any, Any] | None"]  # sentences and what is known; None: more is needed
Answered = Callable[[Any, Any], Any]  # of sentences and what is known
Write = Callable[["Excerpt", Any, Any, TextIO], None]  # sentences and their answers


def answer_files(
    source: Inputs, out: str, model: Any, *, format: str, split: Any, form: Form | None,
    read: Read, answered: Answered, write: Write,
) -> None:  # fmt: skip
    """Read files part by part, and write the answers of a model: as JSON if the form says so, or by ``write``.

    ``format`` is that of the files; with ``split``, a tokenizer, they are raw text. One of several files may be without
    sentences. A model that is used again is frozen.
    """
    from trelliswork.data.files import no_sentence

    def work(one: Inputs, stream: TextIO) -> int:
        objects = Objects(stream, form == "json") if form in OBJECTS else None
        n, held = 0, None
        for k, following in enumerate(_parts_of(one, format, split)):
            if k == 1:
                model.freeze()
            part = following if held is None else held.joined(following)
            found = read(part)
            held = part if found is None else None
            if found is None:
                continue
            corpus, known = found
            n += len(corpus)
            if not n and part.last and len(source.files) == 1:
                raise no_sentence(one.name, expected)
            with naming_lines(part, corpus):
                answers = answered(corpus, known)
                if objects is not None:
                    objects.write(answers, corpus)
                else:
                    write(part, corpus, answers, stream)
            part.notes["sentences"] = n
            stream.flush()  # so that readers of a pipe see what was written
        if objects is not None:
            objects.close()
        return n

    expected = AWAITED["raw" if split is not None else format]
    say_what_is_awaited(source, expected)
    _write_outputs(source, out, work)


def _parts_of(source: Inputs, format: str, split: Any = None) -> "Iterator[Excerpt]":
    """Yield the input of a command, one file or a part of the bundled corpus, in parts of whole sentences.

    ``format`` is a `FileFormat` but auto, or trees; with ``split``, a tokenizer, raw text.
    """
    from trelliswork.data.reading.shares import excerpts

    (file,) = source.files
    if source.part:
        yield source.excerpt(format)
        return
    cut = None
    if format in ("brat", "trees") or (format == "jsonl" and _is_array(file)):  # which cannot be cut at lines
        yield _whole(file, format)
        return
    if split is not None:
        from trelliswork.data.tokenize import safe_end

        cut = partial(safe_end, split=split)
    yield from excerpts(file, blank_lines=cut is not None or format not in ("text", "jsonl", "csv"), cut=cut)


def _is_array(file: "Readable") -> bool:
    """Return whether a file is one JSON array; standard input is taken for JSON lines."""
    from trelliswork.data.files import open_text

    if str(file) == "-":
        return False
    with open_text(file) as lines:
        return next((line.strip()[:1] for line in lines if line.strip()), "") == "["


def _whole(file: "Readable", format: str) -> "Excerpt":
    """Return all lines of a file; none of brat, whose text and spans are two files."""
    from trelliswork.data.files import Excerpt, whole_text

    return file if isinstance(file, Excerpt) else Excerpt(str(file), text=b"" if format == "brat" else whole_text(file))


def _write_outputs(source: Inputs, out: str, work: Callable[[Inputs, TextIO], int]) -> None:
    """Write the output of each file: to standard output, to one file, or to a directory.

    ``work`` writes the output of one file and returns the number of its sentences. ``--out DIR/`` has an output for
    each file, with its name without ``.gz``. A group of processes shares the files out, and needs a directory.
    """
    from trelliswork.data.files import atomic_write

    targets, group, n = _targets([str(file) for file in source.files], out), current(), 0
    if group.size > 1 and targets[0] == out:
        raise typer.BadParameter("processes write one output for each file: give --out DIR/, or leave torchrun out.")
    pairs = list(zip(source.files, targets, strict=True))
    for file, target in pairs[group.rank :: group.size]:
        with alone(), atomic_write(target) as stream:
            n += work(Inputs((file,)), stream)
    if not totals(n)[0]:
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
