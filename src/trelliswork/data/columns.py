"""Column files as in CoNLL-2000 and CoNLL-2003: one token per line, a blank line between sentences."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from operator import itemgetter
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.corpus import Column, Corpus, CorpusBuilder
from trelliswork.data.files import (
    Excerpt,
    RawLines,
    Readable,
    check_is_columns,
    fields_of,
    no_sentence,
    open_blocks,
    open_text,
    shorten,
    source_name,
    splitter,
)
from trelliswork.errors import DataError, ShapeError, ValueRangeError

_DOCSTART = "-DOCSTART-"
_EDGES = (["#begin", "document"], ["#end", "document"])  # of the documents of CoNLL-2011 and 2012
_EDGE_BYTES = tuple(np.frombuffer(s, np.uint8) for s in (_DOCSTART.encode(), b"#begin", b"#end", b"document"))
_WHITE = -1  # separator of the kernels: runs of white space
_SHORT = 1 << 12  # bytes of a text for which loading the kernels is not worth it
_FEW = 1 << 15  # distinct strings for which there is room at first


def read_columns(
    path: Readable,
    *,
    columns: Sequence[int] | None = None,
    separator: str | None = None,
    skip_docstart: bool = True,
    boundaries: Sequence[str] = (),
    keep_lines: bool = False,
    allow_empty: bool = False,
    encoding: str = "utf-8",
) -> Corpus:
    r"""Read a column file.

    Parameters
    ----------
    path : str or path
        A plain or gzip file, or a `Section` of one; ``-`` is the standard input.
    columns : sequence of int, optional
        Columns to return, counted from 0; negative numbers count from the end. Default: all.
    separator : str, optional
        Separator of columns, such as ``"\t"``. Default: any run of ASCII white space.
    skip_docstart : bool
        Whether to skip the lines ``-DOCSTART-`` at the start of the documents of CoNLL-2003, and ``#begin document``
        and ``#end document`` of CoNLL-2012. They end a sentence.
    boundaries : sequence of str
        Other first columns of lines that are skipped and end a sentence, such as ``<doc>``.
    keep_lines : bool
        Whether to keep the lines, to write them back with `write_columns_with`.
    allow_empty : bool
        Whether a file without sentences is an empty corpus instead of an error.
    encoding : str

    Returns
    -------
    Corpus
        One sequence of strings per column. Equal strings are one object.

    Raises
    ------
    DataError
        If a line has another number of columns than the first, a requested column does not exist, there is no
        sentence, or the file cannot be read (see `open_text`).
    ValueRangeError
        If ``columns`` is empty, or the separator or the encoding cannot be used.
    """
    (corpus,) = column_parts(
        path,
        None,
        columns=columns,
        separator=separator,
        skip_docstart=skip_docstart,
        boundaries=boundaries,
        keep_lines=keep_lines,
        allow_empty=allow_empty,
        encoding=encoding,
    )
    return corpus


def column_parts(
    path: Readable,
    n_sentences: int | None,
    *,
    columns: Sequence[int] | None = None,
    separator: str | None = None,
    skip_docstart: bool = True,
    boundaries: Sequence[str] = (),
    keep_lines: bool = False,
    allow_empty: bool = False,
    encoding: str = "utf-8",
) -> Iterator[Corpus]:
    """Read a column file in parts of ``n_sentences``, for files that do not fit into memory; see `read_columns`.

    Without ``n_sentences`` there is one part.
    """
    if columns is not None and not len(columns):
        raise ValueRangeError("columns must name at least one column, got none. Leave it out to get all.")
    source, split = source_name(path), splitter(separator)
    notes = path.notes if isinstance(path, Excerpt) else {}
    width, first = notes.get("columns", (0, 0))  # of earlier parts of the file
    first -= path.lines_before() if isinstance(path, Excerpt) else 0
    n_before = n_parts = 0
    pick: Any = None
    part = CorpusBuilder(source, len(columns or ()) or 1)
    with ExitStack() as stack:
        file: Iterator[str]
        if n_sentences is None and skip_docstart and not boundaries:
            lines, file = stack.enter_context(_whole(path, encoding))
            known = (width, first) if width else None
            regular = _read_regular(lines, columns, separator, known, keep_lines, source)
            if regular is not None:
                corpus, (width, first) = regular
                if isinstance(path, Excerpt) and known is None:
                    notes["columns"] = width, first + path.lines_before()
                yield corpus
                return
        else:
            file = stack.enter_context(open_text(path, encoding=encoding))
        for number, line in enumerate(file, start=1):
            fields = split(line)
            if not fields or (skip_docstart and _is_edge(fields)) or fields[0] in boundaries:
                if keep_lines:
                    part.lines.append(line)
                if part.end_sentence() == n_sentences:
                    yield part.corpus(keep_lines)
                    n_parts += 1
                    n_before, part = number, CorpusBuilder(source, part.n_columns)
                continue
            if len(fields) != width or pick is None:
                if width and len(fields) != width:
                    raise DataError(
                        f"{source}:{number}: expected {width} column{'s' * (width != 1)}, as in line {first}, "
                        f"got {len(fields)}: {shorten(line)}. Is the separator right?"
                    )
                if not width:
                    check_is_columns(line, source)
                    width, first = len(fields), number
                    if isinstance(path, Excerpt):
                        notes["columns"] = width, number + path.lines_before()
                chosen = _chosen(columns, width, f"{source}:{number}", line)
                part.n_columns = len(chosen)
                pick = itemgetter(slice(None))
                if chosen != list(range(width)):
                    pick = itemgetter(*chosen) if len(chosen) > 1 else itemgetter(slice(chosen[0], chosen[0] + 1))
            if keep_lines:
                part.lines.append(line)
                part.token_lines.append(number - 1 - n_before)
            unique = part.unique
            part.flat.extend([unique.setdefault(field, field) for field in pick(fields)])
    ended = part.end_sentence()
    if not width and not allow_empty:
        raise no_sentence(source, "one token per line, with its columns")
    if ended or not n_parts:
        yield part.corpus(keep_lines)


@contextmanager
def _whole(path: Readable, encoding: str) -> Iterator[tuple[RawLines | None, Iterator[str]]]:
    """Yield the lines of a file, ``None`` if one of them cannot be read, and an iterator that then raises the error."""
    if isinstance(path, Excerpt):
        with open_text(path) as file:
            yield path.lines if isinstance(path.lines, RawLines) else None, file
        return
    with open_blocks(path, encoding=encoding) as blocks:
        parts: list[bytes] = []
        try:
            parts.extend(block for block, _ in blocks)
        except DataError as error:  # after those of earlier lines
            yield None, chain(RawLines(b"".join(parts)), map(_raise, [error]))
            return
        lines = RawLines(b"".join(parts))
        yield lines, (line for line in lines)


def _raise(error: DataError) -> str:
    raise error


def _read_regular(
    lines: RawLines | None,
    columns: Sequence[int] | None,
    separator: str | None,
    known: tuple[int, int] | None,
    keep_lines: bool,
    source: str,
) -> tuple[Corpus, tuple[int, int]] | None:
    """Return the sentences of a text, its number of columns and the number of the first token's line.

    ``None`` if the text is short, has no token, an error, or lines between documents: the general reader treats them.
    ``known`` are these two numbers, if an earlier part has tokens.
    """
    byte = _WHITE if separator is None else ord(separator) if len(separator) == 1 else 128
    if lines is None or byte >= 128 or len(lines.text) < _SHORT:
        return None
    text, split = lines.text, splitter(separator)
    start = 0
    fields: list[str] = []
    while start < len(text) and not fields:
        stop = text.find(b"\n", start) % (len(text) + 1)
        fields, here, start = split(text[start:stop].decode()), start, stop + 1
    if fields and not known:
        check_is_columns(text[here:stop].decode(), source)
    width = known[0] if known else len(fields)
    if not fields or any(not -width <= c < width for c in columns or ()):
        return None
    chosen = [c % width for c in columns] if columns is not None else list(range(width))
    wanted = list(dict.fromkeys(chosen))
    slots = np.full(width, -1, np.int64)
    slots[wanted] = np.arange(len(wanted))
    table = _numbered(np.frombuffer(text, np.uint8), len(lines), byte, slots, len(wanted))
    if table is None:
        return None
    made, token_lines, offsets = table
    read = [made[slots[c]] for c in chosen]
    corpus = Corpus(read, offsets, lines if keep_lines else None, token_lines if keep_lines else None, source)
    return corpus, known or (width, text.count(b"\n", 0, here) + 1)


def _numbered(
    text: NDArray[np.uint8], n_lines: int, byte: int, slots: NDArray[np.int64], n: int
) -> tuple[list[Column], NDArray[np.int64], NDArray[np.int64]] | None:
    """Return n columns of a text, the lines of tokens, and the offsets of sentences; ``None`` if it is irregular."""
    from trelliswork.data.kernels import columns as kernels  # not imported where no file is read

    ids, token_lines = np.empty((n, n_lines), np.int32), np.empty(n_lines, np.int64)
    ends = np.zeros(n_lines + 1, np.int64)
    size = min(n_lines, _FEW)
    while True:
        slots_of = 1 << (2 * size).bit_length()
        strings = kernels.Strings(
            np.full((n, slots_of), -1, np.int32),
            np.empty((n, size), np.uint64),
            np.empty((n, size), np.int64),
            np.empty((n, size), np.int64),
            np.zeros(n, np.int64),
        )
        tokens = kernels.TokenPlaces(ids, token_lines, ends)
        n_tokens, n_sentences, status = kernels.read(text, byte, slots, _EDGE_BYTES, strings, tokens)
        if status != kernels.FULL:
            break
        size *= 4
    if status == kernels.IRREGULAR:
        return None
    made = []
    for c, count in enumerate(strings.counts.tolist()):
        starts, stops = strings.starts[c, :count], strings.stops[c, :count]
        spelled = np.empty(int((stops - starts).sum()) + count, np.uint8)
        kernels.spell(text, starts, stops, spelled)
        made.append(Column(spelled.tobytes().decode().split("\n")[:-1], _fitted(ids[c], n_tokens)))
    return made, _fitted(token_lines, n_tokens), _fitted(ends, n_sentences + 1)


def _fitted(array: NDArray[Any], n: int) -> NDArray[Any]:
    """Return the first n entries, as a copy if much would be left unused."""
    return array[:n] if 2 * n > len(array) else array[:n].copy()


def _is_edge(fields: list[str]) -> bool:
    """Return whether a line is the start or the end of a document."""
    return fields[0] == _DOCSTART or (fields[0][0:1] == "#" and fields[:2] in _EDGES)


def _chosen(columns: Sequence[int] | None, width: int, where: str, line: str) -> list[int]:
    """Return the requested columns, counted from 0; raise DataError if the first token line lacks one."""
    if columns is None:
        return list(range(width))
    for c in columns:
        if not -width <= c < width:
            raise DataError(
                f"{where}: expected a column {c}, but there are only {width}, 0 to {width - 1}: {shorten(line)}. "
                "Columns are counted from 0. Is the separator right?"
            )
    return [c % width for c in columns]


def write_columns_with(
    corpus: Corpus,
    extra: Sequence[Sequence[str]],
    file: TextIO,
    separator: str | None = None,
    *,
    notes: dict[str, Any] | None = None,
) -> None:
    """Write the lines of a column file, read with ``keep_lines=True``, with new columns appended to each token.

    ``extra[k][i]`` is the k-th new column of token i. Blank and skipped lines are unchanged. Line ends are those of
    ``file``. The default separator is a tab if the line of the first token has one, otherwise a space; white space at
    the end of the line of a token is then dropped. ``notes`` of an `Excerpt` keep it for all parts of a file.
    """
    if corpus.lines is None or corpus.token_lines is None:
        raise ValueRangeError("corpus has no lines to write. Read it with keep_lines=True.")
    for k, values in enumerate(extra):
        if len(values) != corpus.n_tokens:
            raise ShapeError(f"extra[{k}] must have a value for each of {corpus.n_tokens} tokens, got {len(values)}.")
        for value in values.occurring() if isinstance(values, Column) else set(values):
            breaks = fields_of(value) != [value] if separator is None else separator in value
            if not value or breaks or "\n" in value or "\r" in value:
                raise ValueRangeError(f"extra[{k}] must have values that fit into a column, got {shorten(value)}.")
    lines, token_lines = corpus.lines, corpus.token_lines
    between = separator
    if between is None:
        between = (notes or {}).get("between") or _between(lines, token_lines)
        if notes is not None and len(token_lines):
            notes["between"] = between
    if isinstance(lines, RawLines) and extra and all(isinstance(values, Column) for values in extra):
        file.write(_with_columns(lines.text, token_lines, extra, between, separator is None))  # type: ignore[arg-type]
        return
    out = list(lines)
    for i, new in zip(token_lines.tolist(), zip(*extra, strict=True), strict=False):
        line = out[i].rstrip("\t\v\f\r ") if separator is None else out[i]
        out[i] = between.join((line, *new))
    file.writelines(f"{line}\n" for line in out)


def _between(lines: Sequence[str], token_lines: NDArray[np.int64]) -> str:
    """Return the separator of the first token's line."""
    return "\t" if len(token_lines) and "\t" in lines[token_lines[0]].strip() else " "


def _with_columns(
    text: bytes, token_lines: NDArray[np.int64], extra: Sequence[Column], between: str, strip: bool
) -> str:
    """Return the lines of a text, each with a line end, and with new columns at those of tokens."""
    from trelliswork.data.kernels import columns as kernels

    spelled = [string.encode() for values in extra for string in values.distinct]
    sizes = np.array([len(string) for string in spelled], np.int64)
    firsts = np.cumsum([0, *(len(values.distinct) for values in extra)])
    ids = np.array([first + values.ids for first, values in zip(firsts, extra, strict=False)], np.int64)
    ids = ids.reshape(len(extra), len(token_lines))
    words = kernels.Words(np.frombuffer(b"".join(spelled), np.uint8), np.concatenate([[0], np.cumsum(sizes)]), ids)
    joint = np.frombuffer(between.encode(), np.uint8)
    out = np.empty(len(text) + 1 + ids.size * len(joint) + int(sizes[ids].sum()), np.uint8)
    n = kernels.write(np.frombuffer(text, np.uint8), token_lines, strip, joint, words, out)
    return out[:n].tobytes().decode()
