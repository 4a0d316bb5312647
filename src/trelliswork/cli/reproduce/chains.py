"""``trelliswork reproduce chain-tagging`` and ``chain-induction``: paper 1."""

from typing import Annotated, Any

import typer

from trelliswork.cli.reproduce.running import check_choice, command, setting

Sentences = Annotated[int | None, typer.Option(min=10, help="Only so many for training.", show_default="all")]


@command("chain-tagging", plot=None)
def chain_tagging(
    corpus: Annotated[
        list[str] | None, setting("chain-tagging", "datasets", "ud-en-ewt or conll2000; may be repeated.")
    ] = None,
    max_iter: Annotated[int | None, setting("chain-tagging", "max_iter", "Iterations of the CRF.", min=1)] = None,
    l2: Annotated[float | None, setting("chain-tagging", "l2", "L2 penalty of the CRF.", min=0.0)] = None,
    sentences: Sentences = None,
) -> dict[str, Any]:
    """Parts of speech by HMMs of two orders and by a CRF, all words and unseen ones (paper 1).

    Example: trelliswork reproduce chain-tagging --data DATA --corpus ud-en-ewt
    """
    check_choice("chain-tagging", "datasets", "--corpus", corpus)
    return {"datasets": corpus, "max_iter": max_iter, "l2": l2, "n_sentences": sentences}


@command("chain-induction")
def chain_induction(
    states: Annotated[int | None, setting("chain-induction", "n_states", "States.", min=2)] = None,
    max_iter: Annotated[int | None, setting("chain-induction", "max_iter", "Iterations of EM.", min=1)] = None,
    restarts: Annotated[int | None, setting("chain-induction", "n_restarts", "Random starts.", min=1)] = None,
    sentences: Sentences = None,
) -> dict[str, Any]:
    """Parts of speech of UD English EWT induced from words alone by EM (paper 1).

    Example: trelliswork reproduce chain-induction --data DATA --plot curve.png
    """
    return {"n_states": states, "max_iter": max_iter, "n_restarts": restarts, "n_sentences": sentences}
