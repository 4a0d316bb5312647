"""``trelliswork parse``, and ``evaluate`` for parsers."""

import io
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.cli.corpora import FileFormat, bundled_part, guess_format, naming_lines, place
from trelliswork.cli.use.constituents import parse_constituents
from trelliswork.cli.use.loading import check_tokenized
from trelliswork.cli.use.parse_output import parses, tag_cells, write_conllu, write_json, write_text
from trelliswork.errors import DataError

if TYPE_CHECKING:
    from trelliswork.data import Corpus
    from trelliswork.models import DependencyParser

COLUMNS = ("form", "upos", "xpos")  # columns that a parser reads by default


def parse(
    model: Annotated[str, typer.Argument(help="Directory of a saved parser.")],
    file: Annotated[str, typer.Argument(help="File to parse; '-' is standard input.")] = "-",
    format: Annotated[
        FileFormat,
        typer.Option(help="conllu, or text (one sentence per line; .txt files), which needs a parser with a tagger."),
    ] = FileFormat.auto,
    marginals: Annotated[
        bool, typer.Option("--marginals", help="Add the probability of each arc to MISC: ArcProb=0.98.")
    ] = False,
    topk: Annotated[
        int | None,
        typer.Option(min=1, help="Number of most probable trees per sentence.", show_default="minimum-risk tree"),
    ] = None,
    known: Annotated[
        bool, typer.Option("--known", help="Use the heads in the file as known; _ means unknown.")
    ] = False,
    constituents: Annotated[
        bool, typer.Option("--constituents", help="Parse into constituents with a PCFG: one bracketed tree per line.")
    ] = False,
    json: Annotated[
        bool,
        typer.Option("--json", help="One JSON object per sentence and line: words, heads, labels, arc probabilities."),
    ] = False,
    out: Annotated[str, typer.Option("--out", "-o", help="Output file instead of standard output.")] = "-",
) -> None:
    """Parse a file: CoNLL-U in, CoNLL-U out, with heads and labels replaced.

    The default is the tree with the most expected correct arcs. --topk gives the most probable trees, each with its
    probability in a comment. --constituents and a PCFG give the bracketing with the most expected constituents.

    Example: echo 'We parse words .' | trelliswork parse parser --format text
    """
    from trelliswork.data import Corpus, read_text
    from trelliswork.data.conllu import read_conllu, read_dependencies
    from trelliswork.data.files import atomic_write
    from trelliswork.models.parser.scoring import NoTreeError

    if constituents:
        if marginals or known or json or topk is not None:
            raise typer.BadParameter(
                "--marginals, --topk, --known and --json are for dependencies: leave --constituents out."
            )
        parse_constituents(model, file, out, format=format)
        return
    if topk is not None and marginals:
        raise typer.BadParameter("--topk prints probabilities of trees, --marginals those of arcs: choose one.")
    if json and marginals:
        raise typer.BadParameter("--json includes the probabilities of arcs: leave --marginals out.")
    parser = _load_parser(model)
    chosen = _format(file, format)
    columns = _columns(parser)
    has_tagger = parser.tagger is not None
    evidence: Any = None
    if chosen == FileFormat.text:
        if not has_tagger:
            raise DataError(
                f"{file}: plain text has no tags, and this parser has no tagger: train it with --tagger crf."
            )
        if known:
            raise typer.BadParameter("--known reads the heads of a CoNLL-U file; plain text has none.")
        corpus = read_text(file)
        check_tokenized(parser, corpus)
    elif chosen == FileFormat.conllu:
        selected = columns[:1] if has_tagger else columns
        if known:
            corpus, evidence, _ = read_dependencies(file, columns=selected)
        else:
            corpus = read_conllu(file, columns=selected, keep_lines=True)
        if not has_tagger:
            check_tags(corpus, columns, file)
    else:
        raise DataError(f"{file}: expected a CoNLL-U or text file; use --format conllu or --format text.")
    plain = Corpus(corpus.columns[: 1 if has_tagger else None], corpus.offsets)
    try:
        with naming_lines(file, corpus=corpus):
            results = list(parses(parser, plain, evidence, topk))
    except NoTreeError as error:
        at = place(corpus, int(corpus.offsets[error.sentence]), file)
        raise DataError(
            f"{at}: no tree of this parser's kind has all known heads of the sentence: mark some as unknown (_), or "
            "leave --known out."
        ) from None
    tags = tag_cells(parser, plain, columns) if has_tagger and not json else None
    with atomic_write(out) as stream:
        if json:
            write_json(corpus, results, topk is not None, stream)
        elif corpus.lines is None:
            write_text(corpus, results, tags, marginals, stream)
        else:
            write_conllu(corpus, results, tags, marginals, stream)


