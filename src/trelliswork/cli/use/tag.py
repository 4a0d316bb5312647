"""``trelliswork tag``: label a file with a saved tagger of one layer of labels or several."""

import json as json_module
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from trelliswork.cli.corpora import FileFormat, Layout, naming_lines, read_unlabeled, write_tagged
from trelliswork.cli.inputs import Inputs
from trelliswork.cli.options import OtherBeamOption, OutputOption, TrainedFormatOption, set_beam
from trelliswork.cli.use.loading import Model, check_tokenized, load_for
from trelliswork.cli.use.sharing import write_outputs
from trelliswork.errors import DataError

if TYPE_CHECKING:
    from trelliswork.data import AttributeCorpus, Corpus

Labels = list[list[str]]


def tag(
    model: Model,
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Files to tag, plain or gzip. Default: standard input, '-'.", show_default=False),
    ] = None,
    format: TrainedFormatOption = FileFormat.auto,
    marginals: Annotated[bool, typer.Option("--marginals", help="Add the probability of each label.")] = False,
    topk: Annotated[int, typer.Option(min=1, help="Number of best labelings per sentence.")] = 1,
    known: Annotated[
        str | None,
        typer.Option(
            help="Column of known labels, with _ for unknown ones: a number or a CoNLL-U name; for a layer of a "
            "factorial CRF: pos=1."
        ),
    ] = None,
    beam: OtherBeamOption = None,
    out: OutputOption = "-",
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object per sentence and line: words, labels, probabilities.")
    ] = False,
) -> None:
    """Tag files: a column is added for each layer of labels (in CoNLL-U the label column is replaced).

    With --topk each labeling of a sentence is a column, and one more column has their probabilities in that order,
    separated by commas.

    Example: echo 'We tag words .' | trelliswork tag tagger --format text
    """
    from trelliswork.models.tasks import LayeredTagger, Tagger

    if topk > 1 and marginals:
        raise typer.BadParameter("--topk prints probabilities of labelings, --marginals those of labels: choose one.")
    if json and marginals:
        raise typer.BadParameter("--json includes the probabilities of labels: leave --marginals out.")
    tagger: Any = load_for(model, Tagger, "tag: expected a tagger (for a parser use trelliswork parse)")
    set_beam(tagger, beam)
    layout = Layout.of(tagger)
    layered = isinstance(tagger, LayeredTagger)
    if layered and topk > 1:
        raise typer.BadParameter("--topk needs a model with one layer of labels.")
    layer, column = _known_layer(tagger, known) if layered else ("", known)
    source = Inputs.of(files, "-")
    lines = layout.format == "text" if format == FileFormat.auto else format == FileFormat.text

    def work(one: Inputs, stream: TextIO) -> int:
        (file,) = one.files
        corpus, chosen, given = read_unlabeled(file, layout, format, column, allow_empty=one.allow_empty)
        if given is not None:
            with naming_lines(file, corpus=corpus):
                _check_given(tagger, layer, given)
        check_words(tagger, corpus, one.name)
        if chosen == "text":
            check_tokenized(tagger, corpus)
        evidence: Any = {layer: given} if layered and given is not None else given
        if json:
            answers = _answers(tagger, corpus, evidence, topk) if len(corpus) else []
            stream.writelines(json_module.dumps(answer, ensure_ascii=False) + "\n" for answer in answers)
        else:
            extra = _columns(tagger, corpus, evidence, topk, marginals) if len(corpus) else []
            write_tagged(corpus, chosen, layout, extra, stream)
        return len(corpus)

    write_outputs(source, out, work, blank_lines=not lines)


def _columns(
    tagger: Any, corpus: "Corpus | AttributeCorpus", evidence: Any, topk: int, marginals: bool
) -> list[list[str]]:
    """Return the new columns: labels, and probabilities if they are requested."""
    if topk > 1:
        lists = tagger.predict_topk(corpus, topk, known=evidence)
        extra = [[label for ranked in lists for label in _nth(ranked, k)] for k in range(max(map(len, lists)))]
        return [*extra, [",".join(f"{p:.6f}" for _, p in ranked) for ranked in lists for _ in ranked[0][0]]]
    layers, rows = _predict(tagger, corpus, evidence, marginals)
    extra = [[label for sentence in labels for label in sentence] for labels in layers.values()]
    for labels, own in zip(list(extra), rows.values(), strict=False):  # no rows without --marginals
        tokens = [token for sentence in own for token in sentence]
        extra.append([f"{token[label]:.6f}" for token, label in zip(tokens, labels, strict=True)])
    return extra


