"""Column files as in CoNLL-2000 and CoNLL-2003: one token per line, a blank line between sentences."""

import sys
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, TextIO

from trelliswork.data.corpus import Corpus, CorpusBuilder
from trelliswork.data.files import (
    Excerpt,
    Readable,
    fields_of,
    no_sentence,
    open_text,
    shorten,
    source_name,
    splitter,
)
from trelliswork.errors import DataError, ShapeError, ValueRangeError

_DOCSTART = "-DOCSTART-"
_EDGES = (["#begin", "document"], ["#end", "document"])  # of the documents of CoNLL-2011 and 2012


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
        One list of strings per column. Equal strings are one object.

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
        sys.maxsize,
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
    n_sentences: int,
    *,
    columns: Sequence[int] | None = None,
    separator: str | None = None,
    skip_docstart: bool = True,
    boundaries: Sequence[str] = (),
    keep_lines: bool = False,
    allow_empty: bool = False,
    encoding: str = "utf-8",
) -> Iterator[Corpus]:
    """Read a column file in parts of ``n_sentences``, for files that do not fit into memory; see `read_columns`."""
    if columns is not None and not len(columns):
        raise ValueRangeError("columns must name at least one column, got none. Leave it out to get all.")
    source, split = source_name(path), splitter(separator)
    notes = path.notes if isinstance(path, Excerpt) else {}
    width, first = notes.get("columns", (0, 0))  # of earlier parts of the file
    first -= path.lines_before() if isinstance(path, Excerpt) else 0
    n_before = n_parts = 0
    pick: Any = None
    part = CorpusBuilder(source, len(columns or ()) or 1)
    with open_text(path, encoding=encoding) as file:
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
    extra: list[list[str]],
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
        for value in set(values):
            breaks = fields_of(value) != [value] if separator is None else separator in value
            if not value or breaks or "\n" in value or "\r" in value:
                raise ValueRangeError(f"extra[{k}] must have values that fit into a column, got {shorten(value)}.")
    out = list(corpus.lines)
    where = corpus.token_lines.tolist()
    between = separator
    if between is None:
        between = (notes or {}).get("between") or ("\t" if where and "\t" in out[where[0]].strip() else " ")
        if notes is not None and where:
            notes["between"] = between
    for i, new in zip(where, zip(*extra, strict=True), strict=False):
        line = out[i].rstrip("\t\v\f\r ") if separator is None else out[i]
        out[i] = between.join((line, *new))
    file.writelines(f"{line}\n" for line in out)
