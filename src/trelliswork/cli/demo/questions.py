"""Queries that ``trelliswork demo`` answers with its models; the results are plain data for tables and the page."""

from collections import Counter
from typing import NamedTuple

from trelliswork.cli.demo.models import Trained

SHORT, LONG = 6, 11  # length of sentences that are easy to read
TRIED = 40  # number of uncertain sentences to choose from
KINDS = ("NN", "VBD", "JJ")  # tags of words whose neighbors are shown


class Evidence(NamedTuple):
    """One sentence before and after the tag of a word is known."""

    n: int  # sentence of the test part
    t: int  # its word whose second-best tag is forced
    tag: str
    probability: float  # of the evidence
    entropy: tuple[float, float]  # in nats, before and after
    before: tuple[list[str], list[dict[str, float]]]  # path and marginals
    after: tuple[list[str], list[dict[str, float]]]


def best_evidence(trained: Trained) -> Evidence:
    """Return the short sentence in which forcing the second-best tag of a word changes the most other tags."""
    import numpy as np
    import torch

    words = trained.test.words
    readable = [n for n, s in enumerate(words) if SHORT <= len(s) <= LONG]
    marginals = trained.tagger.predict_marginals([words[n] for n in readable])
    doubts = [int(np.argmin([max(row.values()) for row in rows])) for rows in marginals]
    order = sorted(range(len(readable)), key=lambda i: max(marginals[i][doubts[i]].values()))[:TRIED]
    known, second = [], []
    for i in order:
        row = marginals[i][doubts[i]]
        second.append(sorted(row, key=row.__getitem__, reverse=True)[1])
        known.append([second[-1] if t == doubts[i] else None for t in range(len(words[readable[i]]))])
    some = [words[readable[i]] for i in order]
    before, after = trained.tagger.predict(some), trained.tagger.predict(some, known=known)
    moved = [sum(a != b for a, b in zip(*pair, strict=True)) for pair in zip(before, after, strict=True)]
    best = max(range(len(order)), key=lambda k: (moved[k], -len(some[k])))
    i, given = order[best], [known[best]]
    chain = trained.tagger.posterior(some[best])
    label = list(trained.tagger.labels_).index(second[best])
    labels = torch.full((1, len(some[best])), -1)
    labels[0, doubts[i]] = label
    part = chain.condition(labels=labels)
    return Evidence(
        readable[i],
        doubts[i],
        second[best],
        float((part.log_partition() - chain.log_partition()).exp()),
        (float(chain.entropy()[0]), float(part.entropy()[0])),
        (before[best], marginals[i]),
        (after[best], trained.tagger.predict_marginals([some[best]], known=given)[0]),
    )


class Parse(NamedTuple):
    """A sentence of the test part with head, label and arc probability of each word."""

    n: int
    arcs: list[tuple[int, str | None, float]]


def uncertain_parse(trained: Trained) -> Parse:
    """Return the short sentence whose least certain arc has a probability nearest to one half."""
    readable = [n for n, s in enumerate(trained.tagged) if SHORT <= len(s) <= LONG]
    trees = trained.parser.parse([trained.tagged[n] for n in readable])
    doubt = [abs(min(p for _, _, p in arcs) - 0.5) for arcs in trees]
    best = min(range(len(readable)), key=lambda i: doubt[i])
    return Parse(readable[best], trees[best])


def neighbors(trained: Trained, n: int = 6) -> dict[str, list[tuple[str, float]]]:
    """Return the nearest words of the most frequent nouns, verbs and adjectives."""
    counts = Counter(pair for s in trained.train.sentences for pair in zip(s.tags, s.words, strict=True))
    ranked = [pair for pair, _ in counts.most_common() if pair[1] in trained.language_model.vocabulary_]
    chosen = [word for kind in KINDS for word in [word for tag, word in ranked if tag == kind][:2]]
    return {word: trained.language_model.neighbors(word, n) for word in chosen}


def blank(trained: Trained, n: int = 6) -> tuple[list[str], list[tuple[str, float]]]:
    """Return a short sentence of known words with a blank for a noun, and the most probable words for it."""
    from trelliswork.models.tasks import BLANK

    vocabulary = trained.language_model.vocabulary_
    for sentence in trained.test.sentences:
        t = next((t for t, tag in enumerate(sentence.tags) if tag == "NN" and t > 0), None)
        if t is not None and SHORT <= len(sentence) <= LONG and all(word in vocabulary for word in sentence.words):
            words = [*sentence.words[:t], BLANK, *sentence.words[t + 1 :]]
            break
    else:
        words = ["The", BLANK, "."]
    return words, trained.language_model.fill(words, n)[0]
