"""Small corpora and models of the HMM tests, and oracles that enumerate all state paths."""

from collections import Counter
from functools import cache
from itertools import product

import numpy as np
from scipy.sparse import csr_array

from tests.estimators import made
from tests.oracle.hmm import joint
from trelliswork import HMM
from trelliswork.data import bundled
from trelliswork.models.hmm.counting import count_ngrams
from trelliswork.models.hmm.suffixes import Lexicon

WORDS = [
    ["the", "dog", "barks"],
    ["a", "dog", "sees", "the", "cat"],
    ["dogs", "bark"],
    ["the", "cat", "sees", "a", "man"],
    ["dog", "the", "a"],
]
TAGS = [["D", "N", "V"], ["D", "N", "V", "D", "N"], ["N", "V"], ["D", "N", "V", "D", "N"], ["N", "D", "D"]]
HALF = [["D", "N", "V"], None, ["N", None], [None, "N", "V", None, None], None]
IDS = [[0, 1, 2], [3, 1, 2, 0, 1], [1, 2], [0, 4, 2, 3, 5], [1, 0, 3]]
NEW = [["the", "man", "sees", "dogs"], ["bark"], ["zzz", "dogging", "the"]]  # two words are unknown

COUNTS = Counter(word for sentence in WORDS for word in sentence)
TABLES = {  # models whose emissions are a table that sums to 1
    "labeled, symbol": lambda: HMM(unknown="symbol").fit(WORDS, TAGS),
    "labeled ids": lambda: HMM().fit(IDS, TAGS),
    "labeled ids, no end": lambda: HMM(end=False).fit(IDS, TAGS),
    "unlabeled": lambda: HMM(3).fit(WORDS),
    "unlabeled, symbol, no end": lambda: HMM(3, unknown="symbol", end=False).fit(WORDS),
    "unlabeled, rare words": lambda: HMM(2, unknown="symbol", min_count=2).fit(WORDS),
    "unlabeled ids": lambda: HMM(3, seed=1).fit(IDS),
    "half": lambda: HMM().fit(WORDS, HALF),
    "half, one more state, ids": lambda: HMM(4).fit(IDS, HALF),
    "variational Bayes": lambda: HMM(3, algorithm="vb").fit(WORDS),
    "float32": lambda: HMM(3, options={"dtype": "float32"}).fit(WORDS),
    "stream": lambda: HMM(3, unknown="symbol").partial_fit(WORDS[:2], words=COUNTS).partial_fit(WORDS[2:]),
    "stream of ids": lambda: HMM(2, end=False).partial_fit(IDS, words=Counter(x for row in IDS for x in row)),
}
LEXICONS = {  # labeled words with suffixes
    "order 1": lambda: HMM().fit(WORDS, TAGS),
    "order 2": lambda: HMM(order=2).fit(WORDS, TAGS),
    "order 3": lambda: HMM(order=3).fit(WORDS, TAGS),
    "order 1, beam of all states": lambda: HMM(beam="kl=0").fit(WORDS, TAGS),
    "order 2, beam of all states": lambda: HMM(order=2, beam="kl=0").fit(WORDS, TAGS),
    "order 3, beam of all states": lambda: HMM(order=3, beam="size=9999").fit(WORDS, TAGS),
}
OTHERS = {
    "unlabeled, rare words by suffixes": lambda: HMM(3, min_count=2).fit(WORDS),
    "order 2, beam": lambda: HMM(order=2, beam="threshold=6.9,min=1").fit(WORDS, TAGS),
}
ALL = {**TABLES, **LEXICONS, **OTHERS}


@cache
def model(name):
    return ALL[name]()


def tiny(**options):
    """A tagger of two words, for sums over all sentences."""
    return made(HMM, **options).fit(
        [["a"], ["b", "a"], ["a", "b"], ["b"], ["a"]], [["X"], ["Y", "X"], ["X", "X"], ["Y"], ["X"]]
    )


