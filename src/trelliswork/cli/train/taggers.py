"""``trelliswork train crf``, ``factorial-crf``, ``hmm`` and ``mrf-tagger``: train a tagger on files."""

import inspect
import warnings
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.cli.options import (
    FormatOption,
    LabeledFiles,
    SchemeOption,
    SeparatorOption,
    StrictOption,
    leave_out,
)
from trelliswork.cli.reporting import part
from trelliswork.cli.train.command import Job, Run
from trelliswork.data.reading import (
    FileFormat,
    LabelReading,
    Layout,
    file_layout,
    guess_format,
    naming_lines,
    read_labeled,
    read_words,
)
from trelliswork.data.reading.inputs import totals
from trelliswork.errors import DataWarning

if TYPE_CHECKING:
    from trelliswork.models.evidence import Known


def train_tagger(
    job: Job,
    model: Any,
    train: LabeledFiles = None,
    format: FormatOption = FileFormat.auto,
    columns: Annotated[
        str | None,
        typer.Option(
            help="Columns for the features: 0,1 or form,xpos. Models of words take one.",
            show_default="all but the labels, or form",
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            help="Column of the labels: a number or a CoNLL-U name; of several layers 1,2 or xpos,misc.",
            show_default="the last, or upos; CoNLL-U columns with the names of layers",
        ),
    ] = None,
    separator: SeparatorOption = None,
    scheme: SchemeOption = "auto",
    strict: StrictOption = False,
    unlabeled: Annotated[
        bool, typer.Option("--unlabeled", help="Read only words and induce states by EM; the default for plain text.")
    ] = False,
    unknown_label: Annotated[
        str | None, typer.Option(help="Label of tokens whose label is unknown; training uses the others.")
    ] = None,
    alternatives: Annotated[
        str | None, typer.Option(help="Separator within sets of labels: with '|', NN|VB may be either.")
    ] = None,
) -> dict[str, Any]:
    """Read files as a tagger needs them, and fit it."""
    from trelliswork.data.schemes import model_scheme
    from trelliswork.models import HMM

    corpus: Any
    source, of_words = job.inputs(train), not hasattr(model, "features")
    if isinstance(model, HMM) and (unlabeled or guess_format(source, format) == FileFormat.text):
        leave_out("words are read without labels", label=label, unknown_label=unknown_label)
        layout = file_layout(source, format, columns, None, separator, words=True, labeled=False)
        corpus, dev = read_words(source, layout), job.read_dev(read_words, layout)
        return _learn(job, model, layout, source, corpus, None, dev) | {"labels": len(model.labels_)} | _induced(model)
    if of_words and source.part and label is None:
        label = "1"  # the tags of the bundled corpus
    layers = getattr(model, "layers", ())
    layout = file_layout(source, format, columns, label, separator, layers=layers, words=of_words)
    gaps = (unknown_label, alternatives) != (None, None)
    how = LabelReading.of(getattr(model, "scheme", scheme), strict, gaps=gaps)
    if not of_words and how.scheme in ("iob1", "bilou"):
        model.scheme = model_scheme(how.scheme)  # to which labels are converted
    if layout.format == "crfsuite" and "features" in job.given:
        raise typer.BadParameter("--features does not apply to a file of ready attributes: leave it out.")
    corpus, labels = read_labeled(source, layout, how, layers)
    if not of_words:
        if layout.format == "crfsuite":
            model.features = None
        elif "features" not in job.given and not layers:
            model.features = "chunking" if len(layout.columns) == 2 else "pos"
        _check_columns(model.features, layout)
    dev = job.read_dev(read_labeled, layout, how, layers)
    if dev is not None and gaps:
        known = _known(dev[1], unknown_label, alternatives)
        if not of_words and known != dev[1]:
            raise typer.BadParameter("every token of the --dev file needs exactly one label.")
        dev = dev[0], known
    facts = _learn(job, model, layout, source, corpus, _known(labels, unknown_label, alternatives), dev)
    facts |= {"labels": {k: len(v) for k, v in model.labels_.items()} if layers else len(model.labels_)}
    if not of_words:
        learned = model.describe(1).facts
        return facts | {name: learned[name] for name in ("features", "active")}
    if isinstance(model, HMM):
        return facts | _induced(model)
    exact = model.order == model.n_words == 1
    return facts | {
        "words": len(model.known_words()),
        "bound": model.describe(1).facts["bound"],
        "bound_kind": "exact" if exact else "lower",
    }


