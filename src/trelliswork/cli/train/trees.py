"""``trelliswork train parser`` and ``pcfg``: train a dependency parser on a treebank, induce a grammar from text."""

import math
import warnings
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.cli.options import Files, FormatOption, named
from trelliswork.cli.reporting import part
from trelliswork.cli.train.command import Job
from trelliswork.cli.treebanks import COLUMNS, check_tags, empty_tags, holds_trees, read_tokens, read_treebank
from trelliswork.data.reading import FileFormat, naming_lines
from trelliswork.data.reading.inputs import Inputs, totals
from trelliswork.errors import DataError, DataWarning

if TYPE_CHECKING:
    from trelliswork.models import PCFG, DependencyParser

WORDS, TAGS = ("form", "lemma"), ("upos", "xpos", "feats")  # CoNLL-U columns that --columns may name


def parser(
    job: Job,
    model: "DependencyParser",
    train: Annotated[Files, named("CoNLL-U files with trees, plain or gzip; '-' is standard input.")] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            help="Columns of words (form, lemma) and of one or two kinds of tags (upos, xpos, feats).",
            show_default="form,upos,xpos; form,upos,feats if there is no xpos",
        ),
    ] = None,
) -> dict[str, Any]:
    """Train a dependency parser. Ctrl-C stops after the current epoch and saves the model.

    Files are CoNLL-U; an unknown head is _. Without --columns, feats replaces xpos in a treebank without it; otherwise
    a column of tags that is empty throughout is left out. With --tagger the parser also learns to tag, and then parses
    plain text. The model is a directory for parse, evaluate, inspect and explore.
    """
    from trelliswork.learning.distributed import one_process

    one_process("a parser")
    names = [*COLUMNS, "feats"] if columns is None else _columns(columns)
    if "patience" in job.given and job.dev is None:
        raise typer.BadParameter("--patience refers to development data: give --dev too.")
    source = job.inputs(train)
    corpus, trees = _read(source, names)
    of_name, empty = dict(zip(names, corpus.columns, strict=True)), empty_tags(corpus, names)
    if columns is None:  # the second kind of tags is one of two
        left_out = "xpos" if "xpos" in empty and "feats" not in empty else "feats"
        names, empty = ([name for name in some if name != left_out] for some in (names, empty))
    names = _without_empty(names, empty, source.name)
    corpus = replace(corpus, columns=[of_name[name] for name in names])
    held_out = job.read_dev(_read, names)
    if held_out is not None and model.tagger is None:  # with a tagger the tags of development data are ignored
        check_tags(held_out[0], names, str(job.dev))
    total = model.max_iter * model.order
    if any(label is not None for row in trees for _, label in row):
        total += model.max_iter + 1
    n_sentences, n_tokens = totals(len(corpus), corpus.n_tokens)
    with naming_lines(source, corpus):
        job.fit(model, corpus, trees, n_tokens=n_tokens, total=total, dev=held_out)
    model.input_ = {"columns": names}
    job.sample = partial(part, held_out, corpus)
    return {
        "sentences": n_sentences,
        "tokens": n_tokens,
        "labels": 0 if model.labels_ is None else len(model.labels_),
        "active": model.describe().facts["active"],
        "dropped_heads": model.report_.details["dropped_heads"],
    }


def _columns(text: str) -> list[str]:
    """Return the names of the columns: first the words, then the tags."""
    names = text.split(",")
    tags = names[1:]
    if names[0] not in WORDS or not set(tags) <= set(TAGS) or not 0 < len(tags) == len(set(tags)) < 3:
        raise typer.BadParameter(
            f"--columns must name words ({' or '.join(WORDS)}), then one or two of the tags {', '.join(TAGS)}, got "
            f"{text!r}."
        )
    return names


def _read(source: Inputs, columns: list[str]) -> Any:
    """Read a treebank; without any head it is an error."""
    corpus, trees = read_treebank(source, columns)
    if not any(head is not None for row in trees for head, _ in row):
        raise DataError(f"{source}: no word has a head: a parser learns from trees, complete or in part.")
    return corpus, trees


def _without_empty(columns: list[str], empty: list[str], source: str) -> list[str]:
    """Return the columns that are not empty, with a warning about the others; one kind of tags must remain."""
    kept = [name for name in columns if name not in empty]
    if len(kept) == 1:
        others = ", ".join(name for name in TAGS if name not in columns)
        raise DataError(
            f"{source}: no tags to learn from: {' and '.join(empty)} are empty (_) throughout. Name a column with tags "
            f"by --columns ({others}), or tag the file first."
        )
    if empty:
        warnings.warn(
            f"{source}: {' and '.join(empty)} is empty (_) throughout and not used: the parser learns from "
            f"{', '.join(kept)}.",
            DataWarning,
            stacklevel=2,
        )
    return kept


def pcfg(
    job: Job,
    model: "PCFG",
    train: Annotated[
        Files,
        named(
            "Files of text, columns or CoNLL-U ('-' is standard input), or of bracketed trees (*.mrg, *.trees, or "
            "a folder of *.mrg), of which only the words are read."
        ),
    ] = None,
    format: FormatOption = FileFormat.auto,
    columns: Annotated[str | None, typer.Option(help="Column to learn from: 0, or form, xpos, ...")] = None,
    tags: Annotated[bool, typer.Option("--tags", help="Read the tags of trees instead of the words.")] = False,
    punctuation: Annotated[
        bool, typer.Option("--punctuation", help="Keep the punctuation of trees; by default it is left out.")
    ] = False,
    lower: Annotated[bool, typer.Option("--lower", help="Convert words to lower case.")] = False,
    n_preterminals: Annotated[
        int, typer.Option(min=0, help="Number of symbols of words; 0: each word is its own symbol.")
    ] = 20,
) -> dict[str, Any]:
    """Induce a grammar from sentences without trees. Ctrl-C stops after the current iteration and saves the model.

    Sentences are lines of text, a column of a file (--columns), or the words or tags (--tags) of bracketed trees, whose
    brackets are ignored. The model is a directory for parse, evaluate, score, sample, fill and explore.
    """
    model.n_preterminals = n_preterminals or None
    reading: Any = {"tags": tags, "lower": lower, "punctuation": punctuation}
    source = job.inputs(train)
    if tags and (format != FileFormat.auto or columns is not None or not holds_trees(source)):
        raise typer.BadParameter("--tags reads the tags of trees; for other files select a column with --columns.")

    def read(given: Inputs) -> list[list[str]]:
        return read_tokens(given, format, columns, **reading).sentences(0)

    sentences, dev = read(source), job.read_dev(read)
    longest = math.inf if model.max_length is None else model.max_length
    lengths = [len(sentence) for sentence in sentences if 2 <= len(sentence) <= longest]
    n_sentences, n_tokens = totals(len(lengths), sum(lengths))
    job.fit(model, sentences, n_tokens=n_tokens, total=model.max_iter, dev=dev)
    model.input_ = reading
    job.sample = lambda: part(None, sentences)
    N, P, V = model._grammar.sizes
    evidence = model.report_.history[-1].log_evidence
    assert evidence is not None
    return {
        "sentences": n_sentences,
        "tokens": n_tokens,
        "nonterminals": N,
        "preterminals": P,
        "rank": model.rank,
        "words": V,
        "log_evidence": evidence,
        "train_perplexity": math.exp(-evidence / n_tokens),
    }