def sentences(hmm):
    """Short sentences of training and others; with unknown words where the oracles can score them."""
    if "0" in hmm.known_words():
        return [*IDS, [4], [5, 5], [2, 1, 0, 3]]
    counted = hmm.report_.reason == "counted"
    return [*WORDS, *NEW] if counted or hmm.unknown == "symbol" else [*WORDS, *NEW[:2]]


def table_parameters(hmm):
    """Return log_start, log_transition, log_end (or None), log_emission and words of a first-order model by queries."""
    words = sorted((word for word, _ in hmm.top_words(next(iter(hmm.labels_)), 10**6)), key=str)
    emission = np.array([[dict(hmm.top_words(state, 10**6))[word] for word in words] for state in hmm.labels_])
    transition = hmm.transitions()
    end = 1 - transition.sum(1) if hmm.end else np.ones(len(transition))
    word = words[0]
    marginals = np.array([hmm.predict_marginals([[word]])[0][0][state] for state in hmm.labels_])
    start = marginals * np.exp(hmm.log_prob([[word]])) / (emission[:, 0] * end)  # p(state, word) without the rest
    log_end = np.log(end) if hmm.end else None
    return np.log(start), np.log(transition), log_end, np.log(emission), words


def table_oracle(hmm):
    """Return log p(words, path) of a first-order model with a table, as a function of both."""
    *logs, words = table_parameters(hmm)
    ids = {word: n for n, word in enumerate(words)}
    other = ids.get("<unk>")
    return lambda x, path: joint(*logs, [ids.get(word, other) for word in x], path)


def lexicon_oracle(hmm):
    """Return the same of a tagger, from its documented parts: a lexicon and label n-grams."""
    number = {state: n for n, state in enumerate(hmm.labels_)}
    S, words = len(number), sorted({word for x in WORDS for word in x})
    counts = np.zeros((len(words), S))
    for x, y in zip(WORDS, TAGS, strict=True):
        for word, tag in zip(x, y, strict=True):
            counts[words.index(word), number[tag]] += 1
    lexicon = Lexicon(words, csr_array(counts))
    labels = np.array([number[tag] for y in TAGS for tag in y])
    offsets = np.cumsum([0, *map(len, TAGS)])
    k = hmm.order
    table = count_ngrams(labels, offsets, S, k)

    def score(x, path):
        rows = lexicon.log_emission(x, np.arange(len(x)) == 0)
        padded = [*[S] * k, *path, S]
        total = sum(table[tuple(padded[t : t + k + 1])] for t in range(len(x) + 1))
        return total + sum(rows[t, state] for t, state in enumerate(path))

    return score


def oracle(name, hmm):
    return lexicon_oracle(hmm) if name in LEXICONS else table_oracle(hmm)


def enumerate_paths(score, x, n_states, allowed=None):
    """Return all paths, their log-scores, and the logarithm of their sum."""
    paths = np.array([p for p in product(range(n_states), repeat=len(x)) if allowed is None or allowed(p)])
    scores = np.array([score(x, tuple(path)) for path in paths])
    return paths, scores, np.logaddexp.reduce(scores)


def node_marginals(paths, scores, log_z, n_states):
    p = np.exp(scores - log_z)
    return np.array([[p[paths[:, t] == state].sum() for state in range(n_states)] for t in range(paths.shape[1])])


def as_array(hmm, marginals):
    return np.array([[token[state] for state in hmm.labels_] for token in marginals])


@cache
def corpus(part, n=None):
    """Return words and tags of the bundled corpus."""
    data = bundled.load(part)[:n]
    return [list(s.words) for s in data], [list(s.tags) for s in data]


def accuracies(hmm):
    """Return the accuracy of all tokens of the test part, and of those whose word is unknown."""
    X, y = corpus("test")
    known = {word for x in corpus("train")[0] for word in x}
    hits = [
        (word in known, a == b)
        for x, gold, got in zip(X, y, hmm.predict(X), strict=True)
        for word, a, b in zip(x, gold, got, strict=True)
    ]
    unknown = [hit for seen, hit in hits if not seen]
    assert len(unknown) > 100
    return sum(hit for _, hit in hits) / len(hits), sum(unknown) / len(unknown)
