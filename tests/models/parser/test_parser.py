"""Dependency parsers: objectives against finite differences, learning, evidence, trees and probabilities, storage."""

import json
import math

import numpy as np
import pytest

from tests.oracle.trees import is_projective, is_tree
from trelliswork import Corpus, DependencyParser, bundled, load, num_threads
from trelliswork.errors import DataError, ImpossibleError, NotFittedError, ShapeError, ValueRangeError
from trelliswork.models.parser.data import Gold, read_heads
from trelliswork.models.parser.decoding import features_of
from trelliswork.models.parser.features import TokenCoder
from trelliswork.models.parser.first_order import TreeKind
from trelliswork.models.parser.scoring import TreeScorer
from trelliswork.models.parser.second_order import Propagation
from trelliswork.models.parser.training import FirstOrder, SecondOrder, Watch

SMALL = {"hash_bits": 16, "min_count": 1, "batch_size": 8}
TAGGED = [[("dogs", "N"), ("bark", "V")], [("big", "A"), ("dogs", "N"), ("bark", "V")], [("Go", "V")]]
HEADS = [[2, 0], [2, 3, 0], [0]]
BITS = 10


def columns(sentences):
    return [list(zip(s.words, s.tags, strict=True)) for s in sentences]


@pytest.fixture(scope="module")
def corpus():
    train, test = bundled.load("train")[:300], bundled.load("test")[:150]
    return [(columns(part), [list(s.heads) for s in part], [list(s.relations) for s in part]) for part in (train, test)]


@pytest.fixture(scope="module", params=[1, 2])
def parser(request, corpus):
    return DependencyParser(request.param, **SMALL).fit(*corpus[0])


def test_learns_the_bundled_corpus(parser, corpus):
    report = parser.evaluate(*corpus[1])
    assert report.uas > (0.79 if parser.order == 1 else 0.82)
    assert report.las > 0.73
    assert report.uas == parser.score(*corpus[1][:2])
    assert report.calibration is not None
    assert parser.order_ == parser.order
    assert parser.n_dropped_ > 0  # a few arcs of the bundled corpus cross
    assert parser.report_.n_iter == 3 * parser.order
    for heads in parser.predict_heads(corpus[1][0]):
        assert is_tree(tuple(heads))
        assert is_projective(tuple(heads))
        assert heads.count(0) == 1


def test_queries_agree_with_each_other(parser, corpus):
    X = corpus[1][0][:20]
    parses, marginals, best = parser.parse(X), parser.predict_marginals(X), parser.predict_topk(X, 3)
    assert [[(h, name) for h, name, _ in row] for row in parses] == parser.predict(X)
    for sentence, row, tables, trees in zip(X, parses, marginals, best, strict=True):
        for (h, _, p), table in zip(row, tables, strict=True):
            assert sum(table.values()) == pytest.approx(1, abs=1e-3)
            assert table[h] == pytest.approx(p, abs=1e-9)
            assert list(table.values()) == sorted(table.values(), reverse=True)
        probabilities = [p for _, p in trees]
        assert probabilities == sorted(probabilities, reverse=True)
        assert sum(probabilities) <= 1 + 1e-9
        posterior = parser.posterior(sentence)
        found = posterior.marginals()[0].numpy()
        for d, table in enumerate(tables, start=1):  # also for order 2: the distribution has the beliefs as marginals
            for h, p in table.items():
                assert found[h, d] == pytest.approx(p, abs=1e-8)
        tree = np.array([[h for h, _ in trees[0][0]]])
        import torch

        assert posterior.log_prob(torch.from_numpy(tree)).exp().item() == pytest.approx(probabilities[0], rel=1e-6)
    labels = parser.predict_label_probabilities(X, [[h for h, _, _ in row] for row in parses])
    for row, tables in zip(parses, labels, strict=True):
        for (_, name, _), table in zip(row, tables, strict=True):
            assert next(iter(table)) == name
            assert sum(table.values()) == pytest.approx(1, abs=1e-5)


