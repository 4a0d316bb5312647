"""Labelled and unlabelled files as the commands read and write them."""

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
    """How a file is laid out."""

    auto = "auto"
    columns = "columns"
    conllu = "conllu"
    crfsuite = "crfsuite"
    text = "text"


@dataclass
class Layout:
    """Where features and labels stand in a file; saved with a model, so that tagging reads files like training did.

    Attributes
    ----------
    format : str
        columns, conllu, crfsuite or bundled.
    columns : list
        Columns that features see: numbers, or names for CoNLL-U.
    label : int or str, or a list of them
        Column of the labels; of each layer's, for models with several.
    separator : str or None
        Of a column file; any white space by default.
    """

    format: str
    columns: list[Any]
    label: Any
    separator: str | None = None

    @classmethod
    def of(cls, tagger: Any) -> "Layout":
        """How the file of a tagger's training was laid out; of one that was fitted in Python: words, then labels."""
        if tagger.input_:
            return cls(**tagger.input_)
        n_layers = len(getattr(tagger, "layers", ()))
        return cls("columns", [0], list(range(1, n_layers + 1)) if n_layers else 1)

    def to_dict(self) -> dict[str, Any]:
        """For ``model.json``."""
        return asdict(self)


def guess_format(path: str, format: FileFormat) -> FileFormat:
    """The format by the file's name, unless it is given."""
    if format != FileFormat.auto:
        return format
    name = path.removesuffix(".gz")
    if name.endswith((".raw", ".text")):
        return FileFormat.text
    return FileFormat.conllu if name.endswith((".conllu", ".conll-u")) else FileFormat.columns


def training_layout(
    path: str | None, format: FileFormat, columns: str | None, label: str | None, separator: str | None
) -> Layout:
    """The layout that the options of a train command describe; labels are the last column by default, or upos."""
    if path is None:
        return Layout("columns", _numbers(columns) if columns else [0, 1], int(label) if label else 2, " ")
    chosen = guess_format(path, format)
    if chosen == FileFormat.conllu:
        return Layout("conllu", columns.split(",") if columns else ["form"], label or "upos")
    if chosen == FileFormat.crfsuite:
        return Layout("crfsuite", [], None)
    if chosen == FileFormat.text:
        raise DataError(f"{path}: plain text has no labels to learn from: a column or CoNLL-U file is wanted.")
    return Layout("columns", _numbers(columns) if columns else [], int(label) if label else -1, separator)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise DataError(f"--columns must be numbers separated by commas, such as 0,1, got {text!r}.") from None


def read_labelled(path: str | None, layout: Layout) -> "tuple[Corpus | AttributeCorpus, list[list[str]]]":
    """Features' columns and labels of a file (of the bundled training part without one)."""
    from trelliswork.data import bundled

    if path is None or path in bundled.SPLITS:
        return _bundled_labelled(path or "train", layout)
    if layout.format == "crfsuite":
        from trelliswork.data import read_crfsuite

        attributes = read_crfsuite(path)
        ends = attributes.offsets.tolist()
        return attributes, [attributes.labels[a:b] for a, b in pairwise(ends)]
    corpus = _read(path, layout, [*layout.columns, layout.label] if layout.columns else [], keep_lines=False)
    n_columns = len(corpus.columns)
    if layout.format == "columns" and not layout.columns:
        if n_columns < 2:
            raise DataError(f"{path}: one column only: words and labels are wanted, or choose --columns and --label.")
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
    """The same for several layers of labels: the last columns by default, or the CoNLL-U columns of their names."""
    chosen = FileFormat.columns if path is None else guess_format(path, format)
    if labels is not None and len(labels.split(",")) != len(layers):
        raise DataError(f"--labels must name a column for each of the layers {', '.join(layers)}, got {labels!r}.")
    if chosen == FileFormat.conllu:
        return Layout("conllu", columns.split(",") if columns else ["form"], labels.split(",") if labels else layers)
    if chosen != FileFormat.columns:
        raise DataError(f"{path}: layers of labels stand in a column or CoNLL-U file; a {chosen} file has none.")
    last: list[Any] = list(range(-len(layers), 0))
    if path is None:
        last = list(range(3 - len(layers), 3))  # the bundled corpus: words, tags, chunks
        return Layout("columns", _numbers(columns) if columns else [0], _numbers(labels) if labels else last, " ")
    return Layout("columns", _numbers(columns) if columns else [], _numbers(labels) if labels else last, separator)


def read_layers(path: str | None, layout: Layout) -> "tuple[Corpus, list[list[list[str]]]]":
    """Features' columns and the labels of each layer of a file (of the bundled training part without one)."""
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
        raise DataError(f"{path}: {n} columns only: words and {len(layout.label)} layers of labels are wanted.")
    for column in layout.label:
        if not -n <= column < n:
            raise DataError(f"{path}: there is no column {column}: there are {n}, counted from 0.")
    layout.label = [column % n for column in layout.label]
    layout.columns = [c for c in range(n) if c not in layout.label]
    return _select(corpus, layout.columns), [corpus.sentences(column) for column in layout.label]


