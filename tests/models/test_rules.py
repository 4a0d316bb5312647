"""Taggers under rules: every query given the rules, by enumeration; rules by sentence; errors; answers; commands."""

import inspect
import json
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from tests.commands import run
from tests.models.fitted import WORDS, fitted
from tests.oracle.rules import satisfies
from trelliswork import CRF, HMM, Corpus, FactorialCRF, MRFTagger, evaluate
from trelliswork.answers import Want, ask
from trelliswork.errors import DataError, ImpossibleError, LimitError, ShapeError, ValueRangeError
from trelliswork.rules import AtMostOnce, Before, Count, Forbidden, Length, Pattern

X = [["the", "dog", "ran"], ["the", "cat"], ["a", "dog", "saw", "the", "cat"], ["the", "dog", "saw", "a", "dog"]]
Y = [["D", "N", "V"], ["D", "N"], ["D", "N", "V", "D", "N"], ["D", "N", "V", "D", "N"]]
BIO = [["B-X", "I-X", "O"], ["O", "B-Y"], ["B-X", "I-X", "O", "O", "B-Y"], ["B-X", "I-X", "O", "B-X", "I-X"]]
MODELS = {
    "crf": lambda: CRF("U:%x[0,0]\nB", scheme=None).fit(X, Y),
    "crf by position": lambda: CRF("U:%x[0,0]\nB:%x[0,0]", scheme=None).fit(X, Y),
    "crf of order 2": lambda: CRF("U:%x[0,0]\nB", order=2, scheme=None).fit(X, Y),
    "spans": lambda: CRF("U:%x[0,0]\nB").fit(X, BIO),
    "hmm": lambda: HMM(unknown="symbol", emission_prior=0.5).fit(X, Y),
    "hmm of order 2": lambda: HMM(order=2, unknown="symbol", emission_prior=0.5).fit(X, Y),
    "mrf tagger": lambda: MRFTagger().fit(X, Y),
}
RULES = {
    "spans": (AtMostOnce("X") & Before("X", "Y"), Length("X", 1) | Count("Y", 1), Pattern("O* X .*")),
    "": (AtMostOnce("D", "N", "V") | Pattern("D N V .*"), Before("N", "V") & Count("D", 2), ~Count("N", 1)),
}


@cache
def made(name):
    return MODELS[name]()


