"""The HMM from sentences to answers: judged by enumeration of all state paths and by laws, not by its own kernels."""

import json
import math
import shutil
from collections import Counter
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from safetensors.numpy import load_file, save_file
from sklearn.base import clone

from tests.oracle.hmm import joint
from trelliswork import HMM
from trelliswork.data import Corpus, bundled
from trelliswork.errors import (
    ConvergenceWarning,
    DataError,
    ImpossibleError,
    NotFittedError,
    ShapeError,
    TrellisworkError,
    ValueRangeError,
)
from trelliswork.metrics.induction import evaluate_induction
from trelliswork.models.hmm import trigrams
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

TABLES = {  # models whose emissions are a table that sums to 1
    "labelled, symbol": lambda: HMM(unknown="symbol").fit(WORDS, TAGS),
    "labelled ids": lambda: HMM().fit(IDS, TAGS),
    "labelled ids, no end": lambda: HMM(end=False).fit(IDS, TAGS),
    "unlabelled": lambda: HMM(3).fit(WORDS),
    "unlabelled, symbol, no end": lambda: HMM(3, unknown="symbol", end=False).fit(WORDS),
    "unlabelled, rare words": lambda: HMM(2, unknown="symbol", min_count=2).fit(WORDS),
    "unlabelled ids": lambda: HMM(3, seed=1).fit(IDS),
    "half": lambda: HMM().fit(WORDS, HALF),
    "half, one state more, ids": lambda: HMM(4).fit(IDS, HALF),
    "variational Bayes": lambda: HMM(3, method="vb").fit(WORDS),
    "stepwise": lambda: HMM(3, method="stepwise", batch_size=2, max_iter=3).fit(WORDS),
    "float32": lambda: HMM(3, dtype="float32").fit(WORDS),
    "stream": lambda: HMM(3, unknown="symbol").fit_stream([WORDS[:2], WORDS[2:]], n_passes=2),
    "stream of ids": lambda: HMM(2, end=False).fit_stream([IDS[:2], IDS[2:]]),
}
LEXICONS = {  # labelled words with endings
    "order 1": lambda: HMM().fit(WORDS, TAGS),
    "order 1, deleted": lambda: HMM(interpolation="deleted").fit(WORDS, TAGS),
    "order 2": lambda: HMM(order=2).fit(WORDS, TAGS),
    "order 2, deleted": lambda: HMM(order=2, interpolation="deleted").fit(WORDS, TAGS),
    "order 3": lambda: HMM(order=3).fit(WORDS, TAGS),
    "order 1, beam of all states": lambda: HMM(beam="kl=0").fit(WORDS, TAGS),
    "order 2, beam of all states": lambda: HMM(order=2, beam="kl=0").fit(WORDS, TAGS),
    "order 3, beam of all states": lambda: HMM(order=3, beam="size=9999").fit(WORDS, TAGS),
}
OTHERS = {
    "unlabelled, rare words by endings": lambda: HMM(3, min_count=2).fit(WORDS),
    "order 2, beam": lambda: HMM(order=2, beam="threshold=6.9,min=1").fit(WORDS, TAGS),
}
ALL = {**TABLES, **LEXICONS, **OTHERS}


@cache
def model(name):
    return ALL[name]()


def sentences(hmm):
    """Short sentences, old and new; with unknown words where the oracles know what they are."""
    if "0" in hmm.known_words():
        return [*IDS, [4], [5, 5], [2, 1, 0, 3]]
    counted = hmm.report_.reason == "counted"
    return [*WORDS, *NEW] if counted or hmm.unknown == "symbol" else [*WORDS, *NEW[:2]]


# ---- the oracle: parameters by public questions, then all paths


def table_parameters(hmm):
    """log_start, log_transition, log_end (or None), log_emission and the words of a first-order model with a table."""
    words = sorted((word for word, _ in hmm.top_words(next(iter(hmm.states_)), 10**6)), key=str)
    emission = np.array([[dict(hmm.top_words(state, 10**6))[word] for word in words] for state in hmm.states_])
    transition = hmm.transitions()
    end = 1 - transition.sum(1) if hmm.end else np.ones(len(transition))
    word = words[0]
    marginals = np.array([hmm.predict_marginals([[word]])[0][0][state] for state in hmm.states_])
    start = marginals * np.exp(hmm.log_evidence([[word]])) / (emission[:, 0] * end)  # p(state, word) without the rest
    log_end = np.log(end) if hmm.end else None
    return np.log(start), np.log(transition), log_end, np.log(emission), words


def table_oracle(hmm):
    """log p(words, path) of a first-order model with a table, as a function of both."""
    *logs, words = table_parameters(hmm)
    ids = {word: n for n, word in enumerate(words)}
    other = ids.get("<unknown>")
    return lambda x, path: joint(*logs, [ids.get(word, other) for word in x], path)


def lexicon_oracle(hmm):
    """The same of a tagger, from what its parts are documented to be: a lexicon and label n-grams."""
    number = {state: n for n, state in enumerate(hmm.states_)}
    S, words = len(number), sorted({word for x in WORDS for word in x})
    counts = np.zeros((len(words), S))
    for x, y in zip(WORDS, TAGS, strict=True):
        for word, tag in zip(x, y, strict=True):
            counts[words.index(word), number[tag]] += 1
    lexicon = Lexicon.fit(words, counts)
    labels = np.array([number[tag] for y in TAGS for tag in y])
    offsets = np.cumsum([0, *map(len, TAGS)])
    k = hmm.order
    table, _ = trigrams.fit_ngrams(labels, offsets, S, k, method=hmm.interpolation)

    def score(x, path):
        rows = lexicon.log_emission(x, np.arange(len(x)) == 0)
        padded = [*[S] * k, *path, S]
        total = sum(table[tuple(padded[t : t + k + 1])] for t in range(len(x) + 1))
        return total + sum(rows[t, state] for t, state in enumerate(path))

    return score


