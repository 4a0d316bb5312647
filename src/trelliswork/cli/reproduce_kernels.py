"""``trelliswork reproduce kernel-hmm`` and ``kernel-features``: paper 4."""

from typing import Annotated

import typer

from trelliswork.cli.options import JsonOption, QuietOption
from trelliswork.cli.reproducing import Plot, Seed, check_plot, data_file, say_to, show
from trelliswork.cli.running import report_errors


@report_errors
def kernel_hmm(
    folder: Annotated[
        str | None, typer.Argument(help="Folder of ptb.train.txt and so on; by default ptb-lm in TRELLISWORK_DATA.")
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(help="States, or states/rank; may be repeated.", show_default="128 and 1024/128"),
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Of each training, at most.")] = 10,
    minutes: Annotated[float | None, typer.Option(help="Of each training, at most.")] = 20.0,
    sentences: Annotated[int, typer.Option(min=0, help="Train on the first so many (0: all).")] = 0,
    batch_tokens: Annotated[int | None, typer.Option(min=1, help="Words of a batch.", show_default="2048")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Of AdamW.", show_default="0.003, kernels 0.001")] = None,
    state_dropout: Annotated[
        float | None, typer.Option(min=0.0, max=0.99, help="States a batch leaves out.", show_default="0.1")
    ] = None,
    em_iterations: Annotated[int, typer.Option(min=0, help="Of EM first, for softmax models.")] = 0,
    kneser_ney: Annotated[bool, typer.Option("--kneser-ney/--no-kneser-ney", help="Also the 5-gram baseline.")] = True,
    plot: Plot = None,
    seed: Seed = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """HMM language models of many states on Penn Treebank text: perplexity by states and rank (paper 4).

    Example: trelliswork reproduce kernel-hmm DATA/ptb-lm --size 512 --size 4096/512 --minutes 120 --epochs 60
    """
    from trelliswork.experiments.kernel_hmm import Size
    from trelliswork.experiments.kernel_hmm import kernel_hmm as run

    check_plot(plot)
    try:
        sizes = [Size.parse(text) for text in size or ("128", "1024/128")]
    except ValueError:
        raise typer.BadParameter(f"--size must be states or states/rank, such as 4096/512, got {size}.") from None
    if em_iterations and any(s.rank for s in sizes):
        raise typer.BadParameter("--em-iterations are for softmax models: give sizes without a rank.")
    given = {
        "batch_tokens": batch_tokens,
        "learning_rate": learning_rate,
        "state_dropout": state_dropout,
        "em_iterations": em_iterations,
    }
    table = run(
        data_file(folder, "ptb-lm"),
        sizes=sizes,
        max_epochs=epochs,
        seconds=None if minutes is None else 60 * minutes,
        n_sentences=sentences,
        kneser_ney=kneser_ney,
        seed=seed,
        options={name: value for name, value in given.items() if value is not None},
        say=say_to(quiet),
    )
    show("kernel-hmm", table, plot, json)


@report_errors
def kernel_features(
    features: Annotated[
        list[int] | None, typer.Option(min=1, help="Number of features; may be repeated.", show_default="16 to 1024")
    ] = None,
    states: Annotated[int, typer.Option(min=2, help="Points.")] = 256,
    dims: Annotated[int, typer.Option(min=1, help="Dimensions.")] = 8,
    norm: Annotated[float, typer.Option(min=0.0, help="Length of the points: larger is harder.")] = 1.5,
    plot: Plot = None,
    seed: Seed = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Error of approximations of the exponential kernel against the exact softmax, by number of features (paper 4).

    Example: trelliswork reproduce kernel-features --features 64 --features 256
    """
    from trelliswork.experiments.kernel_hmm import kernel_features as run

    check_plot(plot)
    chosen = tuple(features or (16, 64, 256, 1024))
    table = run(features=chosen, n_states=states, n_dims=dims, norm=norm, seed=seed, say=say_to(quiet))
    show("kernel-features", table, plot, json)
