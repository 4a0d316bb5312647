"""The PCFG estimator: trees, evidence, samples, files, and what it refuses."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.estimators import made
from tests.oracle.trees import bracketings
from trelliswork import PCFG, evaluate, load
from trelliswork.data import Corpus, Tree, bundled
from trelliswork.data.trees import tree_spans
from trelliswork.errors import DataError, ImpossibleError, NotFittedError, ShapeError, ValueRangeError
from trelliswork.models.pcfg.decoding import named_tree

WORDS = [list(s.words) for s in bundled.load("train")[:60] if len(s.words) <= 12]
TREES = [s.tree for s in bundled.load("train")[:60] if len(s.words) <= 12]
KINDS = {
    "dense": {},
    "low rank": {"rank": 4},
    "dense, neural": {"neural": True, "max_iter": 2, "embedding_size": 8},
    "neural": {
        "rank": 3, "neural": True, "max_iter": 2, "embedding_size": 8,
    },
    "own words": {"rank": 4, "n_preterminals": None, "rule_prior": 0.001, "right_bias": 3.0},
}  # fmt: skip


def fitted(name):
    options = {"n_nonterminals": 3, "n_preterminals": 5, "max_iter": 4, "tol": 0, "min_count": 2} | KINDS[name]
    return made(PCFG, **options).fit(WORDS)


@pytest.fixture(scope="module")
def models():
    return {name: fitted(name) for name in KINDS}


@pytest.mark.parametrize("name", KINDS)
def test_trees_evidence_and_files(models, name, tmp_path):
    model = models[name]
    sentences = [*WORDS[:6], ["the", "zebrafinch", "runs"], ["dog"]]
    trees = model.predict(sentences)
    assert [list(tree.leaves()) for tree in trees] == sentences
    for tree in trees:
        assert all(len(node.children) == 2 or isinstance(node.children[0], str) for node in tree.subtrees())
    assert isinstance(trees[-1].children[0], str)
    with pytest.warns(UserWarning, match="sentence 7, 'dog', of one word"):
        evidence = model.log_prob(sentences)
    assert np.isneginf(evidence).tolist() == [False] * 7 + [True]
    total = sum(map(len, sentences[:7]))
    n_words = sum(map(len, sentences[:7]))
    assert_allclose(model.score(sentences), evidence[:7].sum() / n_words, rtol=1e-12)
    assert_allclose(model.perplexity(sentences), np.exp(-evidence[:7].sum() / total), rtol=1e-12)
    posterior = model.posterior(sentences[0])
    assert_allclose(posterior.log_partition().item(), evidence[0], rtol=1e-9)
    best = model.predict(sentences[:1], decoding="viterbi")[0]
    want = posterior.mode[0].numpy()
    assert str(best) == str(named_tree(want, sentences[0], 3))
    model.save(tmp_path / "grammar")
    again = load(tmp_path / "grammar")
    assert isinstance(again, PCFG)
    assert again.predict(sentences) == trees
    assert_array_equal(again.log_prob(sentences[:7]), evidence[:7])
    assert again.report_.to_dict() == model.report_.to_dict()
    assert again.get_params() == model.get_params()
    assert_array_equal(fitted(name).log_prob(sentences[:7]), evidence[:7])


def test_sentences_of_one_word_are_named(models):
    with pytest.warns(UserWarning, match="sentence 0, 'dog', and 1 more of one word"):
        found = models["dense"].log_prob([["dog"], WORDS[0], ["runs"]])
    assert np.isneginf(found).tolist() == [True, False, True]
    assert_allclose(models["dense"].score([["dog"], WORDS[0], ["runs"]]), found[1] / len(WORDS[0]))  # and no warning


@pytest.mark.parametrize("name", ["dense", "low rank"])
def test_mbr_is_the_best_of_all_bracketings(models, name):
    model = models[name]
    for sentence in (WORDS[0][:5], WORDS[1][:6]):
        n = len(sentence)
        spans = model.posterior(sentence).marginals()[0].sum(dim=2).numpy()
        totals = [sum(spans[i, j] for i, j in tree) for tree in bracketings(0, n - 1)]
        chart = model._charts([sentence], "mbr")[0]
        got = sum(spans[i, j - 1] for i, j, _ in tree_spans(named_tree(chart, sentence, model.n_nonterminals))) + n
        assert_allclose(got, max(totals), rtol=1e-9)


def test_a_simple_language_is_learned():
    # The nouns and verbs of a tiny language: S -> (D N) (V (D N)).
    rng = np.random.default_rng(0)
    D, N, V = ["the", "a"], ["dog", "cat", "man"], ["sees", "likes"]
    drawn = [[str(rng.choice(kind)) for kind in (D, N, V, D, N)] for _ in range(60)]
    model = PCFG(3, n_preterminals=3, n_restarts=5, options={"probe": 15}, max_iter=100, tol=1e-6, right_bias=1.0).fit(
        drawn
    )
    assert model.report_.n_iter > 15
    assert model.perplexity(drawn) < 3.2  # the language itself has exp(log 72 / 5) = 2.35; words by themselves 6.6
    gold = [Tree.parse("(S (NP (D d) (N n)) (VP (V v) (NP (D d) (N n))))")] * len(drawn)
    report = evaluate(model, drawn, gold)
    assert 0 < report.confidence.calibration_error.value < 1
    assert report.n_sentences == 60
    assert report.right_f1 == pytest.approx(2 / 3)
    assert evaluate(model, drawn, gold, decoding="viterbi").n_sentences == 60
    assert evaluate(model, drawn[:2], gold[:2], max_length=5).n_sentences == 2


def test_samples(models):
    for name in ("dense", "low rank"):
        trees = models[name].sample_trees(5, seed=1, max_length=30)
        assert trees == models[name].sample_trees(5, seed=1, max_length=30)
        assert all(2 <= len(tree.leaves()) <= 30 for tree in trees)
        words, symbols = models[name].sample_with_states(1, seed=1, max_length=30)[0]
        assert words == list(trees[0].leaves()) == models[name].sample(1, seed=1, max_length=30)[0]
        assert all(symbol.startswith("P") for symbol in symbols)


def test_samples_follow_the_grammar():
    # Two words, one rule: p(a) = 0.75 at each place.
    model = PCFG(1, n_preterminals=1, max_iter=30, tol=0, rule_prior=0.0, emission_prior=0.0).fit(
        [["a", "a"], ["a", "b"]]
    )
    drawn = model.sample(2000, seed=0)
    assert all(len(words) == 2 for words in drawn)
    assert np.mean([word == "a" for words in drawn for word in words]) == pytest.approx(0.75, abs=0.03)
    assert model.top_words("P0", 1) == [("a", pytest.approx(0.75))]
    assert model.top_rules("N0", 1) == [("P0", "P0", pytest.approx(1.0))]
    with pytest.raises(ImpossibleError, match="sentence 1 has no tree"):
        model.predict([["a", "b"], ["a", "never"]])
    with pytest.raises(ValueRangeError, match="from N0 to N0"):
        model.top_rules("N1")


@pytest.mark.parametrize("name", ["dense", "low rank"])
def test_blanks_are_filled_by_bayes_rule(models, name):
    model, sentence = models[name], [WORDS[0][0], None, *WORDS[0][2:5]]
    words = [word for word in model.vocabulary_ if word != "<unk>"]
    evidence = np.exp(model.log_prob([[w if x is None else x for x in sentence] for w in words]))
    (filled,) = model.fill(sentence, len(model.vocabulary_), unknown=True)
    p = dict(filled)
    assert sum(p.values()) == pytest.approx(1)
    best = words[int(np.argmax(evidence))]
    for word, value in zip(words, evidence, strict=True):
        assert p[word] / p[best] == pytest.approx(value / evidence.max(), rel=1e-6)


def test_known_spans_are_in_every_tree(models):
    model, sentence = models["dense"], WORDS[0][:6]
    free, given = model.posterior(sentence), model.posterior(sentence, known={(1, 5): True})
    spans = given.marginals()[0].sum(dim=2).numpy()
    assert spans[1, 4] == pytest.approx(1)
    log_p = float(given.log_partition()[0] - free.log_partition()[0])
    assert np.exp(log_p) == pytest.approx(float(free.marginals()[0].sum(dim=2)[1, 4]))
    with pytest.raises(ValueRangeError, match="within the sentence"):
        model.posterior(sentence, known={(0, 9): True})
    with pytest.raises(ValueRangeError, match="must be a dict"):
        model.posterior(sentence, known=[(1, 5)])


def test_probabilities_of_trees(models):
    """Those of all binary trees over a sentence sum to 1; a tree with fewer brackets is the sum of those that agree."""
    model, sentence = models["dense"], WORDS[0][:4]

    def tree(spans, i=0, j=4):
        inside = sorted(span for span in spans if i <= span[0] and span[1] <= j and span != (i, j))
        parts, at = [], i
        while at < j:
            stop = max((b for a, b in inside if a == at), default=at + 1)
            parts.append(tree(spans, at, stop) if stop - at > 1 else Tree("T", (sentence[at],)))
            at = stop
        return Tree("X", tuple(parts))

    every = [[(0, 4), *some] for some in ([(0, 2), (2, 4)], [(0, 2), (0, 3)], [(1, 3), (0, 3)], [(1, 3), (1, 4)],
                                            [(2, 4), (1, 4)])]  # fmt: skip
    p = np.exp(model.log_prob([sentence] * 5, [tree(spans) for spans in every]))
    assert p.sum() == pytest.approx(1)
    assert_allclose(np.exp(model.log_prob([sentence] * 2, [tree([(0, 4)]), tree([(0, 4), (0, 3)])])), [1, p[1] + p[2]])
    with pytest.raises(ShapeError, match="a tree for each sentence"):
        model.log_prob([sentence], [])


def test_all_queries_take_known_spans(models):
    model, X = models["dense"], [WORDS[0][:6], WORDS[1][:5]]
    table, other = model.predict_marginals(X)
    lacked = max(((i, j), p) for (i, j), p in table.items() if (i, j) != (0, 6))[0]
    had = min((span for span in table if span[0] < lacked[0] < span[1] < lacked[1]), default=(0, 2))
    known = [{had: True, lacked: False}, None]
    given = model.posterior(X[0], known=known[0])
    spans = given.marginals()[0].sum(dim=2).numpy()
    found, same = model.predict_marginals(X, known=known)
    assert same == other
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert found == {(i, j): pytest.approx(spans[i, j - 1]) for i, j in found}
    for decoding, best in (("mbr", given.mbr()), ("viterbi", given.argmax())):
        tree, free = model.predict(X, decoding=decoding, known=known)
        assert tree == named_tree(best.value[0].numpy(), X[0], 3)
        assert free == model.predict(X[1:], decoding=decoding)[0]
        assert had in {(i, j) for i, j, _ in tree_spans(tree)} - {lacked}
    ranked, _ = model.predict_topk(X, 3, known=known)
    assert [p for _, p in ranked] == pytest.approx(given.topk(3).log_prob[0].exp().tolist())
    assert ranked[0][0] == model.predict(X, decoding="viterbi", known=known)[0]
    with pytest.raises(ImpossibleError, match="sentence 0"):
        model.predict(X, known=[{(0, 2): True, (1, 3): True}, None])
    with pytest.raises(ShapeError, match="for each sentence"):
        model.predict(X, known=known[:1])


@pytest.mark.parametrize("options", [{}, {"neural": True, "options": {"embedding_size": 8}}], ids=["em", "neural"])
def test_development_data_keep_the_best_iteration(options):
    model = PCFG(
        3,
        n_preterminals=4,
        max_iter=12,
        tol=0,
        patience=3,
        rule_prior=0.0,
        learning_rate=0.05,
        **options,
    )
    model.fit(WORDS[:12], dev=WORDS[12:20])
    figures = [step.dev for step in model.report_.history]
    assert model.report_.dev == max(figures)
    assert model.score(WORDS[12:20]) == pytest.approx(max(figures), rel=1e-9)
    assert model.report_.n_iter - 1 - int(np.argmax(figures)) <= 3


def test_own_words_are_their_own_symbols(models):
    model = models["own words"]
    assert_allclose(np.exp(model._grammar.log_emission), np.eye(len(model.vocabulary_)))
    words = {word for sentence in WORDS for word in sentence}
    assert model.known_words() < words


def test_corpus_callback_and_checkpoint(tmp_path):
    corpus = Corpus.from_sentences(WORDS)
    steps = []
    options = {"rank": 4, "max_iter": 6, "tol": 0}
    whole = made(PCFG, 3, n_preterminals=5, **options).fit(corpus)
    path = tmp_path / "state"

    def stop(step):
        steps.append(step)
        return step.iteration == 3

    part = made(PCFG, 3, n_preterminals=5, **options).fit(corpus, callback=stop, checkpoint=path)
    assert len(steps) == 3
    assert part.report_.reason == "stopped by the caller"
    rest = made(PCFG, 3, n_preterminals=5, **options).fit(corpus, checkpoint=path)
    assert_array_equal(rest.log_prob(corpus), whole.log_prob(corpus))
    rest.save(tmp_path / "model")
    made(PCFG, 3, n_preterminals=5, **options).fit(corpus, callback=stop, checkpoint=path)
    with pytest.raises(DataError, match="other data or settings"):
        made(PCFG, 4, n_preterminals=5, **options).fit(corpus, checkpoint=path)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"n_nonterminals": 0}, "n_nonterminals"),
        ({"neural": True, "n_restarts": 2}, "n_restarts"),
        ({"neural": True, "right_bias": 1.0}, "right_bias"),
        ({"neural": "yes"}, "neural must be"),
        ({"max_length": 1}, "max_length"),
        ({"tol": -1.0}, "tol"),
        ({"rule_prior": -0.1}, "rule_prior"),
        ({"rank": 0}, "rank"),
    ],
)
def test_what_makes_no_sense_is_refused(options, match):
    with pytest.raises(ValueRangeError, match=match):
        made(PCFG, **options).fit(WORDS)


def test_other_refusals(models):
    with pytest.raises(NotFittedError):
        PCFG().predict(WORDS)
    with pytest.raises(DataError, match="no sentences"):
        PCFG().fit([])
    with pytest.raises(DataError, match="no sentences to learn from"):
        PCFG(max_length=2).fit([["a"], ["a", "b", "c"]])
    with pytest.raises(ShapeError, match="sentence 0 of X must be a list of words"):
        PCFG().fit(["text"])
    with pytest.raises(ValueRangeError, match="leave y out"):
        PCFG().fit(WORDS, [])
    with pytest.raises(ValueRangeError, match="decoding"):
        models["dense"].predict(WORDS, decoding="best")
    with pytest.raises(DataError, match="at least two words"):
        models["dense"].score([["a"]])
    with pytest.raises(ValueRangeError, match="max_length"):
        models["dense"].sample(1, max_length=1)


@pytest.mark.parametrize("name", ["dense", "low rank"])
def test_damaged_shapes_are_refused(models, name):
    plain, arrays = models[name]._content()
    PCFG._restored("a copy", plain, arrays)
    for damaged, array in arrays.items():
        for other in (array[1:], array[..., :-1], np.where(array == array.max(), np.nan, array)):
            with pytest.raises(DataError):
                PCFG._restored("a copy", plain, arrays | {damaged: other})
    for missing in arrays:
        with pytest.raises(DataError):
            PCFG._restored("a copy", plain, {key: array for key, array in arrays.items() if key != missing})
