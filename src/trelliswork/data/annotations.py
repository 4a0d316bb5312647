"""Spans in running text, as annotation tools write them: read as labeled sentences, and written back.

========================= ==========================================================================================
tool                      record
========================= ==========================================================================================
doccano                   a JSON line: ``text``, and ``label`` (or ``entities``) with ``[start, stop, type]``
Prodigy                   a JSON line: ``text``, ``spans`` with ``start``, ``end`` and ``label``, perhaps ``tokens``
Label Studio              a JSON array or JSON lines: ``data`` with the text, ``annotations``; or ``text``, ``label``
spreadsheets              CSV with a column ``text``, and perhaps ``label``: a JSON list of spans, each with its ends
brat                      ``NAME.txt`` and ``NAME.ann``; a folder has many
========================= ==========================================================================================

Places are characters from 0; ``stop`` is one past the last. A text is split into sentences and tokens, or has the
tokens of its record. Sentences that a span crosses are joined. Spans off the borders of tokens, and spans that labels
cannot represent, are counted and listed in a warning.
"""

from __future__ import annotations

import csv
import json
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from trelliswork.data.files import Excerpt, Readable, check_some, lines_before, open_text, shorten, source_name
from trelliswork.data.schemes import Span, labels_from_spans
from trelliswork.data.tokenize import Piece, TokenizedText, Tokenizer, sentence_ends, tokenize
from trelliswork.errors import DataError, DataWarning

KEYS = ("spans", "label", "labels", "entities")  # of the spans in a record
SHOWN = 3  # places in a message
RECORD = ": record "  # of an array, between its file and its number
Labels = list[list[str]]


class Document(NamedTuple):
    """A text with spans of characters, ``None`` if it has no annotation."""

    text: str
    spans: list[Span] | None
    tokens: list[tuple[int, int]] | None  # places of the tokens, if the record has them
    place: str  # file and line, or record of an array
    record: dict[str, Any]  # as it was read


class Reports:
    """What could not be read as it is: messages, and the places of each."""

    def __init__(self) -> None:
        self._places: dict[str, list[str]] = {}

    def add(self, what: str, place: str) -> None:
        """Count a case."""
        self._places.setdefault(what, []).append(place)

    def tell(self, source: str, strict: bool) -> None:
        """Warn about all cases; with ``strict`` they are an error."""
        for what, places in self._places.items():
            more = ", ..." * (len(places) > SHOWN)
            text = f"{source}: {what}: {len(places)} ({', '.join(places[:SHOWN])}{more})."
            if strict:
                raise DataError(f"{text} Correct them, or leave strict out.")
            warnings.warn(text, DataWarning, stacklevel=3)


@dataclass(frozen=True, eq=False, repr=False)
class AnnotatedText(TokenizedText):
    """Sentences of documents, and the documents: number d has the sentences ``ends[d]`` to ``ends[d + 1]``.

    The text is that of all documents, one after another, with a line end after each.
    """

    format: str = "jsonl"
    documents: list[Document] = field(default_factory=list)
    ends: list[int] = field(default_factory=lambda: [0])
    firsts: list[int] = field(default_factory=list)  # first character of each document

    def place(self, sentence: int, token: int = 0) -> str | None:
        """Return the document of a sentence, for messages."""
        return self.documents[bisect_right(self.ends, sentence) - 1].place

    def located(self, n: int) -> dict[str, Any]:
        """Return the text of a sentence, its offset in the document, and start and end of its tokens there."""
        plain = super().located(n)
        first = self.firsts[bisect_right(self.ends, n) - 1]
        places = [[start - first, stop - first] for start, stop in plain["places"]]
        return plain | {"offset": plain["offset"] - first, "places": places}