def oracle(name, hmm):
    return lexicon_oracle(hmm) if name in LEXICONS else table_oracle(hmm)


def enumerate_paths(score, x, n_states, allowed=None):
    """All paths, their log-scores, and the logarithm of their sum."""
    paths = np.array([p for p in product(range(n_states), repeat=len(x)) if allowed is None or allowed(p)])
    scores = np.array([score(x, tuple(path)) for path in paths])
    return paths, scores, np.logaddexp.reduce(scores)


def node_marginals(paths, scores, log_z, n_states):
    p = np.exp(scores - log_z)
    return np.array([[p[paths[:, t] == state].sum() for state in range(n_states)] for t in range(paths.shape[1])])


def as_array(hmm, marginals):
    return np.array([[token[state] for state in hmm.states_] for token in marginals])


# ---- answers against enumeration


@pytest.mark.parametrize("name", TABLES)
def test_evidence_by_enumeration(name):
    hmm = model(name)
    score, xs = table_oracle(hmm), sentences(hmm)
    want = [enumerate_paths(score, x, len(hmm.states_))[2] for x in xs]
    assert_allclose(hmm.log_evidence(xs), want, rtol=1e-9)
    assert_allclose([hmm.posterior(x).log_partition().item() for x in xs], want, rtol=1e-9)
    assert hmm.score(xs) == pytest.approx(sum(want), rel=1e-9)


@pytest.mark.parametrize("name", LEXICONS)
def test_evidence_of_taggers_by_enumeration(name):
    """Up to one factor for all sentences: whether an empty sentence is an event is not the lexicon's to say."""
    hmm = model(name)
    score = lexicon_oracle(hmm)
    want = np.array([enumerate_paths(score, x, len(hmm.states_))[2] for x in [*WORDS, *NEW]])
    got = hmm.log_evidence([*WORDS, *NEW])
    assert_allclose(got - want, (got - want)[0], atol=1e-9)
    assert 0 <= (got - want)[0] + 1e-9 < 0.5
    assert_allclose([hmm.posterior(x).log_partition().item() for x in [*WORDS, *NEW]], got, rtol=1e-9)


@pytest.mark.parametrize("name", [*TABLES, *LEXICONS])
def test_decoding_and_marginals_by_enumeration(name):
    hmm = model(name)
    score, S, states = oracle(name, hmm), len(hmm.states_), list(hmm.states_)
    xs = sentences(hmm)
    answers = zip(
        xs,
        hmm.predict(xs),
        hmm.predict(xs, decoding="posterior"),
        hmm.predict_marginals(xs),
        hmm.predict_topk(xs, 5),
        strict=True,
    )
    for x, best, hits, marginals, top in answers:
        paths, scores, log_z = enumerate_paths(score, x, S)
        want = node_marginals(paths, scores, log_z, S)
        got = as_array(hmm, marginals)
        assert_allclose(got, want, atol=1e-9)
        assert_allclose(got.sum(1), 1, atol=1e-9)
        assert score(x, [states.index(state) for state in best]) == pytest.approx(scores.max(), abs=1e-9)
        picked = [want[t, states.index(state)] for t, state in enumerate(hits)]
        assert_allclose(picked, want.max(1), atol=1e-9)
        order = np.sort(np.exp(scores - log_z))[::-1][:5]
        order = order[order > 0]
        assert_allclose([p for _, p in top][: len(order)], order, atol=1e-9)
        assert len({tuple(path) for path, _ in top}) == len(top) <= S ** len(x)
        for path, p in top:
            assert p == pytest.approx(math.exp(score(x, [states.index(s) for s in path]) - log_z), abs=1e-9)


@pytest.mark.parametrize("name", ["order 1", "order 2", "unlabelled", "labelled ids, no end"])
def test_posterior_scores_every_path(name):
    """``posterior`` of order 2 has pairs for states: S + a * S + b, at the begin b alone; order 3 triples too."""
    hmm = model(name)
    score, S, x = oracle(name, hmm), len(hmm.states_), sentences(hmm)[3][:4]
    chain = hmm.posterior(x)
    paths, scores, log_z = enumerate_paths(score, x, S)
    total = 0.0
    for path, value in zip(paths, scores, strict=True):
        labels = [_state(path[max(0, t + 1 - hmm.order) : t + 1], S) for t in range(len(path))]
        log_p = chain.log_prob(torch.as_tensor(labels)[None]).item()
        assert math.exp(log_p) == pytest.approx(math.exp(value - log_z), abs=1e-10)
        total += math.exp(log_p)
    assert total == pytest.approx(1)


def _state(labels, S):
    """The number of the state that has seen these labels."""
    code = 0
    for label in labels:
        code = code * S + int(label)
    return code + sum(S**k for k in range(1, len(labels)))


@pytest.mark.parametrize("name", ["order 1", "order 2", "order 3", "unlabelled", "half", "labelled, symbol"])
def test_topk_laws(name):
    hmm = model(name)
    for x, top, best in zip(WORDS, hmm.predict_topk(WORDS, 7), hmm.predict(WORDS), strict=True):
        probabilities = [p for _, p in top]
        assert probabilities == sorted(probabilities, reverse=True)
        assert sum(probabilities) <= 1 + 1e-9
        assert top[0][0] == best
        assert all(len(path) == len(x) for path, _ in top)
    everything = hmm.predict_topk([WORDS[2]], 10**4)[0]
    assert sum(p for _, p in everything) == pytest.approx(1)


