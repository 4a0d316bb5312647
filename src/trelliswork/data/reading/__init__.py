"""Files of every format as sentences and labels, one way for the command line and for Python: `open`."""

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trelliswork.data.reading.inputs import BUNDLED, Inputs, current
from trelliswork.errors import DataError, TrellisworkError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from trelliswork.data import AttributeCorpus, Corpus
    from trelliswork.data.files import Readable
    from trelliswork.data.schemes import FileScheme, SeenLabels, StandardLabels


class FileFormat(StrEnum):
    """Layout of a file."""

    auto = "auto"
    columns = "columns"
    conllu = "conllu"
    crfsuite = "crfsuite"
    text = "text"
    jsonl = "jsonl"
    csv = "csv"
    brat = "brat"


ANNOTATED = (FileFormat.jsonl, FileFormat.csv, FileFormat.brat)  # spans in running text, see data.annotations


@dataclass
class Layout:
    """Columns of features and labels in a file; saved with a model, so that tagging reads files as training did."""

    format: str  # a FileFormat but auto
    columns: list[Any]  # for the features: numbers, or names for CoNLL-U
    label: Any  # column of the labels, int or str; a list of them for models with several layers
    separator: str | None = None  # of a column file; any white space by default
    tokenizer: str | None = None  # of running text with spans; our rules by default

    @classmethod
    def of(cls, tagger: Any) -> "Layout":
        """Return the layout of a tagger's training file; words, then labels for a tagger fitted in Python."""
        if tagger.input_:
            return cls(**tagger.input_)
        n_layers = len(getattr(tagger, "layers", ()))
        return cls("columns", [0], list(range(1, n_layers + 1)) if n_layers else 1)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for ``model.json``."""
        return asdict(self)

    def labels(self) -> list[Any]:
        """Return the columns of labels."""
        return self.label if isinstance(self.label, list) else [self.label]

    @property
    def annotated(self) -> bool:
        """Whether the files are running text with spans."""
        return self.format in ANNOTATED

    @property
    def blank_lines(self) -> bool | None:
        """Whether blank lines separate sentences; otherwise lines do, or nothing (None)."""
        return None if self.format in ("csv", "brat") else self.format not in ("text", "jsonl")

    def complete(self, n_columns: int, path: str) -> None:
        """Check the columns of a column file; if none are for the features, all but the labels are."""
        labels = self.labels()
        for column in [*self.columns, *labels]:
            if not -n_columns <= column < n_columns:
                raise DataError(f"{path}: no column {column}: the file has {n_columns}, counted from 0.")
        if not self.columns:
            labels = [column % n_columns for column in labels]
            self.label = labels if isinstance(self.label, list) else labels[0]
            self.columns = [c for c in range(n_columns) if c not in labels]


def place(corpus: "Corpus", token: int, file: "Readable") -> str:
    """Return the file and, if the corpus has lines, the line of a token, for messages."""
    from trelliswork.data.files import Excerpt, Section, source_name

    name = source_name(file)
    if corpus.token_lines is None:
        return name
    before = file.lines_before() if isinstance(file, Section | Excerpt) else 0
    return f"{name}:{before + corpus.token_lines[token] + 1}"


@contextmanager
def naming_lines(source: "Inputs | Readable", layout: Layout | None = None, corpus: Any = None) -> Iterator[None]:
    """Name file and line in errors about a sentence of a file, or of the files of this process.

    The corpus may have the lines of the file; otherwise the files, if their layout is given, are read again for them.
    """
    from trelliswork.data.files import Excerpt, source_name

    try:
        yield
    except TrellisworkError as error:
        if error.sentence is None or (isinstance(source, Inputs) and source.part):
            raise
        if isinstance(source, Inputs):
            name, files = source.name, source.own(blank_lines=True if layout is None else layout.blank_lines)
        else:
            name, files = source_name(source), [source]
        text = str(error).removeprefix(f"{name}, ")
        if isinstance(source, Excerpt):  # sentences of the whole file are counted
            number = error.sentence + source.notes.get("sentences", 0)
            text = re.sub(rf"\bsentence {error.sentence}\b", f"sentence {number}", text, count=1)
        if getattr(corpus, "token_lines", None) is not None and len(files) == 1:
            name = place(corpus, int(corpus.offsets[error.sentence]) + error.token, files[0])
        elif layout is not None:
            name = _place(error, files, layout) or name
        error.args = (f"{name}: {text}",)
        raise


def _place(error: TrellisworkError, files: "Sequence[Readable]", layout: Layout) -> str | None:
    """Return file and line of the sentence of an error, by reading the files again."""
    from trelliswork.data.files import Excerpt, source_name

    n = error.sentence
    assert n is not None
    for file in files:
        again = isinstance(file, Excerpt) or Path(source_name(file)).is_file()
        corpus = _with_lines(file, layout) if again else None
        if corpus is None:
            return None
        if n < len(corpus):
            return place(corpus, int(corpus.offsets[n]) + error.token, file)
        n -= len(corpus)
    return None


def _with_lines(path: "Readable", layout: Layout) -> "Corpus | None":
    """Return the tokens of a file with their lines."""
    import numpy as np

    from trelliswork.data import Corpus
    from trelliswork.data.files import fields_of, open_text

    if layout.format in ("columns", "conllu"):
        return _read(path, layout, layout.columns, keep_lines=True, allow_empty=True)
    if layout.annotated:
        with warnings.catch_warnings():  # it has warned before
            warnings.simplefilter("ignore")
            return read_annotated(path, layout, allow_empty=True)[0]
    if layout.format != "text":
        return None
    with open_text(path) as lines:
        sizes = np.array([len(fields_of(line)) for line in lines])
    offsets = np.concatenate([[0], np.cumsum(sizes[sizes > 0])])
    return Corpus([], offsets, token_lines=np.repeat(np.arange(len(sizes)), sizes))


def guess_format(source: Inputs, format: FileFormat, *, labeled: bool = False) -> FileFormat:
    """Return the given format of files; by default the one of their names or of the first lines of the first.

    A name that ends in .conllu, .raw, .text, .json, .jsonl, .csv or .ann is decisive, and so are lines of JSON. Any
    other file is a column file if it must have labels, or if all lines have the same number of fields and empty lines
    separate sentences; else it is plain text. The format of standard input is columns.
    """
    if format != FileFormat.auto:
        return format
    if source.part:
        return FileFormat.columns
    files = list(map(str, source.files))
    named = [_named_format(file) for file in files]
    first = files[0]
    for file, other in zip(files, named, strict=True):
        if other != named[0]:
            raise DataError(f"{first} and {file} have different formats by their names. Give it with --format.")
    if named[0] is not None:
        return named[0]
    from trelliswork.data.annotations import looks_like_json

    if first != "-" and looks_like_json(first):
        return FileFormat.jsonl
    return FileFormat.columns if labeled or first == "-" or _has_columns(first) else FileFormat.text


def _named_format(file: str) -> FileFormat | None:
    """Return the format that the name of a file decides."""
    name = file.removesuffix(".gz")
    if name.endswith((".raw", ".text")):
        return FileFormat.text
    if name.endswith((".json", ".jsonl", ".ndjson", ".csv", ".ann")) or Path(file).is_dir():
        from trelliswork.data.annotations import annotation_format

        found = FileFormat(annotation_format(file))
        return None if Path(file).is_dir() and found != FileFormat.brat else found
    return FileFormat.conllu if name.endswith((".conllu", ".conll-u")) else None


def format_for(layout: Layout, source: "Inputs | Readable", format: FileFormat) -> FileFormat:
    """Return the format of files for a model: the given one, or that of training.

    If one of the formats is for spans in running text, the names of the files decide.
    """
    if format != FileFormat.auto:
        return format
    trained = FileFormat(layout.format)
    name = str(source.files[0] if isinstance(source, Inputs) else source)
    if name.startswith(BUNDLED):
        return FileFormat.columns if layout.annotated else trained
    named = _named_format(name)
    return named if named is not None and (layout.annotated or named in ANNOTATED) else trained


def read_annotated(path: "Readable", layout: Layout, **options: Any) -> "tuple[Corpus, list[list[str]]]":
    """Return the sentences of running text with spans, and their labels."""
    from trelliswork.data.annotations import read_spans
    from trelliswork.data.tokenize import tokenizer

    return read_spans(path, format=layout.format, split=tokenizer(layout.tokenizer or "rules"), **options)


def _has_columns(path: str, n_lines: int = 200) -> bool:
    """Return whether the first lines look like columns; True for unreadable files, where the reader raises an error."""
    from trelliswork.data.files import fields_of, open_text

    try:
        with open_text(path) as lines:
            sizes = [len(fields_of(line)) for line in islice(lines, n_lines)]
    except (OSError, DataError):
        return True
    words = [size for size in sizes if size]
    if not words:
        return True
    return len(words) > 1 and len(set(words)) == 1 and (0 in sizes or words[0] <= 3)


def training_layout(
    source: Inputs, format: FileFormat, columns: str | None, label: str | None, separator: str | None
) -> Layout:
    """Return the layout that the options describe; labels are the last column by default, or upos."""
    if source.part:
        return Layout("columns", _numbers(columns) or [0, 1], _label(label, 2), " ")
    chosen = guess_format(source, format, labeled=True)
    if chosen == FileFormat.conllu:
        return Layout("conllu", columns.split(",") if columns else ["form"], label or "upos")
    if chosen == FileFormat.crfsuite:
        return Layout("crfsuite", [], None)
    if chosen in ANNOTATED:
        if (label, separator) != (None, None) or columns not in (None, "0"):
            raise DataError(f"{source.name}: {chosen} has no columns: leave --columns, --label and --separator out.")
        return Layout(str(chosen), [0], -1)
    if chosen == FileFormat.text:
        raise DataError(
            f"{source.name}: plain text has no labels to learn from: expected columns, CoNLL-U, or "
            "spans in JSON lines, CSV or brat (see --format)."
        )
    return Layout("columns", _numbers(columns), _label(label, -1), separator)


def _numbers(text: str | None, option: str = "--columns") -> list[int]:
    """Return numbers of columns; ``option`` is the one that the user gave."""
    return [_number(part, option) for part in text.split(",")] if text else []


def _number(text: str, option: str) -> int:
    digits = text.strip().removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 6:
        from trelliswork.data.files import shorten

        some = "numbers separated by commas, such as 0,1" if option == "--columns" else "the number of a column"
        raise DataError(f"{option} must be {some}, counted from 0, got {shorten(text)}.")
    return int(text)


def _label(text: str | None, default: int) -> int:
    return default if text is None else _number(text, "--label")


@dataclass(frozen=True)
class LabelReading:
    """How labels of spans are read."""

    scheme: Any = "auto"  # of the file: a name, "auto", or None for plain tags
    strict: bool = False  # whether labels that break it are an error
    convert: bool = True  # IOB1 to BIO and BILOU to BIOES, with a warning

    @classmethod
    def of(cls, scheme: str | None, strict: bool, *, gaps: bool = False, convert: bool = True) -> "LabelReading":
        """Return what the options say; with ``gaps``, labels are not all labels, so that none is converted."""
        return cls(None if gaps or scheme in (None, "none") else str(scheme), strict, convert)


AUTOMATIC = LabelReading()


def open(
    files: "Readable | Sequence[Readable]", layout: Layout | None = None, *, scheme: Any = "auto", strict: bool = False
) -> "tuple[Corpus | AttributeCorpus, list[list[str]] | dict[str, list[list[str]]]]":
    """Return the sentences and labels of files, as ``fit`` takes them.

    Parameters
    ----------
    files : path or list of paths
        Files of one format, plain or gzip: columns, CoNLL-U, JSON lines with spans, CSV, brat or CRFsuite's; or a part
        of the bundled corpus such as ``bundled:train``.
    layout : Layout, optional
        Format and columns. By default the names and the first lines of the files decide: the last column has the
        labels, and all others are for the features; of CoNLL-U, ``form`` and ``upos``.
    scheme : {"auto", "bio", "iob1", "bioes", "bilou"} or None
        Scheme of the labels; None for plain tags. IOB1 and BILOU are converted, with a warning.
    strict : bool
        Whether labels that break their scheme are an error; otherwise they are repaired, with a warning.

    Returns
    -------
    X : Corpus or AttributeCorpus
        The columns for the features.
    y : list of lists of str
        A dict of them by column if the layout has several columns of labels.

    Examples
    --------
    >>> from trelliswork.data import Layout, open
    >>> X, y = open("bundled:test", Layout("columns", [0], 1))
    >>> X.sentences(0)[0][:3], y[0][:3]
    (['It', 'was', 'dangerous'], ['PRP', 'VBD', 'JJ'])
    """
    source = Inputs(tuple(files) if isinstance(files, list | tuple) else (files,))  # type: ignore[arg-type]
    chosen = training_layout(source, FileFormat.auto, None, None, None) if layout is None else replace(layout)
    how = LabelReading(scheme, strict)
    if isinstance(chosen.label, list):
        return read_layers(source, chosen, list(map(str, chosen.label)), how)
    return read_labeled(source, chosen, how)


def read_labeled(
    source: Inputs, layout: Layout, how: LabelReading = AUTOMATIC
) -> "tuple[Corpus | AttributeCorpus, list[list[str]]]":
    """Return feature columns and labels of the sentences of this process; see `LabelReading`."""
    if layout.annotated:
        return _read_spans(source, layout, how)
    if layout.format != "crfsuite" or source.part:
        corpus, (labels,) = _read_parts(source, layout)
        filled = current().any(not labels or any(label != "_" for row in labels for label in row))
        if layout.format == "conllu" and not filled:
            raise DataError(
                f"{source.name}: the column of labels is empty (_ everywhere). Choose another with --label."
            )
        return corpus, _standard(labels, source, layout, how)
    attributes = source.attributes()
    rows = [attributes.labels[a:b] for a, b in pairwise(attributes.offsets.tolist())]
    return attributes, _standard(rows, source, layout, how)


def _read_spans(source: Inputs, layout: Layout, how: LabelReading) -> "tuple[Corpus, list[list[str]]]":
    """Return the words and labels of running text with spans, in BIO or in the given scheme."""
    from trelliswork.data import Corpus
    from trelliswork.data.schemes import convert, model_scheme

    read = partial(read_annotated, layout=layout, strict=how.strict)
    parts = source.parts(read, blank_lines=layout.blank_lines, sentences=lambda part: part[0])
    labels = [row for _, (_, rows) in parts for row in rows]
    if how.scheme not in (None, "auto") and model_scheme(how.scheme) != "bio":
        labels = [convert(row, "bio", "bioes") for row in labels]
    if source.is_one():
        return parts[0][1][0], labels
    return Corpus.joined([corpus for _, (corpus, _) in parts], 1, source.name), labels


def read_with_lines(source: Inputs, layout: Layout) -> "tuple[Corpus, list[list[str]]]":
    """Return words and labels of one file as they are, with the lines of the tokens if the file has some."""
    if source.part or layout.annotated:
        corpus, labels = read_labeled(source, layout, LabelReading(None))
        assert not hasattr(corpus, "names")
        return corpus, labels
    (file,) = source.files
    read = _read(file, layout, [*layout.columns, layout.label] if layout.columns else [], keep_lines=True)
    label = len(layout.columns)
    if not layout.columns:
        layout.complete(len(read.columns), source.name)
        label = layout.label
    return read, read.sentences(label)


def _standard(labels: list[list[str]], source: Inputs, layout: Layout, how: LabelReading) -> list[list[str]]:
    """Return labels in a scheme that models know; a warning says what was converted or repaired."""
    from trelliswork.data.schemes import standard_labels

    found = standard_labels(labels, how.scheme)
    _say_converted(found, source, layout, how)
    if not found.breaks and not found.text:
        return labels
    return [list(row) for row in (found.labels if how.convert else found.repaired)]


def _say_converted(found: "StandardLabels", source: Inputs, layout: Layout, how: LabelReading) -> None:
    """Warn that labels were converted, and about those that break their scheme; with ``strict``, these are an error."""
    import warnings

    from trelliswork.data.schemes import N_PLACES
    from trelliswork.errors import DataWarning

    files = [] if source.part else source.own(blank_lines=True)
    places = [
        _place(DataError("").at(n, t), files, layout) or f"sentence {n}, token {t}" for n, t in found.breaks[:N_PLACES]
    ]
    broken = found.broken(places)
    if broken and how.strict:
        raise DataError(f"{source.name}: {broken}. Correct them, name another --scheme, or leave --strict out.")
    converted = found.text if how.convert and current().rank == 0 else ""
    for text in filter(None, (converted, broken)):
        warnings.warn(f"{source.name}: {text}.", DataWarning, stacklevel=2)


def layers_layout(
    source: Inputs, format: FileFormat, columns: str | None, layers: Sequence[str], labels: str | None,
    separator: str | None,
) -> Layout:  # fmt: skip
    """Return the layout for several layers of labels: the last columns by default, or CoNLL-U columns by name."""
    if labels is not None and len(labels.split(",")) != len(layers):
        raise DataError(f"--label must name a column for each of the layers {', '.join(layers)}, got {labels[:80]!r}.")
    chosen = FileFormat.columns if source.part else guess_format(source, format, labeled=True)
    if chosen == FileFormat.conllu:
        return Layout(
            "conllu", columns.split(",") if columns else ["form"], labels.split(",") if labels else list(layers)
        )
    if chosen != FileFormat.columns:
        raise DataError(f"{source.name}: layers of labels need a column or CoNLL-U file, not a {chosen} file.")
    first = 3 - len(layers) if source.part else -len(layers)  # the bundled corpus has words, tags, chunks
    numbers = _numbers(labels, "--label") or list(range(first, first + len(layers)))
    inputs = _numbers(columns) or ([0] if source.part else [])
    return Layout("columns", inputs, numbers, " " if source.part else separator)


def read_layers(
    source: Inputs, layout: Layout, layers: Sequence[str], how: LabelReading = AUTOMATIC
) -> "tuple[Corpus, dict[str, list[list[str]]]]":
    """Return feature columns and labels by layer of the sentences of this process; see `read_labeled`."""
    corpus, labels = _read_parts(source, layout)
    return corpus, {name: _standard(rows, source, layout, how) for name, rows in zip(layers, labels, strict=True)}


def _read_parts(source: Inputs, layout: Layout) -> "tuple[Corpus, list[list[list[str]]]]":
    """Return feature columns and each column of labels; complete a layout that names no feature columns."""
    labels = layout.labels()
    if source.part:
        corpus = _bundled(source, [*layout.columns, *labels])
        return _select(corpus, layout.columns), [corpus.sentences(column) for column in labels]
    corpus = _read_all(source, layout, [*layout.columns, *labels] if layout.columns else [])
    n, n_features = len(corpus.columns), len(layout.columns)
    if n_features:  # the reader has put the columns into this order
        return _select(corpus, range(n_features)), [corpus.sentences(column) for column in range(n_features, n)]
    if n <= len(labels) and isinstance(layout.label, list):
        raise DataError(f"{source.name}: only {n} columns: expected words and {len(labels)} layers of labels.")
    if n <= len(labels):
        raise DataError(f"{source.name}: only one column: expected words and labels, or --columns and --label.")
    layout.complete(n, source.name)
    return _select(corpus, layout.columns), [corpus.sentences(column) for column in layout.labels()]


def words_layout(source: Inputs, format: FileFormat, columns: str | None, separator: str | None) -> Layout:
    """Return the layout for reading words only: the first of ``columns``, or the first column."""
    chosen = FileFormat.columns if source.part else guess_format(source, format)
    if chosen == FileFormat.text:
        return Layout("text", [], None)
    if chosen == FileFormat.conllu:
        return Layout("conllu", columns.split(",")[:1] if columns else ["form"], None)
    if chosen == FileFormat.crfsuite:
        raise DataError(f"{source.name}: a file of ready attributes has no words.")
    if chosen in ANNOTATED:
        return Layout(str(chosen), [0], None)
    return Layout("columns", _numbers(columns)[:1] or [0], None, " " if source.part else separator)


def read_words(source: Inputs, layout: Layout) -> "Corpus":
    """Return the words of the sentences of this process."""
    from trelliswork.data import Corpus, bundled, read_text

    if source.part:
        return Corpus.from_sentences([list(s.words) for s in source.share(bundled.load(source.part))])
    if layout.format == "text":
        return source.corpus(read_text, blank_lines=False)
    if layout.annotated:
        read = lambda file, **options: read_annotated(file, layout, labeled=False, **options)[0]  # noqa: E731
        return source.corpus(read, blank_lines=layout.blank_lines)
    return _read_all(source, layout, layout.columns)


def evaluation_layout(layout: Layout, source: Inputs, format: FileFormat, label: str | None) -> Layout:
    """Return the layout of the training file, or the one that the options describe."""
    if (as_named := format_for(layout, source, format)) in ANNOTATED:
        if label is not None:
            raise DataError(f"{source.name}: {as_named} has no columns: leave --label out.")
        return Layout(str(as_named), [0], -1, tokenizer=layout.tokenizer)
    if label is None and format == FileFormat.auto and as_named == layout.format:
        if layout.label is None and layout.format != "crfsuite":
            raise DataError("the model was trained without labels: --label names the column to compare with.")
        return layout
    chosen = as_named
    chosen = guess_format(source, FileFormat.auto, labeled=True) if chosen == "text" else chosen
    if chosen == "conllu":
        columns = layout.columns if layout.format == "conllu" else ["form"]
        return Layout("conllu", columns, label or (layout.label if isinstance(layout.label, str) else "upos"))
    columns = layout.columns if layout.format == "columns" else [0]
    if label is None and not isinstance(layout.label, int | list):
        raise DataError(
            f"{source.name}: the model was trained on CoNLL-U: --label gives the number of the column of labels."
        )
    return Layout("columns", columns, layout.label if label is None else _number(label, "--label"), layout.separator)


class _Parts:
    """Files that are read again in each iteration, in parts of ``n_sentences``, which processes share."""

    formats: tuple[str, ...] = ("columns",)

    def __init__(self, source: Inputs, layout: Layout, n_sentences: int) -> None:
        if source.part or source.files == ("-",) or layout.format not in self.formats:
            formats = " or ".join(self.formats).removesuffix("s")
            raise DataError(f"--stream reads {formats} files several times: expected names, not standard input.")
        self._files, self._layout, self._source = source.own(blank_lines=layout.blank_lines), layout, source
        self._size = max(1, n_sentences // current().size)
        self._scheme: FileScheme | None = None
        self._breaks: list[tuple[int, int]] = []


class LabeledParts(_Parts):
    """Feature columns and labels of column files in parts."""

    def __iter__(self) -> "Iterator[tuple[Corpus, list[list[str]]]]":
        from trelliswork.data.columns import column_parts
        from trelliswork.data.schemes import standard_labels

        layout, before, self._breaks = self._layout, 0, []
        for file in self._files:
            for part in column_parts(file, self._size, separator=layout.separator, allow_empty=True):
                if len(part):
                    layout.complete(len(part.columns), str(file))
                    found = standard_labels(part.sentences(layout.label), self._scheme)
                    self._breaks += [(before + n, t) for n, t in found.breaks]
                    before += len(part)
                    yield _select(part, layout.columns), list(map(list, found.labels))

    def convert(self, seen: "SeenLabels", how: LabelReading) -> bool:
        """Return whether labels encode spans: from now on they are converted, as `read_labeled` does."""
        self._scheme = seen.scheme(shared=True) if how.scheme == "auto" else how.scheme
        return self._scheme is not None

    def say_converted(self, how: LabelReading) -> None:
        """Warn about the labels of the last pass."""
        from trelliswork.data.schemes import StandardLabels

        _say_converted(StandardLabels([], [], self._scheme, self._breaks), self._source, self._layout, how)


class WordParts(_Parts):
    """The words of text or column files in parts."""

    formats = ("text", "columns")

    def __iter__(self) -> "Iterator[list[list[str]]]":
        from trelliswork.data.columns import column_parts
        from trelliswork.data.files import fields_of, open_text

        if self._layout.format == "columns":
            options: Any = {"columns": self._layout.columns, "separator": self._layout.separator, "allow_empty": True}
            for file in self._files:
                yield from (part.sentences(0) for part in column_parts(file, self._size, **options) if len(part))
            return
        for file in self._files:
            with open_text(file) as lines:
                sentences = (words for line in lines if (words := fields_of(line)))
                while some := list(islice(sentences, self._size)):
                    yield some


def read_numbers(path: str, n: int) -> "NDArray[np.float64]":
    """Return the numbers of a file, one per line, for the n sentences of this process."""
    import numpy as np

    from trelliswork.data.files import open_text

    numbers = []
    with open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            try:
                numbers.append(float(line))
            except ValueError:
                raise DataError(f"{path}:{number}: expected a number, got {line[:60]!r}.") from None
    counts = current().gather(n)
    if len(numbers) != sum(counts):
        raise DataError(f"{path}: expected {sum(counts)} numbers, one per sentence, got {len(numbers)}.")
    start = sum(counts[: current().rank])
    return np.array(numbers[start : start + n])


def _bundled(source: Inputs, columns: list[Any]) -> "Corpus":
    """Return a part of the bundled corpus: words, tags, chunks; raise an error for a requested column it lacks."""
    from trelliswork.data import Corpus, bundled

    for column in columns:
        if column not in range(3):
            raise DataError(f"the bundled corpus has the columns 0 (word), 1 (tag) and 2 (chunk), got {column}.")
    assert source.part is not None
    sentences = source.share(bundled.load(source.part))
    return Corpus.from_sentences([list(zip(s.words, s.tags, s.chunks, strict=True)) for s in sentences])


def read_unlabeled(
    path: "Readable", layout: Layout, format: FileFormat, known: str | None = None, *, allow_empty: bool = False
) -> "tuple[Corpus | AttributeCorpus, str, list[list[str | None]] | None]":
    """Return a file to tag with its lines, its format, and the known labels; the label column may be missing."""
    from trelliswork.data import read_text

    chosen = format_for(layout, path, format)
    if chosen in (FileFormat.crfsuite, FileFormat.text, *ANNOTATED):
        from trelliswork.data import read_crfsuite

        if known is not None:
            raise DataError(f"{path}: --known names a column, which a file of this format ({chosen}) does not have.")
        if chosen in ANNOTATED:
            given = Layout(str(chosen), [0], -1, tokenizer=layout.tokenizer)
            return read_annotated(path, given, labeled=False, allow_empty=allow_empty)[0], str(chosen), None
        read: Any = read_crfsuite if chosen == FileFormat.crfsuite else read_text
        return read(path, allow_empty=allow_empty), str(chosen), None
    if chosen != layout.format:
        layout = Layout(str(chosen), ["form"] if chosen == FileFormat.conllu else [0], layout.label)
    if known is None:
        return _read(path, layout, layout.columns, keep_lines=True, allow_empty=allow_empty), str(chosen), None
    column = known if chosen == FileFormat.conllu else _number(known, "--known")
    corpus = _read(path, layout, [*layout.columns, column], keep_lines=True, allow_empty=allow_empty)
    labels = [[None if label == "_" else label for label in s] for s in corpus.sentences(len(corpus.columns) - 1)]
    return replace(corpus, columns=corpus.columns[:-1]), str(chosen), labels


def _read(path: "Readable", layout: Layout, columns: list[Any], **options: Any) -> "Corpus":
    from trelliswork.data import read_columns, read_conllu

    if layout.format == "conllu":
        return read_conllu(path, columns=columns, **options)
    return read_columns(path, columns=columns or None, separator=layout.separator, **options)


def _read_all(source: Inputs, layout: Layout, columns: list[Any]) -> "Corpus":
    return source.corpus(partial(_read, layout=layout, columns=columns), blank_lines=True)


def _select(corpus: "Corpus", which: Any) -> "Corpus":
    from trelliswork.data import Corpus

    return Corpus([corpus.columns[c] for c in which], corpus.offsets, source=corpus.source)
