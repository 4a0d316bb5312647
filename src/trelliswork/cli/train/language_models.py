"""``trelliswork train hmm-lm``, ``kneser-ney``, ``log-bilinear`` and ``mrf-lm``: train a language model on text."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.cli.inputs import dev_input
from trelliswork.cli.options import Files, FormatOption, named
from trelliswork.cli.reporting import part, text_part
from trelliswork.cli.train.command import Job
from trelliswork.data.reading import FileFormat, file_layout, read_words
from trelliswork.data.reading.inputs import own_text, totals

if TYPE_CHECKING:
    from trelliswork.models import HMMLanguageModel, KneserNey, LogBilinear, MRFLanguageModel

MOST_EPOCHS = 40  # of an HMM language model without --max-iter
TextFiles = Annotated[Files, named("Text files (plain or gzip, one sentence per line) or directories of them.")]


def hmm_lm(
    job: Job,
    model: "HMMLanguageModel",
    train: Annotated[Files, named("Text files (plain or gzip, one sentence per line); '-' is standard input.")] = None,
    format: FormatOption = FileFormat.auto,
) -> dict[str, Any]:
    """Train an HMM language model. Ctrl-C stops after the epoch and saves the best parameters.

    Text has one sentence per line and words between white space. The model is a directory for score, evaluate,
    sample, fill, inspect and explore.
    """
    source = job.inputs(train)
    layout = file_layout(source, FileFormat.text if format == FileFormat.auto else format, words=True, labeled=False)
    corpus, dev = read_words(source, layout), job.read_dev(read_words, layout)
    n_sentences, n_tokens = totals(len(corpus), corpus.n_tokens)
    job.fit(model, corpus, n_tokens=n_tokens, total=model.max_iter or MOST_EPOCHS, dev=dev)
    job.sample = lambda: part(None if dev is None else (dev,), corpus)
    model.input_ = layout.to_dict()
    return {
        "sentences": n_sentences,
        "tokens": n_tokens,
        "words": len(model.vocabulary_),
        "states": model.n_states,
        "rank": model.rank,
    }


def kneser_ney(
    job: Job,
    model: "KneserNey",
    train: TextFiles = None,
    dev: Annotated[str | None, typer.Option(help="Development text: its perplexity is printed.")] = None,
) -> dict[str, Any]:
    """Train an n-gram language model with interpolated modified Kneser-Ney smoothing.

    Text has one sentence per line and words between white space. The model is a directory for score, evaluate,
    sample, fill and explore.
    """
    source = job.inputs(train)
    text, dev_text = own_text(source), _text(dev)
    job.fit(model, text, n_tokens=0, total=1)
    _keep_source(job, model, source.part is None, dev_text, text)
    perplexity = None if dev is None else model.perplexity(dev_text)
    return {"words": len(model.vocabulary_) - 1, "ngrams": model.n_ngrams(), "dev_perplexity": perplexity}


def log_bilinear(job: Job, model: "LogBilinear", train: TextFiles = None) -> dict[str, Any]:
    """Train a log-bilinear language model. Ctrl-C stops after the epoch and saves the model.

    Text has one sentence per line and words between white space. The model is a directory for score, evaluate,
    sample, fill and explore.
    """
    source = job.inputs(train)
    text, dev = own_text(source), _text(job.dev)
    job.fit(model, text, n_tokens=0, total=model.max_iter, dev=dev)
    _keep_source(job, model, source.part is None, dev, text)
    return {"words": len(model.vocabulary_) - 1, "rank": model.rank, "context_size": model.context_size}


def mrf_lm(
    job: Job,
    model: "MRFLanguageModel",
    train: TextFiles = None,
    counts: Annotated[
        str | None, typer.Option(help="Directory of counts (trelliswork data count) instead of text.")
    ] = None,
) -> dict[str, Any]:
    """Train a Markov random field language model. Ctrl-C stops after the current iteration and saves the model.

    Before the first iteration, as while text is counted, Ctrl-C ends the command at once. Options without an effect on
    the chosen algorithm or form are an error. --dev takes text or a directory of counts.
    """
    from trelliswork.data.moments import Moments
    from trelliswork.models.mrf.training import iterations

    if (train or job.bundled) and counts is not None:
        raise typer.BadParameter("give text files or --counts, not both.")
    source = None if counts is not None else job.inputs(train)
    data: Any = Moments.load(str(counts)) if source is None else own_text(source)
    n_tokens = 0
    if counts is not None:
        if "window" in job.given and model.window != data.K:
            raise typer.BadParameter(
                f"{counts} has pairs at distances 1 to {data.K}: leave --window {model.window} out."
            )
        if {"min_count", "max_words", "unknown"} & job.given:
            raise typer.BadParameter("the counts fix the vocabulary: leave --min-count, --max-words, --unknown out.")
        model.window, n_tokens = data.K, data.n_tokens
    total = iterations(model) * (10 if model.algorithm == "pseudo-likelihood" else 1)
    dev = _text(job.dev)
    if isinstance(dev, Path) and (dev / "moments.json").is_file():
        dev = Moments.load(dev)
    job.fit(model, data, n_tokens=n_tokens, total=total, dev=dev)
    _keep_source(job, model, source is None or source.part is None, dev, data)
    return {
        "words": len(model.vocabulary_) - 1,
        "tokens": model._n_tokens,
        "positions": model._n_positions,
        "window": model.window,
        "unary": model.unary,
        "bound": model._bound_kind,
        "per": "word" if model.algorithm == "pseudo-likelihood" else "position",
    }


def _text(name: str | None) -> Any:
    """Return a text file, or the sentences of a part of the bundled corpus."""
    source = None if name is None else dev_input(name)
    return own_text(source) if source is not None and source.part else name and Path(name)


def _keep_source(job: Job, model: Any, from_files: bool, dev: Any, text: Any) -> None:
    """Set the sentences that the report shows, and the layout that ``score`` uses by default."""
    job.sample = lambda: text_part(dev, text)
    model.input_ = {"format": "text", "columns": [], "label": None} if from_files else {}