@pytest.mark.parametrize("name", ["order 1", "order 2", "labelled, symbol", "half", "unlabelled", "labelled ids"])
def test_known_states_are_conditioned_on(name):
    hmm = model(name)
    score, states, S = oracle(name, hmm), list(hmm.states_), len(hmm.states_)
    x = sentences(hmm)[1][:4]
    known = [None, states[1], {states[0], states[2]}, None]
    inside = [set(states), {states[1]}, known[2], set(states)]
    paths, scores, log_z = enumerate_paths(
        score, x, S, lambda path: all(states[j] in allowed for j, allowed in zip(path, inside, strict=True))
    )
    want = node_marginals(paths, scores, log_z, S)
    (marginals,) = hmm.predict_marginals([x], known=[known])
    assert_allclose(as_array(hmm, marginals), want, atol=1e-9)
    (best,) = hmm.predict([x], known=[known])
    assert all(state in allowed for state, allowed in zip(best, inside, strict=True))
    assert score(x, [states.index(s) for s in best]) == pytest.approx(scores.max(), abs=1e-9)
    (hits,) = hmm.predict([x], decoding="posterior", known=[known])
    assert [states[j] for j in want.argmax(1)] == hits
    ((top, p),) = hmm.predict_topk([x], 1, known=[known])[0]
    assert top == best
    assert p == pytest.approx(np.exp(scores.max() - log_z), abs=1e-9)
    nothing = [[None] * len(x)]
    assert hmm.predict_marginals([x], known=nothing) == hmm.predict_marginals([x])
    if hmm.order == 1:
        allowed = torch.tensor([[[state in names for state in states] for names in inside]])
        conditioned = hmm.posterior(x).condition(allowed=allowed)
        assert_allclose(conditioned.marginals()[0].numpy(), want, atol=1e-9)


def test_evidence_on_states_that_cannot_be():
    hmm = model("order 1")
    with pytest.raises(KeyError, match="Q"):
        hmm.predict(WORDS[:1], known=[["Q", None, None]])
    with pytest.raises(ShapeError):
        hmm.predict(WORDS[:1], known=[["D"]])
    with pytest.raises(ShapeError):
        hmm.predict(WORDS[:1], known=[])
    with pytest.raises(ImpossibleError):
        hmm.predict(WORDS[:1], known=[[[], None, None]])


@pytest.mark.parametrize("name", ["order 1", "order 2", "unlabelled", "half, one state more, ids"])
def test_a_sentence_alone_and_among_others(name):
    hmm = model(name)
    xs = sentences(hmm)
    assert hmm.predict(xs) == [hmm.predict([x])[0] for x in xs]
    assert_allclose(hmm.log_evidence(xs), [hmm.log_evidence([x])[0] for x in xs], rtol=1e-12)
    assert hmm.predict([]) == []
    assert hmm.score([]) == 0


def test_a_wide_beam_is_exact_and_a_beam_never_adds():
    exact, wide = model("order 2"), HMM(order=2, beam="threshold=1000,min=1").fit(WORDS, TAGS)
    narrow = HMM(order=2, beam="threshold=0.5,min=1").fit(WORDS, TAGS)
    xs = [*WORDS, *NEW]
    assert wide.predict(xs) == exact.predict(xs)
    assert_allclose(wide.log_evidence(xs), exact.log_evidence(xs), rtol=1e-12)
    assert (narrow.log_evidence(xs) <= exact.log_evidence(xs) + 1e-12).all()
    assert (narrow.log_evidence(xs) < exact.log_evidence(xs) - 1e-6).any()


def test_em_within_a_beam():
    """With all states it is EM; with few it gives a lower bound, says how much it kept, and may stop when it falls."""
    exact = HMM(4, max_iter=6, tol=0, seed=1).fit(WORDS)
    same = HMM(4, max_iter=6, tol=0, seed=1, beam="kl=0").fit(WORDS)
    assert_allclose(same.transitions(), exact.transitions(), rtol=1e-9)
    assert same.report_.beam.kept == pytest.approx(1)
    assert_allclose([s.value for s in same.report_.history], [s.value for s in exact.report_.history], rtol=1e-11)
    narrow = HMM(4, max_iter=1, tol=0, seed=1, beam="size=2").fit(WORDS)
    assert narrow.report_.history[0].log_evidence < exact.report_.history[0].log_evidence
    assert narrow.report_.beam.mean_size == 2
    assert narrow.report_.beam.kept < 1
    half = HMM(max_iter=3, tol=0, beam="size=2").fit(WORDS, [[None, *y[1:]] for y in TAGS])
    assert half.predict(WORDS)[0][1:] == TAGS[0][1:]


def test_the_beam_can_be_changed_after_learning():
    hmm = HMM(order=2).fit(WORDS, TAGS)
    exact = hmm.log_evidence(WORDS)
    narrow = hmm.set_params(beam="size=1").log_evidence(WORDS)
    assert (narrow <= exact + 1e-9).all()
    assert (narrow < exact - 1e-6).any()
    assert hmm.posterior(WORDS[0]).kind == "lower"
    assert_allclose(hmm.set_params(beam=None).log_evidence(WORDS), exact)
    assert hmm.posterior(WORDS[0]).kind == "exact"


# ---- the whole distribution: it sums to 1, predicts, and is drawn from


def tiny(**options):
    return HMM(**options).fit(
        [["a"], ["b", "a"], ["a", "b"], ["b"], ["a"]], [["X"], ["Y", "X"], ["X", "X"], ["Y"], ["X"]]
    )


@pytest.mark.parametrize("options", [{}, {"emission_prior": 1.0, "transition_prior": 0.5}])
def test_all_sentences_sum_to_one(options):
    """What is missing up to length L is p(longer than L) = start A^L 1."""
    hmm = tiny(unknown="symbol", **options)
    log_start, log_transition, _, _, words = table_parameters(hmm)
    assert sorted(words) == ["<unknown>", "a", "b"]
    rest, total, missing = np.exp(log_start), 0.0, []
    assert rest.sum() == pytest.approx(1)
    for length in range(1, 7):
        total += np.exp(hmm.log_evidence([list(x) for x in product(["a", "b", "other"], repeat=length)])).sum()
        rest = rest @ np.exp(log_transition)
        assert total == pytest.approx(1 - rest.sum(), abs=1e-10)
        missing.append(1 - total)
    assert missing == sorted(missing, reverse=True)
    assert 0 <= missing[-1] < 0.03


