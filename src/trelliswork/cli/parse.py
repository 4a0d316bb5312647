"""``trelliswork parse``, and ``evaluate`` and ``inspect`` for parsers."""

import io
import json as json_module
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from trelliswork.cli.constituents import parse_constituents
from trelliswork.cli.corpora import FileFormat, guess_format
from trelliswork.errors import DataError

if TYPE_CHECKING:
    from trelliswork.data import Corpus
    from trelliswork.models import DependencyParser

HEAD, DEPREL, DEPS, MISC = 6, 7, 8, 9  # columns of CoNLL-U
Cells = dict[int, str]  # column and its new value


def parse(
    model: Annotated[str, typer.Argument(help="Directory of a saved parser.")],
    file: Annotated[str, typer.Argument(help="File to parse; '-' is standard input.")] = "-",
    format: Annotated[
        FileFormat, typer.Option(help="conllu, or text (a sentence a line), which needs a parser with a tagger.")
    ] = FileFormat.auto,
    marginals: Annotated[
        bool, typer.Option("--marginals", help="Add the probability of each arc to MISC: ArcProb=0.98.")
    ] = False,
    topk: Annotated[int, typer.Option(min=1, help="The so many likeliest trees of each sentence.")] = 1,
    known: Annotated[
        bool, typer.Option("--known", help="Take the heads that the file has as given; _ where none is.")
    ] = False,
    constituents: Annotated[
        bool, typer.Option("--constituents", help="Constituents by a PCFG: a bracketed tree a line.")
    ] = False,
    out: Annotated[str, typer.Option("--out", "-o", help="Write here instead of standard output.")] = "-",
) -> None:
    """Parse a file: CoNLL-U in, CoNLL-U out, with heads and labels replaced.

    Without --topk the tree with most expected right arcs. With --topk the likeliest trees, one after the other, each
    with its probability in a comment. With --constituents and a PCFG: the bracketing with most expected constituents.

    Example: echo 'We parse words .' | trelliswork parse parser --format text
    """
    from trelliswork.data import Corpus, read_text
    from trelliswork.data.conllu import read_conllu, read_dependencies
    from trelliswork.data.files import atomic_write

    if constituents:
        if marginals or known or topk > 1:
            raise typer.BadParameter("--marginals, --topk and --known are for dependencies: leave --constituents out.")
        parse_constituents(model, file, out, format=format)
        return
    parser = load_parser(model)
    chosen = guess_format(file, format) if file != "-" or format != FileFormat.auto else FileFormat.conllu
    if topk > 1 and marginals:
        raise typer.BadParameter("--topk tells probabilities of trees, --marginals those of arcs: choose one.")
    columns = parser.input_.get("columns") or ["form", "upos", "xpos"]
    has_tagger = parser.tagger is not None
    evidence: Any = None
    if chosen == FileFormat.text:
        if not has_tagger:
            raise DataError(
                f"{file}: plain text has no tags, and this parser has no tagger: train it with --tagger crf."
            )
        if known:
            raise typer.BadParameter("--known takes the heads of a CoNLL-U file; plain text has none.")
        corpus = read_text(file)
    elif chosen == FileFormat.conllu:
        wanted = columns[:1] if has_tagger else columns
        if known:
            corpus, evidence, _ = read_dependencies(file, columns=wanted)
        else:
            corpus = read_conllu(file, columns=wanted, keep_lines=True)
    else:
        raise DataError(f"{file}: a CoNLL-U or text file is wanted: say --format conllu or text.")
    plain = Corpus(corpus.columns[:1], corpus.offsets) if has_tagger else Corpus(corpus.columns, corpus.offsets)
    results = list(_results(parser, plain, evidence, topk, marginals))
    tags = _tags(parser, plain, columns) if has_tagger else None
    with atomic_write(out) as stream:
        if corpus.lines is None:
            _write_text(corpus, results, tags, stream)
        else:
            _write_conllu(corpus, results, tags, stream)


def load_parser(path: str) -> "DependencyParser":
    """Read a parser; an error if it is another kind of model."""
    from trelliswork.models import DependencyParser, load

    found = load(path)
    if not isinstance(found, DependencyParser):
        raise DataError(f"{path}: a model of kind {found.kind!r}; a parser is wanted (trelliswork train parser).")
    return found


def _results(
    parser: "DependencyParser", corpus: "Corpus", evidence: Any, topk: int, marginals: bool
) -> Iterator[list[tuple[list[Cells], str]]]:
    """For each sentence its trees: new cells of each word, and a comment."""
    if topk == 1:
        for sentence in parser.parse(corpus, known=evidence):
            rows = [{HEAD: str(h), DEPREL: name or "_", DEPS: "_"} for h, name, _ in sentence]
            if marginals:
                for row, (_, _, p) in zip(rows, sentence, strict=True):
                    row[MISC] = f"ArcProb={p:.4f}"
            yield [(rows, "")]
        return
    for trees in parser.predict_topk(corpus, topk, known=evidence):
        yield [
            ([{HEAD: str(h), DEPREL: name or "_", DEPS: "_"} for h, name in tree], f"# tree_prob = {p:.6f}")
            for tree, p in trees
        ]


def _tags(parser: "DependencyParser", corpus: "Corpus", columns: list[str]) -> list[Cells]:
    """The tagger's tags of all words."""
    from trelliswork.data.conllu import COLUMNS

    found = parser.tag(corpus)
    places = [COLUMNS.index(name) for name in columns[1:]]
    return [dict(zip(places, row, strict=True)) for row in zip(*found, strict=True)]


