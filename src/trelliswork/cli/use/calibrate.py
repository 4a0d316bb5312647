"""``trelliswork calibrate``: fit the probabilities of a saved model to held-out answers."""

import os
import sys
from typing import Annotated, Any

import typer

from trelliswork.cli.inputs import inputs_of
from trelliswork.cli.options import Files, ForceOption, JsonOption, TrainedFormatOption, bundled_option, named, tell
from trelliswork.cli.saving import check_out, save_or_rescue
from trelliswork.cli.use.loading import Model, load_for
from trelliswork.compute.display import plural
from trelliswork.data.reading import (
    AUTOMATIC,
    FileFormat,
    LabelReading,
    Layout,
    evaluation_layout,
    naming_lines,
    read_labeled,
)
from trelliswork.data.reading.inputs import Inputs


def calibrate(
    model: Model,
    files: Annotated[
        Files, named("Held-out files with gold answers, not those of training; '-' is standard input.")
    ] = None,
    bundled: Annotated[bool, bundled_option("dev")] = False,
    format: TrainedFormatOption = FileFormat.auto,
    label: Annotated[
        str | None, typer.Option(help="Column of the labels, if not that of training: a number or a CoNLL-U name.")
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", "-o", help="Directory for the calibrated model.", show_default="MODEL itself, which is replaced"
        ),
    ] = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Calibrate the probabilities of a tagger, parser or grammar on held-out data, and save the model.

    Answers stay the same, but for decisions by probabilities; marginals, spans and posteriors change. Training again
    removes the calibration. See how well it works with evaluate, on other files.

    Example: trelliswork calibrate chunker dev.txt
    """
    from trelliswork.models.calibration import calibrate as fit

    place = out or model
    force = force or os.path.realpath(place) == os.path.realpath(model)  # in place, as is asked for
    check_out(place, force=force)
    fitted = load_for(model, "_calibrate_temperature", "have marginals to calibrate: expected a tagger or parser")
    source = inputs_of(files, bundled, "dev")
    X, y = read_answers(fitted, source, format, label)
    print(f"calibrating with {plural(len(X), 'sentences')}", file=sys.stderr)
    with naming_lines(source, X):
        fit(fitted, X, y)
    save_or_rescue(fitted.save, place, force=force)
    result = fitted.calibration_
    tell(json, {"model": place, "kind": fitted.family} | result.to_dict(), f"{result}. Saved in {place}")


def read_answers(
    model: Any, source: Inputs, format: FileFormat, label: str | None, how: LabelReading = AUTOMATIC
) -> tuple[Any, Any]:
    """Return the sentences and gold answers of files, as ``fit`` takes them."""
    from trelliswork.models.tasks import LayeredTagger, TreeParser

    task = type(model)
    if issubclass(task, TreeParser) and (label is not None or format not in (FileFormat.auto, FileFormat.conllu)):
        raise typer.BadParameter("a parser or grammar is compared with trees: leave --label and --format out.")
    if issubclass(task, TreeParser) and task.constituents:
        from trelliswork.cli.treebanks import read_gold, reading_of, tokens_of

        reading = reading_of(model)
        trees = read_gold(source, reading.pop("punctuation"))
        return tokens_of(trees, **reading), trees
    if issubclass(task, TreeParser):
        from trelliswork.cli.treebanks import check_tags, columns_of, read_treebank

        columns = columns_of(model)
        corpus, arcs = read_treebank(source, columns)
        if model.tagger is None:
            check_tags(corpus, columns, source.name)
        return corpus, arcs
    layers = model.layers if isinstance(model, LayeredTagger) else ()
    layout = evaluation_layout(Layout.of(model), source, format, label, layers)
    return read_labeled(source, layout, how, layers)
