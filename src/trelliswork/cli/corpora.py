"""Labeled and unlabeled files as the commands read and write them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from trelliswork.errors import DataError, TrellisworkError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from trelliswork.data import AttributeCorpus, Corpus


class FileFormat(StrEnum):
    """Layout of a file."""

    auto = "auto"
    columns = "columns"
    conllu = "conllu"
    crfsuite = "crfsuite"
    text = "text"


@dataclass
class Layout:
    """Columns of features and labels in a file; saved with a model, so that tagging reads files as training did."""

    format: str  # columns, conllu, crfsuite or text
    columns: list[Any]  # for the features: numbers, or names for CoNLL-U
    label: Any  # column of the labels, int or str; a list of them for models with several layers
    separator: str | None = None  # of a column file; any white space by default

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


def place(corpus: "Corpus", token: int, file: str) -> str:
    """Return the file and, if the corpus has lines, the line of a token, for messages."""
    from trelliswork.data.files import source_name

    name = source_name(file)
    return name if corpus.token_lines is None else f"{name}:{corpus.token_lines[token] + 1}"


@contextmanager
def naming_lines(file: str | None, layout: Layout | None = None, corpus: Any = None) -> Iterator[None]:
    """Name file and line in errors about a sentence of a file.

    The corpus may have the lines; otherwise the file, if its layout is given, is read again for them.
    """
    from trelliswork.data.files import source_name

    try:
        yield
    except TrellisworkError as error:
        if error.sentence is None or bundled_part(file):
            raise
        name = source_name(str(file))
        if getattr(corpus, "token_lines", None) is None and layout is not None and Path(str(file)).is_file():
            corpus = _with_lines(str(file), layout)
        if getattr(corpus, "token_lines", None) is not None:
            name = place(corpus, int(corpus.offsets[error.sentence]) + error.token, name)
        error.args = (f"{name}: {str(error).removeprefix(f'{source_name(str(file))}, ')}",)
        raise


def _with_lines(path: str, layout: Layout) -> "Corpus | None":
    """Return the tokens of a file with their lines."""
    import numpy as np

    from trelliswork.data import Corpus
    from trelliswork.data.files import fields_of, open_text

    if layout.format in ("columns", "conllu"):
        return _read(path, layout, layout.columns, keep_lines=True)
    if layout.format != "text":
        return None
    with open_text(path) as lines:
        sizes = np.array([len(fields_of(line)) for line in lines])
    offsets = np.concatenate([[0], np.cumsum(sizes[sizes > 0])])
    return Corpus([], offsets, token_lines=np.repeat(np.arange(len(sizes)), sizes))


def guess_format(path: str, format: FileFormat, *, labeled: bool = False) -> FileFormat:
    """Return the given format; by default the one of the file's name or of its first lines.

    A name that ends in .conllu, .raw or .text is decisive. Any other file is a column file if it must have labels, or
    if all lines have the same number of fields and empty lines separate sentences; else it is plain text. The format
    of standard input is columns.
    """
    if format != FileFormat.auto:
        return format
    name = path.removesuffix(".gz")
    if name.endswith((".raw", ".text")):
        return FileFormat.text
    if name.endswith((".conllu", ".conll-u")):
        return FileFormat.conllu
    return FileFormat.columns if labeled or path == "-" or _has_columns(path) else FileFormat.text


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
    path: str | None, format: FileFormat, columns: str | None, label: str | None, separator: str | None
) -> Layout:
    """Return the layout that the options describe; labels are the last column by default, or upos."""
    if path is None:
        return Layout("columns", _numbers(columns) or [0, 1], _label(label, 2), " ")
    chosen = guess_format(path, format, labeled=True)
    if chosen == FileFormat.conllu:
        return Layout("conllu", columns.split(",") if columns else ["form"], label or "upos")
    if chosen == FileFormat.crfsuite:
        return Layout("crfsuite", [], None)
    if chosen == FileFormat.text:
        raise DataError(f"{path}: plain text has no labels to learn from: expected columns or CoNLL-U (see --format).")
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


def read_labeled(path: str | None, layout: Layout) -> "tuple[Corpus | AttributeCorpus, list[list[str]]]":
    """Return feature columns and labels of a file; without a file, of the bundled training part."""
    if layout.format != "crfsuite" or bundled_part(path):
        corpus, (labels,) = _read_parts(path, layout)
        return corpus, labels
    from trelliswork.data import read_crfsuite

    attributes = read_crfsuite(str(path))
    return attributes, [attributes.labels[a:b] for a, b in pairwise(attributes.offsets.tolist())]


def bundled_part(path: str | None) -> str | None:
    """Return the part of the bundled corpus that a path names, train without a path; ``None`` for a file."""
    from trelliswork.data.bundled import SPLITS

    return "train" if path is None else path if path in SPLITS else None


def layers_layout(
    path: str | None, format: FileFormat, columns: str | None, layers: Sequence[str], labels: str | None,
    separator: str | None,
) -> Layout:  # fmt: skip
    """Return the layout for several layers of labels: the last columns by default, or CoNLL-U columns by name."""
    chosen = FileFormat.columns if path is None else guess_format(path, format, labeled=True)
    if labels is not None and len(labels.split(",")) != len(layers):
        raise DataError(f"--label must name a column for each of the layers {', '.join(layers)}, got {labels[:80]!r}.")
    if chosen == FileFormat.conllu:
        named = labels.split(",") if labels else list(layers)
        return Layout("conllu", columns.split(",") if columns else ["form"], named)
    if chosen != FileFormat.columns:
        raise DataError(f"{path}: layers of labels need a column or CoNLL-U file, not a {chosen} file.")
    if path is None:  # the bundled corpus: words, tags, chunks
        return Layout(
            "columns", _numbers(columns) or [0], _numbers(labels, "--label") or list(range(3 - len(layers), 3)), " "
        )
    return Layout("columns", _numbers(columns), _numbers(labels, "--label") or list(range(-len(layers), 0)), separator)


def read_layers(path: str | None, layout: Layout, layers: Sequence[str]) -> "tuple[Corpus, dict[str, list[list[str]]]]":
    """Return feature columns and labels by layer; without a file, of the bundled training part."""
    corpus, labels = _read_parts(path, layout)
    return corpus, dict(zip(layers, labels, strict=True))


def _read_parts(path: str | None, layout: Layout) -> "tuple[Corpus, list[list[list[str]]]]":
    """Return feature columns and each column of labels; complete a layout that names no feature columns."""
    labels = layout.labels()
    if part := bundled_part(path):
        corpus = _bundled(part, [*layout.columns, *labels])
        return _select(corpus, layout.columns), [corpus.sentences(column) for column in labels]
    corpus = _read(str(path), layout, [*layout.columns, *labels] if layout.columns else [])
    n, n_features = len(corpus.columns), len(layout.columns)
    if n_features:  # the reader has put the columns into this order
        return _select(corpus, range(n_features)), [corpus.sentences(column) for column in range(n_features, n)]
    if n <= len(labels) and isinstance(layout.label, list):
        raise DataError(f"{path}: only {n} columns: expected words and {len(labels)} layers of labels.")
    if n <= len(labels):
        raise DataError(f"{path}: only one column: expected words and labels, or --columns and --label.")
    layout.complete(n, str(path))
    return _select(corpus, layout.columns), [corpus.sentences(column) for column in layout.labels()]


def words_layout(path: str | None, format: FileFormat, columns: str | None, separator: str | None) -> Layout:
    """Return the layout for reading words only: the first of ``columns``, or the first column."""
    chosen = FileFormat.columns if path is None else guess_format(path, format)
    if chosen == FileFormat.text:
        return Layout("text", [], None)
    if chosen == FileFormat.conllu:
        return Layout("conllu", columns.split(",")[:1] if columns else ["form"], None)
    if chosen == FileFormat.crfsuite:
        raise DataError(f"{path}: a file of ready attributes has no words.")
    return Layout("columns", _numbers(columns)[:1] or [0], None, " " if path is None else separator)


def read_words(path: str | None, layout: Layout) -> "Corpus":
    """Return the words of a file; without a file, of the bundled training part."""
    from trelliswork.data import Corpus, bundled, read_text

    if part := bundled_part(path):
        return Corpus.from_sentences([list(s.words) for s in bundled.load(part)])
    return read_text(str(path)) if layout.format == "text" else _read(str(path), layout, layout.columns)


def evaluation_layout(layout: Layout, path: str, format: FileFormat, label: str | None) -> Layout:
    """Return the layout of the training file, or the one that the options describe."""
    if label is None and format == FileFormat.auto:
        if layout.label is None and layout.format != "crfsuite":
            raise DataError("the model was trained without labels: --label names the column to compare with.")
        return layout
    chosen = format if format != FileFormat.auto else layout.format
    chosen = guess_format(path, FileFormat.auto, labeled=True) if chosen == "text" else chosen
    if chosen == "conllu":
        columns = layout.columns if layout.format == "conllu" else ["form"]
        return Layout("conllu", columns, label or (layout.label if isinstance(layout.label, str) else "upos"))
    columns = layout.columns if layout.format == "columns" else [0]
    if label is None and not isinstance(layout.label, int | list):
        raise DataError(f"{path}: the model was trained on CoNLL-U: --label gives the number of the column of labels.")
    return Layout("columns", columns, layout.label if label is None else _number(label, "--label"), layout.separator)


def labeled_parts(path: str | None, layout: Layout, n_sentences: int) -> "Iterator[tuple[Corpus, list[list[str]]]]":
    """Yield feature columns and labels of a column file in parts of ``n_sentences`` sentences."""
    from trelliswork.data.columns import column_parts

    if path is None or path == "-" or layout.format != "columns":
        raise DataError("--stream reads a column file several times: expected its name, not standard input.")
    for part in column_parts(path, n_sentences, separator=layout.separator):
        layout.complete(len(part.columns), path)
        yield _select(part, layout.columns), part.sentences(layout.label)


class WordParts:
    """The words of a file in parts of ``n_sentences`` sentences; each iteration reads the file again."""

    def __init__(self, path: str | None, layout: Layout, n_sentences: int) -> None:
        if path is None or path == "-" or layout.format not in ("columns", "text"):
            raise DataError(
                "--stream reads a text or column file several times: expected its name, not standard input."
            )
        self._path, self._layout, self._size = path, layout, n_sentences

    def __iter__(self) -> "Iterator[list[list[str]]]":
        from trelliswork.data.columns import column_parts
        from trelliswork.data.files import fields_of, open_text

        if self._layout.format == "columns":
            options: Any = {"columns": self._layout.columns, "separator": self._layout.separator}
            for part in column_parts(self._path, self._size, **options):
                yield part.sentences(0)
            return
        with open_text(self._path) as lines:
            sentences = (words for line in lines if (words := fields_of(line)))
            while some := list(islice(sentences, self._size)):
                yield some


def read_numbers(path: str, n: int) -> "NDArray[np.float64]":
    """Return the n numbers of a file, one per line."""
    import numpy as np

    from trelliswork.data.files import open_text

    numbers = []
    with open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            try:
                numbers.append(float(line))
            except ValueError:
                raise DataError(f"{path}:{number}: expected a number, got {line[:60]!r}.") from None
    if len(numbers) != n:
        raise DataError(f"{path}: expected {n} numbers, one per sentence, got {len(numbers)}.")
    return np.array(numbers)


def _bundled(split: str, columns: list[Any]) -> "Corpus":
    """Return a part of the bundled corpus: words, tags, chunks; raise an error for a requested column it lacks."""
    from trelliswork.data import Corpus, bundled

    for column in columns:
        if column not in range(3):
            raise DataError(f"the bundled corpus has the columns 0 (word), 1 (tag) and 2 (chunk), got {column}.")
    return Corpus.from_sentences([list(zip(s.words, s.tags, s.chunks, strict=True)) for s in bundled.load(split)])


def read_unlabeled(
    path: str, layout: Layout, format: FileFormat, known: str | None = None
) -> "tuple[Corpus | AttributeCorpus, str, list[list[str | None]] | None]":
    """Return a file to tag with its lines, its format, and the known labels; the label column may be missing."""
    from trelliswork.data import read_text

    chosen = FileFormat(layout.format) if format == FileFormat.auto else format
    if chosen in (FileFormat.crfsuite, FileFormat.text):
        from trelliswork.data import read_crfsuite

        if known is not None:
            raise DataError(f"{path}: --known names a column, which a file of this format ({chosen}) does not have.")
        return (read_crfsuite if chosen == FileFormat.crfsuite else read_text)(path), str(chosen), None
    if chosen != layout.format:
        layout = Layout(str(chosen), ["form"] if chosen == FileFormat.conllu else [0], layout.label)
    if known is None:
        return _read(path, layout, layout.columns, keep_lines=True), str(chosen), None
    column = known if chosen == FileFormat.conllu else _number(known, "--known")
    corpus = _read(path, layout, [*layout.columns, column], keep_lines=True)
    labels = [[None if label == "_" else label for label in s] for s in corpus.sentences(len(corpus.columns) - 1)]
    return replace(corpus, columns=corpus.columns[:-1]), str(chosen), labels


def write_tagged(
    corpus: "Corpus | AttributeCorpus", format: str, layout: Layout, extra: list[list[str]], out: TextIO
) -> None:
    """Write a tagged file: columns appended, or the label columns of CoNLL-U replaced."""
    from trelliswork.data import AttributeCorpus
    from trelliswork.data.columns import write_columns_with

    if format == "columns":
        assert not isinstance(corpus, AttributeCorpus)
        write_columns_with(corpus, extra, out, layout.separator)
        return
    if format == "conllu":
        assert not isinstance(corpus, AttributeCorpus)
        columns = ["upos"] if isinstance(layout.label, int | None) else layout.labels()
        _replace_columns(corpus, columns, extra, out)
        return
    words = None if isinstance(corpus, AttributeCorpus) else corpus.columns[0]
    for start, stop in pairwise(corpus.offsets.tolist()):
        for i in range(start, stop):
            row = [values[i] for values in extra]
            out.write("\t".join(row if words is None else [words[i], *row]) + "\n")
        out.write("\n")


def _replace_columns(corpus: "Corpus", columns: list[Any], extra: list[list[str]], out: TextIO) -> None:
    """Write CoNLL-U with ``columns`` replaced; further values of a column are appended to it after a bar."""
    from io import StringIO

    from trelliswork.data.conllu import write_conllu_with

    if not all(isinstance(column, str) for column in columns):
        raise DataError("the model was trained on a column file, so its layers have no CoNLL-U columns.")
    D = len(columns)
    for d, column in enumerate(columns):
        target = out if d == D - 1 else StringIO()
        write_conllu_with(corpus, column, ["|".join(values) for values in zip(*extra[d::D], strict=True)], target)
        if isinstance(target, StringIO):
            corpus = replace(corpus, lines=target.getvalue().splitlines())


def _read(path: str, layout: Layout, columns: list[Any], keep_lines: bool = False) -> "Corpus":
    from trelliswork.data import read_columns, read_conllu

    if layout.format == "conllu":
        return read_conllu(path, columns=columns, keep_lines=keep_lines)
    return read_columns(path, columns=columns or None, separator=layout.separator, keep_lines=keep_lines)


def _select(corpus: "Corpus", which: Any) -> "Corpus":
    from trelliswork.data import Corpus

    return Corpus([corpus.columns[c] for c in which], corpus.offsets, source=corpus.source)
