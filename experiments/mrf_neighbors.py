"""Word vectors of Markov random fields and of word2vec: nearest words (paper 0, table 1), and ratings of pairs."""

import os
import time
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from experiments.running import fit, timed
from experiments.similarity import word_similarity
from experiments.tables import Curve, Say, Table
from trelliswork.data import read_text
from trelliswork.data.moments import count_moments
from trelliswork.errors import DataError, ValueRangeError
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
WINDOW = 5
RANKS = (30, 100)
MIN_COUNT = 5
TEXTS = ("wikitext-2/wiki.train.tokens", "ptb-lm/ptb.train.txt")
Ratings = list[tuple[str, str, float]]
Vectors = tuple[NDArray[Any], Mapping[str, int], float]  # vectors, their words, CPU seconds


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
        "MRF lifted": {"options": {"bound": bound}, "max_iter": 10_000},
        "MRF pseudo-likelihood": {"algorithm": "pseudo-likelihood", "max_iter": 1_000},
    }
    for name, options in fields.items():
        say(f"{name}: training")
        model = MRFLanguageModel(order, rank=rank, max_words=max_words, **options)
        tell = partial(_tell, model.algorithm, say)
        seconds = fit(
            model, text if n_sentences is None else sentences, dev=dev, callback=tell, max_minutes=max(minutes, 1e-9)
        )
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


def word_similarities(
    data: Path,
    *,
    ranks: Sequence[int] = RANKS,
    window: int = WINDOW,
    minutes: float = 4.0,
    max_words: int | None = None,
    n_sentences: int | None = None,
    say: Say = lambda _: None,
) -> Table | None:
    """Return rank correlations of cosines with the ratings in ``data``/word-similarity; None if there are none.

    Trained on WikiText-2 and the Penn Treebank, as far as they are in ``data``, in lower case. Skip-gram is that of
    gensim, with its default settings, if it is installed. The lifted field is trained for some ``minutes``.
    """
    sets = {path.stem: read_ratings(path) for path in sorted((data / "word-similarity").glob("*.txt"))}
    files = [data / name for name in TEXTS if (data / name).is_file()]
    if not sets or not files:
        return None
    sentences = [[w.lower() for w in s] for file in files for s in read_text(file).sentences(0)[:n_sentences]]
    table = Table(
        "Word vectors against ratings of word pairs (Spearman)",
        ["vectors", "dimensions", *sets, "CPU s"],
        notes=[
            f"{sum(map(len, sentences)):,} words of {' and '.join(file.name for file in files)}, in lower case; words "
            f"seen {MIN_COUNT} times. Window and order {window}, of the lifted field 2. CPU seconds of the fields are "
            f"without counting, those of the lifted ones limited to {minutes:g} minutes."
        ],
    )
    limits: dict[str, Any] = {"min_count": MIN_COUNT, "max_words": max_words}
    counted = {}
    for order in (2, window):
        began = time.process_time()
        counted[order] = count_moments(sentences, order, **limits)
        table.notes.append(f"Counting for order {order}: {time.process_time() - began:.1f} CPU s.")
    for rank in ranks:
        models = {
            "MRF lifted": MRFLanguageModel(2, rank=rank, max_iter=10_000),
            "MRF spectral": MRFLanguageModel(window, rank=rank, algorithm="spectral"),
        }
        for name, model in models.items():
            say(f"{name}, {rank} dimensions: training")
            began = time.process_time()
            limit = {} if model.algorithm == "spectral" else {"max_minutes": max(minutes, 1e-9)}
            fit(model, counted[model.window], **limit)
            seconds = time.process_time() - began
            ids = {word: i for i, word in enumerate(model.vocabulary_) if i}
            _add(table, name, (model.vectors(), ids, seconds), sets)
        say(f"skip-gram, {rank} dimensions: training")
        skip_gram = _skip_gram(sentences, rank, window, max_words)
        if skip_gram is not None:
            _add(table, "skip-gram", skip_gram, sets)
    if skip_gram is None:
        table.notes.append("skip-gram: gensim is not installed (pip install gensim), so it is left out.")
    return table


def _add(table: Table, name: str, vectors: Vectors, sets: Mapping[str, Ratings]) -> None:
    """Add a row, and one figure per set."""
    array, ids, seconds = vectors
    results = {key: word_similarity(array, ids, ratings) for key, ratings in sets.items()}
    cells = [f"{result.spearman:.3f} ({result.n_covered} of {result.n_pairs})" for result in results.values()]
    table.rows.append([name, array.shape[1], *cells, seconds])
    for key, result in results.items():
        note = f"{result.n_covered} of {result.n_pairs} pairs, {seconds:.1f} CPU s"
        table.add(f"{name}, {array.shape[1]} dimensions: {key}", None, result.spearman, "Spearman", seconds, note)


def read_ratings(path: Path) -> Ratings:
    """Read lines of two words and a number, in lower case."""
    ratings = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        fields = line.lower().split()
        try:
            first, second, rating = fields
            ratings.append((first, second, float(rating)))
        except ValueError:
            if fields:
                raise DataError(f"{path}:{number}: expected two words and a number, got {line!r}.") from None
    return ratings


def _skip_gram(sentences: list[list[str]], rank: int, window: int, max_words: int | None) -> Vectors | None:
    """Train skip-gram by gensim with its defaults (5 epochs, 5 negative samples); None if it is not installed."""
    try:
        from gensim.models import Word2Vec
    except ImportError:
        return None
    options: dict[str, Any] = {"min_count": MIN_COUNT, "max_final_vocab": max_words, "workers": 1, "seed": 0}
    began = time.process_time()
    model = Word2Vec(sentences, vector_size=rank, window=window, sg=1, **options)
    return model.wv.vectors, model.wv.key_to_index, time.process_time() - began
