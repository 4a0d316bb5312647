"""``trelliswork reproduce beams-decoding``, ``beams-training`` and ``nettalk``: paper 2."""

from typing import Annotated, Any

import typer

from trelliswork.cli.reproduce.running import command, setting


@command("beams-decoding", plot=None)
def beams_decoding(
    models: Annotated[int | None, setting("beams-decoding", "n_models", "Random models.", min=1)] = None,
    sequences: Annotated[int | None, setting("beams-decoding", "n_sequences", "Sequences of each.", min=1)] = None,
    states: Annotated[int | None, setting("beams-decoding", "n_states", "States.", min=2)] = None,
    symbols: Annotated[
        int | None, setting("beams-decoding", "n_symbols", "Symbols; the paper does not say how many.", min=2)
    ] = None,
) -> dict[str, Any]:
    """States that each kind of beam needs for the exact Viterbi path (paper 2, section 4.1).

    Example: trelliswork reproduce beams-decoding --models 1 --sequences 20
    """
    return {"n_models": models, "n_sequences": sequences, "n_states": states, "n_symbols": symbols}


@command("beams-training")
def beams_training(
    states: Annotated[int | None, setting("beams-training", "n_states", "States of the random model.", min=2)] = None,
    sequences: Annotated[
        int | None, setting("beams-training", "n_train", "Sequences for training, and as many for the test.", min=1)
    ] = None,
    max_iter: Annotated[int | None, setting("beams-training", "max_iter", "Iterations at most.", min=1)] = None,
    l2: Annotated[float | None, setting("beams-training", "l2", "L2 penalty.", min=0.0)] = None,
) -> dict[str, Any]:
    """Learning curves of CRF training, exactly and within four beams (paper 2, figure 1).

    Example: trelliswork reproduce beams-training --plot curves.png
    """
    return {"n_train": sequences, "n_test": sequences, "n_states": states, "l2": l2, "max_iter": max_iter}


@command("nettalk")
def nettalk(
    order: Annotated[list[int] | None, typer.Option(min=1, max=2, help="Only this order; may be repeated.")] = None,
    exact_second: Annotated[
        bool, typer.Option("--exact-second", help="Also the second order without a beam: slow.")
    ] = False,
    words: Annotated[int | None, typer.Option(min=50, help="Only so many words.", show_default="all")] = None,
    max_iter: Annotated[int | None, setting("nettalk", "max_iter", "Iterations at most.", min=1)] = None,
    l2: Annotated[float | None, setting("nettalk", "l2", "L2 penalty.", min=0.0)] = None,
) -> dict[str, Any]:
    """Letters to phonemes by CRFs, exactly and within beams, of the first and second order (paper 2, figure 2).

    Example: trelliswork reproduce nettalk --data DATA --plot curves.png
    """
    return {"l2": l2, "max_iter": max_iter, "n_words": words, "orders": order, "exact_second": exact_second}