def read_spans(
    path: Readable,
    *,
    format: str | None = None,
    split: Tokenizer = tokenize,
    labeled: bool = True,
    strict: bool = False,
) -> tuple[AnnotatedText, Labels]:
    """Read annotated text of doccano, Prodigy, Label Studio or brat, or CSV, as sentences with labels in BIO.

    Parameters
    ----------
    path : str or path
        A JSON or CSV file, plain or gzip, a file of brat, or a folder of these.
    format : {"jsonl", "csv", "brat"}, optional
        By default that of the name.
    split : callable
        Text to sentences of tokens, as `tokenize`; the tokens of a record have priority.
    labeled : bool
        Whether to read the spans; otherwise all labels are ``O``.
    strict : bool
        Whether spans that do not fall on token borders, or that labels cannot represent, are an error.

    Returns
    -------
    X : AnnotatedText
        A corpus of one column, with the places of tokens; ``write_spans`` writes its documents.
    y : list of lists of str
        ``O`` throughout for documents without annotation.

    Raises
    ------
    DataError
        If a record is not JSON, has no text, or has a span outside of its text.
    """
    source, reports = source_name(path), Reports()
    format = format or annotation_format(source)
    documents = list(_documents(path, format, labeled, reports))
    if labeled and documents and all(document.spans is None for document in documents):
        raise DataError(f'{source}: no record has spans, such as "label": [[0, 5, "PER"]]: there is nothing to learn.')
    columns: list[list[Piece]] = []
    labels: Labels = []
    ends, firsts = [0], []
    at = 0
    for document in documents:
        sentences, some = _labeled(document if labeled else document._replace(spans=None), split, reports)
        columns += [[Piece(text, start + at, stop + at) for text, start, stop in pieces] for pieces in sentences]
        labels += some
        firsts.append(at)
        ends.append(len(columns))
        at += len(document.text) + 1
    check_some(len(columns), path, "records with a text")
    reports.tell(source, strict)
    text = "".join(f"{document.text}\n" for document in documents)
    more: Any = {"format": format, "documents": documents, "ends": ends, "firsts": firsts}
    return AnnotatedText.placed(columns, source=source, file=path, text=text, **more), labels


def annotation_format(name: str) -> str:
    """Return the format of annotated text by the name of its file: jsonl, csv or brat."""
    plain = name.removesuffix(".gz")
    if plain.endswith(".csv"):
        return "csv"
    return "brat" if plain.endswith(".ann") or (Path(name).is_dir() and any(Path(name).glob("*.ann"))) else "jsonl"


def looks_like_json(path: Readable) -> bool:
    """Return whether the first lines of a file are those of JSON; False for a file that cannot be read."""
    try:
        with open_text(path) as lines:
            first, second = [*islice((line.strip() for line in lines if line.strip()), 2), "", ""][:2]
        if first == "[":
            return second.startswith("{")
        return first[:1] in ("{", "[") and isinstance(json.loads(first), dict | list)
    except (DataError, ValueError, RecursionError):
        return False


def brat_files(path: str) -> list[str]:
    """Return NAME.ann for each text of a folder of brat, or for one text or file of spans."""
    place = Path(path)
    texts = sorted(place.glob("*.txt")) if place.is_dir() else [place]
    return [str(text.with_suffix(".ann")) for text in texts]


def _documents(path: Readable, format: str, labeled: bool, reports: Reports) -> Iterator[Document]:
    """Yield the documents of a file, or of a folder of brat files."""
    source = source_name(path)
    if format == "brat":
        for name in brat_files(source):
            if Path(name).is_file() or not (labeled and Path(source).is_dir()):
                yield _brat(Path(name), reports)
        return
    with open_text(path) as opened:
        lines = list(opened)
    before, notes = lines_before(path), path.notes if isinstance(path, Excerpt) else {}
    records = _rows(lines, source, before, notes) if format == "csv" else _objects(iter(lines), source, before)
    for place, record in records:
        if record.get("answer", "accept") != "accept":  # of Prodigy
            reports.add("records that annotators rejected or ignored, left out", place)
            continue
        yield _document(record, place, reports)


