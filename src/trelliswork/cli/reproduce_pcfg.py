"""``trelliswork reproduce low-rank-pcfg``."""

from typing import Annotated

import typer

from trelliswork.cli.options import JsonOption, QuietOption
from trelliswork.cli.reproducing import Plot, Seed, check_plot, data_file, say_to, show

PARTS = ("cost", "perplexity", "induction")


def low_rank_pcfg(
    folder: Annotated[
        str | None,
        typer.Argument(help="Folder of *.mrg files; by default treebank-sample/combined in TRELLISWORK_DATA."),
    ] = None,
    part: Annotated[
        list[str] | None, typer.Option(help="Only cost, perplexity or induction; may be repeated.", show_default="all")
    ] = None,
    rank: Annotated[
        list[int] | None, typer.Option(min=1, help="Only this rank; may be repeated.", show_default="4 to 64")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Random starts of each kind of induced grammar.")] = 5,
    max_iter: Annotated[int, typer.Option(min=1, help="Iterations of EM for perplexity.")] = 40,
    plot: Plot = None,
    seed: Seed = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Low-rank grammars: cost and perplexity against rank, and induced trees against gold ones (paper 4).

    Example: trelliswork reproduce low-rank-pcfg DATA/treebank-sample/combined --part induction
    """
    from trelliswork.experiments.low_rank_pcfg import low_rank_pcfg as run

    check_plot(plot)
    for name in part or ():
        if name not in PARTS:
            raise typer.BadParameter(f"--part is cost, perplexity or induction, got {name!r}.")
    table = run(
        data_file(folder, "treebank-sample", "combined"),
        parts=tuple(part or PARTS),
        ranks=tuple(rank or (4, 8, 16, 32, 64)),
        n_seeds=seeds,
        max_iter=max_iter,
        seed=seed,
        say=say_to(quiet),
    )
    show("low-rank-pcfg", table, plot, json)
