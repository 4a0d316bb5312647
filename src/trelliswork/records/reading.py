"""Labeled records in XML, JSON lines and CSV, and columns of texts in CSV and JSON lines."""

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from trelliswork.data import read_spans
from trelliswork.data.files import open_blocks, open_text, shorten, source_name, whole_text
from trelliswork.data.schemes import Span
from trelliswork.errors import DataError

SINGLE = 0.95  # of the elements: with so many of one word, equal neighbors are one field


class Example(NamedTuple):
    """A labeled record: its text, and its fields as spans of characters, in order."""

    text: str
    spans: Sequence[Span]


def read_records(path: str | Path) -> list[Example]:
    """Read labeled records.

    Parameters
    ----------
    path : path
        A file that ends in ``.xml``: records with an element for each field, as anystyle writes them, or for each word,
        as parserator does. Equal neighbors are one field if nearly all elements have one word. Any other file: JSON
        lines or CSV with spans of characters (`read_spans`).

    Raises
    ------
    DataError
        If the file is broken; the message names line or record.
    """
    name = source_name(path)
    if not name.removesuffix(".gz").endswith(".xml"):
        documents = read_spans(path)[0].documents
        return [Example(d.text, sorted(d.spans or (), key=lambda span: span.start)) for d in documents]
    try:
        root = ElementTree.fromstring(whole_text(path))
    except ElementTree.ParseError as error:
        line, column = error.position
        what = str(error).partition(":")[0]
        raise DataError(f"{name}:{line}: broken XML at character {column + 1}: {what}. Correct it.") from None
    n_words = [len((field.text or "").split()) for record in root for field in record]
    if not n_words:
        raise DataError(f"{name}: expected records with an element for each field, got none. Is it the right file?")
    joins = sum(n <= 1 for n in n_words) >= SINGLE * len(n_words)
    return [_example(record, joins, f"{name}: record {k}") for k, record in enumerate(root, start=1)]


def _example(record: ElementTree.Element, joins: bool, place: str) -> Example:
    """Return a record with its white space in order: one blank between words, none at the ends."""
    text, spans = "", list[Span]()
    pieces: list[tuple[str, str | None]] = [("", record.text)]
    for field in record:
        if len(field):
            raise DataError(f"{place}: expected fields without elements inside, got <{field[0].tag}> in <{field.tag}>.")
        pieces += [(field.tag, field.text), ("", field.tail)]
    for name, piece in pieces:
        words = " ".join((piece or "").split())
        if (piece or "")[:1].isspace() and text and not text.endswith(" "):
            text += " "
        if words:
            start, text = len(text), text + words
            if name and joins and spans and spans[-1].type == name and not text[spans[-1].stop : start].strip():
                spans[-1] = spans[-1]._replace(stop=len(text))
            elif name:
                spans.append(Span(name, start, len(text)))
            if (piece or "")[-1:].isspace():
                text += " "
    return Example(text.rstrip(), spans)


class Row(NamedTuple):
    """A row: the cells of a table or the entries of an object, the text, and what is wrong with it."""

    cells: Any
    text: str
    problem: str
    line: int  # the last one that it occupies


@contextmanager
def read_texts(path: str | Path, column: str) -> Iterator[tuple[list[str], Iterator[Row]]]:
    """Open a table with a column of texts: its columns, and its rows one by one.

    The file is JSON lines if its name ends in ``.jsonl`` or ``.ndjson``, with tabs if it ends in ``.tsv``, otherwise
    CSV, where cells may have commas, quotes and line ends. A row with other than the expected cells has a ``problem``;
    no row is lost. A quote that is not closed is an error, since nothing tells where its row ends.
    """
    name = source_name(path)
    plain = name.removesuffix(".gz")
    if plain.endswith((".jsonl", ".ndjson")):
        with open_text(path) as lines:
            yield [], _objects(lines, column)
        return
    limit = csv.field_size_limit(sys.maxsize)
    try:
        with open_blocks(path) as blocks:
            lines = (f"{line}\n" for block, _ in blocks for line in block.decode().removesuffix("\n").split("\n"))
            reader = csv.reader(lines, delimiter="\t" if plain.endswith(".tsv") else ",", strict=True)
            header = next(_checked(reader, name), [])
            if column not in header:
                raise DataError(f"{name}:1: no column {shorten(column)}; it has {', '.join(header) or 'none'}.")
            if len(set(header)) < len(header):
                raise DataError(f"{name}:1: columns must have different names, got {', '.join(header)}.")
            yield header, _rows(_checked(reader, name), reader, header, column)
    finally:
        csv.field_size_limit(limit)


def _checked(reader: Any, name: str) -> Iterator[list[str]]:
    """Yield the rows of a CSV reader; its errors name the line where the row starts."""
    while True:
        first = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(f"{name}:{first}: the row that starts here is broken: {error}. Check its quotes.") from None
        yield row


def _rows(rows: Iterator[list[str]], reader: Any, header: list[str], column: str) -> Iterator[Row]:
    n, at = len(header), header.index(column)
    for row in rows:
        problem = ""
        if not row:
            row = [""] * n  # a blank line
        if len(row) != n:
            problem = f"{len(row)} cells instead of {n}"
            row = [*row[: n - 1], ",".join(row[n - 1 :])] if len(row) > n else row + [""] * (n - len(row))
        yield Row(row, "" if problem else row[at], problem, reader.line_num)


def _objects(lines: Iterator[str], column: str) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            cells = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield Row({"line": line}, "", f"no JSON: {error}", number)
            continue
        if not isinstance(cells, dict) or not isinstance(cells.get(column), str):
            problem = f"no text {shorten(column)}"
            yield Row(cells if isinstance(cells, dict) else {"line": line}, "", problem, number)
        else:
            yield Row(cells, cells[column], "", number)
