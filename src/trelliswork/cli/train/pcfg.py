"""``trelliswork train pcfg``: induce a grammar from text."""

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.cli.corpora import FileFormat
from trelliswork.cli.options import FormatOption
from trelliswork.cli.reporting import part
from trelliswork.cli.train.command import Job
from trelliswork.cli.use.constituents import read_tokens

if TYPE_CHECKING:
    from trelliswork.models import PCFG


def run(
    job: Job,
    model: "PCFG",
    train: Annotated[
        str | None,
        typer.Argument(
            help="Text, columns or CoNLL-U ('-' is standard input), or bracketed trees (*.mrg, *.trees, or a folder of "
            "*.mrg), of which only the words are read. Default: the bundled corpus."
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
    brackets are ignored. Without a file the bundled corpus is used. The model is a directory for parse --constituents,
    evaluate, score, sample, fill and explore.
    """
    model.n_preterminals = n_preterminals or None
    reading = {"tags": tags, "lower": lower, "punctuation": punctuation}
    sentences = read_tokens(train, format, columns, **reading)
    longest = math.inf if model.max_length is None else model.max_length
    lengths = [len(sentence) for sentence in sentences if 2 <= len(sentence) <= longest]
    options = {} if job.dev is None else {"dev": read_tokens(job.dev, format, columns, **reading)}
    job.fit(model, sentences, n_tokens=sum(lengths), total=model.max_iter, **options)
    model.input_ = reading
    job.sample = lambda: part(None, sentences)
    N, P, V = model.parameters_.sizes
    evidence = model.report_.history[-1].log_evidence
    assert evidence is not None
    return {
        "sentences": len(lengths),
        "tokens": sum(lengths),
        "nonterminals": N,
        "preterminals": P,
        "rank": model.rank,
        "words": V,
        "log_evidence": evidence,
        "perplexity": math.exp(-evidence / sum(lengths)),
    }