@pytest.mark.parametrize("fit", [lambda: tiny(unknown="symbol", end=False), lambda: HMM(2, end=False).fit(IDS)])
def test_without_end_each_length_sums_to_one(fit):
    hmm = fit()
    symbols = ["a", "b", "other"] if "a" in hmm.known_words() else range(6)
    for length in (1, 2, 3):
        xs = [list(x) for x in product(symbols, repeat=length)]
        assert np.exp(hmm.log_evidence(xs)).sum() == pytest.approx(1, abs=1e-10)


@pytest.mark.parametrize("name", TABLES)
def test_next_words_by_enumeration(name):
    hmm = model(name)
    log_start, log_transition, log_end, log_emission, words = table_parameters(hmm)
    S, ids = len(log_start), {word: n for n, word in enumerate(words)}
    for x in sentences(hmm):
        if any(word not in ids for word in x):
            continue
        prefix = [ids[word] for word in x[:3]]
        following, end = hmm.predict_next(x[:3], n=10**6)
        paths = list(product(range(S), repeat=len(prefix)))
        seen = np.exp([joint(log_start, log_transition, None, log_emission, prefix, p) for p in paths])
        last = np.array([seen[[p[-1] == j for p in paths]].sum() for j in range(S)]) / seen.sum()
        want = last @ np.exp(log_transition) @ np.exp(log_emission)
        got = dict(following)
        assert_allclose([got[word] for word in words], want, atol=1e-10)
        assert end == pytest.approx(0 if log_end is None else last @ np.exp(log_end), abs=1e-10)
        assert sum(got.values()) + end == pytest.approx(1)
        values = [p for _, p in following]
        assert values == sorted(values, reverse=True)
        assert hmm.predict_next(x[:3], n=2)[0] == following[:2]


def chain_rule(hmm, x):
    """log p(words) as a product of predictions, and of the end."""
    total = 0.0
    for t in range(len(x)):
        following, _ = hmm.predict_next(x[:t], n=10**6)
        total += math.log(dict(following)[x[t]])
    return total + (math.log(hmm.predict_next(x)[1]) if hmm.end else 0.0)


@pytest.mark.parametrize("name", TABLES)
def test_chain_rule(name):
    hmm = model(name)
    listed = {word for word, _ in hmm.predict_next([], n=10**6)[0]}
    xs = [x for x in sentences(hmm) if listed.issuperset(x)]
    assert len(xs) >= 1
    assert_allclose([chain_rule(hmm, x) for x in xs], hmm.log_evidence(xs), rtol=1e-9)


@pytest.mark.parametrize("name", LEXICONS)
def test_next_words_of_taggers_sum_to_one(name):
    for x in WORDS:
        following, end = model(name).predict_next(x[:2], n=10**6)
        assert sum(p for _, p in following) + end == pytest.approx(1)
        assert len(following) == len(model(name).known_words())


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("order 1"),
        pytest.param("order 1, deleted"),
        "order 2",
        "order 2, deleted",
    ],
)
def test_first_words_of_taggers_sum_to_one(name):
    following, end = model(name).predict_next([], n=10**6)
    assert sum(p for _, p in following) + end == pytest.approx(1)


@pytest.mark.parametrize("name", ["order 1", "order 2"])
def test_chain_rule_of_taggers(name):
    """Nearly: first words have a lexicon of their own, and what is predicted is normalised over known words."""
    hmm = model(name)
    assert_allclose([chain_rule(hmm, x) for x in WORDS], hmm.log_evidence(WORDS), atol=0.1)


@pytest.mark.parametrize("name", ALL)
def test_transitions_and_top_words_are_distributions(name):
    hmm = model(name)
    transitions = hmm.transitions()
    assert transitions.shape == (len(hmm.states_), len(hmm.states_))
    assert (transitions >= 0).all()
    assert (transitions.sum(1) <= 1 + 1e-9).all()
    for state in hmm.states_:
        top = hmm.top_words(state, 10**6)
        values = [p for _, p in top]
        assert values == sorted(values, reverse=True)
        assert sum(values) == pytest.approx(1) or (sum(values) < 1 and name in OTHERS)
        assert hmm.top_words(state, 3) == top[:3]


def test_no_end_leaves_nothing_in_transitions():
    assert_allclose(model("labelled ids, no end").transitions().sum(1), 1)
    assert_allclose(model("unlabelled, symbol, no end").transitions().sum(1), 1)


@pytest.mark.parametrize("name", ALL)
def test_samples(name):
    hmm = model(name)
    drawn = hmm.sample(20, seed=3, max_length=7)
    assert drawn == hmm.sample(20, seed=3, max_length=7)
    assert drawn != hmm.sample(20, seed=4, max_length=7)
    assert len(drawn) == 20
    for words, states in drawn:
        assert len(words) == len(states) <= 7
        assert set(states) <= set(hmm.states_)
    if not hmm.end:
        assert all(len(words) == 7 for words, _ in drawn)


@pytest.mark.parametrize(
    "options",
    [
        {"unknown": "symbol"},
        {"unknown": "symbol", "transition_prior": 1.0},
        {},
        pytest.param({"order": 2}),
    ],
)
def test_sample_frequencies(options):
    """4,000 draws: a frequency is off by more than 0.035 once in 100,000 times."""
    hmm = tiny(**options)
    drawn = Counter(tuple(words) for words, _ in hmm.sample(4000, seed=1))
    for x in (["a"], ["b"], ["a", "b"], ["b", "a"]):
        assert drawn[tuple(x)] / 4000 == pytest.approx(math.exp(hmm.log_evidence([x])[0]), abs=0.035)
    assert drawn[()] == 0


# ---- learning


