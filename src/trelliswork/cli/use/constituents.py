"""Commands for grammars: their files, ``parse --constituents``, ``evaluate`` and ``inspect`` of a PCFG."""

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from trelliswork.cli.corpora import FileFormat, guess_format, read_words, words_layout
from trelliswork.cli.reporting import judged_part, report_evaluation
from trelliswork.errors import DataError

if TYPE_CHECKING:
    from trelliswork.data import Tree
    from trelliswork.models.pcfg import PCFG

TREE_ENDINGS = (".mrg", ".trees", ".ptb")
LENGTHS = (10, 40, None)  # sentences up to so many words: what papers on grammar induction tell


def holds_trees(path: str | None) -> bool:
    """True for a folder, a name that tells it, and the bundled corpus."""
    from trelliswork.data.bundled import SPLITS

    return path is None or path in SPLITS or Path(path).is_dir() or path.removesuffix(".gz").endswith(TREE_ENDINGS)


def read_gold(path: str | None, punctuation: bool) -> "list[Tree]":
    """Trees of a file, a folder or the bundled corpus, without traces, functions and unary chains."""
    from trelliswork.data import bundled
    from trelliswork.data.trees import prune, read_trees

    options: dict[str, Any] = {"punctuation": punctuation, "functions": False, "unary": False}
    if path is None or path in bundled.SPLITS:
        trees = [prune(sentence.tree, **options) for sentence in bundled.load(path or "train")]
        return [tree for tree in trees if tree is not None]
    return read_trees(path, **options)


def tokens_of(trees: "list[Tree]", tags: bool, lower: bool) -> list[list[str]]:
    """What a grammar reads of trees: their words, or their tags."""
    if tags:
        return [[node.label for node in tree.preterminals()] for tree in trees]
    return [[word.lower() if lower else word for word in tree.leaves()] for tree in trees]


def read_tokens(
    path: str | None, format: FileFormat, column: str | None, *, tags: bool, lower: bool, punctuation: bool
) -> list[list[str]]:
    """Sentences of any file: of trees words or tags; of columns and CoNLL-U one column; of text the words.

    What is neither trees nor CoNLL-U by its name is text, unless a column or a format is named.
    """
    if format == FileFormat.auto and column is None and holds_trees(path):
        return tokens_of(read_gold(path, punctuation), tags, lower)
    if tags:
        raise typer.BadParameter("--tags reads the tags of trees: of other files name their column with --column.")
    if format == FileFormat.auto and column is None and guess_format(path or "", format) != FileFormat.conllu:
        format = FileFormat.text
    corpus = read_words(path, words_layout(path, format, column, None))
    return [[word.lower() if lower else word for word in s] for s in corpus.sentences(0)]


def saved_kind(path: str) -> str:
    """The kind of a saved model."""
    from trelliswork.data.storage import load_model

    return str(load_model(path)[0]["kind"])


def load_grammar(path: str) -> "PCFG":
    """A saved PCFG."""
    from trelliswork.models.pcfg import PCFG

    return PCFG.load(path)


def parse_constituents(
    model: str,
    file: str = "-",
    out: str = "-",
    *,
    format: FileFormat = FileFormat.auto,
    column: str | None = None,
    viterbi: bool = False,
) -> None:
    """Write the tree of each sentence of a file as a bracketing, one a line.

    Parameters
    ----------
    model : str
        Directory of a saved PCFG.
    file, out : str
        ``-`` is the standard input, or output. Plain text (for a grammar of tags: of tags), or what training reads.
    format, column
        Layout of the file, and the column of the words.
    viterbi : bool
        The most probable trees; else those with most expected spans.
    """
    from trelliswork.data.files import atomic_write

    grammar = load_grammar(model)
    sentences = read_tokens(file, format, column, **_reading(grammar))
    with atomic_write(out) as stream:
        for tree in grammar.predict(sentences, decoding="viterbi" if viterbi else "mbr"):
            stream.write(f"{tree}\n")


def evaluate_constituents(model: str, file: str, json: bool, page: str | None) -> None:
    """Compare a grammar's trees with those of a file (or ``test``, ``dev`` of the bundled corpus) by their spans."""
    grammar = load_grammar(model)
    reading = _reading(grammar)
    trees = read_gold(file, reading.pop("punctuation"))
    tokens = tokens_of(trees, **reading)
    reports = {}
    for longest in LENGTHS:
        if any(len(s) > 1 and (longest is None or len(s) <= longest) for s in tokens):
            name = "all" if longest is None else f"up to {longest} words"
            reports[name] = grammar.evaluate(trees, tokens, max_length=longest)
    if not reports:
        raise DataError(f"{file}: there is no tree of two words or more to compare with.")
    perplexity = grammar.perplexity(tokens)
    found = {"brackets": reports, "perplexity": perplexity}
    told = report_evaluation(page, grammar, found, file=file, name=model, sample=lambda: judged_part(tokens, trees))
    if json:
        figures = {name: r.to_dict() for name, r in reports.items()}
        print(json_module.dumps(figures | {"perplexity": perplexity} | told))
        return
    for name, report in reports.items():
        print(f"{name}: {report.summary()}")
    print(f"perplexity {perplexity:.2f} per word")


def inspect_grammar(grammar: Any, n: int, label: str | None, json: bool) -> None:
    """Print the words and rules of a grammar's symbols."""
    N, P, V = grammar.parameters_.sizes
    names = [f"N{a}" for a in range(N)] + [f"P{x}" for x in range(P)]
    if label is not None and label not in names:
        raise typer.BadParameter(f"the grammar has no symbol {label!r}; it has N0..N{N - 1} and P0..P{P - 1}.")
    chosen = names if label is None else [label]
    shown: dict[str, Any] = {
        "kind": grammar.kind,
        "nonterminals": N,
        "preterminals": P,
        "rank": grammar.rank,
        "words": V,
        "reason": grammar.report_.reason,
        "rules": {name: grammar.top_rules(int(name[1:]), n) for name in chosen if name[0] == "N"},
        "emissions": {name: grammar.top_words(int(name[1:]), n) for name in chosen if name[0] == "P"},
    }
    if json:
        print(json_module.dumps(shown, ensure_ascii=False))
        return
    rank = "" if grammar.rank is None else f", rank {grammar.rank}"
    print(f"PCFG, {N} nonterminals, {P} preterminals{rank}, {V:,} words ({shown['reason']})")
    for name, rules in shown["rules"].items():
        print(f"{name} -> " + "  ".join(f"{x} {y} {p:.3f}" for x, y, p in rules))
    for name, words in shown["emissions"].items():
        print(f"{name} -> " + "  ".join(f"{word} {p:.3f}" for word, p in words))


def _reading(grammar: "PCFG") -> dict[str, Any]:
    """How the training file was read."""
    given = getattr(grammar, "reading_", {})
    return {name: bool(given.get(name, False)) for name in ("tags", "lower", "punctuation")}
