"""Nearest words by the embeddings of Markov random fields and of word2vec (paper 0, table 1)."""

import os
import time
import warnings
from collections.abc import Callable, Container, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from trelliswork.data import read_text
from trelliswork.errors import ConvergenceWarning, ValueRangeError
from trelliswork.experiments.tables import Curve, Figure, Say, Table
from trelliswork.learning.report import Step
from trelliswork.models.mrf import MRFLanguageModel

WORDS = ("company", "red", "has", "dollar", "jack")
PAPER = {
    "MRF lifted": ("firm industry group", "conservative freedom black", "had is was", "currency economy government",
                   "richard david carl"),
    "MRF pseudo-likelihood": ("he it corp.", "vietnamese delegation judge", "have had n't", "intergroup market uses",
                              "like needed first"),
    "word2vec": ("holding anacomp uniroyal", "cross tape delicious", "had been have", "currency pound stabilized",
                 "kemp porter timothy"),
}  # fmt: skip
LONGEST = 50  # number of neighbors that models are compared by
Neighbors = Callable[[str, int], list[tuple[str, float]]]


def mrf_neighbors(
    folder: str | os.PathLike[str],
    *,
    words: Sequence[str] = WORDS,
    n: int = 3,
    rank: int = 30,
    order: int = 2,
    bound: str = "star",
    minutes: float = 4.0,
    max_words: int | None = None,
    n_sentences: int | None = None,
    say: Say = lambda _: None,
) -> Table:
    """Compare the n nearest words by three kinds of embeddings of the Penn Treebank.

    Parameters
    ----------
    folder : path
        Folder of ptb.train.txt and ptb.valid.txt.
    words : sequence of str
        A word that is not in the text is an error; one that a model leaves out has an empty cell.
    n : int
        Number of neighbors per word.
    rank, order, bound
        Parameters of the Markov random fields; the paper uses the star bound.
    minutes : float
        Training time of each field.
    max_words, n_sentences : int, optional
        Maximum number of words and of training sentences, for a quick run.

    Returns
    -------
    Table
        Its curves show the agreement of two models: the fraction of their m nearest words that both have, m = 1 to 50.
    """
    table = Table(
        f"The {n} nearest words by the cosine of embeddings, Penn Treebank (paper's in brackets)",
        ["word", *PAPER],
        notes=[f"Fields: K={order}, D={rank}, {minutes:g} minutes of training each, bound of the lifted one: {bound}."],
        axes=("m nearest words", "% of them that both models have, mean over words"),
    )
    text, dev = Path(folder) / "ptb.train.txt", Path(folder) / "ptb.valid.txt"
    sentences = read_text(text).sentences(0)[:n_sentences]
    _check_words(words, sentences, text)
    models: dict[str, tuple[Neighbors | None, float]] = {}
    fields: dict[str, dict[str, Any]] = {
        "MRF lifted": {"bound": bound, "max_iter": 10_000},
        "MRF pseudo-likelihood": {"algorithm": "pseudo-likelihood", "max_iter": 1_000},
    }
    for name, options in fields.items():
        say(f"{name}: training")
        started = time.perf_counter()
        model = MRFLanguageModel(order, rank, max_words=max_words, max_minutes=max(minutes, 1e-9), **options)
        _fit(model, text if n_sentences is None else sentences, dev, say)
        models[name] = _neighbors_of(model.vocabulary_, model.neighbors), time.perf_counter() - started
        last = model.report_.history[-1]
        done = f"{last.iteration} iterations" if model.algorithm == "lifted" else f"{last.iteration / 10:g} epochs"
        table.notes.append(f"{name}: {done} in {last.seconds:.0f} s.")
    say("word2vec: training")
    started = time.perf_counter()
    word2vec = _word2vec(sentences)
    models["word2vec"] = word2vec, time.perf_counter() - started
    if word2vec is None:
        table.notes.append("word2vec: gensim is not installed (pip install gensim), so its column is empty.")
    for k, word in enumerate(words):
        row: list[Any] = [word]
        for name, (neighbors, seconds) in models.items():
            theirs = PAPER[name][WORDS.index(word)] if word in WORDS else None
            near = [] if neighbors is None else neighbors(word, n)
            listed = " ".join(other for other, _ in near)
            row.append(f"{listed} [{theirs}]" if theirs else listed)
            mean = sum(cosine for _, cosine in near) / len(near) if near else None
            missing = "gensim is not installed" if neighbors is None else "not in the vocabulary of the model"
            note = f"ours: {listed}" if near else missing
            table.figures.append(Figure(f"{word}, {name}: mean cosine of {n}", theirs, mean, "cosine", seconds, note))
        table.rows.append(row)
        say(f"{k + 1} of {len(words)} words")
    table.curves = _agreement({name: near for name, (near, _) in models.items() if near is not None}, words)
    return table


def _agreement(models: dict[str, Neighbors], words: Sequence[str]) -> list[Curve]:
    """Return a curve for each pair of models; words that one of them does not have are left out."""
    lists = {name: [[other for other, _ in near(word, LONGEST)] for word in words] for name, near in models.items()}
    curves = []
    for one, two in combinations(lists, 2):
        both = [(a, b) for a, b in zip(lists[one], lists[two], strict=True) if a and b]
        longest = min((min(len(a), len(b)) for a, b in both), default=0)
        sizes = range(1, longest + 1)
        shared = [100 * sum(len(set(a[:m]) & set(b[:m])) for a, b in both) / (m * len(both)) for m in sizes]
        curves.append(Curve(f"{one}, {two}", [float(m) for m in sizes], shared))
    return curves


def _check_words(words: Sequence[str], sentences: list[list[str]], text: Path) -> None:
    """Raise an error for words that are not in the text, before training."""
    seen = {word for sentence in sentences for word in sentence}
    missing = [word for word in words if word not in seen]
    if missing:
        raise ValueRangeError(
            f"{text}: {', '.join(missing)} not in the text: choose words of the text, in its spelling."
        )


def _neighbors_of(vocabulary: Container[str], neighbors: Neighbors) -> Neighbors:
    """Return the neighbors of words; none for a word that the model does not have."""
    return lambda word, n: neighbors(word, n) if word in vocabulary else []


def _fit(model: MRFLanguageModel, text: Path | list[list[str]], dev: Path, say: Say) -> None:
    """Train a field until its time limit."""

    def tell(step: Step) -> None:
        if step.iteration:
            say(f"{model.algorithm}: iteration {step.iteration}, {step.seconds:.0f} s, objective {step.value:.4f}")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(text, dev=dev, callback=tell)


def _word2vec(sentences: list[list[str]]) -> Neighbors | None:
    """Train word2vec by gensim with the paper's settings (D=100, window 4, 5 epochs); None if it is not installed."""
    try:
        from gensim.models import Word2Vec
    except ImportError:
        return None
    model = Word2Vec(sentences, vector_size=100, window=4, epochs=5, min_count=1, workers=2, seed=0)
    return lambda word, n: [(other, float(cosine)) for other, cosine in model.wv.most_similar(word, topn=n)]