def test_evidence_is_kept(parser, corpus):
    X = corpus[1][0][:5]
    free = parser.predict_heads(X)
    for sentence, heads in zip(X, free, strict=True):
        other = next(h for h in range(1, len(sentence) + 1) if h not in (1, heads[0]))
        (forced,) = parser.predict_heads([sentence], known=[[other] + [None] * (len(sentence) - 1)])
        assert forced[0] == other
        assert is_tree(tuple(forced))
        rest = set(range(len(sentence) + 1)) - {heads[0], 1}
        (without,) = parser.predict_heads([sentence], known=[[rest] + [None] * (len(sentence) - 1)])
        assert without[0] != heads[0]
    (tables,) = parser.predict_marginals([X[0]], known=[free[0]])
    assert all(table == {h: pytest.approx(1)} for h, table in zip(free[0], tables, strict=True))
    with pytest.raises(ImpossibleError, match="no tree agrees"):
        parser.predict([X[0]], known=[[2, 1] + [None] * (len(X[0]) - 2)])
    with pytest.raises(ValueRangeError, match="known, token 0"):
        parser.predict([X[0]], known=[[99] + [None] * (len(X[0]) - 1)])


def test_save_and_load(parser, corpus, tmp_path):
    parser.input_ = {"columns": ["form", "xpos"]}
    parser.save(tmp_path / "parser")
    again = load(tmp_path / "parser")
    assert isinstance(again, DependencyParser)
    assert again.parse(corpus[1][0]) == parser.parse(corpus[1][0])
    assert again.input_ == parser.input_
    assert again.report_.reason == parser.report_.reason
    assert again.get_params() == parser.get_params()
    plain = json.loads((tmp_path / "parser" / "model.json").read_text())
    (tmp_path / "parser" / "model.json").write_text(json.dumps(plain | {"n_tags": None}))
    with pytest.raises(DataError, match="damaged"):
        load(tmp_path / "parser")


@pytest.mark.parametrize("order", [1, 2])
def test_threads_change_nothing(corpus, order):
    X, heads, labels = (part[:60] for part in corpus[0])
    found = []
    for n in (1, 2):
        with num_threads(n):
            model = DependencyParser(order, **SMALL).fit(X, heads, labels)
            found.append((model.weights_, model.parse(X)))
    assert all((a == b).all() for a, b in zip(found[0][0], found[1][0], strict=True))
    assert found[0][1] == found[1][1]


def problem(heads, bits=BITS):
    """Three sentences as a trainer takes them, and random weights."""
    words = [w for s in TAGGED for w, _ in s]
    tags = [t for s in TAGGED for _, t in s]
    offsets = np.array([0, 2, 5, 6])
    coder = TokenCoder.from_columns(words, tags, 1)
    tokens = coder.code(words, tags, tags, offsets)
    rng = np.random.default_rng(0)
    weights = [0.1 * rng.normal(size=1 << bits) for _ in range(4)]
    return tokens, read_heads(heads, offsets), features_of(1, bits), weights


PARTIAL = [[None, 0], [None, None, 0], [None]]


@pytest.mark.parametrize("projective", [True, False])
@pytest.mark.parametrize("heads", [HEADS, PARTIAL, [[None, None], [2, None, None], [0]]])
def test_gradient_of_the_first_order(heads, projective):
    tokens, gold, features, (weights, *_) = problem(heads)
    trainer = FirstOrder(tokens, gold, features.arcs, TreeKind(projective, True), 0.1, active=0.0)
    batch = np.array([2, 0, 1])
    loss, arcs, values = trainer.gradient(batch, weights)
    ids, counts = features.arcs.ids(tokens, arcs)
    gradient = np.zeros(len(weights))
    for row, n, value in zip(ids, counts, values, strict=True):
        np.add.at(gradient, row[:n], -value)
    assert loss > 0
    check(lambda w: trainer.gradient(batch, w)[0], weights, gradient, 1e-6)


@pytest.mark.parametrize("heads", [HEADS, PARTIAL])
def test_gradient_of_the_second_order_at_convergence(heads):
    tokens, gold, features, weights = problem(heads)
    kind = TreeKind(True, True)
    propagation = Propagation(kind, max_iter=300, tolerance=1e-12)
    pruned = TreeScorer(features, propagation, 0.0, weights[0]).pruned(tokens, gold)
    start = np.zeros(1 << BITS, np.float32)
    trainer = SecondOrder(tokens, gold, features, propagation, pruned, 0.1, start, active=0.0)
    batch, model = np.array([2, 0, 1]), weights[1:]
    loss, found, values = trainer.gradient(batch, tuple(model))
    assert loss > 0
    lists = [
        (features.arcs, found.arcs),
        (features.siblings, found.siblings),
        (features.grandparents, found.grandparents),
    ]
    for k, (one, parts) in enumerate(lists):
        ids, counts = one.ids(tokens, parts)
        gradient = np.zeros(1 << BITS)
        for row, n, value in zip(ids, counts, values[k], strict=True):
            np.add.at(gradient, row[:n], -value)

        def at(w, k=k):
            return trainer.gradient(batch, tuple(w if j == k else model[j] for j in range(3)))[0]

        check(at, model[k], gradient, 1e-4)


