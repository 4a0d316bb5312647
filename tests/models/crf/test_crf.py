"""The CRF from sentences to predictions: what it learns, answers, saves, and refuses."""

import json
import warnings
from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.numpy import load_file, save_file
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import trelliswork.models
from trelliswork.data import Corpus, read_columns
from trelliswork.data.schemes import labels_from_spans, spans
from trelliswork.errors import (
    ConvergenceWarning,
    DataError,
    NotFittedError,
    ShapeError,
    TrellisworkError,
    ValueRangeError,
)
from trelliswork.features import parse_templates
from trelliswork.metrics.tagging import evaluate_tagging
from trelliswork.models import CRF

TEMPLATES = "# word and neighbours\nU0:%x[0,0]\nU1:%x[-1,0]\nU2:%x[1,0]\nB\n"

WORDS = [
    ["the", "dog", "barks"],
    ["a", "dog", "sees", "the", "cat"],
    ["the", "old", "man", "the", "boat"],
    ["dogs", "bark"],
    ["the", "cat", "sees", "a", "man"],
    ["cats", "see", "the", "old", "dog"],
]
TAGS = [
    ["D", "N", "V"],
    ["D", "N", "V", "D", "N"],
    ["D", "N", "V", "D", "N"],
    ["N", "V"],
    ["D", "N", "V", "D", "N"],
    ["N", "V", "D", "A", "N"],
]
CHUNKS = [
    ["B-NP", "I-NP", "B-VP"],
    ["B-NP", "I-NP", "B-VP", "B-NP", "I-NP"],
    ["B-NP", "I-NP", "B-VP", "B-NP", "I-NP"],
    ["B-NP", "B-VP"],
    ["B-NP", "I-NP", "B-VP", "B-NP", "I-NP"],
    ["B-NP", "B-VP", "B-NP", "I-NP", "I-NP"],
]
NEW = [["the", "unseen", "dog", "sees", "a", "cat"], ["old"], ["dogs", "the"]]


def tagger(features=TEMPLATES, **options):
    return CRF(features, **{"l2": 0.01, "scheme": None, **options})


@pytest.fixture(scope="module")
def fitted():
    return tagger().fit(WORDS, TAGS)


def as_dicts(sentences):
    """Ready attributes that say the same as TEMPLATES, but for the ends of the sentence."""
    return [
        [
            {"word": word, **({"before": s[t - 1]} if t else {}), **({"after": s[t + 1]} if t + 1 < len(s) else {})}
            for t, word in enumerate(s)
        ]
        for s in sentences
    ]


def as_lists(sentences):
    return [[[f"{k}:{v}" for k, v in token.items()] for token in s] for s in as_dicts(sentences)]


# Learning


def test_a_toy_problem_is_learned(fitted):
    assert fitted.predict(WORDS) == TAGS
    assert fitted.score(WORDS, TAGS) == 1.0
    assert set(fitted.labels_) == {"D", "N", "V", "A"}


