"""Inputs of ``tag`` and ``parse`` in parts, so that these commands write while they read, in bounded memory."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

from trelliswork.data.reading import naming_lines
from trelliswork.data.reading.inputs import Inputs

if TYPE_CHECKING:
    from trelliswork.data.files import Excerpt, Readable

Read = Callable[["Excerpt", bool], "tuple[Any, Any] | None"]  # sentences and what is known; None: more is needed
Write = Callable[["Excerpt", Any, Any], None]


def answer_parts(
    source: Inputs, format: str, split: Any, model: Any, read: Read, write: Write, stream: TextIO
) -> int:  # fmt: skip
    """Read the input of a command, one file, and write its answers part by part; return the number of sentences.

    ``read`` is told whether a part may be empty: an input without any sentence is an error of its reader. A model that
    is used again is frozen.
    """
    n, held = 0, None
    for k, following in enumerate(_parts_of(source, format, split)):
        if k == 1:
            model.freeze()
        part = following if held is None else held.joined(following)
        found = read(part, source.allow_empty or not part.last or part.notes.get("sentences", 0) > 0)
        held = part if found is None else None
        if found is None:
            continue
        corpus, known = found
        with naming_lines(part, corpus):
            write(part, corpus, known)
        part.notes["sentences"] = part.notes.get("sentences", 0) + len(corpus)
        n += len(corpus)
        stream.flush()  # so that readers of a pipe see what was written
    return n


def _parts_of(source: Inputs, format: str, split: Any = None) -> "Iterator[Excerpt]":
    """Yield the input of a command, one file or a part of the bundled corpus, in parts of whole sentences.

    ``format`` is a `FileFormat` but auto; with ``split``, a tokenizer, raw text.
    """
    from trelliswork.data.shares import excerpts

    (file,) = source.files
    if source.part:
        yield source.excerpt(format)
        return
    cut = None
    if format in ("csv", "brat") or (format == "jsonl" and _is_array(file)):  # which cannot be cut at lines
        yield _whole(file, format)
        return
    if split is not None:
        from trelliswork.data.tokenize import safe_end

        cut = partial(safe_end, split=split)
    yield from excerpts(file, blank_lines=cut is not None or format not in ("text", "jsonl"), cut=cut)


def _is_array(file: "Readable") -> bool:
    """Return whether a file is one JSON array; standard input is taken for JSON lines."""
    from trelliswork.data.files import open_text

    if str(file) == "-":
        return False
    with open_text(file) as lines:
        return next((line.strip()[:1] for line in lines if line.strip()), "") == "["


def _whole(file: "Readable", format: str) -> "Excerpt":
    """Return all lines of a file; none of brat, whose text and spans are two files."""
    from trelliswork.data.files import Excerpt, RawLines, open_blocks

    if isinstance(file, Excerpt):
        return file
    if format == "brat":
        return Excerpt(file, RawLines(b""))
    with open_blocks(file) as blocks:
        return Excerpt(file, RawLines(b"".join(block for block, _ in blocks)))