def test_labelled_counts_by_hand():
    """Symbols: counts plus pseudo-counts, normalised (the M-step of hmm_updates with all states known)."""
    hmm = HMM(unknown="symbol", start_prior=0.5, transition_prior=0.25, emission_prior=0.125).fit(WORDS, TAGS)
    states = list(hmm.states_)
    D, N = (states.index(s) for s in "DN")
    log_start, log_transition, _, _, words = table_parameters(hmm)
    start = np.zeros(3)
    start[[D, N]] = 3, 2
    assert_allclose(np.exp(log_start), (start + 0.5) / 6.5, rtol=1e-9)
    after_d = np.zeros(3)
    after_d[[N, D]] = 5, 1  # and one end
    assert_allclose(np.exp(log_transition[D]), (after_d + 0.25) / 8, rtol=1e-9)
    assert dict(hmm.top_words("V", 100))["sees"] == pytest.approx(2.125 / (4 + 0.125 * len(words)))
    assert "<unknown>" in words
    assert not hmm.induced_


def test_a_sentence_of_known_tokens_counts_as_labelled():
    """EM with everything known but one token that is never in doubt ends where counting does."""
    X, y = [["a", "b"], ["a", "b"], ["b"]], [["X", "Y"], ["X", "Y"], ["Y"]]
    counted = HMM(unknown="symbol", start_prior=0, transition_prior=0, emission_prior=0).fit(X, y)
    mixed = HMM(unknown="symbol", start_prior=0, transition_prior=0, emission_prior=0, tol=0, max_iter=40)
    mixed.fit(X, [["X", "Y"], ["X", None], ["Y"]])
    assert_allclose(mixed.log_evidence(X), counted.log_evidence(X), atol=1e-6)


def test_known_tokens_stay_known():
    """In training, as evidence: a word seen with one state only, always labelled, keeps it."""
    hmm = HMM(4).fit(WORDS * 4, [["D", None, None], ["D", None, None, "D", None], None, None, None] * 4)
    assert list(hmm.states_) == ["D", "#1", "#2", "#3"]
    assert not hmm.induced_
    assert hmm.predict(WORDS)[1][0] == "D"
    assert [len(path) for path in hmm.predict(WORDS)] == [len(x) for x in WORDS]


def test_names_of_states():
    assert list(HMM(3).fit(WORDS).states_) == ["#0", "#1", "#2"]
    assert HMM(3).fit(WORDS).induced_
    assert HMM(2).fit(WORDS, [None] * len(WORDS)).induced_
    more = HMM(5).fit(WORDS, HALF)
    assert len(more.states_) == 5
    assert {"D", "N", "V"} < set(more.states_)
    assert not more.induced_
    assert set(HMM().fit(WORDS, HALF).states_) == {"D", "N", "V"}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("method", ["em", "vb"])
@pytest.mark.parametrize("y", [None, HALF])
def test_the_objective_never_falls(method, y, dtype):
    train = bundled.load("train")[:60]
    X, y = [list(s.words) for s in train], None if y is None else [list(s.tags) for s in train[:20]] + [None] * 40
    hmm = HMM(None if y else 8, method=method, tol=0, max_iter=15, dtype=dtype).fit(X, y)
    values = np.array([step.value for step in hmm.report_.history])
    assert len(values) == hmm.report_.n_iter == 15
    assert [step.iteration for step in hmm.report_.history] == list(range(1, 16))
    slack = 1e-12 if dtype == "float64" else 1e-6
    assert (np.diff(values) >= -slack * abs(values[0])).all()
    assert values[-1] > values[0]


def test_history_holds_the_evidence():
    """Without priors the objective is the log evidence, and the model returned is no worse than the last value."""
    free = {"start_prior": 0, "transition_prior": 0, "emission_prior": 0}
    hmm = HMM(3, **free).fit(WORDS)
    assert all(step.value == pytest.approx(step.log_evidence) for step in hmm.report_.history)
    assert hmm.score(WORDS) >= hmm.report_.value - 1e-9
    one = HMM(3, **free, tol=0, max_iter=6).fit(WORDS)
    two = HMM(3, **free, tol=0, max_iter=7).fit(WORDS)
    assert two.report_.history[-1].value == pytest.approx(one.score(WORDS), rel=1e-10)


def test_tol_and_max_iter():
    assert HMM(3, tol=0, max_iter=9).fit(WORDS).report_.n_iter == 9
    loose, tight = HMM(3, tol=0.01).fit(WORDS).report_, HMM(3, tol=1e-8, max_iter=1000).fit(WORDS).report_
    assert loose.converged
    assert tight.converged
    assert loose.n_iter < tight.n_iter < 1000
    before, last = loose.history[-2].value, loose.history[-1].value
    assert last - before <= 0.01 * abs(last) + 1e-12
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        assert not HMM(3, tol=1e-12, max_iter=6).fit(WORDS).report_.converged


@pytest.mark.parametrize("seed", range(4))
def test_restarts_go_on_with_the_best(seed):
    report = HMM(3, n_restarts=6, probe=3, max_iter=8, tol=0, seed=seed).fit(WORDS).report_
    assert len(report.probes) == 6
    assert len(set(report.probes)) > 1
    assert max(report.probes) == pytest.approx(report.history[2].value)
    assert report.n_iter == 8


def test_seeds():
    first, again, other = (HMM(3, seed=seed).fit(WORDS) for seed in (0, 0, 5))
    assert (first.log_evidence(WORDS) == again.log_evidence(WORDS)).all()
    assert first.report_.history[0].value != other.report_.history[0].value


@pytest.mark.parametrize("y", [None, HALF])
@pytest.mark.parametrize("method", ["em", "vb", "stepwise"])
def test_a_stopped_fit_leaves_a_model(method, y):
    seen = []

    def stop(step):
        seen.append(step)
        return len(seen) == 2

    hmm = HMM(3, method=method, batch_size=2, probe=1).fit(WORDS, y, callback=stop)
    assert len(seen) == 2
    assert not hmm.report_.converged
    assert hmm.report_.history[-1] == seen[-1]
    assert np.isfinite(hmm.score(WORDS))
    assert hmm.predict(WORDS)


