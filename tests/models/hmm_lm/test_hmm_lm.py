"""HMM language models: probabilities add up, queries agree with each other, files come back."""

import copy
from itertools import pairwise, product

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
    "softmax": {"n_blocks": 1},
    "kernel": {"rank": 3},
    "blocks": {"n_blocks": 3},
    "kernel in blocks": {"n_blocks": 2, "rank": 3},
}


@pytest.fixture(scope="module", params=KINDS)
def lm(request):
    return made(HMMLanguageModel, 6, **QUICK | KINDS[request.param]).fit(TEXT)


def doubled(lm, monkeypatch):
    """Compute with the parameters in float64."""
    monkeypatch.setattr(lm, "_network", copy.deepcopy(lm._network).double())
    monkeypatch.setattr(lm, "_tables", None)
    return lm


def enumerated(lm):
    """Return p(start) (S,), p(next | state) (S, S), p(word | state) (V, S) and p(end | state) by definition.

    With blocks, the states of the end are left out: p(end | state) is what the rows of transitions lack.
    """
    tables, S = lm._computed(), lm._n_states
    k = tables.log_start.shape[1]
    start = tables.log_start.exp().numpy().reshape(-1)
    emission = np.zeros((len(tables.blocks), len(start)))
    for w, c in enumerate(tables.blocks):
        emission[w, c * k : (c + 1) * k] = tables.log_emission[w].exp().numpy()
    matrix = lm.transitions().astype(float)
    if len(start) == S:  # the end is a word
        end, first_end = matrix @ emission[-1], start @ emission[-1]
    else:
        end, first_end = 1 - matrix.sum(axis=1), start[S:].sum()
    return start[:S], matrix, emission[:-1, :S], end, first_end


def by_enumeration(lm, tokens):
    """Return p(tokens, end), p(states | tokens) (T, S) and the best states."""
    start, matrix, emission, end, first_end = enumerated(lm)
    ids = [range(len(emission)) if t is None else [lm._words.id(w) for w in ([t] if isinstance(t, str) else t)]
           for t in tokens]  # fmt: skip
    rows = [emission[list(words)].sum(axis=0) for words in ids]
    if not rows:
        return first_end, np.zeros((0, len(start))), []
    total, marginals, best = 0.0, np.zeros((len(rows), len(start))), (0.0, ())
    for path in product(range(len(start)), repeat=len(rows)):
        p = start[path[0]] * end[path[-1]] * np.prod([row[z] for row, z in zip(rows, path, strict=True)])
        p *= np.prod([matrix[a, b] for a, b in pairwise(path)])
        total += p
        marginals[np.arange(len(rows)), path] += p
        best = max(best, (p, path))
    return total, marginals / total, list(best[1])


@pytest.mark.parametrize(
    "tokens", [[], ["the"], ["a", "dog", "new"], ["the", None, {"runs", "dog", "cats"}], [None] * 3]
)
def test_all_queries_are_those_of_enumeration(lm, tokens, monkeypatch):
    doubled(lm, monkeypatch)
    total, marginals, best = by_enumeration(lm, tokens)
    assert_allclose(lm.log_prob([tokens])[0], np.log(total), rtol=1e-10)
    if not tokens:
        return
    assert [f"#{z}" for z in best] == lm.predict([tokens])[0]
    for found, want in zip(lm.predict_marginals([tokens])[0], marginals, strict=True):
        assert_allclose([found.get(f"#{z}", 0.0) for z in range(6)], want, atol=1e-10)
    words = list(lm.vocabulary_)
    for t, filled in zip([t for t, token in enumerate(tokens) if token is None], lm.fill(tokens, 99, unknown=True)
                         if None in tokens else [], strict=True):  # fmt: skip
        want = {w: by_enumeration(lm, [*tokens[:t], w, *tokens[t + 1 :]])[0] / total for w in words}
        assert {w for w, _ in filled} == set(words)
        assert_allclose([p for _, p in filled], [want[w] for w, _ in filled], atol=1e-10)


