"""Column files as in CoNLL-2000 and CoNLL-2003: one token per line, a blank line between sentences."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.corpus import Column, Corpus
from trelliswork.data.files import (
    Excerpt,
    Readable,
    check_is_columns,
    check_some,
    counting_lines_before,
    fields_of,
    lines_before,
    lines_of,
    shorten,
    source_name,
    splitter,
    whole_text,
)
from trelliswork.errors import DataError, ShapeError, ValueRangeError

_DOCUMENT = ("#begin", "#end")  # then "document", around the documents of CoNLL-2011 and 2012
_EDGES = ("-DOCSTART-", *_DOCUMENT)
_FEW = 1 << 15  # distinct strings for which there is room at first


def read_columns(
    path: Readable,
    *,
    columns: Sequence[int] | None = None,
    separator: str | None = None,
    keep_lines: bool = False,
) -> Corpus:
    r"""Read a column file.

    Lines ``-DOCSTART-`` (CoNLL-2003), ``#begin document`` and ``#end document`` (CoNLL-2012) end a sentence and are
    skipped.

    Parameters
    ----------
    path : str or path
        A plain or gzip file, or an `Excerpt` of one; ``-`` is the standard input.
    columns : sequence of int, optional
        Columns to return, counted from 0; negative numbers count from the end. Default: all.
    separator : str, optional
        Separator of columns, such as ``"\t"``. Default: any run of ASCII white space.
    keep_lines : bool
        Whether to keep the lines, to write them back with `write_columns_with`.

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
        If ``columns`` is empty, or the separator cannot be used.
    """
    if columns is not None and not len(columns):
        raise ValueRangeError("columns must name at least one column, got none. Leave it out to get all.")
    splitter(separator)  # which checks it
    text = whole_text(path)
    notes = path.notes if isinstance(path, Excerpt) else {}
    before = lines_before(path)
    width, first = notes.get("columns", (0, before))  # of earlier parts of the file
    with counting_lines_before(path):
        corpus, width, first = _read(text, source_name(path), columns, separator, width, first - before)
    check_some(width, path, "one token per line, with its columns")
    if width:
        notes.setdefault("columns", (width, first + before))
    return replace(corpus, raw=text if keep_lines else None, source=source_name(path), file=path)


def _read(
    text: bytes, source: str, columns: Sequence[int] | None, separator: str | None, width: int, first: int
) -> tuple[Corpus, int, int]:
    """Return the sentences of a text, its number of columns and the line that shows it; 0 if they are unknown.

    Compiled code reads regular lines. It leaves others here: the first one, those that may end a document, and errors.
    """
    from trelliswork.data.kernels import columns as kernels  # not imported where no file is read

    split, n_lines = splitter(separator), text.count(b"\n") + 1
    room, chosen = min(n_lines, _FEW), _chosen(columns, width, source, "") if width else []
    while True:  # again when the number of columns is known, and if there are more strings than expected
        wanted = list(dict.fromkeys(chosen))
        slots = np.full(width, -1, np.int64)
        slots[wanted] = np.arange(len(wanted))
        layout = kernels.Layout(_packed([separator or ""])[0], slots, *_packed(_EDGES))
        strings, tokens = kernels.empty(len(wanted), room, n_lines)
        at = np.zeros(5, np.int64)
        while (status := kernels.read(np.frombuffer(text, np.uint8), layout, strings, tokens, at)) == kernels.UNUSUAL:
            line, number = text[at[0] : text.find(b"\n", at[0]) % (len(text) + 1)].decode(), int(at[1]) + 1
            fields = split(line)
            if fields[0] in _EDGES and (fields[0] not in _DOCUMENT or fields[1:2] == ["document"]):
                at[4] = kernels.SKIPPED
            elif not width:
                check_is_columns(line, source)
                width, first = len(fields), number
                chosen = _chosen(columns, width, f"{source}:{number}", line)
                break
            elif len(fields) == width:
                at[4] = kernels.ACCEPTED
            else:
                raise DataError(
                    f"{source}:{number}: expected {width} column{'s' * (width != 1)}, as in line {first}, "
                    f"got {len(fields)}: {shorten(line)}. Is the separator right?"
                )
        else:
            if status == kernels.DONE:
                break
            room *= 4
    made = []
    for c, count in enumerate(strings.counts.tolist()):
        places = zip(strings.starts[c, :count].tolist(), strings.stops[c, :count].tolist(), strict=True)
        made.append(Column([text[a:b].decode() for a, b in places], _fitted(tokens.ids[c], at[2])))
    read = [made[slots[c]] for c in chosen] if width else [[] for _ in columns or (0,)]
    return Corpus(read, _fitted(tokens.ends, at[3] + 1), None, _fitted(tokens.lines, at[2])), width, first


def _packed(strings: Iterable[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return strings as one text in UTF-8, and where each starts and the last one ends."""
    spelled = [string.encode() for string in strings]
    return np.frombuffer(b"".join(spelled), np.uint8), np.cumsum([0, *map(len, spelled)])


