"""``trelliswork reproduce mrf-exact`` and ``mrf-ptb``: the lifted language model's figures."""

from typing import Annotated

import typer

from trelliswork.cli.options import JsonOption, QuietOption
from trelliswork.cli.reproducing import Plot, Seed, check_plot, data_file, say_to, show
from trelliswork.cli.running import report_errors


@report_errors
def mrf_exact(
    positions: Annotated[int, typer.Option(min=3, help="Words of the text.")] = 12,
    words: Annotated[int, typer.Option(min=2, help="Kinds of words.")] = 4,
    plot: Plot = None,
    seed: Seed = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Exact against lifted training on a tiny text (paper 0, figure 5).

    Example: trelliswork reproduce mrf-exact --plot curves.png
    """
    from trelliswork.experiments.mrf_exact import mrf_exact as run

    check_plot(plot)
    show("mrf-exact", run(n_positions=positions, n_words=words, seed=seed, say=say_to(quiet)), plot, json)


@report_errors
def mrf_ptb(
    folder: Annotated[
        str | None,
        typer.Argument(help="Folder of ptb.train.txt, ptb.valid.txt; by default ptb-lm in TRELLISWORK_DATA."),
    ] = None,
    part: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this model; may be repeated: k1, chain, weighted, from-k1, star, full, k3, k4, k1-rank100, "
            "rank100, pseudo, lbl, lbl100, kn.",
            show_default="k1, chain, weighted, from-k1, star, full, lbl, kn",
        ),
    ] = None,
    rank: Annotated[int, typer.Option(min=1, help="Of low-rank models.")] = 30,
    l2: Annotated[float, typer.Option(min=0.0, help="Penalty of low-rank models.")] = 5.0,
    max_iter: Annotated[int, typer.Option(min=1, help="Iterations at most.")] = 150,
    estimates: Annotated[bool, typer.Option(help="Estimate the true likelihood of K = 2.")] = True,
    quick: Annotated[bool, typer.Option("--quick", help="1,500 words and few iterations, for a look.")] = False,
    save: Annotated[str | None, typer.Option(help="Folder to keep the trained models in.")] = None,
    plot: Plot = None,
    seed: Seed = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Bounds of the lifted language model on the Penn Treebank beside exact models (paper 0, figure 6).

    Example: trelliswork reproduce mrf-ptb DATA/ptb-lm --part k1 --part lbl --plot curves.png
    """
    from trelliswork.experiments.mrf_ptb import DEFAULT
    from trelliswork.experiments.mrf_ptb import mrf_ptb as run

    check_plot(plot)
    table = run(
        data_file(folder, "ptb-lm"),
        parts=tuple(part or DEFAULT),
        rank=rank,
        l2=l2,
        max_iter=max_iter,
        estimates=estimates,
        quick=quick,
        save=save,
        seed=seed,
        say=say_to(quiet),
    )
    show("mrf-ptb", table, plot, json)
