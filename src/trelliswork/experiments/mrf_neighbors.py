"""Nearest words by the embeddings of Markov random fields and of word2vec (paper 0, table 1)."""

import os
import time
from collections.abc import Callable, Container, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from trelliswork.data import read_text
from trelliswork.errors import ValueRangeError
from trelliswork.experiments.tables import Curve, Figure, Say, Table

WORDS = ("company", "red", "has", "dollar", "jack")
PAPER = {
    "MRF lifted": ("firm industry group", "conservative freedom black", "had is was", "currency economy government",
                   "richard david carl"),
    "MRF pseudo-likelihood": ("he it corp.", "vietnamese delegation judge", "have had n't", "intergroup market uses",
                              "like needed first"),
    "word2vec": ("holding anacomp uniroyal", "cross tape delicious", "had been have", "currency pound stabilized",
                 "kemp porter timothy"),
}  # fmt: skip
LONGEST = 50  # neighbours of a word up to which models are compared
Neighbours = Callable[[str, int], list[tuple[str, float]]]


def mrf_neighbors(
    folder: str | os.PathLike[str],
    *,
    words: Sequence[str] = WORDS,
    n: int = 3,
    rank: int = 30,
    K: int = 2,
    bound: str = "star",
    minutes: float = 4.0,
    max_words: int | None = None,
    n_sentences: int | None = None,
    say: Say = lambda _: None,
) -> Table:
    """The n nearest words of some, by three kinds of embeddings of the Penn Treebank's text.

    Parameters
    ----------
    folder : path
        Where ptb.train.txt and ptb.valid.txt are.
    words : sequence of str
        An error if one does not occur in the text; one that a model leaves out has an empty cell.
    n : int
        Neighbours of each.
    rank, K, bound
        Of the Markov random fields; the paper's bound is the star's.
    minutes : float
        Of training, for each field.
    max_words, n_sentences : int, optional
        Only the most frequent words, only so many sentences, for a quick look.

    Returns
    -------
    Table
        Its curves tell how far two models agree: which part of their m nearest words they share, m = 1 to 50.
    """
    table = Table(
        f"The {n} nearest words by the cosine of embeddings, Penn Treebank (paper's in brackets)",
        ["word", *PAPER],
        notes=[f"Fields: K={K}, D={rank}, {minutes:g} minutes of training each, bound of the lifted one: {bound}."],
        axes=("m nearest words", "% of them that both models have, mean of the words"),
    )
    text, dev = Path(folder) / "ptb.train.txt", Path(folder) / "ptb.valid.txt"
    sentences = read_text(text).sentences(0)[:n_sentences]
    _check_words(words, sentences, text)
    found: dict[str, tuple[Neighbours | None, float]] = {}
    for name, algorithm in (("MRF lifted", "lifted"), ("MRF pseudo-likelihood", "pseudo-likelihood")):
        say(f"{name}: training")
        began = time.perf_counter()
        model = _field(
            text if n_sentences is None else sentences, dev, algorithm, rank, K, bound, minutes, max_words, say
        )
        found[name] = _neighbours_of(model.vocabulary_, model.neighbors), time.perf_counter() - began
        last = model.report_.history[-1]
        done = f"{last.iteration} iterations" if algorithm == "lifted" else f"{last.iteration / 10:g} epochs"
        table.notes.append(f"{name}: {done} in {last.seconds:.0f} s.")
    say("word2vec: training")
    began = time.perf_counter()
    word2vec = _word2vec(sentences)
    found["word2vec"] = word2vec, time.perf_counter() - began
    if word2vec is None:
        table.notes.append("word2vec: gensim is not installed (pip install gensim), so its column is empty.")
    for k, word in enumerate(words):
        row: list[Any] = [word]
        for name, (neighbours, seconds) in found.items():
            theirs = PAPER[name][WORDS.index(word)] if word in WORDS else None
            near = [] if neighbours is None else neighbours(word, n)
            listed = " ".join(other for other, _ in near)
            row.append(f"{listed} [{theirs}]" if theirs else listed)
            mean = sum(cosine for _, cosine in near) / len(near) if near else None
            missing = "gensim is not installed" if neighbours is None else "not among the words of the model"
            note = f"ours: {listed}" if near else missing
            table.figures.append(Figure(f"{word}, {name}: mean cosine of {n}", theirs, mean, "cosine", seconds, note))
        table.rows.append(row)
        say(f"{k + 1} of {len(words)} words")
    table.curves = _agreement({name: near for name, (near, _) in found.items() if near is not None}, words)
    return table


def _agreement(models: dict[str, Neighbours], words: Sequence[str]) -> list[Curve]:
    """A curve for each two models; words that one of them does not know are left out."""
    lists = {name: [[other for other, _ in near(word, LONGEST)] for word in words] for name, near in models.items()}
    found = []
    for one, two in combinations(lists, 2):
        both = [(a, b) for a, b in zip(lists[one], lists[two], strict=True) if a and b]
        longest = min((min(len(a), len(b)) for a, b in both), default=0)
        sizes = range(1, longest + 1)
        shared = [100 * sum(len(set(a[:m]) & set(b[:m])) for a, b in both) / (m * len(both)) for m in sizes]
        found.append(Curve(f"{one}, {two}", [float(m) for m in sizes], shared))
    return found


def _check_words(words: Sequence[str], sentences: list[list[str]], text: Path) -> None:
    """Refuse words without neighbours before minutes are spent on training."""
    seen = {word for sentence in sentences for word in sentence}
    missing = [word for word in words if word not in seen]
    if missing:
        raise ValueRangeError(
            f"{text}: {', '.join(missing)} not in the text: ask for words that are (in its spelling)."
        )


def _neighbours_of(vocabulary: Container[str], neighbours: Neighbours) -> Neighbours:
    """None for a word that the model does not know."""
    return lambda word, n: neighbours(word, n) if word in vocabulary else []


def _field(
    text: Path | list[list[str]],
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
    from trelliswork.models.mrf import MRFLanguageModel

    began = time.perf_counter()

    def late(step: Any, *_: Any) -> bool:
        seconds = time.perf_counter() - began
        say(f"{algorithm}: iteration {step.iteration}, {seconds:.0f} s, objective {step.value:.4f}")
        return seconds > 60 * minutes

    endless: Any = {"max_iter": 10_000, "bound": bound} if algorithm == "lifted" else {"epochs": 1_000}
    model = MRFLanguageModel(K, rank, algorithm=algorithm, max_words=max_words, **endless)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the time is what ends it
        return model.fit(text, dev=dev, callback=late)


def _word2vec(sentences: list[list[str]]) -> Neighbours | None:
    """word2vec by gensim with the paper's settings (D=100, window 4, 5 epochs); None if it is not installed."""
    try:
        from gensim.models import Word2Vec
    except ImportError:
        return None
    model = Word2Vec(sentences, vector_size=100, window=4, epochs=5, min_count=1, workers=2, seed=0)
    return lambda word, n: [(other, float(cosine)) for other, cosine in model.wv.most_similar(word, topn=n)]
