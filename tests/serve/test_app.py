"""The application in this process: wrong requests, limits, the engine, the OpenAPI document, metrics."""

import asyncio
import copy
import json
import os
import threading
from dataclasses import replace
from urllib.parse import urlencode

import httpx
import pytest

from tests.commands import run
from tests.serve.conftest import TEXT
from tests.serve.families import MAKERS, SENTENCES, WORDS, fitted, service_of
from trelliswork import HMM
from trelliswork.errors import DataError, LimitError, ValueRangeError
from trelliswork.rules import AtMostOnce, Before, Count
from trelliswork.serve.abilities import abilities_of
from trelliswork.serve.app import create_app
from trelliswork.serve.engine import Engine
from trelliswork.serve.metrics import BOUNDS, Metrics
from trelliswork.serve.openapi import document
from trelliswork.serve.requests import Form, RequestError
from trelliswork.serve.settings import Settings, api_key, named_models

JSON = {"content-type": "application/json"}
NDJSON = {"content-type": "application/x-ndjson"}
QUICK = ("crf", "chunker", "numbers", "parser", "kneser-ney")
FAMILIES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in MAKERS]  # others: torch


def posts(service, *requests, together=False):
    """Return the responses to requests: path, body and headers each."""
    transport = httpx.ASGITransport(create_app(service), raise_app_exceptions=False)

    async def run():
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            calls = [
                client.post(path, content=body if isinstance(body, bytes) else json.dumps(body), headers=headers)
                for path, body, headers in requests
            ]
            if together:
                return await asyncio.gather(*calls)
            return [await call for call in calls]

    return asyncio.run(run())


def post(service, path, body, headers=JSON):
    return posts(service, (path, body, headers))[0]


