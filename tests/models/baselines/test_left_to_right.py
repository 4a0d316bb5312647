"""Queries that both left-to-right models share: against enumeration, saved and loaded, without text."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose

from trelliswork.errors import DataError, NotFittedError, ShapeError, ValueRangeError
from trelliswork.models import KneserNey, LogBilinear, load

TEXT = [["a", "b", "c"], ["b", "c"], ["a", "c", "c", "b"], ["c"], ["b", "b", "a", "c", "a", "b"]]
MODELS = {
    "unigrams": lambda: KneserNey(1, unknown="error").fit(TEXT),
    "bigrams": lambda: KneserNey(2, unknown="error").fit(TEXT),
    "trigrams": lambda: KneserNey(3, unknown="error").fit(TEXT),
    "log-bilinear": lambda: LogBilinear(2, rank=3, max_iter=4, batch_size=4, unknown="error").fit(TEXT),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return MODELS[request.param]()


def test_next_words_and_log_evidence_agree(model):
    sentence = ["c", "a", "b"]
    steps = [model.next_distribution(sentence[:i]) for i in range(4)]
    ids = [*model._words.ids(sentence), 0]
    log_p = sum(np.log(p[i]) for p, i in zip(steps, ids, strict=True))
    assert_allclose(model.log_prob([sentence, []]), [log_p, np.log(steps[0][0])], rtol=1e-5)
    ranked = model.predict_next(["a"], 10)
    assert sorted(word for word, _ in ranked) == ["</s>", "a", "b", "c"]
    assert_allclose([p for _, p in ranked], np.sort(model.next_distribution(["a"]))[::-1])


def test_states_are_values_and_their_scores_sum_to_those_of_sentences(model):
    words = [*"abcacbbca", "</s>"]
    states, total = [model.start()], 0.0
    for word in words:
        score, state = model.extend(states[-1], word)
        states.append(state)
        total += score
    assert_allclose(total, model.log_prob([words[:-1]])[0], rtol=1e-12 if model.family == "kneser-ney" else 1e-5)
    assert states[-1] == model.start()
    assert model.extend(states[4], "b")[0] == model.extend(states[4], "b")[0]  # an old one is still there
    hypotheses = [state for state in states for _ in "abc"]
    scores, after = model.extend_many(hypotheses, [*"abc"] * len(states))
    one_by_one = [model.extend(state, word) for state, word in zip(hypotheses, [*"abc"] * len(states), strict=True)]
    assert_allclose(scores, [score for score, _ in one_by_one], rtol=1e-12)
    assert after == [state for _, state in one_by_one]
    for t, state in enumerate(states[:6]):
        p = model.next_distribution(words[:t])
        assert_allclose(np.exp(model.extend_many([state] * 4, ["</s>", *"abc"])[0]), p[[0, *model._words.ids("abc")]])
    assert len(set(states)) <= 4**2 + 2  # beams may merge hypotheses
    assert model.extend_many([], [])[1] == []


def test_what_extends_no_state_is_an_error(model):
    start = model.start()
    for word in ("zebra", "<s>", None, ["a"]):
        with pytest.raises(DataError):
            model.extend(start, word)
    with pytest.raises(ShapeError, match="one for each state"):
        model.extend_many([start], ["a", "b"])
    with pytest.raises(ShapeError, match="list of n=1"):
        model.extend_many([start], "a")
    for state in ((-1,), (4,), (0.5,), ("a",)):
        with pytest.raises(ValueRangeError, match="results of start"):
            model.extend(state, "a")
    with pytest.raises(NotFittedError):
        KneserNey(2).extend((0,), "a")


@pytest.mark.parametrize("sentence", ["___", "a ___", "___ c", "a b ___ c a", "b b a c a b c ___ c b a a b c"])
def test_one_blank_is_filled_as_by_enumeration(model, sentence):
    filled = [[w if v == "___" else v for v in sentence.split()] for w in "abc"]
    p = np.exp(model.log_prob(filled))
    (ranked,) = model.fill(sentence)
    assert [word for word, _ in ranked] == ["abc"[i] for i in np.argsort(-p, kind="stable")]
    assert_allclose([dict(ranked)[w] for w in "abc"], p / p.sum(), rtol=1e-5)
    assert model.fill(sentence, 2) == [ranked[:2]]


def test_an_unknown_word_beside_a_blank_is_named(model):
    with pytest.raises(DataError, match="sentence 0, token 1: 'zebra' is not in the vocabulary"):
        model.fill("___ zebra")


def test_several_blanks_are_given_the_best_words_of_the_others(model):
    ranked = model.fill(["a", None, "c", None, "b"])
    best = [words[0][0] for words in ranked]
    assert model.fill(["a", None, "c", best[1], "b"]) == ranked[:1]
    assert model.fill(["a", best[0], "c", None, "b"]) == ranked[1:]


def test_samples_have_the_frequencies_of_enumeration(model):
    n = 4000
    samples = model.sample(n, seed=1)
    assert samples[:20] == model.sample(20, seed=1)
    assert samples[:20] != model.sample(20, seed=2)
    short = [list(words) for length in range(3) for words in product("abc", repeat=length)]
    p = np.exp(model.log_prob(short))
    counts = np.array([samples.count(sentence) for sentence in short])
    assert_allclose(counts / n, p, atol=4 * np.sqrt(p.max() / n))
    assert_allclose(counts.sum() / n, p.sum(), atol=4 / np.sqrt(4 * n))
    assert max(map(len, model.sample(200, seed=0, max_length=2))) == 2


@pytest.mark.parametrize(
    "model", [KneserNey(3), LogBilinear(1, rank=3, max_iter=5)], ids=["kneser-ney", "log-bilinear"]
)
def test_unknown_words_have_a_probability_by_default(model):
    text = [["a", word] for word in "bcdefghi"] * 1 + [["a", "a"]]
    model.fit(text)
    assert model.vocabulary_ == ("<s>", "a", "b", "d", "f", "h", "<unk>")  # half of the words seen once
    p = model.next_distribution(["a"])
    assert_allclose(p.sum(), 1, rtol=1e-6)
    assert p[model._words.id("zebra")] > 2 * p[model._words.id("b")]
    assert np.isfinite(model.perplexity([["a", "zebra"], ["a", "c"]]))
    assert_allclose(model.score([["a", "zebra"]]), model.score([["a", "<unk>"]]))
    words = [word for sentence in model.sample(300, seed=1) for word in sentence]
    assert 0 < words.count("<unk>") < len(words) / 2


@pytest.mark.parametrize("model", [KneserNey(3, min_count=2), LogBilinear(2, rank=4, min_count=2, max_iter=2)])
def test_saved_models_are_the_same(model, tmp_path):
    text = [["a", "b", "a"], ["b", "a", "x"], ["y"]]
    with pytest.raises(NotFittedError):
        model.log_prob(text)
    model.fit(text)
    (tmp_path / "text").write_text("\n".join(" ".join(s) for s in text))
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert type(again) is type(model)
    assert again.get_params() == model.get_params()
    assert again.report_.reason == model.report_.reason
    assert np.array_equal(again.log_prob([["a", "new"]]), model.log_prob([["a", "new"]]))
    assert np.array_equal(again.log_prob(tmp_path / "text"), model.log_prob(tmp_path / "text"))
    assert_allclose(again.log_prob(tmp_path / "text"), model.log_prob(text), rtol=1e-14)
    assert again.sample(3, seed=1) == model.sample(3, seed=1)


def test_a_text_without_sentences_has_no_score(tmp_path):
    (tmp_path / "text").write_text("a b\n")
    for model in (KneserNey(2), LogBilinear(1, rank=2, max_iter=1)):
        with pytest.raises(NotFittedError):
            model.perplexity([["a"]])
        model.fit(tmp_path.glob("*"))
        assert model.log_prob([]).shape == (0,)
        assert_allclose(model.score(tmp_path.glob("*")), model.score([["a", "b"]]))
        with pytest.raises(DataError, match="no sentences"):
            model.perplexity([])
        with pytest.raises(DataError, match="at least one sentence"):
            model.fit([])