def _objects(lines: Iterator[str], source: str, before: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the records of JSON lines, or of one JSON array, with their places; some lines of the file are before."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"{source}:{before + number}"
        whole = line.lstrip().startswith("[")
        try:
            found = json.loads("\n".join([line, *lines]) if whole else line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{place}: expected a record in JSON: {error}: {shorten(line)}.") from None
        for n, record in enumerate(found if whole else [found], start=1):
            place = f"{source}{RECORD}{n}" if whole else place
            if not isinstance(record, dict):
                raise DataError(f"{place}: expected a record {{...}}, got {shorten(record)}.")
            yield place, record


def _rows(lines: list[str], source: str, before: int, notes: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a CSV file with their places; columns of spans are lists.

    ``notes`` of an excerpt keep the names of the columns for later parts of the file.
    """
    reader = csv.DictReader(_with_ends(lines), notes.get("names"), restkey="", restval="")
    names = notes["names"] = reader.fieldnames or []
    if "text" not in names:
        found = ", ".join(names) or "nothing"
        raise DataError(f"{source}:1: expected a column named text, got {found}. Name the columns in the first line.")
    for row in reader:
        place, record = f"{source}:{before + reader.line_num}", dict[str, Any](row)
        for key in KEYS:
            if record.get(key, "").startswith("["):
                try:
                    record[key] = json.loads(record[key])
                except ValueError:
                    what = f'a list of spans such as [[0, 5, "PER"]] in the column {key}'
                    raise DataError(f"{place}: expected {what}, got {shorten(record[key])}.") from None
        yield place, record


def _with_ends(lines: list[str]) -> Iterator[str]:
    return (f"{line}\n" for line in lines)


def ends_row(lines: list[str]) -> bool:
    """Return whether lines of CSV end with a whole row: what follows is not in its quotes."""
    *_, last = csv.reader([*_with_ends(lines), "end"])
    return last == ["end"]


def _document(record: dict[str, Any], place: str, reports: Reports) -> Document:
    """Return the document of a record."""
    data = record["data"] if isinstance(record.get("data"), dict) else record
    texts = [data["text"]] if "text" in data else [value for value in data.values() if isinstance(value, str)]
    if len(texts) != 1 or not isinstance(texts[0], str) or (data is record and "text" not in data):
        raise DataError(f"{place}: expected an entry 'text', got the entries {', '.join(map(str, data)) or 'of none'}.")
    text: str = texts[0]
    given: Any = next((record[key] for key in KEYS if isinstance(record.get(key), list)), None)
    if isinstance(record.get("annotations"), list):  # of Label Studio
        done = [one.get("result") or [] for one in record["annotations"] if not one.get("was_cancelled")]
        if len(done) > 1:
            reports.add("records with several annotations, the first one used", place)
        given = [item for item in done[0] if "start" in item.get("value", {})] if done else None
    tokens = record.get("tokens")
    try:
        places = [(int(token["start"]), int(token["end"])) for token in tokens] if tokens else None
    except (TypeError, KeyError, ValueError):
        raise DataError(f"{place}: expected tokens with start and end, got {shorten(tokens)}.") from None
    if places and any(not 0 <= a < b <= len(text) for a, b in places):
        raise DataError(f"{place}: a token lies outside of its text of {len(text)} characters.")
    found = None if given is None else [_span(item, text, place, reports) for item in given]
    return Document(text, found, places, place, record)


def _span(item: Any, text: str, place: str, reports: Reports) -> Span:
    """Return a span of a record."""
    said = None
    try:
        if isinstance(item, dict):
            value = item.get("value", item)
            start, stop = (value[key] if key in value else value[f"{key}_offset"] for key in ("start", "end"))
            names = value["labels"] if isinstance(value.get("labels"), list) else [value["label"]]
            said = value.get("text")
        else:
            start, stop, *names = item
        if len(names) != 1:
            reports.add("spans with several types, the first one used", place)
        name = names[0]
        if type(start) is not int or type(stop) is not int or not isinstance(name, str) or not name:
            raise ValueError
    except (KeyError, TypeError, ValueError, IndexError):
        raise DataError(
            f'{place}: expected a span such as [0, 5, "PER"] or {{"start": 0, "end": 5, "label": "PER"}}, got '
            f"{shorten(item)}."
        ) from None
    if isinstance(said, str) and text[start:stop] != said:  # some tools count UTF-16 units
        units = text.encode("utf-16-le")
        before, own = (units[2 * a : 2 * b].decode("utf-16-le", "replace") for a, b in ((0, start), (start, stop)))
        if own != said:
            raise DataError(f"{place}: the span {start}:{stop} should be {shorten(said)}, but the text there is "
                            f"{shorten(text[start:stop])}.")  # fmt: skip
        start, stop = len(before), len(before) + len(own)
    if not 0 <= start < stop <= len(text):
        raise DataError(f"{place}: the span {start}:{stop} lies outside of its text of {len(text)} characters.")
    return Span(name, start, stop)


def _brat(name: Path, reports: Reports) -> Document:
    """Return the document of brat whose spans are in a file NAME.ann, if it is there."""
    with open_text(name.with_suffix(".txt")) as lines:
        text = "".join(f"{line}\n" for line in lines)
    if not name.is_file():
        return Document(text, None, None, f"{name.with_suffix('.txt')}:1", {})
    found: list[Span] = []
    with open_text(name) as lines:
        for number, line in enumerate(lines, start=1):
            if line.startswith("T"):  # others are relations, events, attributes and notes
                kind, *places = line.partition("\t")[2].partition("\t")[0].replace(";", " ").split(" ")
                numbers: list[Any] = [int(place) if place.isdecimal() else place for place in places] or [None]
                found.append(_span([numbers[0], numbers[-1], kind], text, f"{name}:{number}", reports))
                if len(numbers) > 2:
                    reports.add("spans in pieces, read from the first to the last", f"{name}:{number}")
    return Document(text, found, None, f"{name}:1", {})


def _labeled(document: Document, split: Tokenizer, reports: Reports) -> tuple[list[list[Piece]], Labels]:
    """Return the sentences of a document and their labels."""
    text = document.text
    if document.tokens is None:
        sentences = split(text)
    else:
        pieces = [Piece(text[a:b], a, b) for a, b in document.tokens]
        sentences = [pieces[a:b] for a, b in pairwise([0, *sentence_ends(pieces, text), len(pieces)]) if a < b]
    pieces = list(chain.from_iterable(sentences))
    starts, stops = [piece.start for piece in pieces], [piece.stop for piece in pieces]
    placed: list[Span] = []
    for span in sorted(document.spans or (), key=lambda span: (span.start, -span.stop)):
        own = text[span.start : span.stop]
        start, stop = span.stop - len(own.lstrip()), span.start + len(own.rstrip())
        where = f"{document.place} {shorten(own)}"
        first, last = bisect_right(stops, start), bisect_left(starts, stop)
        if first >= last:
            reports.add("spans without a token, left out", where)
        elif placed and first < placed[-1].stop:
            reports.add("spans that overlap others, which labels cannot represent, left out", where)
        else:
            if (starts[first], stops[last - 1]) != (start, stop):
                reports.add("spans off the borders of tokens, widened to whole tokens", where)
            placed.append(Span(span.type, first, last))
    inside = {t for span in placed for t in range(span.start + 1, span.stop)}  # where no sentence may start
    edges = [t for t in np.cumsum([0, *map(len, sentences)]).tolist() if t not in inside]
    flat = labels_from_spans(placed, len(pieces))
    return [pieces[a:b] for a, b in pairwise(edges)], [flat[a:b] for a, b in pairwise(edges)]


def write_spans(corpus: AnnotatedText, found: Sequence[Iterable[Any]], file: TextIO, *, header: bool = True) -> None:
    """Write the documents of annotated text with new spans, in the form that they were read.

    Parameters
    ----------
    corpus : AnnotatedText
        From `read_spans`.
    found : sequence
        The spans of each sentence: ``Span`` or (``Span``, probability), in tokens.
    file : text file
        Gets a JSON line per document, the array if it was one, or rows of CSV. For brat it gets the lines of
        ``NAME.ann``.
    header : bool
        Whether the rows of CSV start with the names of the columns.

    JSON records keep their other entries. Those of Label Studio get ``predictions``; ``label`` or ``entities`` are
    replaced where they are; all others have ``spans``, with ``probability`` if it is given.
    """
    table, array = None, any(RECORD in document.place for document in corpus.documents)
    for d, document in enumerate(corpus.documents):
        rows: list[tuple[str, int, int, float | None]] = []
        for n in range(corpus.ends[d], corpus.ends[d + 1]):
            at = int(corpus.offsets[n])
            for one in found[n]:
                (kind, first, last), p = one if isinstance(one[0], tuple) else (one, None)
                start, stop = int(corpus.starts[at + first]), int(corpus.stops[at + last - 1])
                rows.append((kind, start - corpus.firsts[d], stop - corpus.firsts[d], p))
        if corpus.format == "brat":
            for k, (kind, start, stop, _) in enumerate(rows, start=1):
                file.write(f"T{k}\t{kind} {start} {stop}\t{' '.join(document.text[start:stop].split())}\n")
        elif corpus.format == "csv":
            record = _written(document, rows)
            row = {k: json.dumps(v, ensure_ascii=False) if isinstance(v, list) else v for k, v in record.items()}
            if table is None:
                table = csv.DictWriter(file, list(row), lineterminator="\n", extrasaction="ignore")
                if header:
                    table.writeheader()
            table.writerow(row)
        else:
            before, after = (
                ("[" if d == 0 else ",", "" if d + 1 < len(corpus.documents) else "]") if array else ("", "")
            )
            file.write(f"{before}{json.dumps(_written(document, rows), ensure_ascii=False)}{after}\n")


def _written(document: Document, rows: list[tuple[str, int, int, float | None]]) -> dict[str, Any]:
    """Return a record with new spans, in the form that it has."""
    record, text = document.record, document.text
    if isinstance(record.get("data"), dict):  # of Label Studio
        own = next((name for name, value in record["data"].items() if value == text), "text")
        result = [
            {"from_name": "label", "to_name": own, "type": "labels",
             "value": {"start": start, "end": stop, "text": text[start:stop], "labels": [kind]}}
            | ({} if p is None else {"score": p})
            for kind, start, stop, p in rows
        ]  # fmt: skip
        return record | {"predictions": [{"model_version": "trelliswork", "result": result}]}
    key = next((key for key in KEYS if key in record), "spans")
    items = record.get(key)
    first = items[0] if items and isinstance(items, list) else None
    if key != "spans" and not isinstance(first, dict):
        return record | {key: [[start, stop, kind] for kind, start, stop, _ in rows]}
    names = ("start_offset", "end_offset") if first and "start_offset" in first else ("start", "end")
    plain = [
        {names[0]: start, names[1]: stop, "label": kind} | ({} if p is None else {"probability": p})
        for kind, start, stop, p in rows
    ]
    return record | {key: plain}
