"""``trelliswork parse``, and ``evaluate`` for parsers."""

import io
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TextIO

import typer

from trelliswork.cli.corpora import FileFormat, Layout, guess_format, naming_lines, place
from trelliswork.cli.inputs import Inputs
from trelliswork.cli.options import OutputOption, TokenizeOption, TokenizerOption, chosen_tokenizer
from trelliswork.cli.running import alone, current
from trelliswork.cli.use.constituents import parse_constituents
from trelliswork.cli.use.loading import check_tokenized
from trelliswork.cli.use.parse_output import add_subtrees, parses, tag_cells, write_conllu, write_json, write_text
from trelliswork.cli.use.sharing import collected, write_outputs
from trelliswork.errors import DataError

if TYPE_CHECKING:
    from trelliswork.data import Corpus
    from trelliswork.models import DependencyParser

COLUMNS = ("form", "upos", "xpos")  # columns that a parser reads by default


class Decoding(StrEnum):
    """How a tree is chosen; see ``DependencyParser.predict``."""

    posterior = "posterior"
    viterbi = "viterbi"
    mbr_las = "mbr-las"


def parse(
    model: Annotated[str, typer.Argument(help="Directory of a saved parser.")],
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Files to parse, plain or gzip. Default: standard input, '-'.", show_default=False),
    ] = None,
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
    decode: Annotated[
        Decoding | None,
        typer.Option(
            help="posterior: most expected correct heads. viterbi: most probable tree. mbr-las: most expected words "
            "with correct head and label.",
            show_default="posterior",
        ),
    ] = None,
    subtrees: Annotated[
        bool,
        typer.Option(
            "--subtrees",
            help="Add the probability that all arcs below a word are those of the tree to MISC: SubtreeProb=0.93; with "
            "--json also that of the whole tree.",
        ),
    ] = False,
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
    tokenize: TokenizeOption = False,
    tokenizer: TokenizerOption = None,
    out: OutputOption = "-",
) -> None:
    """Parse files: CoNLL-U in, CoNLL-U out, with heads and labels replaced.

    The default is the tree with the most expected correct arcs; --decode chooses another. --topk gives the most
    probable trees, each with its probability in a comment. --constituents and a PCFG give the bracketing with the most
    expected constituents.

    With --tokenize the input is raw text; MISC has SpaceAfter=No and the place of each token, TokenRange=START:STOP.

    Example: echo 'We parse words .' | trelliswork parse parser --format text
    """
    source = Inputs.of(files, stdin=True)
    split = chosen_tokenizer(tokenize, tokenizer, format)
    if constituents and split is not None:
        raise typer.BadParameter("--tokenize is for dependencies: leave --constituents out.")
    if constituents:
        if marginals or subtrees or known or json or topk is not None or decode is not None:
            raise typer.BadParameter(
                "--marginals, --subtrees, --topk, --decode, --known and --json are for dependencies: leave "
                "--constituents out."
            )
        parse_constituents(model, source, out, format=format)
        return
    if topk is not None and marginals:
        raise typer.BadParameter("--topk prints probabilities of trees, --marginals those of arcs: choose one.")
    if topk is not None and decode is not None:
        raise typer.BadParameter("--topk gives the most probable trees, --decode chooses one: leave one out.")
    if json and marginals:
        raise typer.BadParameter("--json includes the probabilities of arcs: leave --marginals out.")
    if subtrees and (known or topk is not None):
        raise typer.BadParameter("--subtrees is for one tree without known heads: leave --topk and --known out.")
    parser = _load_parser(model)
    if decode == Decoding.mbr_las and parser.labels_ is None:
        raise DataError(f"{model}: --decode mbr-las needs labels, and this parser has none.")
    chosen = _format(source, format) if split is None else FileFormat.text
    if chosen == FileFormat.text:
        if parser.tagger is None:
            raise DataError(
                f"{source}: plain text has no tags, and this parser has no tagger: train it with --tagger crf."
            )
        if known:
            raise typer.BadParameter("--known reads the heads of a CoNLL-U file; plain text has none.")
    elif chosen != FileFormat.conllu:
        raise DataError(f"{source}: expected a CoNLL-U or text file; use --format conllu or --format text.")
    options = Options(chosen == FileFormat.text, known, topk, decode, marginals, subtrees, json, split)
    work = partial(_parse_one, parser, options)
    write_outputs(source, out, work, blank_lines=chosen != FileFormat.text or split is not None)


class Options(NamedTuple):
    """Options of ``parse`` that concern each file."""

    is_text: bool
    known: bool
    topk: int | None
    decode: Decoding | None
    marginals: bool
    subtrees: bool
    json: bool
    split: Any = None  # a tokenizer of raw text


