"""Commands for grammars: their files, ``parse --constituents`` and ``evaluate``."""

import json as json_module
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trelliswork.cli.corpora import FileFormat, bundled_part, guess_format, naming_lines, read_words, words_layout
from trelliswork.cli.reporting import report_evaluation
from trelliswork.cli.use.loading import check_tokenized
from trelliswork.errors import DataError

if TYPE_CHECKING:
    from trelliswork.data import Tree
    from trelliswork.models.pcfg import PCFG

TREE_ENDINGS = (".mrg", ".trees", ".ptb")
LENGTHS = (10, 40, None)  # maximum sentence lengths that papers on grammar induction report


def holds_trees(path: str | None) -> bool:
    """Return whether a path is a folder, a tree file by its name, or the bundled corpus."""
    if path is None or bundled_part(path):
        return True
    return Path(path).is_dir() or path.removesuffix(".gz").endswith(TREE_ENDINGS)


def read_gold(path: str | None, punctuation: bool) -> "list[Tree]":
    """Return trees of a file, a folder or the bundled corpus, without traces, functions and unary chains."""
    from trelliswork.data import bundled
    from trelliswork.data.trees import prune, read_trees

    options: dict[str, Any] = {"punctuation": punctuation, "functions": False, "unary": False}
    part = bundled_part(path)
    if part is None:
        return read_trees(str(path), **options)
    trees = [prune(sentence.tree, **options) for sentence in bundled.load(part)]
    return [tree for tree in trees if tree is not None]


def tokens_of(trees: "list[Tree]", tags: bool, lower: bool) -> list[list[str]]:
    """Return the words of trees, or their tags."""
    if tags:
        return [[node.label for node in tree.preterminals()] for tree in trees]
    return [[word.lower() if lower else word for word in tree.leaves()] for tree in trees]


def read_tokens(
    path: str | None, format: FileFormat, columns: str | None, *, tags: bool, lower: bool, punctuation: bool
) -> list[list[str]]:
    """Return the sentences of a file: words or tags of trees, a column of a column or CoNLL-U file, words of text.

    A file whose name is not that of trees or CoNLL-U is text, unless a column or a format is given. The tags of CoNLL-U
    are XPOS; text of tags is read as it is.
    """
    if format == FileFormat.auto and columns is None and holds_trees(path):
        return tokens_of(read_gold(path, punctuation), tags, lower)
    if format == FileFormat.auto and columns is None and guess_format(path or "", format) != FileFormat.conllu:
        format = FileFormat.text
    if tags and columns is None and guess_format(path or "", format) == FileFormat.conllu:
        columns = "xpos"
    corpus = read_words(path, words_layout(path, format, columns, None))
    return [[word.lower() if lower else word for word in s] for s in corpus.sentences(0)]


def read_as_trained(grammar: "PCFG", path: str, format: FileFormat) -> list[list[str]]:
    """Return the sentences of a file, read as the training file was; words for a grammar of tags are an error."""
    from trelliswork.data import Corpus
    from trelliswork.data.files import shorten, source_name

    reading = reading_of(grammar)
    sentences = read_tokens(path, format, None, **reading)
    tokens = [token for sentence in sentences for token in sentence]
    known = grammar.known_words()
    if reading["tags"] and 2 * sum(token in known for token in tokens) < len(tokens):
        some, new = " ".join(grammar.vocabulary_.items[:3]), next(token for token in tokens if token not in known)
        raise DataError(
            f"{source_name(path)}: this grammar was trained on tags (train pcfg --tags), such as {some}, and does not "
            f"know most of the tokens here, such as {shorten(new)}. Give it tags: trees, CoNLL-U with XPOS, or text of "
            "tags."
        )
    check_tokenized(grammar, replace(Corpus.from_sentences(sentences), source=source_name(path)))
    return sentences


def parse_constituents(
    model: str,
    file: str = "-",
    out: str = "-",
    *,
    format: FileFormat = FileFormat.auto,
    viterbi: bool = False,
) -> None:
    """Write the tree of each sentence of a file as a bracketing, one per line.

    The file is plain text (of tags, for a grammar of tags), or as in training. With ``viterbi``, the trees are the most
    probable ones instead of those with the most expected spans.
    """
    from trelliswork.data.files import atomic_write
    from trelliswork.models.pcfg import PCFG

    grammar = PCFG.load(model)
    sentences = read_as_trained(grammar, file, format)
    with naming_lines(file):
        trees = grammar.predict(sentences, decoding="viterbi" if viterbi else "mbr")
    with atomic_write(out) as stream:
        stream.writelines(f"{tree}\n" for tree in trees)


def evaluate_constituents(model: str, file: str, json: bool, page: str | None) -> None:
    """Compare the trees of a grammar with those of a file, or of ``test`` or ``dev`` of the bundled corpus."""
    from trelliswork.models.pcfg import PCFG

    grammar = PCFG.load(model)
    reading = reading_of(grammar)
    trees = read_gold(file, reading.pop("punctuation"))
    tokens = tokens_of(trees, **reading)
    reports = {}
    for longest in LENGTHS:
        if any(len(s) > 1 and (longest is None or len(s) <= longest) for s in tokens):
            name = "all" if longest is None else f"up to {longest} words"
            with naming_lines(file):
                reports[name] = grammar.evaluate(trees, tokens, max_length=longest)
    if not reports:
        raise DataError(f"{file}: no tree of at least two words for the evaluation.")
    perplexity = grammar.perplexity(tokens)
    results = {"brackets": reports, "perplexity": perplexity}
    more = report_evaluation(page, grammar, results, file, model, tokens, trees)
    if json:
        figures = {name: r.to_dict() for name, r in reports.items()}
        print(json_module.dumps(figures | {"perplexity": perplexity} | more))
        return
    for name, report in reports.items():
        print(f"{name}: {report.summary()}")
    print(f"perplexity {perplexity:.2f} per word")


def reading_of(grammar: "PCFG") -> dict[str, Any]:
    """Return the options with which the training file was read."""
    return {name: bool(grammar.input_.get(name, False)) for name in ("tags", "lower", "punctuation")}