def _format(file: str, format: FileFormat) -> FileFormat:
    """Return the given format, or that of the file's name; standard input is CoNLL-U."""
    if format != FileFormat.auto:
        return format
    if file.removesuffix(".gz").endswith(".txt"):
        return FileFormat.text
    return FileFormat.conllu if file == "-" else guess_format(file, format)


def _columns(parser: "DependencyParser") -> list[str]:
    return list(parser.input_.get("columns") or COLUMNS)


def _load_parser(path: str) -> "DependencyParser":
    """Return a saved parser; raise an error for another kind of model."""
    from trelliswork.models import DependencyParser, load

    model = load(path)
    if not isinstance(model, DependencyParser):
        raise DataError(f"{path}: expected a parser (trelliswork train parser), got a model of kind {model.kind!r}.")
    return model


def empty_tags(corpus: "Corpus", columns: list[str]) -> list[str]:
    """Return the names of the columns of tags that are empty (_) throughout."""
    named = zip(columns[1:], corpus.columns[1:], strict=True)
    return [name for name, tags in named if all(tag == "_" for tag in tags)]


def check_tags(corpus: "Corpus", columns: list[str], file: str) -> None:
    """Raise an error if a column of tags is empty, since the parser needs them."""
    for name in empty_tags(corpus, columns):
        raise DataError(
            f"{file}: no tags: the column {name}, which this parser needs, is empty (_) throughout. Tag the file "
            "first, or train the parser to tag words itself (--tagger crf) or without this column (--columns)."
        )


def read_treebank(
    path: str | None, columns: list[str]
) -> "tuple[Corpus, list[list[int | None]], list[list[str | None]]]":
    """Return columns, heads and labels of a CoNLL-U file, or of a part of the bundled corpus (default: train)."""
    from trelliswork.data import Corpus, bundled
    from trelliswork.data.conllu import COLUMNS, read_dependencies
    from trelliswork.data.writers import write_conllu

    part = bundled_part(path)
    if part is None:
        return read_dependencies(str(path), columns=columns)
    sentences, text = bundled.load(part), io.StringIO()
    write_conllu(sentences, text)
    rows = [line.split("\t") for line in text.getvalue().splitlines() if line and line[0] != "#"]
    flat = iter([[row[COLUMNS.index(name)] for name in columns] for row in rows])
    corpus = Corpus.from_sentences([[next(flat) for _ in s.words] for s in sentences])
    return corpus, [list(s.heads) for s in sentences], [list(s.relations) for s in sentences]


def evaluate_parser(
    parser: "DependencyParser", file: str, format: FileFormat, label: str | None
) -> tuple[Any, tuple[Any, ...]]:
    """Compare a parser with the trees of a CoNLL-U file; return the report, the sentences, heads and labels."""
    from trelliswork.models.parser.data import pairs

    if format not in (FileFormat.auto, FileFormat.conllu) or label is not None:
        raise typer.BadParameter(
            "a parser is compared with heads and labels of a CoNLL-U file: no --format or --label."
        )
    columns = _columns(parser)
    corpus, heads, labels = read_treebank(file, columns)
    if parser.tagger is None:
        check_tags(corpus, columns, file)
    flat_heads, flat_labels = ([x for row in rows for x in row] for rows in (heads, labels))
    if None in flat_heads:
        at = place(corpus, flat_heads.index(None), file)
        raise DataError(f"{at}: the word has no head (_), but evaluation needs complete trees.")
    known = any(name is not None for name in flat_labels)
    if known and None in flat_labels:
        at = place(corpus, flat_labels.index(None), file)
        raise DataError(f"{at}: the word has no label (_), but other words have one: add it, or remove all labels.")
    with naming_lines(file, corpus=corpus):
        return parser.evaluate(corpus, pairs(heads, labels if known else None)), (corpus, heads, labels)
