"""Files of every format as sentences and labels, one way for the command line and for Python: `open`."""

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trelliswork.data.reading.inputs import BUNDLED, Inputs, current
from trelliswork.errors import DataError, DataWarning, TrellisworkError

if TYPE_CHECKING:
    from trelliswork.data import AttributeCorpus, Corpus
    from trelliswork.data.files import Readable


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
        if tagger.input_.get("format") == "records":  # of `trelliswork.records`, whose texts have no columns
            return cls("text", [0], None)
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
        return None if self.format in ("csv", "brat", "trees") else self.format not in ("text", "jsonl")

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


@contextmanager
def naming_lines(source: "Inputs | Readable", corpus: Any = None) -> Iterator[None]:
    """Name the file, and the line if the corpus knows it, in errors about a sentence of a corpus."""
    from trelliswork.data.files import Excerpt, source_name

    try:
        yield
    except TrellisworkError as error:
        if error.sentence is None or (isinstance(source, Inputs) and source.part):
            raise
        name = source.name if isinstance(source, Inputs) else source_name(source)
        text = str(error).removeprefix(f"{name}, ")
        if isinstance(source, Excerpt):  # sentences of the whole file are counted
            number = error.sentence + source.notes.get("sentences", 0)
            text = re.sub(rf"\bsentence {error.sentence}\b", f"sentence {number}", text, count=1)
        error.args = (f"{_place(corpus, error.sentence, error.token) or name}: {text}",)
        raise


def _place(corpus: Any, sentence: int, token: int) -> str | None:
    """Return file and line of a token; ``None`` if they are unknown, as for ready attributes."""
    place = getattr(corpus, "place", None)
    return None if place is None else place(sentence, token)


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


def file_layout(
    source: Inputs,
    format: FileFormat = FileFormat.auto,
    columns: str | None = None,
    label: str | None = None,
    separator: str | None = None,
    *,
    layers: Sequence[str] = (),
    words: bool = False,
    labeled: bool = True,
) -> Layout:
    """Return the layout that the options describe; labels are the last column by default, or upos.

    Those of several ``layers`` are the last columns, or the columns of CoNLL-U with the names of the layers. For models
    of ``words`` only their column is for the features. Files that are not ``labeled`` may be plain text.
    """
    if layers and label is not None and len(label.split(",")) != len(layers):
        raise DataError(f"--label must name a column for each of the layers {', '.join(layers)}, got {label[:80]!r}.")
    chosen = FileFormat.columns if source.part else guess_format(source, format, labeled=labeled)
    if layers and chosen not in (FileFormat.columns, FileFormat.conllu):
        raise DataError(f"{source.name}: layers of labels need a column or CoNLL-U file, not a {chosen} file.")
    if words and chosen == FileFormat.crfsuite:
        raise DataError(f"{source.name}: a file of ready attributes has no words: expected columns or CoNLL-U.")
    if labeled and chosen == FileFormat.text:
        raise DataError(
            f"{source.name}: plain text has no labels to learn from: expected columns, CoNLL-U, or "
            "spans in JSON lines, CSV or brat (see --format)."
        )
    if chosen in ANNOTATED and ((label, separator) != (None, None) or columns not in (None, "0")):
        raise DataError(f"{source.name}: {chosen} has no columns: leave --columns, --label and --separator out.")
    if chosen == FileFormat.conllu:
        names = label.split(",") if label else list(layers)
        made = Layout("conllu", columns.split(",") if columns else ["form"], names if layers else label or "upos")
    elif chosen == FileFormat.columns:
        n = 3 if source.part else 0  # the bundled corpus has words, tags and chunks
        last = list(range(n - max(1, len(layers)), n))
        given = last if label is None else _numbers(label, "--label") if layers else [_number(label, "--label")]
        numbers = _numbers(columns) or list(range(last[0]))
        made = Layout("columns", numbers, given if layers else given[0], separator)
    else:
        made = Layout(str(chosen), [] if chosen == FileFormat.crfsuite else [0], -1 if chosen in ANNOTATED else None)
    if words:
        made.columns = made.columns[:1] or [0]
    return made if labeled else replace(made, label=None)


def _in_format(layout: Layout, format: str) -> Layout:
    """Return a layout, or that of files of another format: their words, and the labels in the same column."""
    if format == layout.format:
        return layout
    if format in ANNOTATED:
        return Layout(str(format), [0], -1, tokenizer=layout.tokenizer)
    return Layout(str(format), ["form"] if format == FileFormat.conllu else [0], layout.label)


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
    chosen = file_layout(source) if layout is None else replace(layout)
    return read_labeled(source, chosen, LabelReading(scheme, strict))


