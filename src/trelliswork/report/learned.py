"""Sections about learned parameters: weights, states, rules, n-grams, neighbors, random sentences."""

from typing import Any

from trelliswork.errors import ValueRangeError
from trelliswork.models.tasks import LanguageModel, Tagger
from trelliswork.report.page import Section, side_by_side
from trelliswork.report.tables import bars, folded, word_lists

WEIGHTS = 18  # per table
SYMBOLS = 40  # states or symbols that are listed
FREQUENT_STATES = 20
RULES = 20_000_000  # maximum number of rules that are computed for a list
SAMPLED_WORDS = 20_000  # maximum size of a vocabulary for random sentences
NEIGHBORS = 12  # words whose neighbors are listed


def learned_sections(model: Any) -> list[Section]:
    """Return sections about the learned parameters of a model."""
    sections: list[Section] = []
    if hasattr(model, "top_features"):
        sections.append(_weights(model))
    elif hasattr(model, "transitions"):
        sections.append(_states(model))
    if hasattr(model, "top_rules"):
        sections.append(_rules(model))
    if hasattr(model, "n_ngrams"):
        counts = [(f"{n}-grams", float(count)) for n, count in enumerate(model.n_ngrams(), start=1)]
        sections.append(("N-grams", "Number of different n-grams in the text.", [bars(counts, digits=0)]))
    if embeddings(model) is not None:
        words = model.vocabulary_[1:]  # most frequent first; the very first are mostly function words
        chosen = [w for w in [*words[100:2000], *words[:100]] if w.isalpha() and len(w) > 3][:NEIGHBORS]
        lists = {word: neighbors(model, word, 6) for word in chosen}
        note = "Words whose vectors have the largest cosines with that of a word."
        sections.append(("Nearest neighbors", note, [word_lists(lists, headers=("word", "nearest"))]))
    if not isinstance(model, Tagger) and isinstance(model, LanguageModel):
        sentences = _random_sentences(model)
        sections.append(("Random sentences", "", [folded(f"{len(sentences)} sentences", *sentences)]))
    return sections


def embeddings(model: Any) -> Any:
    """Return the vectors of the words, ``None`` if the model has none."""
    vectors = getattr(model, "vectors", None)
    return vectors() if callable(vectors) and getattr(model, "form", "") != "full" else None


def neighbors(model: Any, word: str, n: int) -> list[tuple[str, float]]:
    """Return the n words whose vectors have the largest cosines with that of a known word."""
    from trelliswork.models.mrf.queries import nearest  # imports torch

    words = model.vocabulary_
    return [(words[i], cosine) for i, cosine in nearest(embeddings(model), words.index(word), n)]


def _weights(model: Any) -> Section:
    blocks = []
    for table in model.describe(WEIGHTS).tables:
        between = " + " if table.columns[0] == table.columns[1] else " → "
        rows = [(between.join(map(str, row[:-1])), row[-1]) for row in table.rows]
        headers = (between.join(table.columns[:-1]), table.columns[-1])
        blocks.append(bars(rows, title=table.title, headers=headers))
    return "Largest weights", "Negative weights are red.", [side_by_side(*blocks)]


def _states(model: Any) -> Section:
    """Return the words of states, and what follows them; of a language model those of frequent states."""
    table = model.describe(FREQUENT_STATES).tables[0]
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows[:SYMBOLS]]
    for row in rows:
        row["state"] += f"  {row['frequency']:.1%}" if "frequency" in row else ""
    note = f"{table.title}, with p(word | state)."
    if len(table.rows) > len(rows):
        note += f" The first {len(rows)} of {len(table.rows)} states."
    words = word_lists({row["state"]: row["words"][:8] for row in rows}, headers=("state", "words"), digits=3)
    if "next" not in table.columns:
        return "States", note, [words]
    following = word_lists({row["state"]: row["next"][:8] for row in rows}, headers=("state", "next states"))
    return "States", note, [words, folded("Next states", following)]


def _rules(grammar: Any) -> Section:
    N, P, _ = grammar._grammar.sizes
    blocks = []
    if N * (N + P) ** 2 <= RULES:
        names = [f"N{a}" for a in range(min(N, SYMBOLS))]
        rules = {name: [(f"{x} {y}", p) for x, y, p in grammar.top_rules(name, 6)] for name in names}
        blocks.append(word_lists(rules, title="Rules", headers=("symbol", "children")))
    if grammar.n_preterminals is not None:
        words = {f"P{x}": grammar.top_words(f"P{x}", 8) for x in range(min(P, SYMBOLS))}
        blocks.append(word_lists(words, title="Words", headers=("symbol", "words")))
    return "Rules and words", "Symbols have no names: N0, N1, ... are over spans, P0, P1, ... over words.", blocks


def _random_sentences(model: Any) -> list[str]:
    if len(model.vocabulary_) > SAMPLED_WORDS:  # it would take long
        return []
    try:
        return [" ".join(words) for words in model.sample(5, seed=0, max_length=40) if words]
    except ValueRangeError:  # all sentences of a grammar are longer
        return []