def _predict(
    tagger: Any, corpus: "Corpus | AttributeCorpus", known: Any, marginals: bool = True
) -> tuple[dict[str, Labels], dict[str, Any]]:
    """Return labels and, if requested, marginals by layer; the name of a single layer is empty."""
    from trelliswork.models.tasks import LayeredTagger

    layered = isinstance(tagger, LayeredTagger)
    labels: Any = tagger.predict_layers(corpus, known=known) if layered else {"": tagger.predict(corpus, known=known)}
    if not marginals:
        return labels, {}
    rows = tagger.predict_marginals(corpus, known=known)
    return labels, rows if layered else {"": rows}


def _answers(tagger: Any, corpus: "Corpus | AttributeCorpus", known: Any, topk: int) -> list[dict[str, Any]]:
    """Return words, labels and probabilities of each sentence, or its ``topk`` best labelings.

    Files of ready attributes have no words.
    """
    from trelliswork.data import Corpus

    words = [{"words": list(s)} for s in corpus.sentences(0)] if isinstance(corpus, Corpus) else [{}] * len(corpus)
    if topk > 1:
        lists = tagger.predict_topk(corpus, topk, known=known)
        best = [[{"labels": list(y), "probability": float(p)} for y, p in ranked] for ranked in lists]
        return [{**sentence, "labelings": some} for sentence, some in zip(words, best, strict=True)]
    layers, rows = _predict(tagger, corpus, known)
    answers: list[dict[str, Any]] = []
    for n, sentence in enumerate(words):
        labels = {name: list(own[n]) for name, own in layers.items()}
        chosen = {
            name: [float(row[label]) for row, label in zip(rows[name][n], own, strict=True)]
            for name, own in labels.items()
        }
        answers.append({**sentence, "labels": labels.get("", labels), "probabilities": chosen.get("", chosen)})
    return answers


def _known_layer(tagger: Any, known: str | None) -> tuple[str, str | None]:
    """Return layer and column of ``--known``."""
    if known is None:
        return "", None
    name, _, column = known.partition("=")
    if name not in tagger.layers or not column:
        layers = ", ".join(tagger.layers)
        raise typer.BadParameter(
            f"--known must be LAYER=COLUMN, such as {tagger.layers[0]}=1, of {layers}; got {known[:80]!r}."
        )
    return name, column


def _check_given(tagger: Any, layer: str, given: list[list[str | None]]) -> None:
    """Raise an error for a known label that the model lacks."""
    from trelliswork.data.files import shorten

    labels = next(own.labels for own in tagger.layers_ if own.name == layer) if layer else list(tagger.labels_)
    for n, sentence in enumerate(given):
        for t, label in enumerate(sentence):
            if label is None or label in labels:
                continue
            whose = f"layer {layer}" if layer else "the model"
            some = ", ".join(labels[:20]) + (", ..." if len(labels) > 20 else "")
            raise DataError(
                f"sentence {n}, token {t}: {shorten(label)} is given, but {whose} has no such label: "
                f"{some[:400]}; use _ for an unknown label."
            ).at(n, t)


def _nth(ranked: list[tuple[list[str], float]], k: int) -> list[str]:
    """Return the k-th labeling, or blanks if there are fewer."""
    return ranked[k][0] if k < len(ranked) else ["_"] * len(ranked[0][0])


def check_words(tagger: Any, corpus: Any, file: str) -> None:
    """Raise an error if a tagger of words is given ready attributes."""
    from trelliswork.data import AttributeCorpus

    if isinstance(corpus, AttributeCorpus) and not hasattr(tagger, "features"):
        raise DataError(f"{file}: this tagger reads words, but the file has ready attributes.")
