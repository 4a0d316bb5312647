"""The server of a page: where it listens, and that Ctrl-C stops it at once."""

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace

import pytest

from tests.serve.services import Running, received
from trelliswork.errors import DataError, ValueRangeError
from trelliswork.serve import worker
from trelliswork.serve.abilities import abilities_of
from trelliswork.serve.settings import Settings
from trelliswork.serve.sockets import check_host, is_loopback, open_socket

pytestmark = pytest.mark.programs


def test_only_loopback_addresses_by_default():
    for host in ("127.0.0.1", "127.0.0.7", "::1", "localhost"):
        assert is_loopback(host)
        check_host(host, allow_remote=False)
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.org", ""):
        with pytest.raises(ValueRangeError, match="--allow-remote"):
            check_host(host, allow_remote=False)
        check_host(host, allow_remote=True)


def test_a_port_in_use_and_an_address_of_another_machine():
    with open_socket("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(DataError, match=f"port {port} .*--port"):
            open_socket("127.0.0.1", port)
    with pytest.raises(DataError, match="cannot listen on"):
        open_socket("203.0.113.1", 0)


@pytest.fixture
def running(model, tmp_path):
    """Return the process of a page, and its address."""
    model("kneser-ney").save(tmp_path / "words")
    command = [sys.executable, "-m", "trelliswork", "explore", str(tmp_path / "words"), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    yield process, process.stdout.readline().strip()
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)


def test_the_command_serves_until_ctrl_c(running):
    process, address = running
    assert address.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(address + "v1/models/words") as answer:
        assert json.load(answer)["kind"] == "kneser-ney"
    with urllib.request.urlopen(address) as answer:
        assert "<h1" in answer.read().decode()
    idle = socket.create_connection(
        ("127.0.0.1", int(address.rsplit(":", 1)[1].strip("/")))
    )  # an open connection of a browser
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 0
    assert time.monotonic() - started < 5
    idle.close()
    lines = process.stderr.read().splitlines()
    assert lines in (["Press Ctrl-C to stop."], ["Loading the models ...", "Press Ctrl-C to stop."])


@pytest.mark.parametrize("options", [["--host", "0.0.0.0"], ["--port", "70000"], ["nothing-here"]])
def test_wrong_commands_end_with_a_message(options):
    from typer.testing import CliRunner

    from trelliswork.cli import app

    arguments = options if options == ["nothing-here"] else ["model", *options]
    result = CliRunner().invoke(app, ["explore", *arguments])
    assert result.exit_code in (1, 2)
    assert result.output
    assert "Traceback" not in result.output


def test_half_sent_requests_do_not_block_the_page(model, tmp_path):
    """More of them than connections are served at a time."""
    model("kneser-ney").save(tmp_path / "words")
    service = Running(tmp_path / "words", "--explore", "--request-seconds", 0.5)
    body = (
        b"POST /v1/score HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
    )
    half = [service.connect(body if n % 2 else b"GET / HTTP/1.1\r\nHost: 127") for n in range(1050)]
    time.sleep(0.7)
    assert json.loads(service.get("v1/models/words"))["kind"] == "kneser-ney"
    for one in half:  # until the server closes the connection
        received(one)
        one.close()
    service.stop()


@pytest.mark.parametrize("name", ["crf", "factorial-crf", "hmm-2", "parser", "pcfg", "kneser-ney", "mrf-lm", "numbers"])
def test_models_are_prepared_before_the_first_request(model, name, tmp_path, monkeypatch):
    model(name).save(tmp_path / "m")
    answered = []

    def noted(cls, page):
        def note(ability):
            return lambda *given: answered.append(ability.name) or ability.answer(*given)

        return {n: replace(ability, answer=note(ability)) for n, ability in abilities_of(cls, page).items()}

    monkeypatch.setattr(worker, "abilities_of", noted)
    served = worker.load_served(Settings(models={"m": str(tmp_path / "m")}, page=True), "m")
    assert answered == list(served.abilities)
