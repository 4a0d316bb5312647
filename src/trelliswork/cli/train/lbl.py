"""``trelliswork train lbl``: train a log-bilinear language model on text."""

from typing import TYPE_CHECKING, Any

from trelliswork.cli.reporting import text_part
from trelliswork.cli.train.command import Job
from trelliswork.cli.train.text import TextFiles, development_text, layout_of, training_text

if TYPE_CHECKING:
    from trelliswork.models import LogBilinear


def run(job: Job, model: "LogBilinear", train: TextFiles = None) -> dict[str, Any]:
    """Train a log-bilinear language model. Ctrl-C stops after the epoch and saves the model.

    Text has one sentence per line and words between white space. Without a file the bundled corpus is used. The model
    is a directory for score, evaluate, sample, fill and explore.
    """
    text, dev = training_text(train), development_text(job.dev)
    job.fit(model, text, n_tokens=0, total=model.max_iter, **({} if dev is None else {"dev": dev}))
    model.input_ = layout_of(train)
    job.sample = lambda: text_part(dev, text)
    return {"words": len(model.vocabulary_) - 1, "rank": model.rank, "context_size": model.context_size}
