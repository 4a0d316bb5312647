"""``trelliswork parse``: parse files with a saved parser or grammar."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from trelliswork.cli.inputs import inputs_of
from trelliswork.cli.options import (
    DecodingOption,
    Files,
    OutputOption,
    TokenizeOption,
    TokenizerOption,
    bundled_option,
    chosen_tokenizer,
    leave_out,
    named,
)
from trelliswork.cli.treebanks import (
    check_tags,
    check_tokens,
    columns_of,
    empty_tags,
    holds_trees,
    in_case,
    read_format,
    read_tokens,
    reading_of,
)
from trelliswork.cli.use.loading import check_tokenized, load_for
from trelliswork.cli.use.output import Form, FormOption, trees_of, wanted, with_option, write_conllu, write_trees
from trelliswork.cli.use.streaming import answer_files
from trelliswork.data.reading import FileFormat, guess_format
from trelliswork.data.reading.inputs import Inputs
from trelliswork.errors import DataError

if TYPE_CHECKING:
    from trelliswork.answers import Answer, Want
    from trelliswork.data import Corpus
    from trelliswork.data.files import Excerpt
    from trelliswork.models import PCFG, DependencyParser

UNTAGGED = 5000  # words without tags after which a file is taken to have none


def parse(
    model: Annotated[str, typer.Argument(help="Directory of a saved parser or grammar.")],
    files: Annotated[Files, named("Files to parse, plain or gzip. Default: standard input, '-'.")] = None,
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
    decode: DecodingOption = None,
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
    fitted = load_for(model, TreeParser, "parse: expected a parser (trelliswork train parser or pcfg)")
    if fitted.constituents:
        if want.subtrees or want.topk or known:
            raise typer.BadParameter(
                "this model is a grammar: --with subtrees, --with topk=K and --known-heads are for parsers."
            )
        if output in ("columns", "conllu"):
            raise typer.BadParameter("a grammar writes bracketed trees, or JSON: choose --output jsonl or json.")
        if split is not None and reading_of(fitted)["tags"]:
            raise DataError(f"{model}: this grammar was trained on tags, which raw text does not have. Give it tags.")
        _constituents(fitted, source, out, format, decode, want, output, split)
        return
    if want.topk:
        leave_out("--with topk=K gives the most probable trees", decoding=decode)
    if want.subtrees and (known or want.topk):
        raise typer.BadParameter(
            "--with subtrees is for one tree without known heads: leave topk=K, --known-heads out."
        )
    if decode == "mbr-las" and fitted.labels_ is None:
        raise DataError(f"{model}: --decoding mbr-las needs labels, and this parser has none.")
    chosen = _format(source, format) if split is None else FileFormat.text
    if chosen == FileFormat.text:
        if fitted.tagger is None:
            raise DataError(
                f"{source}: plain text has no tags, and this parser has no tagger: train it with --tagger crf."
            )
        leave_out("plain text has no heads to be known", known_heads=known)
    elif chosen != FileFormat.conllu:
        raise DataError(f"{source}: expected a CoNLL-U or text file; use --format conllu or --format text.")
    if want.subtrees:
        want = replace(want, log_prob=True)
    _dependencies(fitted, source, out, chosen, known, decode, want, output or "conllu", split)


def _dependencies(
    parser: "DependencyParser", source: Inputs, out: str, format: FileFormat, use_heads: bool, decoding: str | None,
    want: "Want", form: Form, split: Any,
) -> None:  # fmt: skip
    """Write the dependency trees of files."""
    from trelliswork.answers import ask
    from trelliswork.data import Corpus, read_text
    from trelliswork.data.conllu import COLUMNS, read_conllu, read_dependencies
    from trelliswork.data.tokenize import read_raw_text
    from trelliswork.models.parser.scoring import NoTreeError

    columns = columns_of(parser)
    selected = columns if parser.tagger is None else columns[:1]

    def words_of(corpus: Corpus) -> Corpus:
        return Corpus(corpus.columns[: len(selected)], corpus.offsets)

    def read(part: "Excerpt") -> "tuple[Corpus, Any] | None":
        if split is not None:
            return read_raw_text(part, split=split), None
        if format == FileFormat.text:
            corpus = read_text(part)
            check_tokenized(parser, corpus, part)
            return corpus, None
        known: Any = None
        if use_heads:
            corpus, trees = read_dependencies(part, columns=selected)
            known = [[head for head, _ in row] for row in trees]
        else:
            corpus = read_conllu(part, columns=selected, keep_lines=True)
        if parser.tagger is None and not part.notes.get("tagged"):
            if empty_tags(corpus, columns) and not part.last and corpus.n_tokens < UNTAGGED:
                return None  # tags may follow
            check_tags(corpus, columns, str(part))
            part.notes["tagged"] = len(corpus) > 0
        return corpus, known

    def answered(corpus: Corpus, known: Any) -> "list[Answer]":
        try:
            return ask(parser, words_of(corpus), want, decoding=decoding, known=known)
        except NoTreeError as error:
            raise DataError(
                "no tree of this parser's kind has all known heads of the sentence: mark some as unknown (_), or leave "
                "--known-heads out."
            ).at(error.sentence or 0, 0) from None

    def write(part: "Excerpt", corpus: Corpus, answers: "list[Answer]", stream: TextIO) -> None:
        versions = [trees_of(answer, want) for answer in answers]
        if form == "columns":
            write_trees(corpus, versions, stream)
            return
        if parser.tagger is not None and answers:
            names = [COLUMNS.index(name) for name in columns[1:]]
            tags = [dict(zip(names, row, strict=True)) for row in zip(*parser.tag(words_of(corpus)), strict=True)]
            for start, some in zip(corpus.offsets.tolist(), versions, strict=False):
                some[:] = [(text, [tags[start + t] | row for t, row in enumerate(rows)]) for text, rows in some]
        write_conllu(corpus, versions, stream)

    how: Any = {"format": str(format), "split": split, "form": form}
    answer_files(source, out, parser, **how, read=read, answered=answered, write=write)


def _format(source: Inputs, format: FileFormat) -> FileFormat:
    """Return the given format, or that of the names of files; standard input is CoNLL-U."""
    if format != FileFormat.auto:
        return format
    if all(str(file).removesuffix(".gz").endswith(".txt") for file in source.files):
        return FileFormat.text
    return FileFormat.conllu if source.files == ("-",) or source.part else guess_format(source, format)


def _constituents(
    grammar: "PCFG", source: Inputs, out: str, format: FileFormat, decoding: str | None, want: "Want",
    form: Form | None, split: Any,
) -> None:  # fmt: skip
    """Write the tree of each sentence as a bracketing; with marginals a second column has those of its spans.

    Files are plain text (of tags, for a grammar of tags), trees or CoNLL-U as in training, or raw text.
    """
    from trelliswork.answers import ask
    from trelliswork.data.tokenize import read_raw_text
    from trelliswork.data.trees import tree_files

    reading = reading_of(grammar)
    if split is not None:
        kind = "text"
    elif format == FileFormat.auto and holds_trees(source):
        kind = "trees"
        source = Inputs(tuple(file for given in source.files for file in tree_files(given)))
    else:
        kind = str(read_format(source, format))

    def read(part: "Excerpt") -> tuple["Corpus", None]:
        if split is not None:
            corpus = in_case(read_raw_text(part, split=split), reading["lower"])
        else:
            corpus = read_tokens(Inputs((part,)), kind, None, **reading)
        check_tokens(grammar, corpus, part)
        return corpus, None

    def answered(corpus: "Corpus", _: None) -> "list[Answer]":
        return ask(grammar, corpus.sentences(0), want, decoding=decoding)

    def write(part: "Excerpt", corpus: "Corpus", answers: "list[Answer]", stream: TextIO) -> None:
        for answer in answers:
            spans = [f"{s.start}:{s.stop}:{p:.6f}" for s, p in answer.spans or ()]
            stream.write("\t".join([str(answer.value), *([" ".join(spans)] if want.marginals else [])]) + "\n")

    how: Any = {"format": kind, "split": split, "form": form}
    answer_files(source, out, grammar, **how, read=read, answered=answered, write=write)
