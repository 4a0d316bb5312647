"""``trelliswork reproduce mrf-tagging`` and ``mrf-neighbors``: tables 2 and 1 of paper 0."""

from typing import Annotated, Any

import typer

from trelliswork.cli.reproduce.running import check_choice, command, setting

Accuracies = Annotated[
    str | None, typer.Option(help="Draw the accuracy on held-out sentences over the iterations to this PNG file.")
]
Agreement = Annotated[
    str | None, typer.Option(help="Draw how far two models agree on the nearest words to this PNG file.")
]


@command("mrf-tagging", plot=Accuracies)
def mrf_tagging(
    corpus: Annotated[
        list[str] | None, setting("mrf-tagging", "datasets", "conll2000 or ud-en-ewt; may be repeated.")
    ] = None,
    words: Annotated[
        list[int] | None, setting("mrf-tagging", "n_words", "Words a tag is tied to; may be repeated.", min=1)
    ] = None,
    max_iter: Annotated[int | None, setting("mrf-tagging", "max_iter", "Iterations at most.", min=1)] = None,
    l2: Annotated[float | None, setting("mrf-tagging", "l2", "L2 penalty.", min=0.0)] = None,
    sentences: Annotated[
        int | None, typer.Option(min=10, help="Only so many for training.", show_default="all")
    ] = None,
) -> dict[str, Any]:
    """HMMs and the Markov random field tagger, all words and unseen ones (paper 0, table 2).

    Example: trelliswork reproduce mrf-tagging --data DATA --corpus conll2000 --plot curves.png
    """
    check_choice("mrf-tagging", "datasets", "--corpus", corpus)
    return {"datasets": corpus, "n_words": words, "max_iter": max_iter, "l2": l2, "n_sentences": sentences}


@command("mrf-neighbors", plot=Agreement)
def mrf_neighbors(
    word: Annotated[list[str] | None, typer.Option(help="May be repeated.", show_default="the paper's")] = None,
    minutes: Annotated[
        float | None, setting("mrf-neighbors", "minutes", "Of training, for each of the two fields.", min=0.0)
    ] = None,
    rank: Annotated[int | None, setting("mrf-neighbors", "rank", "Length of the fields' vectors.", min=1)] = None,
    max_words: Annotated[int | None, typer.Option(min=1, help="Only so many words.", show_default="all")] = None,
) -> dict[str, Any]:
    """Nearest words by the lifted field, by one of pseudo-likelihood, and by word2vec (paper 0, table 1).

    The picture tells how far two models agree on the nearest words. word2vec needs gensim; its column is empty without.

    Example: trelliswork reproduce mrf-neighbors --data DATA --minutes 5 --plot agreement.png
    """
    return {"words": word, "minutes": minutes, "rank": rank, "max_words": max_words}
