"""The estimator: fitting, predicting all layers, evidence, saving, and what it refuses."""

import json
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.estimators import made
from tests.models.directories import weights_of
from trelliswork import CRF, Corpus, FactorialCRF, bundled, evaluate, load
from trelliswork.errors import ConvergenceWarning, DataError, NotFittedError, ShapeError, ValueRangeError
from trelliswork.inference import factorial
from trelliswork.inference.factorial import engines

TRAIN, TEST = bundled.load("train")[:150], bundled.load("test")[:60]
WORDS, UNSEEN = [list(s.words) for s in TRAIN], [list(s.words) for s in TEST]
TAGS, CHUNKS = [list(s.tags) for s in TRAIN], [list(s.chunks) for s in TRAIN]
Y = {"pos": TAGS, "chunk": CHUNKS}
GOLD = {"pos": [list(s.tags) for s in TEST], "chunk": [list(s.chunks) for s in TEST]}
QUICK = {"tol": 1e-3, "l2": 0.3}


@pytest.fixture(scope="module")
def tagger() -> FactorialCRF:
    return made(FactorialCRF, **QUICK).fit(WORDS, Y)


def test_layers_help_each_other(tagger):
    """Joint accuracy above that of two taggers that do not know each other."""
    report = evaluate(tagger, UNSEEN, GOLD)
    alone = [made(CRF, "pos", **QUICK).fit(WORDS, y).predict(UNSEEN) for y in (TAGS, CHUNKS)]
    pairs = [
        (g == p and h == q)
        for rows in zip(GOLD["pos"], alone[0], GOLD["chunk"], alone[1], strict=True)
        for g, p, h, q in zip(*rows, strict=True)
    ]
    assert report.joint_accuracy > sum(pairs) / len(pairs)
    assert report.joint_accuracy == tagger.score(UNSEEN, GOLD)
    assert report.layers["chunk"].chunks.f1 > 0.8
    assert report.layers["pos"].chunks is None
    assert "joint accuracy of" in report.summary()
    assert json.loads(json.dumps(report.to_dict()))["layers"]["pos"]["accuracy"] > 0.85
    assert evaluate(tagger, Corpus.from_sentences(UNSEEN), GOLD).layers["pos"].unknown_accuracy is not None


def test_labels_as_tuples_or_by_layer(tagger):
    tuples = [list(zip(a, b, strict=True)) for a, b in zip(TAGS, CHUNKS, strict=True)]
    again = made(FactorialCRF, **QUICK).fit(WORDS, tuples)
    assert (again._learned.weights == tagger._learned.weights).all()
    found, layers = again.predict(UNSEEN[:3]), again._predict_layers(UNSEEN[:3])
    assert found[0][0] == (layers["pos"][0][0], layers["chunk"][0][0])
    assert [len(sentence) for sentence in found] == [len(sentence) for sentence in UNSEEN[:3]]


@pytest.mark.filterwarnings("ignore:L-BFGS stopped after")  # mean field has kinks
@pytest.mark.parametrize("engine", ["structured_mean_field", "exact"])
def test_other_engines_learn_much_the_same(tagger, engine):
    words, y = WORDS[:40], {name: column[:40] for name, column in Y.items()}
    features = "U:%x[0,0]\nU:%x[-1,0]"
    found = made(FactorialCRF, features=features, engine=engine, **QUICK).fit(words, y)
    want = made(FactorialCRF, features=features, **QUICK).fit(words, y)
    assert found.report_.converged or engine == "structured_mean_field"  # whose objective has kinks
    if engine == "exact":
        assert_allclose(found.report_.value, want.report_.value, rtol=0.02)  # belief propagation is the other one
    else:
        assert found.report_.value < want.report_.value  # it minimises something below the loss
    assert found.score(words, y) > (0.95 if engine == "exact" else 0.8)


def test_one_layer_is_a_crf():
    one = FactorialCRF(("chunk",), features="pos", tol=1e-7).fit(WORDS[:40], {"chunk": CHUNKS[:40]})
    crf = CRF("pos", tol=1e-7).fit(WORDS[:40], CHUNKS[:40])
    assert_allclose(one.report_.value, crf.report_.value, rtol=1e-5)
    assert one._predict_layers(UNSEEN)["chunk"] == crf.predict(UNSEEN)


