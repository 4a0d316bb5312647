"""``trelliswork parse``: parse files with a saved parser or grammar."""

from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TextIO

import typer

from trelliswork.cli.inputs import AWAITED, inputs_of, say_what_is_awaited
from trelliswork.cli.options import OutputOption, TokenizeOption, TokenizerOption, bundled_option, chosen_tokenizer
from trelliswork.cli.running import current
from trelliswork.cli.use.constituents import parse_constituents
from trelliswork.cli.use.loading import check_tokenized, class_of, load_for
from trelliswork.cli.use.output import (
    Form,
    FormOption,
    Objects,
    trees_of,
    wanted,
    with_option,
    write_conllu,
    write_trees,
)
from trelliswork.cli.use.parts import answer_parts
from trelliswork.cli.use.sharing import write_outputs
from trelliswork.data.reading import FileFormat, Layout, guess_format
from trelliswork.data.reading.inputs import Inputs
from trelliswork.errors import DataError

if TYPE_CHECKING:
    from trelliswork.answers import Want
    from trelliswork.data import Corpus
    from trelliswork.data.files import Excerpt
    from trelliswork.models import DependencyParser

COLUMNS = ("form", "upos", "xpos")  # columns that a parser reads by default
UNTAGGED = 5000  # words without tags after which a file is taken to have none


class Decoding(StrEnum):
    """How a tree is chosen; see ``DependencyParser.predict``."""

    mbr = "mbr"
    viterbi = "viterbi"
    mbr_las = "mbr-las"


def parse(
    model: Annotated[str, typer.Argument(help="Directory of a saved parser or grammar.")],
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Files to parse, plain or gzip. Default: standard input, '-'.", show_default=False),
    ] = None,
    bundled: Annotated[bool, bundled_option("test")] = False,
    format: Annotated[
        FileFormat,
        typer.Option(help="conllu, or text (one sentence per line; .txt files), which needs a parser with a tagger."),
    ] = FileFormat.auto,
    with_: Annotated[
        str | None,
        with_option(
            "marginals, the probability of each arc (in MISC: ArcProb=0.98), or of the spans of the tree of a grammar "
            "(0:3:0.98: first word from 0, the one after the last, probability); subtrees, the probability that all "
            "arcs below a word are those of the tree (SubtreeProb=0.93), and that of the tree; topk=K, the K most "
            "probable trees."
        ),
    ] = None,
    output: FormOption = None,
    decode: Annotated[
        Decoding | None,
        typer.Option(
            "--decoding",
            help="mbr: most expected correct heads, or spans of a grammar. viterbi: most probable tree. mbr-las: "
            "most expected words with correct head and label.",
            show_default="mbr",
        ),
    ] = None,
    known: Annotated[
        bool, typer.Option("--known-heads", help="Use the heads in the file as known; _ means unknown.")
    ] = False,
    tokenize: TokenizeOption = False,
    tokenizer: TokenizerOption = None,
    out: OutputOption = "-",
) -> None:
    """Parse files: CoNLL-U in, CoNLL-U out, with heads and labels replaced; by a grammar (PCFG), bracketed trees.

    The default is the tree with the most expected correct arcs; --decoding chooses another. --with topk=K gives the
    most probable trees, each with its probability in a comment. A grammar reads text, CoNLL-U or trees as in training,
    and writes one bracketing per line, that with the most expected constituents.

    Sentences are written while others are read, in bounded memory; a pipe gets what was parsed when no more input has
    arrived.

    With --tokenize the input is raw text; MISC has SpaceAfter=No and the place of each token, TokenRange=START:STOP.

    Example: echo 'We parse words .' | trelliswork parse parser --format text
    """
    from trelliswork.models.tasks import TreeParser

    want = wanted(with_, ("marginals", "subtrees", "topk"))
    source = inputs_of(files, bundled, stdin=True)
    split = chosen_tokenizer(tokenize, tokenizer, format)
    if getattr(class_of(model), "constituents", False):
        if want.subtrees or want.topk or known or decode == Decoding.mbr_las:
            raise typer.BadParameter(
                "this model is a grammar: --with subtrees, topk=K, --known-heads, --decoding mbr-las are for parsers."
            )
        if output in (Form.columns, Form.conllu):
            raise typer.BadParameter("a grammar writes bracketed trees, or JSON: choose --output jsonl or json.")
        parse_constituents(model, source, out, format=format, decode=decode, want=want, form=output, split=split)
        return
    if want.topk and decode is not None:
        raise typer.BadParameter("--with topk=K gives the most probable trees, --decoding chooses one: leave one out.")
    if want.subtrees and (known or want.topk):
        raise typer.BadParameter(
            "--with subtrees is for one tree without known heads: leave topk=K, --known-heads out."
        )
    parser = load_for(model, TreeParser, "parse: expected a parser (trelliswork train parser or pcfg)")
    if decode == Decoding.mbr_las and parser.labels_ is None:
        raise DataError(f"{model}: --decoding mbr-las needs labels, and this parser has none.")
    chosen = _format(source, format) if split is None else FileFormat.text
    if chosen == FileFormat.text:
        if parser.tagger is None:
            raise DataError(
                f"{source}: plain text has no tags, and this parser has no tagger: train it with --tagger crf."
            )
        if known:
            raise typer.BadParameter("--known-heads reads the heads of a CoNLL-U file; plain text has none.")
    elif chosen != FileFormat.conllu:
        raise DataError(f"{source}: expected a CoNLL-U or text file; use --format conllu or --format text.")
    say_what_is_awaited(source, AWAITED["raw" if split is not None else str(chosen)])
    if want.subtrees:
        want = replace(want, log_prob=True)
    decoding = None if decode is None else decode.value
    options = Options(parser, str(chosen), known, decoding, want, output or Form.conllu, split)
    write_outputs(source, out, partial(_parse_one, options))


