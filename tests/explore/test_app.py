"""Hostile and wrong requests: every one gets a clear answer, none is executed, none stops the server."""

import asyncio
import copy
import json
import threading
import warnings

import pytest

from tests.explore.conftest import client_of
from trelliswork.errors import DataError
from trelliswork.explore.abilities import explorer_of
from trelliswork.explore.app import HEADERS, MAX_WAITING
from trelliswork.explore.requests import MAX_BODY, RequestError
from trelliswork.serve.engine import Engine


def refused(client, ability, body, status=400):
    response = client.post(f"/api/{ability}", json=body)
    assert response.status_code == status, response.text
    answer = response.json()
    assert set(answer) == {"what", "expected", "got"}
    return answer


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, "a string"),
        ({"sentence": 3}, "a string"),
        ({"sentence": "  \n "}, "at least one word"),
        ({"sentence": "a " * 201}, "at most 200 words"),
        ({"sentence": "a", "k": 0}, "1 to 20"),
        ({"sentence": "a", "k": 10**30}, "1 to 20"),
        ({"sentence": "a", "k": True}, "1 to 20"),
        ({"sentence": "a", "k": 1.5}, "1 to 20"),
        ({"sentence": "a", "kk": 1}, "no other fields"),
        ({"sentence": "a", "evidence": "DT"}, "a list"),
        ({"sentence": "a", "evidence": [1]}, "force"),
        ({"sentence": "a", "evidence": [{"token": 1, "force": "DT"}]}, "from 0 to 0"),
        ({"sentence": "a", "evidence": [{"token": -1, "force": "DT"}]}, "from 0 to 0"),
        ({"sentence": "a", "evidence": [{"token": True, "force": "DT"}]}, "from 0 to 0"),
        ({"sentence": "a", "evidence": [{"token": 0, "force": "no such"}]}, "a label of the model"),
        ({"sentence": "a", "evidence": [{"token": 0, "force": ["DT"]}]}, "a label of the model"),
        ({"sentence": "a", "evidence": [{"token": 0, "force": "DT", "forbid": ["NN"]}]}, "force"),
        ({"sentence": "a", "evidence": [{"token": 0, "forbid": []}]}, "at least one value"),
        ({"sentence": "a", "evidence": [{"token": 0, "forbid": [{}]}]}, "a label of the model"),
        ({"sentence": "a b", "evidence": [{"token": 0, "force": "DT"}] * 2}, "at most one entry per token"),
        ({"sentence": "a", "evidence": [{"token": 0, "force": "DT"}] * 2}, "at most one entry per token"),
        ({"sentence": "a", "evidence": [{"token": 0, "layer": "pos", "force": "DT"}]}, "force"),
        ([], "a JSON object"),
        ("sentence", "a JSON object"),
    ],
)
def test_wrong_fields_of_a_tagger(client, body, expected):
    assert expected in refused(client("crf"), "tag", body)["expected"]


def test_all_labels_forbidden(client, model):
    evidence = [{"token": 0, "forbid": list(model("crf").labels_)}]
    assert (
        "at least one allowed label"
        in refused(client("crf"), "tag", {"sentence": "a", "evidence": evidence})["expected"]
    )


@pytest.mark.parametrize(
    ("name", "ability", "body", "expected"),
    [
        ("chunker", "tag", {"sentence": "A/DT cat"}, "2 columns"),
        ("chunker", "tag", {"sentence": "A/DT /"}, "2 columns"),
        ("numbers", "tag", {"sentence": "1 two"}, "an integer"),
        ("factorial-crf", "tag", {"sentence": "a", "evidence": [{"token": 0, "layer": "no", "force": "DT"}]}, "pos"),
        ("factorial-crf", "tag", {"sentence": "a", "k": 5}, "1 to 1"),
        ("parser", "parse", {"sentence": "A/DT", "evidence": [{"token": 0, "force": 1}]}, "a head of the model"),
        ("parser", "parse", {"sentence": "A/DT", "evidence": [{"token": 0, "force": 7}]}, "a head of the model"),
        ("pcfg", "parse", {"sentence": "one"}, "two words"),
        ("pcfg", "parse", {"sentence": "a b", "evidence": [{"first": 1, "last": 0, "force": True}]}, "first < last"),
        ("pcfg", "parse", {"sentence": "a b", "evidence": [{"first": 0, "last": 9, "force": True}]}, "first < last"),
        ("mrf-lm", "fill", {"sentence": "no blank"}, "one blank"),
        ("hmm", "fill", {"sentence": "no blank"}, "one blank"),
        ("mrf-lm", "fill", {"sentence": "_", "n": 51}, "1 to 50"),
        ("mrf-lm", "sample", {"n": 51}, "1 to 50"),
        ("mrf-lm", "sample", {"seed": -1}, "0 to"),
        ("mrf-lm", "sample", {"max_length": 10**6}, "2 to 200"),
        ("mrf-lm", "neighbors", {"word": "xyzzy"}, "words of the model"),
        ("kneser-ney", "score", {"text": "a\n" * 21}, "20 sentences"),
    ],
)
def test_wrong_fields_of_other_models(client, name, ability, body, expected):
    assert expected in refused(client(name), ability, body)["expected"]


def test_an_error_of_the_library_is_reported(client):
    answer = refused(client("numbers"), "tag", {"sentence": "1 99"})
    assert answer["what"]
    assert answer["expected"] is None


