"""What a page shows of language models: sentences word by word, blanks, neighbours, states, and scores of a text."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from trelliswork.data.moments.text import unknown_word
from trelliswork.report.charts import line_chart
from trelliswork.report.markup import Html, percent, shortened
from trelliswork.report.page import side_by_side
from trelliswork.report.samples import READABLE, SEARCHED, Sample
from trelliswork.report.tables import bars, facts, folded, table, terms, word_lists
from trelliswork.report.taggers import Section

SHOWN_WORDS = 12  # whose neighbours are listed
SHOWN_STATES = 20
DENSE_STATES = 1024  # of which all singular values are computed
SAMPLED_WORDS = 20_000  # of a vocabulary, for samples that go through all of it
LENGTHS = (10, 20, 30, 40)


def sentence_sections(model: Any, sample: Sample) -> list[Section]:
    """A sentence word by word, for models that go from left to right; blanks in it, for those that can fill them."""
    words = _known_sentence(model, sample)
    if not words:
        return []
    found: list[Section] = []
    where = f"A sentence of the {sample.part} part"
    if hasattr(model, "predict_next"):
        note = f"{where}: what the model expects before it sees each word, and how probable the word was."
        found.append(("Word by word", note, [_word_by_word(model, words)]))
    if hasattr(model, "fill"):
        places = _blanks(words)
        shown = [_blank(model, words, t) for t in places]
        found.append(("Blanks", f"{where}: words for a blank, given all others.", [side_by_side(*shown)]))
    return found


def learned_sections(model: Any) -> list[Section]:
    """Neighbours of words, states and their words, n-grams, and sentences that the model makes up."""
    found: list[Section] = []
    if model.kind == "kneser-ney":
        counts = [(f"{n}-grams", float(count)) for n, count in enumerate(model.n_ngrams(), start=1)]
        found.append(("N-grams", "How many different ones the text has.", [bars(counts, digits=0)]))
    near = neighbour_lists(model)
    if near:
        note = "Words whose vectors point in the most similar direction, with the cosine."
        found.append(("Nearest neighbours", note, [word_lists(near, headers=("word", "nearest"))]))
    if model.kind == "hmm-lm":
        found.append(_states(model))
    made = _samples(model)
    if made:
        found.append(("Sentences it makes up", "", [folded(f"{len(made)} random sentences", *made)]))
    return found


def neighbour_lists(model: Any, n: int = 6) -> dict[str, list[tuple[str, float]]]:
    """The nearest words of some frequent ones; empty for a model without vectors of words."""
    if model.kind not in ("mrf-lm", "lbl") or getattr(model, "form", "") == "full":
        return {}
    listed = list(model.vocabulary_)[1:]  # most frequent first; the very first are mostly small words
    frequent = [w for w in [*listed[100:2000], *listed[:100]] if w.isalpha() and len(w) > 3][:SHOWN_WORDS]
    if model.kind == "mrf-lm":
        return {word: model.neighbors(word, n) for word in frequent}
    vectors = model.embeddings_[1:].astype(np.float64)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    found = {}
    for word in frequent:
        at = model.vocabulary_.id(word) - 1
        cosines = vectors @ vectors[at]
        best = [i for i in np.argsort(-cosines, kind="stable").tolist() if i != at][:n]
        found[word] = [(model.vocabulary_[i + 1], float(cosines[i])) for i in best]
    return found


def score_sections(
    log_evidence: Sequence[float], sentences: Sequence[Sequence[str]], end: bool = True
) -> list[Section]:
    """A text under a model: perplexity by length of sentence, and the sentences it finds hardest and easiest.

    Parameters
    ----------
    log_evidence : list of float
        Of each sentence.
    sentences : list of lists of str
    end : bool
        Whether the end of a sentence is an event, which counts as a token.
    """
    rows = [(float(v), len(s) + end, n) for n, (v, s) in enumerate(zip(log_evidence, sentences, strict=True)) if len(s)]
    table_rows = []
    edges = [0, *LENGTHS, 10**9]
    for low, high in pairwise(edges):
        some = [(v, events) for v, events, n in rows if low < len(sentences[n]) <= high]
        if some:
            name = f"{low + 1}-{high}" if high < 10**9 else f"{low + 1}-"
            table_rows.append([name, len(some), perplexity(some)])
    ranked = sorted(rows, key=lambda row: row[0] / row[1])
    long = [row for row in ranked if row[1] > 3] or ranked
    hard = [[shortened(" ".join(sentences[n]), 90), perplexity([(v, e)])] for v, e, n in long[:6]]
    easy = [[shortened(" ".join(sentences[n]), 90), perplexity([(v, e)])] for v, e, n in long[::-1][:6]]
    return [
        ("By length", "Perplexity per token of sentences of about one length.",
         [table(["words", "sentences", "perplexity"], table_rows, digits=2)]),
        ("Hard and easy sentences", "By their own perplexity per token.",
         [table(["hardest", "perplexity"], hard, digits=2), table(["easiest", "perplexity"], easy, digits=2)]),
    ]  # fmt: skip


def perplexity(rows: Sequence[tuple[float, int]]) -> float:
    """Of sentences, each its log evidence and how many events it has; infinite if one is impossible."""
    mean = -sum(v for v, _ in rows) / sum(events for _, events in rows)
    return math.exp(mean) if mean < 700 else math.inf


def _known_sentence(model: Any, sample: Sample) -> list[str]:
    """A readable sentence of known words if there is one; a model with an unknown word is content with few others."""
    low, high = READABLE
    known = set(model.vocabulary_)
    sentences = [(sum(word not in known for word in s), s) for s in sample.first(SEARCHED).words() if s]
    if unknown_word(model.vocabulary_) is None:
        sentences = [(n, s) for n, s in sentences if not n]
    best = min(sentences, key=lambda row: (not low <= len(row[1]) <= high, row[0], -len(row[1])), default=(0, []))
    return best[1][:30]


def _word_by_word(model: Any, words: list[str]) -> Html:
    rows = []
    for t, word in enumerate(words):
        found: Any = model.predict_next(words[:t], len(model.vocabulary_))
        listed = found[0] if isinstance(found, tuple) else found
        known = dict(listed)
        p = known.get(word, known.get(unknown_word(model.vocabulary_) or "", 0.0))
        rows.append([shortened(word), percent(p, 2), terms([(w, percent(q)) for w, q in listed[:4]])])
    return table(["word", "p", "expected"], rows)


def _blanks(words: list[str]) -> list[int]:
    """Two places for blanks, at longer words if there are any."""
    places = sorted(range(len(words)), key=lambda t: (not (words[t].isalpha() and len(words[t]) > 3), t))[:2]
    return sorted(places)


def _blank(model: Any, words: list[str], t: int) -> Html:
    given = [*words[:t], "___", *words[t + 1 :]]
    found = model.fill(words, t, 8) if model.kind == "hmm-lm" else model.fill(given, 8)
    title = " ".join(given)
    return bars(
        [(word, float(p)) for word, p in found], title=title, headers=("word", f"p (it was: {shortened(words[t], 16)})")
    )


def _states(model: Any) -> Section:
    frequencies = model.state_frequencies()
    used = np.argsort(-frequencies, kind="stable")[:SHOWN_STATES].tolist()
    lists = {f"#{z}  {100 * frequencies[z]:.1f} %": model.top_words(z, 8) for z in used}
    blocks = [word_lists(lists, headers=("state, use", "words"))]
    if model.n_states_ <= DENSE_STATES or model.parameterisation == "kernel":
        spectrum = model.transition_spectrum()
        xs = [float(k + 1) for k in range(len(spectrum))]
        lines = [("singular values", xs, spectrum.tolist())]
        rank = facts([("above 1e-5", int((spectrum > 1e-5).sum())), ("states", model.n_states_)])
        blocks.append(side_by_side(line_chart(lines, x="number", y="singular value", title="Transition matrix"), rank))
    return "States", f"The {len(used)} most used states and their most probable words.", blocks


def _samples(model: Any) -> list[str]:
    """Some random sentences, of models that make them in moments."""
    if not hasattr(model, "sample") or len(model.vocabulary_) > SAMPLED_WORDS:
        return []
    drawn = model.sample(4, seed=0, max_length=40)
    made = [one[0] if isinstance(one, tuple) else one for one in drawn]
    return [" ".join(map(str, words)) for words in made if words]
