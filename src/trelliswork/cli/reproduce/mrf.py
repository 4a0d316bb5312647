"""``trelliswork reproduce mrf-exact`` and ``mrf-ptb``: the lifted language model's figures (paper 0)."""

from typing import Annotated, Any

import typer

from trelliswork.cli.reproduce.running import command, setting


@command("mrf-exact")
def mrf_exact(
    positions: Annotated[int | None, setting("mrf-exact", "n_positions", "Words of the text.", min=3)] = None,
    words: Annotated[int | None, setting("mrf-exact", "n_words", "Kinds of words.", min=2)] = None,
) -> dict[str, Any]:
    """Exact against lifted training on a tiny text (paper 0, figure 5).

    Example: trelliswork reproduce mrf-exact --plot curves.png
    """
    return {"n_positions": positions, "n_words": words}


@command("mrf-ptb")
def mrf_ptb(
    part: Annotated[
        list[str] | None,
        setting(
            "mrf-ptb",
            "parts",
            "Only this model; may be repeated: k1, chain, weighted, from-k1, star, no-unary, full, k3, k4, k1-rank100, "
            "rank100, pseudo, lbl, lbl100, kn.",
        ),
    ] = None,
    rank: Annotated[int | None, setting("mrf-ptb", "rank", "Of low-rank models.", min=1)] = None,
    l2: Annotated[float | None, setting("mrf-ptb", "l2", "Penalty of low-rank models.", min=0.0)] = None,
    max_iter: Annotated[int | None, setting("mrf-ptb", "max_iter", "Iterations at most.", min=1)] = None,
    estimates: Annotated[
        bool | None,
        typer.Option("--estimates/--no-estimates", help="Estimate the true likelihood of K = 2.", show_default="yes"),
    ] = None,
    save: Annotated[str | None, typer.Option(help="Folder to keep the trained models in.")] = None,
) -> dict[str, Any]:
    """Bounds of the lifted language model on the Penn Treebank beside exact models (paper 0, figure 6).

    Example: trelliswork reproduce mrf-ptb --data DATA --part k1 --part lbl --plot curves.png
    """
    return {"parts": part, "rank": rank, "l2": l2, "max_iter": max_iter, "estimates": estimates, "save": save}