def test_three_layers():
    capital = [["X" if w[0].isupper() else "x" for w in s] for s in WORDS]
    model = made(
        FactorialCRF,
        ("pos", "chunk", "case"),
        ties=[("chunk", "pos"), ("case", "pos")],
        **QUICK,
    ).fit(WORDS, {**Y, "case": capital})
    assert model._learned.layout.ties == ((0, 1), (0, 2))
    found = model._predict_layers(WORDS[:20])
    right = [a == b for p, g in zip(found["case"], capital[:20], strict=True) for a, b in zip(p, g, strict=True)]
    assert sum(right) / len(right) > 0.95
    assert {row[0] for row in model._learned.top_ties(500)} == {"pos"}


def test_marginals_are_the_engines_beliefs(tagger):
    found = tagger.predict_marginals(UNSEEN[:2])
    assert set(found) == {"pos", "chunk"}
    for layer in tagger._layers:
        for sentence, words in zip(found[layer.name], UNSEEN[:2], strict=True):
            assert len(sentence) == len(words)
            for token in sentence:
                assert set(token) == set(layer.labels)
                assert_allclose(sum(token.values()), 1, atol=1e-4)
    (potentials,) = tagger._potentials(UNSEEN[:1])
    exact = factorial.infer(potentials, "exact")
    labels = tagger.labels_["pos"]
    bp = [[token[label] for label in labels] for token in found["pos"][0]]
    assert np.abs(exact.marginals[0][0] - bp).max() < 0.05
    assert factorial.infer(potentials, "structured_mean_field").value[0] <= exact.value[0] + 1e-3


def test_predictions_are_the_most_probable_labeling(tagger, monkeypatch):
    (potentials,) = tagger._potentials(UNSEEN[:1])
    labels, _ = factorial.decode(potentials, "exact")
    names = [[layer.labels[j] for j in row[0]] for layer, row in zip(tagger._layers, labels, strict=True)]
    assert tagger.predict(UNSEEN[:1]) == [list(zip(*names, strict=True))]
    monkeypatch.setattr(engines, "MAX_DECODED", 0)
    climbed = tagger.predict(UNSEEN)
    monkeypatch.undo()
    best = tagger.predict(UNSEEN)
    same = [a == b for p, q in zip(climbed, best, strict=True) for a, b in zip(p, q, strict=True)]
    assert sum(same) / len(same) > 0.95


def test_the_most_probable_labelings_come_with_their_probabilities(tagger):
    words = [sentence[:6] for sentence in UNSEEN[:3]]
    for ranked, best in zip(tagger.predict_topk(words, 3), tagger.predict(words), strict=True):
        assert ranked[0][0] == best
        p = [probability for _, probability in ranked]
        assert p == sorted(p, reverse=True)
        assert 0 < sum(p) <= 1 + 1e-6
    (ranked,) = tagger.predict_topk(words[:1], 2, known={"pos": [["NN"] + [None] * 5]})
    assert {labels[0][0] for labels, _ in ranked} == {"NN"}


def test_the_posterior_is_a_factor_graph(tagger):
    """An independent implementation agrees: exact log Z and marginals, and the Bethe value of loopy BP."""
    sentence = UNSEEN[0][:5]
    graph = tagger.posterior(sentence)
    (potentials,) = tagger._potentials([sentence])
    exact = factorial.infer(potentials, "exact")
    assert graph.infer(engine="exact").log_z[0] == pytest.approx(exact.value[0], abs=1e-4)
    marginals = tagger.posterior(sentence, engine="exact").marginals()[0].numpy()
    for d, layer in enumerate(tagger._layers):
        want = exact.marginals[d][0]
        assert_allclose(marginals[5 * d : 5 * d + 5, : len(layer.labels)], want, atol=1e-4)
    one = tagger.posterior(["dogs"])
    assert one.infer(engine="exact").log_z[0] == pytest.approx(
        factorial.infer(next(tagger._potentials([["dogs"]])), "bp").value[0], abs=1e-4
    )


def test_bio_is_kept(tagger):
    assert [layer.scheme for layer in tagger._layers] == [None, "bio"]
    for sentence in tagger._predict_layers(UNSEEN)["chunk"]:
        for before, after in zip(["O", *sentence], sentence, strict=False):
            assert not after.startswith("I-") or before[2:] == after[2:]
    free = made(FactorialCRF, scheme=None, **QUICK).fit(WORDS[:30], {name: y[:30] for name, y in Y.items()})
    assert [layer.scheme for layer in free._layers] == [None, None]


