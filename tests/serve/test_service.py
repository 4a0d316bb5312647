"""The service as a real process: the same answers as predict, whatever clients and workers do."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.serve.conftest import KEY, TEXT
from tests.serve.services import received

pytestmark = pytest.mark.programs


ROOT = Path(__file__).resolve().parents[2]
OWN = f"Host: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\n".encode()
HEAD = b"POST /v1/tag HTTP/1.1\r\n" + OWN + b"Content-Type: application/json\r\n"


def expected(model, sentences):
    return [{"labels": labels} for labels in model.predict(sentences)]


def test_answers_are_those_of_predict(service, tagger, words):
    status, _, answer = service.post("/v1/tag", {"sentences": TEXT})
    assert (status, answer) == (200, {"model": "tagger", "answers": expected(tagger, TEXT)})
    _, _, answer = service.post("/v1/tagger/tag", {"sentences": [" ".join(s) for s in TEXT], "probabilities": True})
    rows = tagger.predict_marginals(TEXT)
    for own, labels, row in zip(answer["answers"], tagger.predict(TEXT), rows, strict=True):
        assert own == {"labels": labels, "probabilities": [p[y] for p, y in zip(row, labels, strict=True)]}
    _, _, answer = service.post("/v1/lm/score", {"sentences": TEXT[:30]})
    assert [one["log_prob"] for one in answer["answers"]] == words.log_prob(TEXT[:30]).tolist()
    _, _, answer = service.post("/v1/fill", {"sentences": ["The ___ is ___ .", ["a", None]], "n": 3})
    want = [words.fill(sentence, 3) for sentence in ("The ___ is ___ .", ["a", None])]
    got = [[[(e["word"], e["p"]) for e in best] for best in one["blanks"]] for one in answer["answers"]]
    assert got == want


def test_concurrent_requests_are_answered_together_and_each_gets_its_own(service, tagger):
    batches_before, requests = service.metric("batches_total"), 64
    parts = [TEXT[n % 150 : n % 150 + 1 + n % 20] for n in range(requests)]
    want = [expected(tagger, part) for part in parts]
    words_before = service.metric("words_total")

    def ask(n):
        return service.post("/v1/tag", {"sentences": parts[n]})[2]["answers"]

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, range(requests))) == want
    assert service.metric("words_total") - words_before == sum(len(s) for part in parts for s in part)
    assert 0 < service.metric("batches_total") - batches_before <= requests


def test_workers_share_the_connections_and_the_pages_of_the_weights(service, folder):
    idle = [service.connect() for _ in range(20)]
    service.until(lambda: service.metric("connections") >= 20)
    (file,) = (folder / "tagger").glob("weights-*")
    assert len(service.workers) == 2
    for worker in service.workers:
        assert f"/memfd:{file.name}" in Path(f"/proc/{worker}/maps").read_text()  # one copy in memory for all
    assert min(map(_n_sockets, service.workers)) >= 8
    for one in idle:
        one.close()


def _n_sockets(worker: int) -> int:
    return sum("socket:" in str(file.readlink()) for file in Path(f"/proc/{worker}/fd").iterdir())


def test_a_stream_is_answered_while_it_is_sent(service, tagger):
    head = b"POST /v1/tagger/tag HTTP/1.1\r\n" + OWN + b"Content-Type: application/x-ndjson\r\n"
    stream = service.connect(head + b"Transfer-Encoding: chunked\r\n\r\n")

    def send(*lines):
        data = "".join(line + "\n" for line in lines).encode()
        stream.sendall(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    want = expected(tagger, TEXT[:50])
    got = b""
    for n in range(3):  # one at a time, each answered before the next is sent; slower than a request may be
        send(json.dumps(TEXT[n]))
        got += received(stream, b"}\n")
        time.sleep(0.4)
    send("[1]", "no json", *(json.dumps(s) for s in TEXT[3:50]))
    stream.sendall(b"0\r\n\r\n")
    got += received(stream, b"\r\n0\r\n\r\n")
    stream.close()
    lines = [json.loads(line) for line in re.findall(rb"^\{.*\}$", got, re.MULTILINE)]
    assert [line for line in lines if "error" not in line] == want
    errors = [line["error"] for line in lines if "error" in line]
    assert [error["what"] for error in errors] == ["token 0 of line 4", "line 5"]
    assert lines.index({"error": errors[0]}) == 3


def test_a_long_stream_on_one_connection(service, tagger):
    lines = "\n".join(json.dumps(sentence) for sentence in TEXT * 3)
    _, headers, text = service.post("/v1/tagger/tag", lines.encode(), "application/x-ndjson")
    assert headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line) for line in text.splitlines()] == expected(tagger, TEXT) * 3


def test_malformed_and_slow_clients_do_not_disturb_others(service, tagger):
    half = [
        service.connect(HEAD + b"Content-Length: 99\r\n\r\n{"),
        service.connect(b"POST /v1/t"),
        service.connect(),
        service.connect(HEAD.replace(b"json", b"x-ndjson") + b'Transfer-Encoding: chunked\r\n\r\n4\r\n"a"\n\r\n'),
    ]
    body = json.dumps({"sentences": TEXT * 5, "probabilities": True}).encode()
    lazy = socket.socket()  # sends requests, and never reads an answer
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    lazy.connect(("127.0.0.1", service.port))
    lazy.settimeout(5)
    began = time.monotonic()
    for _ in range(40):
        try:
            lazy.sendall(HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        except OSError:
            break
    for raw in (b"\x16\x03\x01nonsense\r\n\r\n", b"POST /v1/tag HTTP/1.1\r\n\r\n"):
        answer = service.connect(raw)
        assert b" 400 " in received(answer, b"\r\n")
        answer.close()
    assert service.post("/v1/tag", {"sentences": TEXT[:2]})[2]["answers"] == expected(tagger, TEXT[:2])
    for one in half:  # closed by the server when their time is over
        received(one)
        one.close()
    service.until(lambda: service.metric("connections") <= 2, 10)
    assert time.monotonic() - began < 12
    lazy.close()


def test_a_killed_worker_is_replaced_and_its_numbers_are_kept(service, tagger):
    before, restarts = service.metric("requests_total"), service.metric("restarts_total")
    victim = service.workers[0]
    os.kill(victim, signal.SIGKILL)
    for _ in range(10):  # new connections go to the other one
        assert service.post("/v1/tag", {"sentences": TEXT[:2]})[0] == 200
    service.until(lambda: service.metric("restarts_total") == restarts + 1)
    service.until(lambda: service.metric("workers") == 2)
    assert victim not in service.workers
    assert service.metric("requests_total") >= before + 10
    assert service.post("/v1/tag", {"sentences": TEXT[:9]})[2]["answers"] == expected(tagger, TEXT[:9])


def test_models_are_loaded_again_under_load_without_a_failed_request(service, folder, tagger, other_tagger):
    old, new = expected(tagger, TEXT[:5]), expected(other_tagger, TEXT[:5])
    assert old != new
    answers, stop = [], threading.Event()

    def ask():
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
        raw = json.dumps({"sentences": TEXT[:5]})
        while not stop.is_set():  # one connection, many requests
            connection.request("POST", "/v1/tag", raw, {"content-type": "application/json", "x-api-key": KEY})
            response = connection.getresponse()
            answers.append((response.status, json.loads(response.read())["answers"]))
            time.sleep(0.005)
        connection.close()

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask) for _ in range(4)]
        try:
            for model in (other_tagger, tagger):
                done = service.metric("reloads_total")
                model.save(folder / "tagger")
                service.process.send_signal(signal.SIGHUP)
                service.until(lambda before=done: service.metric("reloads_total") == before + 4)  # two models each
            (folder / "tagger" / "model.json").write_text("damaged")
            service.process.send_signal(signal.SIGHUP)
            service.until(lambda: service.metric('reloads_total{result="failed"}') == 2)
        finally:
            stop.set()
            shutil.rmtree(folder / "tagger")
            tagger.save(folder / "tagger")
        for one in asking:
            one.result()
    assert {status for status, _ in answers} == {200}
    assert all(answer in (old, new) for _, answer in answers)
    assert new in [answer for _, answer in answers]
    assert answers[-1][1] == old


def test_requests_without_the_key_are_refused(service):
    for key, status in ((None, 401), ("", 401), ("another-key-0123456789", 401), (KEY + "x", 401), (KEY, 200)):
        headers = {"authorization": "" if key is None else f"Bearer {key}"}
        got, more, answer = service.post("/v1/tag", {"sentences": TEXT[:1]}, headers=headers)
        assert got == status
        assert got == 200 or (more["www-authenticate"], answer["error"]["what"]) == ("Bearer", "the API key")
    assert service.post("/v1/tag", {"sentences": TEXT[:1]}, headers={"authorization": "", "x-api-key": KEY})[0] == 200
    assert service.metric('requests_total{model="",ability="other",status="401"}') >= 4
    for path in ("metrics", "openapi.json", "v1/models"):
        with closing(service.connect(f"GET /{path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())) as one:
            assert b" 401 " in received(one)
    with closing(service.connect(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")) as one:
        assert received(one).endswith(b'{"status":"ok","models":["tagger","lm"]}')


def examples(language: str) -> list:
    page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


def test_client_examples_of_the_documentation(service, tmp_path):
    (python,) = examples("py")
    code = python.replace("http://127.0.0.1:8080/", service.address)
    options = {"env": os.environ | {"TRELLISWORK_API_KEY": KEY}, "cwd": tmp_path, "timeout": 60}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("['DT', ")
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    curls = [block for block in examples("sh") if block.startswith("curl")]
    assert len(curls) >= 2
    (tmp_path / "sentences.ndjson").write_text("".join(json.dumps(s) + "\n" for s in TEXT[:5]), encoding="utf-8")
    for block in curls:
        code = block.replace("http://127.0.0.1:8080/", service.address)
        done = subprocess.run(["bash", "-ec", code], capture_output=True, text=True, **options)
        assert done.returncode == 0, done.stderr
        assert done.stdout
        assert '"error"' not in done.stdout


def test_what_has_begun_is_finished_before_the_end(service, tagger):
    """This test is the last one: it ends the service."""
    idle = http.client.HTTPConnection("127.0.0.1", service.port)
    idle.request("GET", "/healthz")
    idle.getresponse().read()
    body = json.dumps({"sentences": TEXT[:5]}).encode()
    own = HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode()
    half = [service.connect(own + body[:9]), service.connect(own[:30]), service.connect()]
    time.sleep(0.2)
    service.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    for one, rest in zip(half, (body[9:], own[30:] + body, own + body), strict=True):
        one.sendall(rest)
    for one in half:
        head, _, answer = received(one).partition(b"\r\n\r\n")
        assert b" 200 " in head
        assert json.loads(answer)["answers"] == expected(tagger, TEXT[:5])
        one.close()
    assert service.process.wait(10) == 0
    with pytest.raises(OSError, match="refused"):
        service.connect()
    idle.close()
    lines = service.stop().splitlines()
    assert "Press Ctrl-C to stop." in lines[:2]
    replaced = r"worker \d ended with exit code -9; another one starts"
    assert any(re.fullmatch(replaced, line) for line in lines), lines
    assert "models were loaded again" in lines
    assert any("tagger was not loaded again" in line for line in lines)
    assert not [line for line in lines if "Traceback" in line or "failed" in line]
