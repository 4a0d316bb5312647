"""Sections about language models: a sentence word by word, blanks, and the perplexity of a text."""

import math
from collections.abc import Sequence
from typing import Any

from trelliswork.answers import Want, ask
from trelliswork.data.vocabulary import UNKNOWN
from trelliswork.metrics.dependencies import by_length
from trelliswork.models.tasks import NextWord
from trelliswork.report.page import Html, Section, percent, shortened, side_by_side
from trelliswork.report.samples import READABLE, SEARCHED, Sample
from trelliswork.report.tables import bars, table, terms


def sentence_sections(model: Any, sample: Sample) -> list[Section]:
    """Return a sentence word by word, for models that predict the next word, and with blanks."""
    words = _known_sentence(model, sample)
    if not words:
        return []
    sections: list[Section] = []
    where = f"A sentence of the {sample.part} data"
    if isinstance(model, NextWord):
        note = f"{where}: the probability of each word given the words before it, and the most probable words."
        sections.append(("Word by word", note, [_word_by_word(model, words)]))
    longer = sorted(range(len(words)), key=lambda t: not (words[t].isalpha() and len(words[t]) > 3))[:2]
    blocks = [_blank(model, words, t) for t in sorted(longer)]
    sections.append(("Blanks", f"{where}: words for a blank, given all others.", [side_by_side(*blocks)]))
    return sections


def score_sections(log_probs: Sequence[float], sentences: Sequence[Sequence[str]], end: bool = True) -> list[Section]:
    """Return the perplexity of a text by sentence length, and its hardest and easiest sentences.

    ``end``: the end of a sentence is an event, which counts as a token.
    """
    rows = [(float(v), len(words) + end) for v, words in zip(log_probs, sentences, strict=True)]
    bands = [
        [name, len(some), _perplexity([rows[n] for n in some])] for name, some in by_length([*map(len, sentences)])
    ]
    ranked = sorted((n for n, words in enumerate(sentences) if words), key=lambda n: rows[n][0] / rows[n][1])
    longer = [n for n in ranked if rows[n][1] > 3] or ranked
    hard, easy = (
        [[shortened(" ".join(sentences[n]), 90), _perplexity([rows[n]])] for n in some]
        for some in (longer[:6], longer[::-1][:6])
    )
    return [
        ("By length", "Perplexity per token of sentences of similar length.",
         [table(["words", "sentences", "perplexity"], bands, digits=2)]),
        ("Hard and easy sentences", "By their own perplexity per token.",
         [table(["hardest", "perplexity"], hard, digits=2), table(["easiest", "perplexity"], easy, digits=2)]),
    ]  # fmt: skip


def _perplexity(rows: Sequence[tuple[float, int]]) -> float:
    """Return the perplexity of sentences given as (log-probability, events); infinite if one is impossible."""
    mean = -sum(v for v, _ in rows) / sum(events for _, events in rows)
    return math.exp(mean) if mean < 700 else math.inf


def _known_sentence(model: Any, sample: Sample) -> list[str]:
    """Return a sentence of readable length with few unknown words; with none if the model has no unknown word."""
    low, high = READABLE
    known = set(model.vocabulary_)
    sentences = [(sum(word not in known for word in s), s) for s in sample.first(SEARCHED).words() if s]
    if UNKNOWN not in known:
        sentences = [(n, s) for n, s in sentences if not n]
    best = min(sentences, key=lambda row: (not low <= len(row[1]) <= high, row[0], -len(row[1])), default=(0, []))
    return best[1][:30]


def _word_by_word(model: NextWord, words: list[str]) -> Html:
    unknown = UNKNOWN if UNKNOWN in model.vocabulary_ else ""
    rows = []
    for t, word in enumerate(words):
        (answer,) = ask(model, [words[:t]], Want(n=len(model.vocabulary_) + 1, unknown=True), "next")
        p = dict(answer.value)
        best = terms([(w, percent(q)) for w, q in answer.value if w != unknown][:4])
        rows.append([shortened(word), percent(p.get(word, p.get(unknown, 0.0)), 2), best])
    return table(["word", "p", "most probable"], rows)


def _blank(model: Any, words: list[str], t: int) -> Html:
    (answer,) = ask(model, [[*words[:t], None, *words[t + 1 :]]], Want(n=8), "fill")
    title = " ".join([*words[:t], "___", *words[t + 1 :]])
    return bars(answer.value[0], title=title, headers=("word", f"p (original: {shortened(words[t], 16)})"))
