"""``trelliswork train kneser-ney``: train an n-gram language model on text."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.cli.reporting import text_part
from trelliswork.cli.train.command import Job
from trelliswork.cli.train.text import TextFiles, development_text, layout_of, training_text

if TYPE_CHECKING:
    from trelliswork.models import KneserNey


def run(
    job: Job,
    model: "KneserNey",
    train: TextFiles = None,
    dev: Annotated[
        str | None, typer.Option(help="Development text, or dev of the bundled corpus: its perplexity is printed.")
    ] = None,
) -> dict[str, Any]:
    """Train an n-gram language model with interpolated modified Kneser-Ney smoothing.

    Text has one sentence per line and words between white space. Without a file the bundled corpus is used. The model
    is a directory for score, evaluate, sample, fill and explore.
    """
    text = training_text(train)
    job.fit(model, text, n_tokens=0, total=1)
    model.input_ = layout_of(train)
    job.sample = lambda: text_part(development_text(dev), text)
    perplexity = None if dev is None else model.perplexity(development_text(dev))
    return {
        "words": len(model.vocabulary_) - 1,
        "ngrams": model.n_ngrams(),
        "dev_perplexity": perplexity,
    }
