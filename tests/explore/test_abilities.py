"""Answers of each family of models; evidence obeys the laws of probability."""

import copy

import pytest

from tests.explore.conftest import MAKERS

ABILITIES = {
    "crf": {"tag"},
    "chunker": {"tag"},
    "ready": {"tag"},
    "hmm": {"tag", "fill", "next", "score", "sample"},
    "hmm-2": {"tag", "fill", "next", "score", "sample"},
    "numbers": {"tag", "fill", "next", "score", "sample"},
    "mrf-tagger": {"tag"},
    "factorial-crf": {"tag"},
    "parser": {"parse"},
    "parser-2": {"parse"},
    "pcfg": {"parse", "fill", "score", "sample"},
    "mrf-lm": {"fill", "score", "sample", "neighbors"},
    "hmm-lm": {"tag", "fill", "next", "score", "sample"},
    "kneser-ney": {"fill", "next", "score", "sample"},
    "lbl": {"fill", "next", "score", "sample", "neighbors"},
}
EXAMPLES = {"ready": "w=A w=cat|bias w=.", "numbers": "0 1 2"}
CHAINS = ["crf", "chunker", "hmm", "hmm-2", "mrf-tagger"]


def post(client, ability, body):
    response = client.post(f"/api/{ability}", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def example(client, name):
    return EXAMPLES.get(name) or client.get("/api/model").json()["input"]["example"]


@pytest.mark.parametrize("name", MAKERS)
def test_each_model_offers_its_abilities_and_answers(client, name):
    page = client(name)
    facts = page.get("/api/model").json()
    assert set(facts["abilities"]) == ABILITIES[name]
    sentence = example(page, name)
    words = sentence.split()
    bodies = {
        "tag": {"sentence": sentence},
        "parse": {"sentence": sentence, "k": 3},
        "fill": {"sentence": f"_ {' '.join(words[1:])}", "n": 4},
        "next": {"sentence": " ".join(words[:2]), "n": 4},
        "score": {"text": f"{sentence}\n\n{sentence}"},
        "sample": {"n": 3, "seed": 5, "max_length": 12},
        "neighbors": {"word": facts.get("word"), "n": 4},
    }
    for ability in facts["abilities"]:
        answer = post(page, ability, bodies[ability])
        assert answer == post(page, ability, bodies[ability])  # the same request, the same answer
        assert "notes" not in answer or all(isinstance(note, str) for note in answer["notes"])


@pytest.mark.parametrize("name", ["crf", "chunker", "ready", "hmm", "hmm-2", "numbers", "mrf-tagger"])
def test_a_chain_shows_the_posterior_of_the_model(client, model, name):
    sentence = example(client(name), name)
    answer = post(client(name), "tag", {"sentence": sentence, "k": 2})
    layer = answer["layers"][0]
    typed = sentence.split()
    tokens = {
        "chunker": [tuple(word.rsplit("/", 1)) for word in typed],
        "ready": [word.split("|") for word in typed],
        "numbers": [int(word) if word.isdigit() else word for word in typed],
    }.get(name, typed)
    assert layer["path"] == model(name).predict([tokens])[0]
    want = model(name).predict_marginals([tokens])[0]
    for row, marginals in zip(want, layer["marginals"], strict=True):
        assert [row[label] for label in layer["labels"]] == pytest.approx(marginals, abs=1e-5)
    assert answer["best"][0]["labels"] == layer["path"]
    assert layer["before"] is None
    assert "evidence" not in answer


@pytest.mark.parametrize("name", CHAINS)
def test_forced_and_forbidden_labels_change_the_posterior(client, name):
    page = client(name)
    sentence = example(page, name)
    before = post(page, "tag", {"sentence": sentence})["layers"][0]
    t = min(range(len(before["path"])), key=lambda t: max(before["marginals"][t]))
    p, label = sorted(zip(before["marginals"][t], before["labels"], strict=True))[-2]
    forced = post(page, "tag", {"sentence": sentence, "evidence": [{"token": t, "force": label}]})
    layer = forced["layers"][0]
    assert forced["evidence"]["p"] == pytest.approx(p, rel=1e-3)
    assert forced["evidence"]["kind"] == "exact"
    assert layer["path"][t] == label
    assert layer["marginals"][t][layer["labels"].index(label)] == pytest.approx(1, abs=1e-5)
    assert layer["before"]["path"] == before["path"]
    assert len(forced["entropy"]) == 2
    assert all(one["labels"][t] == label for one in forced["best"])
    best = before["path"][t]
    out = post(page, "tag", {"sentence": sentence, "evidence": [{"token": t, "forbid": [best]}]})
    largest = before["marginals"][t][before["labels"].index(best)]
    assert out["evidence"]["p"] == pytest.approx(1 - largest, rel=1e-3)
    assert out["layers"][0]["path"][t] != best
    # p(a, b) = p(a) p(b | a)
    s = t - 1 if t else t + 1
    other = layer["path"][s]
    both = [{"token": t, "force": label}, {"token": s, "force": other}]
    joint = post(page, "tag", {"sentence": sentence, "evidence": both})["evidence"]["p"]
    assert joint == pytest.approx(p * layer["marginals"][s][layer["labels"].index(other)], rel=1e-3)


def test_evidence_about_one_layer_changes_the_other(client):
    page = client("factorial-crf")
    sentence = example(page, "factorial-crf")
    before = post(page, "tag", {"sentence": sentence})
    assert [layer["name"] for layer in before["layers"]] == ["pos", "chunk"]
    assert before["kind"] == "estimate"
    chunk = before["layers"][1]
    p, label = sorted(zip(chunk["marginals"][1], chunk["labels"], strict=True))[-2]
    evidence = [{"token": 1, "layer": "chunk", "force": label}]
    after = post(page, "tag", {"sentence": sentence, "evidence": evidence})
    assert after["layers"][1]["path"][1] == label
    assert after["layers"][0]["marginals"] != after["layers"][0]["before"]["marginals"]
    assert after["evidence"]["p"] == pytest.approx(p, rel=0.1)
    assert after["evidence"]["kind"] == "estimate"


@pytest.mark.parametrize(("name", "kind"), [("parser", "exact"), ("parser-2", "estimate")])
def test_forced_heads(client, name, kind):
    page = client(name)
    sentence = example(page, name)
    before = post(page, "parse", {"sentence": sentence, "k": 3})
    assert before["kind"] == kind
    assert len(before["tags"]) == len(before["words"])
    for row in before["heads"]:
        assert sum(p for _, p in row) == pytest.approx(1, abs=0.05)
    t = min(range(len(before["arcs"])), key=lambda t: before["arcs"][t]["p"])
    head, p = next((h, p) for h, p in before["heads"][t] if h != before["arcs"][t]["head"])
    after = post(page, "parse", {"sentence": sentence, "k": 3, "evidence": [{"token": t, "force": head}]})
    assert after["arcs"][t]["head"] == head
    assert after["before"]["arcs"] == before["arcs"]
    assert after["evidence"]["p"] == pytest.approx(p, rel=1e-3)
    assert all(tree["arcs"][t][0] == head for tree in after["best"])
    others = [{"token": t, "forbid": [before["arcs"][t]["head"]]}]
    assert post(page, "parse", {"sentence": sentence, "evidence": others})["arcs"][t]["head"] != others[0]["forbid"][0]


def spans_of(node):
    return {(node["first"], node["last"])}.union(*map(spans_of, node.get("children", [])))


def test_forced_and_forbidden_spans_of_a_grammar(client):
    page = client("pcfg")
    sentence = example(page, "pcfg")
    before = post(page, "parse", {"sentence": sentence, "k": 3})
    n = len(sentence.split())
    assert before["tree"]["first"] == 0
    assert before["tree"]["last"] == n - 1
    tree = spans_of(before["tree"])
    span = next(s for s in before["spans"] if (s["first"], s["last"]) not in tree)
    place = {"first": span["first"], "last": span["last"]}
    after = post(page, "parse", {"sentence": sentence, "evidence": [{**place, "force": True}]})
    assert after["evidence"]["p"] == pytest.approx(span["p"], rel=1e-3)
    assert (span["first"], span["last"]) in spans_of(after["tree"])
    assert all((span["first"], span["last"]) in spans_of(one["tree"]) for one in after["best"])
    out = post(page, "parse", {"sentence": sentence, "evidence": [{**place, "force": False}]})
    assert out["evidence"]["p"] == pytest.approx(1 - span["p"], rel=1e-3)
    crossing = [{"first": 0, "last": 2, "force": True}, {"first": 1, "last": 3, "force": True}]
    response = page.post("/api/parse", json={"sentence": sentence, "evidence": crossing})
    assert response.status_code == 400
    assert "together" in response.json()["expected"]


def test_a_grammar_with_too_many_rules_has_a_tree_but_no_evidence(model, monkeypatch):
    from tests.explore.conftest import client_of

    monkeypatch.setattr("trelliswork.models.pcfg.MAX_RULES", 1)
    page = client_of(model("pcfg"))
    assert not page.get("/api/model").json()["evidence"]
    answer = post(page, "parse", {"sentence": "A cat ran ."})
    assert len(spans_of(answer["tree"])) == 7
    refused = page.post("/api/parse", json={"sentence": "A b c", "evidence": [{"first": 0, "last": 1, "force": True}]})
    assert refused.status_code == 400


def test_language_models_answer_as_the_library_does(client, model):
    lm = client("hmm-lm")
    answer = post(lm, "fill", {"sentence": "The _ _ .", "n": 3})
    assert [blank["token"] for blank in answer["blanks"]] == [1, 2]
    for blank, want in zip(answer["blanks"], model("hmm-lm").fill(["The", None, None, "."], 3), strict=True):
        assert [w["word"] for w in blank["words"]] == [word for word, _ in want]
    assert lm.get("/api/model").json()["any_word"]
    scores = post(lm, "score", {"text": "The cat .\nThe _ ."})["sentences"]
    assert scores[1]["log_p"] > scores[0]["log_p"]  # any word is more probable than one word
    field = client("mrf-lm")
    one = post(field, "fill", {"sentence": "The _ .", "n": 3})["blanks"][0]["words"]
    assert [w["word"] for w in one] == [word for word, _ in model("mrf-lm").fill("The ___ .", 3)[0]]
    assert len(post(field, "fill", {"sentence": "The _ _ .", "n": 3})["blanks"]) == 2
    assert post(field, "score", {"text": "The cat ."})["kind"] == "lower"
    ngrams = post(client("kneser-ney"), "next", {"sentence": "The", "n": 5})
    assert len(ngrams["next"]) == 5
    assert not {"<s>", "</s>"} & {w["word"] for w in ngrams["next"]}
    assert ngrams["end"] == pytest.approx(model("kneser-ney").next_distribution(["The"])[0], rel=1e-5)
    word = client("lbl").get("/api/model").json()["word"]
    near = post(client("lbl"), "neighbors", {"word": word, "n": 5})["neighbors"]
    assert [w["cosine"] for w in near] == sorted((w["cosine"] for w in near), reverse=True)


def test_log_evidence_within_a_beam_is_a_lower_bound(model):
    from tests.explore.conftest import client_of

    tagger = model("hmm")
    exact = post(client_of(tagger), "score", {"text": "The cat ."})
    assert exact["kind"] == tagger.evidence_kind == "exact"
    pruned = copy.copy(tagger).set_params(beam="size=1")
    within = post(client_of(pruned), "score", {"text": "The cat ."})
    assert within["kind"] == "lower"
    assert within["sentences"][0]["log_p"] <= exact["sentences"][0]["log_p"]


def test_evidence_that_the_lexicon_excludes_is_used_and_has_probability_zero(client):
    page = client("hmm")
    answer = post(page, "tag", {"sentence": "the cat .", "evidence": [{"token": 0, "force": "VBD"}]})
    assert answer["layers"][0]["path"][0] == "VBD"
    assert answer["evidence"] == {"p": 0.0, "log_p": None, "kind": "exact"}
