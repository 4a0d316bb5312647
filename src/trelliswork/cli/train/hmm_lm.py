"""``trelliswork train hmm-lm``: train an HMM language model on text."""

from typing import TYPE_CHECKING, Any

from trelliswork.cli.corpora import FileFormat, read_words, words_layout
from trelliswork.cli.options import FormatOption, TextFile
from trelliswork.cli.reporting import part
from trelliswork.cli.train.command import Job

if TYPE_CHECKING:
    from trelliswork.models import HMMLanguageModel


def run(
    job: Job, model: "HMMLanguageModel", train: TextFile = None, format: FormatOption = FileFormat.auto
) -> dict[str, Any]:
    """Train an HMM language model. Ctrl-C stops at the next validation and saves the best parameters.

    Text has one sentence per line and words between white space. Without a file the bundled corpus is used. The model
    is a directory for score, evaluate, sample, fill, inspect and explore.
    """
    layout = words_layout(train, FileFormat.text if train and format == FileFormat.auto else format, None, None)
    corpus = read_words(train, layout)
    options = {} if job.dev is None else {"dev": read_words(job.dev, layout)}
    total = model.max_iter * model.evaluations
    job.fit(model, corpus, n_tokens=corpus.n_tokens // model.evaluations, total=total, **options)
    job.sample = lambda: part((options["dev"],) if options else None, corpus)
    model.input_ = layout.to_dict()
    return {
        "sentences": len(corpus),
        "tokens": corpus.n_tokens,
        "words": len(model.vocabulary_),
        "states": model.n_states,
        "rank": model.n_features if model.parameterization == "kernel" else None,
    }