@pytest.fixture
def service(tagger, words):
    return service_of({"tagger": tagger, "lm": words})


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"", "the body"),
        (b"{", "the body"),
        (b"\xff\xfe", "the body"),
        (b"[" * 60000, "the body"),
        (b'{"sentences": [["\\ud800"]]}', "the body"),
        (b'{"sentences": NaN}', "the body"),
        ([], "the body"),
        ({}, "the body"),
        ({"sentences": []}, "the body"),
        ({"sentences": "a b"}, "the body"),
        ({"sentences": [[]]}, "sentence 0"),
        ({"sentences": ["a", "  "]}, "sentence 1"),
        ({"sentences": [None]}, "sentence 0"),
        ({"sentences": [["a", 1]]}, "token 1 of sentence 0"),
        ({"sentences": [["a", ""]]}, "token 1 of sentence 0"),
        ({"sentences": [["a", None]]}, "token 1 of sentence 0"),
        ({"sentences": ["a"], "topk": 0}, "field 'topk'"),
        ({"sentences": ["a"], "topk": True}, "field 'topk'"),
        ({"sentences": ["a"], "probabilities": 1}, "field 'probabilities'"),
        ({"sentences": ["a"], "other": 1}, "the fields"),
    ],
)
def test_wrong_bodies(service, body, what):
    response = post(service, "/v1/tag", body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert set(error) == {"what", "expected", "got"}
    assert error["what"].startswith(what)


def test_wrong_addresses_and_types(service):
    requests = [
        ("/v1/parse", {"sentences": ["a"]}, JSON, 404),
        ("/v1/lm/tag", {"sentences": ["a"]}, JSON, 404),
        ("/v1/nothing/tag", {"sentences": ["a"]}, JSON, 404),
        ("/v2", {}, JSON, 404),
        ("/healthz", {}, JSON, 405),
        ("/v1/tag", {"sentences": ["a"]}, {"content-type": "text/plain"}, 415),
        ("/v1/tag?topk=x", b'"a"\n', NDJSON, 400),
        ("/v1/fill", {"sentences": ["no blank"]}, JSON, 400),
    ]
    for (path, *_, status), response in zip(requests, posts(service, *(r[:3] for r in requests)), strict=True):
        assert response.status_code == status, path
        assert response.json()["error"]["expected"]
    both = service_of({"one": fitted("hmm"), "two": fitted("hmm")})
    assert "/v1/two/score" in post(both, "/v1/score", {"sentences": ["a"]}).json()["error"]["expected"]


def test_too_many_bytes_and_words(tagger):
    service = service_of({"tagger": tagger}, max_body=2000, max_words=20)
    sizes = [b" " * 2001, b" " * 10_000, b" " * 100_000, {"sentences": [["a"] * 21]}, {"sentences": ["a a"] * 11}]
    responses = posts(service, *(("/v1/tag", body, JSON) for body in sizes), ("/v1/tag", {"sentences": ["a"]}, JSON))
    assert [response.status_code for response in responses] == [413] * 5 + [200]
    lines = post(service, "/v1/tag", b'"a"\n' + json.dumps("a " * 30).encode() + b'\n"b"\n"' + b"x" * 3000, NDJSON)
    answers = [json.loads(line) for line in lines.text.splitlines()]
    assert ["labels" in answer for answer in answers] == [True, False, True, False]
    assert "words" in answers[1]["error"]["expected"]


def slow_service(tagger, **limits):
    """Return a service with a tagger that waits for a gate, and the tagger."""
    service, slow = service_of({"tagger": tagger}, **limits), copy.copy(tagger)
    slow.gate, slow.sizes = threading.Event(), []

    def predict(X, **how):
        slow.gate.wait(5)
        slow.sizes.append(len(X))
        if ["fail"] in X:
            raise DataError("one sentence failed")
        return tagger.predict(X, **how)

    slow.predict = predict
    service.models["tagger"] = replace(service.models["tagger"], model=slow)
    return service, slow


def test_a_full_queue_is_refused_with_retry_after(tagger):
    service, slow = slow_service(tagger, max_queue=2)
    threading.Timer(0.3, slow.gate.set).start()
    request = ("/v1/tag", {"sentences": ["a dog"]}, JSON)
    responses = posts(service, *[request] * 8, together=True)
    statuses = sorted(response.status_code for response in responses)
    assert statuses[:2] == [200, 200]
    assert statuses[-1] == 429
    assert all(response.headers["retry-after"] == "1" for response in responses if response.status_code == 429)


def test_waiting_requests_are_answered_by_one_call_and_only_the_guilty_fails(tagger):
    service, slow = slow_service(tagger)
    parts = [TEXT[n : n + 3] for n in range(6)]
    parts[3] = [["fail"]]
    threading.Timer(0.2, slow.gate.set).start()
    responses = posts(service, *(("/v1/tag", {"sentences": p}, JSON) for p in parts), together=True)
    for n, response in enumerate(responses):
        if n == 3:
            assert (response.status_code, response.json()["error"]["what"]) == (400, "one sentence failed")
        else:
            assert [one["labels"] for one in response.json()["answers"]] == tagger.predict(parts[n])
    assert max(slow.sizes) >= 10  # most of them together, before each was tried alone


def test_requests_with_rules_are_answered_one_by_one(tagger):
    """Their sums may depend on the other sentences, where a product would be too large."""
    service, slow = slow_service(tagger)
    rules = f"Count({json.dumps(tagger.labels_[0])}, maximum=99)"
    threading.Timer(0.2, slow.gate.set).start()
    requests = [("/v1/tag", {"sentences": TEXT[n : n + 3], "rules": rules}, JSON) for n in range(4)]
    assert {response.status_code for response in posts(service, *requests, together=True)} == {200}
    assert slow.sizes == [3] * 4


def test_answers_that_come_too_late(tagger):
    service, slow = slow_service(tagger, timeout=0.15)
    requests = [("/v1/tag", {"sentences": ["a"]}, JSON), ("/v1/tag", {"sentences": ["a"], "probabilities": True}, JSON)]
    threading.Timer(0.5, slow.gate.set).start()
    started, waited = posts(service, *requests, together=True)
    assert (started.status_code, waited.status_code) == (504, 503)
    assert waited.headers["retry-after"] == "1"


def test_failures_are_logged_and_limits_are_413(tagger, caplog):
    service = service_of({"tagger": tagger})
    for error, status in ((LimitError("too long"), 413), (ZeroDivisionError("secret"), 500)):
        broken = copy.copy(tagger)
        broken.predict = lambda X, error=error, **how: (_ for _ in ()).throw(error)
        service.models["tagger"] = replace(service.models["tagger"], model=broken)
        response = post(service, "/v1/tag", {"sentences": ["a"]})
        assert response.status_code == status
        assert "secret" not in response.text
    assert "secret" in caplog.text


@pytest.mark.parametrize("name", FAMILIES)
def test_models_of_every_family_answer_as_their_methods(name):
    model = fitted(name)
    form = Form.of(model)
    sentences = {
        "words": WORDS[:6],
        "columns": [[[w, t] for w, t in zip(s.words, s.tags, strict=True)] for s in SENTENCES[:6]],
        "attributes": [[[f"w={w}"] for w in s] for s in WORDS[:6]],
        "numbers": [[0, 1, 2, 1], [2]] * 3,
    }[form.kind]
    X = [[tuple(token) for token in s] for s in sentences] if form.kind == "columns" else sentences
    abilities = abilities_of(type(model))
    service = service_of({name: model})
    for ability in abilities.values():
        fields = {option.name: True if option.most == 1 else 2 for option in ability.options[:1]}
        given = (
            [["a", None]] if ability.blanks and form.kind == "words" else [[0, None]] if ability.blanks else sentences
        )
        requests = [(f"/v1/{ability.name}", {"sentences": given}, JSON)] * 3
        requests.append((f"/v1/{ability.name}", {"sentences": given} | fields, JSON))
        *plain, more = posts(service, *requests, together=True)
        options = ability.read_options(fields)
        own = X if given is sentences else given
        assert {response.status_code for response in (*plain, more)} == {200}, plain[0].text
        assert plain[0].json()["answers"] == ability.answer(model, own, ability.read_options({}))
        assert more.json()["answers"] == ability.answer(model, own, options)
        assert len({response.text for response in plain}) == 1
    if "tag" in abilities and not hasattr(model, "layers"):
        assert [one["labels"] for one in post(service, "/v1/tag", {"sentences": sentences}).json()["answers"]] == (
            model.predict(X)
        )


@pytest.mark.parametrize("name", FAMILIES)
def test_abilities_that_are_answered_together_do_not_depend_on_other_sentences(name):
    """Bit for bit, with all options: the promise behind ``Ability.together``."""
    model = fitted(name)
    X = {"ready": [[{f"w={w}": 1.0} for w in s] for s in TEXT[:40]], "numbers": [[0, 1, 2, 1], [2, 2], [1]] * 9}.get(
        name
    )
    if X is None:
        X = [list(zip(s, ["NN"] * len(s), strict=True)) if Form.of(model).n_columns == 2 else s for s in TEXT[:40]]
    for ability in abilities_of(type(model)).values():
        if not ability.together:
            continue
        for fields in ({}, *({o.name: True if o.most == 1 else 3} for o in ability.options if o.most)):
            options = ability.read_options(fields)
            together = ability.answer(model, X, options)
            for n in range(0, len(X), 3):
                assert ability.answer(model, X[n : n + 3], options) == together[n : n + 3]


def test_the_openapi_document(service):
    described = document(service.settings, service.named, has_key=True)
    assert {"/v1/tag", "/v1/tagger/tag", "/v1/lm/score", "/v1/fill", "/healthz", "/metrics"} <= set(described["paths"])
    fields = described["paths"]["/v1/tag"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(fields["properties"]) == {"sentences", "text", "probabilities", "topk", "known", "rules"}
    names = [p["post"]["operationId"] for p in described["paths"].values() if "post" in p]
    assert len(set(names)) == len(names)
    for path, operations in described["paths"].items():
        assert path.startswith("/")
        for operation in operations.values():
            assert operation["summary"].endswith(".")
            assert all(len(status) == 3 and r["description"] for status, r in operation["responses"].items())
    text = json.dumps(described)
    for name in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert name in described["components"]["schemas"]
    try:
        from openapi_spec_validator import validate
    except ImportError:
        return
    validate(described)


def test_metrics_are_of_all_workers():
    named = {"m": {"tag": None}}
    memory = Metrics.create(named, 3)
    one, two, master = (Metrics(named, memory, 3, row) for row in range(3))
    os.close(memory)
    for metrics, seconds in ((one, 0.001), (two, 0.3), (two, 99)):
        metrics.answered("m", "tag", 200, seconds)
        metrics.set("connections", 5)
    master.add("restarts_total")
    text = one.text()
    assert text == two.text() == master.text()
    assert 'trelliswork_requests_total{model="m",ability="tag",status="200"} 3\n' in text
    assert f'trelliswork_request_seconds_bucket{{le="{BOUNDS[0]}"}} 1\n' in text
    assert 'trelliswork_request_seconds_bucket{le="30.0"} 2\n' in text
    assert 'trelliswork_request_seconds_bucket{le="+Inf"} 3\n' in text
    assert "trelliswork_request_seconds_count 3\n" in text
    assert "trelliswork_connections 10\n" in text
    assert "trelliswork_restarts_total 1\n" in text
    master.reset(1)
    assert "trelliswork_connections 5\n" in one.text()
    assert "trelliswork_request_seconds_count 3\n" in one.text()


def test_hosts_and_settings(tagger, monkeypatch, tmp_path):
    service = service_of({"tagger": tagger}, hosts=("127.0.0.1",))
    (response,) = posts(service, ("/v1/tag", {"sentences": ["a"]}, JSON | {"host": "evil.example"}))
    assert response.status_code == 400
    assert Settings.from_json(service.settings.to_json()) == service.settings
    assert named_models(["a/tagger", "b=x/tagger"]).keys() == {"tagger", "b"}
    for wrong in (["a/m", "b/m"], ["tag"], ["a b=c"], ["m/é"]):
        with pytest.raises(ValueRangeError, match="NAME=DIRECTORY"):
            named_models(wrong)
    monkeypatch.delenv("TRELLISWORK_API_KEY", raising=False)
    assert api_key() is None
    for key in ("", "short", "with space 0123456789"):
        monkeypatch.setenv("TRELLISWORK_API_KEY", key)
        with pytest.raises(ValueRangeError, match="at least 16"):
            api_key()
    with pytest.raises(DataError, match="not a model"):
        Settings(models={"m": str(tmp_path)}).abilities  # noqa: B018


def test_the_engine_mixes_work_in_order():
    seen = []

    def double(items):
        seen.append(len(items))
        return [2 * item for item in items]

    async def many():
        engine = Engine(max_waiting=100, batch_words=6)
        gate = threading.Event()
        first = engine.submit(None, lambda items: [gate.wait(5)], [0])
        jobs = [engine.submit("ab"[n % 2], double, [n, n], words=2) for n in range(10)]
        jobs[4].future.cancel()
        gate.set()
        assert await first.future == [True]
        answers = [await job.future for n, job in enumerate(jobs) if n != 4]
        with pytest.raises(RequestError):
            Engine(max_waiting=0).submit(None, double, [])
        return answers

    assert asyncio.run(many()) == [[2 * n, 2 * n] for n in range(10) if n != 4]
    assert sorted(seen) == [2, 4, 4, 4, 4] or max(seen) <= 6


def test_models_are_frozen_copies(tagger):
    assert HMM().fit([["a", "b"]] * 3, [["x", "y"]] * 3).freeze().predict([["a"]]) == [["x"]]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--host", "0.0.0.0", "m"], "--allow-remote"),
        (["nothing-here"], "not a model"),
        (["a=m", "a=n"], "NAME=DIRECTORY"),
        (["m", "--workers", "0"], "--workers"),
        ([], "models"),
    ],
)
def test_wrong_commands_end_with_a_message(words, text):
    done = run("serve", *words)
    assert done.returncode in (1, 2)
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_raw_text_is_tokenized_and_answers_have_places(service, tagger):
    text = "Mr. Smith saw it. \n\nIt isn't (very) old!"
    answer = post(service, "/v1/tag", {"text": text, "probabilities": True}).json()["answers"]
    words = [["Mr.", "Smith", "saw", "it", "."], ["It", "is", "n't", "(", "very", ")", "old", "!"]]
    assert [one["words"] for one in answer] == words
    assert [[text[start:stop] for start, stop in one["places"]] for one in answer] == words
    assert [one["labels"] for one in answer] == tagger.predict(words)
    for body in ({"text": " \n"}, {"text": 3}, {"text": "a", "sentences": ["b"]}):
        assert post(service, "/v1/tag", body).status_code == 400
    parts = post(service, "/v1/tag", {"text": [text, "One."]}).json()["answers"]  # each string is a sentence
    assert [one["words"] for one in parts] == [words[0] + words[1], ["One", "."]]
    given = post(service, "/v1/lm/fill", {"text": "The ___ isn't."}).json()["answers"][0]
    want = post(service, "/v1/lm/fill", {"sentences": [["The", None, "is", "n't", "."]]}).json()["answers"][0]
    assert (given["words"], given["blanks"]) == (["The", "___", "is", "n't", "."], want["blanks"])