def test_a_stopped_stream_leaves_a_model():
    hmm = HMM(3).fit_stream([[x] for x in WORDS], n_passes=3, callback=lambda step: step.iteration == 7)
    assert hmm.report_.n_iter == 7
    assert not hmm.report_.converged
    assert hmm.predict(WORDS)


def test_an_interrupted_fit_does_not_spoil_the_model():
    hmm = HMM(3).fit(WORDS)
    before = hmm.log_evidence(WORDS)

    def interrupt(step):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hmm.fit(WORDS[:3], callback=interrupt)
    assert (hmm.log_evidence(WORDS) == before).all()


@pytest.mark.parametrize("n_restarts", [1, 2])
def test_callback_sees_each_iteration(n_restarts):
    seen = []
    hmm = HMM(3, n_restarts=n_restarts).fit(WORDS, callback=seen.append)
    assert [step.value for step in hmm.report_.history if step not in seen] == []
    assert seen[-1] == hmm.report_.history[-1]
    assert len(seen) == len(hmm.report_.history) + (n_restarts - 1) * hmm.probe


@pytest.mark.parametrize("name", ["unlabelled", "labelled, symbol"])
def test_inputs_are_not_changed(name):
    X, y = [list(x) for x in WORDS], [list(tags) for tags in TAGS]
    HMM(3).fit(X, HALF).predict(X, known=y)
    HMM().fit(X, y)
    assert (X, y) == (WORDS, TAGS)


def test_stepwise_and_stream_learn():
    train = [list(s.words) for s in bundled.load("train")[:400]]
    batches = [train[i : i + 50] for i in range(0, 400, 50)]
    stream = HMM(8, unknown="symbol").fit_stream(batches, n_passes=4)
    stepwise = HMM(8, unknown="symbol", method="stepwise", batch_size=50, max_iter=4).fit(train)
    start = HMM(8, unknown="symbol", tol=0, max_iter=1).fit(train)
    assert len(stream.report_.history) == len(stepwise.report_.history) == 32
    assert stream.induced_
    for hmm in (stream, stepwise):
        assert hmm.score(train) > start.score(train) + 0.02 * abs(start.score(train))
    assert stream.known_words() == {word for x in train for word in x}


def test_stream_lists_words_seen_often_enough():
    hmm = HMM(2, min_count=2).fit_stream([WORDS[:2], WORDS[2:]])
    assert hmm.known_words() == {"the", "a", "dog", "cat", "sees"}
    assert hmm.predict([["never", "dog"]])
    assert hmm.log_evidence([["never"]]) == hmm.log_evidence([["man"]])


def test_rare_words_share_the_symbol():
    hmm = model("unlabelled, rare words")
    assert hmm.log_evidence([["man"]]) == hmm.log_evidence([["barks"]]) == hmm.log_evidence([["never"]])
    assert hmm.known_words() == {"the", "a", "dog", "cat", "sees"}


def test_inputs_of_other_kinds():
    corpus = Corpus.from_sentences([list(zip(x, y, strict=True)) for x, y in zip(WORDS, TAGS, strict=True)])
    assert HMM().fit(corpus, TAGS).predict(corpus) == model("order 1").predict(WORDS)
    arrays = [np.array(x) for x in IDS]
    hmm = HMM(3, seed=1).fit(arrays)
    assert hmm.predict(arrays) == model("unlabelled ids").predict(IDS)
    assert HMM(3).fit(tuple(map(tuple, WORDS))).predict(WORDS) == model("unlabelled").predict(WORDS)


# ---- saving


@pytest.mark.parametrize("name", ALL)
def test_saved_and_loaded(name, tmp_path):
    hmm = model(name)
    hmm.save(tmp_path / "model")
    loaded = HMM.load(tmp_path / "model")
    xs = sentences(hmm)
    assert loaded.predict(xs) == hmm.predict(xs)
    assert loaded.predict(xs, decoding="posterior") == hmm.predict(xs, decoding="posterior")
    assert (loaded.log_evidence(xs) == hmm.log_evidence(xs)).all()
    assert loaded.predict_marginals(xs) == hmm.predict_marginals(xs)
    assert loaded.predict_next(xs[0]) == hmm.predict_next(xs[0])
    assert loaded.sample(5, seed=2, max_length=9) == hmm.sample(5, seed=2, max_length=9)
    assert list(loaded.states_) == list(hmm.states_)
    assert loaded.get_params() == hmm.get_params()
    assert loaded.induced_ == hmm.induced_
    assert loaded.known_words() == hmm.known_words()
    assert (loaded.transitions() == hmm.transitions()).all()


KINDS = ["order 1", "order 2", "labelled, symbol", "unlabelled", "unlabelled ids", "unlabelled, symbol, no end"]


