"""Hostile and wrong requests of a page: every one gets a clear answer, none is executed, none stops the server."""

import pytest

from tests.serve.families import Page
from trelliswork.data.tokenize import tokenizer
from trelliswork.serve.page import HEADERS, STATIC
from trelliswork.serve.requests import RequestError
from trelliswork.serve.settings import page_name


def refused(client, ability, body, status=400):
    response = client.post(f"/v1/m/{ability}", json=body)
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"what", "expected", "got"}
    return error


@pytest.mark.parametrize(
    ("body", "expected", "status"),
    [
        ({}, "sentences", 400),
        ({"sentences": ["a " * 201]}, "at most 200 words", 413),
        ({"sentences": ["a"], "k": 0}, "1 to 20", 400),
        ({"sentences": ["a"], "k": 10**30}, "1 to 20", 400),
        ({"sentences": ["a"], "k": True}, "1 to 20", 400),
        ({"sentences": ["a"], "k": 1.5}, "1 to 20", 400),
        ({"sentences": ["a"], "kk": 1}, "no other fields", 400),
        ({"sentences": ["a"], "evidence": "DT"}, "a list", 400),
        ({"sentences": ["a"], "evidence": {"token": 0}}, "a list", 400),
        ({"sentences": ["a"], "evidence": []}, "each of the 1 tokens", 400),
        ({"sentences": ["a"], "evidence": [None, ["DT"]]}, "each of the 1 tokens", 400),
        ({"sentences": ["a"], "evidence": ["DT"]}, "at least one label", 400),
        ({"sentences": ["a"], "evidence": [[]]}, "at least one label", 400),
        ({"sentences": ["a"], "evidence": [["no such"]]}, "a label of the model", 400),
        ({"sentences": ["a"], "evidence": [[["DT"]]]}, "a label of the model", 400),
        ({"sentences": ["a"], "evidence": [[{}]]}, "a label of the model", 400),
        ({"sentences": ["a"], "evidence": [[True]]}, "a label of the model", 400),
        ({"sentences": ["a", "b"], "evidence": [None]}, "one sentence", 400),
    ],
)
def test_wrong_fields_of_a_tagger(page, body, expected, status):
    assert expected in refused(page("crf"), "posterior", body, status)["expected"]


@pytest.mark.parametrize(
    ("name", "ability", "body", "expected"),
    [
        ("chunker", "posterior", {"sentences": [[["A"]]]}, "2 strings"),
        ("chunker", "posterior", {"sentences": [[["A", ""]]]}, "2 strings"),
        ("numbers", "posterior", {"sentences": [[1, "two"]]}, "integers"),
        ("factorial-crf", "posterior", {"sentences": ["a"], "evidence": {"no": [["DT"]]}}, "pos"),
        ("factorial-crf", "posterior", {"sentences": ["a"], "evidence": [["DT"]]}, "pos"),
        ("factorial-crf", "posterior", {"sentences": ["a"], "k": 5}, "no other fields"),
        ("parser", "posterior", {"sentences": [[["A", "DT"]]], "evidence": [[1]]}, "a head of the model"),
        ("parser", "posterior", {"sentences": [[["A", "DT"]]], "evidence": [[7]]}, "a head of the model"),
        ("pcfg", "posterior", {"sentences": ["one"]}, "two words"),
        ("pcfg", "posterior", {"sentences": ["a b"], "evidence": [[1, 0, True]]}, "first < last"),
        ("pcfg", "posterior", {"sentences": ["a b"], "evidence": [[0, 9, True]]}, "first < last"),
        ("pcfg", "posterior", {"sentences": ["a b"], "evidence": [[0, 1, 1]]}, "first < last"),
        ("pcfg", "posterior", {"sentences": ["a b"], "evidence": {}}, "first < last"),
        ("mrf-lm", "fill", {"sentences": ["no blank"]}, "one blank"),
        ("hmm", "fill", {"sentences": ["no blank"]}, "one blank"),
        ("mrf-lm", "fill", {"sentences": ["___"], "n": 101}, "1 to 100"),
        ("mrf-lm", "sample", {"n": 51}, "1 to 50"),
        ("mrf-lm", "sample", {"seed": -1}, "0 to"),
        ("mrf-lm", "sample", {"max_length": 10**6}, "2 to 200"),
        ("mrf-lm", "sample", {"sentences": ["a"]}, "no other fields"),
        ("mrf-lm", "sample", {"text": "a"}, "no other fields"),
        ("mrf-lm", "neighbors", {"sentences": ["xyzzy"]}, "words of the model"),
        ("mrf-lm", "neighbors", {"sentences": ["the cat"]}, "words of the model"),
    ],
)
def test_wrong_fields_of_other_models(page, name, ability, body, expected):
    assert expected in refused(page(name), ability, body)["expected"]