def check(function, weights, gradient, tolerance):
    """Central differences along some axes and a random direction."""
    rng, step = np.random.default_rng(1), 1e-4
    directions = [np.eye(len(weights))[i] for i in np.argsort(-np.abs(gradient))[:5]]
    directions += [rng.normal(size=len(weights)) / 10]
    for direction in directions:
        slope = (function(weights + step * direction) - function(weights - step * direction)) / (2 * step)
        assert slope == pytest.approx(gradient @ direction, rel=tolerance, abs=tolerance)


def test_what_no_tree_can_have_counts_as_unknown():
    crossing = Gold(np.array([3, 4, 0, 3]), np.array([0, 4]))  # 3 -> 1 and 4 -> 2 cross
    found = crossing.possible(TreeKind(True, True))
    assert found.n_dropped == 1
    assert (found.heads == crossing.heads).sum() == 3
    assert crossing.possible(TreeKind(False, True)).n_dropped == 0
    roots = Gold(np.array([0, 0]), np.array([0, 2]))
    assert roots.possible(TreeKind(True, True)).n_dropped == 1
    assert roots.possible(TreeKind(True, False)).n_dropped == 0
    model = DependencyParser(2, **SMALL, projective=False)
    X = [[("a", "A"), ("b", "B"), ("c", "C"), ("d", "D")]]
    model.fit(X, [[3, 4, 0, 3]])
    assert model.predict_heads(X) == [[3, 4, 0, 3]]
    several = DependencyParser(1, **SMALL, single_root=False, epochs=10).fit([X[0][:2]], [[0, 0]])
    assert several.predict_heads([X[0][:2]]) == [[0, 0]]


@pytest.mark.parametrize("order", [1, 2])
def test_partial_trees_teach(order):
    model = DependencyParser(order, **SMALL, epochs=10, second_epochs=5)
    model.fit(TAGGED * 3, PARTIAL * 3, [["x", None], [None, None, "root"], [None]] * 3)
    assert model.predict_heads(TAGGED)[0] == [2, 0]
    assert model.labels_ is not None
    assert model.predict(TAGGED)[1][2] == (0, "root")


def test_single_words_and_nothing(parser):
    assert [h for h, _ in parser.predict([[("Go", "VB")]])[0]] == [0]
    assert parser.predict([]) == []
    assert parser.predict([[], [("Go", "VB")], []])[0] == []
    assert parser.predict_topk([[], [("Go", "VB")]], 2)[1][0][1] == pytest.approx(1)
    assert parser.predict_marginals([[]]) == [[]]
    assert parser.parse(Corpus.from_sentences([[("Go", "VB")]]))[0][0][2] == pytest.approx(1)


def test_development_data_callbacks_and_stopping(corpus):
    X, heads, labels = (part[:80] for part in corpus[0])
    steps = []
    model = DependencyParser(2, **SMALL, epochs=6, patience=1)
    model.fit(X, heads, labels, dev=corpus[1][:2], callback=lambda step, weights: steps.append(step))
    epochs = [step for step in steps if not math.isnan(step.value)]
    assert all(0.3 < step.dev < 1 for step in epochs)
    assert [step.stage for step in steps[-4:]] == [f"labels, epoch {n} of 4" for n in range(1, 5)]
    assert "kept epoch" in model.report_.reason
    best = max(step.dev for step in epochs if step.stage == "second order")
    assert model.dev_uas_ == best
    assert model.report_.converged == ("no better" in model.report_.reason.split(";")[-1])
    stopped = DependencyParser(2, **SMALL, epochs=6).fit(X, heads, labels, callback=lambda step, weights: True)
    assert stopped.order_ == 1
    assert stopped.report_.n_iter == 1
    assert not stopped.report_.converged
    assert stopped.dev_uas_ is None
    assert stopped.score(*corpus[1][:2]) > 0.3
    assert model.score(*corpus[1][:2]) <= best + 1e-9


def test_patience_is_convergence_and_the_figure_is_that_of_the_last_stage():
    model = DependencyParser(1, **SMALL, epochs=50, patience=1).fit(TAGGED, HEADS, dev=(TAGGED, HEADS))
    assert model.report_.converged
    assert model.dev_uas_ == 1.0
    assert not DependencyParser(1, **SMALL).fit(TAGGED, HEADS).report_.converged
    watch = Watch(None, patience=1)
    for figures in ([0.9, 0.8], [0.5, 0.4]):  # a second stage that is worse
        left = iter(figures)
        watch.run("x", Still(), 1, epochs=2, batch_size=1, seed=(0,), measure=lambda _, left=left: next(left))
    assert watch.dev == 0.5


