"""The interfaces of python-crfsuite and sklearn-crfsuite beside the originals, where these are installed."""

import numpy as np
import pytest

from trelliswork import CRF, bundled
from trelliswork.compat import pycrfsuite, sklearn_crfsuite
from trelliswork.errors import DataError, NotFittedError, ValueRangeError

SENTENCES = bundled.load("train")[:60]
Y = [list(s.chunks) for s in SENTENCES]


def features(words, t):
    word = words[t]
    return {
        "word": word, "upper": word[0].isupper(), "length": float(len(word) % 3), b"bytes": b"x",
        "previous": {"word": words[t - 1], "flags": {"short": len(words[t - 1]) < 3}} if t else {},
        "ends": [word[-1:], word[-2:]],
    }  # fmt: skip


X = [[features(s.words, t) for t in range(len(s.words))] for s in SENTENCES]


@pytest.fixture(scope="module")
def theirs():
    return pytest.importorskip("pycrfsuite")


def trained(package, folder, algorithm="lbfgs", **params):
    trainer = package.Trainer(algorithm, params=params, verbose=False)
    for n, (x, y) in enumerate(zip(X, Y, strict=True)):
        trainer.append(x, y, n % 4)
    trainer.train(str(folder / "model"))
    tagger = package.Tagger()
    tagger.open(str(folder / "model"))
    return trainer, tagger


@pytest.mark.parametrize(
    "token",
    [
        {"previous": {"word": "x", "n": 2.5, "yes": True, "no": False}, "flags": ["a", "b"], "s": {"q"}, "e": "é"},
        {b"key": b"value", "zero": 0, "one": 1, "deep": {"a": {"b": ["c"]}}, "none": {}},
        ["a", "b"], {"a"}, ("a", b"b"), {},
    ],
)  # fmt: skip
def test_attributes_have_the_names_and_values_of_the_original(theirs, token):
    assert pycrfsuite.ItemSequence([token]).items() == theirs.ItemSequence([token]).items()


def test_an_attribute_that_is_given_twice_counts_twice(theirs, tmp_path):
    assert len(pycrfsuite.ItemSequence([["a", "a"], {"a:b": 1, "a": "b"}])) == 2
    assert pycrfsuite.ItemSequence([{"a:b": 1.0, "a": "b"}]).items() == [{"a:b": 1.0}]


@pytest.mark.parametrize(
    "params",
    [
        {"c2": 0.5},
        {"c1": 0.2, "c2": 0.01},
        {"c2": 0.5, "feature.possible_transitions": True},
        {"c2": 0.5, "feature.possible_states": True},
        {"c2": 0.5, "feature.possible_states": True, "feature.possible_transitions": True},
    ],
    ids=str,
)
def test_the_same_objective_and_answers(theirs, tmp_path, params):
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    ours, tagger = trained(pycrfsuite, tmp_path / "ours", **params, delta=1e-7)
    other, original = trained(theirs, tmp_path / "theirs", **params, delta=1e-7, epsilon=1e-8)
    assert ours.logparser.last_iteration["loss"] == pytest.approx(other.logparser.last_iteration["loss"], rel=1e-4)
    if "c1" not in params:  # there features without a weight are left out
        assert ours.logparser.featgen_num_features == other.logparser.featgen_num_features
    assert sorted(tagger.labels()) == sorted(original.labels())
    assert [tagger.tag(x) for x in X] == [original.tag(x) for x in X]
    for one in (tagger, original):
        one.set(X[3])
    assert tagger.probability(Y[3]) == pytest.approx(original.probability(Y[3]), abs=2e-3)
    for t in (0, len(Y[3]) - 1):
        found = [tagger.marginal(label, t) for label in original.labels()]
        np.testing.assert_allclose(found, [original.marginal(label, t) for label in original.labels()], atol=2e-3)
    weights, expected = tagger.info(), original.info()
    some = {key: w for key, w in expected.state_features.items() if abs(w) > 0.05}
    assert {key: weights.state_features[key] for key in some} == pytest.approx(some, abs=0.02)
    some = {key: w for key, w in expected.transitions.items() if abs(w) > 0.05}
    assert {key: weights.transitions[key] for key in some} == pytest.approx(some, abs=0.02)


def test_a_converted_model_gives_the_same_labels(theirs, tmp_path):
    _, original = trained(theirs, tmp_path, c2=0.5)
    with pycrfsuite.Tagger().open(tmp_path / "model") as tagger:
        assert [tagger.tag(x) for x in X] == [original.tag(x) for x in X]
        assert tagger.tag([]) == []
    memory = pycrfsuite.Tagger().open_inmemory((tmp_path / "model").read_bytes())
    assert memory.tag(X[0]) == original.tag(X[0])
    with pytest.raises(NotFittedError, match="open one"):
        tagger.tag(X[0])