def test_bodies_that_are_not_json_are_refused(client):
    page, kind = client("crf"), {"content-type": "application/json"}
    for raw in (b"", b"{", b"\xff\xfe", b'{"sentence": NaN}', b"[" * 60000, b'{"k": ' + b"9" * 5000 + b"}"):
        response = page.post("/api/tag", content=raw, headers=kind)
        assert response.status_code == 400
        assert response.json()["expected"] == "JSON"
    assert page.post("/api/tag", content=b"{}").status_code == 415  # a form of another site could send this
    assert page.post("/api/tag", content=b"{}", headers={"content-type": "text/plain"}).status_code == 415


def test_a_long_body_is_refused_while_it_arrives(client):
    sent = []

    def chunks():
        for _ in range(1000):
            sent.append(1)
            yield b" " * 1024

    response = client("crf").post(
        "/api/tag", content=b" " * (MAX_BODY + 1), headers={"content-type": "application/json"}
    )
    assert response.status_code == 413
    response = client("crf").post("/api/tag", content=chunks(), headers={"content-type": "application/json"})
    assert response.status_code == 413


def test_an_unpaired_surrogate_is_refused(client):
    raw = b'{"sentence": "\\ud800"}'
    response = client("crf").post("/api/tag", content=raw, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert "Unicode" in response.json()["expected"]


def test_words_are_returned_unchanged_and_never_executed(client):
    hostile = ["<script>alert(1)</script>", "{{7*7}}", "__import__('os')", "'; DROP TABLE", "\x00", "\u202e", "%s%n"]
    sentence = " ".join(hostile)
    answer = client("crf").post("/api/tag", json={"sentence": sentence}).json()
    assert answer["words"] == sentence.split()
    assert client("kneser-ney").post("/api/score", json={"text": sentence.replace("\x00", "x")}).status_code == 200


def test_unknown_addresses_and_abilities(client):
    page = client("crf")
    for method, path in (("GET", "/nothing"), ("GET", "/static/../app.py"), ("GET", "/static/%2e%2e/app.py")):
        response = page.request(method, path)
        assert response.status_code == 404
        assert "api/model" in response.json()["expected"]
    assert page.get("/api/tag").status_code == 405
    assert page.delete("/api/model").status_code == 405
    assert refused(page, "fill", {"sentence": "a _"}, 404)["expected"] == "one of tag"
    assert refused(page, "__class__", {}, 404)["got"] == "__class__"


def test_only_names_of_this_machine_are_answered(client, model):
    for host in ("127.0.0.1:8765", "localhost:9", "[::1]:8765"):
        assert client("crf").get("/", headers={"host": host}).status_code == 200
    for host in ("evil.example", "127.0.0.1.evil.example", "evil.example:8765", ""):
        assert client("crf").get("/api/model", headers={"host": host}).status_code == 400
    open_to_all = client_of(model("crf"), hosts=("*",))
    assert open_to_all.get("/", headers={"host": "my.machine"}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/static/explore.js", "/static/explore.css", "/api/model", "/nothing"])
def test_every_answer_has_the_headers_and_refers_to_no_other_site(client, path):
    response = client("crf").get(path)
    for name, value in HEADERS.items():
        assert response.headers[name] == value
    text = response.text.replace("http://www.w3.org/2000/svg", "")
    assert "http:" not in text
    assert "https:" not in text
    assert "innerHTML" not in text
    assert "eval(" not in text


def test_an_unexpected_failure_is_reported_without_details_and_the_server_continues(model, caplog):
    def fail(*_, **__):
        raise ZeroDivisionError("secret")

    broken = copy.copy(model("crf"))
    broken.predict = fail
    client = client_of(broken)
    response = client.post("/api/tag", json={"sentence": "a"})
    assert response.status_code == 500
    assert "secret" not in response.text
    assert "secret" in caplog.text
    assert client.get("/api/model").status_code == 200


def test_a_model_without_a_task():
    with pytest.raises(DataError, match="object has no page"):
        explorer_of(object())


def test_the_engine_computes_one_at_a_time_and_turns_warnings_into_notes():
    engine, inside, most = Engine(name="explore"), [], []

    def work():
        inside.append(1)
        most.append(len(inside))
        warnings.warn("not converged", UserWarning, stacklevel=1)
        inside.pop()
        return {"thread": threading.current_thread().name}

    async def many():
        return await asyncio.gather(*(engine.run(work) for _ in range(8)))

    answers = asyncio.run(many())
    assert max(most) == 1
    assert answers[0] == {"thread": "explore", "notes": ["not converged"]}


def test_too_many_requests_are_refused_and_waiting_ones_answered():
    engine, gate = Engine(MAX_WAITING, status=503), threading.Event()

    def work():
        gate.wait(10)
        return {}

    async def many():
        tasks = [asyncio.create_task(engine.run(work)) for _ in range(MAX_WAITING + 4)]
        await asyncio.sleep(0.2)
        gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    answers = asyncio.run(many())
    refused = [a for a in answers if isinstance(a, RequestError)]
    assert 1 <= len(refused) <= 4
    assert all(error.status == 503 for error in refused)
    assert answers[0] == {}


def test_errors_shorten_long_values():
    error = RequestError("what", "expected", "x" * 10_000)
    assert len(json.dumps(error.to_dict())) < 200