def read_labeled(
    source: Inputs, layout: Layout, how: LabelReading = AUTOMATIC, layers: Sequence[str] = ()
) -> "tuple[Corpus | AttributeCorpus, Any]":
    """Return feature columns and labels of the sentences of this process; see `LabelReading`.

    Of several columns of labels, which may have the names of ``layers``, they are a dict. A layout that names no
    feature columns is completed.
    """
    names = layout.labels()
    if layout.format == "crfsuite":
        corpus: Any = source.attributes(layout)
        rows = [[corpus.labels[a:b] for a, b in pairwise(corpus.offsets.tolist())]]
    else:
        wanted = [*layout.columns, *names] if layout.columns else []
        whole = source.corpus(partial(_read, layout=layout, columns=wanted, strict=how.strict), layout)
        n = len(whole.columns)
        if not wanted and n <= len(names):
            found = f"{n} columns: expected words and {len(names)} layers of labels"
            expected = found if isinstance(layout.label, list) else "one column: expected words and labels"
            hint = "" if isinstance(layout.label, list) else ", or --columns and --label"
            raise DataError(f"{source.name}: only {expected}{hint}.")
        if not wanted:
            layout.complete(n, source.name)
        order = range(n) if wanted else [*layout.columns, *layout.labels()]  # that of the reader
        columns = [whole.columns[c] for c in order]
        corpus = replace(whole, columns=columns[: len(layout.columns)])
        rows = [replace(whole, columns=[column]).sentences() for column in columns[len(layout.columns) :]]
        if layout.format == "conllu" and not current().any(not rows[0] or any(set(row) != {"_"} for row in rows[0])):
            raise DataError(
                f"{source.name}: the column of labels is empty (_ everywhere). Choose another with --label."
            )
    labels = [_standard(some, source, corpus, layout, how) for some in rows]
    if not isinstance(layout.label, list):
        return corpus, labels[0]
    return corpus, dict(zip(layers or map(str, names), labels, strict=True))


def _standard(
    labels: list[list[str]], source: Inputs, corpus: Any, layout: Layout, how: LabelReading
) -> list[list[str]]:
    """Return labels in a scheme that models know; a warning says what was converted or repaired.

    With ``strict``, labels that break their scheme are an error.
    """
    from trelliswork.data.schemes import N_PLACES, labels_from_spans, lenient_spans, model_scheme, standard_labels

    if layout.annotated:  # in BIO, and checked when they were read
        is_bio = how.scheme in (None, "auto") or model_scheme(how.scheme) == "bio"
        return labels if is_bio else [labels_from_spans(lenient_spans(row), len(row), "bioes") for row in labels]
    found = standard_labels(labels, how.scheme)
    places = [_place(corpus, n, t) or f"sentence {n}, token {t}" for n, t in found.breaks[:N_PLACES]]
    broken = found.broken(places)
    if broken and how.strict:
        raise DataError(f"{source.name}: {broken}. Correct them, name another --scheme, or leave --strict out.")
    converted = found.text if how.convert and current().rank == 0 else ""
    for text in filter(None, (converted, broken)):
        warnings.warn(f"{source.name}: {text}.", DataWarning, stacklevel=2)
    if not found.breaks and not found.text:
        return labels
    return [list(row) for row in (found.labels if how.convert else found.repaired)]


def read_words(source: Inputs, layout: Layout) -> "Corpus":
    """Return the words of the sentences of this process."""
    return source.corpus(partial(_read, layout=layout, columns=layout.columns), layout)


def evaluation_layout(
    layout: Layout, source: Inputs, format: FileFormat, label: str | None, layers: Sequence[str] = ()
) -> Layout:
    """Return the layout of the training file, or the one that the options describe."""
    chosen = format_for(layout, source, format)
    if chosen == FileFormat.text:
        chosen = guess_format(source, FileFormat.auto, labeled=True)
    if layers and chosen != layout.format:
        return file_layout(source, chosen, None, label, layers=layers)
    made = _in_format(layout, chosen)
    if label is not None:
        return replace(made, label=file_layout(source, chosen, None, label, layers=layers).label)
    if made.label is None and chosen != FileFormat.crfsuite:
        raise DataError("the model was trained without labels: --label names the column to compare with.")
    if chosen == FileFormat.conllu and not isinstance(made.label, str | list):
        return replace(made, label="upos")
    if chosen == FileFormat.columns and isinstance(made.label, str):
        raise DataError(
            f"{source.name}: the model was trained on CoNLL-U: --label gives the number of the column of labels."
        )
    return made


def read_unlabeled(
    path: "Readable", layout: Layout, format: FileFormat, known: str | None = None
) -> "tuple[Corpus | AttributeCorpus, list[list[str | None]] | None]":
    """Return a file to tag with its lines, and the known labels; the label column may be missing."""
    layout = _in_format(layout, format_for(layout, path, format))
    if known is not None and layout.format not in (FileFormat.columns, FileFormat.conllu):
        raise DataError(f"{path}: --known names a column, which a file of this format ({layout.format}) does not have.")
    more = [] if known is None else [known if layout.format == FileFormat.conllu else _number(known, "--known")]
    corpus = _read(path, layout, [*layout.columns, *more], keep_lines=True)
    if known is None:
        return corpus, None
    labels = [[None if label == "_" else label for label in s] for s in corpus.sentences(len(corpus.columns) - 1)]
    return replace(corpus, columns=corpus.columns[:-1]), labels


def _read(
    path: "Readable",
    layout: Layout,
    columns: list[Any],
    *,
    strict: bool = False,
    keep_lines: bool = False,
) -> Any:
    """Return columns of a file; those of running text with spans are words and, if there is a second one, labels."""
    from trelliswork import data

    if layout.annotated:
        from trelliswork.data.tokenize import tokenizer

        split, labeled = tokenizer(layout.tokenizer or "rules"), len(columns) > 1
        options: Any = {"split": split, "labeled": labeled, "strict": strict}
        corpus, labels = data.read_spans(path, format=layout.format, **options)
        both = [corpus.columns[0], list(chain.from_iterable(labels))]
        return replace(corpus, columns=both[: len(columns)])
    if layout.format == "text":
        return data.read_text(path)
    if layout.format == "crfsuite":
        return data.read_crfsuite(path)
    if layout.format == "conllu":
        return data.read_conllu(path, columns=columns, keep_lines=keep_lines)
    options = {"separator": layout.separator, "keep_lines": keep_lines}
    return data.read_columns(path, columns=columns or None, **options)
