"""Labeled and unlabeled files as the commands read and write them."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, TextIO

from trelliswork.errors import DataError

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
    """Columns of features and labels in a file; saved with a model, so that tagging reads files as training did.

    Attributes
    ----------
    format : str
        columns, conllu, crfsuite or bundled.
    columns : list
        Columns for the features: numbers, or names for CoNLL-U.
    label : int or str, or a list of them
        Column of the labels; for models with several layers, one column per layer.
    separator : str or None
        Separator of a column file; any white space by default.
    """

    format: str
    columns: list[Any]
    label: Any
    separator: str | None = None

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
        return Layout("columns", _numbers(columns) if columns else [0, 1], int(label) if label else 2, " ")
    chosen = guess_format(path, format, labeled=True)
    if chosen == FileFormat.conllu:
        return Layout("conllu", columns.split(",") if columns else ["form"], label or "upos")
    if chosen == FileFormat.crfsuite:
        return Layout("crfsuite", [], None)
    if chosen == FileFormat.text:
        raise DataError(f"{path}: plain text has no labels to learn from: expected columns or CoNLL-U (see --format).")
    return Layout("columns", _numbers(columns) if columns else [], int(label) if label else -1, separator)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise DataError(f"--columns must be numbers separated by commas, such as 0,1, got {text!r}.") from None


def read_labeled(path: str | None, layout: Layout) -> "tuple[Corpus | AttributeCorpus, list[list[str]]]":
    """Return feature columns and labels of a file; without a file, of the bundled training part."""
    from trelliswork.data import bundled

    if path is None or path in bundled.SPLITS:
        return _bundled_labeled(path or "train", layout)
    if layout.format == "crfsuite":
        from trelliswork.data import read_crfsuite

        attributes = read_crfsuite(path)
        ends = attributes.offsets.tolist()
        return attributes, [attributes.labels[a:b] for a, b in pairwise(ends)]
    corpus = _read(path, layout, [*layout.columns, layout.label] if layout.columns else [], keep_lines=False)
    n_columns = len(corpus.columns)
    if layout.format == "columns" and not layout.columns:
        if n_columns < 2:
            raise DataError(f"{path}: only one column: expected words and labels, or --columns and --label.")
        at = layout.label % n_columns
        layout.columns = [c for c in range(n_columns) if c != at]
        layout.label = at
        return _select(corpus, layout.columns), corpus.sentences(at)
    return _select(corpus, range(n_columns - 1)), corpus.sentences(n_columns - 1)


def layers_layout(
    path: str | None,
    format: FileFormat,
    columns: str | None,
    layers: list[str],
    labels: str | None,
    separator: str | None,
) -> Layout:
    """Return the layout for several layers of labels: the last columns by default, or CoNLL-U columns by name."""
    chosen = FileFormat.columns if path is None else guess_format(path, format, labeled=True)
    if labels is not None and len(labels.split(",")) != len(layers):
        raise DataError(f"--labels must name a column for each of the layers {', '.join(layers)}, got {labels!r}.")
    if chosen == FileFormat.conllu:
        return Layout("conllu", columns.split(",") if columns else ["form"], labels.split(",") if labels else layers)
    if chosen != FileFormat.columns:
        raise DataError(f"{path}: layers of labels need a column or CoNLL-U file, not a {chosen} file.")
    last: list[Any] = list(range(-len(layers), 0))
    if path is None:
        last = list(range(3 - len(layers), 3))  # the bundled corpus: words, tags, chunks
        return Layout("columns", _numbers(columns) if columns else [0], _numbers(labels) if labels else last, " ")
    return Layout("columns", _numbers(columns) if columns else [], _numbers(labels) if labels else last, separator)


def read_layers(path: str | None, layout: Layout) -> "tuple[Corpus, list[list[list[str]]]]":
    """Return feature columns and the labels of each layer; without a file, of the bundled training part."""
    from trelliswork.data import bundled

    if path is None or path in bundled.SPLITS:
        corpus = _bundled(path or "train", [*layout.columns, *layout.label])
        return _select(corpus, layout.columns), [corpus.sentences(column) for column in layout.label]
    corpus = _read(path, layout, [*layout.columns, *layout.label] if layout.columns else [], keep_lines=False)
    n = len(corpus.columns)
    if layout.columns:
        first = len(layout.columns)
        return _select(corpus, range(first)), [corpus.sentences(column) for column in range(first, n)]
    if n <= len(layout.label):
        raise DataError(f"{path}: only {n} columns: expected words and {len(layout.label)} layers of labels.")
    for column in layout.label:
        if not -n <= column < n:
            raise DataError(f"{path}: no column {column}: the file has {n}, counted from 0.")
    layout.label = [column % n for column in layout.label]
    layout.columns = [c for c in range(n) if c not in layout.label]
    return _select(corpus, layout.columns), [corpus.sentences(column) for column in layout.label]


def words_layout(path: str | None, format: FileFormat, columns: str | None, separator: str | None) -> Layout:
    """Return the layout for reading words only: the first of ``columns``, or the first column."""
    chosen = FileFormat.columns if path is None else guess_format(path, format)
    if chosen == FileFormat.text:
        return Layout("text", [], None)
    if chosen == FileFormat.conllu:
        return Layout("conllu", columns.split(",")[:1] if columns else ["form"], None)
    if chosen == FileFormat.crfsuite:
        raise DataError(f"{path}: a file of ready attributes has no words.")
    return Layout("columns", _numbers(columns)[:1] if columns else [0], None, " " if path is None else separator)


def read_words(path: str | None, layout: Layout) -> "Corpus":
    """Return the words of a file; without a file, of the bundled training part."""
    from trelliswork.data import Corpus, bundled, read_text

    if path is None or path in bundled.SPLITS:
        return Corpus.from_sentences([list(s.words) for s in bundled.load(path or "train")])
    return read_text(path) if layout.format == "text" else _read(path, layout, layout.columns, keep_lines=False)


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
    return Layout("columns", columns, _numbers(label)[0] if label else layout.label, layout.separator)


def labeled_parts(path: str | None, layout: Layout, n_sentences: int) -> "Iterator[tuple[Corpus, list[list[str]]]]":
    """Yield feature columns and labels of a column file in parts of ``n_sentences`` sentences."""
    from trelliswork.data.columns import column_parts

    if path is None or path == "-" or layout.format != "columns":
        raise DataError("--stream reads a column file several times: expected its name, not standard input.")
    for part in column_parts(path, n_sentences, separator=layout.separator):
        n_columns = len(part.columns)
        if not layout.columns:
            layout.label %= n_columns
            layout.columns = [c for c in range(n_columns) if c != layout.label]
        for column in [*layout.columns, layout.label]:
            if not -n_columns <= column < n_columns:
                raise DataError(f"{path}: no column {column}: the file has {n_columns}, counted from 0.")
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


def _bundled_labeled(split: str, layout: Layout) -> "tuple[Corpus, list[list[str]]]":
    """Return columns of a part of the bundled corpus: 0 words, 1 tags, 2 chunk labels."""
    wide = _bundled(split, [*layout.columns, layout.label])
    return _select(wide, layout.columns), wide.sentences(layout.label)


def _bundled(split: str, columns: list[Any]) -> "Corpus":
    """Return all columns of a part of the bundled corpus, after checking that the requested ones exist."""
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
    column = known if chosen == FileFormat.conllu else _numbers(known)[0]
    corpus = _read(path, layout, [*layout.columns, column], keep_lines=True)
    labels = [[None if label == "_" else label for label in s] for s in corpus.sentences(len(corpus.columns) - 1)]
    return replace(corpus, columns=corpus.columns[:-1]), str(chosen), labels


def write_tagged(
    corpus: "Corpus | AttributeCorpus", format: str, layout: Layout, extra: list[list[str]], out: TextIO
) -> None:
    """Write a tagged file: columns appended, or the label columns of CoNLL-U replaced."""
    from trelliswork.data import AttributeCorpus
    from trelliswork.data.columns import write_columns_with
    from trelliswork.data.conllu import write_conllu_with

    if format == "columns":
        assert not isinstance(corpus, AttributeCorpus)
        write_columns_with(corpus, extra, out, layout.separator)
        return
    if format == "conllu":
        assert not isinstance(corpus, AttributeCorpus)
        if isinstance(layout.label, list):
            _replace_columns(corpus, layout.label, extra, out)
            return
        label = layout.label if isinstance(layout.label, str) else "upos"
        write_conllu_with(corpus, label, ["|".join(values) for values in zip(*extra, strict=True)], out)
        return
    ends = corpus.offsets.tolist()
    words = None if isinstance(corpus, AttributeCorpus) else corpus.columns[0]
    for start, stop in pairwise(ends):
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


def _read(path: str, layout: Layout, columns: list[Any], keep_lines: bool) -> "Corpus":
    from trelliswork.data import read_columns, read_conllu

    if layout.format == "conllu":
        return read_conllu(path, columns=columns, keep_lines=keep_lines)
    return read_columns(path, columns=columns or None, separator=layout.separator, keep_lines=keep_lines)


def _select(corpus: "Corpus", which: Any) -> "Corpus":
    from trelliswork.data import Corpus

    return Corpus([corpus.columns[c] for c in which], corpus.offsets, source=corpus.source)
