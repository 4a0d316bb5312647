"""Files of parsers and grammars: treebanks, bracketed trees, and sentences of words or tags."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trelliswork.cli.running import current
from trelliswork.cli.use.loading import check_tokenized
from trelliswork.data.reading import FileFormat, Layout, file_layout, guess_format, read_words
from trelliswork.data.reading.inputs import Inputs
from trelliswork.errors import DataError

if TYPE_CHECKING:
    from trelliswork.data import Corpus, Tree
    from trelliswork.data.conllu import Arcs
    from trelliswork.data.files import Excerpt
    from trelliswork.models import PCFG, DependencyParser

COLUMNS = ("form", "upos", "xpos")  # columns that a parser reads by default
TREE_ENDINGS = (".mrg", ".trees", ".ptb")
TREES = Layout("trees", [], None)


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


def read_treebank(source: Inputs, columns: list[str]) -> "tuple[Corpus, Arcs]":
    """Return columns, and heads with labels, of CoNLL-U files or of a part of the bundled corpus."""
    from trelliswork.data import Corpus
    from trelliswork.data.conllu import read_dependencies

    layout = Layout("conllu", list(columns), None)
    parts = source.parts(partial(read_dependencies, columns=columns), layout, lambda treebank: treebank[0])
    if source.is_one():
        return parts[0]
    return Corpus.joined([X for X, _ in parts], len(columns), source.name), [row for _, y in parts for row in y]


def holds_trees(source: Inputs) -> bool:
    """Return whether files are folders or tree files by their names, or the bundled corpus."""
    if source.part:
        return True
    return all(
        Path(str(file)).is_dir() or str(file).removesuffix(".gz").endswith(TREE_ENDINGS) for file in source.files
    )


def read_gold(source: Inputs, punctuation: bool) -> "list[Tree]":
    """Return trees of files, folders or the bundled corpus, without traces, functions and unary chains.

    Trees may be on several lines, so that files cannot be cut: each process reads all, and keeps its share of them.
    """
    from trelliswork.data import bundled
    from trelliswork.data.trees import prune, read_trees

    options: dict[str, Any] = {"punctuation": punctuation, "functions": False, "unary": False}
    if source.part:
        trees = [prune(sentence.tree, **options) for sentence in bundled.load(source.part)]
        return source.share([tree for tree in trees if tree is not None])
    parts = Inputs(source.files, whole=True).parts(partial(read_trees, **options), TREES)
    return source.share([tree for part in parts for tree in part])


def tokens_of(trees: "list[Tree]", tags: bool, lower: bool) -> list[list[str]]:
    """Return the words of trees, or their tags."""
    if tags:
        return [[node.label for node in tree.preterminals()] for tree in trees]
    return [[word.lower() if lower else word for word in tree.leaves()] for tree in trees]


def read_tokens(
    source: Inputs, format: Any, columns: str | None, *, tags: bool, lower: bool, punctuation: bool
) -> "Corpus":
    """Return the sentences of files: words or tags of trees, a column of column or CoNLL-U files, words of text.

    A file whose name is not that of trees or CoNLL-U is text, unless a column or a format is given. The tags of CoNLL-U
    are XPOS; text of tags is read as it is.
    """
    from trelliswork.data import Corpus

    if format == "trees" or (format == FileFormat.auto and columns is None and holds_trees(source)):
        return replace(
            Corpus.from_sentences(tokens_of(read_gold(source, punctuation), tags, lower)), source=source.name
        )
    if columns is None:
        format = read_format(source, format)
    if tags and columns is None and guess_format(source, format) == FileFormat.conllu:
        columns = "xpos"
    corpus = read_words(source, file_layout(source, format, columns, words=True, labeled=False))
    return in_case(corpus, lower)


def in_case(corpus: "Corpus", lower: bool) -> "Corpus":
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


def read_format(source: Inputs, format: FileFormat) -> FileFormat:
    """Return the format in which `read_tokens` reads files other than trees if no column is given."""
    if format == FileFormat.auto and guess_format(source, format) != FileFormat.conllu:
        return FileFormat.text
    return guess_format(source, format)


def reading_of(grammar: "PCFG") -> dict[str, Any]:
    """Return the options with which the training file was read."""
    return {name: bool(grammar.input_.get(name, False)) for name in ("tags", "lower", "punctuation")}
