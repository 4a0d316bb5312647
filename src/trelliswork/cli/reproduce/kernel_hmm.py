"""``trelliswork reproduce kernel-hmm`` and ``kernel-features``: paper 4."""

from typing import Annotated, Any

import typer

from trelliswork.cli.reproduce.running import command, setting


@command("kernel-hmm")
def kernel_hmm(
    size: Annotated[
        list[str] | None, setting("kernel-hmm", "sizes", "States, or states/rank; may be repeated.")
    ] = None,
    epochs: Annotated[int | None, setting("kernel-hmm", "max_epochs", "Of each training, at most.", min=1)] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0.0, help="Of each training, at most.", show_default="30")
    ] = None,
    sentences: Annotated[
        int | None, setting("kernel-hmm", "n_sentences", "Train on the first so many (0: all).", min=0)
    ] = None,
    batch_tokens: Annotated[
        int | None, typer.Option(min=1, help="Words of a batch.", show_default="2048; 4096 from 4096 states on")
    ] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Of AdamW.", show_default="0.003")] = None,
    state_dropout: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=0.99,
            help="Part of the states that a batch leaves out.",
            show_default="0.1; 0.5 from 4096 states on",
        ),
    ] = None,
    em_iterations: Annotated[int, typer.Option(min=0, help="Of EM first, for softmax models.")] = 0,
    keep: Annotated[
        str | None, typer.Option(help="Folder of the models and unfinished runs: the same command goes on from it.")
    ] = None,
    kneser_ney: Annotated[
        bool | None,
        typer.Option("--kneser-ney/--no-kneser-ney", help="Also the 5-gram baseline.", show_default="yes"),
    ] = None,
) -> dict[str, Any]:
    """HMM language models of many states on Penn Treebank text: perplexity by states and rank (paper 4).

    Example: trelliswork reproduce kernel-hmm --data DATA --size 16384/64 --minutes 120 --keep models --no-kneser-ney
    """
    from trelliswork.experiments.kernel_hmm import Size

    try:
        sizes = [Size.parse(text) for text in size or ()]
    except ValueError:
        raise typer.BadParameter(f"--size must be states or states/rank, such as 4096/512, got {size}.") from None
    if em_iterations and (not sizes or any(s.rank for s in sizes)):
        raise typer.BadParameter("--em-iterations are for softmax models: give sizes without a rank.")
    options = {
        "batch_tokens": batch_tokens,
        "learning_rate": learning_rate,
        "state_dropout": state_dropout,
        "em_iterations": em_iterations or None,
    }
    return {
        "sizes": size,
        "max_epochs": epochs,
        "seconds": None if minutes is None else 60 * minutes,
        "n_sentences": sentences,
        "kneser_ney": kneser_ney,
        "keep": keep,
        "options": {name: value for name, value in options.items() if value is not None} or None,
    }


@command("kernel-features")
def kernel_features(
    features: Annotated[
        list[int] | None, setting("kernel-features", "features", "Number of features; may be repeated.", min=1)
    ] = None,
    states: Annotated[int | None, setting("kernel-features", "n_states", "Points.", min=2)] = None,
    dims: Annotated[int | None, setting("kernel-features", "n_dims", "Dimensions.", min=1)] = None,
    norm: Annotated[
        float | None, setting("kernel-features", "norm", "Length of the points: larger is harder.", min=0.0)
    ] = None,
) -> dict[str, Any]:
    """Error of approximations of the exponential kernel against the exact softmax, by number of features (paper 4).

    Example: trelliswork reproduce kernel-features --features 64 --features 256
    """
    return {"features": features, "n_states": states, "n_dims": dims, "norm": norm}