def test_an_error_of_the_library_is_reported(page):
    assert refused(page("numbers"), "posterior", {"sentences": [[1, 99]]})["what"]


def test_a_form_of_another_site_is_refused(page):
    for headers in ({}, {"content-type": "text/plain"}, {"content-type": "application/x-www-form-urlencoded"}):
        assert page("crf").post("/v1/m/posterior", content=b"{}", headers=headers).status_code == 415
    assert (
        page("mrf-lm")
        .post("/v1/m/sample", content=b"{}\n", headers={"content-type": "application/x-ndjson"})
        .status_code
        == 415
    )


def test_words_are_returned_unchanged_and_never_executed(page):
    hostile = ["<script>alert(1)</script>", "{{7*7}}", "__import__('os')", "'; DROP TABLE", "\x00", "\u202e", "%s%n"]
    assert len(page("crf").ask("posterior", hostile)["labels"]) == len(hostile)
    assert page("kneser-ney").ask("score", hostile)["log_prob"] < 0


def test_raw_text_is_one_sentence(model):
    client = Page(model("hmm"), raw=True)
    assert client.facts()["raw"]
    (answer,) = client.answers("posterior", text=["The dog doesn't bark. It runs."])
    words = [piece.text for sentence in tokenizer()("The dog doesn't bark. It runs.") for piece in sentence]
    assert answer["words"] == words
    assert answer["labels"] == model("hmm").predict([words])[0]
    assert not Page(model("chunker"), raw=True).facts()["raw"]  # words with columns are between white space anyway
    assert refused(client, "posterior", {"text": ["a", " "]})["expected"] == "a string with at least one word"


def test_unknown_addresses_and_abilities(page):
    client = page("crf")
    for method, path in (("GET", "/nothing"), ("GET", "/static/../app.py"), ("GET", "/static/%2e%2e/app.py")):
        response = client.request(method, path)
        assert response.status_code == 404
        assert "/v1/models" in response.json()["error"]["expected"]
    assert client.get("/v1/m/tag").status_code == 405
    assert client.delete("/v1/models/m").status_code == 405
    assert refused(client, "fill", {"sentences": ["a _"]}, 404)["expected"] == "one of /v1/m/tag, /v1/m/posterior"
    assert refused(client, "__class__", {}, 404)["got"] == "/v1/m/__class__"
    assert client.get("/v1/models/other").json()["error"]["expected"] == "one of m"


def test_only_names_of_this_machine_are_answered(model):
    client = Page(model("crf"), hosts=("127.0.0.1", "localhost", "[::1]"))
    for host in ("127.0.0.1:8765", "localhost:9", "[::1]:8765"):
        assert client.get("/", headers={"host": host}).status_code == 200
    for host in ("evil.example", "127.0.0.1.evil.example", "evil.example:8765", ""):
        assert client.get("/v1/models", headers={"host": host}).status_code == 400
    assert Page(model("crf")).get("/", headers={"host": "my.machine"}).status_code == 200


@pytest.mark.parametrize(
    "path", ["/", *(f"/static/{file.name}" for file in STATIC.iterdir()), "/v1/models/m", "/nothing"]
)
def test_every_answer_has_the_headers_and_refers_to_no_other_site(page, path):
    response = page("crf").get(path)
    assert response.status_code == (404 if path == "/nothing" else 200)
    for name, value in HEADERS.items():
        assert response.headers[name] == value
    text = response.text.replace("http://www.w3.org/2000/svg", "")
    assert "http:" not in text
    assert "https:" not in text
    assert "innerHTML" not in text
    assert "eval(" not in text


def test_a_service_without_a_page_has_neither_its_files_nor_its_abilities(model):
    plain = Page(model("hmm"), page=False)
    assert plain.get("/").status_code == plain.get("/static/explore.js").status_code == 404
    assert plain.get("/v1/models").json()["models"][0]["abilities"] == ["tag", "score", "fill"]
    assert plain.post("/v1/m/posterior", json={"sentences": ["a"]}).status_code == 404


def test_the_page_is_open_and_its_answers_need_the_key(model):
    client = Page(model("crf"), key=b"a-key-of-the-tests")
    assert client.get("/").status_code == client.get("/static/client.js").status_code == 200
    for path in ("/v1/models", "/v1/models/m"):
        assert client.get(path).status_code == 401
        assert client.get(path, headers={"x-api-key": "a-key-of-the-tests"}).status_code == 200
    assert client.post("/v1/m/posterior", json={"sentences": ["a"]}).status_code == 401


def test_names_of_pages():
    assert [page_name(path) for path in ("/a/tagger", "/a/my model", "/a/tag")] == ["tagger", "model", "model"]


def test_errors_shorten_long_values():
    assert len(str(RequestError("what", "expected", "x" * 10_000).to_dict())) < 200