def words_layout(path: str | None, format: FileFormat, columns: str | None, separator: str | None) -> Layout:
    """The layout of a file of which only words are read: the first of ``columns``, or the first column."""
    chosen = FileFormat.columns if path is None else guess_format(path, format)
    if chosen == FileFormat.text:
        return Layout("text", [], None)
    if chosen == FileFormat.conllu:
        return Layout("conllu", columns.split(",")[:1] if columns else ["form"], None)
    if chosen == FileFormat.crfsuite:
        raise DataError(f"{path}: a file of ready attributes has no words.")
    return Layout("columns", _numbers(columns)[:1] if columns else [0], None, " " if path is None else separator)


def read_words(path: str | None, layout: Layout) -> "Corpus":
    """The words of a file (of the bundled training part without one)."""
    from trelliswork.data import Corpus, bundled, read_text

    if path is None or path in bundled.SPLITS:
        return Corpus.from_sentences([list(s.words) for s in bundled.load(path or "train")])
    return read_text(path) if layout.format == "text" else _read(path, layout, layout.columns, keep_lines=False)


def evaluation_layout(layout: Layout, path: str, format: FileFormat, label: str | None) -> Layout:
    """How the training file was laid out, or what the options say about this one."""
    if label is None and format == FileFormat.auto:
        if layout.label is None and layout.format != "crfsuite":
            raise DataError("the model was trained without labels: --label names the column to compare with.")
        return layout
    chosen = guess_format(path, format) if format != FileFormat.auto else layout.format
    chosen = guess_format(path, FileFormat.auto) if chosen == "text" else chosen
    if chosen == "conllu":
        columns = layout.columns if layout.format == "conllu" else ["form"]
        return Layout("conllu", columns, label or (layout.label if isinstance(layout.label, str) else "upos"))
    columns = layout.columns if layout.format == "columns" else [0]
    return Layout("columns", columns, _numbers(label)[0] if label else layout.label, layout.separator)


def labelled_parts(path: str | None, layout: Layout, n_sentences: int) -> "Iterator[tuple[Corpus, list[list[str]]]]":
    """The same in parts of so many sentences, of a column file that is too large to be held."""
    from trelliswork.data.columns import column_parts

    if path is None or path == "-" or layout.format != "columns":
        raise DataError("--stream reads a column file several times: name one (not standard input).")
    for part in column_parts(path, n_sentences, separator=layout.separator):
        n_columns = len(part.columns)
        if not layout.columns:
            layout.label %= n_columns
            layout.columns = [c for c in range(n_columns) if c != layout.label]
        for column in [*layout.columns, layout.label]:
            if not -n_columns <= column < n_columns:
                raise DataError(f"{path}: there is no column {column}: there are {n_columns}, counted from 0.")
        yield _select(part, layout.columns), part.sentences(layout.label)


class WordParts:
    """The words of a file in parts of so many sentences, read anew each time they are gone through."""

    def __init__(self, path: str | None, layout: Layout, n_sentences: int) -> None:
        if path is None or path == "-" or layout.format not in ("columns", "text"):
            raise DataError("--stream reads a text or column file several times: name one (not standard input).")
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
    """A file of n numbers, one a line."""
    import numpy as np

    from trelliswork.data.files import open_text

    found = []
    with open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            try:
                found.append(float(line))
            except ValueError:
                raise DataError(f"{path}:{number}: a number is wanted, got {line[:60]!r}.") from None
    if len(found) != n:
        raise DataError(f"{path}: {n} numbers wanted, one for each sentence, got {len(found)}.")
    return np.array(found)


def _bundled_labelled(split: str, layout: Layout) -> "tuple[Corpus, list[list[str]]]":
    """Columns of a part of the bundled corpus: 0 the words, 1 their tags, 2 chunk labels."""
    wide = _bundled(split, [*layout.columns, layout.label])
    return _select(wide, layout.columns), wide.sentences(layout.label)


def _bundled(split: str, wanted: list[Any]) -> "Corpus":
    """All columns of a part of the bundled corpus, if it has those that are wanted."""
    from trelliswork.data import Corpus, bundled

    for column in wanted:
        if column not in range(3):
            raise DataError(f"the bundled corpus has the columns 0 (word), 1 (tag) and 2 (chunk), got {column}.")
    return Corpus.from_sentences([list(zip(s.words, s.tags, s.chunks, strict=True)) for s in bundled.load(split)])


def read_unlabelled(
    path: str, layout: Layout, format: FileFormat, known: str | None = None
) -> "tuple[Corpus | AttributeCorpus, str, list[list[str | None]] | None]":
    """A file to tag, its lines kept, its format, and labels that are known. Labels need not be there."""
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
    """Write CoNLL-U with one column replaced for each of ``columns``; more values go to the first, behind a bar."""
    from io import StringIO

    from trelliswork.data.conllu import write_conllu_with

    if not all(isinstance(column, str) for column in columns):
        raise DataError("the model was trained on a column file: its layers have no names of CoNLL-U columns.")
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