def test_answers_under_rules():
    model, rule = fitted("crf"), AtMostOnce("NN", "DT") & Before("NN", "VBD")
    service, fields = service_of({"tagger": model}), {"sentences": WORDS[:6], "rules": repr(rule)}
    plain, best, stream = posts(
        service, ("/v1/tag", fields, JSON), ("/v1/tag", fields | {"topk": 2}, JSON),
        ("/v1/tag?" + urlencode({"rules": repr(rule)}), "\n".join(map(json.dumps, WORDS[:6])).encode(), NDJSON),
        together=True,
    )  # fmt: skip
    answers = plain.json()["answers"]
    assert [one["labels"] for one in answers] == model.predict(WORDS[:6], rules=rule) != model.predict(WORDS[:6])
    assert [one["rules_probability"] for one in answers] == model.rules_probability(WORDS[:6], rule).tolist()
    assert {one["kind"] for one in answers} == {"exact"}
    assert list(map(json.loads, stream.text.splitlines())) == answers
    assert [[y["labels"] for y in one["labelings"]] for one in best.json()["answers"]] == [
        [labels for labels, _ in row] for row in model.predict_topk(WORDS[:6], 2, rules=rule)
    ]
    assert best.json()["answers"][0]["rules_probability"] == answers[0]["rules_probability"]
    each = {"sentences": WORDS[:2], "rules": [None, "Count(DT, maximum=0)"]}
    second = post(service, "/v1/tag", each).json()["answers"][1]["labels"]
    assert second == model.predict(WORDS[:2], rules=[None, Count("DT", maximum=0)])[1]
    schema = document(service.settings, service.named, has_key=False)["paths"]["/v1/tag"]["post"]["requestBody"]
    assert "rules" in schema["content"]["application/json"]["schema"]["properties"]