def test_next_words_are_those_of_enumeration(lm, monkeypatch):
    doubled(lm, monkeypatch)
    start, matrix, emission, end, first_end = enumerated(lm)
    given = ["the", {"dog", "cat"}]
    found = dict(lm.predict_next([], 99, unknown=True))
    assert_allclose([found[w] for w in lm.vocabulary_], emission @ start, atol=1e-10)
    assert_allclose(found["</s>"], first_end, atol=1e-10)
    alpha = start * emission[lm._words.id("the")]
    alpha = (alpha @ matrix) * emission[[lm._words.id(w) for w in ("dog", "cat")]].sum(axis=0)
    alpha /= alpha.sum()
    found = dict(lm.predict_next(given, 99, unknown=True))
    assert_allclose([found[w] for w in lm.vocabulary_], emission @ (alpha @ matrix), atol=1e-10)
    assert_allclose(found["</s>"], alpha @ end, atol=1e-10)
    assert_allclose(sum(found.values()), 1, rtol=1e-12)


@pytest.fixture(scope="module")
def plain():
    return made(HMMLanguageModel, 6, **QUICK).fit(TEXT)


def test_states_are_values_and_their_scores_sum_to_those_of_sentences(lm, monkeypatch):
    doubled(lm, monkeypatch)
    words = ["the", "dog", "run", "a", "new", "cats"]
    states, total = [lm.start()], 0.0
    for word in [*words, "</s>"]:
        score, state = lm.extend(states[-1], word)
        states.append(state)
        total += score
    assert_allclose(total, lm.log_prob([words])[0], rtol=1e-12)
    assert states[-1].block == lm.start().block == -1
    every = [*lm.vocabulary_, "</s>"]
    for t, state in enumerate(states[:-1]):
        scores, after = lm.extend_many([state] * len(every), every)
        expected = dict(lm.predict_next(words[:t], len(every), unknown=True))
        p = np.exp(scores)
        assert_allclose(p.sum(), 1, rtol=1e-6)  # rows of float32
        assert_allclose(p / p.sum(), [expected[word] for word in every], rtol=1e-12)
        for word, new in zip(every, after, strict=True):
            assert new.block == lm.extend(state, word)[1].block
            assert_allclose(new.p, lm.extend(state, word)[1].p, rtol=1e-12)


def test_what_extends_no_state_is_an_error(plain):
    start = plain.start()
    for word in ("<s>", None, ["the"]):
        with pytest.raises(DataError):
            plain.extend(start, word)
    with pytest.raises(ShapeError, match="one for each state"):
        plain.extend_many([start, start], ["the"])
    short = start._replace(p=start.p[:-1])
    for states in ([short], [start, short], [3.0], [start._replace(block=7)]):
        with pytest.raises(ShapeError, match="k=6"):
            plain.extend_many(states, ["the"] * len(states))
    nowhere, after = plain.extend(start._replace(block=0), "the")
    assert nowhere == -np.inf
    assert not np.isnan(after.p).any()


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
    total = sum(np.exp(lm.log_prob([["the", w, "sleeps"]], known=[given])[0]) for w in lm.vocabulary_)
    assert_allclose(total, 1, rtol=1e-4)
    assert lm.log_prob([["a", "dog", "sleeps"]], known=[given])[0] == -np.inf  # they exclude each other
    filled = dict(lm.fill(["the", None, "sleeps"], 20, unknown=True)[0])
    assert_allclose(filled["cat"], np.exp(lm.log_prob([["the", "cat", "sleeps"]], known=[given])[0]), rtol=1e-3)
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
    posterior, k = lm.predict_marginals([["the", "dog"], ["cats"]]), lm._computed().log_start.shape[1]
    assert [[len(word) for word in s] for s in posterior] == [[k, k], [k]]
    assert_allclose([sum(word.values()) for sentence in posterior for word in sentence], 1, rtol=1e-4)
    assert [len(s) for s in lm.predict([["the", "dog"], ["cats"]])] == [2, 1]


def test_samples_follow_the_model(lm):
    found = lm.sample_with_states(1500, seed=3)
    assert all(len(words) == len(states) for words, states in found)
    assert [words for words, _ in found] == lm.sample(1500, seed=3)
    for word, p in lm.predict_next([], 20):
        share = np.mean([words[:1] == [word] for words, _ in found])
        assert abs(share - p) < 4 * np.sqrt(p * (1 - p) / 1500) + 1e-3  # standard errors, at most 0.013 each
    after = dict(lm.predict_next(["the"], 20))
    some = [words[1:2] for words, _ in found if words[:1] == ["the"]]
    assert abs(np.mean([words == ["dog"] for words in some]) - after["dog"]) < 2 / np.sqrt(len(some))
    assert max(len(words) for words in lm.sample(20, max_length=2)) <= 2