@pytest.mark.parametrize("name", KINDS)
def test_damaged_files(name, tmp_path):
    path, broken = tmp_path / "model", tmp_path / "broken"
    model(name).save(path)
    plain, weights = path / "model.json", path / "weights.safetensors"

    def damage(file, content):
        shutil.rmtree(broken, ignore_errors=True)
        shutil.copytree(path, broken)
        (broken / file.name).write_bytes(content) if content is not None else (broken / file.name).unlink()
        with pytest.raises(DataError):
            HMM.load(broken)

    for file in (plain, weights):
        for content in (None, b"", file.read_bytes()[: len(file.read_bytes()) // 2]):
            damage(file, content)
    data = json.loads(plain.read_text())
    for key in ("kind", "format", "parameters", "states", "emissions"):
        damage(plain, json.dumps({k: v for k, v in data.items() if k != key}).encode())
    damage(plain, json.dumps({**data, "kind": "crf"}).encode())
    damage(plain, json.dumps({**data, "states": data["states"][:-1]}).encode())
    damage(plain, json.dumps({**data, "parameters": {**data["parameters"], "colour": 1}}).encode())
    with pytest.raises(DataError):
        HMM.load(tmp_path / "nowhere")


def damaged_arrays(name):
    """Ways to spoil an array that a loader should see."""
    spoiled = {"cut": lambda a: a[:-1].copy(), "missing": lambda a: None}
    if name.startswith(("chain", "emission")):
        spoiled["nan"] = lambda a: np.full_like(a, np.nan)
        spoiled["positive"] = lambda a: a + 1  # probabilities above 1
    if name.endswith("counts_tags"):
        spoiled["out of range"] = lambda a: a + 1000
    return spoiled


@pytest.mark.parametrize("name", KINDS)
def test_damaged_arrays(name, tmp_path):
    path = tmp_path / "model"
    model(name).save(path)
    arrays, passed = load_file(path / "weights.safetensors"), []
    for key, array in arrays.items():
        for how, spoil in damaged_arrays(key).items():
            changed = {**arrays, key: spoil(array)}
            save_file({k: v for k, v in changed.items() if v is not None}, path / "weights.safetensors")
            try:
                HMM.load(path)
            except DataError:
                continue
            except Exception as error:
                passed.append((key, how, type(error).__name__))
            else:
                passed.append((key, how, "loaded"))
    assert passed == []


def test_nothing_else_is_overwritten(tmp_path):
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(DataError):
        model("order 1").save(tmp_path)
    model("order 1").save(tmp_path / "model")
    model("order 2").save(tmp_path / "model")
    assert HMM.load(tmp_path / "model").order == 2


# ---- parameters and refusals


def test_parameters_as_scikit_learn_has_them():
    hmm = HMM(7, order=2, unknown="symbol", method="vb", seed=3, end=False, beam="size=7")
    copy = clone(hmm)
    assert copy is not hmm
    assert copy.get_params() == hmm.get_params()
    assert copy.set_params(seed=9, order=1) is copy
    assert (copy.seed, copy.order, hmm.seed) == (9, 1, 3)
    with pytest.raises(ValueRangeError, match="colour"):
        hmm.set_params(colour="red")
    fitted = clone(model("order 2"))
    with pytest.raises(NotFittedError):
        fitted.predict(WORDS)
    assert fitted.fit(WORDS, TAGS).predict(WORDS) == model("order 2").predict(WORDS)


@pytest.mark.parametrize(
    "ask",
    [
        lambda h: h.predict(WORDS),
        lambda h: h.predict_marginals(WORDS),
        lambda h: h.predict_topk(WORDS, 2),
        lambda h: h.log_evidence(WORDS),
        lambda h: h.score(WORDS),
        lambda h: h.posterior(WORDS[0]),
        lambda h: h.predict_next(["the"]),
        lambda h: h.sample(),
        lambda h: h.top_words("D"),
        lambda h: h.transitions(),
        lambda h: h.known_words(),
        lambda h: h.save("nowhere"),
    ],
)
def test_nothing_is_known_before_fit(ask):
    with pytest.raises(NotFittedError):
        ask(HMM())


@pytest.mark.parametrize(
    ("X", "y", "error"),
    [
        ([], None, DataError),
        ([], [], DataError),
        ([["a"], []], None, ShapeError),
        ([["a"], []], [["N"], []], ShapeError),
        (["the dog"], None, ShapeError),
        ("the dog", None, ShapeError),
        (WORDS, TAGS[:2], ShapeError),
        (WORDS[:1], [["D", "N"]], ShapeError),
        ([[0, -1]], None, ValueRangeError),
        ([[0, "a"]], None, ValueRangeError),
        ([[0.5, 1.5]], None, ValueRangeError),
        ([["a", None]], None, ValueRangeError),
    ],
)
def test_sentences_that_are_refused(X, y, error):
    with pytest.raises(error):
        HMM(3).fit(X, y)
    if y is None and error is ShapeError:
        with pytest.raises(error):
            model("order 1").predict(X)


@pytest.mark.parametrize(
    ("options", "labelled"),
    [
        pytest.param({"interpolation": "foo"}, False),
        pytest.param({"beam": "kl=-1"}, True),
        pytest.param({"beam": "kl=nan", "order": 2}, True),
        pytest.param({"beam": 6.9, "order": 2}, True),
        pytest.param({"order": 4}, True),
        pytest.param({"seed": -1}, False),
        pytest.param({"n_states": 2.5}, False),
        pytest.param({"tol": -1}, True),
    ],
)
def test_options_that_should_be_refused(options, labelled):
    with pytest.raises(ValueRangeError, match=next(iter(options))):
        HMM(**({} if labelled else {"n_states": 3}) | options).fit(WORDS, TAGS if labelled else None)


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda: HMM(3, order=2).fit_stream([WORDS])),
        pytest.param(lambda: HMM(3).fit_stream([["the dog"]])),
        pytest.param(lambda: HMM().fit([["a", "b"]], ["NV"])),
        pytest.param(lambda: model("order 1").posterior("dog")),
        pytest.param(lambda: model("order 1").predict_next("dog")),
        pytest.param(lambda: model("order 1").predict_next(["the"], n=-1)),
        pytest.param(lambda: model("order 1").top_words("D", n=-1)),
        pytest.param(lambda: model("order 1").sample(-1)),
        pytest.param(lambda: HMM(2).fit(WORDS, HALF)),
        pytest.param(lambda: HMM(2).fit([0, 1])),
        pytest.param(lambda: model("order 1").predict(WORDS[:1], known=[None])),
        pytest.param(lambda: model("order 1").predict([[0, 1]])),
    ],
)
def test_calls_that_should_be_refused(ask):
    with pytest.raises(TrellisworkError):
        ask()


def test_names_of_states_may_look_like_ours():
    assert len(HMM(3).fit(WORDS, [["#1", "#2", "#1"], *[None] * 4]).states_) == 3


@pytest.mark.parametrize("order", [1, 2])
def test_taggers_without_end(order):
    hmm = HMM(order=order, end=False).fit(WORDS, TAGS)
    assert hmm.predict_next(["the"])[1] == 0
    assert_allclose(hmm.transitions().sum(1), 1)