class Options(NamedTuple):
    """What concerns each file: the parser, the format of the file, and options of ``parse``."""

    parser: "DependencyParser"
    format: str
    known: bool
    decoding: str | None
    want: "Want"
    form: Form
    split: Any = None  # a tokenizer of raw text


def _parse_one(options: Options, source: Inputs, out: TextIO) -> int:
    """Write the trees of a file, or of a share of it, part by part; return the number of sentences."""
    parser = options.parser
    objects = Objects(out, options.form) if options.form.has_objects else None

    def read(part: "Excerpt", may_be_empty: bool) -> "tuple[Corpus, Any] | None":
        corpus, evidence = _read_part(options, part, may_be_empty)
        if corpus.lines is not None and parser.tagger is None and not part.notes.get("tagged"):
            if empty_tags(corpus, columns_of(parser)) and not part.last and corpus.n_tokens < UNTAGGED:
                return None  # tags may follow
            check_tags(corpus, columns_of(parser), str(part))
            part.notes["tagged"] = len(corpus) > 0
        return corpus, evidence

    def write(part: "Excerpt", corpus: "Corpus", evidence: Any) -> None:
        _write_part(options, part, corpus, evidence, objects, out)

    n = answer_parts(source, options.format, options.split, parser, read, write, out)
    if objects is not None:
        objects.close()
    return n


def _read_part(options: Options, part: "Excerpt", may_be_empty: bool) -> "tuple[Corpus, Any]":
    """Return the sentences of a part, and the known heads."""
    from trelliswork.data import read_text
    from trelliswork.data.conllu import read_conllu, read_dependencies
    from trelliswork.data.tokenize import read_raw_text

    parser = options.parser
    if options.split is not None:
        return read_raw_text(part, split=options.split, allow_empty=may_be_empty), None
    if options.format == FileFormat.text:
        corpus = read_text(part, allow_empty=may_be_empty)
        check_tokenized(parser, corpus, part)
        return corpus, None
    selected = columns_of(parser) if parser.tagger is None else columns_of(parser)[:1]
    if options.known:
        corpus, evidence, _ = read_dependencies(part, columns=selected, allow_empty=may_be_empty)
        return corpus, evidence
    return read_conllu(part, columns=selected, keep_lines=True, allow_empty=may_be_empty), None


def _write_part(
    options: Options, part: "Excerpt", corpus: "Corpus", evidence: Any, objects: Objects | None, out: TextIO
) -> None:
    """Write the trees of a part."""
    from trelliswork.answers import ask
    from trelliswork.data import Corpus
    from trelliswork.data.conllu import COLUMNS
    from trelliswork.models.parser.scoring import NoTreeError

    parser, form = options.parser, options.form
    plain = Corpus(corpus.columns[: 1 if parser.tagger is not None else None], corpus.offsets)
    try:
        answers = ask(parser, plain, options.want, decoding=options.decoding, known=evidence)
    except NoTreeError as error:
        at = corpus.place(error.sentence or 0) or part
        raise DataError(
            f"{at}: no tree of this parser's kind has all known heads of the sentence: mark some as unknown (_), or "
            "leave --known-heads out."
        ) from None
    if objects is not None:
        objects.write(answers, corpus)
        return
    versions = [trees_of(answer, options.want) for answer in answers]
    if form == Form.columns:
        write_trees(corpus, versions, out)
        return
    if parser.tagger is not None and answers:
        names = [COLUMNS.index(name) for name in columns_of(parser)[1:]]
        tags = [dict(zip(names, row, strict=True)) for row in zip(*parser.tag(plain), strict=True)]
        for start, some in zip(corpus.offsets.tolist(), versions, strict=False):
            some[:] = [(text, [tags[start + t] | row for t, row in enumerate(rows)]) for text, rows in some]
    write_conllu(corpus, versions, out)


def _format(source: Inputs, format: FileFormat) -> FileFormat:
    """Return the given format, or that of the names of files; standard input is CoNLL-U."""
    if format != FileFormat.auto:
        return format
    if all(str(file).removesuffix(".gz").endswith(".txt") for file in source.files):
        return FileFormat.text
    return FileFormat.conllu if source.files == ("-",) or source.part else guess_format(source, format)


def columns_of(parser: "DependencyParser") -> list[str]:
    """Return the columns of CoNLL-U that a parser reads."""
    return list(parser.input_.get("columns") or COLUMNS)


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
    from trelliswork.data import Corpus
    from trelliswork.data.conllu import read_dependencies

    layout = Layout("conllu", list(columns), None)
    parts = source.parts(partial(read_dependencies, columns=columns), layout, lambda treebank: treebank[0])
    if source.is_one():
        return parts[0]
    corpus = Corpus.joined([read for read, _, _ in parts], len(columns), source.name)
    return corpus, [row for _, rows, _ in parts for row in rows], [row for _, _, rows in parts for row in rows]
