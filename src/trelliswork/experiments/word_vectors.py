"""Word vectors of Markov random fields and of skip-gram, against ratings of word pairs."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from trelliswork.data import read_text
from trelliswork.data.moments import count_moments
from trelliswork.errors import DataError
from trelliswork.experiments.running import fit
from trelliswork.experiments.tables import Say, Table
from trelliswork.metrics.similarity import word_similarity
from trelliswork.models.mrf import MRFLanguageModel

WINDOW = 5
RANKS = (30, 100)
MIN_COUNT = 5
TEXTS = ("wikitext-2/wiki.train.tokens", "ptb-lm/ptb.train.txt")
Ratings = list[tuple[str, str, float]]
Vectors = tuple[NDArray[Any], Mapping[str, int], float]  # vectors, their words, CPU seconds


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
            "MRF lifted": MRFLanguageModel(2, rank, max_iter=10_000, max_minutes=max(minutes, 1e-9)),
            "MRF spectral": MRFLanguageModel(window, rank, algorithm="spectral"),
        }
        for name, model in models.items():
            say(f"{name}, {rank} dimensions: training")
            began = time.process_time()
            fit(model, counted[model.order])
            seconds = time.process_time() - began
            ids = {word: i for i, word in enumerate(model.vocabulary_) if i}
            _add(table, name, (model.word_vectors(), ids, seconds), sets)
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