def test_a_stream_knows_what_to_do_with_new_words():
    assert HMM(3).fit_stream([WORDS]).predict([["never"]])


def test_endings_speak_for_words_that_em_has_not_seen():
    hmm = model("unlabelled, rare words by endings")
    for other in (hmm, model("unlabelled"), model("half")):
        assert np.isfinite(other.log_evidence(NEW)).all()
        assert_allclose([other.posterior(x).log_partition().item() for x in NEW], other.log_evidence(NEW), rtol=1e-9)
    X, y = corpus("train", 300)
    labelled = [tags if n % 10 else [None, *tags[1:]] for n, tags in enumerate(y)]
    endings, symbol = (accuracies(HMM(unknown=u).fit(X, labelled))[1] for u in ("suffix", "symbol"))
    assert endings > symbol + 0.1


def test_states_that_are_wanted():
    with pytest.raises(ValueRangeError, match="n_states"):
        HMM().fit(WORDS)
    with pytest.raises(ValueRangeError, match="n_states"):
        HMM().fit(WORDS, [None] * len(WORDS))
    with pytest.raises(ValueRangeError, match="n_states"):
        HMM().fit_stream([WORDS])
    for y in (None, HALF):
        with pytest.raises(ValueRangeError, match="order"):
            HMM(3, order=2).fit(WORDS, y)


@pytest.mark.parametrize("end", [True, False])
@pytest.mark.parametrize("X", [WORDS, IDS])
def test_order_two_with_a_table_of_symbols(X, end):
    hmm = HMM(order=2, unknown="symbol", end=end).fit(X, TAGS)
    assert hmm.predict(X) == TAGS
    for x in X:
        assert hmm.log_evidence([x])[0] == pytest.approx(float(hmm.posterior(x).log_partition()[0]))


def test_symbols_that_are_not_known():
    for x in ([99], [-1], ["the"], [0, 6]):
        with pytest.raises(DataError, match="training"):
            model("unlabelled ids").predict([x])
    assert model("labelled, symbol").predict([["never"]])
    assert model("order 2").predict([["never"]])


@pytest.mark.parametrize(
    "options",
    [
        {"n_states": 0},
        {"order": 3},
        {"order": 0},
        {"unknown": "foo"},
        {"method": "foo"},
        {"start_prior": -1},
        {"transition_prior": math.nan},
        {"emission_prior": math.inf},
        {"min_count": 0},
        {"max_iter": 0},
        {"tol": -1},
        {"n_restarts": 0},
        {"probe": 0},
        {"batch_size": 0},
        {"dtype": "float16"},
        {"method": "vb", "emission_prior": 0},
    ],
)
def test_options_that_are_refused(options):
    with pytest.raises(ValueRangeError, match=next(reversed(options)).split("_")[0]):
        HMM(**{"n_states": 3, **options}).fit(WORDS)


def test_questions_that_are_refused():
    hmm = model("order 1")
    for ask in (
        lambda: hmm.predict(WORDS, decoding="foo"),
        lambda: hmm.predict_topk(WORDS, 0),
        lambda: hmm.posterior([]),
        lambda: HMM(3).fit_stream([]),
        lambda: HMM(3).fit_stream([[]]),
        lambda: HMM(3).fit_stream([WORDS], n_passes=0),
        lambda: HMM(3).fit_stream(x for x in [WORDS]),
        lambda: HMM(3).fit_stream([[["a"], []]]),
    ):
        with pytest.raises((ValueRangeError, ShapeError)):
            ask()
    with pytest.raises(KeyError, match="Q"):
        hmm.top_words("Q")


# ---- the bundled corpus


@cache
def corpus(part, n=None):
    data = bundled.load(part)[:n]
    return [list(s.words) for s in data], [list(s.tags) for s in data]


def accuracies(hmm):
    """Of all tokens, and of those whose word training has not seen."""
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


def test_tagging_accuracy():
    X, y = corpus("train")
    total, unknown = accuracies(HMM(order=2).fit(X, y))
    first, first_unknown = accuracies(HMM().fit(X, y))
    symbol, symbol_unknown = accuracies(HMM(unknown="symbol").fit(X, y))
    assert total > 0.98
    assert unknown > 0.9
    assert first > 0.975
    assert total > first > symbol > 0.93
    assert first_unknown > symbol_unknown + 0.3
    beamed = HMM(order=2, beam="threshold=6.9,min=1").fit(X, y)
    assert accuracies(beamed)[0] == pytest.approx(total, abs=0.002)


def test_unlabelled_sentences_do_little_harm():
    X, y = corpus("train", 350)
    labelled = accuracies(HMM().fit(X[:50], y[:50]))[0]
    mixed = accuracies(HMM().fit(X, y[:50] + [None] * 300))[0]
    assert mixed >= labelled - 0.02


def test_half_labelled_sentences_tag_well():
    """Two tokens of three have their tag."""
    X, y = corpus("train", 300)
    holes = [[None if (i + j) % 3 == 0 else tag for j, tag in enumerate(tags)] for i, tags in enumerate(y)]
    assert accuracies(HMM().fit(X, holes))[0] > 0.8


@pytest.mark.filterwarnings("ignore::trelliswork.errors.ConvergenceWarning")
@pytest.mark.parametrize("options", [{}, {"method": "vb"}, {"method": "stepwise", "max_iter": 5}, {"n_restarts": 3}])
def test_induced_tags(options):
    X, y = corpus("train", 1000)
    hmm = HMM(30, **{"max_iter": 30, **options}).fit(X)
    counts = Counter(tag for tags in y for tag in tags)
    most_frequent = max(counts.values()) / sum(counts.values())
    report = evaluate_induction(y, hmm.predict(X))
    assert report.many_to_one > 2 * most_frequent
    assert report.v_measure > 0.2