def _fitted(array: NDArray[Any], n: int) -> NDArray[Any]:
    """Return the first n entries, as a copy if much would be left unused."""
    return array[:n] if 2 * n > len(array) else array[:n].copy()


def _chosen(columns: Sequence[int] | None, width: int, where: str, line: str) -> list[int]:
    """Return the requested columns, counted from 0; raise DataError if the first token line lacks one."""
    for c in columns or ():
        if not -width <= c < width:
            raise DataError(
                f"{where}: expected a column {c}, but there are only {width}, 0 to {width - 1}: {shorten(line)}. "
                "Columns are counted from 0. Is the separator right?"
            )
    return list(range(width)) if columns is None else [c % width for c in columns]


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
    text, token_lines = lines_with_room(corpus, extra, separator)
    between = separator
    if between is None:
        between = (notes or {}).get("between") or _between(text, token_lines)
        if notes is not None and len(token_lines):
            notes["between"] = between
    strip = separator is None and len(extra) > 0
    file.write(_with_columns(text, token_lines, list(map(Column.of, extra)), between, strip))


def lines_with_room(
    corpus: Corpus, extra: Sequence[Sequence[str]], separator: str | None
) -> tuple[bytes, NDArray[np.int64]]:
    """Return the lines of a corpus, and those of its tokens, if there is a value for each that fits into a column."""
    if corpus.raw is None or corpus.token_lines is None:
        raise ValueRangeError("corpus has no lines to write. Read it with keep_lines=True.")
    for k, values in enumerate(extra):
        if len(values) != corpus.n_tokens:
            raise ShapeError(f"extra[{k}] must have a value for each of {corpus.n_tokens} tokens, got {len(values)}.")
        for value in values.occurring() if isinstance(values, Column) else set(values):
            breaks = fields_of(value) != [value] if separator is None else separator in value
            if not value or breaks or "\n" in value or "\r" in value:
                raise ValueRangeError(f"extra[{k}] must have values that fit into a column, got {shorten(value)}.")
    return corpus.raw, corpus.token_lines


def _between(text: bytes, token_lines: NDArray[np.int64]) -> str:
    """Return the separator of the first token's line."""
    return "\t" if len(token_lines) and "\t" in lines_of(text)[token_lines[0]].strip() else " "


def _with_columns(
    text: bytes, token_lines: NDArray[np.int64], extra: Sequence[Column], between: str, strip: bool
) -> str:
    """Return the lines of a text, each with a line end, and with new columns at those of tokens."""
    from trelliswork.data.kernels import columns as kernels

    spelled, ends = _packed(string for values in extra for string in values.distinct)
    firsts = np.cumsum([0, *(len(values.distinct) for values in extra)])
    ids = np.array([first + values.ids for first, values in zip(firsts, extra, strict=False)], np.int64)
    ids = ids.reshape(len(extra), len(token_lines))
    joint = np.frombuffer(between.encode(), np.uint8)
    out = np.empty(len(text) + 1 + ids.size * len(joint) + int(np.diff(ends)[ids].sum()), np.uint8)
    words = kernels.Words(spelled, ends, ids)
    n = kernels.write(np.frombuffer(text, np.uint8), token_lines, strip, joint, words, out)
    return out[:n].tobytes().decode()