def test_what_it_learned(lm):
    for state in range(6):
        words = lm.top_words(f"#{state}", 100)
        assert_allclose(sum(p for _, p in words), 1, rtol=1e-4)
    matrix = lm.transitions()
    end = enumerated(lm)[3] if lm._network.clusters is not None else 0
    assert_allclose(matrix.sum(axis=1) + end, 1, rtol=1e-4)
    with pytest.raises(ValueRangeError, match="states #0 to #5"):
        lm.top_words("#6")


def test_frequencies_are_expected_counts(lm):
    frequency = lm._state_frequencies()
    assert_allclose(frequency.sum(), 1, rtol=1e-5)
    counts = np.zeros(6)
    for sentence in TEXT[:4]:
        for word in lm.predict_marginals([sentence])[0]:
            for state, p in word.items():
                counts[int(state[1:])] += p
    assert_allclose(frequency, counts / counts.sum(), rtol=1e-4)
    assert [len(table.rows) for table in lm.describe(3).tables][:1] == [3]


def test_descriptions_show_the_blocks():
    lm = made(HMMLanguageModel, 6, n_blocks=3, **QUICK).fit(TEXT)
    shown = {table.key: table.rows for table in lm.describe(6).tables}
    _, matrix, _, end, _ = enumerated(lm)
    frequencies = lm._state_frequencies()
    pairs = (frequencies[:, None] * matrix).reshape(3, 2, 3, 2).sum(axis=(1, 3))
    ends = (frequencies * end).reshape(3, 2).sum(axis=1)
    for name, _, _, before, after in shown["blocks"]:
        c = int(name.partition(":")[0])
        leave = np.append(pairs[c], ends[c])
        assert_allclose([p for _, p in after], sorted(leave / leave.sum(), reverse=True), rtol=1e-4)
        assert_allclose([p for _, p in before], sorted(pairs[:, c] / pairs[:, c].sum(), reverse=True), rtol=1e-4)
    assert sum(words for _, _, words, _, _ in shown["blocks"]) == len(lm.vocabulary_)
    assert sorted(np.unique(lm._computed().blocks[:-1])) == [0, 1, 2]
    assert [name for name, _ in shown["blocks"][0][4]].count("</s>") <= 1


def test_rank_of_a_kernel():
    lm = made(HMMLanguageModel, 9, rank=2, **QUICK | {"max_iter": 1}).fit(TEXT)
    assert np.linalg.matrix_rank(lm.transitions(), tol=1e-5) <= 2


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


@pytest.mark.parametrize("blocks", [1, 2])
def test_development_text_and_checkpoints(tmp_path, blocks):
    options = QUICK | {"max_iter": 8, "n_blocks": blocks}
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
        made(HMMLanguageModel, 8, **options).fit(TEXT, checkpoint=tmp_path / "run")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_states": 0}, "n_states"),
        ({"rank": 0}, "rank"),
        ({"feature_map": "cos"}, "feature_map"),
        ({"projection": "none"}, "projection"),
        ({"n_blocks": 10, "n_states": 20}, "number of words"),
        ({"n_blocks": 3}, "multiple of n_blocks"),
        ({"dropout": 1.0}, "dropout"),
        ({"learning_rate": 0.0}, "learning_rate"),
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
    with pytest.raises(ShapeError, match="list of words"):
        HMMLanguageModel().fit(["the dog"])
    with pytest.raises(DataError, match="no sentences"):
        plain.perplexity([])
    with pytest.raises(ShapeError, match="same number of tokens"):
        plain.log_prob([["a"]], known=[["a", "b"]])
    with pytest.raises(ShapeError, match="no blank"):
        plain.fill(["a"], 1)
    with pytest.raises(ValueRangeError, match="empty collection"):
        plain.log_prob([[set()]])
    assert len(plain.log_prob([])) == 0
    assert plain.predict([]) == []


def test_impossible_conditions():
    lm = made(HMMLanguageModel, 8, **QUICK | {"n_blocks": 2, "max_iter": 1}).fit(TEXT)
    assert np.isfinite(lm.log_prob([["the", "dog"]], known=[["the", None]])[0])
    lm._computed().log_emission[lm._words.id("dog")] = -np.inf
    with pytest.raises(ImpossibleError, match="probability zero"):
        lm.log_prob([["the", "dog"]], known=[["the", "dog"]])
    for query in (lm.predict_next, lambda x: lm.predict([x]), lambda x: lm.predict_marginals([x])):
        with pytest.raises(ImpossibleError, match="probability zero"):
            query(["the", "dog"])
    with pytest.raises(ImpossibleError, match="probability zero"):
        lm.fill(["dog", None])
