"""``trelliswork reproduce``: the papers' experiments, our figures beside theirs."""

from typing import Annotated

import typer

from trelliswork.cli.options import JsonOption, QuietOption
from trelliswork.cli.reproduce_kernels import kernel_features, kernel_hmm
from trelliswork.cli.reproduce_mrf import mrf_exact, mrf_ptb
from trelliswork.cli.reproduce_parsing import bp_accuracy, bp_cost, bp_parsing
from trelliswork.cli.reproduce_pcfg import low_rank_pcfg
from trelliswork.cli.reproduce_tagging import mrf_neighbors, mrf_tagging
from trelliswork.cli.reproducing import Plot, Seed, check_plot, data_file, say_to, show
from trelliswork.cli.running import report_errors

app = typer.Typer(
    no_args_is_help=True,
    help="Run an experiment of the papers again and print our figures beside theirs.",
)


@app.command("beams-decoding")
@report_errors
def beams_decoding(
    models: Annotated[int, typer.Option(min=1, help="Random models.")] = 5,
    sequences: Annotated[int, typer.Option(min=1, help="Sequences of each.")] = 100,
    states: Annotated[int, typer.Option(min=2, help="States.")] = 100,
    symbols: Annotated[int, typer.Option(min=2, help="Symbols; the paper does not say how many.")] = 1000,
    seed: Seed = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """States that each kind of beam needs for the exact Viterbi path (paper 2, section 4.1)."""
    from trelliswork.experiments.beams import decoding

    table = decoding(
        n_models=models, n_sequences=sequences, n_states=states, n_symbols=symbols, seed=seed, say=say_to(quiet)
    )
    show("beams-decoding", table, None, json)


@app.command("beams-training")
@report_errors
def beams_training(
    states: Annotated[int, typer.Option(min=2, help="States of the random model.")] = 100,
    sequences: Annotated[int, typer.Option(min=1, help="Sequences for training, and as many for the test.")] = 50,
    max_iter: Annotated[int, typer.Option(min=1, help="Iterations at most.")] = 200,
    l2: Annotated[float, typer.Option(min=0.0, help="L2 penalty.")] = 0.003,
    plot: Plot = None,
    seed: Seed = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Learning curves of CRF training, exactly and within four beams (paper 2, figure 1)."""
    from trelliswork.experiments.beams import training

    check_plot(plot)
    table = training(
        n_train=sequences, n_test=sequences, n_states=states, l2=l2, max_iter=max_iter, seed=seed, say=say_to(quiet)
    )
    show("beams-training", table, plot, json)


@app.command("nettalk")
@report_errors
def nettalk(
    file: Annotated[
        str | None, typer.Argument(help="nettalk.data; by default nettalk/nettalk.data in TRELLISWORK_DATA.")
    ] = None,
    order: Annotated[list[int] | None, typer.Option(min=1, max=2, help="Only this order; may be repeated.")] = None,
    exact_second: Annotated[
        bool, typer.Option("--exact-second", help="Also the second order without a beam: slow.")
    ] = False,
    words: Annotated[int | None, typer.Option(min=50, help="Only so many words, for a quick look.")] = None,
    max_iter: Annotated[int, typer.Option(min=1, help="Iterations at most.")] = 100,
    l2: Annotated[float, typer.Option(min=0.0, help="L2 penalty.")] = 0.5,
    plot: Plot = None,
    seed: Seed = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Letters to phonemes by CRFs, exactly and within beams, of the first and second order (paper 2, figure 2).

    Example: trelliswork reproduce nettalk DATA/nettalk/nettalk.data --plot curves.png
    """
    from trelliswork.experiments.nettalk import nettalk as run

    check_plot(plot)
    table = run(
        data_file(file, "nettalk", "nettalk.data"),
        l2=l2,
        max_iter=max_iter,
        seed=seed,
        n_words=words,
        orders=tuple(order or (1, 2)),
        exact_second=exact_second,
        say=say_to(quiet),
    )
    show("nettalk", table, plot, json)


@app.command("factorial")
@report_errors
def factorial(
    folder: Annotated[
        str | None, typer.Argument(help="Folder of train.txt and test.txt; by default conll2000 in TRELLISWORK_DATA.")
    ] = None,
    size: Annotated[list[int] | None, typer.Option(min=0, help="So many sentences (0: all); may be repeated.")] = None,
    engine: Annotated[
        list[str] | None, typer.Option(help="bp, structured_mean_field or exact; may be repeated.", show_default="bp")
    ] = None,
    l2: Annotated[float, typer.Option(min=0.0, help="L2 penalty.")] = 1.0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Parts of speech and chunks of CoNLL-2000 jointly, against two CRFs (paper 3).

    Example: trelliswork reproduce factorial DATA/conll2000 --size 200 --size 1000
    """
    from trelliswork.experiments.factorial import factorial as run

    path, sizes, engines = data_file(folder, "conll2000"), tuple(size or (200, 1000, 0)), tuple(engine or ("bp",))
    show("factorial", run(path, sizes=sizes, engines=engines, l2=l2, say=say_to(quiet)), None, json)


app.command("low-rank-pcfg")(report_errors(low_rank_pcfg))
app.command("kernel-hmm")(kernel_hmm)
app.command("mrf-exact")(mrf_exact)
app.command("mrf-ptb")(mrf_ptb)
app.command("mrf-tagging")(mrf_tagging)
app.command("mrf-neighbors")(mrf_neighbors)
app.command("kernel-features")(kernel_features)
app.command("bp-parsing")(bp_parsing)
app.command("bp-accuracy")(bp_accuracy)
app.command("bp-cost")(bp_cost)
