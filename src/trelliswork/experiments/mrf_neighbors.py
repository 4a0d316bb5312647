"""Nearest words by the embeddings of Markov random fields and of word2vec (paper 0, table 1)."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trelliswork.experiments.tables import Figure, Say, Table

WORDS = ("company", "red", "has", "dollar", "jack")
PAPER = {
    "MRF lifted": ("firm industry group", "conservative freedom black", "had is was", "currency economy government",
                   "richard david carl"),
    "MRF pseudo-likelihood": ("he it corp.", "vietnamese delegation judge", "have had n't", "intergroup market uses",
                              "like needed first"),
    "word2vec": ("holding anacomp uniroyal", "cross tape delicious", "had been have", "currency pound stabilized",
                 "kemp porter timothy"),
}  # fmt: skip
Neighbours = Callable[[str, int], list[tuple[str, float]]]


def mrf_neighbors(
    folder: str | os.PathLike[str],
    *,
    words: Sequence[str] = WORDS,
    n: int = 3,
    rank: int = 30,
    K: int = 2,
    bound: str = "star",
    minutes: float = 10.0,
    max_words: int | None = None,
    say: Say = lambda _: None,
) -> Table:
    """The n nearest words of some, by three kinds of embeddings of the Penn Treebank's text.

    Parameters
    ----------
    folder : path
        Where ptb.train.txt and ptb.valid.txt are.
    words : sequence of str
    n : int
        Neighbours of each.
    rank, K, bound
        Of the Markov random fields; the paper's bound is the star's.
    minutes : float
        Of training, for each field.
    max_words : int, optional
        Only the most frequent words, for a quick look.
    """
    table = Table(
        f"The {n} nearest words by the cosine of embeddings, Penn Treebank (paper's in brackets)",
        ["word", *PAPER],
        notes=[f"Fields: K={K}, D={rank}, {minutes:g} minutes of training each, bound of the lifted one: {bound}."],
    )
    text, dev = Path(folder) / "ptb.train.txt", Path(folder) / "ptb.valid.txt"
    found: dict[str, tuple[Neighbours | None, float]] = {}
    for name, algorithm in (("MRF lifted", "lifted"), ("MRF pseudo-likelihood", "pseudo-likelihood")):
        say(f"{name}: training")
        began = time.perf_counter()
        model = _field(text, dev, algorithm, rank, K, bound, minutes, max_words, say)
        found[name] = model.neighbors, time.perf_counter() - began
    say("word2vec: training")
    began = time.perf_counter()
    word2vec = _word2vec(text)
    found["word2vec"] = word2vec, time.perf_counter() - began
    if word2vec is None:
        table.notes.append("word2vec: gensim is not installed (pip install gensim), so its column is empty.")
    for k, word in enumerate(words):
        row: list[Any] = [word]
        for name, (neighbours, seconds) in found.items():
            theirs = PAPER[name][WORDS.index(word)] if word in WORDS else None
            near = None if neighbours is None else neighbours(word, n)
            listed = "" if near is None else " ".join(other for other, _ in near)
            row.append(f"{listed} [{theirs}]" if theirs else listed)
            mean = None if near is None else sum(cosine for _, cosine in near) / len(near)
            note = "gensim is not installed" if near is None else f"ours: {listed}"
            table.figures.append(Figure(f"{word}, {name}: mean cosine of {n}", theirs, mean, "cosine", seconds, note))
        table.rows.append(row)
        say(f"{k + 1} of {len(words)} words")
    return table


def _field(
    text: Path,
    dev: Path,
    algorithm: Any,
    rank: int,
    K: int,
    bound: Any,
    minutes: float,
    max_words: int | None,
    say: Say,
) -> Any:
    """A Markov random field, trained for so long."""
    import warnings

    from trelliswork.errors import ConvergenceWarning
    from trelliswork.models.mrf_lm import MRFLanguageModel

    began = time.perf_counter()

    def late(step: Any, *_: Any) -> bool:
        seconds = time.perf_counter() - began
        say(f"{algorithm}: iteration {step.iteration}, {seconds:.0f} s, objective {step.value:.4f}")
        return seconds > 60 * minutes

    endless: Any = {"max_iter": 10_000, "epochs": 1_000}
    model = MRFLanguageModel(K, rank, algorithm=algorithm, bound=bound, max_words=max_words, **endless)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the time is what ends it
        return model.fit(text, dev=dev, callback=late)


def _word2vec(text: Path) -> Neighbours | None:
    """word2vec by gensim with the paper's settings (D=100, window 4, 5 epochs); None if it is not installed."""
    try:
        from gensim.models import Word2Vec
    except ImportError:
        return None
    from trelliswork.data import read_text

    model = Word2Vec(read_text(text).sentences(0), vector_size=100, window=4, epochs=5, min_count=1, workers=2, seed=0)
    return lambda word, n: [(other, float(cosine)) for other, cosine in model.wv.most_similar(word, topn=n)]