class Still:
    """A trainer that learns nothing."""

    def step(self, sentences):
        return 0.0

    def end_epoch(self):
        pass

    def average(self):
        return (np.zeros(1, np.float32),)


@pytest.mark.parametrize("tagger", ["hmm", "crf"])
def test_a_stop_is_heeded_while_taggers_and_labels_learn(corpus, tagger):
    X, heads, labels = (part[:60] for part in corpus[0])
    for word in ("tagger 1", "fold 2"):
        seen = []

        def stop(step, weights, seen=seen, word=word):
            seen.append(step.stage)
            return word in step.stage

        model = DependencyParser(2, **SMALL, tagger=tagger).fit(X, heads, labels, callback=stop)
        at = next(n for n, stage in enumerate(seen) if word in stage)
        assert all("tagger 1" not in stage or n <= at + 1 for n, stage in enumerate(seen))
        assert sum("iteration" in stage for stage in seen[at + 1 :]) <= 2  # a tagger that had begun
        assert seen[-2:] == ["arcs", "labels, epoch 1 of 4"]
        assert model.order_ == 1
        assert "stopped by the caller" in model.report_.reason
        assert model.score(*corpus[1][:2]) > 0.2


@pytest.mark.parametrize("tagger", ["hmm", "crf"])
def test_own_taggers(corpus, tagger, tmp_path):
    X, heads, labels = (part[:60] for part in corpus[0])
    model = DependencyParser(1, **SMALL, tagger=tagger).fit(X, heads, labels)
    words = [[word for word, _ in sentence] for sentence in corpus[1][0]]
    model.save(tmp_path / "parser")
    again = load(tmp_path / "parser")
    assert again.parse(words) == model.parse(words) == model.parse(corpus[1][0])
    (tags,) = model.tag(words)
    gold = [tag for sentence in corpus[1][0] for _, tag in sentence]
    assert sum(a == b for a, b in zip(tags, gold, strict=True)) > 0.7 * len(gold)


def test_settings_are_checked_before_anything_is_learned():
    wrong = {
        "max_iter": (0, 2.5, True),
        "tree_every": (0, "2"),
        "tolerance": (-1.0, float("nan")),
        "damping": (1.0, -0.1),
        "threshold": (2, None),
        "epochs": (0, 1.5, True),
        "label_epochs": (0,),
        "rate": (0, float("nan"), float("inf"), "x"),
        "second_rate": (-1,),
        "seed": (-1, 0.5, None),
        "projective": (1, "yes"),
        "single_root": (None,),
        "order": (3, 1.0, True),
        "hash_bits": (40, 16.5),
        "patience": (0,),
    }
    for name, values in wrong.items():
        for value in values:
            learned = []
            model = DependencyParser(**({"order": 1, "tagger": "hmm"} | {name: value}))
            with pytest.raises(ValueRangeError, match=f"^{name} "):
                model.fit(TAGGED, HEADS, callback=lambda step, _, learned=learned: learned.append(step))
            assert not learned
    new = DependencyParser(1, **SMALL)
    with pytest.raises(ValueRangeError, match="at least one head to learn from"):
        new.fit(TAGGED, [[None, None], [None] * 3, [-1]])
    with pytest.raises(ValueRangeError, match="heads of dev"):
        new.fit(TAGGED, HEADS, dev=(TAGGED[:1], [[None, None]]))
    with pytest.raises(ValueRangeError, match="sentence 0, word 1"):
        new.fit(TAGGED, HEADS, dev=(TAGGED[:1], [[99, 0]]))