def test_evidence_moves_the_other_layer(tagger):
    sentence = ["They", "saw", "her", "duck", "."]
    known = {"pos": [[None, None, {"PRP"}, "VB", None]]}
    found = tagger._predict_layers([sentence], known=known)
    assert found["pos"][0][2:4] == ["PRP", "VB"]
    assert found["chunk"] != tagger._predict_layers([sentence])["chunk"]
    marginals = tagger.predict_marginals([sentence], known=known)["pos"][0]
    assert marginals[3]["VB"] == pytest.approx(1)
    with pytest.raises(ValueRangeError, match="no layer 'tags'; the layers are pos, chunk"):
        tagger.predict([sentence], known={"tags": [[None] * 5]})


@pytest.mark.parametrize("features", ["pos", None])
def test_saved_and_loaded_it_is_the_same(tmp_path, features):
    X = [[{"w": w} for w in s] for s in WORDS[:20]] if features is None else WORDS[:20]
    model = FactorialCRF(features=features, tol=1e-2, ties=[("pos", "chunk")])
    model.fit(X, {name: y[:20] for name, y in Y.items()})
    model.input_ = {"format": "columns"}
    model.save(tmp_path / "model")
    for again in (FactorialCRF.load(tmp_path / "model"), load(tmp_path / "model")):
        assert (again._learned.weights == model._learned.weights).all()
        assert again.predict(X) == model.predict(X)
        assert again.top_features(5, layer="pos") == model.top_features(5, layer="pos")
        assert again._learned.top_ties(5) == model._learned.top_ties(5)
        assert again.get_params().keys() == model.get_params().keys()
        assert again.layers == model.layers
        assert again.input_ == {"format": "columns"}
    with pytest.raises(DataError, match="expected a model of kind 'crf', got one of kind 'factorial-crf'"):
        CRF.load(tmp_path / "model")


def test_a_function_as_features_is_given_again_after_loading(tmp_path):
    def attributes(sentence, t):
        return [sentence[t].lower(), sentence[t][-2:]]

    model = FactorialCRF(features=attributes, tol=1e-2).fit(WORDS[:20], {name: y[:20] for name, y in Y.items()})
    model.save(tmp_path / "model")
    again = FactorialCRF.load(tmp_path / "model").set_params(features=attributes)
    assert again.predict(UNSEEN[:5]) == model.predict(UNSEEN[:5])


@pytest.mark.parametrize("damage", ["ties", "labels", "layers", "weights"])
def test_damaged_files_are_refused(tmp_path, damage):
    from safetensors.numpy import load_file, save_file

    model = FactorialCRF(features="U:%x[0,0]", tol=1e-2).fit(WORDS[:5], {name: y[:5] for name, y in Y.items()})
    model.save(tmp_path / "m")
    plain = json.loads((tmp_path / "m" / "model.json").read_text())
    arrays = load_file(weights_of(tmp_path / "m"))
    if damage == "ties":
        plain["ties"] = [[0, 7]]
    elif damage == "labels":
        plain["labels"][0].pop()
    elif damage == "layers":
        del arrays["layer.1.transitions"]
    else:
        arrays["weights"] = arrays["weights"][:-1]
    (tmp_path / "m" / "model.json").write_text(json.dumps(plain))
    save_file(arrays, weights_of(tmp_path / "m"))
    with pytest.raises((DataError, ValueRangeError), match=r"damaged|do not match"):
        FactorialCRF.load(tmp_path / "m", verify=False)


def test_a_callback_stops_and_what_was_learned_is_kept():
    model = FactorialCRF().fit(WORDS, Y, callback=lambda step: step.iteration == 3)
    assert model.report_.reason == "stopped by the caller"
    with pytest.warns(ConvergenceWarning):
        three = FactorialCRF(max_iter=3).fit(WORDS, Y)
    assert (model._learned.weights == three._learned.weights).all()
    assert model.report_.history[-1].value < model.report_.history[0].value


@pytest.mark.parametrize("with_dev", [False, True])
def test_an_interrupted_run_resumes_to_the_same_weights(tmp_path, with_dev):
    options = {"dev": (UNSEEN, GOLD)} if with_dev else {}
    model = FactorialCRF(max_iter=8, tol=0, patience=4, l2=0.05)
    some, path = (WORDS[:60], {name: y[:60] for name, y in Y.items()}), tmp_path / "checkpoint"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        whole = FactorialCRF(**model.get_params()).fit(*some, **options)
        model.fit(*some, checkpoint=path, callback=lambda step: step.iteration == 3, **options)
        assert path.is_file()
        assert not (model._learned.weights == whole._learned.weights).all()
        model.fit(*some, checkpoint=path, **options)
    assert (model._learned.weights == whole._learned.weights).all()
    assert [s.dev for s in model.report_.history] == [s.dev for s in whole.report_.history]
    model.save(tmp_path / "model")
    assert not path.exists()