def _write_text(corpus: "Corpus", results: Any, tags: list[Cells] | None, out: TextIO) -> None:
    for (start, stop), trees in zip(pairwise(corpus.offsets.tolist()), results, strict=True):
        for rows, comment in trees:
            out.write(f"{comment}\n" if comment else "")
            for i in range(start, stop):
                cells = {0: str(i - start + 1), 1: corpus.columns[0][i], **(tags[i] if tags else {}), **rows[i - start]}
                out.write("\t".join(cells.get(c, "_") for c in range(10)) + "\n")
            out.write("\n")


def _write_conllu(corpus: "Corpus", results: Any, tags: list[Cells] | None, out: TextIO) -> None:
    """The lines of the file with new cells; a sentence with several trees is repeated."""
    assert corpus.lines is not None
    assert corpus.token_lines is not None
    word_at = {line: i for i, line in enumerate(corpus.token_lines.tolist())}
    remaining = iter(zip(pairwise(corpus.offsets.tolist()), results, strict=True))
    block: list[int] = []
    for number, line in enumerate([*corpus.lines, ""]):
        if line.strip("\t "):
            block.append(number)
            continue
        if any(n in word_at for n in block):
            (start, _), trees = next(remaining)
            for rows, comment in trees:
                out.write(f"{comment}\n" if comment else "")
                for n in block:
                    text = corpus.lines[n]
                    if n in word_at:
                        i = word_at[n]
                        text = _replace(text, {**(tags[i] if tags else {}), **rows[i - start]})
                    out.write(f"{text}\n")
                out.write("\n")
        else:
            for n in block:  # comments without a sentence
                out.write(f"{corpus.lines[n]}\n")
        block = []


def _replace(line: str, cells: Cells) -> str:
    fields = line.split("\t")
    for column, value in cells.items():
        if column == MISC:
            kept = [part for part in fields[MISC].split("|") if part != "_" and not part.startswith("ArcProb=")]
            value = "|".join([*kept, value])
        fields[column] = value
    return "\t".join(fields)


def read_treebank(
    path: str | None, columns: list[str]
) -> "tuple[Corpus, list[list[int | None]], list[list[str | None]]]":
    """Columns, heads and labels of a CoNLL-U file, or of a part of the bundled corpus (by default train)."""
    from trelliswork.data import Corpus, bundled
    from trelliswork.data.conllu import COLUMNS, read_dependencies
    from trelliswork.data.writers import write_conllu

    if path is not None and path not in bundled.SPLITS:
        return read_dependencies(path, columns=columns)
    sentences, text = bundled.load(path or "train"), io.StringIO()
    write_conllu(sentences, text)
    rows = [line.split("\t") for line in text.getvalue().splitlines() if line and line[0] != "#"]
    flat = iter([[row[COLUMNS.index(name)] for name in columns] for row in rows])
    corpus = Corpus.from_sentences([[next(flat) for _ in s.words] for s in sentences])
    return corpus, [list(s.heads) for s in sentences], [list(s.relations) for s in sentences]


def evaluate_parser(parser: "DependencyParser", file: str, format: FileFormat, label: str | None, json: bool) -> None:
    """Compare a parser with the trees of a CoNLL-U file."""
    if format not in (FileFormat.auto, FileFormat.conllu) or label is not None:
        raise typer.BadParameter(
            "a parser is compared with heads and labels of a CoNLL-U file: no --format or --label."
        )
    corpus, heads, labels = read_treebank(file, parser.input_.get("columns") or ["form", "upos", "xpos"])
    for n, row in enumerate(heads):
        if None in row:
            raise DataError(f"{file}: sentence {n + 1} has a word without a head: whole trees are wanted.")
    known = any(name is not None for row in labels for name in row)
    report = parser.evaluate(corpus, heads, labels if known else None)
    print(json_module.dumps(report.to_dict()) if json else report.summary())


def inspect_parser(parser: "DependencyParser", json: bool) -> None:
    """Show settings and how training ended; hashed weights have no names."""
    shown: dict[str, Any] = {
        "kind": parser.kind,
        "order": parser.order_,
        "parameters": parser.get_params(),
        "weights": sum(len(w) for w in parser.weights_),
        "active": sum(int((w != 0).sum()) for w in parser.weights_),
        "words": len(parser.known_words()),
        "labels": None if parser.labels_ is None else list(parser.labels_),
        "dropped_heads": parser.n_dropped_,
        "objective": parser.report_.value,
        "converged": parser.report_.converged,
        "reason": parser.report_.reason,
    }
    if json:
        print(json_module.dumps(shown))
        return
    trees = "projective" if parser.projective else "non-projective"
    print(
        f"parser of order {shown['order']}, {trees}, {shown['words']:,} known words, tagger: {parser.tagger or 'none'}"
    )
    print(f"{shown['active']:,} of {shown['weights']:,} weights in use; features are hashed and have no names")
    print(f"loss of the last epoch {shown['objective']:.4f} ({shown['reason']})")
    if shown["dropped_heads"]:
        print(f"{shown['dropped_heads']:,} heads of the training trees counted as unknown: no such tree has them all")
    print("labels: " + (" ".join(shown["labels"]) if shown["labels"] else "none"))
    print("settings: " + ", ".join(f"{name}={value}" for name, value in shown["parameters"].items()))