def test_gold_heads_and_evidence_are_checked():
    parser = DependencyParser(1, **SMALL).fit(TAGGED, HEADS, [["a", "r"], ["b", "a", "r"], ["r"]])
    for wrong in (2.7, "2", True, np.float64(2)):
        with pytest.raises(ValueRangeError, match="whole numbers"):
            parser.score(TAGGED, [[wrong, 0], *HEADS[1:]])
        with pytest.raises(ValueRangeError, match="known, token 0"):
            parser.predict(TAGGED[:1], known=[[wrong, None]])
    for wrong in ("12", {1.0}, {True}, set(), b"1"):
        with pytest.raises(ValueRangeError, match="known, token 0"):
            parser.predict(TAGGED[:1], known=[[wrong, None]])
    assert parser.predict_heads(TAGGED[:1], known=[[np.int64(2), np.int32(-1)]]) == [[2, 0]]
    assert parser.score(TAGGED, [[np.int64(2), 0], *HEADS[1:]]) == parser.score(TAGGED, HEADS)
    for ask in (parser.score, parser.evaluate):
        with pytest.raises(ValueRangeError, match="sentence 0, word 1: its head must be"):
            ask(TAGGED, [[99, 0], *HEADS[1:]])
    found = parser.predict_heads(TAGGED)
    assert parser.score(TAGGED, [[None, found[0][1]], [None] * 3, [-1]]) == 1.0
    assert parser.score(TAGGED, [[None, 1 - found[0][1]], [None] * 3, [None]]) == 0.0
    with pytest.raises(ValueRangeError, match="at least one head to compare"):
        parser.score(TAGGED, [[None, None], [None] * 3, [None]])
    with pytest.raises(ValueRangeError, match="sentence 1, word 2: its head is unknown"):
        parser.evaluate(TAGGED, [[2, 0], [2, None, 0], [0]])
    with pytest.raises(ValueRangeError, match="labels must name every arc"):
        parser.evaluate(TAGGED, HEADS, [["a", "r"], ["b", None, "r"], ["r"]])
    with pytest.raises(ValueRangeError, match="its head is unknown"):
        parser.predict_label_probabilities(TAGGED, [[2, 0], [2, None, 0], [0]])


def test_clear_errors(corpus):
    new = DependencyParser(**SMALL)
    with pytest.raises(NotFittedError):
        new.predict(TAGGED)
    cases = [
        (lambda: new.fit(TAGGED, HEADS[:2]), ShapeError, "heads must have an entry for each of the 3 sentences"),
        (lambda: new.fit(TAGGED, [[2], [2, 3, 0], [0]]), ShapeError, r"heads\[0\] must have an entry"),
        (lambda: new.fit(TAGGED, [[2, 0], [2, 3, 9], [0]]), ValueRangeError, "sentence 1, word 3"),
        (lambda: new.fit(TAGGED, [[2, 1], [2, 3, 0], [0]]), ValueRangeError, "cycle of heads"),
        (lambda: new.fit(TAGGED, [["a", 0], [2, 3, 0], [0]]), ValueRangeError, "whole numbers"),
        (lambda: new.fit([["dogs", "bark"]], [[2, 0]]), ShapeError, "must have tags"),
        (lambda: new.fit([], []), ShapeError, "must have tags"),
        (lambda: new.fit(TAGGED, HEADS, [["a", "b"], ["a", 1, "c"], ["d"]]), ValueRangeError, "labels must be strings"),
        (lambda: DependencyParser(3).fit(TAGGED, HEADS), ValueRangeError, "order must be 1 or 2"),
        (lambda: DependencyParser(rate=0).fit(TAGGED, HEADS), ValueRangeError, "rate must be more than 0"),
        (lambda: DependencyParser(hash_bits=40).fit(TAGGED, HEADS), ValueRangeError, "hash_bits"),
        (lambda: DependencyParser(tagger="x").fit(TAGGED, HEADS), ValueRangeError, "tagger must be"),
        (lambda: DependencyParser(threshold=2).fit(TAGGED, HEADS), ValueRangeError, "threshold"),
        (lambda: new.fit("dogs bark", HEADS), ShapeError, "list of sentences"),
    ]
    for call, kind, message in cases:
        with pytest.raises(kind, match=message):
            call()
    fitted = DependencyParser(1, **SMALL).fit(TAGGED, HEADS)
    before = fitted.weights_[0].copy()
    with pytest.raises(ShapeError, match="1 columns of tags"):
        fitted.predict([["dogs"]])
    with pytest.raises(ValueRangeError, match="cycle"):
        fitted.fit(TAGGED, [[2, 1], [2, 3, 0], [0]])
    assert (fitted.weights_[0] == before).all()
    with pytest.raises(ValueRangeError, match="learned no labels"):
        fitted.predict_label_probabilities(TAGGED, HEADS)
    with pytest.raises(ValueRangeError, match="k must be"):
        fitted.predict_topk(TAGGED, 0)
    assert fitted.evaluate(TAGGED, HEADS).las is None


def test_the_tree_factor_takes_part_in_every_other_iteration():
    """One place for the settings of belief propagation."""
    settings = DependencyParser().get_params()
    assert settings["tree_every"] == Propagation.tree_every == 2
    assert all(settings[name] == getattr(Propagation, name) for name in ("max_iter", "tolerance", "damping"))
