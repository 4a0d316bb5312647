"""``trelliswork reproduce low-rank-pcfg``: paper 4."""

from typing import Annotated, Any

from trelliswork.cli.reproduce.running import check_choice, command, setting


@command("low-rank-pcfg")
def low_rank_pcfg(
    part: Annotated[
        list[str] | None,
        setting("low-rank-pcfg", "parts", "Only cost, perplexity or induction; may be repeated."),
    ] = None,
    rank: Annotated[list[int] | None, setting("low-rank-pcfg", "ranks", "A rank; may be repeated.", min=1)] = None,
    seeds: Annotated[
        int | None, setting("low-rank-pcfg", "n_seeds", "Random starts of each kind of induced grammar.", min=1)
    ] = None,
    max_iter: Annotated[
        int | None, setting("low-rank-pcfg", "max_iter", "Iterations of EM for perplexity.", min=1)
    ] = None,
) -> dict[str, Any]:
    """Low-rank grammars: cost and perplexity against rank, and induced trees against gold ones (paper 4).

    Example: trelliswork reproduce low-rank-pcfg --data DATA --part induction
    """
    check_choice("low-rank-pcfg", "parts", "--part", part)
    return {"parts": part, "ranks": rank, "n_seeds": seeds, "max_iter": max_iter}
