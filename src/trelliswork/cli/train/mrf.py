"""``trelliswork train mrf``: train a Markov random field language model on text or on its counts."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.cli.reporting import text_part
from trelliswork.cli.train.command import Job
from trelliswork.cli.train.text import TextFiles, development_text, layout_of, training_text

if TYPE_CHECKING:
    from trelliswork.models import MRFLanguageModel


def run(
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

    if train and counts is not None:
        raise typer.BadParameter("give text files or --counts, not both.")
    data: Any = training_text(train) if counts is None else Moments.load(counts)
    if counts is not None:
        if "order" in job.given and model.order != data.K:
            raise typer.BadParameter(f"{counts} has pairs at distances 1 to {data.K}: leave --order {model.order} out.")
        if {"min_count", "max_words"} & job.given:
            raise typer.BadParameter("the counts fix the vocabulary: leave --min-count and --max-words out.")
        model.order = data.K
    settings = model._settings()
    total = settings.iterations * (1 if model.algorithm == "lifted" else 10)
    n_tokens = data.n_tokens if counts is not None else 0
    dev = development_text(job.dev)
    if isinstance(dev, str) and (Path(dev) / "moments.json").is_file():
        dev = Moments.load(dev)
    job.fit(model, data, n_tokens=n_tokens, total=total, **({} if dev is None else {"dev": dev}))
    model.input_ = layout_of(train or ([counts] if counts is not None else None))
    job.sample = lambda: text_part(dev, data)
    return {
        "words": len(model.vocabulary_) - 1,
        "tokens": model.n_tokens_,
        "positions": model.n_positions_,
        "order": model.order,
        "unary": model.unary,
        "bias": model.bias,
        "bound": model.bound_,
        "per": "position" if model.algorithm == "lifted" else "word",
    }