def _parse_one(parser: "DependencyParser", options: Options, source: Inputs, out: TextIO) -> int:
    """Write the trees of a file, or of a part of it; return the number of sentences."""
    is_text, known, topk, decode, marginals, subtrees, json, split = options
    from trelliswork.data import Corpus, read_text
    from trelliswork.data.conllu import read_conllu, read_dependencies
    from trelliswork.data.tokenize import read_raw_text
    from trelliswork.models.parser.scoring import NoTreeError

    (file,), columns = source.files, columns_of(parser)
    has_tagger = parser.tagger is not None
    evidence: Any = None
    corpus: Corpus
    if split is not None:
        corpus = read_raw_text(file, split=split, allow_empty=source.allow_empty)
    elif is_text:
        corpus = read_text(file, allow_empty=source.allow_empty)
        check_tokenized(parser, corpus)
    else:
        selected = columns[:1] if has_tagger else columns
        if known:
            corpus, evidence, _ = read_dependencies(file, columns=selected, allow_empty=source.allow_empty)
        else:
            corpus = read_conllu(file, columns=selected, keep_lines=True, allow_empty=source.allow_empty)
        if not has_tagger:
            check_tags(corpus, columns, source.name)
    plain = Corpus(corpus.columns[: 1 if has_tagger else None], corpus.offsets)
    try:
        with naming_lines(file, corpus=corpus):
            results = list(parses(parser, plain, evidence, topk, decode or Decoding.posterior)) if len(corpus) else []
            if subtrees:
                add_subtrees(parser, plain, results)
    except NoTreeError as error:
        at = place(corpus, int(corpus.offsets[error.sentence]), file)
        raise DataError(
            f"{at}: no tree of this parser's kind has all known heads of the sentence: mark some as unknown (_), or "
            "leave --known out."
        ) from None
    tags = tag_cells(parser, plain, columns) if has_tagger and not json and len(corpus) else None
    if json:
        write_json(corpus, results, topk is not None, out)
    elif corpus.lines is None:
        write_text(corpus, results, tags, marginals, out)
    else:
        write_conllu(corpus, results, tags, marginals, out)
    return len(corpus)


def _format(source: Inputs, format: FileFormat) -> FileFormat:
    """Return the given format, or that of the names of files; standard input is CoNLL-U."""
    if format != FileFormat.auto:
        return format
    if all(str(file).removesuffix(".gz").endswith(".txt") for file in source.files):
        return FileFormat.text
    return FileFormat.conllu if source.files == ("-",) else guess_format(source, format)


def columns_of(parser: "DependencyParser") -> list[str]:
    """Return the columns of CoNLL-U that a parser reads."""
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
    return [name for name, tags in named if not current().any(any(tag != "_" for tag in tags))]


def check_tags(corpus: "Corpus", columns: list[str], file: str) -> None:
    """Raise an error if a column of tags is empty, since the parser needs them."""
    empty = empty_tags(corpus, columns)
    for name in empty if len(corpus) else []:
        raise DataError(
            f"{file}: no tags: the column {name}, which this parser needs, is empty (_) throughout. Tag the file "
            "first, or train the parser to tag words itself (--tagger crf) or without this column (--columns)."
        )


def read_treebank(
    source: Inputs, columns: list[str]
) -> "tuple[Corpus, list[list[int | None]], list[list[str | None]]]":
    """Return columns, heads and labels of CoNLL-U files, or of a part of the bundled corpus."""
    from trelliswork.data import Corpus, bundled
    from trelliswork.data.conllu import COLUMNS, read_dependencies
    from trelliswork.data.writers import write_conllu

    if source.part:
        sentences, text = source.share(bundled.load(source.part)), io.StringIO()
        write_conllu(sentences, text)
        rows = [line.split("\t") for line in text.getvalue().splitlines() if line and line[0] != "#"]
        flat = iter([[row[COLUMNS.index(name)] for name in columns] for row in rows])
        corpus = Corpus.from_sentences([[next(flat) for _ in s.words] for s in sentences])
        return corpus, [list(s.heads) for s in sentences], [list(s.relations) for s in sentences]
    parts = source.parts(
        partial(read_dependencies, columns=columns), blank_lines=True, sentences=lambda treebank: treebank[0]
    )
    if source.is_one():
        return parts[0][1]
    corpus = Corpus.joined([read for _, (read, _, _) in parts], len(columns), source.name)
    heads = [row for _, (_, rows, _) in parts for row in rows]
    return corpus, heads, [row for _, (_, _, rows) in parts for row in rows]


def evaluate_parser(
    parser: "DependencyParser", source: Inputs, format: FileFormat, label: str | None, decode: str | None = None
) -> tuple[Any, tuple[Any, ...]] | None:
    """Compare a parser with the trees of CoNLL-U files; return the report, the sentences, heads and labels.

    In a group of processes, rank 0 returns the report and its own sentences, others nothing.
    """
    if format not in (FileFormat.auto, FileFormat.conllu) or label is not None:
        raise typer.BadParameter(
            "a parser is compared with heads and labels of a CoNLL-U file: no --format or --label."
        )
    columns = columns_of(parser)
    corpus, heads, labels = read_treebank(source, columns)
    if parser.tagger is None:
        check_tags(corpus, columns, source.name)
    known = current().any(any(name is not None for row in labels for name in row))
    with naming_lines(source, Layout("conllu", ["form"], None), corpus):
        _check_complete(heads, labels if known else [])
        with alone():
            complete: Any = heads
            chosen: Any = decode or Decoding.posterior.value
            given = labels if known else None
            judged: Any = ([], [], [])
            if len(corpus):
                judged = parser.parse_judged(corpus, complete, given, decoding=chosen)
    rows = collected([list(row) for row in zip(heads, labels, *judged, strict=True)])
    if current().rank > 0:
        return None
    gold: Any = [[row[k] for row in rows] for k in range(5)]
    return parser.compared(gold[0], gold[1] if known else None, *gold[2:]), (corpus, heads, labels)


def _check_complete(heads: list[list[int | None]], labels: list[list[str | None]]) -> None:
    """Raise an error for a word without a head, or without a label if there are any."""
    for what, given, advice in (
        ("head", heads, "but evaluation needs complete trees."),
        ("label", labels, "but other words have one: add it, or remove all labels."),
    ):
        rows: Any = given
        for n, row in enumerate(rows):
            if None in row:
                raise DataError(f"the word has no {what} (_), {advice}").at(n, row.index(None))
