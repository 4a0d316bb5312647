"""``trelliswork train hmm``: fit a hidden Markov model to a file, labelled or not."""

import json as json_module
import time
from enum import StrEnum
from typing import Annotated, Any

import typer

from trelliswork.cli.corpora import (
    FileFormat,
    WordParts,
    guess_format,
    read_labeled,
    read_words,
    training_layout,
    words_layout,
)
from trelliswork.cli.options import (
    BeamOption,
    FormatOption,
    JsonOption,
    LabelOption,
    OutOption,
    QuietOption,
    SeparatorOption,
)
from trelliswork.cli.progress import em_progress
from trelliswork.cli.reporting import ReportOption, part, report_training


class UnknownChoice(StrEnum):
    """What unknown words are taken for."""

    suffix = "suffix"
    symbol = "symbol"


class MethodChoice(StrEnum):
    """How to learn without labels."""

    em = "em"
    vb = "vb"
    stepwise = "stepwise"


class InterpolationChoice(StrEnum):
    """How label n-grams are smoothed."""

    kneser_ney = "kneser-ney"
    deleted = "deleted"


def train_hmm(
    train: Annotated[
        str | None,
        typer.Argument(help="File ('-': standard input, gzip welcome); the bundled corpus by default."),
    ] = None,
    out: OutOption = "hmm-model",
    format: FormatOption = FileFormat.auto,
    columns: Annotated[str | None, typer.Option(help="Column of the words.", show_default="0, or form")] = None,
    label: LabelOption = None,
    separator: SeparatorOption = None,
    unlabelled: Annotated[
        bool, typer.Option("--unlabelled", help="Read words alone and induce states by EM; plain text always does.")
    ] = False,
    unknown_label: Annotated[
        str | None, typer.Option(help="Tokens with this label have none: EM fills them in.")
    ] = None,
    states: Annotated[int | None, typer.Option(min=1, help="Number of states to induce.")] = None,
    order: Annotated[int, typer.Option(min=1, max=3, help="2 (3): labels depend on the two (three) before.")] = 1,
    interpolation: Annotated[
        InterpolationChoice, typer.Option(help="Smoothing of label n-grams; deleted is TnT's.")
    ] = InterpolationChoice.kneser_ney,
    beam: BeamOption = None,
    unknown: Annotated[
        UnknownChoice, typer.Option(help="New words by their endings, or all by one symbol.")
    ] = UnknownChoice.suffix,
    min_count: Annotated[int, typer.Option(min=1, help="EM takes words seen less often for unknown ones.")] = 1,
    method: Annotated[MethodChoice, typer.Option(help="EM, variational Bayes or stepwise EM.")] = MethodChoice.em,
    max_iter: Annotated[int, typer.Option(min=1, help="Iterations (stepwise: passes) at most.")] = 100,
    tol: Annotated[float, typer.Option(help="Stop when an iteration gains less (a fraction).")] = 1e-5,
    restarts: Annotated[int, typer.Option(min=1, help="Random starts; the best after a few iterations goes on.")] = 1,
    probe: Annotated[int, typer.Option(min=1, help="How many iterations that are.")] = 5,
    start_prior: Annotated[float, typer.Option(min=0.0, help="Pseudo-count of first states.")] = 0.1,
    transition_prior: Annotated[float, typer.Option(min=0.0, help="Pseudo-count of transitions.")] = 0.1,
    emission_prior: Annotated[float, typer.Option(min=0.0, help="Pseudo-count of words.")] = 0.01,
    end: Annotated[bool, typer.Option("--end/--no-end", help="Whether the end of a sentence is an event.")] = True,
    batch_size: Annotated[int, typer.Option(min=1, help="Sentences a step of stepwise EM.")] = 256,
    stream: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Read words in parts of so many sentences, one step of stepwise EM each, for files that do not fit; "
            "--max-iter counts passes.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of random starts.")] = 0,
    page: ReportOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Train a hidden Markov model: a tagger from labels, or induced states from words.

    The file has a token a line and an empty line after each sentence: words are the first column, labels the last; or
    it is CoNLL-U, or plain text, one sentence a line, which is --unlabelled. Without a file the bundled corpus is read.
    The model is a directory, which tag, evaluate, score, sample, inspect and explore take.

    Ctrl-C stops EM after the current iteration and keeps what was learned.
    """
    from trelliswork.data import Corpus
    from trelliswork.models import HMM
    from trelliswork.models.hmm.training import States

    y: States | None = None
    if unlabelled or (train is not None and guess_format(train, format) == FileFormat.text):
        if label is not None or unknown_label is not None:
            raise typer.BadParameter("--label and --unknown-label have no use without labels: leave them out.")
        layout = words_layout(train, format, columns, separator)
        if stream is None:
            corpus = read_words(train, layout)
    elif stream is not None:
        raise typer.BadParameter("--stream is for words without labels: add --unlabelled, or leave it out.")
    else:
        if train is None and label is None:
            label = "1"  # the tags of the bundled corpus
        layout = training_layout(train, format, columns or _words_column(train, format), label, separator)
        labelled, labels = read_labeled(train, layout)
        if layout.format == "crfsuite":
            raise typer.BadParameter("an HMM reads words: a file of ready attributes is for train crf.")
        assert isinstance(labelled, Corpus)
        corpus = labelled
        y = [[None if name == unknown_label else name for name in sentence] for sentence in labels]
    model = HMM(
        states,
        order=order,
        unknown=unknown.value,
        interpolation=interpolation.value,
        start_prior=start_prior,
        transition_prior=transition_prior,
        emission_prior=emission_prior,
        min_count=min_count,
        method=method.value,
        max_iter=max_iter,
        tol=tol,
        n_restarts=restarts,
        end=end,
        batch_size=batch_size,
        probe=probe,
        seed=seed,
        dtype="float32",
        beam=None if beam == "none" else beam,
    )
    began = time.perf_counter()
    if stream is not None:
        if restarts > 1:
            raise typer.BadParameter("--stream has one start: leave --restarts out.")
        parts = WordParts(train, layout, stream)
        sizes = [(len(part), sum(map(len, part))) for part in parts]
        n_sentences, n_tokens = sum(n for n, _ in sizes), sum(n for _, n in sizes)
        with em_progress(n_tokens // max(len(sizes), 1), max_iter * len(sizes), quiet) as callback:
            model.fit_stream(parts, n_passes=max_iter, callback=callback)
    else:
        n_sentences, n_tokens = len(corpus), corpus.n_tokens
        with em_progress(n_tokens, max_iter, quiet) as callback:
            model.fit(corpus, y, callback=callback)
    model.input_ = layout.to_dict()
    model.save(out)
    report = model.report_
    outcome: dict[str, Any] = {
        "model": out,
        "sentences": n_sentences,
        "tokens": n_tokens,
        "states": len(model.states_),
        "induced": model.induced_,
        "words": len(model.known_words()),
        "log_evidence": report.history[-1].log_evidence if report.history else None,
        "iterations": report.n_iter,
        "restarts": restarts if model.induced_ else None,
        "converged": report.converged,
        "reason": report.reason,
        "beam": None if report.beam is None else vars(report.beam) | {"kept": report.beam.kept},
        "seconds": round(time.perf_counter() - began, 3),
    }
    report_training(page, model, outcome, lambda: part(None, corpus if stream is None else next(iter(parts))))
    if json:
        print(json_module.dumps(outcome))
        return
    learned = "counted"
    if report.history:
        learned = (
            f"log evidence {outcome['log_evidence']:.1f} after {report.n_iter} iterations"
            + (f", the best of {restarts} starts" if restarts > 1 and model.induced_ else "")
            + f" ({report.reason})"
        )
    print(
        f"{n_tokens:,} tokens, {outcome['words']:,} words, {outcome['states']} states: {learned}; "
        f"{outcome['seconds']:.1f} s. Saved in {out}"
    )
    if report.beam is not None:
        print(f"beam {model.beam}: {report.beam}")


def _words_column(train: str | None, format: FileFormat) -> str | None:
    """Of column files the first; CoNLL-U has its own default."""
    return "form" if train is not None and guess_format(train, format) == FileFormat.conllu else "0"