@pytest.mark.parametrize(("rules", "what"), [
    ("AtMostOnce(DTT)", "'DTT' is not one of the labels: did you mean 'DT'"),
    ("Count(DT, 2) & Count(DT, maximum=1)", "sentence 0: no labeling of its 2 words satisfies"),
    ("Count(DT, 9)", 'sentence 0: no labeling of its 2 words satisfies Count("DT", minimum=9)'),
    ("AtMost(DT)", "there is no rule AtMost: did you mean AtMostOnce"),
    ("", "there is no rule"),
    ("(" * 500, "is no rule"),
    (3, "a rule is a value of trelliswork.rules or its text"),
    ({"pos": "AtMostOnce(DT)"}, "a rule is a value of trelliswork.rules or its text"),
    ([{}], "a rule is a value of trelliswork.rules or its text"),
    (["AtMostOnce(DT)"] * 2, "a list of 1, got 2"),
])  # fmt: skip
def test_wrong_rules(rules, what):
    service = service_of({"tagger": fitted("crf")}, page=True)
    for ability in ("tag", "posterior"):
        response = post(service, f"/v1/{ability}", {"sentences": ["A dog"], "rules": rules})
        assert response.status_code == 400
        assert what in response.json()["error"]["what"]
    ((labels, model),) = {"layers": fitted("factorial-crf")}.items()
    layered = service_of({labels: model})
    right = post(layered, "/v1/tag", {"sentences": ["A dog"], "rules": {"chunk": "Length(NP, 1)"}})
    assert 0 < right.json()["answers"][0]["rules_probability"] < 1
    wrong = post(layered, "/v1/tag", {"sentences": ["A dog"], "rules": "Length(NP, 1)"})
    assert "rules must be a dict by layer, of the layers pos, chunk" in wrong.json()["error"]["what"]


def test_thirty_rules_that_are_too_many_together_are_answered_soon(tagger):
    """All are broken: the best labeling would need too many states, which the error says."""
    model = fitted("crf")
    rules = " & ".join(f"~AtMostOnce({json.dumps(label)})" for label in model.labels_[:30])
    response = post(service_of({"tagger": model}, timeout=60.0), "/v1/tag", {"sentences": WORDS[:20], "rules": rules})
    assert response.status_code in (400, 413)
    assert "rule" in response.json()["error"]["what"]


def test_answers_say_which_words_are_known():
    known = SENTENCES[0].words[0]
    service = service_of({"tagger": fitted("crf")})
    plain, marked = (
        post(service, "/v1/tag", {"sentences": [[known, "nonesuch"]], "topk": k} | more).json()["answers"][0]
        for k, more in ((1, {}), (1, {"known": True}))
    )
    assert marked == plain | {"known": [True, False]}
    best = post(service, "/v1/tag", {"sentences": [[known, "nonesuch"]], "topk": 2, "known": True}).json()["answers"][0]
    assert (best["known"], len(best["labelings"])) == ([True, False], 2)