@pytest.mark.parametrize("l2", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("l1", [0.0, 0.1])
def test_training_ends_by_the_default_tolerance(l1, l2):
    crf = CRF(TEMPLATES, l1=l1, l2=l2).fit(WORDS, TAGS)
    assert crf.report_.converged, crf.report_.reason


@pytest.mark.parametrize("features", [TEMPLATES, "pos", "ner", "letters", parse_templates(TEMPLATES)])
def test_features_of_words(features):
    assert tagger(features).fit(WORDS, TAGS).predict(WORDS) == TAGS


def test_the_chunking_preset_wants_words_and_tags():
    pairs = [list(zip(words, tags, strict=True)) for words, tags in zip(WORDS, TAGS, strict=True)]
    crf = tagger("chunking", scheme="auto").fit(pairs, CHUNKS)
    assert crf.predict(pairs) == CHUNKS
    with pytest.raises(DataError, match="'chunking' needs 2 columns, the data has 1"):
        tagger("chunking").fit(WORDS, CHUNKS)
    with pytest.raises(DataError, match="'chunking' needs 2 columns, the data has 1"):
        crf.predict(WORDS)


def test_a_template_file_is_its_text(tmp_path, fitted):
    path = tmp_path / "template"
    path.write_text(TEMPLATES, encoding="utf-8")
    for features in (path, str(path)):
        assert_array_equal(tagger(features).fit(WORDS, TAGS).weights_, fitted.weights_)


def test_a_corpus_is_its_sentences(fitted):
    corpus = Corpus.from_sentences(WORDS)
    assert_array_equal(tagger().fit(corpus, TAGS).weights_, fitted.weights_)
    assert fitted.predict(corpus) == TAGS


def test_dicts_and_lists_of_the_same_attributes_agree():
    dicts = tagger(None).fit(as_dicts(WORDS), TAGS)
    lists = tagger(None).fit(as_lists(WORDS), TAGS)
    assert dicts.predict(as_dicts(WORDS)) == TAGS
    assert_array_equal(dicts.weights_, lists.weights_)
    assert dicts.predict(as_dicts(NEW)) == lists.predict(as_lists(NEW))


def test_values_of_attributes_count():
    # Only the size of x tells the labels apart.
    x = [[{"bias": 1.0, "x": v} for v in row] for row in ([0.1, 2.0, 0.2], [1.9, 0.0], [2.2, 1.8, 0.1, 0.3])]
    y = [["big" if token["x"] > 1 else "small" for token in s] for s in x]
    crf = CRF(None, l2=1e-3).fit(x, y)
    assert crf.predict(x) == y
    assert crf.predict([[{"bias": 1.0, "x": 3.0}], [{"bias": 1.0, "x": -1.0}]]) == [["big"], ["small"]]


def test_all_pairs_give_a_lower_objective():
    observed = tagger(tol=1e-8).fit(WORDS, TAGS)
    every = tagger(tol=1e-8, feature_set="all").fit(WORDS, TAGS)
    assert len(every.weights_) > len(observed.weights_)
    assert every.report_.value < observed.report_.value
    assert every.predict(WORDS) == TAGS


def test_l1_gives_sparse_weights():
    dense = tagger(l2=0.01, feature_set="all").fit(WORDS, TAGS)
    sparse = tagger(l2=0.01, l1=0.3, feature_set="all").fit(WORDS, TAGS)
    sparser = tagger(l2=0.01, l1=1.0, feature_set="all").fit(WORDS, TAGS)
    n_dense, n_sparse, n_sparser = (np.count_nonzero(crf.weights_) for crf in (dense, sparse, sparser))
    assert n_dense > 0.9 * len(dense.weights_)
    assert 0 < n_sparser < n_sparse < 0.3 * n_dense
    assert sparse.score(WORDS, TAGS) > 0.9


def test_l2_shrinks_the_weights():
    norms = [np.linalg.norm(tagger(l2=l2).fit(WORDS, TAGS).weights_) for l2 in (0.01, 0.1, 1.0, 10.0)]
    assert norms == sorted(norms, reverse=True)
    assert norms[0] > 5 * norms[-1]


def test_min_count_drops_rare_attributes():
    crf = tagger("U:%x[0,0]", min_count=3).fit(WORDS, TAGS)
    assert {name for name, _, _ in crf.top_features(1000)} == {"U:the", "U:dog"}
    ready = tagger(None, min_count=3).fit([[[w] for w in s] for s in WORDS], TAGS)
    assert {name for name, _, _ in ready.top_features(1000)} == {"the", "dog"}


def test_a_weight_of_two_is_the_sentence_twice():
    options = {"tol": 1e-10, "max_iter": 3000, "l2": 0.1}
    weights = np.array([1.0, 2.0, 1.0, 1.0, 3.0, 1.0])
    weighted = tagger(**options).fit(WORDS, TAGS, sample_weight=weights)
    which = np.repeat(np.arange(6), weights.astype(int))
    repeated = tagger(**options).fit([WORDS[n] for n in which], [TAGS[n] for n in which])
    assert_allclose(weighted.report_.value, repeated.report_.value, rtol=1e-5)
    names = [sorted(crf.top_features(1000) + crf.top_transitions(1000)) for crf in (weighted, repeated)]
    assert [row[:2] for row in names[0]] == [row[:2] for row in names[1]]
    assert_allclose([row[2] for row in names[0]], [row[2] for row in names[1]], atol=1e-3)
    plain = tagger(**options).fit(WORDS, TAGS)
    assert abs(plain.report_.value - weighted.report_.value) > 0.1


def test_a_weight_of_zero_leaves_a_sentence_out():
    options = {"tol": 1e-10, "max_iter": 3000, "l2": 0.1}
    wrong = [["V", "D", "N"], *TAGS[1:]]
    crf = tagger(**options).fit(WORDS, wrong, sample_weight=np.array([0.0, 1, 1, 1, 1, 1]))
    assert crf.predict(WORDS) == tagger(**options).fit(WORDS[1:], TAGS[1:]).predict(WORDS)


def test_the_report_is_the_penalized_likelihood():
    crf = tagger(l2=0.3, l1=0.1, tol=1e-8, max_iter=2000).fit(WORDS, TAGS)
    labels = list(crf.labels_)
    loss = 0.0
    for words, tags in zip(WORDS, TAGS, strict=True):
        loss -= crf.posterior(words).log_prob(torch.tensor([[labels.index(tag) for tag in tags]])).item()
    penalty = 0.3 * crf.weights_ @ crf.weights_ + 0.1 * np.abs(crf.weights_).sum()
    assert_allclose(crf.report_.value, loss + penalty, rtol=1e-5)


def test_the_callback_sees_and_stops():
    seen = []

    def callback(step):
        seen.append(step.iteration)
        return step.iteration == 2

    crf = tagger().fit(WORDS, TAGS, callback=callback)
    assert seen == [1, 2]
    assert not crf.report_.converged


def test_too_few_iterations_warn():
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        tagger(max_iter=1).fit(WORDS, TAGS)


def test_fit_is_deterministic_and_forgets(fitted):
    crf = tagger().fit([["other", "words"]], [["X", "Y"]])
    assert crf.fit(WORDS, TAGS) is crf
    assert_array_equal(crf.weights_, fitted.weights_)
    assert list(crf.labels_) == list(fitted.labels_)


def test_what_is_passed_in_is_left_alone():
    words, tags = [list(s) for s in WORDS], [list(s) for s in TAGS]
    weights = np.ones(6)
    tagger().fit(words, tags, sample_weight=weights)
    assert (words, tags) == (WORDS, TAGS)
    assert_array_equal(weights, 1)


# Answers


def test_marginals_sum_to_one(fitted):
    found = fitted.predict_marginals(WORDS + NEW)
    assert [len(s) for s in found] == [len(s) for s in WORDS + NEW]
    for token in (token for sentence in found for token in sentence):
        assert set(token) == set(fitted.labels_)
        assert_allclose(sum(token.values()), 1, rtol=1e-5)
        assert all(0 <= p <= 1 + 1e-6 for p in token.values())


def test_the_posterior_agrees_with_everything_else(fitted):
    labels = list(fitted.labels_)
    for sentence in WORDS + NEW:
        posterior = fitted.posterior(sentence)
        best = [labels[j] for j in posterior.argmax().labels[0].tolist()]
        assert fitted.predict([sentence]) == [best]
        (marginals,) = fitted.predict_marginals([sentence])
        want = posterior.marginals()[0].tolist()
        assert_allclose([[token[label] for label in labels] for token in marginals], want, atol=1e-5)
        (ranked,) = fitted.predict_topk([sentence], 4)
        assert ranked[0][0] == best
        ids = torch.tensor([[labels.index(label) for label in labelling] for labelling, _ in ranked])
        log_probs = [posterior.log_prob(row[None]).item() for row in ids]
        assert_allclose([p for _, p in ranked], np.exp(log_probs), rtol=1e-4, atol=1e-7)


def test_topk_is_sorted_and_distinct(fitted):
    for sentence, ranked in zip(NEW, fitted.predict_topk(NEW, 10), strict=True):
        probabilities = [p for _, p in ranked]
        assert probabilities == sorted(probabilities, reverse=True)
        assert len({tuple(labelling) for labelling, _ in ranked}) == len(ranked) == min(10, 4 ** len(sentence))
        assert all(len(labelling) == len(sentence) for labelling, _ in ranked)
        assert sum(probabilities) <= 1 + 1e-5


def test_all_labellings_of_a_short_sentence(fitted):
    (ranked,) = fitted.predict_topk([["the", "dog"]], 100)
    assert len(ranked) == 16
    assert_allclose(sum(p for _, p in ranked), 1, rtol=1e-5)
    (marginals,) = fitted.predict_marginals([["the", "dog"]])
    for label, p in marginals[1].items():
        assert_allclose(p, sum(q for labelling, q in ranked if labelling[1] == label), atol=1e-5)


def test_sentences_together_are_sentences_alone(fitted):
    rng = np.random.default_rng(0)
    vocabulary = [*sorted({word for s in WORDS for word in s}), "new"]
    sentences = [[vocabulary[k] for k in rng.integers(0, len(vocabulary), n)] for n in rng.integers(1, 30, 60)]
    sentences.append([vocabulary[k] for k in rng.integers(0, len(vocabulary), 25_000)])  # longer than a batch
    sentences.append(["dog"])
    together = fitted.predict(sentences)
    assert together == [fitted.predict([s])[0] for s in sentences]
    assert [len(s) for s in together] == [len(s) for s in sentences]
    for sentence, found in zip(sentences[:20], fitted.predict_marginals(sentences), strict=False):
        (alone,) = fitted.predict_marginals([sentence])
        assert_allclose([list(t.values()) for t in found], [list(t.values()) for t in alone], atol=1e-5)


def test_known_labels_condition_the_answers(fitted):
    sentence, known = ["the", "old", "cats"], [None, {"V", "A"}, "V"]
    (ranked,) = fitted.predict_topk([sentence], 64)
    fitting = [(labels, p) for labels, p in ranked if labels[1] in ("V", "A") and labels[2] == "V"]
    total = sum(p for _, p in fitting)
    assert fitted.predict([sentence], known=[known]) == [fitting[0][0]]
    (marginals,) = fitted.predict_marginals([sentence], known=[known])
    for t, token in enumerate(marginals):
        for label, p in token.items():
            assert_allclose(p, sum(q for labels, q in fitting if labels[t] == label) / total, atol=1e-4)
    (best,) = fitted.predict_topk([sentence], 64, known=[known])
    assert [labels for labels, _ in best] == [labels for labels, _ in fitting]
    assert fitted.predict(WORDS, known=[[None] * len(s) for s in WORDS]) == TAGS


def test_a_function_gives_the_attributes():
    def attributes(sentence, t):
        return {"word": sentence[t], **({"before": sentence[t - 1]} if t else {}), "last": t + 1 == len(sentence)}

    crf = tagger(attributes).fit(WORDS, TAGS)
    ready = tagger(None).fit([[attributes(s, t) for t in range(len(s))] for s in WORDS], TAGS)
    assert crf.predict(WORDS) == TAGS
    assert_array_equal(crf.weights_, ready.weights_)


def test_top_features_and_transitions():
    crf = tagger("U:%x[0,0]").fit(WORDS, TAGS)
    found = crf.top_features(5)
    sizes = [abs(w) for _, _, w in found]
    assert len(found) == 5
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == np.abs(crf.weights_[-len(crf.top_features(1000)) :]).max()
    assert {label for _, label, _ in crf.top_features(100, label="D")} == {"D"}
    assert ("U:the", "D") in [row[:2] for row in crf.top_features(100, label="D")]
    pairs = {(a, b) for a, b, _ in crf.top_transitions(100)}
    assert pairs == {pair for tags in TAGS for pair in pairwise(tags)}


# Schemes


@pytest.mark.parametrize("feature_set", ["observed", "all"])
def test_bio_never_predicts_an_ill_formed_transition(feature_set):
    # Each word wants one label whatever stands before it, and new sentences put I- words where they may not be.
    words = ["b i o", "c j o b i", "o b i i o c j j", "b b i c c j"]
    labels = {"o": "O", "b": "B-X", "i": "I-X", "c": "B-Y", "j": "I-Y"}
    x = [s.split() for s in words]
    y = [[labels[word] for word in s] for s in x]
    rng = np.random.default_rng(0)
    new = [[str(w) for w in rng.choice(list(labels), n)] for n in rng.integers(2, 12, 100)]
    options = {"l2": 1e-3, "feature_set": feature_set}

    def ill_formed(sentences):
        pairs = [pair for labelling in sentences for pair in pairwise(labelling)]
        return [(a, b) for a, b in pairs if b[0] == "I" and a not in (f"B-{b[2:]}", f"I-{b[2:]}")]

    free = CRF("U:%x[0,0]", scheme=None, **options).fit(x, y)
    assert ill_formed(free.predict(new))  # the features do suggest it
    for scheme in ("bio", "auto"):
        crf = CRF("U:%x[0,0]", scheme=scheme, **options).fit(x, y)
        assert crf.predict(x) == y
        assert not ill_formed(crf.predict(new))
        ranked = crf.predict_topk(new[:10], 5)
        assert not ill_formed([labelling for sentence in ranked for labelling, _ in sentence])
        posterior = crf.posterior(["o", "i"])
        ids = torch.tensor([[list(crf.labels_).index(label) for label in ("O", "I-X")]])
        assert posterior.log_prob(ids).item() == -np.inf


@pytest.mark.parametrize("scheme", ["bio", "bioes"])
def test_predictions_are_whole_spans(scheme):
    # Also at the ends: no sentence begins inside a span, and in bioes none ends there.
    spans_of = [[("X", 1, 3)], [("Y", 0, 1), ("X", 1, 4)], [("Y", 1, 3), ("Y", 3, 5)], [("X", 0, 1)]]
    y = [labels_from_spans(found, 5, scheme) for found in spans_of]
    x = [[label.lower() for label in labels] for labels in y]
    words = sorted({word for s in x for word in s})
    rng = np.random.default_rng(0)
    new = [[str(w) for w in rng.choice(words, n)] for n in rng.integers(1, 8, 100)]

    def whole(labels):
        return labels_from_spans(spans(labels, scheme), len(labels), scheme) == labels

    free = CRF("U:%x[0,0]", scheme=None, l2=1e-3).fit(x, y).predict(new)
    assert not all(whole(labels) for labels in free)
    crf = CRF("U:%x[0,0]", scheme=scheme, l2=1e-3).fit(x, y)
    assert crf.predict(x) == y
    for labels in [*crf.predict(new), *(labels for s in crf.predict_topk(new, 4) for labels, _ in s)]:
        assert whole(labels), labels
    with pytest.raises(DataError, match="sentence 0"):
        CRF("U:%x[0,0]", scheme=scheme).fit([["a"], *x], [["I-X"], *y])


def test_training_labels_outside_the_scheme_are_named():
    with pytest.raises(DataError, match=r"sentence 1, token 2: I-NP after O .*'bio'"):
        tagger(scheme="bio").fit([["a"], ["a", "b", "c"]], [["O"], ["B-NP", "O", "I-NP"]])
    tagger(scheme=None).fit([["a"], ["a", "b", "c"]], [["O"], ["B-NP", "O", "I-NP"]])


def test_plain_tags_have_no_scheme():
    assert tagger(scheme="auto").fit(WORDS, TAGS).predict(WORDS) == TAGS


# Saving and loading


def saved(tmp_path, crf=None):
    path = tmp_path / "model"
    (tagger().fit(WORDS, TAGS) if crf is None else crf).save(path)
    return path


@pytest.mark.parametrize("load", [CRF.load, trelliswork.models.load])
@pytest.mark.parametrize("kind", ["templates", "preset", "parsed", "dicts", "bio", "min_count"])
def test_a_saved_model_is_the_same_model(tmp_path, kind, load):
    features = {"preset": "pos", "parsed": parse_templates(TEMPLATES), "dicts": None}.get(kind, TEMPLATES)
    crf = tagger(features, scheme="auto", min_count=2 if kind == "min_count" else 1)
    x, new = (as_dicts(s) if kind == "dicts" else s for s in (WORDS, NEW))
    crf.fit(x, CHUNKS if kind == "bio" else TAGS)
    again = load(saved(tmp_path, crf))
    assert type(again) is CRF
    assert_array_equal(again.weights_, crf.weights_)
    assert list(again.labels_) == list(crf.labels_)
    for sentences in (x, new):
        assert again.predict(sentences) == crf.predict(sentences)
        assert again.predict_marginals(sentences) == crf.predict_marginals(sentences)
        assert again.predict_topk(sentences, 3) == crf.predict_topk(sentences, 3)
    assert again.top_features(50) == crf.top_features(50)
    assert again.report_.value == crf.report_.value
    assert {k: v for k, v in again.get_params().items() if k != "features"} == {
        k: v for k, v in crf.get_params().items() if k != "features"
    }
    assert_array_equal(again.fit(x, CHUNKS if kind == "bio" else TAGS).weights_, crf.weights_)


def test_a_loaded_model_can_be_saved_again(tmp_path):
    path = saved(tmp_path)
    CRF.load(path).save(tmp_path / "second")
    assert CRF.load(tmp_path / "second").predict_marginals(NEW) == CRF.load(path).predict_marginals(NEW)


@pytest.mark.parametrize("options", [{"l2": np.float32(0.5)}, {"min_count": np.int64(1)}, {"max_iter": np.int32(90)}])
def test_parameters_may_be_numbers_of_numpy(tmp_path, options):
    crf = tagger(**options).fit(WORDS, TAGS)
    again = CRF.load(saved(tmp_path, crf))
    assert again.get_params()["l2"] == pytest.approx(crf.l2)
    assert again.predict(NEW) == crf.predict(NEW)


def change_json(path, change):
    plain = json.loads((path / "model.json").read_text(encoding="utf-8"))
    change(plain)
    (path / "model.json").write_text(json.dumps(plain), encoding="utf-8")


def change_arrays(path, **changes):
    arrays = load_file(path / "weights.safetensors")
    for name, change in changes.items():
        arrays[name] = np.ascontiguousarray(change(arrays[name]))
    save_file(arrays, path / "weights.safetensors")


def with_one(value):
    def change(array):
        array = array.copy()
        array[len(array) // 2] = value
        return array

    return change


def cut_file(path, name):
    data = (path / name).read_bytes()
    (path / name).write_bytes(data[: len(data) // 2])


DAMAGES = {
    "no model.json": lambda path: (path / "model.json").unlink(),
    "no weights": lambda path: (path / "weights.safetensors").unlink(),
    "half of model.json": lambda path: cut_file(path, "model.json"),
    "half of the weights": lambda path: cut_file(path, "weights.safetensors"),
    "empty weights": lambda path: (path / "weights.safetensors").write_bytes(b""),
    "not unicode": lambda path: (path / "model.json").write_bytes(b'{"kind": "\xff"}'),
    "a list": lambda path: (path / "model.json").write_text("[]"),
    "no kind": lambda path: change_json(path, lambda plain: plain.pop("kind")),
    "wrong kind": lambda path: change_json(path, lambda plain: plain.update(kind="weather")),
    "future format": lambda path: change_json(path, lambda plain: plain.update(format=999)),
    "no labels": lambda path: change_json(path, lambda plain: plain.pop("labels")),
    "a label less": lambda path: change_json(path, lambda plain: plain["labels"].pop()),
    "unknown parameter": lambda path: change_json(path, lambda plain: plain["parameters"].update(colour="red")),
    "nan": lambda path: change_arrays(path, weights=with_one(np.nan)),
    "inf": lambda path: change_arrays(path, weights=with_one(np.inf)),
    "fewer weights": lambda path: change_arrays(path, weights=lambda w: w[:-1]),
    "label out of range": lambda path: change_arrays(path, labels=with_one(100)),
    "negative label": lambda path: change_arrays(path, labels=with_one(-1)),
    "attribute out of range": lambda path: change_arrays(path, attributes=with_one(10**6)),
    "transition out of range": lambda path: change_arrays(path, **{"ngrams.2": with_one(10**6)}),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_model_is_refused(tmp_path, damage):
    path = saved(tmp_path)
    DAMAGES[damage](path)
    with pytest.raises((DataError, ValueRangeError)) as caught:
        CRF.load(path)
    assert len(str(caught.value)) > 20
    with pytest.raises((DataError, ValueRangeError)):
        trelliswork.models.load(path)


def test_messages_about_damage_name_the_file(tmp_path):
    path = saved(tmp_path)
    cut_file(path, "weights.safetensors")
    with pytest.raises(DataError, match=r"weights\.safetensors"):
        CRF.load(path)
    cut_file(path, "model.json")
    with pytest.raises(DataError, match=r"model\.json"):
        CRF.load(path)
    with pytest.raises(DataError, match="nowhere"):
        CRF.load(tmp_path / "nowhere")


def test_what_is_no_model_is_not_overwritten(tmp_path, fitted):
    folder = tmp_path / "precious"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    with pytest.raises(DataError, match="precious"):
        fitted.save(folder)
    with pytest.raises(DataError, match=r"thesis\.txt"):
        fitted.save(folder / "thesis.txt")
    assert (folder / "thesis.txt").read_text() == "years of work"
    assert [p.name for p in tmp_path.rglob("*")] == ["precious", "thesis.txt"]


def test_an_empty_folder_and_missing_parents_are_fine(tmp_path, fitted):
    (tmp_path / "empty").mkdir()
    fitted.save(tmp_path / "empty")
    fitted.save(str(tmp_path / "a" / "b" / "model"))
    for path in (tmp_path / "empty", tmp_path / "a" / "b" / "model"):
        assert CRF.load(path).predict(NEW) == fitted.predict(NEW)
        assert sorted(p.name for p in path.iterdir()) == ["model.json", "weights.safetensors"]


def test_an_old_model_is_replaced(tmp_path, fitted):
    path = saved(tmp_path, tagger("U:%x[0,0]").fit([["x"]], [["Y"]]))
    fitted.save(path)
    assert CRF.load(path).predict(WORDS) == TAGS
    assert [p.name for p in tmp_path.iterdir()] == ["model"]  # nothing temporary stays


def test_a_failing_save_leaves_the_old_model(tmp_path, fitted, monkeypatch):
    path = saved(tmp_path)
    before = {p.name: p.read_bytes() for p in path.iterdir()}

    def fail(*args, **kwargs):
        raise OSError("no space left on device")

    monkeypatch.setattr("safetensors.numpy.save_file", fail)
    with pytest.raises(OSError, match="no space"):
        tagger("U:%x[0,0]").fit([["x"]], [["Y"]]).save(path)
    with pytest.raises(OSError, match="no space"):
        fitted.save(tmp_path / "fresh")
    assert {p.name: p.read_bytes() for p in path.iterdir()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


# scikit-learn


def test_clone_copies_parameters_and_nothing_learned(fitted):
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(WORDS)
    parsed = tagger(parse_templates(TEMPLATES), l1=0.25)
    assert clone(parsed).get_params() == parsed.get_params()


def test_parameters_can_be_set():
    crf = CRF()
    assert crf.set_params(l2=3.0, features="ner") is crf
    assert (crf.get_params()["l2"], crf.features) == (3.0, "ner")
    with pytest.raises(ValueRangeError, match="'colour'"):
        crf.set_params(colour="red")


def accuracy_of_sentences(crf, x, y):
    return float(np.mean([a == b for a, b in zip(crf.predict(x), y, strict=True)]))


@pytest.mark.parametrize("scoring", [None, accuracy_of_sentences])
@pytest.mark.parametrize("kind", ["words", "dicts"])
def test_grid_search(kind, scoring):
    x = WORDS * 2 if kind == "words" else as_dicts(WORDS * 2)
    search = GridSearchCV(
        tagger(TEMPLATES if kind == "words" else None), {"l2": [0.01, 1e4]}, scoring=scoring, cv=3, error_score="raise"
    )
    search.fit(x, TAGS * 2)
    assert search.best_params_ == {"l2": 0.01}  # the other one learns next to nothing
    assert search.best_score_ > search.cv_results_["mean_test_score"][1]
    assert search.predict(x) == TAGS * 2


# Errors


def test_nothing_works_before_fit(tmp_path):
    crf = CRF()
    for ask in (
        lambda: crf.predict(WORDS),
        lambda: crf.predict_topk(WORDS, 2),
        lambda: crf.posterior(WORDS[0]),
        lambda: crf.score(WORDS, TAGS),
        lambda: crf.top_features(),
        lambda: crf.top_transitions(),
        lambda: crf.save(tmp_path / "model"),
    ):
        with pytest.raises(NotFittedError, match="fit"):
            ask()


def test_no_marginals_before_fit():
    with pytest.raises(NotFittedError, match="fit"):
        CRF().predict_marginals(WORDS)


def test_a_failed_fit_does_not_count_as_fitted():
    crf = tagger()
    with pytest.raises(ShapeError):
        crf.fit([["a", "b"]], [["A"]])
    with pytest.raises(NotFittedError):
        crf.predict([["a"]])


def test_lengths_must_match():
    with pytest.raises(ShapeError, match="6 and 5 sentences"):
        tagger().fit(WORDS, TAGS[:-1])
    with pytest.raises(ShapeError, match="sentence 2 has 2 tokens but 3 labels"):
        tagger().fit([["a"], ["b"], ["c", "d"]], [["A"], ["B"], ["A", "B", "A"]])


@pytest.mark.parametrize("weights", [np.ones(5), np.ones(7), np.ones((6, 1)), 2.0])
def test_sample_weights_must_match(weights):
    with pytest.raises(ShapeError, match="sample_weight"):
        tagger().fit(WORDS, TAGS, sample_weight=weights)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -1.0])
def test_sample_weights_must_be_finite_and_not_negative(wrong):
    with pytest.raises(ValueRangeError, match="sample_weight"):
        tagger().fit(WORDS, TAGS, sample_weight=np.array([1, 1, wrong, 1, 1, 1]))


@pytest.mark.parametrize("features", [TEMPLATES, "pos", "letters", None])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_empty_sentence_is_named(features, at):
    x, y = [["a", "b"], ["b"]], [["A", "B"], ["B"]]
    if features is None:
        x = [[[word] for word in s] for s in x]
    crf = tagger(features).fit(x, y)
    with_empty, labels = [*x[:at], [], *x[at:]], [*y[:at], [], *y[at:]]
    with pytest.raises(ShapeError, match=f"sentence {at} is empty"):
        tagger(features).fit(with_empty, labels)
    for ask in (crf.predict, crf.predict_marginals, lambda sentences: crf.predict_topk(sentences, 2)):
        with pytest.raises(ShapeError, match=f"sentence {at} is empty"):
            ask(with_empty)


def test_an_only_sentence_that_is_empty(fitted):
    with pytest.raises(ShapeError, match="sentence 0 is empty"):
        fitted.predict([[]])


def test_no_posterior_of_nothing(fitted):
    with pytest.raises(ShapeError, match="empty"):
        fitted.posterior([])


def test_no_sentences(fitted):
    assert fitted.predict([]) == []
    assert fitted.predict_marginals([]) == []
    assert fitted.predict_topk([], 3) == []
    with pytest.raises(TrellisworkError, match="sentence"):
        tagger().fit([], [])


def test_no_sentences_of_several_columns():
    crf = tagger("chunking").fit([[("dog", "N")]], [["B"]])
    assert crf.predict([]) == []


def test_an_unknown_preset_is_told_which_there_are():
    with pytest.raises(ValueRangeError, match=r"chunking, pos, ner, letters.*'chunkin'"):
        CRF("chunkin").fit(WORDS, TAGS)


def test_templates_that_cannot_be_used():
    with pytest.raises(DataError, match=r"U1:%x\[0,1\].*column 1"):
        CRF("U0:%x[0,0]\nU1:%x[0,1]").fit(WORDS, TAGS)
    with pytest.raises(DataError, match=r"B1:%x\[0,1\].*column 1"):
        CRF("U0:%x[0,0]\nB1:%x[0,1]").fit(WORDS, TAGS)
    with pytest.raises(DataError, match=r":2: .*X:%x\[0,0\]"):
        CRF("U0:%x[0,0]\nX:%x[0,0]").fit(WORDS, TAGS)


def test_columns_must_be_as_many_in_every_token():
    with pytest.raises(ShapeError, match="sentence 1, token 1"):
        CRF(TEMPLATES).fit([[("a", "x")], [("b", "y"), ("c",)]], [["A"], ["A", "B"]])


def test_words_are_not_ready_attributes():
    with pytest.raises(DataError, match=r"sentence 0, token 0: .*'the'"):
        CRF(None).fit(WORDS, TAGS)
    with pytest.raises(DataError, match="corpus"):
        CRF(None).fit(Corpus.from_sentences(WORDS), TAGS)


@pytest.mark.parametrize(
    "options",
    [{"l1": -1.0}, {"l2": -0.1}, {"l2": np.nan}, {"feature_set": "some"}, {"scheme": "iob"}],
)
def test_parameters_that_cannot_be_used(options):
    (name,) = options
    with pytest.raises(ValueRangeError, match=f"{name} must be"):
        tagger(**options).fit(WORDS, TAGS)


def test_one_label_is_a_certain_answer():
    crf = tagger().fit([["a", "b"]], [["A", "A"]])
    assert crf.predict([["b", "new"]]) == [["A", "A"]]
    assert_allclose(crf.predict_marginals([["b"]])[0][0]["A"], 1)


def test_huge_values_do_not_break_the_probabilities():
    # Scores in the thousands: probability space underflows, log space does not.
    x = [[{"x": 1000.0}, {"y": 1000.0}, {"x": 500.0}], [{"y": 1000.0}, {"x": 1000.0}]]
    y = [["A", "B", "A"], ["B", "A"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        crf = CRF(None, l2=1e-6, scheme=None, max_iter=50).fit(x, y)
    assert crf.predict(x) == y
    for token in (token for sentence in crf.predict_marginals(x) for token in sentence):
        assert_allclose(sum(token.values()), 1, rtol=1e-5)


# Real text


@pytest.mark.slow
def test_chunking_conll_2000(data_dir, tmp_path):
    train, test = (read_columns(data_dir / "conll2000" / f"{part}.txt") for part in ("train", "test"))
    crf = CRF("chunking", scheme=None, l2=1.0).fit(train, train.sentences(2))
    assert crf.report_.converged
    assert_allclose(crf.report_.value, 13139.36, rtol=1e-4)
    predicted = crf.predict(test)
    report = evaluate_tagging(test.sentences(2), predicted)
    assert report.chunks is not None
    assert report.chunks.f1 >= 0.935
    crf.save(tmp_path / "model")
    assert CRF.load(tmp_path / "model").predict(test) == predicted
