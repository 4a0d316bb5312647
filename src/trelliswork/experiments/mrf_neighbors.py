"""Nearest words by the embeddings of Markov random fields and of word2vec (paper 0, table 1)."""

import os
from collections.abc import Callable, Container, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

from trelliswork.data import read_text
from trelliswork.errors import DataError, ValueRangeError
from trelliswork.experiments.running import fit, timed
from trelliswork.experiments.tables import Curve, Say, Table
from trelliswork.experiments.word_vectors import word_similarities
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
PARTS = ("neighbors", "similarity")
LONGEST = 50  # number of neighbors that models are compared by
Neighbors = Callable[[str, int], list[tuple[str, float]]]


def mrf_neighbors(
    folder: str | os.PathLike[str],
    *,
    parts: Sequence[str] = PARTS,
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
    """Compare word vectors by nearest words of the Penn Treebank, and by ratings of the similarity of word pairs.

    ``parts``: "neighbors" are the n nearest words by three kinds of embeddings, the paper's table; "similarity" is the
    table of `word_similarities`, if the folder beside this one has ratings.

    The folder has ptb.train.txt and ptb.valid.txt. A word that is not in the text is an error; one that a model leaves
    out has an empty cell. Each Markov random field is trained for some ``minutes``; the paper uses the star bound. The
    curves show the agreement of two models: the fraction of their m nearest words that both have, m = 1 to 50.
    """
    table = Table(
        f"The {n} nearest words by the cosine of embeddings, Penn Treebank (paper's in brackets)",
        ["word", *PAPER],
        notes=[f"Fields: K={order}, D={rank}, {minutes:g} minutes of training each, bound of the lifted one: {bound}."],
        axes=("m nearest words", "% of them that both models have, mean over words"),
    )
    similar = None
    if "similarity" in parts:
        limits: dict[str, Any] = {"minutes": minutes, "max_words": max_words, "n_sentences": n_sentences}
        similar = word_similarities(Path(folder).resolve().parent, **limits, say=say)
    if "neighbors" not in parts:
        if similar is None:
            raise DataError(f"{folder}: expected ratings in ../word-similarity/*.txt for the part 'similarity'.")
        return similar
    text, dev = Path(folder) / "ptb.train.txt", Path(folder) / "ptb.valid.txt"
    sentences = read_text(text).sentences(0)[:n_sentences]
    seen = {word for sentence in sentences for word in sentence}
    if missing := [word for word in words if word not in seen]:
        raise ValueRangeError(
            f"{text}: {', '.join(missing)} not in the text: choose words of the text, in its spelling."
        )
    models: dict[str, tuple[Neighbors | None, float]] = {}
    fields: dict[str, dict[str, Any]] = {
        "MRF lifted": {"bound": bound, "max_iter": 10_000},
        "MRF pseudo-likelihood": {"algorithm": "pseudo-likelihood", "max_iter": 1_000},
    }
    for name, options in fields.items():
        say(f"{name}: training")
        model = MRFLanguageModel(order, rank, max_words=max_words, max_minutes=max(minutes, 1e-9), **options)
        tell = partial(_tell, model.algorithm, say)
        seconds = fit(model, text if n_sentences is None else sentences, dev=dev, callback=tell)
        models[name] = _neighbors_of(model.vocabulary_, model.neighbors), seconds
        last = model.report_.history[-1]
        done = f"{last.iteration} iterations" if model.algorithm == "lifted" else f"{last.iteration / 10:g} epochs"
        table.notes.append(f"{name}: {done} in {last.seconds:.0f} s.")
    say("word2vec: training")
    models["word2vec"] = timed(_word2vec, sentences)
    if models["word2vec"][0] is None:
        table.notes.append("word2vec: gensim is not installed (pip install gensim), so its column is empty.")
    for k, word in enumerate(words):
        row: list[Any] = [word]
        for name, (neighbors, seconds) in models.items():
            theirs = PAPER[name][WORDS.index(word)] if word in WORDS else None
            near = [] if neighbors is None else neighbors(word, n)
            listed = " ".join(other for other, _ in near)
            row.append(f"{listed} [{theirs}]" if theirs else listed)
            mean = sum(cosine for _, cosine in near) / len(near) if near else None
            reason = "gensim is not installed" if neighbors is None else "not in the vocabulary of the model"
            note = f"ours: {listed}" if near else reason
            table.add(f"{word}, {name}: mean cosine of {n}", theirs, mean, "cosine", seconds, note)
        table.rows.append(row)
        say(f"{k + 1} of {len(words)} words")
    if similar is not None:
        table.notes += ["", *similar.to_text().splitlines()]
        table.figures += similar.figures
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


def _neighbors_of(vocabulary: Container[str], neighbors: Neighbors) -> Neighbors:
    """Return the neighbors of words; none for a word that the model does not have."""
    return lambda word, n: neighbors(word, n) if word in vocabulary else []


def _tell(name: str, say: Say, step: Step) -> None:
    if step.iteration:
        say(f"{name}: iteration {step.iteration}, {step.seconds:.0f} s, objective {step.value:.4f}")


def _word2vec(sentences: list[list[str]]) -> Neighbors | None:
    """Train word2vec by gensim with the paper's settings (D=100, window 4, 5 epochs); None if it is not installed."""
    try:
        from gensim.models import Word2Vec
    except ImportError:
        return None
    model = Word2Vec(sentences, vector_size=100, window=4, epochs=5, min_count=1, workers=2, seed=0)
    return lambda word, n: [(other, float(cosine)) for other, cosine in model.wv.most_similar(word, topn=n)]
