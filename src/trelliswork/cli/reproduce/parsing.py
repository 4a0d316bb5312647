"""``trelliswork reproduce factorial``, ``bp-parsing``, ``bp-accuracy`` and ``bp-cost``: paper 3."""

from typing import Annotated, Any

import typer

from trelliswork.cli.reproduce.running import command, setting


@command("factorial", plot=None)
def factorial(
    size: Annotated[
        list[int] | None, setting("factorial", "sizes", "So many sentences (0: all); may be repeated.", min=0)
    ] = None,
    engine: Annotated[
        list[str] | None,
        setting("factorial", "engines", "bp, structured_mean_field or exact; may be repeated."),
    ] = None,
    l2: Annotated[float | None, setting("factorial", "l2", "L2 penalty.", min=0.0)] = None,
) -> dict[str, Any]:
    """Parts of speech and chunks of CoNLL-2000 jointly, against two CRFs (paper 3).

    Example: trelliswork reproduce factorial --data DATA --size 200 --size 1000
    """
    return {"sizes": size, "engines": engine, "l2": l2}


@command("bp-parsing")
def bp_parsing(
    order: Annotated[list[int] | None, typer.Option(min=1, max=2, help="Only this order; may be repeated.")] = None,
    sentences: Annotated[
        int | None, setting("bp-parsing", "n_sentences", "Train on the first so many sentences (0: all).", min=0)
    ] = None,
) -> dict[str, Any]:
    """UAS and LAS of parsers of the first and second order on UD English EWT (paper 3).

    Example: trelliswork reproduce bp-parsing --data DATA
    """
    return {"orders": order, "n_sentences": sentences}


@command("bp-accuracy")
def bp_accuracy(
    models: Annotated[int | None, setting("bp-accuracy", "n_models", "Random models of each kind.", min=1)] = None,
    nonprojective: Annotated[bool, typer.Option("--nonprojective", help="Arcs may cross.")] = False,
) -> dict[str, Any]:
    """How far second-order belief propagation is from enumeration on small random models (paper 3).

    Example: trelliswork reproduce bp-accuracy --models 50
    """
    return {"n_models": models, "projective": not nonprojective}


@command("bp-cost")
def bp_cost(
    sentences: Annotated[int | None, setting("bp-cost", "n_sentences", "Sentences of a batch.", min=1)] = None,
) -> dict[str, Any]:
    """What second-order belief propagation costs beside first order, by length of the sentences (paper 3).

    Example: trelliswork reproduce bp-cost
    """
    return {"n_sentences": sentences}