def test_one_sequence_per_call_has_the_labels_of_many(tmp_path):
    _, tagger = trained(pycrfsuite, tmp_path)
    assert tagger._single is not None
    new = [features(s.words, t) for s in bundled.load("test")[:20] for t in range(len(s.words))]
    some = [new[n : n + 1 + n % 9] for n in range(len(new) - 10)] + [[{"unknown": 1.0}, {}], [["word:the", "new"]]]
    assert [tagger.tag(x) for x in some] == tagger.tag_all(some)
    assert tagger.tag([]) == []
    with pytest.raises(DataError, match="'bad' must be a finite number"):
        tagger.tag([{"bad": None}])
    with pytest.raises(ValueRangeError, match="left the range of float32"):
        tagger.tag([{"length": 3e38}, {"length": -3e38}])


def test_a_held_out_part_is_compared_with(tmp_path, capsys):
    trainer = pycrfsuite.Trainer(params={"max_iterations": 3})
    for n, (x, y) in enumerate(zip(X, Y, strict=True)):
        trainer.append(pycrfsuite.ItemSequence(x), y, n % 4)
    trainer.train(tmp_path / "model", holdout=1)
    last = trainer.logparser.last_iteration
    assert [row["num"] for row in trainer.logparser.iterations] == [1, 2, 3]
    assert 0 < last["item_accuracy_float"] <= 1
    assert last["scores"]["B-NP"].ref == sum(label == "B-NP" for y in Y[1::4] for label in y)
    assert "held-out accuracy" in capsys.readouterr().err
    tagger = pycrfsuite.Tagger().open(tmp_path / "model")
    tagger.dump(tmp_path / "dump.txt")
    assert "(transition)" in (tmp_path / "dump.txt").read_text()


@pytest.mark.parametrize("algorithm", ["l2sgd", "ap"])
def test_other_algorithms_learn(tmp_path, algorithm):
    _, tagger = trained(
        pycrfsuite, tmp_path, algorithm, max_iterations=30, **({} if algorithm == "ap" else {"c2": 0.1})
    )
    right = sum(a == b for x, y in zip(X, Y, strict=True) for a, b in zip(tagger.tag(x), y, strict=True))
    assert right / sum(map(len, Y)) > 0.95


def test_what_is_not_here_is_refused_with_what_to_use():
    trainer = pycrfsuite.Trainer(verbose=False)
    for algorithm in ("pa", "arow"):
        with pytest.raises(ValueRangeError, match="use ap"):
            trainer.select(algorithm)
    with pytest.raises(ValueRangeError, match="min_count"):
        trainer.set("feature.minfreq", 2)
    with pytest.raises(ValueRangeError, match="always MoreThuente"):
        trainer.set("linesearch", "Backtracking")
    with pytest.raises(ValueRangeError, match="has the parameters"):
        trainer.set_params({"c3": 1})
    with pytest.raises(DataError, match="append"):
        trainer.train("nowhere")
    with pytest.raises(ValueRangeError, match="same length"):
        trainer.append([["a"]], ["x", "y"])
    trainer.set("feature.possible_transitions", "1")
    assert trainer.get("feature.possible_transitions") is True
    assert (
        set(trainer.params()) == set(trainer.get_params()) == {name for name in trainer.params() if trainer.help(name)}
    )


def test_the_estimator_of_sklearn_crfsuite(tmp_path):
    crf = sklearn_crfsuite.CRF(c1=0.0, c2=0.5, max_iterations=50, all_possible_transitions=True)
    crf.fit(X[:40], Y[:40], X[40:], Y[40:])
    same = CRF(None, scheme=None, l2=0.5, max_iter=50, options={"feature_set": "all-transitions"})
    zeros = [[pycrfsuite.ItemSequence([token]).items()[0] for token in x] for x in X]
    assert crf.predict(X) == same.fit(zeros[:40], Y[:40]).predict(zeros)
    assert crf.predict_single(X[0]) == crf.predict(X[:1])[0]
    assert crf.predict_marginals_single(X[0]) == crf.predict_marginals(X[:1])[0]
    assert sorted(crf.classes_) == sorted({label for y in Y[:40] for label in y})
    assert crf.num_attributes_ == len(crf.attributes_) > 100
    assert crf.training_log_.last_iteration["item_accuracy_float"] > 0.5
    f1 = sklearn_crfsuite.metrics.flat_f1_score(Y[40:], crf.predict(X[40:]), average="weighted")
    assert 0.5 < f1 <= 1
    assert sklearn_crfsuite.metrics.sequence_accuracy_score(Y, Y) == 1.0
    assert crf.score(X[40:], Y[40:]) == pytest.approx(crf.training_log_.last_iteration["item_accuracy_float"])
    assert sklearn_crfsuite.CRF(**crf.get_params()).set_params(c2=2.0).c2 == 2.0
    with pytest.raises(NotFittedError):
        sklearn_crfsuite.CRF().predict(X)


def test_nested_attributes_are_for_all_crfs():
    crf = CRF(None, scheme=None).fit(X[:20], Y[:20])
    assert "previous:flags:short" in {name for name, _, _ in crf.top_features(10_000)}
    with pytest.raises(DataError, match="attributes \\(a list, set or dict\\)"):
        crf.predict([[{"a": {"b": None}}]])
