"""Answers of the page for each family of models; evidence obeys the laws of probability."""

import copy
import warnings

import pytest

from tests.serve.families import MAKERS, Page

ABILITIES = {
    "crf": {"tag", "posterior"},
    "chunker": {"tag", "posterior"},
    "ready": {"tag", "posterior"},
    "hmm": {"tag", "posterior", "fill", "next", "score", "sample"},
    "hmm-2": {"tag", "posterior", "fill", "next", "score", "sample"},
    "numbers": {"tag", "posterior", "fill", "next", "score", "sample"},
    "mrf-tagger": {"tag", "posterior"},
    "factorial-crf": {"tag", "posterior"},
    "parser": {"parse", "posterior"},
    "parser-2": {"parse", "posterior"},
    "pcfg": {"parse", "posterior", "fill", "score", "sample"},
    "mrf-lm": {"fill", "score", "sample", "neighbors"},
    "hmm-lm": {"posterior", "fill", "next", "score", "sample"},
    "kneser-ney": {"fill", "next", "score", "sample"},
    "log-bilinear": {"fill", "next", "score", "sample", "neighbors"},
}
EXAMPLES = {"ready": [["w=A"], ["w=cat", "bias"], ["w=."]], "numbers": [0, 1, 2]}
CHAINS = ["crf", "chunker", "hmm", "hmm-2", "mrf-tagger"]


def example(page, name):
    """Return the sentence that the page offers, as a request has it."""
    facts = page.facts()
    form, kept = facts["form"], facts["example"]
    if form["kind"] == "words":
        kept = [token if isinstance(token, str) else token[0] for token in kept]
    return EXAMPLES.get(name) or [token[: form["columns"]] if form["kind"] == "columns" else token for token in kept]


def evidence(n, *entries):
    """Return what is known by token; entries are a token and its values."""
    rows = [None] * n
    for t, values in entries:
        rows[t] = values
    return rows


@pytest.mark.parametrize("name", MAKERS)
def test_each_model_offers_its_abilities_and_answers(page, name):
    client = page(name)
    facts = client.facts()
    assert set(facts["abilities"]) == ABILITIES[name]
    sentence = example(client, name)
    requests = {
        "fill": {"sentence": [None, *sentence[1:]], "n": 4},
        "next": {"sentence": sentence[:2], "n": 4},
        "sample": {"n": 3, "seed": 5, "max_length": 12},
        "neighbors": {"sentence": [facts["word"]], "n": 4},
    }
    for ability in facts["abilities"]:
        request = requests.get(ability, {"sentence": sentence})
        answer = client.ask(ability, **request)
        assert answer == client.ask(ability, **request)  # the same request, the same answer
        assert all(isinstance(note, str) for note in answer.get("notes", []))


@pytest.mark.parametrize("name", ["crf", "chunker", "ready", "hmm", "hmm-2", "numbers", "mrf-tagger"])
def test_a_chain_shows_the_posterior_of_the_model(page, model, name):
    sentence = example(page(name), name)
    answer = page(name).ask("posterior", sentence, k=2)
    tokens = [tuple(token) for token in sentence] if name == "chunker" else sentence
    assert answer["labels"] == model(name).predict([tokens])[0]
    for want, got in zip(model(name).predict_marginals([tokens])[0], answer["marginals"], strict=True):
        assert {label: p for label, p in want.items() if p >= 1e-6} == got
    assert answer["labelings"][0]["labels"] == answer["labels"]
    assert len(answer["labelings"]) == 2
    assert "evidence" not in answer


@pytest.mark.parametrize("name", CHAINS)
def test_forced_and_forbidden_labels_change_the_posterior(page, model, name):
    client = page(name)
    sentence = example(client, name)
    n, labels = len(sentence), list(model(name).labels_)
    before = client.ask("posterior", sentence)
    path, rows = before["labels"], before["marginals"]
    t = min(range(n), key=lambda t: max(rows[t].values()))
    label, p = sorted(rows[t].items(), key=lambda one: one[1])[-2]
    forced = client.ask("posterior", sentence, evidence=evidence(n, (t, [label])))
    assert forced["evidence"]["p"] == pytest.approx(p, rel=1e-5)
    assert forced["evidence"]["kind"] == "exact"
    assert forced["labels"][t] == label
    assert forced["marginals"][t][label] == pytest.approx(1, abs=1e-6)
    assert forced["entropy"] != before["entropy"]
    assert all(one["labels"][t] == label for one in forced["labelings"])
    others = [one for one in labels if one != path[t]]
    out = client.ask("posterior", sentence, evidence=evidence(n, (t, others)))
    assert out["evidence"]["p"] == pytest.approx(1 - rows[t][path[t]], rel=1e-4)
    assert out["labels"][t] != path[t]
    # p(a, b) = p(a) p(b | a)
    s = t - 1 if t else t + 1
    other = forced["labels"][s]
    both = evidence(n, (t, [label]), (s, [other]))
    joint = client.ask("posterior", sentence, evidence=both)["evidence"]["p"]
    assert joint == pytest.approx(p * forced["marginals"][s][other], rel=1e-5)


def test_evidence_about_one_layer_changes_the_other(page):
    client = page("factorial-crf")
    sentence = example(client, "factorial-crf")
    before = client.ask("posterior", sentence)
    assert list(before["labels"]) == ["pos", "chunk"]
    assert before["kind"] == "estimate"
    label, p = sorted(before["marginals"]["chunk"][1].items(), key=lambda one: one[1])[-2]
    known = {"chunk": evidence(len(sentence), (1, [label]))}
    after = client.ask("posterior", sentence, evidence=known)
    assert after["labels"]["chunk"][1] == label
    assert after["marginals"]["pos"] != before["marginals"]["pos"]
    assert after["evidence"]["p"] == pytest.approx(p, rel=0.1)
    assert after["evidence"]["kind"] == "estimate"


