"""HMM language models: probabilities add up, queries agree with each other, files come back."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose

import trelliswork
from tests.estimators import made
from tests.models.directories import weights_of
from trelliswork.data import Corpus
from trelliswork.errors import DataError, ImpossibleError, NotFittedError, ShapeError, ValueRangeError
from trelliswork.models import HMMLanguageModel

TEXT = [["the", "dog", "runs"], ["the", "cat", "sleeps"], ["a", "dog", "sleeps"], ["cats", "run"]] * 6
QUICK = {"hidden": 8, "max_iter": 30, "batch_tokens": 40, "learning_rate": 0.02, "state_dropout": 0.0}
KINDS = {
    "softmax": {},
    "kernel": {"rank": 3},
    "band": {"rank": 3, "band": 1},
    "blocks": {"n_blocks": 2},
    "em": {"em_iterations": 3, "max_iter": 3},
    "clustered tokens": {"initialization": "clusters", "max_iter": 5},
    "kernel, alike at first": {"rank": 3, "initialization": "words"},
}


@pytest.fixture(scope="module", params=KINDS)
def lm(request):
    return made(HMMLanguageModel, 5, **QUICK | KINDS[request.param]).fit(TEXT)


@pytest.fixture(scope="module")
def plain():
    return made(HMMLanguageModel, 6, **QUICK).fit(TEXT)


def test_states_are_values_and_their_scores_sum_to_those_of_sentences(lm, monkeypatch):
    tables = lm.tables()
    double = type(tables[1])(*(part.double() for part in tables[1].tensors()))
    monkeypatch.setattr(lm, "_tables", (tables[0].double(), double, tables[2].double()))
    words = ["the", "dog", "run", "a", "new", "cats"]
    states, total = [lm.start()], 0.0
    for word in [*words, "</s>"]:
        score, state = lm.extend(states[-1], word)
        states.append(state)
        total += score
    assert_allclose(total, lm.log_prob([words])[0], rtol=1e-12)
    assert_allclose(states[-1], lm.start())
    every = [*lm.vocabulary_, "</s>"]
    for t, state in enumerate(states[:-1]):
        scores, after = lm.extend_many([state] * len(every), every)
        expected = dict(lm.predict_next(words[:t], len(every), unknown=True))
        p = np.exp(scores)
        assert_allclose(p.sum(), 1, rtol=1e-6)  # rows of float32
        assert_allclose(p / p.sum(), [expected[word] for word in every], rtol=1e-12)
        for word, new in zip(every, after, strict=True):
            assert_allclose(new, lm.extend(state, word)[1], rtol=1e-12)


def test_what_extends_no_state_is_an_error(plain):
    start = plain.start()
    for word in ("<s>", None, ["the"]):
        with pytest.raises(DataError):
            plain.extend(start, word)
    with pytest.raises(ShapeError, match="one for each state"):
        plain.extend_many([start, start], ["the"])
    for states in ([start[:-1]], [start, start[:-1]], [3.0]):
        with pytest.raises(ShapeError, match="S=6"):
            plain.extend_many(states, ["the"] * len(states))
    nowhere, after = plain.extend(np.zeros_like(start), "the")
    assert nowhere == -np.inf
    assert not np.isnan(after).any()


def test_probabilities_of_all_sentences_of_a_length_add_up(lm):
    words = list(lm.vocabulary_)
    for length in (1, 2):
        every = np.exp(lm.log_prob([list(s) for s in product(words, repeat=length)])).sum()
        assert_allclose(every, np.exp(lm.log_prob([[None] * length]))[0], rtol=1e-4)


def test_it_learns(plain):
    assert plain.perplexity(TEXT) < 3
    n_tokens = sum(len(s) + 1 for s in TEXT)
    assert_allclose(plain.score(TEXT), plain.log_prob(TEXT).sum() / n_tokens)
    assert_allclose(plain.perplexity(TEXT), np.exp(-plain.score(TEXT)))
    assert {word for word, _ in plain.predict_next(["the"], 2)} == {"dog", "cat"}


def test_evidence_is_a_sum_over_what_fits(lm):
    one = lm.log_prob([["the", {"dog", "cat"}, "runs"]])[0]
    parts = lm.log_prob([["the", "dog", "runs"], ["the", "cat", "runs"]])
    assert_allclose(one, np.logaddexp(*parts), rtol=1e-5)
    assert lm.log_prob([["the", None]])[0] > lm.log_prob([["the", "dog"]])[0]


def test_conditionals(lm):
    given = ["the", None, "sleeps"]
    total = sum(np.exp(lm.log_conditional(["the", w, "sleeps"], given)) for w in lm.vocabulary_)
    assert_allclose(total, 1, rtol=1e-4)
    assert lm.log_conditional(["a", "dog", "sleeps"], given) == -np.inf  # they exclude each other
    filled = dict(lm.fill(["the", None, "sleeps"], 20, unknown=True)[0])
    assert_allclose(filled["cat"], np.exp(lm.log_conditional(["the", "cat", "sleeps"], given)), rtol=1e-3)
    assert_allclose(sum(filled.values()), 1, rtol=1e-4)


def test_next_words(lm):
    found = lm.predict_next(["the", "dog"], 100, unknown=True)
    end = dict(found)["</s>"]
    assert_allclose(sum(p for _, p in found), 1, rtol=1e-4)
    assert [p for _, p in found] == sorted((p for _, p in found), reverse=True)
    ratio = lm.log_prob([["the", "dog"]])[0]
    first, second = lm.predict_next([], 100, unknown=True), lm.predict_next(["the"], 100, unknown=True)
    assert_allclose(np.log(dict(first)["the"] * dict(second)["dog"] * end), ratio, rtol=1e-4)


def test_states(lm):
    posterior = lm.predict_marginals([["the", "dog"], ["cats"]])
    assert [[len(word) for word in sentence] for sentence in posterior] == [[5, 5], [5]]
    assert_allclose([sum(word.values()) for sentence in posterior for word in sentence], 1, rtol=1e-4)
    assert [len(s) for s in lm.predict([["the", "dog"], ["cats"]])] == [2, 1]
    drawn = lm.sample_states(["the", "dog"], 5000, seed=1)
    share, p = np.mean([s[0] == "#0" for s in drawn]), posterior[0][0]["#0"]
    assert abs(share - p) < 4 * np.sqrt(p * (1 - p) / 5000)  # standard errors, at most 0.007 each


def test_samples_follow_the_model(plain):
    found = plain.sample_with_states(1500, seed=3)
    assert all(len(words) == len(states) for words, states in found)
    assert [words for words, _ in found] == plain.sample(1500, seed=3)
    share, p = np.mean([words[:1] == ["the"] for words, _ in found]), dict(plain.predict_next([], 20))["the"]
    assert abs(share - p) < 4 * np.sqrt(p * (1 - p) / 1500)  # standard errors, at most 0.013 each
    assert max(len(words) for words in plain.sample(20, max_length=2)) <= 2


def test_what_it_learned(lm):
    for state in range(5):
        words = lm.top_words(f"#{state}", 100)
        assert_allclose(sum(p for _, p in words), 1, rtol=1e-4)
    matrix = lm.transition_matrix()
    assert_allclose(matrix.sum(axis=1), 1, rtol=1e-4)
    spectrum = np.linalg.svd(matrix.astype(float), compute_uv=False)
    found = lm.transition_spectrum()
    assert_allclose(found, spectrum[: len(found)], atol=1e-5)
    frequency = lm.state_frequencies()
    assert_allclose(frequency.sum(), 1, rtol=1e-5)
    with pytest.raises(ValueRangeError, match="states #0 to #4"):
        lm.top_words("#5")


def test_rank_of_a_kernel():
    lm = made(HMMLanguageModel, 9, rank=2, **QUICK | {"max_iter": 1}).fit(TEXT)
    assert len(lm.transition_spectrum()) == 2
    assert np.linalg.matrix_rank(lm.transition_matrix(), tol=1e-5) <= 2


def test_saved_and_loaded(lm, tmp_path):
    lm.save(tmp_path / "lm")
    again = trelliswork.load(tmp_path / "lm")
    assert isinstance(again, HMMLanguageModel)
    assert (again.log_prob(TEXT) == lm.log_prob(TEXT)).all()
    assert again.get_params() == lm.get_params()
    assert again.report_.to_dict() == lm.report_.to_dict()
    assert again.sample(3, seed=1) == lm.sample(3, seed=1)


def test_a_damaged_file_is_refused(plain, tmp_path):
    from safetensors.numpy import load_file, save_file

    plain.save(tmp_path / "lm")
    arrays = load_file(weights_of(tmp_path / "lm"))
    arrays["network.state_embedding"] = arrays["network.state_embedding"][:2]
    save_file(arrays, weights_of(tmp_path / "lm"))
    with pytest.raises(DataError, match="do not match"):
        HMMLanguageModel.load(tmp_path / "lm", verify=False)


def test_files_and_corpora_are_texts_too(tmp_path, plain):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(" ".join(s) for s in TEXT))
    lm = made(HMMLanguageModel, 6, **QUICK).fit(path)
    assert_allclose(lm.log_prob(path), plain.log_prob(TEXT))
    assert_allclose(lm.log_prob(Corpus.from_sentences(TEXT)), plain.log_prob(TEXT))


def test_unknown_words():
    lm = made(HMMLanguageModel, 4, min_count=7, **QUICK).fit(TEXT)
    assert "runs" not in lm.known_words()
    assert "<unk>" in lm.known_words()
    assert (lm.log_prob([["the", "zebra"]]) == lm.log_prob([["the", "runs"]])).all()


def test_development_text_and_checkpoints(tmp_path):
    options = QUICK | {"max_iter": 4, "evaluations": 2}
    whole = made(HMMLanguageModel, 4, **options).fit(TEXT, dev=TEXT[:4])
    assert whole.report_.dev == max(s.dev for s in whole.report_.history)
    assert_allclose(whole.score(TEXT[:4]), whole.report_.dev, rtol=1e-5)
    steps = []
    stopped = made(HMMLanguageModel, 4, **options).fit(
        TEXT, dev=TEXT[:4], checkpoint=tmp_path / "run", callback=lambda s: steps.append(s) or len(steps) == 3
    )
    assert stopped.report_.reason.startswith("stopped by the caller")
    assert np.isfinite(stopped.perplexity(TEXT))
    resumed = made(HMMLanguageModel, 4, **options).fit(TEXT, dev=TEXT[:4], checkpoint=tmp_path / "run")
    assert (resumed.log_prob(TEXT) == whole.log_prob(TEXT)).all()
    resumed.save(tmp_path / "model")
    made(HMMLanguageModel, 4, **options).fit(TEXT, checkpoint=tmp_path / "run", callback=lambda s: True)
    with pytest.raises(DataError, match="other data or settings"):
        made(HMMLanguageModel, 5, **options).fit(TEXT, checkpoint=tmp_path / "run")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_states": 0}, "n_states"),
        ({"rank": 0}, "rank"),
        ({"feature_map": "cos"}, "feature_map"),
        ({"projection": "none"}, "projection"),
        ({"band": 2}, "band"),
        ({"n_blocks": 9}, "n_blocks"),
        ({"em_iterations": 2, "n_blocks": 2}, "em_iterations"),
        ({"initialization": "anywhere"}, "initialization"),
        ({"initialization": "clusters", "n_blocks": 2}, "initialization='words'"),
        (
            {"initialization": "clusters", "rank": 256, "projection": "redrawn"},
            "initialization='words'",
        ),
        ({"keep_every": 0}, "keep_every"),
        ({"schedule": "steps"}, "schedule"),
    ],
)
def test_parameters_are_checked_and_a_failed_fit_forgets_nothing(wrong, message, plain):
    before = plain.log_prob(TEXT)
    changed = made(HMMLanguageModel, **{"n_states": 5, **QUICK, **wrong})
    with pytest.raises(ValueRangeError, match=message):
        changed.fit(TEXT)
    kept = plain.get_params()
    plain.set_params(n_states=0)
    with pytest.raises(ValueRangeError, match="n_states"):
        plain.fit(TEXT)
    plain.set_params(**kept)
    assert (plain.log_prob(TEXT) == before).all()


def test_wrong_questions(plain):
    with pytest.raises(NotFittedError):
        HMMLanguageModel().perplexity(TEXT)
    with pytest.raises(DataError, match="no sentences"):
        HMMLanguageModel().fit([])
    with pytest.raises(DataError, match="list of words"):
        HMMLanguageModel().fit(["the dog"])
    with pytest.raises(DataError, match="no sentences"):
        plain.perplexity([])
    with pytest.raises(ShapeError, match="same number of tokens"):
        plain.log_conditional(["a"], ["a", "b"])
    with pytest.raises(ShapeError, match="no blank"):
        plain.fill(["a"], 1)
    with pytest.raises(ValueRangeError, match="empty collection"):
        plain.log_prob([[set()]])
    assert len(plain.log_prob([])) == 0
    assert plain.predict([]) == []


def test_impossible_conditions():
    lm = made(HMMLanguageModel, 8, **QUICK | {"n_blocks": 3, "max_iter": 1}).fit(TEXT)
    assert np.isfinite(lm.log_conditional(["the", "dog"], ["the", None]))
    lm._tables = (lm.tables()[0], lm.tables()[1], lm.tables()[2].clone())
    lm._tables[2][lm._words.id("dog")] = -np.inf
    with pytest.raises(ImpossibleError, match="probability zero"):
        lm.log_conditional(["the", "dog"], ["the", "dog"])
