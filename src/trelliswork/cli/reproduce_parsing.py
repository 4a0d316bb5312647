"""``trelliswork reproduce bp-parsing``, ``bp-accuracy`` and ``bp-cost``: dependency trees by belief propagation."""

from typing import Annotated

import typer

from trelliswork.cli.options import JsonOption, QuietOption
from trelliswork.cli.reproducing import Plot, Seed, check_plot, data_file, say_to, show
from trelliswork.cli.running import report_errors


@report_errors
def bp_parsing(
    folder: Annotated[
        str | None, typer.Argument(help="Folder of the treebank's files; by default ud-en-ewt in TRELLISWORK_DATA.")
    ] = None,
    order: Annotated[list[int] | None, typer.Option(min=1, max=2, help="Only this order; may be repeated.")] = None,
    sentences: Annotated[int, typer.Option(min=0, help="Train on the first so many sentences (0: all).")] = 0,
    plot: Plot = None,
    seed: Seed = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """UAS and LAS of parsers of the first and second order on UD English EWT (paper 3).

    Example: trelliswork reproduce bp-parsing DATA/ud-en-ewt
    """
    from trelliswork.experiments.bp_parsing import bp_parsing as run

    check_plot(plot)
    path, orders = data_file(folder, "ud-en-ewt"), tuple(order or (1, 2))
    table = run(path, orders=orders, n_sentences=sentences, seed=seed, say=say_to(quiet))
    show("bp-parsing", table, plot, json)


@report_errors
def bp_accuracy(
    models: Annotated[int, typer.Option(min=1, help="Random models of each kind.")] = 200,
    nonprojective: Annotated[bool, typer.Option("--nonprojective", help="Arcs may cross.")] = False,
    plot: Plot = None,
    seed: Seed = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """How far second-order belief propagation is from enumeration on small random models (paper 3).

    Example: trelliswork reproduce bp-accuracy --models 50
    """
    from trelliswork.experiments.bp_accuracy import bp_accuracy as run

    check_plot(plot)
    table = run(n_models=models, projective=not nonprojective, seed=seed, say=say_to(quiet))
    show("bp-accuracy", table, plot, json)


@report_errors
def bp_cost(
    sentences: Annotated[int, typer.Option(min=1, help="Sentences of a batch.")] = 32,
    plot: Plot = None,
    seed: Seed = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """What second-order belief propagation costs beside first order, by length of the sentences (paper 3).

    Example: trelliswork reproduce bp-cost
    """
    from trelliswork.experiments.bp_accuracy import bp_cost as run

    check_plot(plot)
    show("bp-cost", run(n_sentences=sentences, seed=seed, say=say_to(quiet)), plot, json)