def _learn(job: Job, model: Any, layout: Layout, source: Any, corpus: Any, labels: Any, dev: Any) -> dict[str, Any]:
    """Fit a tagger; return the numbers of sentences and tokens of all processes."""
    from trelliswork.models import CRF

    n_sentences, n_tokens = totals(len(corpus), corpus.n_tokens)
    total = model._settings().iterations if isinstance(model, CRF) else model.max_iter
    with naming_lines(source, corpus):
        job.fit(model, corpus, labels, n_tokens=n_tokens, total=total, dev=dev)
    job.sample = partial(part, (dev,) if dev is not None and labels is None else dev, corpus)
    model.input_ = layout.to_dict()
    return {"sentences": n_sentences, "tokens": n_tokens}


def _induced(model: Any) -> dict[str, Any]:
    """Return facts about an HMM."""
    report = model.report_
    evidence = report.history[-1].log_evidence if report.history else None
    facts = {"words": len(model.known_words()), "induced": model._induced, "log_evidence": evidence}
    return facts | ({"restarts": len(report.details["restarts"])} if "restarts" in report.details else {})


def _check_columns(features: Any, layout: Layout) -> None:
    """Warn about columns for the features that a preset ignores."""
    from trelliswork.features.presets import PRESETS

    names = [str(column) for column in layout.columns]
    n = PRESETS[features].n_columns if isinstance(features, str) and features in PRESETS else len(names)
    if n < len(names):
        warnings.warn(
            f"the features '{features}' use column {' and '.join(names[:n])} and ignore {', '.join(names[n:])}. Use "
            f"templates (--features FILE) for all columns, or --columns {','.join(names[:n])} to hide this message.",
            DataWarning,
            stacklevel=2,
        )


def _known(labels: Any, unknown: str | None, alternatives: str | None) -> Any:
    """Return labels with sets and gaps as the options define them."""
    if unknown is None and alternatives is None:
        return labels

    def one(label: str) -> "Known":
        if label == unknown:
            return None
        return label.split(alternatives) if alternatives and alternatives in label else label

    return [[one(label) for label in sentence] for sentence in labels]


def _command(help: str, *others: str) -> Run:
    """Return `train_tagger` with the options that a model takes, without those of ``others``, and its help."""
    run: Any = partial(train_tagger)
    signature = inspect.signature(train_tagger)
    kept = [parameter for name, parameter in signature.parameters.items() if name not in others]
    run.__signature__, run.__doc__ = signature.replace(parameters=kept), help
    return run


crf = _command(
    """Train a CRF tagger. Ctrl-C stops after the current iteration and saves the model.

    Files have one token per line with columns between white space and an empty line after each sentence: the last
    column is the label (--label), the others are for the features (--columns). CoNLL-U and CRFsuite's format are read
    as well. The default features are chunking for two columns, else pos. The model is a directory for tag, evaluate,
    inspect and explore.
    """,
    "scheme", "unlabeled",
)  # fmt: skip
factorial_crf = _command(
    """Train a tagger of several label layers. Ctrl-C stops after the current iteration and saves the model.

    Files have one token per line and an empty line after each sentence: the last columns are the layers, in the order
    of --layers, the others are for the features; in CoNLL-U, the columns of these names. The model
    is a directory for tag, evaluate, inspect and explore.
    """,
    "scheme", "unlabeled", "unknown_label", "alternatives",
)  # fmt: skip
hmm = _command(
    """Train a hidden Markov model. Ctrl-C stops EM after the current iteration and saves the model.

    Labels give a tagger, words alone induced states. Files have one token per line and an empty line after each
    sentence: words are the first column, labels the last; CoNLL-U and plain text (one sentence per line, --unlabeled)
    are read as well. The model is a directory for tag, evaluate, score, sample, inspect and explore.
    """,
    "alternatives",
)
mrf_tagger = _command(
    """Train a tagger by the joint likelihood of tags and words. Ctrl-C stops after the current iteration and saves it.

    Files have one token per line and an empty line after each sentence: words are the first column, tags the last;
    CoNLL-U is read as well. The model is a directory for tag, evaluate, inspect and explore.
    """,
    "unlabeled", "unknown_label", "alternatives",
)  # fmt: skip