@pytest.mark.parametrize("name", MODELS)
def test_queries_under_rules_by_enumeration(name):
    model, sentence = made(name), ["the", "dog", "saw", "cat"]
    labels = model.labels_
    every = [list(row) for row in product(labels, repeat=4)]
    p = np.exp(model.log_prob([sentence] * len(every), every))
    for rule in RULES.get(name, RULES[""]):
        good = np.array([satisfies(rule, row) for row in every])
        share, q = p[good].sum(), np.where(good, p, 0) / p[good].sum()
        best = np.argsort(-q, kind="stable")
        assert_allclose(model.rules_probability([sentence], rule), share, rtol=1e-5)
        assert_allclose(q[every.index(model.predict([sentence], rules=rule)[0])], q[best[0]], 1e-5)
        (rows,) = model.predict_marginals([sentence], rules=rule)
        for t, row in enumerate(rows):
            want = {label: sum(q[n] for n, y in enumerate(every) if y[t] == label) for label in labels}
            assert_allclose([row[label] for label in labels], [want[label] for label in labels], 1e-4, 1e-6)
        (found,) = model.predict_topk([sentence], 3, rules=rule)
        assert_allclose([q[every.index(labels)] for labels, _ in found], q[best[:3]], 1e-4, 1e-7)
        assert_allclose([p for _, p in found], q[best[:3]], 1e-4, 1e-7)
        some = [0, int(best[0]), len(every) // 2]
        log_p = model.log_prob([sentence] * 3, [every[n] for n in some], rules=rule)
        assert_allclose(np.exp(log_p), q[some], 1e-4, 1e-7)
        distribution = model.posterior(sentence, rules=rule)
        assert_allclose(distribution.entropy().item(), -(q[q > 0] * np.log(q[q > 0])).sum(), 1e-3, 1e-5)
        (mode,) = distribution.named(distribution.mode)
        assert_allclose(q[every.index(mode)], q[best[0]], 1e-5)
        draws = distribution.named(distribution.sample(400, generator=torch.Generator().manual_seed(0)))
        assert all(satisfies(rule, row) for (row,) in draws)
        seen = np.array([sum(row == every[n] for (row,) in draws) for n in best[:3]]) / 400
        assert_allclose(seen, q[best[:3]], atol=5 * 0.5 / 400**0.5)
        known = [None, every[best[1]][1], None, None]
        agree = good & np.array([row[1] == known[1] for row in every])
        (found,) = model.predict([sentence], rules=rule, known=[known])
        assert_allclose(p[every.index(found)], p[agree].max(), 1e-5)


QUERIES = ("predict", "predict_topk", "predict_marginals", "predict_spans", "posterior", "log_prob", "answer")


@pytest.mark.parametrize("cls", [CRF, HMM, MRFTagger, FactorialCRF])
@pytest.mark.parametrize("query", QUERIES)
def test_every_query_of_a_tagger_takes_rules(cls, query):
    """Labelings are drawn from ``posterior(..., rules=...)``; ``HMM.sample`` draws words, under rules about words."""
    parameter = inspect.signature(getattr(cls, query)).parameters["rules"]
    assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
    assert parameter.default is None
    assert "rules" in inspect.signature(cls.rules_probability).parameters
    assert "rules" in inspect.signature(HMM.sample).parameters


def test_spans_under_rules_by_enumeration():
    model, sentence, rule = made("spans"), ["the", "dog", "saw", "dog"], Length("X", 1)
    every = [list(row) for row in product(model.labels_, repeat=4)]
    p = np.exp(model.log_prob([sentence] * len(every), every, rules=rule))
    (found,) = model.predict_spans([sentence], rules=rule)
    from trelliswork.data.schemes import spans

    for span, share in found:
        assert_allclose(share, sum(q for row, q in zip(every, p, strict=True) if span in spans(row)), 1e-4, 1e-6)
    assert rule.holds(model.predict([sentence], rules=rule)[0])


@pytest.mark.parametrize("name", ["CRF", "HMM", "MRFTagger"])
def test_rules_of_many_labels(name):
    model = fitted(name)
    rule = AtMostOnce("IN", "JJ", "RB", "VBD", "PRP") & Before("DT", ".")
    plain, ruled = model.predict(WORDS), model.predict(WORDS, rules=rule)
    assert not all(map(rule.holds, plain))
    assert all(map(rule.holds, ruled))
    same = [rule.holds(row) for row in plain]
    assert [row for row, ok in zip(ruled, same, strict=True) if ok] == [
        r for r, ok in zip(plain, same, strict=True) if ok
    ]
    each = [rule if n % 2 else None for n in range(len(WORDS))]
    mixed = model.predict(WORDS, rules=each)
    assert mixed == [ruled[n] if n % 2 else plain[n] for n in range(len(WORDS))]
    assert list(model._predict_flat(WORDS, rules=repr(rule))) == [label for row in ruled for label in row]


def test_what_cannot_be_is_an_error():
    model = made("crf")
    with pytest.raises(
        ImpossibleError, match=r'sentence 1: no labeling of its 2 words satisfies Count\("D", minimum=3\)'
    ):
        model.predict(X[:2], rules=[None, Count("D", 3)])
    known = [["D" if n == 2 else None] * len(x) for n, x in enumerate(X)]
    with pytest.raises(ImpossibleError, match=r"sentence 2: no labeling of its 5 words satisfies Count") as caught:
        model.predict_marginals(X, rules=Count("D", maximum=0), known=known)
    assert caught.value.sentence == 2
    with pytest.raises(ValueRangeError, match="'Dt' is not one of the labels: did you mean 'D'"):
        model.predict(X, rules=AtMostOnce("Dt"))
    with pytest.raises(ShapeError, match="a list of 4, got 1"):
        model.predict(X, rules=[AtMostOnce("D")])
    with pytest.raises(ValueRangeError, match="a rule is a value of"):
        model.predict(X, rules=3)
    with pytest.raises(ValueRangeError, match="pass y"):
        made("hmm").log_prob(X, rules=AtMostOnce("D"))
    with pytest.raises(ValueRangeError, match="rules are about the labels of taggers"):
        ask(fitted("KneserNey"), WORDS, rules=AtMostOnce("D"))
    assert made("crf").rules_probability([], AtMostOnce("D")).shape == (0,)


def test_answers_have_the_probability_of_the_rules():
    model, rule = made("crf"), AtMostOnce("D")
    want = Want(marginals=True, log_prob=True, topk=2, entropy=True)
    answers = ask(model, X, want, rules=rule)
    assert_allclose([a.rules_probability for a in answers], model.rules_probability(X, rule))
    assert [a.value for a in answers] == model.predict(X, rules=rule)
    assert_allclose([a.log_prob for a in answers], np.log([a.alternatives[0][1] for a in answers]), 1e-4)
    assert answers[0].to_dict()["rules_probability"] == answers[0].rules_probability
    assert answers[0].kind == "exact"
    assert model.answer(X, rules=rule)[3].rules_probability < 0.5
    assert evaluate(model, X, Y, rules=rule).accuracy < evaluate(model, X, Y).accuracy == 1


LAYER_RULES = {"pos": AtMostOnce("D", "N") | Count("V", 2), "chunk": Length("X", 1) & Before("X", "Y")}


def layered(engine):
    options = {"sweep_tol": 1e-5, "max_sweeps": 1000}
    model = FactorialCRF(("pos", "chunk"), features="U:%x[0,0]", engine=engine, l2=0.3, tol=1e-3, options=options)
    return model.fit(X, {"pos": Y, "chunk": BIO})


@pytest.mark.parametrize("names", [("pos", "chunk"), ("chunk",)])
def test_rules_of_layers_by_enumeration(names):
    model, sentence, rules = layered("exact"), ["the", "dog", "saw"], {name: LAYER_RULES[name] for name in names}
    every = [dict(zip(model.layers, map(list, rows), strict=True)) for rows in product(
        *(product(labels, repeat=3) for labels in model.labels_.values()))]  # fmt: skip
    y = {name: [row[name] for row in every] for name in model.layers}
    p = np.exp(model.log_prob([sentence] * len(every), y))
    good = np.array([all(satisfies(rules[name], row[name]) for name in rules) for row in every])
    q = np.where(good, p, 0) / p[good].sum()
    best = np.argsort(-q, kind="stable")[:3]
    assert_allclose(model.rules_probability([sentence], rules), p[good].sum(), 1e-6)
    found = model._predict_layers([sentence], rules=rules)
    assert_allclose(q[every.index({name: rows[0] for name, rows in found.items()})], q[best[0]], 1e-6)
    for name, ((*rows,),) in model.predict_marginals([sentence], rules=rules).items():
        for t, row in enumerate(rows):
            want = {label: sum(q[n] for n, one in enumerate(every) if one[name][t] == label) for label in row}
            assert_allclose(list(row.values()), list(want.values()), 1e-5, 1e-7)
    (found,) = model.predict_topk([sentence], 3, rules=rules)
    assert_allclose([share for _, share in found], q[best], 1e-5)
    some = {name: [rows[best[1]], rows[int(np.flatnonzero(~good)[0])]] for name, rows in y.items()}
    assert_allclose(np.exp(model.log_prob([sentence] * 2, some, rules=rules)), [q[best[1]], 0], 1e-6)
    graph, plain = (model.posterior(sentence, engine="exact", **given) for given in ({"rules": rules}, {}))
    assert_allclose((graph.log_partition() - plain.log_partition()).exp().item(), p[good].sum(), 1e-5)
    assert_allclose(graph.entropy().item(), -(q[q > 0] * np.log(q[q > 0])).sum(), 1e-4)
    assert model.posterior(["dog"], rules=rules, engine="exact").log_partition().item() > -np.inf


@pytest.mark.parametrize("engine", ["bp", "structured_mean_field"])
def test_rules_of_layers_in_engines_that_are_not_exact(engine, monkeypatch):
    model, exact = layered(engine), layered("exact")
    exact._learned = replace(exact._learned, weights=model._learned.weights)
    p = model.rules_probability(X, LAYER_RULES)
    assert_allclose(p, exact.rules_probability(X, LAYER_RULES), atol=0.1)
    for name, spans_of in model.predict_spans(X, rules=LAYER_RULES).items():
        assert name == "chunk"
        assert all(0 < share <= 1 for row in spans_of for _, share in row)
    for limit in (5000, 1):  # exact decoding, and coordinate ascent
        monkeypatch.setattr("trelliswork.inference.factorial.product.MAX_DENSE", limit)
        for known in (None, {"pos": [["N", None, None], *([None] * len(x) for x in X[1:])]}):
            found = model._predict_layers(X, rules=LAYER_RULES, known=known)
            for name, rule in LAYER_RULES.items():
                assert all(map(rule.holds, found[name]))
    each = {"chunk": [None, Count("Y", 2), None, "AtMostOnce(X)"]}
    found = model._predict_layers(X, rules=each, decoding="viterbi")["chunk"]
    assert [Count("Y", 2).holds(found[1]), AtMostOnce("X").holds(found[3])] == [True, True]


def test_answers_and_errors_with_rules_of_layers():
    model = layered("bp")
    want = Want(marginals=True, outcomes=True, spans=True, log_prob=True, entropy=True)
    answers = ask(model, X, want, rules=LAYER_RULES)
    assert_allclose([a.rules_probability for a in answers], model.rules_probability(X, LAYER_RULES))
    assert all(LAYER_RULES["chunk"].holds(a.value["chunk"]) for a in answers)
    assert evaluate(model, X, {"pos": Y, "chunk": BIO}, rules=LAYER_RULES).joint_accuracy < 1
    for decoding in ("mbr", "mbr-span"):
        assert len(model.predict(X, decoding=decoding, rules={"chunk": Length("X", 1)})) == 4
    hard = {"pos": Count("D", 2)}
    for query in (model.predict, model.predict_marginals):
        with pytest.raises(ImpossibleError, match="sentence 1: no labeling of its 2 words satisfies Count"):
            query(X, rules=hard)
    with pytest.raises(ValueRangeError, match="rules must be a dict by layer, of the layers pos, chunk"):
        model.predict(X, rules=AtMostOnce("D"))
    with pytest.raises(ValueRangeError, match="no layer 'tags'"):
        model.predict(X, rules={"tags": AtMostOnce("D")})


def test_commands_with_rules(tmp_path):
    model = CRF("U:%x[0,0]\nB", scheme=None).fit(X, Y)
    model.input_ = {"format": "columns", "columns": [0], "label": 1, "separator": None}
    model.save(tmp_path / "tagger")
    rows = ["".join(f"{w} {t}\n" for w, t in zip(*pair, strict=True)) for pair in zip(X, Y, strict=True)]
    (tmp_path / "gold").write_text("\n".join(rows))
    (tmp_path / "words").write_text("\n".join("".join(f"{w}\n" for w in x) for x in X))
    (tmp_path / "fields.rules").write_text("# fields\nAtMostOnce(D)\nBefore(N, V)\n")
    rule = AtMostOnce("D") & Before("N", "V")
    done = run("tag", "tagger", "words", "--rules", "fields.rules", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = [[line.split()[1] for line in part.splitlines()] for part in done.stdout.strip().split("\n\n")]
    assert found == model.predict(X, rules=rule)
    done = run("tag", "tagger", "words", "--rules", "fields.rules", "--output", "jsonl", cwd=tmp_path)
    p = [json.loads(line)["rules_probability"] for line in done.stdout.splitlines()]
    assert_allclose(p, model.rules_probability(X, rule), rtol=1e-5)
    done = run("evaluate", "tagger", "gold", "--rules", "fields.rules", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["accuracy"] < 1
    (tmp_path / "bad.rules").write_text("AtMostOnce(D)\nAtMostOnce(Nn)\n")
    done = run("tag", "tagger", "words", "--rules", "bad.rules", cwd=tmp_path)
    assert done.returncode == 1
    said = " ".join(done.stderr.split())
    assert "bad.rules: AtMostOnce(\"Nn\"): 'Nn' is not one of the labels: did you mean 'N'" in said
    with_layers = layered("bp")
    with_layers.input_ = {"format": "columns", "columns": [0], "label": [1, 2], "separator": None}
    with_layers.save(tmp_path / "layers")
    (tmp_path / "chunk.rules").write_text("Length(X, 1)\n")
    done = run("tag", "layers", "words", "--rules", "chunk=chunk.rules", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "I-X" not in done.stdout
    done = run("tag", "layers", "words", "--rules", "chunk.rules", cwd=tmp_path)
    assert done.returncode == 2
    assert "must be LAYER=FILE, such as pos=fields.rules" in " ".join(done.stderr.split())
    done = run("evaluate", "tagger", "gold", "--rules", "bad.rules", cwd=tmp_path)
    assert done.returncode == 1
    assert "did you mean 'N'" in " ".join(done.stderr.split())
    cycle = ("DNV", "NVD", "VDN")
    thirty = [f"Count({label}, maximum={n})" for label in "DNV" for n in (4, 5)]
    thirty += [
        f"~Pattern('.* {' '.join(three)} .*')" for three in product("DNV", repeat=3) if "".join(three) not in cycle
    ]
    assert len(thirty) == 30
    (tmp_path / "thirty.rules").write_text("\n".join(thirty))
    done = run("tag", "tagger", "words", "--rules", "thirty.rules", cwd=tmp_path)
    found = ["".join(line.split()[1] for line in part.splitlines()) for part in done.stdout.strip().split("\n\n")]
    assert len(found) == len(X)
    assert all(row[t : t + 3] in cycle for row in found for t in range(len(row) - 2))
    (tmp_path / "hard.rules").write_text("Count(D, 3)\n")
    done = run("tag", "tagger", "words", "--rules", "hard.rules", cwd=tmp_path)
    assert done.returncode == 1
    assert "Count(" in done.stderr


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("scheme", [None, "auto"])
def test_training_under_rules_normalizes_over_what_they_allow(order, scheme):
    """The value is that of the log-probabilities given the rules, and least at the weights."""
    y, rule = (Y, Count("D", 1, 2) & (Forbidden("V", "D") | Count("V", 1))) if scheme is None else (
        BIO, Length("X", maximum=2) & Before("X", "Y"))  # fmt: skip
    rng = np.random.default_rng(0)
    model = CRF("U:%x[0,0]\nB", scheme=scheme, l2=0.1, tol=1e-9, order=order)
    free = model.fit(X, y)._learned.weights
    assert "kept iteration" in model.fit(X, y, rules=rule, dev=(X, y)).report_.reason
    model.fit(X, y, rules=rule)

    def value():
        return 0.1 * (model._learned.weights**2).sum() - model.log_prob(X, y, rules=rule).sum()

    least = value()
    assert_allclose(model.report_.value, least, 1e-5)
    best = model._learned.weights
    for other in [free, *(best + rng.normal(0, 0.01, (4, len(best))))]:
        model._learned = replace(model._learned, weights=other)
        assert value() > least


def test_sentences_that_break_the_rules_are_named_or_left_out():
    settings = {"scheme": None, "l2": 0.1, "tol": 1e-9}
    with pytest.raises(DataError, match=r'sentence 2: its labels break Before\("D", "V"\)') as caught:
        CRF("U:%x[0,0]\nB", **settings).fit(X, Y, rules=Count("D", 1) & Before("D", "V"))
    assert caught.value.sentence == 2
    weights = np.arange(1.0, 5.0)
    for given in (X, Corpus.from_sentences(X), [[(word, word[0]) for word in x] for x in X]):
        left, right = (CRF("U:%x[0,0]\nB", **settings) for _ in range(2))
        left.fit(given, Y, rules="Before(D, V)", on_violation="skip", sample_weight=weights)
        few = given[:2] if isinstance(given, list) else X[:2]
        right.fit(few, Y[:2], rules="Before(D, V)", sample_weight=weights[:2])
        assert (left._learned.weights == right._learned.weights).all()
        assert left.labels_ == right.labels_


@pytest.mark.parametrize(("more", "message"), [
    ({"algorithm": "sgd"}, "needs algorithm='lbfgs'"),
    ({"features": "U:%x[0,0]\nB:%x[0,0]"}, "neither B templates with columns nor vectors"),
])  # fmt: skip
def test_what_training_under_rules_does_not_support(more, message):
    with pytest.raises(ValueRangeError, match=message):
        CRF(**{"features": "U:%x[0,0]\nB", "scheme": None, **more}).fit(X, Y, rules=Count("D", 1))


def test_further_errors_of_training_under_rules():
    model = CRF("U:%x[0,0]\nB", scheme=None)
    with pytest.raises(ValueRangeError, match="needs one label per token"):
        model.fit(X, [*Y[:3], [None, *Y[3][1:]]], rules=Count("D", 1))
    with pytest.raises(ValueRangeError, match="on_violation must be"):
        model.fit(X, Y, rules=Count("D", 1), on_violation="ignore")
    labels = [f"L{n}" for n in range(12)]
    with pytest.raises(LimitError, match=r"these 12 need an automaton of more than 5,000 states\. Train under fewer"):
        model.fit([labels], [labels], rules=AtMostOnce(*labels))
