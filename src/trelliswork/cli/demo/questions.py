"""Questions that ``trelliswork demo`` asks its models, as plain data: tables and page show the same."""

from collections import Counter
from dataclasses import dataclass

from trelliswork.cli.demo.models import Trained

SHORT, LONG = 6, 11  # words of a sentence that is easily read
TRIED = 40  # doubtful sentences among which the most telling is looked for
KINDS = ("NN", "VBD", "JJ")  # tags of words whose neighbours are shown


@dataclass(frozen=True)
class Evidence:
    """One sentence before and after a word's tag is told.

    Attributes
    ----------
    n, t : int
        Sentence of the test part, and the word of it whose second-best tag is forced.
    tag : str
    probability, entropy : float, (float, float)
        Of the evidence; in nats before and after.
    before, after : (path, marginals)
    """

    n: int
    t: int
    tag: str
    probability: float
    entropy: tuple[float, float]
    before: tuple[list[str], list[dict[str, float]]]
    after: tuple[list[str], list[dict[str, float]]]


def telling_evidence(found: Trained) -> Evidence:
    """Of doubtful short sentences the one in which forcing a word's second-best tag moves most other words."""
    import numpy as np
    import torch

    words = found.test.words
    readable = [n for n, s in enumerate(words) if SHORT <= len(s) <= LONG]
    marginals = found.tagger.predict_marginals([words[n] for n in readable])
    doubts = [int(np.argmin([max(row.values()) for row in rows])) for rows in marginals]
    order = sorted(range(len(readable)), key=lambda i: max(marginals[i][doubts[i]].values()))[:TRIED]
    known, second = [], []
    for i in order:
        row = marginals[i][doubts[i]]
        second.append(sorted(row, key=row.__getitem__, reverse=True)[1])
        known.append([second[-1] if t == doubts[i] else None for t in range(len(words[readable[i]]))])
    some = [words[readable[i]] for i in order]
    before, after = found.tagger.predict(some), found.tagger.predict(some, known=known)
    moved = [sum(a != b for a, b in zip(*pair, strict=True)) for pair in zip(before, after, strict=True)]
    best = max(range(len(order)), key=lambda k: (moved[k], -len(some[k])))
    i, given = order[best], [known[best]]
    chain = found.tagger.posterior(some[best])
    label = list(found.tagger.labels_).index(second[best])
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
        (after[best], found.tagger.predict_marginals([some[best]], known=given)[0]),
    )


@dataclass(frozen=True)
class Parse:
    """A sentence of the test part with its tree: head, label and probability of each word."""

    n: int
    arcs: list[tuple[int, str | None, float]]


def doubtful_parse(found: Trained) -> Parse:
    """The short sentence whose least certain arc is nearest to being as likely as not."""
    readable = [n for n, s in enumerate(found.tagged) if SHORT <= len(s) <= LONG]
    trees = found.parser.parse([found.tagged[n] for n in readable])
    doubt = [abs(min(p for _, _, p in arcs) - 0.5) for arcs in trees]
    best = min(range(len(readable)), key=lambda i: doubt[i])
    return Parse(readable[best], trees[best])


def neighbours(found: Trained, n: int = 6) -> dict[str, list[tuple[str, float]]]:
    """The nearest words of the most frequent nouns, verbs and adjectives."""
    counts = Counter(pair for s in found.train.sentences for pair in zip(s.tags, s.words, strict=True))
    ranked = [pair for pair, _ in counts.most_common() if pair[1] in found.language_model.vocabulary_]
    chosen = [word for kind in KINDS for word in [word for tag, word in ranked if tag == kind][:2]]
    return {word: found.language_model.neighbors(word, n) for word in chosen}


def blank(found: Trained, n: int = 6) -> tuple[list[str], list[tuple[str, float]]]:
    """A short sentence of known words with a noun left out, and the most probable words for it."""
    vocabulary = found.language_model.vocabulary_
    for sentence in found.test.sentences:
        t = next((t for t, tag in enumerate(sentence.tags) if tag == "NN" and t > 0), None)
        if t is not None and SHORT <= len(sentence) <= LONG and all(word in vocabulary for word in sentence.words):
            words = [*sentence.words[:t], "___", *sentence.words[t + 1 :]]
            return words, _known(found.language_model.fill(words, n + 1), n)
    words = ["The", "___", "."]
    return words, _known(found.language_model.fill(words, n + 1), n)


def _known(words: list[tuple[str, float]], n: int) -> list[tuple[str, float]]:
    """Without the symbol that stands for all rare words."""
    return [(word, p) for word, p in words if word != "<unk>"][:n]
