"""``trelliswork tag``: label a file with a saved tagger."""

from typing import Annotated, Any

import typer

from trelliswork.cli.corpora import FileFormat, Layout, read_unlabeled, write_tagged
from trelliswork.cli.options import OtherBeamOption, set_beam
from trelliswork.cli.use.layers import tag_layers
from trelliswork.cli.use.loading import Model, load_for
from trelliswork.cli.use.tag_output import labelings, write_json
from trelliswork.errors import DataError


def tag(
    model: Model,
    file: Annotated[str, typer.Argument(help="File to tag; '-' is standard input.")] = "-",
    format: Annotated[
        FileFormat, typer.Option(help="Format of the file; by default that of training.")
    ] = FileFormat.auto,
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
    out: Annotated[str, typer.Option("--out", "-o", help="Output file instead of standard output.")] = "-",
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object per sentence and line: words, labels, probabilities.")
    ] = False,
) -> None:
    """Tag a file: a column is added for each layer of labels (in CoNLL-U the label column is replaced).

    With --topk each labeling of a sentence is a column, and one more column has their probabilities in that order,
    separated by commas.

    Example: echo 'We tag words .' | trelliswork tag tagger --format text
    """
    from trelliswork.data.files import atomic_write
    from trelliswork.models.tasks import LayeredTagger, Tagger

    if topk > 1 and marginals:
        raise typer.BadParameter("--topk prints probabilities of labelings, --marginals those of labels: choose one.")
    if json and marginals:
        raise typer.BadParameter("--json includes the probabilities of labels: leave --marginals out.")
    tagger: Any = load_for(model, Tagger, "tag: expected a tagger (for a parser use trelliswork parse)")
    set_beam(tagger, beam)
    layout = Layout.of(tagger)
    if issubclass(type(tagger), LayeredTagger):
        if topk > 1:
            raise typer.BadParameter("--topk needs a model with one layer of labels.")
        tag_layers(tagger, layout, file, format, marginals, known, out, json)
        return
    corpus, chosen, given = read_unlabeled(file, layout, format, known)
    if given is not None:
        _check_given(list(tagger.labels_), given)
    check_words(tagger, corpus, file)
    if json:
        answers = labelings(tagger, corpus, given, topk)
        with atomic_write(out) as stream:
            write_json(corpus, answers, stream)
        return
    if topk > 1:
        lists = tagger.predict_topk(corpus, topk, known=given)
        extra = [[label for ranked in lists for label in _nth(ranked, k)] for k in range(max(map(len, lists)))]
        extra.append([",".join(f"{p:.6f}" for _, p in ranked) for ranked in lists for _ in ranked[0][0]])
    else:
        extra = [[label for labels in tagger.predict(corpus, known=given) for label in labels]]
        if marginals:
            rows = [token for sentence in tagger.predict_marginals(corpus, known=given) for token in sentence]
            extra.append([f"{row[label]:.6f}" for row, label in zip(rows, extra[0], strict=True)])
    with atomic_write(out) as stream:
        write_tagged(corpus, chosen, layout, extra, stream)


def _check_given(labels: list[str], given: list[list[str | None]]) -> None:
    for n, sentence in enumerate(given):
        for t, label in enumerate(sentence):
            if label is not None and label not in labels:
                raise DataError(
                    f"sentence {n}, token {t}: {label!r} is given, but the model has no such label: "
                    f"{', '.join(labels)}; use _ for an unknown label."
                )


def _nth(ranked: list[tuple[list[str], float]], k: int) -> list[str]:
    """Return the k-th labeling, or blanks if there are fewer."""
    return ranked[k][0] if k < len(ranked) else ["_"] * len(ranked[0][0])


def check_words(tagger: Any, corpus: Any, file: str) -> None:
    """Raise an error if a tagger of words is given ready attributes."""
    from trelliswork.data import AttributeCorpus

    if isinstance(corpus, AttributeCorpus) and not hasattr(tagger, "features"):
        raise DataError(f"{file}: this tagger reads words, but the file has ready attributes.")
