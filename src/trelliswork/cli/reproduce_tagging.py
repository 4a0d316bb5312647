"""``trelliswork reproduce mrf-tagging`` and ``mrf-neighbors``: tables 2 and 1 of paper 0."""

import os
from typing import Annotated

import typer

from trelliswork.cli.options import JsonOption, QuietOption
from trelliswork.cli.reproducing import check_plot, data_file, say_to, show
from trelliswork.cli.running import report_errors


@report_errors
def mrf_tagging(
    folder: Annotated[
        str | None, typer.Argument(help="Folder of conll2000 and ud-en-ewt; by default TRELLISWORK_DATA.")
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option(help="conll2000 or ud-en-ewt; may be repeated.", show_default="both")
    ] = None,
    words: Annotated[
        list[int] | None, typer.Option(min=1, help="Words a tag is tied to; may be repeated.", show_default="1 3")
    ] = None,
    max_iter: Annotated[int, typer.Option(min=1, help="Iterations at most.")] = 60,
    l2: Annotated[float, typer.Option("--l2", min=0.0, help="L2 penalty.")] = 1.0,
    sentences: Annotated[int | None, typer.Option(min=10, help="Only so many, for a quick look.")] = None,
    plot: Annotated[
        str | None, typer.Option(help="Draw the accuracy on held-out sentences over the iterations to this PNG file.")
    ] = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """HMMs and the Markov random field tagger, all words and unseen ones (paper 0, table 2).

    Example: trelliswork reproduce mrf-tagging DATA --data conll2000 --plot curves.png
    """
    from trelliswork.experiments.mrf_tagging import DATASETS
    from trelliswork.experiments.mrf_tagging import mrf_tagging as run

    for name in data or []:
        if name not in DATASETS:
            raise typer.BadParameter(f"--data must be {' or '.join(DATASETS)}, got {name!r}.")
    folder = folder or os.environ.get("TRELLISWORK_DATA")
    if not folder:
        raise typer.BadParameter(f"give the folder of {' and '.join(DATASETS)}, or set TRELLISWORK_DATA to it.")
    check_plot(plot)
    table = run(
        folder,
        datasets=tuple(data or DATASETS),
        n_words=tuple(words or (1, 3)),
        max_iter=max_iter,
        l2=l2,
        n_sentences=sentences,
        say=say_to(quiet),
    )
    show("mrf-tagging", table, plot, json)


@report_errors
def mrf_neighbors(
    folder: Annotated[
        str | None, typer.Argument(help="Folder of ptb.train.txt; by default ptb-lm in TRELLISWORK_DATA.")
    ] = None,
    word: Annotated[list[str] | None, typer.Option(help="May be repeated.", show_default="the paper's")] = None,
    minutes: Annotated[float, typer.Option(min=0.0, help="Of training, for each of the two fields.")] = 4.0,
    rank: Annotated[int, typer.Option(min=1, help="Length of the fields' vectors.")] = 30,
    max_words: Annotated[int | None, typer.Option(min=1, help="Only so many words, for a quick look.")] = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Nearest words by the lifted field, by one of pseudo-likelihood, and by word2vec (paper 0, table 1).

    A table of words has no curves, so there is no picture. word2vec needs gensim; its column is empty without it.

    Example: trelliswork reproduce mrf-neighbors DATA/ptb-lm --minutes 5
    """
    from trelliswork.experiments.mrf_neighbors import WORDS
    from trelliswork.experiments.mrf_neighbors import mrf_neighbors as run

    table = run(
        data_file(folder, "ptb-lm"),
        words=tuple(word or WORDS),
        rank=rank,
        minutes=minutes,
        max_words=max_words,
        say=say_to(quiet),
    )
    show("mrf-neighbors", table, None, json)
