"""``trelliswork train pcfg``: induce a grammar from text."""

import json as json_module
import math
import time
from enum import StrEnum
from typing import Annotated, Any

import typer

from trelliswork.cli.corpora import FileFormat
from trelliswork.cli.options import FormatOption, JsonOption, OutOption, QuietOption
from trelliswork.cli.progress import em_progress
from trelliswork.cli.reporting import ReportOption, part, report_training
from trelliswork.cli.use.constituents import read_tokens


class ParameterisationChoice(StrEnum):
    """What makes the probabilities."""

    plain = "plain"
    neural = "neural"


class AlgorithmChoice(StrEnum):
    """How to learn."""

    em = "em"
    gradient = "gradient"


def train_pcfg(
    train: Annotated[
        str | None,
        typer.Argument(
            help="Text, columns, CoNLL-U ('-': standard input), or bracketed trees (*.mrg, *.trees, or a folder of "
            "*.mrg), of which only the words are read; the bundled corpus by default."
        ),
    ] = None,
    out: OutOption = "pcfg-model",
    format: FormatOption = FileFormat.auto,
    column: Annotated[str | None, typer.Option(help="Column to learn from: 0, or form, xpos, ...")] = None,
    tags: Annotated[bool, typer.Option("--tags", help="Of trees, read the tags instead of the words.")] = False,
    punctuation: Annotated[
        bool, typer.Option("--punctuation", help="Of trees, keep punctuation; by default it is left out.")
    ] = False,
    lower: Annotated[bool, typer.Option("--lower", help="Words in small letters.")] = False,
    nonterminals: Annotated[int, typer.Option(min=1, help="Symbols of phrases.")] = 10,
    preterminals: Annotated[int, typer.Option(min=0, help="Symbols of words; 0: each word is its own.")] = 20,
    rank: Annotated[int | None, typer.Option(min=1, help="Low rank: rules pass through so many values.")] = None,
    parameterisation: Annotated[
        ParameterisationChoice, typer.Option(help="Free probabilities, or made by networks (--algorithm gradient).")
    ] = ParameterisationChoice.plain,
    algorithm: Annotated[AlgorithmChoice, typer.Option(help="EM, or Adam.")] = AlgorithmChoice.em,
    min_count: Annotated[int, typer.Option(min=1, help="Words seen less often are taken for unknown ones.")] = 1,
    max_length: Annotated[int | None, typer.Option(min=2, help="Learn from sentences up to so many words.")] = None,
    max_iter: Annotated[int, typer.Option(min=1, help="Iterations, or epochs, at most.")] = 100,
    tol: Annotated[float, typer.Option(min=0.0, help="Stop when an iteration gains less (a fraction).")] = 1e-4,
    restarts: Annotated[int, typer.Option(min=1, help="EM: random starts; the best after --probe goes on.")] = 1,
    probe: Annotated[int, typer.Option(min=1, help="EM: iterations of each start.")] = 10,
    right_bias: Annotated[float, typer.Option(help="EM: how far random starts lean to the right; try 4.")] = 0.0,
    root_prior: Annotated[float, typer.Option(min=0.0, help="Pseudo-count of root symbols.")] = 0.1,
    rule_prior: Annotated[float, typer.Option(min=0.0, help="Pseudo-count of rules.")] = 0.01,
    emission_prior: Annotated[float, typer.Option(min=0.0, help="Pseudo-count of words.")] = 0.01,
    batch_size: Annotated[int, typer.Option(min=1, help="Adam: sentences a step.")] = 16,
    learning_rate: Annotated[float, typer.Option(help="Adam: size of a step.")] = 2e-3,
    curriculum: Annotated[
        int | None, typer.Option(min=2, help="Adam: longest sentence of the first epoch; one more word each epoch.")
    ] = None,
    embedding_size: Annotated[int, typer.Option(min=1, help="Of neural embeddings.")] = 128,
    checkpoint: Annotated[
        str | None, typer.Option(help="Keep the state in this file; if it is there, go on from it.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of random numbers.")] = 0,
    page: ReportOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Induce a grammar from sentences without trees. Ctrl-C stops after this iteration and keeps what was learned.

    Sentences are lines of text, a column of a file (--column), or the words or tags (--tags) of bracketed trees, whose
    brackets are not looked at. Without a file the bundled corpus is read. The model is a directory, which parse
    --constituents, evaluate, score, sample and explore take.
    """
    from trelliswork.models import PCFG

    sentences = read_tokens(train, format, column, tags=tags, lower=lower, punctuation=punctuation)
    model = PCFG(
        nonterminals,
        preterminals or None,
        rank=rank,
        parameterisation=parameterisation.value,
        algorithm=algorithm.value,
        root_prior=root_prior,
        rule_prior=rule_prior,
        emission_prior=emission_prior,
        min_count=min_count,
        max_length=max_length,
        max_iter=max_iter,
        tol=tol,
        n_restarts=restarts,
        probe=probe,
        right_bias=right_bias,
        batch_size=batch_size,
        learning_rate=learning_rate,
        curriculum=curriculum,
        embedding_size=embedding_size,
        seed=seed,
    )
    most = math.inf if max_length is None else max_length
    lengths = [len(sentence) for sentence in sentences if 2 <= len(sentence) <= most]
    began = time.perf_counter()
    with em_progress(sum(lengths), max_iter, quiet) as callback:
        model.fit(sentences, callback=callback, checkpoint=checkpoint)
    model.reading_ = {"tags": tags, "lower": lower, "punctuation": punctuation}
    model.save(out)
    report = model.report_
    N, P, V = model.parameters_.sizes
    evidence = report.history[-1].log_evidence
    outcome: dict[str, Any] = {
        "model": out,
        "sentences": len(lengths),
        "tokens": sum(lengths),
        "nonterminals": N,
        "preterminals": P,
        "rank": rank,
        "words": V,
        "log_evidence": evidence,
        "perplexity": math.exp(-evidence / sum(lengths)),
        "iterations": report.n_iter,
        "converged": report.converged,
        "reason": report.reason,
        "seconds": round(time.perf_counter() - began, 3),
    }
    report_training(page, model, outcome, lambda: part(None, sentences))
    if json:
        print(json_module.dumps(outcome))
        return
    print(
        f"{outcome['tokens']:,} words in {len(lengths):,} sentences, {N} nonterminals, {P} preterminals: perplexity "
        f"{outcome['perplexity']:.2f} after {report.n_iter} iterations ({report.reason}); {outcome['seconds']:.1f} s. "
        f"Saved in {out}"
    )
