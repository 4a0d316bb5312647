"""Grammars: their files, and ``parse``."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from trelliswork.cli.inputs import AWAITED, say_what_is_awaited
from trelliswork.cli.running import current
from trelliswork.cli.use.loading import check_tokenized
from trelliswork.cli.use.output import Form, Objects
from trelliswork.cli.use.parts import answer_parts
from trelliswork.cli.use.sharing import write_outputs
from trelliswork.data.reading import FileFormat, Layout, guess_format, naming_lines, read_words, words_layout
from trelliswork.data.reading.inputs import Inputs
from trelliswork.errors import DataError

if TYPE_CHECKING:
    from trelliswork.answers import Want
    from trelliswork.data import Corpus, Tree
    from trelliswork.data.files import Excerpt
    from trelliswork.models.pcfg import PCFG

TREE_ENDINGS = (".mrg", ".trees", ".ptb")
TREES = Layout("trees", [], None)


def holds_trees(source: Inputs) -> bool:
    """Return whether files are folders or tree files by their names, or the bundled corpus."""
    if source.part:
        return True
    return all(
        Path(str(file)).is_dir() or str(file).removesuffix(".gz").endswith(TREE_ENDINGS) for file in source.files
    )


def read_gold(source: Inputs, punctuation: bool) -> "list[Tree]":
    """Return trees of files, folders or the bundled corpus, without traces, functions and unary chains.

    Trees may be on several lines, so that files cannot be cut. Processes share the files if there is one for each;
    otherwise each reads all, and keeps its share of the trees.
    """
    from trelliswork.data import bundled
    from trelliswork.data.trees import prune, read_trees, tree_files

    options: dict[str, Any] = {"punctuation": punctuation, "functions": False, "unary": False}
    if source.part:
        trees = [prune(sentence.tree, **options) for sentence in bundled.load(source.part)]
        return source.share([tree for tree in trees if tree is not None])
    read = partial(read_trees, **options)
    if source.shared:
        files = Inputs(tuple(file for given in source.files for file in tree_files(given)))
        if len(files.files) >= current().size:
            return [tree for part in files.parts(read, TREES) for tree in part]
    parts = Inputs(source.files, whole=True).parts(read, TREES)
    return source.share([tree for part in parts for tree in part])


def tokens_of(trees: "list[Tree]", tags: bool, lower: bool) -> list[list[str]]:
    """Return the words of trees, or their tags."""
    if tags:
        return [[node.label for node in tree.preterminals()] for tree in trees]
    return [[word.lower() if lower else word for word in tree.leaves()] for tree in trees]


def read_tokens(
    source: Inputs, format: FileFormat, columns: str | None, *, tags: bool, lower: bool, punctuation: bool
) -> "Corpus":
    """Return the sentences of files: words or tags of trees, a column of column or CoNLL-U files, words of text.

    A file whose name is not that of trees or CoNLL-U is text, unless a column or a format is given. The tags of CoNLL-U
    are XPOS; text of tags is read as it is.
    """
    from trelliswork.data import Corpus

    if format == FileFormat.auto and columns is None and holds_trees(source):
        return replace(
            Corpus.from_sentences(tokens_of(read_gold(source, punctuation), tags, lower)), source=source.name
        )
    if columns is None:
        format = read_format(source, format)
    if tags and columns is None and guess_format(source, format) == FileFormat.conllu:
        columns = "xpos"
    corpus = read_words(source, words_layout(source, format, columns, None))
    return _in_case(corpus, lower)


def _in_case(corpus: "Corpus", lower: bool) -> "Corpus":
    """Return a corpus of words, in lower case if that is asked for."""
    return replace(corpus, columns=[[word.lower() for word in corpus.columns[0]]]) if lower else corpus


def read_as_trained(grammar: "PCFG", source: Inputs, format: FileFormat) -> "Corpus":
    """Return the sentences of files, read as the training files were; words for a grammar of tags are an error."""
    corpus = read_tokens(source, format, None, **reading_of(grammar))
    check_tokens(grammar, corpus)
    return corpus


def check_tokens(grammar: "PCFG", corpus: "Corpus", part: "Excerpt | None" = None) -> None:
    """Raise an error if a grammar of tags is given words; warn about text that is not tokenized.

    Of a file in parts, the first ones decide.
    """
    from trelliswork.data.files import shorten

    tokens = corpus.columns[0]
    known = grammar.known_words()
    first = part is None or not part.notes.get("sentences")
    if first and reading_of(grammar)["tags"] and 2 * sum(token in known for token in tokens) < len(tokens):
        some, new = " ".join(grammar.vocabulary_[:3]), next(token for token in tokens if token not in known)
        raise DataError(
            f"{corpus.source}: this grammar was trained on tags (train pcfg --tags), such as {some}, and does not "
            f"know most of the tokens here, such as {shorten(new)}. Give it tags: trees, CoNLL-U with XPOS, or text of "
            "tags."
        )
    check_tokenized(grammar, corpus, part)


def parse_constituents(
    model: str,
    source: Inputs,
    out: str = "-",
    *,
    want: "Want",
    format: FileFormat = FileFormat.auto,
    decode: str | None = None,
    form: Form | None = None,
    split: Any = None,
) -> None:
    """Write the tree of each sentence of files as a bracketing, one per line, or as JSON.

    Files are plain text (of tags, for a grammar of tags), or as in training; raw text with ``split``, a tokenizer. With
    ``viterbi``, the trees are the most probable ones instead of those with the most expected spans. With marginals a
    second column has the probabilities of the spans of the tree.
    """
    from trelliswork.answers import ask
    from trelliswork.data.tokenize import read_raw_text
    from trelliswork.models.pcfg import PCFG

    grammar = PCFG.load(model)
    reading = reading_of(grammar)
    if split is not None and reading["tags"]:
        raise DataError(f"{model}: this grammar was trained on tags, which raw text does not have. Give it tags.")
    trees = split is None and format == FileFormat.auto and holds_trees(source)
    kind = FileFormat.text if trees or split is not None else read_format(source, format)
    decoding = "viterbi" if decode == "viterbi" else "mbr"

    def work(one: Inputs, stream: TextIO) -> int:
        objects = Objects(stream, form) if form is not None else None

        def write(part: Any, corpus: "Corpus", _: Any = None) -> None:
            sentences = corpus.sentences(0)
            answers = ask(grammar, sentences, want, decoding=decoding)
            if objects is not None:
                objects.write(answers, sentences)
                return
            for answer in answers:
                spans = [f"{s.start}:{s.stop}:{p:.6f}" for s, p in answer.spans or ()]
                stream.write("\t".join([str(answer.value), *([" ".join(spans)] if want.marginals else [])]) + "\n")

        if trees:  # which may be on several lines
            corpus = read_as_trained(grammar, one, format)
            with naming_lines(one):
                write(one, corpus)
            n = len(corpus)
        else:
            n = answer_parts(one, str(kind), split, grammar, read, write, stream)
        if objects is not None:
            objects.close()
        return n

    def read(part: "Excerpt", may_be_empty: bool) -> tuple["Corpus", None]:
        if split is None:
            corpus = read_tokens(Inputs((part,), allow_empty=may_be_empty), kind, None, **reading)
        else:
            corpus = _in_case(read_raw_text(part, split=split, allow_empty=may_be_empty), reading["lower"])
        check_tokens(grammar, corpus, part)
        return corpus, None

    say_what_is_awaited(source, AWAITED["raw" if split is not None else str(kind)])
    write_outputs(source, out, work)


def read_format(source: Inputs, format: FileFormat) -> FileFormat:
    """Return the format in which `read_tokens` reads files other than trees if no column is given."""
    if format == FileFormat.auto and guess_format(source, format) != FileFormat.conllu:
        return FileFormat.text
    return guess_format(source, format)


def reading_of(grammar: "PCFG") -> dict[str, Any]:
    """Return the options with which the training file was read."""
    return {name: bool(grammar.input_.get(name, False)) for name in ("tags", "lower", "punctuation")}