@pytest.mark.parametrize(("name", "kind"), [("parser", "exact"), ("parser-2", "estimate")])
def test_forced_heads(page, name, kind):
    client = page(name)
    sentence = example(client, name)
    n = len(sentence)
    before = client.ask("posterior", sentence, k=3)
    assert before["kind"] == kind
    assert len(before["tags"]) == n == len(before["subtree_probabilities"])
    for row in before["marginals"]:
        assert sum(row.values()) == pytest.approx(1, abs=0.05)
    t = min(range(n), key=lambda t: before["probabilities"][t])
    head, p = next((int(h), p) for h, p in before["marginals"][t].items() if int(h) != before["heads"][t])
    after = client.ask("posterior", sentence, k=3, evidence=evidence(n, (t, [head])))
    assert after["heads"][t] == head
    assert after["evidence"]["p"] == pytest.approx(p, rel=1e-3)
    assert all(tree["heads"][t] == head for tree in after["trees"])
    others = [h for h in range(n + 1) if h not in (t + 1, before["heads"][t])]
    assert client.ask("posterior", sentence, evidence=evidence(n, (t, others)))["heads"][t] in others


def spans_of(node):
    return {(node["first"], node["last"])}.union(*map(spans_of, node.get("children", [])))


def test_forced_and_forbidden_spans_of_a_grammar(page):
    client = page("pcfg")
    sentence = example(client, "pcfg")
    before = client.ask("posterior", sentence, k=3)
    assert (before["tree"]["first"], before["tree"]["last"]) == (0, len(sentence) - 1)
    tree = spans_of(before["tree"])
    span = next(s for s in before["spans"] if (s["first"], s["last"]) not in tree)
    place = span["first"], span["last"]
    after = client.ask("posterior", sentence, evidence=[[*place, True]])
    assert after["evidence"]["p"] == pytest.approx(span["p"], rel=1e-6)
    assert place in spans_of(after["tree"])
    assert all(place in spans_of(one["tree"]) for one in after["trees"])
    out = client.ask("posterior", sentence, evidence=[[*place, False]])
    assert out["evidence"]["p"] == pytest.approx(1 - span["p"], rel=1e-6)
    crossing = {"sentences": [sentence], "evidence": [[0, 2, True], [1, 3, True]]}
    response = client.post("/v1/m/posterior", json=crossing)
    assert response.status_code == 400
    assert "together" in response.json()["error"]["expected"]


def test_a_grammar_with_too_many_rules_has_a_tree_but_no_evidence(model, monkeypatch):
    monkeypatch.setattr("trelliswork.models.pcfg.MAX_RULES", 1)
    client = Page(model("pcfg"))
    assert not client.facts()["evidence"]
    assert len(spans_of(client.ask("posterior", "A cat ran .")["tree"])) == 7
    refused = client.post("/v1/m/posterior", json={"sentences": ["A b c"], "evidence": [[0, 1, True]]})
    assert refused.status_code == 400


def test_language_models_answer_as_the_library_does(page, model):
    lm = page("hmm-lm")
    assert lm.facts()["score"]["any_word"]
    one, any_word = (answer["log_prob"] for answer in lm.answers("score", sentences=["The cat .", ["The", None, "."]]))
    assert any_word > one  # any word is more probable than one word
    assert page("mrf-lm").facts()["score"]["kind"] == "lower"
    ngrams = page("kneser-ney").ask("next", "The", n=5)
    assert len(ngrams["next"]) == 5
    assert not {"<s>", "</s>"} & {w["word"] for w in ngrams["next"]}
    assert ngrams["end"] == pytest.approx(model("kneser-ney").next_distribution(["The"])[0], rel=1e-12)
    near = page("log-bilinear").ask("neighbors", [page("log-bilinear").facts()["word"]], n=5)["neighbors"]
    assert [w["cosine"] for w in near] == sorted((w["cosine"] for w in near), reverse=True)
    states = page("hmm-lm").ask("posterior", "The cat .")
    assert states["labels"] == model("hmm-lm").predict([["The", "cat", "."]])[0]
    assert all(sum(row.values()) == pytest.approx(1, abs=1e-4) for row in states["marginals"])
    drawn = page("hmm-lm").ask("sample", n=3, seed=2, max_length=9)["samples"]
    assert [one["words"] for one in drawn] == model("hmm-lm").sample(3, seed=2, max_length=9)
    assert all(len(one["states"]) == len(one["words"]) for one in drawn)


def test_log_evidence_within_a_beam_is_a_lower_bound(page, model):
    exact = page("hmm")
    assert exact.facts()["score"]["kind"] == "exact"
    pruned = Page(copy.copy(model("hmm")).set_params(beam="size=1"))
    assert pruned.facts()["score"]["kind"] == "lower"
    assert pruned.ask("score", "The cat .")["log_prob"] <= exact.ask("score", "The cat .")["log_prob"]


def test_evidence_that_the_lexicon_excludes_is_used_and_has_probability_zero(page):
    answer = page("hmm").ask("posterior", "the cat .", evidence=[["VBD"], None, None])
    assert answer["labels"][0] == "VBD"
    assert answer["evidence"] == {"p": 0.0, "log_prob": None, "kind": "exact"}


def test_warnings_become_notes(model):
    tagger = copy.copy(model("factorial-crf"))

    def warned(X, **how):
        warnings.warn("not converged", UserWarning, stacklevel=1)
        return model("factorial-crf").predict(X, **how)

    tagger.predict = warned
    assert Page(tagger).ask("posterior", "The old man .")["notes"] == ["not converged"]
