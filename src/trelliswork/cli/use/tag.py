"""``trelliswork tag``: label a file with a saved tagger of one layer of labels or several."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from trelliswork.cli.inputs import inputs_of
from trelliswork.cli.options import (
    DecodingOption,
    Files,
    OtherBeamOption,
    OutputOption,
    TokenizeOption,
    TokenizerOption,
    TrainedFormatOption,
    bundled_option,
    chosen_tokenizer,
    leave_out,
    named,
    set_beam,
)
from trelliswork.cli.use.loading import Model, RulesOption, check_columns, check_tokenized, load_for, rules_for
from trelliswork.cli.use.output import OBJECTS, Form, FormOption, wanted, with_option, write_tagged
from trelliswork.cli.use.streaming import answer_files
from trelliswork.data.reading import ANNOTATED, FileFormat, Layout, format_for, read_unlabeled
from trelliswork.errors import DataError

if TYPE_CHECKING:
    from trelliswork.answers import Answer, Want
    from trelliswork.data.files import Excerpt


def tag(
    model: Model,
    files: Annotated[Files, named("Files to tag, plain or gzip. Default: standard input, '-'.")] = None,
    bundled: Annotated[bool, bundled_option("test")] = False,
    format: TrainedFormatOption = FileFormat.auto,
    with_: Annotated[
        str | None,
        with_option(
            "marginals, the probability of each label, and in JSON of the labeling; spans that start at a token, such "
            "as NP:3 (type and number of words; with marginals NP:3:0.971, the probability of all their labels "
            "together), for labels in BIO or BIOES; topk=K, the K best labelings and their probabilities."
        ),
    ] = None,
    output: FormOption = None,
    decode: DecodingOption = None,
    min_probability: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Give only answers of at least this probability: the words of other spans are O, other tags are _.",
            show_default=False,
        ),
    ] = None,
    known: Annotated[
        str | None,
        typer.Option(
            help="Column of known labels, with _ for unknown ones: a number or a CoNLL-U name; for a layer of a "
            "factorial CRF: pos=1."
        ),
    ] = None,
    rules: RulesOption = None,
    beam: OtherBeamOption = None,
    tokenize: TokenizeOption = False,
    tokenizer: TokenizerOption = None,
    out: OutputOption = "-",
) -> None:
    """Tag files: a column is added for each layer of labels (in CoNLL-U the label column is replaced).

    Sentences are written while others are read, in bounded memory; a pipe gets what was tagged when no more input has
    arrived.

    With topk=K, further columns have the other labelings, and one column the probabilities of all, separated by commas.

    With --tokenize the last column has the place of each token in the text, START:STOP in characters. JSON has the
    text, the offset of the sentence, the places of tokens, and start and end of spans, in characters of the file.

    Example: echo 'We tag words .' | trelliswork tag tagger --format text --with marginals
    """
    from trelliswork.answers import Want, ask, flat_labels, layers_with_spans
    from trelliswork.data.annotations import brat_files, ends_row, write_spans
    from trelliswork.data.tokenize import read_raw_text
    from trelliswork.models.tasks import LayeredTagger, Tagger

    want = wanted(with_, ("marginals", "spans", "topk"))
    if want.topk:
        leave_out("--with topk=K gives the most probable labelings", decoding=decode, min_probability=min_probability)
    tagger: Any = load_for(model, Tagger, "tag: expected a tagger (for a parser use trelliswork parse)")
    set_beam(tagger, beam)
    layout = Layout.of(tagger)
    layered = isinstance(tagger, LayeredTagger)
    if layered and want.topk:
        raise typer.BadParameter("--with topk=K needs a model with one layer of labels.")
    if (want.spans or decode == "mbr-span") and not layers_with_spans(tagger):
        raise DataError(f"{model}: --with spans and --decoding mbr-span need labels in BIO or BIOES, such as B-NP.")
    layer, column = _known_layer(tagger, known) if layered else ("", known)
    source = inputs_of(files, bundled, stdin=True)
    split = chosen_tokenizer(tokenize, tokenizer, format)
    if split is not None and known is not None:
        raise typer.BadParameter("--known names a column, which raw text does not have: leave --tokenize out.")
    kind = "text" if split is not None else str(format_for(layout, source, format))
    if kind == "brat":  # a file for each document
        source = replace(source, files=tuple(name for file in source.files for name in brat_files(str(file))))
    form: Form | None = output or (None if kind in ANNOTATED else "conllu" if kind == "conllu" else "columns")
    if form == "conllu" and kind == "crfsuite":
        raise typer.BadParameter("--output conllu needs words, and files of ready attributes have none.")
    if form is None and (want.marginals > want.spans or want.topk):
        raise typer.BadParameter("annotated text has spans, --with spans adds their probabilities: or --output jsonl.")
    if form in OBJECTS and want.marginals:
        want = replace(want, log_prob=True)
    plain = want == Want() and min_probability is None and not layered and form not in OBJECTS
    how: Any = {"decoding": decode, "rules": rules_for(tagger, rules)}

    def read(part: "Excerpt") -> tuple[Any, Any] | None:
        """Return the sentences of a part, and their known labels."""
        if kind == "csv" and not part.last and not ends_row(part.lines):
            return None
        if split is not None:
            return read_raw_text(part, split=split), None
        corpus, given = read_unlabeled(part, layout, format, column)
        check_words(tagger, corpus, str(part))
        if kind == "text":
            check_tokenized(tagger, corpus, part)
        elif kind == "columns" and layout.format == kind:
            check_columns(layout, corpus, part)
        return corpus, {layer: given} if layered and given is not None else given

    def answered(corpus: Any, evidence: Any) -> Any:
        if plain:
            return flat_labels(tagger, corpus, known=evidence, **how) if len(corpus) else []
        return ask(tagger, corpus, want, known=evidence, min_probability=min_probability, **how)

    def write(part: "Excerpt", corpus: Any, answers: Any, stream: TextIO) -> None:
        if form is None and want.spans:
            found = [[one for layer in a.layers().values() for one in layer.spans or ()] for a in answers]
            write_spans(corpus, found, stream, header=not part.notes.get("sentences"))
            return
        columns = _columns(answers, want) if not plain else [answers] if answers else []
        write_tagged(corpus, kind, form, layout, columns, stream, part.notes)

    files_of: Any = {"format": kind, "split": split, "form": form}
    answer_files(source, out, tagger, **files_of, read=read, answered=answered, write=write)


def _columns(answers: "list[Answer]", want: "Want") -> list[Sequence[str]]:
    """Return the new columns: labels, their probabilities and spans by layer, and further labelings."""
    from trelliswork.answers import by_layer

    if not answers:
        return []
    layers = by_layer(answers)
    columns: list[Sequence[str]] = [[label for one in row for label in one.value] for row in layers.values()]
    if want.marginals:
        columns += [[f"{p:.6f}" for one in row for p in one.probabilities] for row in layers.values()]
    if want.spans:
        columns += [[cell for one in row for cell in _span_cells(one, want.marginals)] for row in layers.values()]
    if want.topk:
        lists = [answer.alternatives or [] for answer in answers]
        columns += [[label for ranked in lists for label in _nth(ranked, k)] for k in range(1, want.topk)]
        columns.append([",".join(f"{p:.6f}" for _, p in ranked) for ranked in lists for _ in ranked[0][0]])
    return columns


def _span_cells(answer: "Answer", marginals: bool) -> list[str]:
    """Return the span that starts at each token, ``_`` for none."""
    cells = ["_"] * len(answer.value)
    for (type_, start, stop), p in answer.spans or ():
        cells[start] = f"{type_}:{stop - start}" + (f":{p:.6f}" if marginals else "")
    return cells


def _nth(ranked: list[tuple[list[str], float]], k: int) -> list[str]:
    """Return the k-th labeling, or blanks if there are fewer."""
    return ranked[k][0] if k < len(ranked) else ["_"] * len(ranked[0][0])


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


def check_words(tagger: Any, corpus: Any, file: str) -> None:
    """Raise an error if a tagger of words is given ready attributes."""
    from trelliswork.data import AttributeCorpus

    if isinstance(corpus, AttributeCorpus) and not hasattr(tagger, "features"):
        raise DataError(f"{file}: this tagger reads words, but the file has ready attributes.")