def test_development_data_keep_the_best_iteration():
    dev = (UNSEEN, GOLD)
    model = FactorialCRF(l2=0.01, patience=3).fit(WORDS[:60], {name: y[:60] for name, y in Y.items()}, dev=dev)
    assert "joint accuracy" in model.report_.reason
    best = max(step.dev for step in model.report_.history)
    assert model.score(UNSEEN, GOLD) == pytest.approx(best)


def test_sentence_weights_and_grid_search():
    from sklearn.base import clone
    from sklearn.model_selection import GridSearchCV

    y = [list(zip(a, b, strict=True)) for a, b in zip(TAGS[:20], CHUNKS[:20], strict=True)]
    model = FactorialCRF(features="U:%x[0,0]", tol=1e-6)
    weighted = clone(model).fit(WORDS[:20], y, sample_weight=np.array([2.0] * 10 + [0.0] * 10))
    doubled = clone(model).fit(WORDS[:10] * 2, y[:10] * 2)
    assert weighted.predict(WORDS[:10]) == doubled.predict(WORDS[:10])
    search = GridSearchCV(FactorialCRF(tol=1e-2), {"l2": [0.1, 1000.0]}, cv=2).fit(WORDS[:20], y)
    assert search.best_params_ == {"l2": 0.1}
    assert repr(FactorialCRF(engine="exact")) == "FactorialCRF(engine='exact')"


def test_an_engine_that_does_not_settle_warns():
    with pytest.warns(ConvergenceWarning, match="bp had not converged for .* sentences after 1 sweeps"):
        FactorialCRF(options={"max_sweeps": 1}, tol=1e-1).fit(WORDS[:20], {name: y[:20] for name, y in Y.items()})


def test_hashed_features(tmp_path):
    model = FactorialCRF(options={"hash_bits": 10}, tol=1e-2).fit(WORDS[:20], {name: y[:20] for name, y in Y.items()})
    model.save(tmp_path / "m")
    assert FactorialCRF.load(tmp_path / "m").predict(UNSEEN[:3]) == model.predict(UNSEEN[:3])
    assert model.top_features(1, layer="pos")[0][0].startswith("#")


def test_wrong_parameters_and_labels_are_refused(tagger):
    X, y = WORDS[:2], {name: column[:2] for name, column in Y.items()}
    for options, message in (
        ({"layers": "pos"}, "layers must be different names"),
        ({"layers": ("pos", "pos")}, "layers must be different names"),
        ({"engine": "magic"}, "engine must be 'bp'"),
        ({"l2": -1.0}, "l2 must be at least 0"),
        ({"feature_set": "some"}, "feature_set must be"),
        ({"scheme": "bio"}, "scheme must be 'auto' or None"),
        ({"damping": 1.0}, "damping must be less than 1"),
        ({"patience": 0}, "patience must be at least 1"),
        ({"ties": [("pos", "ner")]}, "ties must be pairs of the layers pos, chunk"),
        ({"features": "U:%x[0,0]\nB:%x[0,0]"}, "do not support edge features"),
    ):
        with pytest.raises(ValueRangeError, match=message):
            made(FactorialCRF, **options).fit(X, y)
    with pytest.raises(ValueRangeError, match="chunk missing; ner not among them"):
        FactorialCRF().fit(X, {"pos": y["pos"], "ner": y["chunk"]})
    with pytest.raises(ShapeError, match="expected a tuple of 2 labels"):
        FactorialCRF().fit(X, y["pos"])
    with pytest.raises(ShapeError, match="same sentences, got 2 in pos and 1 in chunk"):
        FactorialCRF().fit(X, {"pos": y["pos"], "chunk": y["chunk"][:1]})
    with pytest.raises(ShapeError, match=r"sentence 0 has .* tokens but 1 labels"):
        FactorialCRF().fit(X, {"pos": y["pos"], "chunk": [["O"], y["chunk"][1]]})
    with pytest.raises(ValueRangeError, match=r"sentence 0, token 0 of y\['chunk'\]: expected a label, got None"):
        FactorialCRF().fit(X, {"pos": y["pos"], "chunk": [[None] * len(X[0]), y["chunk"][1]]})
    with pytest.raises(NotFittedError):
        FactorialCRF().predict(X)
    with pytest.raises(ShapeError, match="the sentence is empty"):
        tagger.posterior([])
    with pytest.raises(ValueRangeError, match="no layer 'x'"):
        tagger.top_features(layer="x")
